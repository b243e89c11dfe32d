"""pb arrays: datums of an archive's events become Arrow arrays of a typed column, thousands at once.

In     a buffer, where the datums of a column lie in it (size 0: no row image there), the column's type
Out    an array of the type that `column_types` gives; None where a value must be read by itself
Tests  tests/drainer/reading/archive/test_typed_values.py
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from drainer.reading.archive.columns.column_types import Family, family_of
from drainer.reading.archive.columns.json_text import name_of
from drainer.reading.archive.columns.pb_spans import Buffer, Numbers, Spans, content
from tidb_binlog.rowcodec.temporal import parse_duration
from tidb_binlog.table_info import ColumnKind, FieldType

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
        made = _made(buffer, spans, absent, field_type, arrow, time_zone)
        return made if made is None or made.type == arrow else made.cast(arrow)
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
    known = np.minimum(sizes, 9)
    low = buffer.words[begins] & _KEPT[known]
    if (((low & np.uint64(_MORE)) != _CONTINUED[known]) & ~absent).any():
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
    found: Numbers = value | (ninth & _GROUP) << np.uint64(56) | tenth << np.uint64(63)
    return found


def _signed(bits: Numbers) -> Numbers:
    return (bits >> np.uint64(1)).astype(np.int64) ^ -(bits & np.uint64(1)).astype(np.int64)


def _doubles(buffer: Buffer, spans: Spans, field_type: FieldType) -> Numbers:
    """Comparable forms back to numbers. ValueError for what is none."""
    places = np.where(spans.size == 9, spans.begin + 1, 0)
    bits = buffer.words[places].byteswap()
    negative = bits >> np.uint64(63) == 0
    bits = np.where(negative, ~bits, bits ^ np.uint64(1 << 63))
    found = np.where(spans.size == 9, bits.view(np.float64), 0)
    if field_type.kind is ColumnKind.FLOAT:
        with np.errstate(over="ignore"):
            found = found.astype(np.float32)
    if not np.isfinite(found).all() or (spans.size[spans.size > 1] != 9).any():
        raise ValueError("not a finite number")
    return found


def _names(numbers: Numbers, absent: Numbers, field_type: FieldType) -> pa.Array | None:
    """Names of elements; None if a number has no name."""
    unique, places = np.unique(np.where(absent, np.uint64(0), numbers), return_inverse=True)
    names = [name_of(field_type, int(number)) for number in unique]
    used = pa.array(places.astype(np.int32), mask=absent)
    if any(found is None and (places[~absent] == at).any() for at, found in enumerate(names)):
        return None
    return pa.array(names, pa.string()).take(used)


def _strings(buffer: Buffer, spans: Spans, absent: Numbers) -> pa.Array:
    return buffer.cut(*content(spans), absent)


def _durations(text: pa.Array) -> pa.Array:
    """TIME, of which the same values come again."""
    coded = text.dictionary_encode()
    values: list[Any] = [parse_duration(one) // 1000 for one in coded.dictionary.to_pylist()]
    return pa.array(values, pa.int64()).cast(pa.duration("us")).take(coded.indices)
