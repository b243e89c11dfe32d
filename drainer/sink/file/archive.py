"""Archive: `db-type = "file"`, items of the stream in segments of the Go drainer's form.

Owns    the directory's lock: another process of this drainer cannot write here
Order   append, new definitions before the records that need them; sync, then the checkpoint; a segment that
        is full is closed and its index stored
Holds   what `sync` returned for is on the medium with its directory entry. At the start a torn end is cut,
        and what is there says where to continue: what lies at or below `last_ts` is there. A full disk is
        waited for, nothing is lost; any other failure of the disk is final
Stops   `close` syncs what was appended
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import functools
import os
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final, TypeVar

from drainer import metrics
from drainer.formats.binlog_directory import DISK_FULL, BinlogDirectory, Broken, DiskFull
from drainer.formats.compression import Stopped
from drainer.formats.obinlog.writer import commit_ts_of
from drainer.formats.record_groups import RecordGroup, RecordSizes, RelayWriter
from drainer.formats.segment_index import UTC, SegmentIndex
from drainer.sink.file.records import ArchiveRecords
from drainer.sink.file.segments import DAY_S, ArchiveSegments
from drainer.txn import Ddl, Transaction
from tidb_binlog import filesystem, tso
from tidb_binlog.backoff import Backoff
from tidb_binlog.clock import Clock
from tidb_binlog.errors import Unavailable
from tidb_binlog.observe import log
from tidb_binlog.tso import Ts

if TYPE_CHECKING:
    from drainer.sink.file.remote_files import RemoteFiles


logger = log.get("drainer.archive")
T = TypeVar("T")

MAX_FILE_SIZE: Final = 512 << 20
BUFFERED_BYTES_MAX: Final = 4 << 20
INDEX_EVERY: Final = 16 << 20  # so much of a segment is read again at most when a start follows a kill
UPLOAD_PAUSES_S: Final = 0.5, 30.0
HEAD_BYTES: Final = 32  # enough for type and commit_ts
_DDL_TYPE: Final = 1  # second byte of a payload


class ArchiveFiles:
    """What the thread does: files, locks, syncs. Methods block; `DiskFull`: call again, `Broken`: never."""

    def __init__(self, path: str, clock: Clock, cluster_id: int, stored_ts: Ts) -> None:
        """Raises `ConfigError`, `DirectoryLocked`, `ForeignDirectory`, `Corruption`, `OSError`."""
        self._cluster_id = cluster_id
        self._directory = BinlogDirectory(path, clock, newest_only=True)
        self._directory.adopt_cluster(cluster_id)
        self._groups: deque[RecordGroup] = deque()
        self._indexes: dict[int, bytes] = {}
        self._tables: dict[int, list[bytes]] = {}
        try:
            self._segments = ArchiveSegments(self._directory.path)
            self._segments.clear_up()
            self.described = self._open(stored_ts)
        except BaseException:
            self._directory.close()
            raise
        self._writer = RelayWriter(self._directory)

    @property
    def newest(self) -> int:
        return self._directory.newest.index

    def _open(self, stored_ts: Ts) -> SegmentIndex:
        self._take_back(stored_ts)
        file = self._directory.newest
        name = os.path.basename(file.path)
        stored = self._segments.index_of(name)
        described = self._segments.up_to_date(file)
        self._segments.keep_tables(name, described)
        described.closed = False  # in an object store it may be: its follower was not uploaded any more
        self.last_ts = described.last_ts or self._last_before(file.index)
        if described.size and (stored is None or stored.time_zone != UTC):
            # A Go drainer's, whose times are in an unknown zone: ours go into another segment.
            described.closed, described.cluster_id = True, self._cluster_id
            self._store(file.index, described.to_json())
            self._directory.rotate()
            described = SegmentIndex()
        described.cluster_id, described.time_zone = self._cluster_id, UTC
        self._store(self._directory.newest.index, described.to_json())
        return described

    def _take_back(self, stored_ts: Ts) -> None:
        """A DDL at the end that the checkpoint has not seen may have had more statements: it comes again."""
        directory, file = self._directory, self._directory.newest
        cut, last_ts = file.size, 0
        for place in reversed(directory.places[file.index]):
            head = file.read(place.start, min(place.size, HEAD_BYTES))
            commit_ts = commit_ts_of(head)
            if head[1] != _DDL_TYPE or commit_ts <= stored_ts or commit_ts != (last_ts or commit_ts):
                break
            cut, last_ts = place.record, commit_ts
        if last_ts:
            directory.cut(cut)
        directory.places[file.index].clear()

    def _last_before(self, newest: int) -> int:
        """The last commit_ts of the segment before an empty one; its index if a kill came before it."""
        for index, name in reversed(self._segments.in_order()):
            if index < newest:
                stored = self._segments.index_of(name)
                if stored is not None and stored.closed:
                    return stored.last_ts
                rebuilt = self._segments.described(index, name)
                self._segments.keep_tables(name, rebuilt)
                rebuilt.closed = True
                self._segments.store(name, rebuilt.to_json())
                if rebuilt.last_ts:
                    return rebuilt.last_ts
        return 0

    def give(
        self, groups: list[RecordGroup], tables: dict[int, list[bytes]], indexes: dict[int, bytes]
    ) -> None:
        """What `write` is to write, the definitions it needs, and the indexes of segments after it."""
        self._groups.extend(groups)
        for index, lines in tables.items():
            self._tables.setdefault(index, []).extend(lines)
        self._indexes |= indexes

    def write(self) -> None:
        """Everything given, into the segments."""
        self._writer.write()
        while self._groups:
            if self._groups[0].index > self.newest:
                self._rotate()
            self._store_tables()
            self._writer.write([self._groups.popleft()])

    def sync(self) -> None:
        """Everything given is on the medium; then the indexes."""
        self.write()
        self._writer.sync()
        for index in sorted(self._indexes):
            self._store(index, self._indexes[index])
            del self._indexes[index]

    def _rotate(self) -> None:
        self._directory.rotate()
        # Before its first record: a segment without an index is a Go drainer's.
        self._indexes.setdefault(self.newest, SegmentIndex(self._cluster_id).to_json())
        self._store(self.newest, SegmentIndex(self._cluster_id).to_json())

    def _store(self, index: int, data: bytes) -> None:
        self._beside(index, lambda name: self._segments.store(name, data))

    def _store_tables(self) -> None:
        """Those of the newest segment, before the records that need them."""
        lines = self._tables.get(self.newest)
        if lines:
            self._beside(self.newest, lambda name: self._segments.add_tables(name, lines))
            del self._tables[self.newest]

    def _beside(self, index: int, write: Callable[[str], None]) -> None:
        name = self._names().get(index)
        if name is None:
            return  # removed meanwhile
        try:
            write(name)
        except OSError as error:
            what = f"index of {self._directory.path}/{name}: {error.strerror}"
            if error.errno in DISK_FULL:
                raise DiskFull(what, hint="make room on its disk") from None
            raise Broken(what, hint=filesystem.mending(error, "check the disk, then start again")) from None

    def _names(self) -> dict[int, str]:
        return dict(self._segments.in_order())

    def remove_older(self, than_s: float, than_ts: Ts) -> int:
        return self._segments.remove_older(than_s, than_ts, self.newest)

    def compress(self, newest: int, stopped: Callable[[], bool]) -> int:
        """May be called from another thread."""
        return self._segments.compress(newest, stopped)

    def close(self) -> None:
        self._directory.close()


class Archive:
    """`append`, `sync` and `close` are called on the event loop, in the order of the stream."""

    def __init__(
        self,
        files: ArchiveFiles,
        clock: Clock,
        max_file_size: int = MAX_FILE_SIZE,
        remote: RemoteFiles | None = None,
    ) -> None:
        """`remote`: the files, if they are those of an archive in an object store."""
        self._files = files
        self._remote = remote
        self._clock = clock
        self._sizes = RecordSizes(metrics.FILE_SIZES)
        size = max_file_size if max_file_size > 0 else MAX_FILE_SIZE
        self._records = ArchiveRecords(files.newest, files.described, size, self._sizes.observe)
        self._indexed = files.newest, files.described.size
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="archive")
        self._inside = False  # a transaction of which more pieces come
        self.last_ts = files.last_ts
        """Everything at or below it is in the archive, or was not to be."""
        self.unsynced = False
        """Whether something was appended that no sync has begun with."""
        self._gone = False
        self._full = self._unreached = ""

    @classmethod
    def open(
        cls,
        local: str,
        clock: Clock,
        *,
        cluster_id: int,
        stored_ts: Ts = 0,
        max_file_size: int = MAX_FILE_SIZE,
    ) -> Archive:
        """Blocks. `stored_ts`: the checkpoint. Raises as `ArchiveFiles`."""
        return cls(ArchiveFiles(local, clock, cluster_id, stored_ts), clock, max_file_size)

    @property
    def waiting_for(self) -> str:
        """Why nothing can be written or uploaded now, for /status; "" if it can."""
        return self._full or self._unreached

    @property
    def is_remote(self) -> bool:
        """Whether what is synced has to be uploaded before it counts."""
        return self._remote is not None

    @property
    def backlog(self) -> int:
        """Segments that are closed, and not yet uploaded."""
        return self._remote.backlog if self._remote is not None else 0

    # -- appending -------------------------------------------------------------------------------

    def append(self, transaction: Transaction) -> None:
        """A transaction or a piece of one; nothing is written yet. One without rows leaves no record.

        Raises `RowError` for a row that cannot be right.
        """
        if transaction.tables or self._inside or not transaction.last:
            self._records.transaction(transaction)
            self.unsynced = True
            self._inside = not transaction.last

    def append_ddl(self, ddl: Ddl, *texts: str) -> None:
        """A DDL, in these statements."""
        self._records.ddl(ddl, *texts)
        self.unsynced = True

    @property
    def waiting(self) -> int:
        """Bytes that were appended and not taken yet."""
        return self._records.waiting

    # -- writing ---------------------------------------------------------------------------------

    async def write(self) -> None:
        """What was appended is with the operating system. Raises `Broken`."""
        self._files.give(self._records.take(), self._records.take_tables(), {})
        await self._patiently(self._files.write)

    async def sync(self, *, indexes: bool = False) -> None:
        """Everything appended before is on the medium when this returns. Raises `Broken`.

        A transaction in pieces is there when its last piece was appended before. One call at a time.
        """
        started_s = self._clock.monotonic_s()
        self.unsynced = False
        self._files.give(self._records.take(), self._records.take_tables(), self._due(indexes))
        counts, total = self._sizes.taken()
        await self._patiently(self._files.sync)
        metrics.RELAY_RECORD_BYTES.add(counts, total)
        metrics.RELAY_WRITE_SECONDS.observe(self._clock.monotonic_s() - started_s)

    def _due(self, force: bool) -> dict[int, bytes]:
        """Indexes that are to be stored now."""
        records, (index, size) = self._records, self._indexed
        if not (force or records.newest != index or records.described - size >= INDEX_EVERY):
            return {}
        self._indexed = records.newest, records.described
        return {number: segment_index.to_json() for number, segment_index in records.indexes().items()}

    async def _patiently(self, step: Callable[[], T]) -> T:
        """A step on the thread that a full disk may hold up."""
        loop, backoff = asyncio.get_running_loop(), Backoff(0.1, 2.0)
        while True:
            try:
                done = await loop.run_in_executor(self._thread, step)
            except DiskFull as error:
                if not self._full:
                    logger.warning("archive waits for room on its disk", reason=str(error))
                self._full = str(error)
                await asyncio.sleep(backoff.next_s())
            else:
                if self._full:
                    logger.info("archive has room again")
                    self._full = ""
                return done

    async def upload(self) -> None:
        """What was synced before this is in the object store when this returns. One call at a time. Raises
        `Conflict` where another Drainer writes there."""
        if self._remote is None:
            return
        snapshot, backoff = await self._patiently(self._remote.snapshot), Backoff(*UPLOAD_PAUSES_S)
        while True:
            try:
                await asyncio.to_thread(self._remote.upload, snapshot)
            except Unavailable as error:
                if not self._unreached:
                    logger.warning("archive waits for its object store", reason=str(error))
                self._unreached = str(error)
                await asyncio.sleep(backoff.next_s())
            else:
                if self._unreached:
                    logger.info("archive is uploaded again")
                    self._unreached = ""
                return

    async def remove_older(self, days: int, upstream_s: float) -> int:
        """Remove segments that are so old; not the newest one. `upstream_s`: the time upstream.

        Two clocks have to agree, as either may have jumped: by this host's the last write is so long ago, by
        the upstream's the last commit.
        """
        than_s = self._clock.wall_s() - days * DAY_S
        than_ts = max(tso.from_wall_s(upstream_s - days * DAY_S), 1)
        step = functools.partial(self._files.remove_older, than_s, than_ts)
        if self._remote is None:
            return await self._patiently(step)
        try:
            return await asyncio.to_thread(step)
        except Unavailable as error:
            logger.warning("segments are not removed", reason=str(error))
            return 0

    async def compress(self) -> int:
        """Compress the segments that are closed, beside what is written; how many. Raises `Corruption`."""
        newest = self._files.newest
        try:
            return await asyncio.to_thread(self._files.compress, newest, lambda: self._gone)
        except OSError as error:
            if self._gone or error.errno not in (*DISK_FULL, errno.ENOENT):  # retention may come first
                raise
            logger.warning("segments are not compressed", reason=error.strerror)
            return 0
        except Stopped:
            return 0

    async def close(self) -> None:
        """Sync what was appended, and let go of the directory. Raises `Broken`."""
        try:
            await self.sync(indexes=True)
        finally:
            self.let_go()

    def let_go(self) -> None:
        """Without a last sync; once is enough."""
        self._gone = True
        with contextlib.suppress(RuntimeError):  # it was let go before
            self._thread.submit(self._files.close)
        self._thread.shutdown(wait=True)
