"""Idle watermark: draws the timestamps that raise the watermark: for what was committed here, and in a pump
without writes when a puller waits for it.

Owns    one loop that draws timestamps; another stores them for pullers that know only stored time marks
Why     the merge of several pumps waits for the slowest watermark. A timestamp is drawn first and the log
        read afterwards: whatever is acknowledged by then carries a commit_ts above it or is settled in
        front of it (see `sorter`)
Given   a commit that is stored here, or that another pump has (its puller says so), wakes the drawing before
        anybody waits. What a peer says was drawn is never the watermark itself: a lie, or a clock that is
        ahead, would hide what others commit below it
Pace    the first draw for a newly awaited or given timestamp happens at once, or as long after the last one
        as that took, `rest_s` at least and `pace_s` at most (`pace_s` while nobody waits): many commits share
        one, and one that waited for PD's election keeps nobody waiting as long again. If it is not
        enough (the oracle is held back, or does not answer) the next ones come `pace_s` apart, for one that
        lies ahead as far apart as it does, up to a second. A drawn timestamp that is large enough is never
        drawn again: an open prewrite holds it back until it settles. Where the oracle can tell what it has
        given last, that is asked first: a watermark takes no timestamp from anybody
Holds   what is awaited is read anew at every turn: nothing that was awaited once, reached or not, decides
        whether the next timestamp is drawn
Never   ends by an oracle that answers nonsense: it is asked again, and /status says why the watermark stands
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from pump import metrics
from pump.storage.storage import Storage
from tidb_binlog import binlog, tso
from tidb_binlog.clock import look_later
from tidb_binlog.errors import BinlogError
from tidb_binlog.observe import log
from tidb_binlog.tso import Ts
from tidb_binlog.upstream_port import ReadableOracle, TimestampOracle

AHEAD_S: Final = 1.0

_logger = log.get("idle_watermark")


class IdleWatermark:
    """`watermark` reads the current one, `mark` takes a drawn timestamp."""

    def __init__(
        self,
        oracle: TimestampOracle,
        watermark: Callable[[], int],
        mark: Callable[[int], None],
        *,
        pace_s: float = 0.05,
        rest_s: float = 0.005,
    ) -> None:
        self._oracle = oracle
        self._watermark = watermark
        self._mark = mark
        self._pace_s = pace_s
        self._rest_s = rest_s
        self._waiting: dict[object, int] = {}
        self._wake = asyncio.Event()
        self._drawn = 0
        self._given = (0, 0)  # the last one and the largest one: none ahead of its time keeps another waiting
        self._asked_s = 0.0
        self._rested_s = 0.0  # until then there was a draw just now
        self._tried: frozenset[int] = frozenset()  # what was waited for at the last draw
        self._sleeps_until_s = math.inf  # on the loop's clock
        self.trouble = ""
        """Why no timestamp can be drawn; "" if the last one could."""

    @contextmanager
    def waiting(self, who: object, ts: Ts) -> Iterator[None]:
        """A puller waits, for the watermark `ts` or (0) for whatever comes."""
        self._waiting[who] = ts
        if max(ts, *self._given) > self._drawn:
            self._wake.set()
        try:
            yield
        finally:
            del self._waiting[who]

    @property
    def is_awaited(self) -> bool:
        """Whether an open prewrite may be holding a puller up."""
        return bool(self._waiting)

    @property
    def target_ts(self) -> int:
        """The smallest timestamp that is waited for and was not drawn yet; 0 if there is none."""
        reached = max(self._drawn, self._watermark())
        return min((ts for ts in self._awaited() if ts > reached), default=0)

    def _awaited(self) -> list[int]:
        return [*self._waiting.values(), *self._given]

    def given(self, ts: Ts) -> None:
        """Somebody says that the oracle has given `ts`: one above it is drawn."""
        if ts > max(self._drawn, self._watermark()):
            self._given = ts, max(ts, self._given[1])
            if self._due_s(self.target_ts) < self._sleeps_until_s:  # else each group of writes would wake it
                self._wake.set()

    async def run(self) -> None:
        """Draw when needed; until cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            while target_ts := self.target_ts:
                due_s = self._due_s(target_ts)
                if due_s <= asyncio.get_running_loop().time():
                    await self._draw()
                    continue
                self._sleeps_until_s = due_s
                with contextlib.suppress(TimeoutError):  # one that is wanted sooner may come meanwhile
                    async with asyncio.timeout_at(due_s):
                        await self._wake.wait()
                self._sleeps_until_s = math.inf
                self._wake.clear()

    def _due_s(self, target_ts: int) -> float:
        """When a draw for it may be enough, on the loop's clock."""
        if target_ts not in self._tried:
            return self._rested_s if self._waiting else max(self._rested_s, self._asked_s + self._pace_s)
        ahead_s = 0.0
        if self._drawn and not self.trouble:
            ahead_s = min(tso.physical_s(target_ts) - tso.physical_s(self._drawn), AHEAD_S)
        return self._asked_s + max(self._pace_s, ahead_s)

    async def _draw(self) -> None:
        self._asked_s = asyncio.get_running_loop().time()
        self._tried = frozenset(self._awaited())
        try:
            reached, ts = max(self._drawn, self._watermark()), 0
            if isinstance(self._oracle, ReadableOracle):
                ts = await self._oracle.latest()
            if ts < min((tried for tried in self._tried if tried > reached), default=reached + 1):
                ts = await self._oracle.timestamp()
        except BinlogError as error:
            if not self.trouble:
                _logger.warning("timestamp oracle does not answer, the watermark waits", error=error)
            self.trouble = str(error)
            return
        finally:
            now_s = asyncio.get_running_loop().time()
            self._rested_s = now_s + max(min(now_s - self._asked_s, self._pace_s), self._rest_s)
        if self.trouble:
            _logger.info("timestamp oracle answers again")
        self.trouble = ""
        metrics.DRAWN.inc()
        if ts > self._drawn:
            self._drawn = ts
            self._mark(ts)


async def write_fake_binlogs(
    storage: Storage, oracle: TimestampOracle, needed: Callable[[], bool], interval_s: float
) -> None:
    """Write one whenever an interval passed without a stored record and `needed` says so; until cancelled.

    Drainers of the old protocol learn of passing time only from records whose two timestamps are equal. One
    is needed while such a drainer is connected, or no drainer is. The timestamp is drawn before the record is
    queued, so it is a valid watermark where it stands.
    """
    seen = storage.stored_total
    while True:
        await look_later(interval_s)
        if storage.stored_total == seen and needed() and storage.write_failure is None:
            try:
                await store_fake_binlog(storage, oracle)
            except BinlogError as error:
                _logger.warning("no time mark written", error=error)
        seen = storage.stored_total


async def store_fake_binlog(storage: Storage, oracle: TimestampOracle) -> int:
    """Draw a timestamp and return it when a time mark with it is durable. Raises what the oracle does,
    `WriteFailed`."""
    ts = await oracle.timestamp()
    await storage.write(binlog.fake(ts), binlog.Header(binlog.ROLLBACK, ts, ts))
    return ts
