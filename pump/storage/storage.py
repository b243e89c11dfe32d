"""Storage: value log, index, sorter and memory put together; everything below the services.

Owns    the writer, the indexer, the worker threads for history
Opens   through `opening`. What the index or the sorter has not seen is read by the indexer while writes are
        taken already; the watermark stays back until then
Stops   writes what is queued, files it, stores the positions, closes the newest file
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any, Self, TypeVar

from pump import metrics
from pump.index.backends import AUTO
from pump.index.index import Index
from pump.index.indexer import Indexer
from pump.index.recent_commits import RecentCommits
from pump.index.sorter import Late, OpenPrewrite, Prewrites, Sorter
from pump.index.store import IndexDamaged
from pump.log.delivery import LargeDelivery, Page, large_among
from pump.log.group_commit import GroupCommit
from pump.log.log_file import OsLogDirectory
from pump.log.record import ValuePointer
from pump.log.value_log import OpenedLog, ValueLog
from pump.log.writer import Ended, WriteFailed, Writer, WrittenGroup
from pump.storage import opening
from pump.storage.accepted_losses import AcceptedLosses
from pump.storage.data_dir import DataDir
from pump.storage.history import History
from pump.storage.missing_prewrite import MissingPrewrites
from pump.storage.opening import StorageLimits
from pump.storage.readers import PartReader
from pump.storage.stages import Places
from tidb_binlog import binlog
from tidb_binlog.clock import Clock
from tidb_binlog.observe import log
from tidb_binlog.status.pump import LateStatus
from tidb_binlog.tso import TS_MAX, Ts

_HISTORY_THREADS = 2
_SECONDS_SINGLE = metrics.WRITE_SECONDS.labels("single")
_SECONDS_BATCH = metrics.WRITE_SECONDS.labels("batch")
_SECONDS_FSYNC = metrics.WRITE_SECONDS.labels("fsync")
_SECONDS_ROTATE = metrics.WRITE_SECONDS.labels("rotate")
_GROUP_RECORDS = metrics.GROUP_RECORDS.labels()
_SIZE_BATCH = metrics.WRITE_SIZE.labels("batch")
_logger = log.get("storage")
T = TypeVar("T")


class Storage:
    """One data directory, open. Use from one event loop."""

    def __init__(
        self, data_dir: DataDir, files: opening.OpenFiles, limits: StorageLimits, clock: Clock
    ) -> None:
        self._data_dir = data_dir
        self._index = files.index
        self._log = files.value_log
        self._losses = files.losses
        self._missing = MissingPrewrites(files.value_log, files.losses, index_is_new=files.index_is_new)
        self.limits = limits
        self._clock = clock
        self._threads = ThreadPoolExecutor(_HISTORY_THREADS, thread_name_prefix="pump-history")
        self._listeners: set[asyncio.Event] = set()
        self._writer: Writer
        self._indexer: Indexer
        self._sorter: Sorter
        self._recent: RecentCommits
        self.watermark = self._gc_ts = 0
        self.stored_total = 0
        self._has_open = asyncio.Event()
        self.replayed = asyncio.Event()
        """Set once all that an earlier life left is indexed and sorted."""
        self.late = data_dir.late
        self._late_kept: Future[None] = Future()
        self._late_kept.set_result(None)
        self.index_trouble: Exception | None = None
        self.on_given_up: Callable[[int], None] = lambda _: None
        """Called with the start_ts of an open prewrite whose client says that it rolled back."""
        self.on_committed: Callable[[int], None] = lambda _: None
        """Called with the largest commit_ts of what became durable, before it is acknowledged."""

    # -- life ------------------------------------------------------------------------------------

    @classmethod
    async def open(
        cls,
        data_dir: DataDir,
        *,
        clock: Clock,
        limits: StorageLimits | None = None,
        sync: bool = True,
        accept_loss: str = "",
        index_backend: str = AUTO,
        write_buffer_bytes: int = 64 << 20,
        cache_bytes: int = 8 << 20,
        directory: OsLogDirectory | None = None,
        limit_ts: Ts = TS_MAX,
        clients_know: bool = True,
    ) -> Self:
        """Open and recover. No timestamp of this upstream is above `limit_ts`: what is stored with one of a
        day later is neither indexed nor sorted. `accept_loss`: FILE:OFFSET of a damage that is given up now.
        `index_backend`: see `backends`. `clients_know`: see `TransactionStatus`.
        Raises `Corruption` naming file and offset, or `ConfigError`."""
        limits = limits or StorageLimits()

        def open_blocking() -> opening.OpenFiles:
            return opening.open_all(
                data_dir,
                directory or OsLogDirectory(data_dir.value_path),
                limits,
                AcceptedLosses(data_dir, accept_loss),
                index_backend=index_backend,
                write_buffer_bytes=write_buffer_bytes,
                cache_bytes=cache_bytes,
                limit_ts=limit_ts,
            )

        files = await asyncio.to_thread(open_blocking)
        storage = cls(data_dir, files, limits, clock)
        try:
            await storage._recover(files.opened, sync, limit_ts, clients_know)
        except BaseException:
            files.close()
            raise
        return storage

    async def _recover(self, opened: OpenedLog, sync: bool, limit_ts: Ts, clients_know: bool) -> None:
        self.watermark, self._gc_ts = self._index.max_commit_ts, self._index.gc_ts
        self._sorter = Sorter(self.watermark, self._index.handle, clients_know=clients_know)
        # Commits above the watermark may be settled: no record of theirs comes by again.
        filed_ts = min(self._index.last_ts(), limit_ts)
        self._recent = RecentCommits(max(self.watermark, filed_ts), bytes_max=self.limits.recent_bytes_max)
        self._indexer = Indexer(
            self._log,
            self._index,
            self._sorter,
            self._recent,
            cursor=opened.replay_from,
            indexed_to=self._index.head,
            limit_ts=limit_ts,
            queue_bytes_max=self.limits.index_queue_bytes_max,
            clock=self._clock,
            on_advance=self._advance,
            on_settled=self._settled,
            on_late=self._late,
            on_given_up=lambda start_ts: self.on_given_up(start_ts),
            on_trouble=self._index_trouble,
            on_replayed=self._replayed,
        )
        self._opened_s = self._clock.monotonic_s()
        _logger.info(
            "storage is open",
            directory=self._data_dir.path,
            watermark=self.watermark,
            unsorted_bytes=self._indexer.lag_bytes,
        )
        self._writer = Writer(
            self._log,
            GroupCommit(bytes_max=self.limits.group_bytes_max, records_max=self.limits.group_records_max),
            queue_bytes_max=self.limits.write_queue_bytes_max,
            sync=sync,
            clock=self._clock,
            on_group=self._group_written,
            on_failure=self._write_failed,
        )
        self._writer.start()

    async def run(self) -> None:
        """Follow the log into the index; returns after `close` began. Raises `Corruption`, and `IndexDamaged`
        whichever call finds it so."""
        with self._noticing_damage():
            await self._indexer.run()

    @contextmanager
    def _noticing_damage(self) -> Iterator[None]:
        """An index that is found damaged ends `run`: the next start builds it anew."""
        try:
            yield
        except IndexDamaged as error:
            self._data_dir.ask_for_rebuild()
            self._indexer.fail(error)
            raise

    def _replayed(self, records: int) -> None:
        _logger.info(
            "what was stored is sorted",
            replayed_records=records,
            seconds=round(self._clock.monotonic_s() - self._opened_s, 3),
            watermark=self.watermark,
            open_prewrites=self._sorter.open_count,
        )
        self.replayed.set()
        self.on_committed(max(self._indexer.replayed_ts, self.watermark + 1))

    async def close(self, *, abandon: bool = False) -> None:
        """Finish what is queued and close; no thread is in the files then. `run` must be running (or never
        have been started). `abandon`: `run` has ended, and the index stays as a killed process leaves it."""
        await self._writer.stop()
        await (self._indexer.abandon() if abandon else self._indexer.close())
        self._threads.shutdown(wait=True, cancel_futures=True)
        await asyncio.to_thread(self._keep_late)
        healthy = not abandon and self._writer.failure is None
        await asyncio.to_thread(self._log.close, healthy=healthy)
        await asyncio.to_thread(self._index.close, settled=not abandon)

    # -- writing ---------------------------------------------------------------------------------

    @property
    def value_log(self) -> ValueLog:
        return self._log

    @property
    def index(self) -> Index:
        return self._index

    def write(self, payload: bytes, header: binlog.Head) -> Awaitable[None]:
        """Done when `payload` (canonical) is durable. Raises `WriteFailed`."""
        return self._writer.write(payload, header)

    def write_many(self, payloads: Sequence[bytes], headers: Sequence[binlog.Head]) -> Awaitable[None]:
        """As `write`, of many in this order. `WriteFailed` says how many of them are durable."""
        return self._writer.write_many(payloads, headers)

    def submit(self, payloads: Sequence[bytes], headers: Sequence[binlog.Head], ended: Ended) -> bool:
        """As `write_many`, with `ended` called instead of anything awaited; False if that cannot be now."""
        return self._writer.submit(payloads, headers, ended)

    async def wait_for_write_space(self) -> None:
        """Return when the writer's queue takes more."""
        await self._writer.wait_for_space()

    @property
    def write_failure(self) -> WriteFailed | None:
        return self._writer.failure

    def _group_written(self, group: WrittenGroup) -> None:
        self.stored_total += len(group.records)
        _GROUP_RECORDS.observe(len(group.records))
        _SECONDS_SINGLE.observe(group.waited_s + group.write_s + group.sync_s)
        _SECONDS_BATCH.observe(group.write_s + group.sync_s)
        _SECONDS_FSYNC.observe(group.sync_s)
        if group.end.fid != self._indexer.durable.fid:
            _SECONDS_ROTATE.observe(group.write_s)
        _SIZE_BATCH.observe(sum(map(len, group.payloads)))
        self._indexer.accept(group)
        if committed_ts := max([record.commit_ts for record in group.records]):
            self.on_committed(committed_ts)

    def _write_failed(self, failure: WriteFailed) -> None:
        metrics.STORAGE_ERRORS.labels("write_binlog_batch").inc()
        _logger.error("value log failed, nothing is stored any more until a restart", error=failure)

    # -- watermark -------------------------------------------------------------------------------

    def mark(self, ts: Ts) -> None:
        """A timestamp drawn from the oracle before this call: becomes the watermark once what is stored now
        is settled. Nothing is written for it; the next batch of the index remembers it."""
        self._indexer.mark(ts)

    @contextmanager
    def listener(self) -> Iterator[asyncio.Event]:
        """An event that is set whenever the watermark rises; the listener clears it."""
        event = asyncio.Event()
        self._listeners.add(event)
        try:
            yield event
        finally:
            self._listeners.discard(event)

    def _advance(self, watermark: int) -> None:
        assert watermark > self.watermark
        self.watermark = watermark
        for event in self._listeners:
            event.set()

    def _settled(self) -> None:
        if self._sorter.open_count:
            self._has_open.set()
        else:
            self._has_open.clear()

    async def wait_for_open_prewrites(self) -> None:
        """Return when at least one prewrite is open."""
        await self._has_open.wait()

    def _late(self, late: Late) -> None:
        metrics.LATE_COMMITS.inc()
        self.late = LateStatus(commits=self.late.commits + 1, last_s=self._clock.wall_s())
        (_logger.error if late.was_open else _logger.warning)(
            "commit at or below the published watermark: readers beyond it will not see it from this pump",
            start_ts=late.start_ts,
            prewrite_was_open=late.was_open,
            commit_ts=late.commit_ts,
            watermark=self.watermark,
        )
        if self._late_kept.done():
            self._late_kept = self._threads.submit(self._keep_late)

    def _keep_late(self) -> None:
        kept = LateStatus()
        while kept != self.late:  # more may come meanwhile
            kept = self.late
            try:
                self._data_dir.keep_late(kept)
            except OSError as error:  # no reason to end
                _logger.warning("that commits came late is not kept over a restart", error=error)

    def _index_trouble(self, error: Exception | None) -> None:
        self.index_trouble = error
        if error is not None:
            metrics.STORAGE_ERRORS.labels("batch_write_kv").inc()
            _logger.error("index cannot be written, trying again", error=error)
        else:
            _logger.info("index is written again")

    # -- reading ---------------------------------------------------------------------------------

    def history(self) -> History:
        """A reader for one puller."""
        return History(self._log, self._index, self._losses, self._missing)

    async def page(
        self,
        history: History,
        position: int,
        bytes_max: int,
        parts_above: int = 0,
        whole_max: int = sys.maxsize,
        upto: Ts = TS_MAX,
    ) -> Page:
        """The next commits after `position` up to the watermark, and to `upto`; one of more than
        `parts_above` bytes (0: none) is the page's `large`. Raises `PositionPurged`, `Corruption` or
        `Oversized` as `History.page`.

        A large one is always read from the log: sent for minutes, it would stay in memory otherwise.
        """
        watermark = min(self.watermark, upto)
        recent = self._recent.after(position, bytes_max, upto)
        if recent is not None:
            total = sum(delivery.size for delivery in recent)
            large = large_among(recent, parts_above) if 0 < parts_above < total else None
            if large is None:
                whole = not recent or total < bytes_max
                return Page(recent, max(position, watermark) if whole else recent[-1].commit_ts)
            if large > 0:
                return Page(recent[:large], recent[large].commit_ts - 1)
        limits = {"bytes_max": bytes_max, "parts_above": parts_above, "whole_max": whole_max}
        read = partial(history.page, position, watermark, **limits)
        return await self.in_thread(read)

    def part_reader(self, large: LargeDelivery) -> PartReader:
        return PartReader(self._log, large)

    async def part(self, history: History, reader: PartReader, position: int, size: int) -> bytes:
        """The next part of a page's `large`, at most `size` bytes. Raises as `page`."""
        return await self.in_thread(history.part, reader, position, size)

    def open_prewrites(self) -> Iterator[OpenPrewrite]:
        """Prewrites without an end, the longest open first. Do not await while iterating."""
        return iter(self._sorter.open_prewrites())

    def open_after(self, place: ValuePointer) -> Iterator[OpenPrewrite]:
        """See `Sorter.open_after`. Do not await while iterating."""
        return self._sorter.open_after(place)

    def is_open(self, start_ts: Ts) -> bool:
        return self._sorter.is_open(start_ts)

    def open_prewrite(self, start_ts: Ts) -> OpenPrewrite | None:
        """The open prewrite of a transaction; None if there is none."""
        return self._sorter.open_prewrite(start_ts)

    @property
    def open_count(self) -> int:
        return self._sorter.open_count

    def prewrites(self, more: int = 1) -> Prewrites:
        """What the last of so many prewrites would meet, were they taken now."""
        coming = self._writer.prewrites - self._indexer.prewrites + more - 1
        most, need_keys = self.limits.open_prewrites_max, not self._sorter.clients_know
        return Prewrites(self.open_count + coming, most, need_keys)

    @property
    def index_lag_bytes(self) -> int:
        return self._indexer.lag_bytes

    @property
    def is_chasing(self) -> bool:
        """Whether the slow chaser reads the log because the index fell behind."""
        return self._indexer.chasing

    @property
    def write_queue_bytes(self) -> int:
        return self._writer.queued_bytes

    @property
    def recent_bytes(self) -> int:
        return self._recent.bytes_held

    @property
    def recent_floor(self) -> int:
        """Pullers beyond this timestamp are served from memory, the others from the log."""
        return self._recent.floor

    async def find(self, ts: Ts) -> bytes | None:
        """Payload of the record filed under a timestamp."""

        def find_blocking() -> bytes | None:
            place = self._index.pointer(ts)
            return None if place is None else self._log.read(place)

        return await self.in_thread(find_blocking)

    async def in_thread(self, function: Callable[..., T], *arguments: Any) -> T:
        """Run what blocks on a thread for reading."""
        with self._noticing_damage():
            return await asyncio.get_running_loop().run_in_executor(self._threads, function, *arguments)

    @property
    def places(self) -> Places:
        """What each stage after the writers has reached."""
        cursor = self._indexer.cursor
        oldest = next(self.open_prewrites(), None)
        return Places(self._indexer.durable, cursor, cursor if oldest is None else min(oldest.place, cursor))

    # -- retention -------------------------------------------------------------------------------

    @property
    def gc_ts(self) -> Ts:
        """Positions below it may miss binlogs."""
        return self._gc_ts

    @property
    def settled_place(self) -> ValuePointer:
        """Every record before it is indexed and decided; nothing from there on may be removed."""
        return min(self._sorter.decided, self._indexer.cursor)

    def purged_to(self, ts: Ts, first_fid: int = 0) -> None:
        """Remember, durably, that positions below `ts` may miss binlogs from now on; files below `first_fid`
        may go. Blocks."""
        purged = max(ts, self._gc_ts)
        self._data_dir.keep_purged(purged, max(first_fid, self._log.first_fid))
        if purged > self._gc_ts:
            self._index.set_gc_ts(purged)
            self._gc_ts = purged
