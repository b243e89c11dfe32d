"""pb walk: rows of an archive's events become images, straight from their bytes.

Out    runs of rows: (number of the first among all rows of the transaction, rows)
Why    one record repeats names and types of all columns for every row. A walk made for one shape of event
       and one table version compares them as constants, and most values are the same datum there and here,
       so that one costs a comparison and a slice. Protobuf alone costs a reparo a third of its rate
Holds  an image has the writable columns that the event has; a hidden row id is not in an archive

    type                                   in an event            in an image
    integers, YEAR, ENUM, SET, BIT         the datum              the same
    FLOAT, DOUBLE, strings                 the datum              the same
    DECIMAL, JSON, dates and times         a datum of text        its own datum

An element of an event is `22 size prefix 22 size datum`, in an UPDATE with `2a size datum` after it. A walk
accepts a subset of what the slow way accepts, with the same result: whatever is not as expected goes through
protobuf, which decides what is an event. It is made anew when events have another shape.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterator, Sequence
from typing import Final, Protocol, TypeAlias

from google.protobuf.message import DecodeError

from drainer.formats.obinlog.column import KeptByNumber, delimited
from drainer.reading.archive.decode.records import Row
from drainer.txn import DELETE, INSERT, UPDATE, TableVersion
from tidb_binlog import table_info as ti
from tidb_binlog.errors import Corruption
from tidb_binlog.late_dataclass import dataclass, replace
from tidb_binlog.protobuf_fields import MalformedMessage, utf8_text
from tidb_binlog.rowcodec.codegen import UNEXPECTED
from tidb_binlog.rowcodec.datum import BYTES, FLOAT, NULL_DATUM, UVARINT, VARINT, bytes_span, skip
from tidb_binlog.rowcodec.decimals import PRECISION_MAX, put_decimal
from tidb_binlog.rowcodec.json_encode import put_document
from tidb_binlog.rowcodec.put import put_int
from tidb_binlog.rowcodec.row_error import RowError
from tidb_binlog.rowcodec.source import Source
from tidb_binlog.rowcodec.temporal import pack_datetime, parse_duration
from tidb_binlog.rowcodec.time_caches import CACHE_MAX
from tidb_binlog.rowcodec.varint import put_svarint, put_uvarint, uvarint
from tidb_binlog.table_info import Column, ColumnKind, FieldType
from tidb_binlog.tso import Ts
from tidb_binlog.wire import pb_binlog_pb2 as pb

_SHORT_MAX: Final = 11  # bytes of the longest datum that is no string
_ONE_BYTE: Final = 127
_HEADS_MAX: Final = 1 << 14
_FAMILIES: Final = (
    ti.INTEGER_TYPES - {ti.YEAR},
    ti.STRING_TYPES,
    ti.TIME_TYPES,
    frozenset({ti.FLOAT, ti.DOUBLE}),
)


def fits(field_type: FieldType, tp: int) -> bool:
    """Whether a column of this type holds what an event calls `tp`."""
    mine = ti.JSON if field_type.array else field_type.tp
    return mine == tp or any(mine in family and tp in family for family in _FAMILIES)


class _Made(dict[bytes, bytes]):
    """Datums made from datums of text; the latest are kept."""

    def __init__(self, make: Callable[[str], bytes]) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, datum: bytes) -> bytes:
        value = NULL_DATUM if datum == NULL_DATUM else self._make(_content(datum).decode())
        if len(self) >= CACHE_MAX:
            self.clear()
        if len(datum) <= _ONE_BYTE:
            self[datum] = value
        return value


def _content(datum: bytes) -> bytes:
    start, end = bytes_span(datum, 0)
    if end != len(datum):
        raise RowError("bytes after a text")
    return datum[start:end]


def _decimal_of(field_type: FieldType) -> Callable[[str], bytes]:
    def make(text: str) -> bytes:
        if field_type.flen > 0:
            return put_decimal(text, field_type.flen, field_type.fsp)
        whole, _, fraction = text.lstrip("-").partition(".")
        return put_decimal(text, min(len(whole) + len(fraction), PRECISION_MAX), len(fraction))

    return make


def _integer(text: str) -> int | float:
    return -0.0 if text == "-0" else int(text)  # a number of text that only a float holds


def _json_of(text: str) -> bytes:
    return put_document(json.loads(text, parse_int=_integer))


def _time_of(text: str) -> bytes:
    return b"\x09" + put_uvarint(pack_datetime(text))


def _duration_of(text: str) -> bytes:
    return put_int(parse_duration(text), unsigned=False)


@functools.cache
def _shared(make: Callable[[str], bytes]) -> _Made:
    """One cache for all columns whose datums are made alike."""
    return _Made(make)


_MAKERS: Final[dict[ColumnKind, Callable[[FieldType], _Made]]] = {
    ColumnKind.JSON: lambda field_type: _Made(_json_of),
    ColumnKind.DECIMAL: lambda field_type: _Made(_decimal_of(field_type)),
    **dict.fromkeys(ti.DATE_AND_TIME_KINDS, lambda field_type: _shared(_time_of)),
    ColumnKind.TIME: lambda field_type: _shared(_duration_of),
}
"""Kinds whose datums are another in an event."""
_FLAGS: Final = {
    **dict.fromkeys(ti.STRING_KINDS, BYTES),
    **dict.fromkeys((ColumnKind.FLOAT, ColumnKind.DOUBLE), FLOAT),
    **dict.fromkeys((ColumnKind.UNSIGNED, ColumnKind.BIT, ColumnKind.ENUM, ColumnKind.SET), UVARINT),
}


@dataclass(frozen=True, slots=True)
class PbValue:
    """`flag`: of a datum that is the same here and there. `datums`: datums of other values, by their text's.

    `is_local`: the text is a time in the zone of the drainer that wrote it."""

    id: bytes
    prefix: bytes
    flag: int
    datums: _Made | None
    is_local: bool = False

    def image_datum(self, datum: bytes) -> bytes:
        """The slow way; `RowError` and the like for what is none."""
        if self.datums is not None:
            return self.datums[datum]
        same = datum[0] == self.flag or datum == NULL_DATUM or {datum[0], self.flag} == {VARINT, UVARINT}
        if not same or skip(datum, 0) != len(datum):
            raise RowError(f"datum flag {datum[0]:#04x}")
        return datum

    def _head(self, size: int) -> bytes:
        """From the prefix to what is known of a datum of this size."""
        head = self.prefix + b"\x22" + put_uvarint(size)
        return head if self.datums is not None else head + self._start(size)

    def _start(self, size: int) -> bytes:
        """The first bytes of a datum of this size."""
        if size == 1:
            return NULL_DATUM
        if self.flag != BYTES:
            return bytes((self.flag,))
        for length in (1, 2, 3, 4, 5):  # a string's datum has its own size in it
            size_of_content = put_svarint(size - 1 - length)
            if len(size_of_content) == length:
                return b"\x02" + size_of_content
        raise RowError("string of an impossible size")

    def _changed(self, size: int) -> bytes:
        head = b"\x2a" + put_uvarint(size)
        return head if self.datums is not None else head + self._start(size)

    @property
    def _is_short(self) -> bool:
        """Whether all sizes of an element are one byte."""
        return (
            self.datums is None and self.flag != BYTES and len(self.prefix) + 2 * _SHORT_MAX + 4 <= _ONE_BYTE
        )

    def _locals(self, source: Source, place: int) -> None:
        source.names[f"HEAD{place}"] = KeptByNumber(self._head, _HEADS_MAX)
        source.names[f"NEXT{place}"] = KeptByNumber(self._changed, _HEADS_MAX)
        if self.datums is not None:
            source.names[f"MADE{place}"] = self.datums

    def _sizes(self, source: Source) -> None:
        """`p` where the prefix begins, `e` where the element ends, `d` where the datum lies, `s` its size."""
        at = len(self.prefix) + 1  # of the size of the datum, from the prefix on
        source.add(2, "if b[i] != 34: return slow(b, a, end)")
        if self._is_short:
            source.add(2, "p = i + 2", "e = p + b[i + 1]", f"s = b[i + {at + 2}]", f"d = i + {at + 3}")
            return
        source.add(2, "u = b[i + 1]", "if u < 128:", f"    p = i + 2; e = p + u; s = b[i + {at + 2}]")
        source.add(3, f"d = i + {at + 3}")
        source.add(2, "else:")
        source.add(3, "w = b[i + 2]", "if w > 127: return slow(b, a, end)", "p = i + 3")
        source.add(3, "e = p + u + (w << 7) - 128", f"s = b[i + {at + 3}]", f"d = i + {at + 4}")
        source.add(2, "if s > 127:")
        source.add(3, "w = b[d]", "if w > 127: return slow(b, a, end)", "s += (w << 7) - 128", "d += 1")

    def add_one(self, source: Source, place: int) -> None:
        """Lines that read the element at `i` of an INSERT or DELETE."""
        self._locals(source, place)
        self._sizes(source)
        source.add(2, "i = d + s", f"if i != e or not starts(HEAD{place}[s], p): return slow(b, a, end)")
        source.add(2, f"v{place} = " + self._datum(place, "d", "i"))

    def add_pair(self, source: Source, place: int) -> None:
        """The same for an UPDATE; the old datum is in o, the new one in v."""
        self._locals(source, place)
        self._sizes(source)
        source.add(2, "m = d + s", "t = b[m + 1]", "c = m + 2")
        if not self._is_short:
            source.add(2, "if t > 127:")
            source.add(3, "w = b[c]", "if w > 127: return slow(b, a, end)", "t += (w << 7) - 128", "c += 1")
        source.add(2, "i = c + t")
        same = f"starts(HEAD{place}[s], p) and starts(NEXT{place}[t], m)"
        source.add(2, f"if i != e or not ({same}): return slow(b, a, end)")
        source.add(
            2, f"o{place} = " + self._datum(place, "d", "m"), f"v{place} = " + self._datum(place, "c", "i")
        )

    def _datum(self, place: int, start: str, end: str) -> str:
        return f"b[{start}:{end}]" if self.datums is None else f"MADE{place}[b[{start}:{end}]]"


def pb_value(column: Column, prefix: bytes, to_utc: Callable[[str], str] | None = None) -> PbValue:
    """`prefix` is that of the events: names and types there, not in the definition. `to_utc`: for times that
    are not in UTC there."""
    kind = column.type.kind
    maker = _MAKERS.get(kind)
    datums = None if maker is None else maker(column.type)
    is_local = to_utc is not None and kind in ti.DATE_AND_TIME_KINDS
    if to_utc is not None and is_local:
        datums = _Made(lambda text: _time_of(to_utc(text)))
    flag = _FLAGS.get(kind, VARINT)
    return PbValue(b"\x08" + put_svarint(column.id), prefix, flag, datums, is_local)


_KINDS: Final = (INSERT, UPDATE, DELETE)
_DML: Final = b"\x08\x00\x10"
_WALKS_MAX: Final = 10_000
PIECE_BYTES: Final = 1 << 20
_CUT: Final = "a record of the archive ends inside an event"
_NO_COLUMN: Final = b"\x00"

Run: TypeAlias = tuple[int, list[Row]]
ToUtc: TypeAlias = Callable[[str], str]
Walk: TypeAlias = Callable[[bytes, int, int], Row]


@dataclass(frozen=True, slots=True)
class ShapeColumn:
    """What an event says of a column. `unsigned`: None where its value is NULL or no integer."""

    name: str
    tp: int
    mysql_type: str
    unsigned: bool | None = None

    @property
    def prefix(self) -> bytes:
        """What stands before the value."""
        return (
            delimited(b"\n", self.name.encode())
            + delimited(b"\x12", bytes((self.tp,)))
            + delimited(b"\x1a", self.mysql_type.encode())
        )


Shape: TypeAlias = tuple[ShapeColumn, ...]


class Known(Protocol):
    """Definitions, as a walk asks for them."""

    def find(
        self,
        schema: str,
        table: str,
        commit_ts: Ts,
        column_names: Sequence[str],
        fits: Callable[[TableVersion], bool],
    ) -> TableVersion | None: ...

    def guess(self, schema: str, table: str, shape: Shape) -> TableVersion: ...

    def valid(self, commit_ts: Ts) -> tuple[int, int]:
        """The first and the last commit_ts around this one with the same definitions."""


class _Event:
    """One event, the slow way."""

    def __init__(self, data: bytes) -> None:
        try:
            self._event = pb.Event.FromString(data)
            self.columns = [pb.Column.FromString(column) for column in self._event.row]
            self.schema, self.table = utf8_text(self._event.schema_name), utf8_text(self._event.table_name)
            for column in self.columns:
                utf8_text(column.name), utf8_text(column.mysql_type)
        except (DecodeError, MalformedMessage):
            raise Corruption("an event of the archive cannot be read") from None
        self.kind: int = self._event.tp
        self.shape = tuple(self._described(column) for column in self.columns)

    def _described(self, column: pb.Column) -> ShapeColumn:
        if len(column.tp) != 1:
            raise self.wrong(column.name, "has no type")
        flags = {value[0] for value in (column.value, column.changed_value) if value}
        unsigned = True if 9 in flags else False if 8 in flags else None
        return ShapeColumn(column.name, column.tp[0], column.mysql_type, unsigned)

    @property
    def head(self) -> bytes:
        """The bytes before the columns, as writers order them."""
        names = delimited(b"\n", self.schema.encode()) + delimited(b"\x12", self.table.encode())
        return names + bytes((0x18, self.kind))

    def image(self, values: Sequence[PbValue | None], order: Sequence[int], *, changed: bool) -> bytes:
        """Make the image before or after the event."""
        parts = []
        for place in order:
            column, value = self.columns[place], values[place]
            assert value is not None
            datum = column.changed_value if changed else column.value
            try:
                parts.append(value.id + value.image_datum(datum))
            except UNEXPECTED as error:
                raise self.wrong(column.name, f"cannot be read: {error}") from None
        return b"".join(parts) or _NO_COLUMN

    def wrong(self, column: str, what: str) -> Corruption:
        """Say what is wrong with a column."""
        return Corruption(f"column {column} of an archived row of {self.schema}.{self.table} {what}")


class _Compiled:
    """What is known of events of one shape: their version, how their values are read, the walk."""

    def __init__(self, event: _Event, version: TableVersion, to_utc: ToUtc | None, slow: Walk) -> None:
        self.version = version
        by_name = {column.name: column for column in version.info.columns if column.is_writable}
        self.values = [
            pb_value(by_name[element.name], element.prefix, to_utc if element.tp == ti.TIMESTAMP else None)
            if element.name in by_name
            else None
            for element in event.shape
        ]
        offsets = {
            place: by_name[element.name].offset
            for place, element in enumerate(event.shape)
            if element.name in by_name
        }
        self.order = sorted(offsets, key=offsets.__getitem__)
        self.kind = event.kind
        self.walk = self._compile(event.kind, slow)

    def row(self, event: _Event) -> Row:
        """Decode an event."""
        before = after = None
        if self.kind != INSERT:
            before = event.image(self.values, self.order, changed=False)
        if self.kind != DELETE:
            after = event.image(self.values, self.order, changed=self.kind == UPDATE)
        return self.version, self.kind, before, after

    def _compile(self, kind: int, slow: Walk) -> Walk:
        source = Source("walk")
        source.names.update(
            slow=slow, VERSION=self.version, UNEXPECTED=UNEXPECTED, join=b"".join, uvarint=uvarint
        )
        source.add(0, "def walk(b, i, end):")
        source.add(1, "a = i", "try:", "    starts = b.startswith")
        for place, value in enumerate(self.values):
            if value is None:
                source.add(2, "if b[i] != 34: return slow(b, a, end)", "u, i = uvarint(b, i + 1)", "i += u")
            elif kind == UPDATE:
                value.add_pair(source, place)
            else:
                value.add_one(source, place)
        source.add(2, "if i != end: return slow(b, a, end)")
        source.add(1, "except UNEXPECTED:", "    return slow(b, a, end)")
        old = self._image(source, "v" if kind == DELETE else "o") if kind != INSERT else "None"
        new = self._image(source, "v") if kind != DELETE else "None"
        source.add(1, f"return VERSION, {kind}, {old}, {new}")
        return source.compile()

    def _image(self, source: Source, prefix: str) -> str:
        for place in self.order:
            value = self.values[place]
            assert value is not None
            source.names[f"ID{place}"] = value.id
        pieces = "".join(f"ID{place}, {prefix}{place}, " for place in self.order)
        return f"join(({pieces}))" if pieces else repr(_NO_COLUMN)


@dataclass(frozen=True, slots=True)
class EventShape:
    """What events of one shape hold, column by column: None for what is in no image."""

    version: TableVersion
    values: tuple[PbValue | None, ...]
    columns: tuple[Column | None, ...]


class PbWalker:
    """Reads payloads of `db-type = "file"`. Not for use from several threads.

    `wants(schema, table, kind)` says which rows are read at all; the others still have their place.
    `to_utc`: for TIMESTAMP texts, where they are in a drainer's local time.
    """

    def __init__(
        self,
        definitions: Known,
        wants: Callable[[str, str, int], bool] | None = None,
        to_utc: ToUtc | None = None,
    ) -> None:
        self._definitions = definitions
        self._wants = wants
        self._to_utc = to_utc
        # By the bytes before the columns of an event: what reads it, None where it is not wanted.
        self._walks: dict[bytes, Walk | None] = {}
        self._compiled: dict[tuple[bytes, TableVersion, tuple[bytes, ...]], _Compiled] = {}
        # Of columns without a definition: whether rows so far have had unsigned numbers.
        self._signs: dict[tuple[str, str, tuple[bytes, ...]], list[bool | None]] = {}
        self._first, self._last = 1, 0  # the range of commit_ts in which `_walks` hold
        self._commit_ts = 0  # of the record that is read

    def forget(self) -> None:
        """Definitions may be others from now on."""
        self._first, self._last = 1, 0

    def rows(self, payload: bytes, commit_ts: Ts) -> list[Run]:
        """Rows of a record in their order, without those that are not wanted."""
        begin = self._enter(payload, commit_ts)
        try:
            return self._runs(payload, begin)
        except UNEXPECTED:
            raise Corruption(_CUT) from None

    def pieces(self, payload: bytes, commit_ts: Ts) -> Iterator[tuple[list[Run], bool]]:
        """The same, of a large record piece by piece; with each whether it is the last one."""
        if len(payload) <= PIECE_BYTES:
            yield self.rows(payload, commit_ts), True
            return
        begin, seq, size = self._enter(payload, commit_ts), 0, len(payload)
        while begin < size:
            try:
                stop, count = _cut(payload, begin)
                self._commit_ts = commit_ts
                runs = self._runs(payload[begin:stop], 0)
            except UNEXPECTED:
                raise Corruption(_CUT) from None
            yield [(seq + first, rows) for first, rows in runs], stop == size
            begin, seq = stop, seq + count

    def _enter(self, payload: bytes, commit_ts: Ts) -> int:
        """Where the events of a record begin."""
        if not self._first <= commit_ts <= self._last:
            self._first, self._last = self._definitions.valid(commit_ts)
            self._walks.clear()
        self._commit_ts = commit_ts
        try:
            return _events(payload)
        except UNEXPECTED:
            raise Corruption(_CUT) from None

    def shape(self, event: bytes, commit_ts: Ts) -> EventShape:
        """How an event is read. Raises `Corruption`."""
        self._commit_ts = commit_ts
        parsed = _Event(event)
        compiled = self._of(parsed)
        by_name = {column.name: column for column in compiled.version.info.columns if column.is_writable}
        columns = tuple(by_name.get(column.name) for column in parsed.shape)
        return EventShape(compiled.version, tuple(compiled.values), columns)

    def _runs(self, b: bytes, i: int) -> list[Run]:
        walks = self._walks
        n, seq = len(b), 0
        rows: list[Row] = []
        runs: list[Run] = [(0, rows)]
        while i < n:
            if b[i] != 10:
                raise Corruption("a record of the archive has something else than events")
            size = b[i + 1]
            if size < 128:
                i += 2
            else:
                size, i = uvarint(b, i + 1)
            end = i + size
            if end > n:
                raise Corruption("an event of the archive is longer than its record")
            name = i + 2 + b[i + 1]
            begin = name + 4 + b[name + 1]
            head = b[i:begin]
            try:
                walk = walks[head]
            except KeyError:
                walk, is_at_head = self._learn(b[i:end])
                if not is_at_head:
                    begin = i
            if walk is not None:
                if not rows and seq:
                    rows = []
                    runs.append((seq, rows))
                rows.append(walk(b, begin, end))
            elif rows:
                rows = []
            seq += 1
            i = end
        return [run for run in runs if run[1]] if len(runs) > 1 or not runs[0][1] else runs

    def _learn(self, event: bytes) -> tuple[Walk | None, bool]:
        """The walk for an event that looks like this one, and whether it begins after the event's head."""
        parsed = _Event(event)
        if parsed.kind not in _KINDS:
            raise Corruption(f"an event of the archive has kind {parsed.kind}")
        walk: Walk | None = None
        if self._wants is None or self._wants(parsed.schema, parsed.table, parsed.kind):
            walk = self._of(parsed).walk
        if event.startswith(parsed.head):
            self._walks[parsed.head] = walk
            return walk, True
        return None if walk is None else lambda b, i, end: self._row(b[i:end]), False

    def _row(self, data: bytes) -> Row:
        event = _Event(data)
        compiled = self._of(event)
        self._walks[event.head] = compiled.walk  # the next one will have this shape too
        return compiled.row(event)

    def _of(self, event: _Event) -> _Compiled:
        schema, table, shape = event.schema, event.table, event.shape
        names = [column.name for column in shape]
        version = self._definitions.find(
            schema, table, self._commit_ts, names, lambda candidate: _fits(candidate, shape)
        )
        if version is None:
            version = self._definitions.guess(schema, table, self._with_signs(event))
        head = event.head
        key = head, version, tuple([column.prefix for column in shape])
        compiled = self._compiled.get(key)
        if compiled is None:
            if len(self._compiled) >= _WALKS_MAX:
                self._compiled.clear()
                self._walks.clear()
            compiled = _Compiled(event, version, self._to_utc, lambda b, a, end: self._row(head + b[a:end]))
            self._compiled[key] = compiled
        return compiled

    def _with_signs(self, event: _Event) -> Shape:
        """A NULL does not say whether its column is unsigned; a row before may have."""
        key = event.schema, event.table, tuple([column.prefix for column in event.shape])
        signs = self._signs.setdefault(key, [None] * len(event.shape))
        for place, column in enumerate(event.shape):
            if column.unsigned is not None:
                signs[place] = signs[place] or column.unsigned
        return tuple(replace(column, unsigned=sign) for column, sign in zip(event.shape, signs, strict=True))


def _fits(version: TableVersion, shape: Shape) -> bool:
    """Whether the columns of that name hold values of the kind that the event has."""
    types = {column.name: column.type for column in version.info.columns}
    return all(column.name in types and fits(types[column.name], column.tp) for column in shape)


def _cut(b: bytes, i: int) -> tuple[int, int]:
    """Where a piece that begins there ends, and how many events it has."""
    stop, count = min(len(b), i + PIECE_BYTES), 0
    while i < stop:
        size, begin = uvarint(b, i + 1)
        i = begin + size
        count += 1
    if i > len(b):
        raise Corruption("an event of the archive is longer than its record")
    return i, count


def _events(payload: bytes) -> int:
    """Where the first event begins; they fill the rest of the payload."""
    if payload.startswith(_DML):
        at = uvarint(payload, 3)[1]
        if payload[at] == 0x1A:
            size, begin = uvarint(payload, at + 1)
            if begin + size == len(payload):
                return begin
    raise Corruption("a record of the archive is not one of rows as writers order it")
