"""pb arrays: the rows of one table in an archive's records as arrays of typed columns, thousands at once.

Out    of the table's events their record, number, kind and arrays of values before and after
Why    a walk takes events one by one, half a microsecond a value; here a step is taken for thousands
Holds  the result is what the walk and the readers of images give. What is not exactly as writers make it is
       not found here (`None`), and read row by row
Tests  tests/drainer/reading/archive/test_typed_values.py

Positions are in a buffer with the payloads one after another. It is followed by zeros, so that eight bytes
can be loaded anywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from drainer.changes.values import element_text
from drainer.formats.obinlog.column import delimited
from drainer.reading.archive.columns.column_types import Family, family_of
from drainer.reading.archive.decode.pb_walk import EventShape, PbWalker
from drainer.reading.archive.decode.records import Piece
from drainer.txn import DELETE, INSERT, UPDATE, TableVersion
from tidb_binlog.late_dataclass import dataclass
from tidb_binlog.rowcodec.datum import BYTES
from tidb_binlog.rowcodec.temporal import parse_duration
from tidb_binlog.rowcodec.varint import uvarint
from tidb_binlog.table_info import Column, ColumnKind, FieldType
from tidb_binlog.tso import Ts

Numbers: TypeAlias = np.ndarray[Any, np.dtype[Any]]

_EVENT: Final = 0x0A
_ELEMENT: Final = 0x22
_CHANGED: Final = 0x2A
_PADDING: Final = bytes(1024)  # more than what stands before a value
_FEW: Final = 16
"""Below so many records with events left they are followed one by one."""


class Buffer:
    """Bytes that are read by position."""

    def __init__(self, parts: Sequence[bytes]) -> None:
        self.data = b"".join([*parts, _PADDING])
        self.size = len(self.data) - len(_PADDING)
        self.bytes: Numbers = np.frombuffer(self.data, np.uint8)
        count = len(self.data) - 7
        # Eight bytes from any position on, as one number.
        self.words: Numbers = np.ndarray((count,), "<u8", self.data, strides=(1,))

    def at(self, places: Numbers) -> Numbers:
        """Get the bytes at each place, as numbers."""
        return self.bytes[places].astype(np.int64)

    def holds(self, places: Numbers, text: bytes) -> Numbers:
        """Whether the text lies at each place."""
        held = np.ones(len(places), np.bool_)
        begin = 0
        while len(text) - begin >= 8:
            held &= self.words[places + begin] == int.from_bytes(text[begin : begin + 8], "little")
            begin += 8
        rest = text[begin:]
        if rest:
            mask = np.uint64((1 << 8 * len(rest)) - 1)
            held &= self.words[places + begin] & mask == int.from_bytes(rest, "little")
        return held

    def cut(self, begins: Numbers, sizes: Numbers, absent: Numbers | None = None) -> pa.Array:
        """Stretches, one after the other, as binary values, copied once: every second of an array of them
        and of what lies between them."""
        ends = begins + sizes
        if absent is not None:
            ends = np.where(absent, 0, ends)
        after = np.maximum.accumulate(ends) if len(ends) else ends
        before = np.concatenate((np.zeros(1, np.int64), after[:-1])) if len(ends) else ends
        offsets = np.empty(2 * len(begins), np.int32)
        offsets[0::2] = begins if absent is None else np.where(absent, before, begins)
        offsets[1::2] = ends if absent is None else np.where(absent, before, ends)
        count = max(len(offsets) - 1, 0)
        if not count:
            return pa.array([], pa.binary())
        whole = pa.Array.from_buffers(
            pa.binary(), count, [None, pa.py_buffer(offsets), pa.py_buffer(self.data)]
        )
        return whole.take(pa.array(np.arange(0, count, 2), mask=absent))

    def sizes(self, places: Numbers) -> tuple[Numbers, Numbers, Numbers]:
        """Sizes of one or two bytes, where they end, which of them are longer."""
        first = self.at(places)
        second = self.at(places + 1)
        long = first > 127
        sizes = np.where(long, first - 128 + (second << 7), first)
        return sizes, places + 1 + long, long & (second > 127)


@dataclass(frozen=True, slots=True)
class Events:
    """One entry an event: number of its record, place among its rows, begin and end, the tag before it."""

    record: Numbers
    seq: Numbers
    begin: Numbers
    end: Numbers
    tag: Numbers

    def where(self, chosen: Numbers) -> Events:
        """Choose some of them."""
        return Events(*(each[chosen] for each in (self.record, self.seq, self.begin, self.end, self.tag)))


def events_of(pieces: Sequence[Piece]) -> tuple[Buffer, Events | None]:
    """The events of these records in their order, if they fill them, and the buffer that has them."""
    buffer = Buffer([piece.payload for piece in pieces])
    sizes = np.array([len(piece.payload) for piece in pieces], np.int64)
    ends = np.cumsum(sizes)
    begins = ends - sizes + np.array([piece.begin for piece in pieces], np.int64)
    chain = followed(buffer, begins, ends, bytes((_EVENT,)))
    return buffer, chain[0] if chain is not None and (chain[1] == ends).all() else None


def followed(buffer: Buffer, begins: Numbers, ends: Numbers, tags: bytes) -> tuple[Events, Numbers] | None:
    """What has one of these tags and a size, from the beginning of each stretch on, and where that ends."""
    is_one = np.isin(np.arange(256), list(tags))
    none = np.zeros(0, np.int64)
    runs: list[tuple[Numbers, ...]] = [(none, none, none, none, none)]
    live = np.flatnonzero(begins < ends)
    at, seq = begins.copy(), 0
    while len(live) >= _FEW:
        live = live[is_one[buffer.bytes[at[live]]]]
        places = at[live]
        sizes, starts, longer = event_sizes(buffer, places)
        stops = starts + sizes
        if longer.any() or (stops > ends[live]).any():
            return None
        runs.append((live, np.full(len(live), seq), starts, stops, buffer.bytes[places]))
        at[live] = stops
        live = live[stops < ends[live]]
        seq += 1
    for number in live.tolist():
        some = _one_by_one(buffer.data, int(at[number]), int(ends[number]), tags)
        if some is None:
            return None
        starts, stops, tag = some
        count = len(starts)
        runs.append((np.full(count, number), np.arange(seq, seq + count), starts, stops, tag))
        at[number] = stops[-1] if count else at[number]
    record, place, begin, end, tag = (np.concatenate(parts) for parts in zip(*runs, strict=True))
    order = np.argsort(begin, kind="stable")
    return Events(record, place, begin, end, tag).where(order), at


def event_sizes(buffer: Buffer, places: Numbers) -> tuple[Numbers, Numbers, Numbers]:
    """Sizes of up to four bytes after the byte at each place, where they end, which of them are longer."""
    sizes, starts, longer = buffer.sizes(places + 1)
    for bits in (14, 21):
        if not longer.any():
            break
        octets = buffer.at(starts)
        sizes = np.where(longer, (sizes & (1 << bits) - 1) + (octets << bits), sizes)
        starts = starts + longer
        longer = longer & (octets > 127)
    return sizes, starts, longer


def _one_by_one(b: bytes, i: int, end: int, tags: bytes) -> tuple[Numbers, Numbers, Numbers] | None:
    starts, stops, octets = [], [], []
    while i < end and b[i] in tags:
        octets.append(b[i])
        size, shift, i = 0, 0, i + 1
        while True:
            size |= (b[i] & 127) << shift
            shift += 7
            i += 1
            if b[i - 1] < 128:
                break
            if shift > 28:
                return None
        starts.append(i)
        i += size
        stops.append(i)
    if i > end:
        return None
    return np.array(starts, np.int64), np.array(stops, np.int64), np.array(octets, np.int64)


@dataclass(frozen=True, slots=True)
class Spans:
    """Datums of a column, by event: where they begin, how many bytes they have."""

    begin: Numbers
    size: Numbers


@dataclass(frozen=True, slots=True)
class Element:
    """What is known of a column's elements. `flag`: of its datums, 0 where they are text made from values.

    `prefix` None: the column is passed over.
    """

    prefix: bytes | None
    flag: int


def elements(
    buffer: Buffer, begins: Numbers, ends: Numbers, shape: Sequence[Element], *, paired: bool
) -> list[tuple[Spans, Spans]] | None:
    """(old, new) datums of every column; without pairs both are the same."""
    at, right = begins, np.ones(len(begins), np.bool_)
    datums = []
    for element in shape:
        right &= buffer.bytes[at] == _ELEMENT
        sizes, inner, longer = buffer.sizes(at + 1)
        right &= ~longer
        at = np.minimum(inner + sizes, ends)
        right &= at == inner + sizes
        if element.prefix is None:
            nothing = Spans(inner, np.zeros_like(inner))
            datums.append((nothing, nothing))
            continue
        right &= buffer.holds(inner, element.prefix + b"\x22")
        old, right = _datum(buffer, inner + len(element.prefix) + 1, at, element.flag, right)
        new, after = old, old.begin + old.size
        if paired:
            right &= buffer.bytes[after] == _CHANGED
            new, right = _datum(buffer, after + 1, at, element.flag, right)
            after = new.begin + new.size
        right &= after == at
        datums.append((old, new))
    right &= at == ends
    return datums if right.all() else None


def _datum(
    buffer: Buffer, places: Numbers, ends: Numbers, flag: int, right: Numbers
) -> tuple[Spans, Numbers]:
    """The datum after its size, which lies at `places`."""
    sizes, begins, longer = buffer.sizes(np.minimum(places, ends))
    right = right & ~longer & (sizes > 0) & (begins + sizes <= ends)
    begins = np.minimum(begins, ends)
    sizes = np.where(right, sizes, 0)
    first = buffer.bytes[begins]
    is_null = (sizes == 1) & (first == 0)
    right &= is_null | (first == (flag or BYTES))
    if flag in (0, BYTES):
        right &= is_null | _is_whole(buffer, begins, sizes)
    return Spans(begins, sizes), right


def content(spans: Spans) -> tuple[Numbers, Numbers]:
    """Where the contents of strings begin, how long they are; 0 and below for what is no string."""
    heads = 2 + (spans.size > 65) + (spans.size > 8194)
    return spans.begin + heads, spans.size - heads


def _is_whole(buffer: Buffer, begins: Numbers, sizes: Numbers) -> Numbers:
    """Whether strings have the length that they say."""
    heads = 2 + (sizes > 65) + (sizes > 8194)
    zigzag = (sizes - heads) << 1
    said, ends, longer = buffer.sizes(begins + 1)
    whole: Numbers = ~longer & (said == zigzag) & (ends == begins + heads)
    return whole


_KIND: Final = b"\x18"
_OLD: Final = (UPDATE, DELETE)
_NEW: Final = (INSERT, UPDATE)
BEFORE: Final = "before"
AFTER: Final = "after"


@dataclass(frozen=True, slots=True)
class TableRows:
    """Rows in their order; `columns`: arrays by side, in the order in which they were wanted."""

    record: Numbers
    seq: Numbers
    kind: Numbers
    columns: Mapping[str, list[pa.Array]]

    @staticmethod
    def without(side: str) -> int:
        """The kind of row that has no image on this side."""
        return INSERT if side == BEFORE else DELETE


_Types = dict[str, dict[int, tuple[Column, bool]]]
"""By side and place of a column: the one that it is in the events, and whether it has local times."""


@dataclass(eq=False)
class PbTable:
    """Reads the rows of one table.

    `newest`: the version whose columns are `columns`, by side, each with its type in Arrow. `is_one` says
    whether the table has one definition from one commit_ts to another. `time_zone`: of what the walker says
    is local time.
    """

    walker: PbWalker
    newest: TableVersion
    columns: Mapping[str, Sequence[tuple[Column, pa.DataType]]]
    wants: Callable[[str, str], bool]
    is_one: Callable[[Ts, Ts], bool]
    kinds: Sequence[int]
    time_zone: str = ""

    @cached_property
    def _names(self) -> bytes:
        return names_of(*self.newest.downstream)

    def read(self, pieces: Sequence[Piece]) -> TableRows | None:
        """Read the rows of the table in these records; None if they are to be read one by one."""
        if not pieces or not self.is_one(pieces[0].commit_ts, pieces[-1].commit_ts):
            return None
        buffer, selected = events_of(pieces)
        if selected is None:
            return None
        ours = buffer.holds(selected.begin, self._names)
        if not ours.all() and self._is_in(buffer, selected.where(~ours)):
            return None
        selected = selected.where(ours)
        kinds = buffer.at(selected.begin + len(self._names))
        if len(self.kinds) < 3:
            chosen = np.isin(kinds, self.kinds)
            selected, kinds = selected.where(chosen), kinds[chosen]
        columns = self._columns(buffer, selected, kinds, pieces)
        return None if columns is None else TableRows(selected.record, selected.seq, kinds, columns)

    def _is_in(self, buffer: Buffer, others: Events) -> bool:
        """Whether the table is among other events, under a name that is written in another way."""
        while len(others.begin):
            names = names_at(buffer.data, int(others.begin[0]))
            if names is None or self.wants(*names):
                return True
            same = buffer.holds(others.begin, names_of(*names))
            if not same.any():
                return True
            others = others.where(~same)
        return False

    def _columns(
        self, buffer: Buffer, selected: Events, kinds: Numbers, pieces: Sequence[Piece]
    ) -> Mapping[str, list[pa.Array]] | None:
        count = len(selected.begin)
        spans = {
            side: [Spans(np.zeros(count, np.int64), np.zeros(count, np.int64)) for _ in targets]
            for side, targets in self.columns.items()
        }
        types: _Types = {side: {} for side in self.columns}
        for kind in (INSERT, UPDATE, DELETE):
            chosen = np.flatnonzero(kinds == kind)
            if len(chosen) and not self._fill(
                buffer, selected.where(chosen), chosen, kind, spans, types, pieces
            ):
                return None
        arrays: dict[str, list[pa.Array]] = {}
        for side, targets in self.columns.items():
            arrays[side] = []
            for place, (column, arrow) in enumerate(targets):
                source, is_local = types[side].get(place) or (column, False)
                zone = self.time_zone if is_local else ""
                values = array(buffer, spans[side][place], source.type, arrow, zone)
                if values is None:
                    return None
                arrays[side].append(values)
        return arrays

    def _fill(
        self,
        buffer: Buffer,
        some: Events,
        chosen: Numbers,
        kind: int,
        spans: Mapping[str, list[Spans]],
        types: _Types,
        pieces: Sequence[Piece],
    ) -> bool:
        """Enter where the values of one kind of events lie."""
        first = pieces[int(some.record[0])]
        shape = self.walker.shape(buffer.data[int(some.begin[0]) : int(some.end[0])], first.commit_ts)
        begins = some.begin + len(self._names) + 1
        datums = elements(buffer, begins, some.end, shape_of(shape), paired=kind == UPDATE)
        if datums is None:
            return False
        by_name = not shape.version.id or shape.version.id != self.newest.id
        for side, at, kinds in ((BEFORE, 0, _OLD), (AFTER, 1, _NEW)):
            if kind not in kinds or side not in self.columns:
                continue
            for place, (column, _) in enumerate(self.columns[side]):
                source = _source(shape, column, by_name=by_name)
                if source is None:
                    return False
                mine = _read_as(shape, source)
                if types[side].setdefault(place, mine) != mine:
                    return False
                span = datums[source][at]
                spans[side][place].begin[chosen] = span.begin
                spans[side][place].size[chosen] = span.size
        return True


def together(pieces: Iterable[Piece], size_max: int) -> Iterator[list[Piece]]:
    """Records in groups of about that many bytes."""
    some: list[Piece] = []
    size = 0
    for piece in pieces:
        some.append(piece)
        size += len(piece.payload)
        if size >= size_max:
            yield some
            some, size = [], 0
    if some:
        yield some


def shape_of(shape: EventShape) -> list[Element]:
    """Say how the elements of events of a shape begin."""
    return [
        Element(None, 0)
        if value is None
        else Element(value.prefix, 0 if value.datums is not None else value.flag)
        for value in shape.values
    ]


def _source(shape: EventShape, column: Column, *, by_name: bool) -> int | None:
    """Place of a column in the events; None if rows must be read one by one."""
    for place, mine in enumerate(shape.columns):
        if mine is not None and (mine.name == column.name if by_name else mine.id == column.id):
            return place if family_of(mine.type) is family_of(column.type) else None
    return None


def _read_as(shape: EventShape, place: int) -> tuple[Column, bool]:
    column, value = shape.columns[place], shape.values[place]
    assert column is not None
    return column, value is not None and value.is_local


def names_of(schema: str, table: str) -> bytes:
    """How an event of the table begins, up to its kind."""
    return delimited(b"\n", schema.encode()) + delimited(b"\x12", table.encode()) + _KIND


def names_at(b: bytes, i: int) -> tuple[str, str] | None:
    """What an event calls its table, if it begins as writers begin it."""
    if b[i] != 10:
        return None
    size, begin = uvarint(b, i + 1)
    schema, i = b[begin : begin + size], begin + size
    if b[i] != 0x12:
        return None
    size, begin = uvarint(b, i + 1)
    return schema.decode("utf-8", "replace"), b[begin : begin + size].decode("utf-8", "replace")


_GROUP: Final = np.uint64(127)
_MORE: Final = 0x8080808080808080
_CONTINUED: Final = np.array([_MORE & (1 << 8 * max(size - 1, 0)) - 1 for size in range(10)], np.uint64)
"""Top bits of the first eight bytes of a varint, by its size; from nine on all are set."""
_KEPT: Final = np.array([(1 << 8 * min(size, 8)) - 1 for size in range(10)], np.uint64)


def array(
    buffer: Buffer, spans: Spans, field_type: FieldType, arrow: pa.DataType, time_zone: str = ""
) -> pa.Array | None:
    """None also for what the type cannot hold. `time_zone`: of times that are not in UTC."""
    absent = spans.size < 2  # no image, or NULL
    try:
        values = _made(buffer, spans, absent, field_type, arrow, time_zone)
        return values if values is None or values.type == arrow else values.cast(arrow)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, ValueError):
        return None


def _made(
    buffer: Buffer, spans: Spans, absent: Numbers, field_type: FieldType, arrow: pa.DataType, time_zone: str
) -> pa.Array | None:
    family = family_of(field_type)
    if family is Family.INTEGER:
        bits = _varints(buffer, spans, absent)
        if bits is None:
            return None
        if field_type.kind in (ColumnKind.BIT, ColumnKind.UNSIGNED):
            return pa.array(bits, pa.uint64(), mask=absent)
        return pa.array(_signed(bits), pa.int64(), mask=absent)
    if family is Family.FLOATING:
        return pa.array(_doubles(buffer, spans, field_type), mask=absent)
    if family is Family.NAMED:
        bits = _varints(buffer, spans, absent)
        return None if bits is None else _names(bits, absent, field_type)
    raw = _strings(buffer, spans, absent)
    if family is Family.BINARY:
        return raw
    text = raw.cast(pa.string())
    if family is Family.TIME:
        return _durations(text)
    if family is Family.DATETIME and pa.types.is_timestamp(arrow):
        times = text.cast(pa.timestamp("us"))
        # ArrowInvalid in the hour that a clock shows twice.
        return (pc.assume_timezone(times, time_zone) if time_zone else times).cast(arrow)
    return None if time_zone else text


def numbers_of(buffer: Buffer, spans: Spans, *, unsigned: bool) -> Numbers | None:
    """The 64 bits of every whole number; None if one is NULL, or not as long as its datum."""
    absent = spans.size < 2
    bits = None if absent.any() else _varints(buffer, spans, absent)
    return bits if bits is None or unsigned else _signed(bits).view(np.uint64)


def _varints(buffer: Buffer, spans: Spans, absent: Numbers) -> Numbers | None:
    """64 bits of every number; None if one is not as long as its datum."""
    sizes = np.where(absent, 1, spans.size - 1)
    begins = np.where(absent, 0, spans.begin + 1)
    octets = np.minimum(sizes, 9)
    low = buffer.words[begins] & _KEPT[octets]
    if (((low & np.uint64(_MORE)) != _CONTINUED[octets]) & ~absent).any():
        return None
    value = low & _GROUP
    for group in range(1, min(int(sizes.max(initial=1)), 8)):
        value |= (low >> np.uint64(group)) & (_GROUP << np.uint64(7 * group))
    if (sizes > 8).any():
        return _with_high(buffer, value, begins, sizes)
    return value


def _with_high(buffer: Buffer, value: Numbers, begins: Numbers, sizes: Numbers) -> Numbers | None:
    """With the ninth and tenth byte of those that have them."""
    ninth = np.where(sizes > 8, buffer.bytes[begins + 8], 0).astype(np.uint64)
    tenth = np.where(sizes > 9, buffer.bytes[begins + 9], 0).astype(np.uint64)
    wrong = (sizes > 10) | (tenth > 1) | ((sizes == 9) & (ninth > 127)) | ((sizes == 10) & (ninth < 128))
    if wrong.any():
        return None
    whole: Numbers = value | (ninth & _GROUP) << np.uint64(56) | tenth << np.uint64(63)
    return whole


def _signed(bits: Numbers) -> Numbers:
    return (bits >> np.uint64(1)).astype(np.int64) ^ -(bits & np.uint64(1)).astype(np.int64)


def _doubles(buffer: Buffer, spans: Spans, field_type: FieldType) -> Numbers:
    """Comparable forms back to numbers. ValueError for what is none."""
    places = np.where(spans.size == 9, spans.begin + 1, 0)
    bits = buffer.words[places].byteswap()
    negative = bits >> np.uint64(63) == 0
    bits = np.where(negative, ~bits, bits ^ np.uint64(1 << 63))
    values = np.where(spans.size == 9, bits.view(np.float64), 0)
    if field_type.kind is ColumnKind.FLOAT:
        with np.errstate(over="ignore"):
            values = values.astype(np.float32)
    if not np.isfinite(values).all() or (spans.size[spans.size > 1] != 9).any():
        raise ValueError("not a finite number")
    return values


def _names(numbers: Numbers, absent: Numbers, field_type: FieldType) -> pa.Array | None:
    """Names of elements; None if a number has no name."""
    unique, places = np.unique(np.where(absent, np.uint64(0), numbers), return_inverse=True)
    names = [element_text(field_type, int(number)) for number in unique]
    used = pa.array(places.astype(np.int32), mask=absent)
    if any(name is None and (places[~absent] == at).any() for at, name in enumerate(names)):
        return None
    return pa.array(names, pa.string()).take(used)


def _strings(buffer: Buffer, spans: Spans, absent: Numbers) -> pa.Array:
    return buffer.cut(*content(spans), absent)


def _durations(text: pa.Array) -> pa.Array:
    """TIME, of which the same values come again."""
    coded = text.dictionary_encode()
    values: list[Any] = [parse_duration(value) // 1000 for value in coded.dictionary.to_pylist()]
    return pa.array(values, pa.int64()).cast(pa.duration("us")).take(coded.indices)
