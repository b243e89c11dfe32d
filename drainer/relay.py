"""Relay log: what goes downstream is on this disk first, so that a consistent state can be reached without
the upstream.

Drives  `obinlog` (encoding), `binlog_directory` on one thread of its own
Owns    the directory, and what is encoded but not written yet
Order   append, sync, hand to the lanes; remove a file when all in it is applied and the checkpoint stored
Holds   what `sync` returned for is durable with its directory entry. A full disk is waited for, nothing is
        lost; any other failure of the disk is final
Stops   `close` syncs what was appended

A large transaction comes in pieces and is one record: its pieces are written as they come, and its length is
filled in when the last one is there. Until then the file ends inside a record.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from common import log
from common.backoff import Backoff
from common.clock import Clock
from common.record import FILE_OVERHEAD, encode_file
from drainer import metrics
from drainer.binlog_directory import BinlogDirectory, NoRoom
from drainer.obinlog import ObinlogWriter, commit_ts_of
from drainer.relay_writer import Group, OpenRecord, RelayWriter
from drainer.txn import Ddl, Item, Transaction

logger = log.get(__name__)

MAX_FILE_SIZE: Final = 10 << 20
BUFFERED_BYTES_MAX: Final = 16 << 20
HEAD_BYTES: Final = 32  # enough for type and commit_ts


class RelayLog:
    """`append`, `sync`, `done` and `close` are called on the event loop, in the order of the stream."""

    def __init__(self, directory: BinlogDirectory, max_file_size: int, clock: Clock) -> None:
        self._max_file_size = max_file_size
        self._clock = clock
        self._encoder = ObinlogWriter()
        self._writer = RelayWriter(directory)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="relay")
        self._last_ts = _last_timestamps(directory)  # of each file that is there
        self._index = directory.newest.index
        self._size = directory.newest.size
        self._group = Group(self._index)
        self._groups = [self._group]
        self._open: OpenRecord | None = None
        self._appended = self._durable = 0  # bytes since the start
        self._flushing: asyncio.Task[None] | None = None
        self._failure: Exception | None = None
        self.waiting_for = ""
        """Why nothing can be written now, for /status; "" if it can."""

    @classmethod
    def open(cls, path: str, max_file_size: int, clock: Clock, *, cluster_id: int = 0) -> RelayLog:
        """Blocks. Raises `ConfigError`, `DirectoryLocked`, `ForeignDirectory`, `Corruption`."""
        directory = BinlogDirectory(path, clock)
        if cluster_id:
            directory.adopt_cluster(cluster_id)
        return cls(directory, max_file_size if max_file_size > 0 else MAX_FILE_SIZE, clock)

    # -- appending -------------------------------------------------------------------------------

    def append(self, item: Item, text: str | None = None) -> None:
        """Encode a transaction, a piece of one, or a DDL that is to run (with `text` if not with its own).

        Nothing is written yet. A transaction without rows leaves no record. Raises `RowError` for a row that
        cannot be right.
        """
        if isinstance(item, Ddl):
            query = text if text is not None else "; ".join(item.instead) or item.query
            self._append_record(item.commit_ts, self._encoder.ddl(item, query))
        elif not item.last or self._open is not None:
            self._append_piece(item)
        elif item.tables:
            self._append_record(item.commit_ts, self._encoder.transaction(item))

    def _append_record(self, commit_ts: int, payload: bytes) -> None:
        self._add(encode_file(payload))
        self._record_ended(commit_ts, len(payload))

    def _append_piece(self, piece: Transaction) -> None:
        if self._open is None:
            self._open = OpenRecord(self._size, self._encoder.beginning(piece.commit_ts))
            self._add(self._open.head)
        record = self._open
        tables = self._encoder.tables(piece)
        record.contents += len(tables)
        self._add(tables)
        if piece.last:
            self._open = None
            record.ending = self._encoder.ending()
            self._add(record.ending)
            self._group.completes = record
            self._count(4)
            self._begin_group(self._index)
            self._record_ended(piece.commit_ts, record.payload_size)

    def _add(self, data: bytes) -> None:
        self._group.parts.append(data)
        self._count(len(data))

    def _count(self, size: int) -> None:
        self._size += size
        self._appended += size
        self._group.whole = self._size if self._open is None else self._open.start

    def _begin_group(self, index: int) -> None:
        self._group = Group(index, whole=self._size)
        self._groups.append(self._group)

    def _record_ended(self, commit_ts: int, payload_size: int) -> None:
        metrics.RELAY_RECORD_BYTES.observe(payload_size + FILE_OVERHEAD)
        self._last_ts[self._index] = max(commit_ts, self._last_ts.get(self._index, 0))
        if self._size >= self._max_file_size:
            self._index += 1
            self._size = 0
            self._encoder.begin_file()
            self._begin_group(self._index)

    @property
    def has_room(self) -> bool:
        """Whether more should be appended before the next `sync`."""
        return self._appended - self._durable < BUFFERED_BYTES_MAX

    # -- writing ---------------------------------------------------------------------------------

    async def sync(self) -> None:
        """Everything appended before is on the medium when this returns; calls share their syncs.

        A transaction in pieces is there when its last piece was appended before. Raises `Broken`.
        """
        wanted = self._appended
        while self._durable < wanted:
            if self._failure is not None:
                raise self._failure
            if self._flushing is None:
                self._flushing = asyncio.get_running_loop().create_task(self._flush())
            await asyncio.shield(self._flushing)

    async def _flush(self) -> None:
        """Write and sync what is there now. A full disk is waited for."""
        groups, upto = self._groups, self._appended
        self._groups = []
        self._begin_group(self._index)
        started_s = self._clock.monotonic_s()
        try:
            await self._write(groups)
            self._durable = upto
        except Exception as error:
            self._failure = error
        finally:
            self._flushing = None
        metrics.RELAY_WRITE_SECONDS.observe(self._clock.monotonic_s() - started_s)

    async def _write(self, groups: list[Group]) -> None:
        backoff = Backoff(0.1, 2.0)
        while True:
            try:
                await self._call(self._writer.write, groups)
                break
            except NoRoom as error:
                if not backoff.attempts:
                    logger.warning("relay log waits for room on its disk", reason=str(error))
                self.waiting_for = str(error)
                groups = []
            await asyncio.sleep(backoff.next_s())
        if backoff.attempts:
            logger.info("relay log has room again")
        self.waiting_for = ""

    async def _call(self, function: Callable[..., None], *arguments: object) -> None:
        await asyncio.get_running_loop().run_in_executor(self._thread, function, *arguments)

    # -- removing --------------------------------------------------------------------------------

    def done(self, resolved_ts: int) -> None:
        """Everything at or below it is applied, and the stored checkpoint says so: remove what holds no more.

        Does not wait; a failure is raised by the next `sync`.
        """
        gone = []
        for index in sorted(self._last_ts):
            if index >= self._index or self._last_ts[index] > resolved_ts:
                break
            gone.append(index)
        if not gone:
            return
        for index in gone:
            del self._last_ts[index]
        self._thread.submit(self._remove, gone)

    def _remove(self, indexes: list[int]) -> None:
        try:
            self._writer.remove(indexes)
        except Exception as error:
            self._failure = error

    async def close(self) -> None:
        """Sync what was appended and let go of the directory. Raises `Broken`."""
        try:
            await self.sync()
        finally:
            await self._call(self._writer.close)
            self._thread.shutdown(wait=False)


def _last_timestamps(directory: BinlogDirectory) -> dict[int, int]:
    """The largest commit_ts of each file; files without a record have none to wait for."""
    found = {}
    for index, file in directory.files.items():
        heads = [file.read(place.start, min(place.size, HEAD_BYTES)) for place in directory.places[index]]
        found[index] = max(map(commit_ts_of, heads), default=0)
    directory.places.clear()
    return found
