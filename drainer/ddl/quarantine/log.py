"""Quarantine log: what waits for a decision, in order, on disk.

Owns    the files of one directory, which is emptied when it is opened: after a kill everything comes again
Holds   rows stay as they came; table versions and DDL stay in memory, records name them by number. Every
        record has a checksum. A record that the disk does not take waits in memory, and then there is no
        space: the stream waits, nothing is left out
        A DDL is kept with what it needs of the tracked schema and the routes, as they were then
Never   syncs: what must survive a kill is not here

A queue's log is one strand of files. Logs of queues that become one are read together, in stream order: each
may have a part of the same transaction.
"""

from __future__ import annotations

import contextlib
import os
import struct
from collections import deque
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple, Protocol

from drainer.ddl.derive.values import Route
from drainer.txn import Ddl, TableEvents, TableVersion, Transaction
from tidb_binlog import filesystem, record
from tidb_binlog.errors import Corruption
from tidb_binlog.late_dataclass import dataclass, field
from tidb_binlog.tso import Ts

SEGMENT_BYTES: Final = 16 << 20

_ROWS: Final = 0
_DDL: Final = 1
_HEAD: Final = struct.Struct("<BBQQIQI")  # kind, last, start_ts, commit_ts, table or DDL, first ordinal, rows
_NO_TABLE: Final = 0xFFFFFFFF


class Schema(Protocol):
    """What a DDL needs of the tracked schema after it."""

    def database_collation(self, schema: str) -> tuple[str, str] | None: ...


class Frozen:
    """The tracked schema as it was after one DDL, and where tables went then."""

    def __init__(self, schema: Schema, ddl: Ddl, route: Route) -> None:
        self.route = route
        names = {ddl.schema, *(name for name, _ in ddl.tables)}
        self._collations = {name.lower(): schema.database_collation(name) for name in names}

    def database_collation(self, schema: str) -> tuple[str, str] | None:
        return self._collations.get(schema.lower())


class KeptDdl(NamedTuple):
    """A DDL of the stream. `version_before`: the schema version before it."""

    ddl: Ddl
    version_before: int
    schema: Frozen

    @property
    def commit_ts(self) -> Ts:
        return self.ddl.commit_ts


Item = Transaction | KeptDdl


@dataclass(slots=True, eq=False)
class _Segment:
    path: Path
    size: int = 0
    last_ts: Ts = 0


@dataclass(slots=True, eq=False)
class _Strand:
    segments: list[_Segment] = field(default_factory=list)
    held: deque[tuple[int, bytes]] = field(default_factory=deque)  # (commit_ts, record) the disk refused
    file: int = -1  # descriptor of the last segment

    def close(self) -> None:
        if self.file >= 0:
            os.close(self.file)
            self.file = -1


class Directory:
    """All logs of a drainer. `bytes_max` bounds their files together."""

    def __init__(self, path: Path, bytes_max: int) -> None:
        self._path = path
        self._bytes_max = bytes_max
        self._numbers = 0
        self.size_bytes = 0
        self.trouble = ""  # why the disk takes nothing
        self.tables: list[TableVersion] = []
        self.ddls: list[KeptDdl] = []
        self._table_numbers: dict[TableVersion, int] = {}
        try:
            for file in path.glob("*.rows"):
                file.unlink()
        except OSError as error:
            what = f"quarantine directory {path} cannot be used"
            raise filesystem.unusable(what, error, "choose another data-dir") from None

    @property
    def has_room(self) -> bool:
        return self.size_bytes < self._bytes_max and not self.trouble

    def new_path(self) -> Path:
        self._numbers += 1
        self._path.mkdir(parents=True, exist_ok=True)
        return self._path / f"{self._numbers:08}.rows"

    def table_number(self, version: TableVersion) -> int:
        number = self._table_numbers.get(version)
        if number is None:
            number = self._table_numbers[version] = len(self.tables)
            self.tables.append(version)
        return number

    def forget(self) -> None:
        """Nothing is kept any more."""
        self.tables.clear()
        self.ddls.clear()
        self._table_numbers.clear()
        self.trouble = ""


class QuarantineLog:
    """What one queue keeps. Ends with `remove`."""

    def __init__(self, directory: Directory) -> None:
        self._directory = directory
        self._strands = [_Strand()]

    @property
    def size_bytes(self) -> int:
        return sum(segment.size for strand in self._strands for segment in strand.segments)

    def append(self, item: Item) -> None:
        """Keep it after everything that is kept."""
        for data in _encode(item, self._directory):
            self._strands[-1].held.append((item.commit_ts, data))
        self.flush()

    def flush(self) -> bool:
        """Write what the disk refused; whether everything is written."""
        for strand in self._strands:
            while strand.held:
                commit_ts, data = strand.held[0]
                try:
                    self._write(strand, commit_ts, data)
                except OSError as error:
                    self._directory.trouble = f"{error.strerror} in the quarantine directory"
                    return False
                strand.held.popleft()
        self._directory.trouble = ""
        return True

    def _write(self, strand: _Strand, commit_ts: Ts, data: bytes) -> None:
        if strand.file < 0 or strand.segments[-1].size >= SEGMENT_BYTES:
            path = self._directory.new_path()
            file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            strand.close()
            strand.file = file
            strand.segments.append(_Segment(path))
        segment = strand.segments[-1]
        try:
            written = os.write(strand.file, data)
            if written != len(data):
                os.ftruncate(strand.file, segment.size)
                raise OSError(28, "No space left on device")
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(strand.file, segment.size)
            raise
        segment.size += written
        segment.last_ts = commit_ts
        self._directory.size_bytes += written

    def absorb(self, other: QuarantineLog) -> None:
        """Take all of another log; what is appended from now on comes after both."""
        self._strands = [*self._strands, *other._strands, _Strand()]
        other._strands = [_Strand()]

    def cursor(self) -> Cursor:
        """Reads from the oldest that is left; sees what is appended later."""
        return Cursor(self, self._directory)

    def free(self, applied_ts: Ts, *, is_read: bool = True) -> None:
        """Everything at or below it is applied: files that hold nothing else go. `is_read`: but for the last
        one, at which a cursor may be."""
        for strand in self._strands:
            while len(strand.segments) > is_read and strand.segments[0].last_ts <= applied_ts:
                self._remove(strand.segments.pop(0))
            if not strand.segments:
                strand.close()

    def remove(self) -> None:
        """Nothing of it is wanted any more."""
        for strand in self._strands:
            strand.close()
            for segment in strand.segments:
                self._remove(segment)
        self._strands = [_Strand()]

    def _remove(self, segment: _Segment) -> None:
        self._directory.size_bytes -= segment.size
        segment.path.unlink(missing_ok=True)


class _Reader:
    """One strand, record by record."""

    def __init__(self, strand: _Strand, directory: Directory) -> None:
        self._strand = strand
        self._directory = directory
        self._segment: _Segment | None = None
        self._file: BinaryIO | None = None
        self._at = 0

    def next(self) -> Item | None:
        while True:
            segment = self._segment
            if segment is not None and self._file is not None and self._at < segment.size:
                item, size = _read(self._file, self._at, segment, self._directory)
                self._at += size
                return item
            following = self._following()
            if following is None:
                return None
            self.close()
            self._segment, self._at = following, 0
            self._file = open(following.path, "rb", buffering=1 << 18)  # noqa: SIM115  `close`

    def _following(self) -> _Segment | None:
        segments = self._strand.segments
        if self._segment is None:
            return segments[0] if segments else None
        if self._segment not in segments:
            return segments[0] if segments else None
        index = segments.index(self._segment) + 1
        return segments[index] if index < len(segments) else None

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


class Cursor:
    """Items of a log in stream order; a transaction may come in pieces (`Transaction.last`)."""

    def __init__(self, log: QuarantineLog, directory: Directory) -> None:
        self._log = log
        self._directory = directory
        self._readers: list[tuple[_Strand, _Reader]] = []
        self._heads: dict[int, Item] = {}

    def next(self) -> Item | None:
        """The next item; None when there is no further one now."""
        open_strands = {id(strand) for strand, _ in self._readers}
        for strand in self._log._strands:
            if id(strand) not in open_strands:
                self._readers.append((strand, _Reader(strand, self._directory)))
        for number, (_, reader) in enumerate(self._readers):
            if number not in self._heads:
                item = reader.next()
                if item is not None:
                    self._heads[number] = item
        if not self._heads:
            return None
        number = min(self._heads, key=lambda number: _order(self._heads[number]))
        item = self._heads.pop(number)
        if isinstance(item, Transaction) and item.last:
            others = [head for head in self._heads.values() if head.commit_ts == item.commit_ts]
            if others:
                return Transaction(item.start_ts, item.commit_ts, item.tables, item.size_bytes, last=False)
        return item

    def close(self) -> None:
        for _, reader in self._readers:
            reader.close()


def _order(item: Item) -> tuple[int, int]:
    if isinstance(item, KeptDdl):
        return item.commit_ts, 0
    # The end of a transaction of which nothing more was kept comes after its pieces.
    return item.commit_ts, item.tables[0].first_ordinal if item.tables else 1 << 62


def _encode(item: Item, directory: Directory) -> list[bytes]:
    if isinstance(item, KeptDdl):
        directory.ddls.append(item)
        head = _HEAD.pack(_DDL, 1, 0, item.commit_ts, len(directory.ddls) - 1, 0, 0)
        return [record.encode_value(head)]
    if not item.tables:
        head = _HEAD.pack(_ROWS, item.last, item.start_ts, item.commit_ts, _NO_TABLE, 0, 0)
        return [record.encode_value(head)]
    records = []
    for index, events in enumerate(item.tables):
        last = item.last and index == len(item.tables) - 1
        count = len(events.rows)
        payload = b"".join(
            (
                _HEAD.pack(
                    _ROWS,
                    last,
                    item.start_ts,
                    item.commit_ts,
                    directory.table_number(events.table),
                    events.first_ordinal,
                    count,
                ),
                bytes(events.kinds),
                struct.pack(f"<{count}I", *map(len, events.rows)),
                *events.rows,
            )
        )
        records.append(record.encode_value(payload))
    return records


def _read(file: BinaryIO, at: int, segment: _Segment, directory: Directory) -> tuple[Item, int]:
    """The record at an offset, and its size. Raises `Corruption`."""
    try:
        file.seek(at)
        head = file.read(record.VALUE_HEADER_SIZE)
        size = record.VALUE_HEADER.unpack(head)[1] if len(head) == record.VALUE_HEADER_SIZE else 0
        if size > segment.size - at:
            raise record.RecordError(at, f"record of {size} bytes ends early", True)
        payload, end = record.decode_value(head + file.read(size), base=at)
    except (record.RecordError, OSError) as error:
        raise Corruption(
            f"quarantine file {segment.path} is damaged: {error}",
            hint="start the drainer again: rows that wait are pulled again and kept anew",
        ) from None
    return _decode(payload, directory), end


def _decode(payload: bytes, directory: Directory) -> Item:
    kind, last, start_ts, commit_ts, number, first_ordinal, count = _HEAD.unpack_from(payload)
    if kind == _DDL:
        kept: KeptDdl = directory.ddls[number]
        return kept
    if number == _NO_TABLE:
        return Transaction(start_ts, commit_ts, (), 0, last=bool(last))
    at = _HEAD.size + count
    kinds = list(payload[_HEAD.size : at])
    sizes = struct.unpack_from(f"<{count}I", payload, at)
    at += 4 * count
    rows = []
    for size in sizes:
        rows.append(payload[at : at + size])
        at += size
    events = TableEvents(directory.tables[number], kinds, rows, first_ordinal)
    return Transaction(start_ts, commit_ts, (events,), len(payload), last=bool(last))
