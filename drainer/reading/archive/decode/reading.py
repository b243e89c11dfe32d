"""Reading: the records of a slice, whatever wrote them.

Out    `Changes` and `SchemaChange` in the order of the file; with `heads` what a count needs
Holds  a record that does not fit its checksum ends the reading with `Corruption`, unless `damage` is
       "report": then it is left out, and the view of the files shows it. What was never synced at the end of
       the newest file is no damage; where files are missing there is no slice to read
Why    a record is read once, in large chunks, and rows that are not selected are not decoded
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from drainer.changes.statement_effect import pb_ddl
from drainer.formats import binlog_file
from drainer.formats.segment_index import UTC
from drainer.places.open_file import File
from drainer.places.place import Place
from drainer.reading.archive.decode import pump_range
from drainer.reading.archive.decode.definitions import Definitions
from drainer.reading.archive.decode.pb_walk import PbWalker
from drainer.reading.archive.decode.pump_range import PumpSlice
from drainer.reading.archive.decode.records import Changes, Piece, Record, SchemaChange, changes
from drainer.reading.archive.decode.relay_rows import RelayRows
from drainer.reading.archive.decode.value_log import PumpReader
from drainer.reading.archive.files import payload as payloads
from drainer.reading.archive.files.framing import after_damage, file_records
from drainer.reading.archive.files.payload import DDL, PB, Body, PayloadHead
from drainer.reading.archive.files.segments import PUMP, Slice
from drainer.reading.archive.files.selection import Selection
from drainer.relay.record_readers import to_utc
from tidb_binlog.errors import BinlogError, ConfigError, Corruption
from tidb_binlog.late_dataclass import dataclass
from tidb_binlog.record import FILE_OVERHEAD, RecordError

FAIL: Final = "fail"
REPORT: Final = "report"
DAMAGE: Final = (FAIL, REPORT)
_NO_TS: Final = -1


def read(
    location: Place,
    part: Slice,
    selection: Selection,
    definitions: Definitions,
    *,
    damage: str = FAIL,
    reach: Reach | None = None,
) -> Iterator[Record]:
    """Records of a slice, without rows that are not selected. Raises `Corruption`."""
    _check(damage)
    if part.kind == PUMP:
        yield from PumpReader(location, part, definitions, skip_damage=damage == REPORT).records(selection)
        return
    if isinstance(part, PumpSlice):
        yield from pump_range.records(part, selection, definitions)
        return
    reader = PbReader if part.kind == PB else _RelayReader
    with location.open(part.name) as file:
        path = location.path_of(part.name)
        yield from reader(part, selection, definitions, path, reach).records(file, damage)


def _check(damage: str) -> None:
    if damage not in DAMAGE:
        raise ConfigError(f"{damage!r} is no way to treat damage", hint=f"choose from {', '.join(DAMAGE)}")


def pieces(location: Place, part: Slice, reader: PbReader, damage: str = FAIL) -> Iterator[Piece]:
    """The records of a file archive that `read` would decode, as they are. Raises `Corruption`."""
    _check(damage)
    with location.open(part.name) as file:
        yield from reader.pieces(file, damage)


def undecoded(
    location: Place, part: Slice, selection: Selection, damage: str = FAIL
) -> Iterator[Piece | SchemaChange]:
    """The records of a slice of a file archive in the range, rows as they stand there: whoever reads them may
    know of their tables only what schema changes before have made of them. Raises `Corruption`."""
    _check(damage)
    reader = PbReader(part, selection, Definitions(), location.path_of(part.name))
    with location.open(part.name) as file:
        yield from reader.undecoded(file, damage)


def heads(location: Place, part: Slice) -> Iterator[PayloadHead]:
    """Every record of a slice, compared with its checksum, its rows counted. Raises `Corruption`."""
    if part.kind == PUMP:
        yield from PumpReader(location, part, Definitions()).heads()
        return
    head_of = payloads.HEADS[part.kind]
    path = location.path_of(part.name)
    with location.open(part.name) as file:
        for pos, payload in _payloads(file, part, path, FAIL):
            yield head_of(payload, pos, None)


def _payloads(file: File, part: Slice, path: str, damage: str) -> Iterator[tuple[int, bytes]]:
    at: int | None = part.start
    while at is not None:
        try:
            yield from file_records(file.read, at, part.stop)
            return
        except RecordError as error:
            if is_end(file, part, error):
                return
            if damage != REPORT:
                raise binlog_file.damage(path, error) from None
            at = after_damage(file.read, error.offset)
        except Corruption:  # it cannot be unpacked from there on
            if damage != REPORT:
                raise
            return


def is_end(file: File, part: Slice, error: RecordError) -> bool:
    """Whether the newest file just ends there, in bytes that were never synced."""
    size = file.size
    return (
        part.last
        and error.offset >= part.whole
        and size is not None
        and binlog_file.is_torn_end(error, part.index, None, file.read, size)
    )


class Reach:
    """How far a reading of whole files in order has come: what is at or below it in a later file is only
    repeated there."""

    def __init__(self) -> None:
        self._ts = 0
        self._current: _Doubles | None = None

    def enter(self, doubles: _Doubles) -> int:
        """The highest commit_ts of the files before."""
        if self._current is not None:
            self._ts = max(self._ts, self._current.last_ts)
        self._current = doubles
        return self._ts


class _Doubles:
    """Transactions that a drainer wrote again when it was started anew, from its checkpoint on.

    In order nothing is kept. When commit_ts goes back, the stretch is read again for what was there.
    """

    def __init__(self, file: File, part: Slice, reach: Reach | None = None) -> None:
        self._file = file
        self._part = part
        self._after = part.after if reach is None else max(part.after, reach.enter(self))
        self.last_ts = _NO_TS
        self._last_pos = _NO_TS
        self._seen: set[int] | None = None
        self._ddl = b""
        self.part = 0
        """How many records of the same DDL were before this one."""

    def is_double(self, body: Body, pos: int, payload: bytes) -> bool:
        """Tell whether a record repeats one that was there before."""
        commit_ts = body.commit_ts
        if commit_ts <= self._after:
            return True
        if commit_ts > self.last_ts:
            self.part = 0
            double = False
        elif body.tag == DDL and commit_ts == self.last_ts and self._ddl:
            double = payload[body.start : body.stop] == self._ddl
            self.part += not double
        else:
            if self._seen is None:
                stop = self._last_pos + 1
                records = file_records(self._file.read, self._part.start, stop)
                self._seen = {payloads.body(payload).commit_ts for _, payload in records}
            double = commit_ts in self._seen
            self.part = 0
        if self._seen is not None:
            self._seen.add(commit_ts)
        if not double:
            self.last_ts = max(self.last_ts, commit_ts)
            self._ddl = payload[body.start : body.stop] if body.tag == DDL else b""
        self._last_pos = pos
        return double


@dataclass(eq=False)
class _Reader:
    """What slices of both kinds of binlog files have in common. `path`: the file's name in messages."""

    part: Slice
    selection: Selection
    definitions: Definitions
    path: str
    reach: Reach | None = None

    def _at(self, error: BinlogError, pos: int) -> BinlogError:
        """The error with the place of the record."""
        return type(error)(f"{self.path}: offset {pos}: {error.message}", hint=error.hint)


@dataclass(eq=False)
class PbReader(_Reader):
    """Of a file archive."""

    def __post_init__(self) -> None:
        wants = None if self.selection.takes_all_rows else self._wants
        zone = self.part.time_zone
        self.walker = PbWalker(self.definitions, wants, None if zone == UTC else to_utc(zone))

    def records(self, file: File, damage: str) -> Iterator[Record]:
        """Read the records of the slice."""
        for item in self.undecoded(file, damage):
            if isinstance(item, Piece):
                yield from self.changes(item, damage)
            elif self.selection.wants_ddl(item.ddl.tables):
                yield item

    def pieces(self, file: File, damage: str) -> Iterator[Piece]:
        """Read the records of rows, undecoded."""
        return (item for item in self.undecoded(file, damage) if isinstance(item, Piece))

    def undecoded(self, file: File, damage: str) -> Iterator[Piece | SchemaChange]:
        """Read the records, rows undecoded."""
        doubles = _Doubles(file, self.part, self.reach)
        for pos, payload in _payloads(file, self.part, self.path, damage):
            try:
                body = payloads.body(payload)
                double = doubles.is_double(body, pos, payload)
            except Corruption as error:
                if damage == REPORT:
                    continue
                raise self._at(error, pos) from None
            if double or not self.selection.wants_ts(body.commit_ts):
                continue
            if body.tag == DDL:
                text = payload[body.start : body.stop]
                yield SchemaChange(pb_ddl(body.commit_ts, text), self.part.name, pos, doubles.part, text)
            else:
                yield Piece(body.commit_ts, pos, payload, body.start)

    def changes(self, piece: Piece, damage: str) -> Iterator[Changes]:
        """The rows of a record."""
        name = self.part.name
        try:
            for runs, last_ones in self.walker.pieces(piece.payload, piece.commit_ts):
                for number, (first_seq, rows) in enumerate(runs, 1):
                    last = last_ones and number == len(runs)
                    yield Changes(piece.commit_ts, 0, name, piece.pos, first_seq, rows, last)
        except BinlogError as error:
            if damage != REPORT or not isinstance(error, Corruption):
                raise self._at(error, piece.pos) from None

    def _wants(self, schema: str, table: str, kind: int) -> bool:
        return self.selection.wants_op(kind) and self.selection.wants_table(schema, table)


@dataclass(eq=False)
class _RelayReader(_Reader):
    def __post_init__(self) -> None:
        self._rows = RelayRows(self.definitions, self.part.time_zone)

    def records(self, file: File, damage: str) -> Iterator[Record]:
        """Read the records of the slice."""
        doubles = _Doubles(file, self.part, self.reach)
        selection, end = self.selection, self.part.start
        for pos, payload in _payloads(file, self.part, self.path, damage):
            if pos != end:
                self._rows.lose()
            end = pos + len(payload) + FILE_OVERHEAD
            try:
                body = payloads.body(payload)
                double = doubles.is_double(body, pos, payload)
                self._rows.see(payload)
                if double or not selection.wants_ts(body.commit_ts):
                    continue
                if body.tag == DDL:
                    ddl = self._rows.ddl()
                    if selection.wants_ddl(ddl.tables):
                        yield SchemaChange(ddl, self.part.name, pos, doubles.part)
                    continue
                begin = Changes(body.commit_ts, 0, self.part.name, pos, 0, [])
                for runs, last in self._rows.pieces():
                    yield from changes(runs, selection, begin, last=last)
            except BinlogError as error:
                if damage == REPORT and isinstance(error, Corruption):
                    continue
                raise self._at(error, pos) from None
