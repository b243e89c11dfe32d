"""Relay log: what goes downstream is on this disk first, so that a consistent state can be reached without
the upstream.

Drives  a binlog directory and its locks, on a thread of its own (`RelayFiles`)
Owns    what was appended and is not in a file yet, and what is known to be durable
Order   append, sync, commit downstream; remove a file when all in it is applied and the checkpoint stored
Holds   what `sync` returned for is durable with its directory entry. A full disk is waited for, nothing is
        lost; any other failure is final
Stops   `close` syncs what was appended; a disk that stays full ends with whoever cancels it

A large transaction is one record: as payload it is copied from where it lies, as obinlog it comes in pieces,
and its length is filled in when the last one is there. Until then the file ends inside a record.

Two formats: `payload`, binlogs as the pump sent them, and `obinlog`, which Go drainers write and read. A file
has one of them; a directory may have both, after the option was changed or a Go drainer was here.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeAlias

from drainer import metrics
from drainer.config.relay_format import PAYLOAD
from drainer.formats.binlog_directory import BinlogDirectory, Broken, DiskFull
from drainer.formats.record_groups import PayloadRecords, RecordSizes, RelayRecords, RelayWriter
from drainer.formats.relay_payload import commit_ts_of, is_payload_record
from drainer.stream.pull.merged import Spilled
from drainer.txn import Ddl, Item, TableVersion, Transaction
from tidb_binlog.backoff import Backoff
from tidb_binlog.clock import Clock
from tidb_binlog.errors import BinlogError
from tidb_binlog.late_dataclass import dataclass
from tidb_binlog.observe import log
from tidb_binlog.tso import Ts

HEAD_BYTES: Final = 32  # enough for the format and commit_ts
WRITE_BYTES: Final = 1 << 20  # so much is written at once, so that little is held


@dataclass(frozen=True, slots=True)
class LoggedDdl:
    """A DDL that is to run with this text."""

    ddl: Ddl
    text: str


@dataclass(frozen=True, slots=True, eq=False)
class LoggedLarge:
    """A large transaction that has so many rows of these tables."""

    spilled: Spilled
    tables: tuple[TableVersion, ...]
    rows: int


Entry: TypeAlias = Transaction | LoggedDdl | LoggedLarge | str
"""A text are the rules in force for what follows."""


class LogMark:
    """How far the log is durable, for threads that must not commit what lies above."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._durable_ts = 0  # all at or below it is on the medium; never falls

    def reach(self, durable_ts: Ts) -> None:
        """Everything at or below it is on the medium."""
        with self._condition:
            self._durable_ts = max(self._durable_ts, durable_ts)
            self._condition.notify_all()

    def wake(self) -> None:
        """Have those that wait look whether they still want to."""
        self.reach(0)

    def has(self, commit_ts: Ts) -> bool:
        """Tell whether it is durable."""
        return self._durable_ts >= commit_ts

    def wait(self, commit_ts: Ts, ended: threading.Event, timeout_s: float) -> bool:
        """Tell whether it is durable, at the latest after so many seconds, or when `ended` is set."""
        with self._condition:
            self._condition.wait_for(lambda: self.has(commit_ts) or ended.is_set(), timeout_s)
            return self.has(commit_ts)


class RelayFiles:
    """What the thread does: it makes records, writes, syncs and removes, in the order of the entries.

    After `DiskFull` it goes on where it stopped, with nothing written twice: call `sync` again, without
    entries. After `Broken` and `RowError` never again. Removing does not wait for a full disk. Methods block.
    """

    def __init__(
        self, path: str, form: str, max_file_size: int, clock: Clock, cluster_id: int, after_ts: Ts
    ) -> None:
        """`after_ts`: the stream continues after it.

        Raises `ConfigError`, `DirectoryLocked`, `ForeignDirectory`, `Corruption`.
        """
        self._directory = BinlogDirectory(path, clock)
        if cluster_id:
            self._directory.adopt_cluster(cluster_id)
        try:
            self._open(form, max_file_size, after_ts)
        except BaseException:
            self._directory.close()
            raise
        self._writer = RelayWriter(self._directory)
        self._given: deque[Entry] = deque()
        self._gone: list[int] = []  # files that hold nothing needed and are there yet

    def _open(self, form: str, max_file_size: int, after_ts: Ts) -> None:
        directory = self._directory
        if after_ts and directory.purged_ts > after_ts:
            # The downstream went back in time: between here and what is kept there is a gap.
            directory.begin_anew(after_ts)
        last_ts, is_payload = self._surveyed()
        if directory.newest.size and is_payload != (form == PAYLOAD):
            directory.rotate()
        # Between the last record and a stream that begins above it, another drainer may have been at work.
        is_apart = max(last_ts.values(), default=0) < after_ts
        with contextlib.suppress(DiskFull):  # so that it has its place when there is no room any more
            directory.note_purged(after_ts if is_apart else directory.purged_ts)
        newest = directory.newest
        self._sizes = sizes = RecordSizes(metrics.FILE_SIZES)
        records = PayloadRecords if form == PAYLOAD else RelayRecords
        self._records: PayloadRecords | RelayRecords = records(
            newest.index, newest.size, last_ts, max_file_size, sizes.observe
        )
        before = directory.files.get(newest.index - 1)
        if isinstance(self._records, PayloadRecords) and before is not None and not newest.size:
            self._records.follows(before.size)

    def _surveyed(self) -> tuple[dict[int, int], bool]:
        """The largest commit_ts of each file, 0 of one without a record; the format of the newest file."""
        directory, last_ts, is_payload = self._directory, dict[int, int](), False
        for index, file in directory.files.items():
            heads = [file.read(place.start, min(place.size, HEAD_BYTES)) for place in directory.places[index]]
            last_ts[index] = max(map(commit_ts_of, heads), default=0)
            is_payload = any(map(is_payload_record, heads))
        directory.places.clear()
        return last_ts, is_payload

    @property
    def keeps_payloads(self) -> bool:
        """Tell whether binlogs are kept as pumps sent them."""
        return isinstance(self._records, PayloadRecords)

    def sync(self, entries: Sequence[Entry] = ()) -> tuple[tuple[int, ...], int]:
        """Everything given is on the medium. Sizes of the records since the last one."""
        given, records, writer = self._given, self._records, self._writer
        given.extend(entries)
        writer.write()
        while given:
            entry = given.popleft()
            if isinstance(entry, Transaction):
                records.transaction(entry)
            else:
                self._take(entry)
            if records.waiting >= WRITE_BYTES or not given:
                writer.write(records.take())
        writer.sync()
        return self._sizes.taken()

    def _take(self, entry: LoggedDdl | LoggedLarge | str) -> None:
        records = self._records
        if isinstance(entry, LoggedDdl):
            records.ddl(entry.ddl, entry.text)
        elif isinstance(records, PayloadRecords):
            if isinstance(entry, str):
                records.rules(entry)
            else:
                large = entry.spilled
                records.large(large.commit_ts, entry.tables, entry.rows, large.size, large.read)

    def remove(self, resolved_ts: Ts) -> None:
        """Remove files that hold nothing above it. Raises `DiskFull` (call again), `Broken`."""
        self._gone += self._records.done(resolved_ts)
        if self._gone:
            self._directory.note_purged(resolved_ts)
            self._writer.remove(self._gone)
            self._gone = []

    def close(self) -> None:
        """Let go of the directory."""
        self._directory.close()


logger = log.get("drainer.relay")

MAX_FILE_SIZE: Final = 10 << 20
BUFFERED_BYTES_MAX: Final = 16 << 20
END_HINT: Final = "check the disk, then start again: what was not synced is written anew"


class RelayLog:
    """`append`, `sync`, `done` and `close` are called on the event loop, in the order of the stream."""

    def __init__(self, files: RelayFiles, clock: Clock) -> None:
        self._files = files
        self._clock = clock
        self.rules_now: Callable[[], str] = str
        """The text of the rules by which what is appended goes."""
        self._rules = ""  # those of the entry that was appended last
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="relay")
        self._entries: list[Entry] = []  # not given to the thread yet
        self._inside = False  # a transaction of which more pieces come
        self._appended = self._durable = 0  # items since the start
        self._appended_bytes = self._durable_bytes = 0
        self._upto_ts = 0  # everything at or below it was appended; never falls
        self.mark = LogMark()
        self._resolved_ts = 0  # up to here nothing is needed
        self._syncing: asyncio.Task[None] | None = None
        self._removing: asyncio.Task[None] | None = None
        self._failure: BaseException | None = None  # final: every `sync` raises it
        self._on_failed: Callable[[BaseException], None] = lambda error: None
        self.waiting_for = ""
        """Why nothing can be written now, for /status; "" if it can."""

    @classmethod
    def open(
        cls,
        path: str,
        max_file_size: int,
        clock: Clock,
        *,
        form: str = PAYLOAD,
        cluster_id: int = 0,
        after_ts: Ts = 0,
    ) -> RelayLog:
        """`after_ts`: the stream continues after it; a log that cannot be continued from there begins anew.

        Blocks. Raises `ConfigError`, `DirectoryLocked`, `ForeignDirectory`, `Corruption`.
        """
        size = max_file_size if max_file_size > 0 else MAX_FILE_SIZE
        return cls(RelayFiles(path, form, size, clock, cluster_id, after_ts), clock)

    def watch(self, on_failed: Callable[[BaseException], None]) -> None:
        """From now on `on_failed` gets a failure at once, also while nothing waits."""
        self._on_failed = on_failed

    # -- appending -------------------------------------------------------------------------------

    @property
    def keeps_payloads(self) -> bool:
        """Whether a large transaction is appended as a whole (`append_large`), not in pieces."""
        return self._files.keeps_payloads

    def append(self, item: Item, text: str | None = None) -> None:
        """A transaction, a piece of one, or a DDL that is to run (with `text` if not with its own).

        Nothing is written yet. A transaction without rows leaves no record. A row that cannot be right is
        found where rows are encoded: the next `sync` raises `RowError`.
        """
        if isinstance(item, Ddl):
            query = text if text is not None else "; ".join(item.instead) or item.query
            self._give(LoggedDdl(item, query), len(query))
        elif item.tables or self._inside or not item.last:
            self._inside = not item.last
            self._give(item, item.size_bytes)

    def append_large(self, spilled: Spilled, tables: Collection[TableVersion], rows: int) -> None:
        """A large transaction that has so many rows of these tables. It is read before `sync` returns."""
        self._give(LoggedLarge(spilled, tuple(tables), rows), 0)

    def _give(self, entry: Entry, size: int) -> None:
        rules = self.rules_now()
        if rules != self._rules:
            self._rules = rules
            self._entries.append(rules)
        self._entries.append(entry)
        self._appended += 1
        self._appended_bytes += size

    @property
    def has_room(self) -> bool:
        """Whether more should be appended before the next `sync`."""
        return self._appended_bytes - self._durable_bytes < BUFFERED_BYTES_MAX

    # -- writing ---------------------------------------------------------------------------------

    async def sync(self, upto_ts: Ts = 0) -> None:
        """Everything appended before is on the medium when this returns; calls share their syncs.

        The mark stands at `upto_ts`, at or below which everything was appended, as soon as it is there.
        A transaction in pieces is there when its last piece was appended before. Raises `Broken`, `RowError`.
        """
        upto = self._appended
        self._upto_ts = max(self._upto_ts, upto_ts)
        while self._durable < upto or self._failure is not None:
            if self._failure is not None:
                raise self._failure
            if self._syncing is None:
                self._syncing = asyncio.get_running_loop().create_task(self._sync())
            await asyncio.shield(self._syncing)
        self.mark.reach(upto_ts)  # nothing new was appended for it, perhaps

    async def _sync(self) -> None:
        """Once, for all that was appended by now. What fails is kept for those who wait."""
        entries, self._entries = self._entries, []
        upto, upto_ts = (self._appended, self._appended_bytes), self._upto_ts
        started_s = self._clock.monotonic_s()
        try:
            counts, total = await self._patiently(entries, upto_ts)
        except Exception as error:
            self._fail(error)
        else:
            metrics.RELAY_RECORD_BYTES.add(counts, total)
            metrics.RELAY_WRITE_SECONDS.observe(self._clock.monotonic_s() - started_s)
            self._durable, self._durable_bytes = upto
        finally:
            self._syncing = None

    async def _patiently(self, entries: Sequence[Entry], upto_ts: Ts) -> tuple[tuple[int, ...], int]:
        """A full disk is waited for; files that are done may be removed meanwhile."""
        loop, backoff = asyncio.get_running_loop(), Backoff(0.1, 2.0)
        while True:
            try:
                sizes = await loop.run_in_executor(self._thread, self._write, entries, upto_ts)
            except DiskFull as error:
                if not self.waiting_for:
                    logger.warning("relay log waits for space on its disk", reason=str(error))
                self.waiting_for = str(error)
                entries = ()
                await asyncio.sleep(backoff.next_s())
            else:
                if self.waiting_for:
                    logger.info("relay log has space again")
                    self.waiting_for = ""
                return sizes

    def _write(self, entries: Sequence[Entry], upto_ts: Ts) -> tuple[tuple[int, ...], int]:
        """On the thread: lanes that wait to commit need not wait for the event loop, too."""
        sizes = self._files.sync(entries)
        self.mark.reach(upto_ts)
        return sizes

    def done(self, resolved_ts: Ts) -> None:
        """Everything at or below it is applied, and the stored checkpoint says so: remove what holds no more.

        Does not wait; a failure is raised by the next `sync`.
        """
        if resolved_ts != self._resolved_ts and self._failure is None:
            self._resolved_ts = resolved_ts
            if self._removing is None:
                self._removing = asyncio.get_running_loop().create_task(self._remove())

    async def _remove(self) -> None:
        upto_ts = 0
        try:
            while upto_ts != self._resolved_ts:
                upto_ts = self._resolved_ts
                loop = asyncio.get_running_loop()
                await loop.run_in_executor(self._thread, self._files.remove, upto_ts)
        except DiskFull as error:  # they stay until more is done
            logger.warning("relay log cannot be made smaller", reason=str(error))
            self.waiting_for = str(error)
        except Exception as error:
            self._fail(error)
        finally:
            self._removing = None

    def _fail(self, error: Exception) -> None:
        if self._failure is None:
            if not isinstance(error, BinlogError):
                error = Broken(f"the relay log cannot be written: {error!r}", hint=END_HINT)
            self._failure = error
            self._on_failed(error)

    async def close(self) -> None:
        """Sync what was appended and let go of the directory. Raises `Broken`."""
        try:
            await self.sync()
            if self._removing is not None:
                await self._removing
        finally:
            await self.let_go()

    async def let_go(self) -> None:
        """Without a last sync; once is enough."""
        if self._syncing is not None:  # it waits for a full disk
            self._syncing.cancel()
        with contextlib.suppress(RuntimeError):  # it was let go before
            self._thread.submit(self._files.close)
        await asyncio.to_thread(self._thread.shutdown)
