"""Relay files: what the relay log's thread does: it makes records, writes, syncs and removes.

Drives  a binlog directory and its locks
Owns    what was given and is not in a file yet
Order   entries, in the order in which they were given; removing does not wait for a full disk
Holds   what `sync` returned for is on the medium with its directory entry. After `DiskFull` it goes on where
        it stopped, with nothing written twice; any other failure is final
Tests   tests/drainer/relay/test_relay_log.py

Two formats: `payload`, binlogs as the pump sent them, and `obinlog`, which Go drainers write and read. A file
has one of them; a directory may have both, after the option was changed or a Go drainer was here.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from drainer import metrics
from drainer.config.relay_format import PAYLOAD
from drainer.formats.binlog_directory import BinlogDirectory, DiskFull
from drainer.formats.group_writer import RelayWriter
from drainer.formats.record_groups import PayloadRecords, RecordSizes, RelayRecords
from drainer.formats.relay_payload import commit_ts_of, is_payload_record
from drainer.stream.pull.merged import Spilled
from drainer.txn import Ddl, TableVersion, Transaction
from tidb_binlog.clock import Clock
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


class RelayFiles:
    """Methods block. `DiskFull`: call `sync` again without entries; `Broken`, `RowError`: never again."""

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
        with contextlib.suppress(DiskFull):  # so that it has its place when there is no room any more
            directory.note_purged(directory.purged_ts)
        newest = directory.newest
        self._sizes = sizes = RecordSizes(metrics.FILE_SIZES)
        records = PayloadRecords if form == PAYLOAD else RelayRecords
        self._records: PayloadRecords | RelayRecords = records(
            newest.index, newest.size, last_ts, max_file_size, sizes.observe
        )

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
            if records.waiting >= WRITE_BYTES:
                writer.write(records.take())
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
