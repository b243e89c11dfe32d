"""Indexer: follows the value log with a cursor of its own, files records in the index, feeds the sorter.

Drives  `sorter`, `recent_commits`, `slow_chaser`
Owns    one worker thread for LevelDB, the queue of records that are durable but not filed yet
Order   a record is filed before the sorter sees it: what the watermark promises can be read
Holds   the queue is bounded in bytes. When it is full the cursor stays back, and the log is read instead
        until the cursor has caught up; no writer ever waits for the index
Stops   files what is queued and stores the positions
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from common.clock import Clock
from pump import slow_chaser
from pump.index import Index
from pump.logged import Logged
from pump.recent_commits import RecentCommits
from pump.sorter import Advanced, Late, Sorter
from pump.value_log import ValueLog
from pump.value_pointer import ValuePointer
from pump.worker_thread import WorkerThread
from pump.writer import WrittenGroup

_BATCH_RECORDS_MAX = 1024
_RETRY_S = 1.0
_MARKS_MAX = 64


class Indexer:
    """The follower of one value log. `on_advance` gets each new watermark, `on_late` each late commit."""

    def __init__(
        self,
        log: ValueLog,
        index: Index,
        sorter: Sorter,
        recent: RecentCommits,
        *,
        cursor: ValuePointer,
        queue_bytes_max: int,
        clock: Clock,
        on_advance: Callable[[int], None],
        on_settled: Callable[[], None],
        on_late: Callable[[Late], None],
        on_trouble: Callable[[Exception | None], None],
    ) -> None:
        self._log = log
        self._index = index
        self._sorter = sorter
        self._recent = recent
        self._queue_bytes_max = queue_bytes_max
        self._clock = clock
        self._on_advance = on_advance
        self._on_settled = on_settled
        self._on_late = on_late
        self._on_trouble = on_trouble
        self._thread = WorkerThread("pump-index")
        self._queue: deque[WrittenGroup] = deque()
        self._queued_bytes = 0
        self._marks: deque[tuple[ValuePointer, int]] = deque()
        self._wake = asyncio.Event()
        self._stopping = False
        self._running = False
        self._finished = asyncio.Event()
        self.cursor = cursor
        self.durable = log.end
        self.chasing = self.cursor != self.durable
        self.chased_total = 0

    # -- facts from the event loop ---------------------------------------------------------------

    def accept(self, group: WrittenGroup) -> None:
        """A group became durable."""
        self.durable = group.end
        size = sum(map(len, group.payloads))
        if not self.chasing and self._queued_bytes + size > self._queue_bytes_max and self._queue:
            self.chasing = True
        if not self.chasing:
            self._queue.append(group)
            self._queued_bytes += size
        self._wake.set()

    def mark(self, ts: int) -> None:
        """A timestamp drawn before this call: a watermark once what is durable now is settled."""
        if self.cursor == self.durable and not self._marks:
            self._publish(self._sorter.mark(ts), replay=False)
        else:
            if len(self._marks) == _MARKS_MAX:
                self._marks.pop()  # the newer one stands for it, later
            self._marks.append((self.durable, ts))

    @property
    def lag_bytes(self) -> int:
        """Bytes of durable log that are not in the index yet; whole files count as their size."""
        lag = self.durable.offset - self.cursor.offset
        for fid in range(self.cursor.fid, self.durable.fid):
            lag += self._log.segment(fid).end
        return max(lag, 0)

    # -- following -------------------------------------------------------------------------------

    def replay(self, indexed_to: ValuePointer) -> int:
        """At start, from a worker thread: everything from the cursor to the end; the number of records.

        Records before `indexed_to` are in the index already and only go through the sorter.
        """
        count = 0
        for batch in slow_chaser.batches(self._log, self.cursor, self.durable):
            if batch.records:
                missing = [record for record in batch.records if record.place >= indexed_to]
                if missing:
                    self._index.write(
                        missing, missing[-1].place, self._sorter.watermark, self._sorter.decided
                    )
                self._settle(batch.records, None, replay=True)
            count += len(batch.records)
            self.cursor = batch.cursor
        self.chasing = False
        return count

    async def run(self) -> None:
        """Follow until `close`."""
        assert not self._running
        self._running = True
        try:
            while self._queue or self.chasing or not self._stopping:
                if self._queue:
                    await self._follow_queue()
                elif self.chasing:
                    await self._chase()
                else:
                    self._wake.clear()
                    await self._wake.wait()
        finally:
            self._finished.set()

    async def close(self) -> None:
        """File what is durable, then store where sorter and index stand."""
        self._stopping = True
        self._wake.set()
        if self._running:
            await self._finished.wait()
        else:
            await self.run()
        await self._write([], self._index.head)
        await self._thread.stop()

    async def _follow_queue(self) -> None:
        records: list[Logged] = []
        payloads: list[bytes] = []
        groups = 0
        for group in self._queue:
            if records and len(records) + len(group.records) > _BATCH_RECORDS_MAX:
                break
            records += group.records
            payloads += group.payloads
            groups += 1
        await self._write(records, records[-1].place)
        for _ in range(groups):
            end = self._queue.popleft().end
        self._queued_bytes -= sum(map(len, payloads))
        self.cursor = end
        self._settle(records, payloads, replay=False)

    async def _chase(self) -> None:
        stop = self.durable
        source = slow_chaser.batches(self._log, self.cursor, stop)
        while True:
            batch = await self._thread.run(next, source, None)
            if batch is None:
                break
            if batch.records:
                await self._write(batch.records, batch.records[-1].place)
            self.cursor = batch.cursor
            self.chased_total += len(batch.records)
            self._settle(batch.records, None, replay=False)
        if self.durable == stop:
            self.chasing = False

    async def _write(self, records: list[Logged], head: ValuePointer) -> None:
        """File a batch; a LevelDB that cannot write is tried again for as long as it takes."""
        trouble = False
        while True:
            watermark, decided = self._sorter.watermark, self._sorter.decided
            try:
                await self._thread.run(self._index.write, records, head, watermark, decided)
            except OSError as error:
                if not trouble:
                    self._on_trouble(error)
                trouble = True
                await asyncio.sleep(_RETRY_S)
                continue
            if trouble:
                self._on_trouble(None)
            return

    def _settle(self, records: list[Logged], payloads: list[bytes] | None, *, replay: bool) -> None:
        for at, record in enumerate(records):
            self._recent.record(record, payloads[at] if payloads is not None else None)
        self._publish(self._sorter.feed(records, self._clock.monotonic_s()), replay=replay)
        while self._marks and self._marks[0][0] <= self.cursor:
            self._publish(self._sorter.mark(self._marks.popleft()[1]), replay=replay)
        self._on_settled()

    def _publish(self, effects: list[Advanced | Late], *, replay: bool) -> None:
        for effect in effects:
            if isinstance(effect, Advanced):
                self._recent.advance(effect.watermark)
                self._on_advance(effect.watermark)
            elif not replay:
                self._on_late(effect)
