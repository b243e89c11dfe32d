"""pb values: how a walk takes the value of one column out of an event and makes the datum of an image of it.

In     a column's definition, what stands before its value
Out    lines of a generated walk, and the same the slow way
Tests  tests/drainer/reading/archive/decode/test_pb_walk.py

    type                                   in an event            in an image
    integers, YEAR, ENUM, SET, BIT         the datum              the same
    FLOAT, DOUBLE, strings                 the datum              the same
    DECIMAL, JSON, dates and times         a datum of text        its own datum

An element of an event is `22 size prefix 22 size datum`, in an UPDATE with `2a size datum` after it.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from tidb_binlog.rowcodec.datum import BYTES, FLOAT, NULL_DATUM, UVARINT, VARINT, bytes_span, skip
from tidb_binlog.rowcodec.decimals import PRECISION_MAX, put_decimal
from tidb_binlog.rowcodec.json_encode import put_document
from tidb_binlog.rowcodec.put import put_int
from tidb_binlog.rowcodec.row_error import RowError
from tidb_binlog.rowcodec.source import Source
from tidb_binlog.rowcodec.temporal import pack_datetime, parse_duration
from tidb_binlog.rowcodec.time_caches import CACHE_MAX
from tidb_binlog.rowcodec.varint import put_svarint, put_uvarint
from tidb_binlog.table_info import (
    DATE_AND_TIME_KINDS,
    DOUBLE,
    INTEGER_TYPES,
    JSON,
    STRING_KINDS,
    STRING_TYPES,
    TIME_TYPES,
    YEAR,
    Column,
    ColumnKind,
    FieldType,
)
from tidb_binlog.table_info import FLOAT as FLOAT_TYPE

_SHORT_MAX: Final = 11  # bytes of the longest datum that is no string
_ONE_BYTE: Final = 127
_HEADS_MAX: Final = 1 << 14
_FAMILIES: Final = (
    INTEGER_TYPES - {YEAR},
    STRING_TYPES,
    TIME_TYPES,
    frozenset({FLOAT_TYPE, DOUBLE}),
)


def fits(field_type: FieldType, tp: int) -> bool:
    """Whether a column of this type holds what an event calls `tp`."""
    mine = JSON if field_type.array else field_type.tp
    return mine == tp or any(mine in family and tp in family for family in _FAMILIES)


class _Heads(dict[int, bytes]):
    """What stands between the sizes: prefix, tag and size of the datum, its first bytes. By its size."""

    def __init__(self, make: Callable[[int], bytes]) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, size: int) -> bytes:
        made = self._make(size)
        if len(self) < _HEADS_MAX:
            self[size] = made
        return made


class _Made(dict[bytes, bytes]):
    """Datums made from datums of text; the latest are kept."""

    def __init__(self, make: Callable[[str], bytes]) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, datum: bytes) -> bytes:
        made = NULL_DATUM if datum == NULL_DATUM else self._make(_content(datum).decode())
        if len(self) >= CACHE_MAX:
            self.clear()
        if len(datum) <= _ONE_BYTE:
            self[datum] = made
        return made


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
    **dict.fromkeys(DATE_AND_TIME_KINDS, lambda field_type: _shared(_time_of)),
    ColumnKind.TIME: lambda field_type: _shared(_duration_of),
}
"""Kinds whose datums are another in an event."""
_FLAGS: Final = {
    **dict.fromkeys(STRING_KINDS, BYTES),
    **dict.fromkeys((ColumnKind.FLOAT, ColumnKind.DOUBLE), FLOAT),
    **dict.fromkeys((ColumnKind.UNSIGNED, ColumnKind.BIT, ColumnKind.ENUM, ColumnKind.SET), UVARINT),
}


@dataclass(frozen=True, slots=True)
class PbValue:
    """`flag`: of a datum that is the same here and there. `made`: datums of other values, by their text's.

    `is_local`: the text is a time in the zone of the drainer that wrote it."""

    id: bytes
    prefix: bytes
    flag: int
    made: _Made | None
    is_local: bool = False

    def image_datum(self, datum: bytes) -> bytes:
        """The slow way; `RowError` and the like for what is none."""
        if self.made is not None:
            return self.made[datum]
        same = datum[0] == self.flag or datum == NULL_DATUM or {datum[0], self.flag} == {VARINT, UVARINT}
        if not same or skip(datum, 0) != len(datum):
            raise RowError(f"datum flag {datum[0]:#04x}")
        return datum

    def _head(self, size: int) -> bytes:
        """From the prefix to what is known of a datum of this size."""
        head = self.prefix + b"\x22" + put_uvarint(size)
        return head if self.made is not None else head + self._start(size)

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
        return head if self.made is not None else head + self._start(size)

    @property
    def _is_short(self) -> bool:
        """Whether all sizes of an element are one byte."""
        return self.made is None and self.flag != BYTES and len(self.prefix) + 2 * _SHORT_MAX + 4 <= _ONE_BYTE

    def _locals(self, source: Source, place: int) -> None:
        source.names |= {f"HEAD{place}": _Heads(self._head), f"NEXT{place}": _Heads(self._changed)}
        if self.made is not None:
            source.names[f"MADE{place}"] = self.made

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
        return f"b[{start}:{end}]" if self.made is None else f"MADE{place}[b[{start}:{end}]]"


def pb_value(column: Column, prefix: bytes, to_utc: Callable[[str], str] | None = None) -> PbValue:
    """`prefix` is that of the events: names and types there, not in the definition. `to_utc`: for times that
    are not in UTC there."""
    kind = column.type.kind
    maker = _MAKERS.get(kind)
    made = None if maker is None else maker(column.type)
    is_local = to_utc is not None and kind in DATE_AND_TIME_KINDS
    if to_utc is not None and is_local:
        made = _Made(lambda text: _time_of(to_utc(text)))
    flag = _FLAGS.get(kind, VARINT)
    return PbValue(b"\x08" + put_svarint(column.id), prefix, flag, made, is_local)
