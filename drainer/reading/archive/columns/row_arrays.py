"""Row arrays: rows of one table as upstream wrote them, found by their columns for thousands at once.

In     a definition whose row key is one whole number; where rows of it lie, all of one kind, in rising order
Out    numbers of the keys; images of chosen rows, as `Images` has them
Why    a compiled reader takes rows one by one, a microsecond and more; here a step is taken for thousands,
       and what stands in a row as it stands in an image is copied in one piece
Holds  the result is what `Images` gives. What is not exactly as writers make it is not found here (`None`),
       and read row by row
Tests  tests/spark/effects/test_row_effects.py
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from drainer.reading.archive.columns.pb_arrays import Buffer, Numbers, Spans, event_sizes, numbers_of
from drainer.reading.archive.decode.images import conversion
from drainer.txn import DELETE, INSERT, UPDATE
from tidb_binlog.late_dataclass import dataclass, field
from tidb_binlog.rowcodec.datum import BYTES, DECIMAL, FLOAT, NIL, UVARINT, VARINT
from tidb_binlog.rowcodec.decimals import checked_size
from tidb_binlog.rowcodec.layout import Field
from tidb_binlog.rowcodec.plan import RowReaders
from tidb_binlog.rowcodec.row_error import RowError, UnsupportedTable
from tidb_binlog.rowcodec.varint import put_svarint
from tidb_binlog.table_info import Column, ColumnKind, TableInfo

_FLAGS: Final = {
    ColumnKind.SIGNED: VARINT,
    ColumnKind.YEAR: VARINT,
    ColumnKind.TIME: VARINT,
    ColumnKind.UNSIGNED: UVARINT,
    ColumnKind.BIT: UVARINT,
    ColumnKind.ENUM: UVARINT,
    ColumnKind.SET: UVARINT,
    ColumnKind.DATE: UVARINT,
    ColumnKind.DATETIME: UVARINT,
    ColumnKind.TIMESTAMP: UVARINT,
    ColumnKind.FLOAT: FLOAT,
    ColumnKind.DOUBLE: FLOAT,
    ColumnKind.DECIMAL: DECIMAL,
    ColumnKind.TEXT: BYTES,
    ColumnKind.BINARY: BYTES,
}
_VARINT_MAX: Final = 10
_NULL: Final = pa.scalar(bytes([NIL]), pa.binary())
_NOTHING: Final = pa.scalar(b"", pa.binary())


def _decimal_size(precision: int, scale: int) -> int:
    try:
        return 3 + checked_size(precision, scale)
    except RowError:
        return 0


_DECIMAL_SIZES: Final = np.array([_decimal_size(*divmod(number, 256)) for number in range(128 * 256)])


@dataclass(frozen=True, slots=True)
class _Datums:
    """Of one column: what stands before, where they lie, which rows have none and so NULL. Or, without an
    id before them, whole pairs."""

    head: bytes
    spans: Spans
    absent: Numbers | None = None


_Part: TypeAlias = bytes | _Datums | pa.Array
"""Of images: the same in all of them, a stretch of each row, or values that were made for each row."""


@dataclass(slots=True)
class _Image:
    """One image of every row, put together of `parts`. `key`: datums of the key's column; `end`: where each
    image ends."""

    buffer: Buffer
    key: Spans
    end: Numbers
    parts: list[_Part] = field(default_factory=list)
    _begin: Numbers | None = None  # of the pairs that follow each other up to `end` and are in no part yet

    def pairs(self, begin: Numbers, end: Numbers) -> None:
        """Pairs that stand in all rows."""
        if self._begin is None:
            self._begin = begin
        self.end = end

    def add(self, *parts: _Part) -> None:
        self.close()
        self.parts += parts

    def close(self) -> None:
        if self._begin is not None:
            self.parts.append(_Datums(b"", Spans(self._begin, self.end - self._begin)))
            self._begin = None

    def of(self, chosen: Numbers) -> pa.Array:
        """The images of these rows, in rising order."""
        joined: list[Any] = []
        for part in self.parts:
            if isinstance(part, bytes):
                joined.append(pa.scalar(part, pa.binary()))
            elif isinstance(part, _Datums):
                absent = None if part.absent is None else part.absent[chosen]
                cut = self.buffer.cut(part.spans.begin[chosen], part.spans.size[chosen], absent)
                joined += [cut] if absent is None else [pc.fill_null(cut, _NULL)]
            else:
                joined.append(part.take(pa.array(chosen)))
        return joined[0] if len(joined) == 1 else pc.binary_join_element_wise(*joined, _NOTHING)


@dataclass(frozen=True, slots=True)
class RowSpans:
    """Where rows lie."""

    buffer: Buffer
    begin: Numbers
    end: Numbers

    @classmethod
    def joined(cls, rows: Sequence[bytes]) -> RowSpans:
        """Rows put one after the other."""
        sizes = np.fromiter(map(len, rows), np.int64, len(rows))
        ends = np.cumsum(sizes)
        return cls(Buffer(rows), ends - sizes, ends)

    def where(self, chosen: Numbers) -> RowSpans:
        """Choose some of them."""
        return RowSpans(self.buffer, self.begin[chosen], self.end[chosen])


@dataclass(frozen=True, slots=True)
class KindRows:
    """Rows of one kind. `keys`: as 64 bits."""

    keys: Numbers
    image: _Image

    def images(self, chosen: Numbers) -> pa.Array:
        """The new or only images of these rows, in rising order."""
        return self.image.of(chosen)


class RowArrays:
    """Reads rows of one definition by its key's column. Raises `UnsupportedTable`."""

    def __init__(self, info: TableInfo, key: Column) -> None:
        self._layout = layout = RowReaders(info, conversion).layout
        self._key = key
        self.unsigned = _FLAGS.get(key.type.kind) == UVARINT
        if info.is_common_handle or any(column.type.kind not in _FLAGS for column in layout.columns):
            raise UnsupportedTable(f"rows of table {info.name} are read one by one")
        self._handle = layout.handle[0]
        if info.pk_is_handle and self._handle.index < 0:
            raise UnsupportedTable(f"the handle of table {info.name} is no column that is written")

    def read(self, kind: int, rows: RowSpans) -> KindRows | None:
        """Rows of one kind; None if they are to be read one by one."""
        buffer, at, ends, layout = rows.buffer, rows.begin, rows.end, self._layout
        if kind == INSERT:
            sizes = _sizes(buffer, at, ends, VARINT)
            if sizes is None or (sizes < 2).any():
                return None
            handle = Spans(at, sizes)
            body = at + sizes
            if (body >= ends).any():
                return None
            stop = np.where((buffer.bytes[body] == NIL) & (body + 1 == ends), body, ends)  # no columns at all
            new = self._image(buffer, body, stop, layout.insert, handle)
            return None if new is None or (new.end != stop).any() else self._rows(new, handle)
        if kind == DELETE:
            new = self._image(buffer, at, ends, layout.delete)
            return None if new is None or (new.end != ends).any() else self._rows(new)
        assert kind == UPDATE
        old = self._image(buffer, at, ends, layout.half)
        new = self._image(buffer, old.end, ends, layout.half) if old is not None else None
        if old is None or new is None or (new.end != ends).any():
            return None
        before, after = self._rows(old), self._rows(new)
        same = before is not None and after is not None and (before.keys == after.keys).all()
        return after if same else None  # a key moves

    def _rows(self, image: _Image, handle: Spans | None = None) -> KindRows | None:
        """`handle`: of an INSERT, where it is the key: written with a sign whatever it is."""
        by_handle = handle is not None and self._layout.info.pk_is_handle
        spans = handle if handle is not None and by_handle else image.key
        keys = numbers_of(image.buffer, spans, unsigned=self.unsigned and not by_handle)
        return None if keys is None else KindRows(keys, image)

    def _image(
        self,
        buffer: Buffer,
        at: Numbers,
        ends: Numbers,
        fields: Sequence[Field],
        handle: Spans | None = None,
    ) -> _Image | None:
        nothing = np.zeros_like(at)
        image = _Image(buffer, Spans(nothing, nothing), at)
        handle_at = self._handle.index if handle is not None else -1  # until it is in a part
        for pair in fields:
            if 0 <= handle_at < pair.index:
                image.add(*self._handle_parts(buffer, handle))
                handle_at = -1
            head = b"\x08" + put_svarint(pair.id)
            here = buffer.holds(at, head) & (at < ends)
            if not here.any() and pair.optional:
                if pair.index >= 0:
                    image.add(head + b"\x00")
                continue
            whole = bool(here.all())
            if not whole and not pair.optional:
                return None
            begin = np.minimum(at + len(head), ends)
            sizes = _sizes(
                buffer, begin, ends, _FLAGS[pair.column.type.kind] if pair.column else VARINT, here
            )
            if sizes is None:
                return None
            spans = Spans(begin, sizes)
            after = np.where(here, begin + sizes, at)
            if pair.index < 0:
                image.close()
            elif whole:
                image.pairs(at, after)
            else:
                image.add(head, _Datums(head, spans, ~here))
            if pair.column is not None and pair.column.id == self._key.id:
                image.key = spans
            at = image.end = after
        if handle_at >= 0:
            image.add(*self._handle_parts(buffer, handle))
        image.close()
        return image

    def _handle_parts(self, buffer: Buffer, handle: Spans | None) -> Iterator[_Part]:
        assert handle is not None
        column = self._layout.columns[self._handle.index]
        yield b"\x08" + put_svarint(column.id)
        if _FLAGS[column.type.kind] == VARINT:
            yield _Datums(b"", handle)
            return
        bits = numbers_of(buffer, handle, unsigned=False)
        assert bits is not None
        yield _unsigned_datums(bits)


def _sizes(
    buffer: Buffer, at: Numbers, ends: Numbers, flag: int, here: Numbers | None = None
) -> Numbers | None:
    """How long the datums are that begin there, of this form or NULL; where none is, anything."""
    first = buffer.bytes[at]
    null = first == NIL
    if here is not None:
        null = null | ~here
    if not (null | (first == flag)).all():
        return None
    wrong: Any = False
    if flag in (VARINT, UVARINT):
        sizes = np.full(len(at), 2)
        more = ~null & (buffer.bytes[at + 1] > 127)
        while more.any():
            sizes += more
            more &= buffer.bytes[np.minimum(at + sizes - 1, ends)] > 127
            if sizes.max() > _VARINT_MAX + 1:
                return None
        wrong = (sizes > _VARINT_MAX) & (buffer.bytes[np.minimum(at + _VARINT_MAX, ends)] > 1)
    elif flag == BYTES:
        said, starts, longer = event_sizes(buffer, at)
        sizes, wrong = starts + (said >> 1) - at, longer | ((said & 1) != 0)
    elif flag == DECIMAL:
        sizes = _DECIMAL_SIZES[np.minimum(buffer.at(at + 1), 127) * 256 + buffer.at(at + 2)]
        wrong = sizes == 0
    else:
        sizes = np.full(len(at), 9)
    sizes = np.where(null, 1, sizes)
    if here is None:
        return None if (~null & wrong).any() or (at + sizes > ends).any() else sizes
    return None if (~null & wrong).any() or (here & (at + sizes > ends)).any() else sizes


def _unsigned_datums(bits: Numbers) -> pa.Array:
    """Each number as a datum without a sign."""
    octets = np.zeros((len(bits), _VARINT_MAX + 1), np.uint8)
    octets[:, 0] = UVARINT
    used = np.ones(octets.shape, np.bool_)
    for place in range(_VARINT_MAX):
        rest = bits >> np.uint64(7 * place)
        octets[:, place + 1] = (rest & np.uint64(127)) | np.where(rest > 127, np.uint64(128), np.uint64(0))
        if place:
            used[:, place + 1] = rest > 0
    offsets = np.concatenate((np.zeros(1, np.int32), np.cumsum(used.sum(axis=1), dtype=np.int32)))
    flat = octets[used].tobytes()
    return pa.Array.from_buffers(pa.binary(), len(bits), [None, pa.py_buffer(offsets), pa.py_buffer(flat)])
