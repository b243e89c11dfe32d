"""Idle watermark: raises the watermark of a pump that nobody writes to, when a puller waits for it.

Drives  `storage.mark`
Owns    one loop that draws timestamps
Why     the merge of several pumps waits for the slowest watermark. A timestamp is drawn first and the log
        looked at afterwards: whatever is acknowledged by then carries a commit_ts above it or is settled in
        front of it (see `sorter`)
Pace    the first draw for a newly awaited timestamp happens at once; if it is not enough (the oracle is
        held back, or does not answer) the next ones come `pace_s` apart. A drawn timestamp that is large
        enough is never drawn again: an open prewrite holds it back until it settles
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from common import log
from common.errors import Unavailable
from common.upstream import TimestampOracle
from pump import metrics

_logger = log.get("idle_watermark")


class IdleWatermark:
    """`watermark` tells the current one, `mark` takes a drawn timestamp."""

    def __init__(
        self,
        oracle: TimestampOracle,
        watermark: Callable[[], int],
        mark: Callable[[int], None],
        *,
        pace_s: float = 0.05,
    ) -> None:
        self._oracle = oracle
        self._watermark = watermark
        self._mark = mark
        self._pace_s = pace_s
        self._waiting: dict[object, int] = {}
        self._wake = asyncio.Event()
        self._newest = 0  # the largest that was ever awaited
        self._drawn = 0
        self._unavailable = False

    @contextmanager
    def waiting(self, who: object, ts: int) -> Iterator[None]:
        """A puller waits, for the watermark `ts` or (0) for whatever comes."""
        self._waiting[who] = ts
        if ts > self._newest:
            self._newest = ts
            self._wake.set()
        try:
            yield
        finally:
            del self._waiting[who]

    @property
    def somebody_waits(self) -> bool:
        """Whether an open prewrite may be holding somebody up."""
        return bool(self._waiting)

    @property
    def wanted(self) -> int:
        """The largest watermark that is waited for and not reached; 0 if there is none."""
        wanted = max(self._waiting.values(), default=0)
        return wanted if wanted > self._watermark() else 0

    async def run(self) -> None:
        """Draw when needed; until cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self.wanted > self._drawn:
                await self._draw()
                if self.wanted > self._drawn and not self._wake.is_set():
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(self._wake.wait(), self._pace_s)
                self._wake.clear()

    async def _draw(self) -> None:
        try:
            ts = await self._oracle.timestamp()
        except Unavailable as error:
            if not self._unavailable:
                _logger.warning("timestamp oracle does not answer, the watermark waits", error=error)
            self._unavailable = True
            return
        if self._unavailable:
            _logger.info("timestamp oracle answers again")
        self._unavailable = False
        metrics.DRAWN.inc()
        if ts > self._drawn:
            self._drawn = ts
            self._mark(ts)
