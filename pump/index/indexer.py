"""Indexer: follows the value log with a cursor of its own, files records in the index, feeds the sorter.

Owns    one worker thread for LevelDB, the queue of records that are durable but not filed yet
Order   a record is filed before the sorter sees it: what the watermark promises can be read
Holds   the queue is bounded in bytes. When it is full the cursor stays back, and the log is read instead, in
        bounded batches, until the cursor has caught up (the slow chaser); no writer ever waits for the index
Start   what an earlier life left unindexed or undecided is read in the same way, while writes continue
Stops   files what is queued and stores the positions; what the chaser has not read yet waits for the start
"""

from __future__ import annotations

import asyncio
import queue
import threading
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter
from typing import Any, TypeVar

from pump import metrics
from pump.index.index import Index
from pump.index.recent_commits import RecentCommits
from pump.index.sorter import Advanced, Effect, GivenUp, Late, Sorter
from pump.log.record import LogRecord, ValuePointer, none_above
from pump.log.value_log import RecordBatch, ValueLog
from pump.log.writer import WrittenGroup
from tidb_binlog.binlog import PREWRITE
from tidb_binlog.clock import Clock
from tidb_binlog.observe import log
from tidb_binlog.tso import TS_MAX, Ts, compose

T = TypeVar("T")
_Job = tuple["asyncio.Future[Any]", Callable[..., Any], tuple[Any, ...]]


class WorkerThread:
    """Used from one event loop."""

    def __init__(self, name: str) -> None:
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def run(self, function: Callable[..., T], *arguments: Any) -> asyncio.Future[T]:
        """`function(*arguments)` on the thread; the future has what it returns or raises."""
        result: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        if not self._thread.is_alive():
            self._thread.start()
        self._jobs.put((result, function, arguments))
        return result

    async def stop(self) -> None:
        """Return when the thread has ended. Idempotent."""
        if self._thread.is_alive():
            self._jobs.put(None)
            await asyncio.to_thread(self._thread.join)

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            result, function, arguments = job
            deliver: Callable[[asyncio.Future[Any], Any], None] = _succeed
            try:
                outcome = function(*arguments)
            except BaseException as error:  # the waiting call gets it, whatever it is
                deliver, outcome = _fail, error
            try:
                result.get_loop().call_soon_threadsafe(deliver, result, outcome)
            except RuntimeError:
                return  # the loop is closed: no call waits any more


def _succeed(result: asyncio.Future[Any], value: Any) -> None:
    if not result.done():
        result.set_result(value)


def _fail(result: asyncio.Future[Any], error: BaseException) -> None:
    if not result.done():
        result.set_exception(error)


_BATCH_RECORDS_MAX = 1024  # large enough for LevelDB, small enough for the event loop
_GATHER_S = 0.001
_CLOSE_BATCHES = 4  # so many that came closer together than that: there is no pause
_RETRY_S = 1.0
_MARKS_MAX = 64
_FUTURE_S = 86_400  # so far ahead nothing that was stored is: not with any clock that is merely wrong
_logger = log.get("indexer")
_OVERHEAD = 250  # bytes that a queued record costs besides its payload
_place = attrgetter("place")


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
        indexed_to: ValuePointer,
        limit_ts: Ts = TS_MAX,
        queue_bytes_max: int,
        clock: Clock,
        on_advance: Callable[[int], None],
        on_settled: Callable[[], None],
        on_late: Callable[[Late], None],
        on_given_up: Callable[[int], None],
        on_trouble: Callable[[Exception | None], None],
        on_replayed: Callable[[int], None],
    ) -> None:
        """`cursor`: where the sorter continues; records before `indexed_to` are in the index already. What an
        earlier life stored with a timestamp a day above `limit_ts` is left out."""
        self._log = log
        self._index = index
        index.head_at = log.head_at
        self._sorter = sorter
        self._recent = recent
        self._queue_bytes_max = queue_bytes_max
        self._clock = clock
        self._on_advance = on_advance
        self._on_settled = on_settled
        self._on_late = on_late
        self._on_given_up = on_given_up
        self._on_trouble = on_trouble
        self._on_replayed = on_replayed
        self._thread = WorkerThread("pump-index")
        self._queue: deque[WrittenGroup] = deque()
        self._queued_bytes = 0
        self._marks: deque[tuple[ValuePointer, int]] = deque()
        self._wake = asyncio.Event()
        self._stopping = False
        self._failure: Exception | None = None
        self._running = False
        self._finished = asyncio.Event()
        self.cursor = cursor
        self.durable = log.end
        self._indexed_to = indexed_to
        self._decided_to = sorter.decided
        self._limit_ts = min(limit_ts + compose(_FUTURE_S * 1000), TS_MAX)
        self._replay_to = log.end  # what lies before was written by an earlier life of the pump
        self._replaying = True
        self.prewrites = 0  # that the sorter got of those written since the start
        self._followed_s = 0.0  # when the last batch was filed
        self._close_batches = 0
        self._overflowed = True  # the queue does not continue where the cursor is
        self._chase_runs = False
        self.chased_total = 0
        self.replayed_ts = 0
        """The largest commit_ts of what an earlier life left."""

    # -- facts from the event loop ---------------------------------------------------------------

    def accept(self, group: WrittenGroup) -> None:
        """A group became durable."""
        self.durable = group.end
        size = _size(group.payloads)
        if self._queued_bytes + size > self._queue_bytes_max and self._queue and not self._overflowed:
            self._overflowed = True
            metrics.SLOW_CHASER.labels("turned_on").inc()
        if not self._overflowed:
            self._queue.append(group)
            self._queued_bytes += size
        self._wake.set()

    def mark(self, ts: Ts) -> None:
        """A timestamp drawn before this call: a watermark once what is durable now is settled."""
        if self.cursor == self.durable and not self._marks:
            self._publish(self._sorter.mark(ts))
        else:
            if len(self._marks) == _MARKS_MAX:
                self._marks.pop()  # the newer one stands for it, later
            self._marks.append((self.durable, ts))

    @property
    def chasing(self) -> bool:
        """Whether the log is read because memory does not hold what comes next."""
        return self._overflowed or self._chase_runs

    @property
    def lag_bytes(self) -> int:
        """Bytes of durable log that are not in the index yet; whole files count as their size."""
        lag = self.durable.offset - self.cursor.offset
        for fid in range(self.cursor.fid, self.durable.fid):
            lag += self._log.segment(fid).end
        return max(lag, 0)

    # -- following -------------------------------------------------------------------------------

    def fail(self, error: Exception) -> None:
        """Let `run` end with this error: what is filed cannot be trusted."""
        self._failure = error
        self._wake.set()

    async def run(self) -> None:
        """Follow until `close` or `fail`."""
        assert not self._running
        self._running = True
        try:
            while True:
                if self._failure is not None:
                    raise self._failure
                if self._queue:
                    await self._gather()
                    if self._failure is None:
                        await self._follow_queue()
                elif self._stopping:
                    break
                elif self._overflowed:
                    await self._chase()
                else:
                    self._wake.clear()
                    await self._wake.wait()
        finally:
            self._finished.set()

    async def close(self) -> None:
        """File what is durable, then store where sorter and index stand; nothing after `fail`."""
        self._stopping = True
        self._wake.set()
        if self._running:
            await self._finished.wait()
        elif self._failure is None:
            await self.run()
        if self._failure is None:
            await self._write([], self._index.head)
        await self._thread.stop()

    async def abandon(self) -> None:
        """File nothing more; `run` has ended."""
        await self._thread.stop()

    async def _gather(self) -> None:
        """While groups come without a pause and no mark waits, a batch has those of a millisecond: it costs
        two changes of threads, however few they are."""
        is_close = self._clock.monotonic_s() - self._followed_s < _GATHER_S
        self._close_batches = self._close_batches + 1 if is_close else 0
        if self._close_batches > _CLOSE_BATCHES and not self._marks and not self._stopping:
            await asyncio.sleep(_GATHER_S)

    async def _follow_queue(self) -> None:
        records: list[LogRecord] = []
        payloads: list[bytes] = []
        groups = 0
        for group in self._queue:
            if records and len(records) + len(group.records) > _BATCH_RECORDS_MAX:
                self._close_batches = 0  # what is left need not be gathered
                break
            records += group.records
            payloads += group.payloads
            groups += 1
        await self._write(records, records[-1].place)
        for _ in range(groups):
            end = self._queue.popleft().end
        self._queued_bytes -= _size(payloads)
        self.cursor = end
        self._recent.record(records, payloads)
        self._settle(records)
        self._followed_s = self._clock.monotonic_s()

    async def _chase(self) -> None:
        """Read what memory does not hold. Groups written meanwhile queue again, after what is read here."""
        stop, began_s = self.durable, self._clock.monotonic_s()
        self._overflowed, self._chase_runs = False, True
        source = _batches(self._log, self.cursor, stop)
        while (batch := await self._thread.run(next, source, None)) is not None:
            records = batch.records
            if self._replaying:
                records = self._possible(records)
                self.replayed_ts = max([self.replayed_ts, *(record.commit_ts for record in records)])
            missing = records
            if records and records[0].place < self._indexed_to:
                missing = [record for record in records if record.place >= self._indexed_to]
            if missing:
                await self._write(missing, missing[-1].place)
            self.cursor = batch.after
            self.chased_total += len(records)
            self._recent.pass_over(records)
            if records and records[0].place < self._decided_to:  # a new index keeps what the old had decided
                records = [record for record in records if record.place >= self._decided_to]
            self._settle(records)
            if self._stopping or self._failure is not None:  # the next start continues from here
                self._queue.clear()
                return
        self._chase_runs = False
        if self._replaying:
            self._replaying = False
            self._on_replayed(self.chased_total)
            return
        metrics.SLOW_CHASER.labels("catch_up").inc()
        metrics.CATCH_UP_SECONDS.observe(self._clock.monotonic_s() - began_s)
        if not self._overflowed:
            metrics.SLOW_CHASER.labels("turned_off").inc()

    def _possible(self, records: list[LogRecord]) -> list[LogRecord]:
        """Those whose timestamps the upstream can have given."""
        if none_above([record[:3] for record in records], self._limit_ts):
            return records
        left_out = [record for record in records if max(record.start_ts, record.commit_ts) > self._limit_ts]
        _logger.error(
            "stored binlogs with timestamps from the future are left out",
            count=len(left_out),
            start_ts=left_out[0].start_ts,
            commit_ts=left_out[0].commit_ts,
            place=left_out[0].place,
        )
        return [record for record in records if max(record.start_ts, record.commit_ts) <= self._limit_ts]

    async def _write(self, records: list[LogRecord], head: ValuePointer) -> None:
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

    def _settle(self, records: list[LogRecord]) -> None:
        """Feed what lies before the cursor. A mark stands behind what was durable when it was drawn: it does
        not wait for prewrites that were filed in the same step."""
        now_s, fed = self._clock.monotonic_s(), 0
        while self._marks and self._marks[0][0] <= self.cursor:
            place, ts = self._marks.popleft()
            upto = bisect_left(records, place, fed, key=_place)
            if fed < upto:
                self._publish(self._sorter.feed(records[fed:upto], now_s))
                fed = upto
            self._publish(self._sorter.mark(ts))
        self._publish(self._sorter.feed(records[fed:] if fed else records, now_s))
        if self._replaying:
            records = [record for record in records if record.place >= self._replay_to]
        self.prewrites += [record[0] for record in records].count(PREWRITE)
        self._on_settled()

    def _publish(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Advanced):
                self._recent.advance(effect.watermark)
                self._on_advance(effect.watermark)
            elif isinstance(effect, GivenUp):
                self._on_given_up(effect.start_ts)
            elif not self._replaying:  # it was reported when it came
                self._on_late(effect)


def _size(payloads: Sequence[bytes]) -> int:
    """What records take in the queue, bytes."""
    return sum(map(len, payloads)) + len(payloads) * _OVERHEAD


def _batches(log: ValueLog, cursor: ValuePointer, stop: ValuePointer) -> Iterator[RecordBatch]:
    """Records in [cursor, stop), batch by batch; blocks on the disk. `Corruption` as the log raises it.

    The last batch ends at `stop` exactly, even when a file boundary lies between.
    """
    for records, after in log.record_batches(cursor, stop):
        for at in range(_BATCH_RECORDS_MAX, len(records), _BATCH_RECORDS_MAX):
            yield RecordBatch(records[at - _BATCH_RECORDS_MAX : at], records[at].place)
        yield RecordBatch(records[(len(records) - 1) // _BATCH_RECORDS_MAX * _BATCH_RECORDS_MAX :], after)
    yield RecordBatch([], stop)
