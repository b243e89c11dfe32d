"""Job: what all parts of one run of a load work with.

Tests   tests/drainer/points/load/test_load.py
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, TypeAlias, TypeVar

from drainer.checkpoint.job_findings import JobFindings
from drainer.checkpoint.load_progress import LoadProgress
from drainer.config.options import DrainerConfig
from drainer.mysql.connection import Target
from drainer.mysql.errors import SessionError, StatementRefused, TransientError, final_error, safe_text
from drainer.mysql.session import DownstreamSession
from drainer.points.load.copier import Spread
from drainer.points.load.counters import Counters
from drainer.points.load.reconcile import Mode
from drainer.stream.rules.rule_set import Rules
from drainer.stream.schema.tracker import SchemaTracker
from tidb_binlog.backoff import Backoff
from tidb_binlog.clock import Clock
from tidb_binlog.cluster.registry import Registry
from tidb_binlog.errors import BinlogError, Unavailable
from tidb_binlog.late_dataclass import dataclass
from tidb_binlog.observe import log
from tidb_binlog.tso import Ts
from tidb_binlog.upstream_port import Upstream

logger = log.get("load")
T = TypeVar("T")
TRIES: Final = 8


@dataclass(frozen=True, slots=True)
class Job:
    """`session` is the load's own downstream, for what is not rows; `source`: where the upstream's SQL is.
    `run`: a timestamp drawn when this run began. `rate_rows`: rows a second at most, 0: no limit. `spread`:
    what copies chunks in other processes, where these can see the upstream's T. `reader`: the name of the one
    that reads the stream from T on, "": the Drainer does."""

    settings: DrainerConfig
    upstream: Upstream
    nodes: Registry
    rules: Rules
    target: Target
    source: Target
    session: DownstreamSession
    progress: LoadProgress
    run: int
    mode: Mode
    rate_rows: int
    workers: int
    counters: Counters
    clock: Clock
    spread: SpreadOf | None = None
    reader: str = ""

    @property
    def findings(self) -> JobFindings:
        """What the downstream lacks of what this load and those before it have made."""
        return JobFindings(self.settings.checkpoint_schema, self.upstream.cluster_id)


SpreadOf: TypeAlias = Callable[[Job, Ts, SchemaTracker], Spread]
"""For a pass at that timestamp, with the upstream's schema then."""


def insist(function: Callable[..., T], *arguments: object, wait: Callable[[float], bool]) -> T:
    """On a thread of its own, again where a session was lost. `wait` says true where all is to end; then, and
    after too many tries, it raises the `TransientError`."""
    backoff = Backoff(0.1, 5.0)
    while True:
        try:
            return function(*arguments)
        except TransientError as error:
            if backoff.attempts >= TRIES or wait(backoff.next_s()):
                raise
            logger.warning("a session was lost", reason=safe_text(error))


async def blocking(target: Target, function: Callable[..., T], *arguments: object, tries: int = TRIES) -> T:
    """On a thread, again where a session was lost: what it does may be done twice. Errors of the downstream's
    session come in the words of an operator."""
    backoff = Backoff(0.1, 5.0)
    while True:
        tries -= 1
        try:
            return await asyncio.to_thread(function, *arguments)
        except SessionError as error:
            if tries <= 0 or isinstance(error, StatementRefused):
                raise said(target, error) from None
            logger.warning("waiting for the downstream", reason=safe_text(error))
        await asyncio.sleep(backoff.next_s())


def said(target: Target, error: SessionError) -> BinlogError:
    """`DownstreamError` for what it refuses, `Unavailable` for what passes."""
    if isinstance(error, StatementRefused):
        return final_error(error, "loading")
    return Unavailable(
        f"downstream {target!r}: {safe_text(error)}",
        hint="run the same command again once it is back: it goes on where it stopped",
    )
