"""What a column that is absent from a row holds.

Writers leave a NULL out of an INSERT when the column's default is NULL; a row that is older than its column
lacks it, and holds the column's `origin_default`. In this order: nullable without an origin default is NULL;
an origin default is itself; NOT NULL without one is the type's zero.

Tests  tests/common/rowcodec/test_recorded.py
"""

from __future__ import annotations

from typing import Final

from tidb_binlog.rowcodec.datum import NULL_DATUM
from tidb_binlog.rowcodec.put import put_value
from tidb_binlog.table_info import DATE_AND_TIME_KINDS, STRING, VARCHAR, Column, ColumnKind, FieldType

_NOT_CONSTANT: Final = "CURRENT_TIMESTAMP"


def absent_datum(column: Column) -> bytes | None:
    """Datum that stands for the absent column; None if nothing can (its default is not a constant)."""
    field_type = column.type
    text = column.origin_default
    if text is None and column.origin_default_bit is None:
        if not field_type.not_null:
            return NULL_DATUM
        return _zero(field_type)
    try:
        if field_type.kind is ColumnKind.BIT:
            bits = column.origin_default_bit
            return put_value(field_type, (text or "").encode() if bits is None else bits)
        assert text is not None
        if field_type.kind in DATE_AND_TIME_KINDS and text.upper().startswith(_NOT_CONSTANT):
            return None
        if field_type.tp in (STRING, VARCHAR) and field_type.flen >= 0:  # TiDB cuts one that is longer
            raw = text.encode()[: field_type.flen]
            return put_value(
                field_type, raw if field_type.kind is ColumnKind.BINARY else text[: field_type.flen]
            )
        return put_value(field_type, year_of(text) if field_type.kind is ColumnKind.YEAR else text)
    except (ValueError, TypeError, ArithmeticError):
        return None


def year_of(text: str) -> str:
    """The YEAR that TiDB makes of a default's text: 2000 of "0", which it notes for a column that was added
    NOT NULL; 0 of "0000". Raises `ValueError`."""
    year = int(text)
    if year < 100 and (year or len(text) != 4):
        year += 2000 if year < 70 else 1900
    return str(year)


_ZERO_TIME: Final = b"\x09\x00"
_ZEROS: Final[dict[ColumnKind, bytes]] = {
    ColumnKind.DATE: _ZERO_TIME,
    ColumnKind.DATETIME: _ZERO_TIME,
    ColumnKind.TIMESTAMP: _ZERO_TIME,
    ColumnKind.TIME: b"\x08\x00",
}
_ZERO_VALUES: Final[dict[ColumnKind, object]] = {
    ColumnKind.TEXT: "",
    ColumnKind.BINARY: "",
    ColumnKind.ENUM: 1,
    ColumnKind.JSON: "null",
}


def _zero(field_type: FieldType) -> bytes:
    zero = _ZEROS.get(field_type.kind)
    return put_value(field_type, _ZERO_VALUES.get(field_type.kind, 0)) if zero is None else zero
