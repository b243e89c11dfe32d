"""Runs: consecutive columns whose datums one regular expression recognises, in the order of a writer.

Out    an expression that matches their ids, flags and payloads, with a group for each wanted value
Holds  what matches is what the strict reader takes for the same datums; what does not match says nothing
Why    a datum costs the interpreter a dozen steps, the matcher a few nanoseconds: a row of many columns is
       walked three times as fast. A string ends a run, for only its length says where the next column begins

Tests  tests/common/rowcodec/test_run.py
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final

from tidb_binlog.late_dataclass import dataclass
from tidb_binlog.rowcodec.decimals import header_of, size_of
from tidb_binlog.rowcodec.layout import Field
from tidb_binlog.rowcodec.varint import put_svarint
from tidb_binlog.table_info import ROWID_COLUMN_ID, ColumnKind, FieldType

# No more than 64 bits in ten bytes; overlong forms are taken as the strict reader takes them. The possessive
# `+` gives nothing back, so a row that does not match costs no second try.
_VARINT: Final = rb"[\x80-\xff]{0,8}+(?:[\x00-\x7f]|[\x80-\xff][\x00\x01])"
# The length of a string is even, since it is zigzag and not negative.
_EVEN: Final = b"".join(b"\\x%02x" % byte for byte in range(0, 128, 2))
_EVEN_AND_MORE: Final = b"".join(b"\\x%02x" % byte for byte in range(128, 256, 2))
_LENGTH: Final = b"[%b]|[%b][\\x80-\\xff]{0,3}+[\\x00-\\x7f]" % (_EVEN, _EVEN_AND_MORE)

_SIGNED: Final = (rb"\x08", _VARINT)
_UNSIGNED: Final = (rb"\x09", _VARINT)
_FLOATING: Final = (rb"\x05", rb".{8}")
_DATUMS: Final[dict[ColumnKind, tuple[bytes, bytes]]] = {
    ColumnKind.SIGNED: _SIGNED,
    ColumnKind.UNSIGNED: _UNSIGNED,
    ColumnKind.YEAR: _SIGNED,
    ColumnKind.BIT: _UNSIGNED,
    ColumnKind.FLOAT: _FLOATING,
    ColumnKind.DOUBLE: _FLOATING,
    ColumnKind.TEXT: (rb"\x02", _LENGTH),
    ColumnKind.BINARY: (rb"\x02", _LENGTH),
    ColumnKind.ENUM: _UNSIGNED,
    ColumnKind.SET: _UNSIGNED,
    ColumnKind.DATE: _UNSIGNED,
    ColumnKind.DATETIME: _UNSIGNED,
    ColumnKind.TIMESTAMP: _UNSIGNED,
    ColumnKind.TIME: _SIGNED,
}
_STRINGS: Final = frozenset({ColumnKind.TEXT, ColumnKind.BINARY})


# A time as nearly all are, in the halves by which it is shown; or any other one.
_HALVES: Final = rb"([\x80-\xff]{3})([\x80-\xff]{5}[\x00-\x7f])|(%b)" % _VARINT


@dataclass(frozen=True, slots=True)
class Part:
    """A field in a run.

    `grouped`: its value is wanted; `whole`: with its flag in front; `halves`: a time as three groups, either
    the first three and the other six bytes or all of what has not nine.
    """

    field: Field
    grouped: bool
    whole: bool = False
    halves: bool = False

    @property
    def is_string(self) -> bool:
        """Its group is the length of what follows the run."""
        return ends_run(self.field)

    @property
    def groups(self) -> int:
        return 3 if self.halves else int(self.grouped or self.is_string)

    @property
    def may_be_null(self) -> bool:
        """Whether its group may match nothing: NULL, or absent where that is NULL."""
        column = self.field.column
        return self.field.optional or column is None or not column.type.not_null


def ends_run(field: Field) -> bool:
    """A string: where the next column begins, only its length says."""
    return field.column is not None and field.column.type.kind in _STRINGS


def can_run(field: Field) -> bool:
    """Whether an expression recognises the field's datum, or of a string what stands in front of it."""
    if field.column is None:
        return field.id == ROWID_COLUMN_ID
    return field.index >= 0 and _datum(field.column.type) is not None


def _datum(kind: FieldType) -> tuple[bytes, bytes] | None:
    """Flag and payload."""
    if kind.kind is ColumnKind.DECIMAL:
        header = header_of(kind.flen, kind.decimal)
        return (re.escape(header), b".{%d}" % size_of(*header[1:])) if header else None
    return _DATUMS.get(kind.kind)


def matcher(parts: Sequence[Part]) -> Callable[[bytes, int], re.Match[bytes] | None]:
    """Matches the parts at an offset. Groups: of each grouped part, and the length of a string at the end."""
    return re.compile(b"".join(map(_pattern, parts)), re.DOTALL).match


def _pattern(part: Part) -> bytes:
    field = part.field
    kind = field.column.type if field.column is not None else None
    datum = _SIGNED if kind is None else _datum(kind)
    assert datum is not None
    flag, payload = datum
    if part.halves:
        pattern = b"%b(?:%b)" % (flag, _HALVES)
    elif part.whole and not part.is_string:
        pattern = b"(%b(?:%b))" % (flag, payload)
    elif part.groups:
        pattern = b"%b(%b)" % (flag, payload)
    else:
        pattern = b"%b(?:%b)" % (flag, payload)
    if kind is None or not kind.not_null:
        pattern = rb"(?:%b|\x00)" % pattern
    pattern = re.escape(b"\x08" + put_svarint(field.id)) + pattern
    return b"(?:%b)?" % pattern if field.optional else pattern
