"""Start wait: the upstream at a start, and what is done while it cannot be reached.

Does   waits for it (`start-wait`). Where that was in vain and there is a relay log, the downstream is brought
       to a consistent state from it, once; then the wait continues without an end, and so does the drainer
       when the upstream is back
Never  recovers as a standby, after a single attempt, or while a drainer is connected to the downstream: a
       process whose own way to the upstream is broken must not fence one off that works
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from tidb_binlog import tso
from tidb_binlog.backoff import Backoff
from tidb_binlog.errors import Unavailable
from tidb_binlog.late_dataclass import dataclass
from tidb_binlog.observe import log, show
from tidb_binlog.serving.starting import Starting
from tidb_binlog.tso import Ts

T = TypeVar("T")
logger = log.get("drainer.reaching")

PAUSE_S: Final = 0.5
PAUSE_MAX_S: Final = 5.0


class AtWork(Unavailable):
    """Another drainer works on the checkpoint downstream: there is nothing to recover, or not yet."""


@dataclass(frozen=True, slots=True)
class Summary:
    """What a recovery did. `nothing`: why there was nothing to do, "" if there was. `is_unknown`:
    whether the downstream is consistent cannot be known."""

    nothing: str = ""
    from_ts: Ts = 0
    to_ts: Ts = 0
    records: int = 0
    rows: int = 0
    ddls: int = 0
    seconds: float = 0.0
    is_unknown: bool = False

    def __str__(self) -> str:
        if self.nothing:
            return f"relay log: nothing to do: {self.nothing}"
        return (
            f"relay log: the downstream is consistent as of commit_ts {self.to_ts} "
            f"({tso.physical_ms(self.to_ts)} ms): {self.records} records after {self.from_ts}, "
            f"{self.rows} row changes, {self.ddls} DDL, in {self.seconds:.1f} s"
        )


Recover = Callable[[], Awaitable[Summary]]


async def reach(
    connect: Callable[[], Awaitable[T]],
    recover: Recover | None,
    starting: Starting,
    *,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> T:
    """The upstream. `recover` is None where nothing may be recovered.

    Raises `Unavailable` when the start has waited long enough and nothing was recovered, and what `recover`
    raises but for `AtWork`.
    """
    try:
        return await starting.wait_for(connect)
    except Unavailable as error:
        if recover is None:
            raise
        gone = error
    logger.warning("upstream is not reachable, reading the relay log", reason=gone.message)
    recovered, backoff = "", Backoff(PAUSE_S, PAUSE_MAX_S)
    while True:
        reason = recovered
        if not recovered:
            try:
                reason = recovered = _printed(await recover(), gone)
            except AtWork as error:
                reason = error.message
        starting.waits(f"waits: {gone.message}; {reason}")
        await sleep(backoff.next_s())
        try:
            upstream = await connect()
        except Unavailable as error:
            gone = error
            continue
        starting.waits("")
        return upstream


def _printed(summary: Summary, gone: Unavailable) -> str:
    """For an operator who waits. Raises `gone` where there is nothing that could be consistent."""
    if summary.is_unknown:
        raise gone
    show.print_lines(str(summary))
    return str(summary)
