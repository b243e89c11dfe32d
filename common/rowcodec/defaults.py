"""What a column that is absent from a row holds.

Writers leave a NULL out of an INSERT when the column's default is NULL; a row that is older than its column
lacks it, and holds the column's `origin_default`. In this order: nullable without an origin default is NULL;
an origin default is itself; NOT NULL without one is the type's zero.
"""

from __future__ import annotations

from typing import Final

from common.rowcodec.datum import NULL_DATUM
from common.rowcodec.put import put_value
from common.table_info import (
    BIT,
    ENUM,
    JSON,
    SET,
    STRING_TYPES,
    TIME,
    TIME_TYPES,
    Column,
)

_NOT_CONSTANT: Final = "CURRENT_TIMESTAMP"


def absent_datum(column: Column) -> bytes | None:
    """Datum that stands for the absent column; None if nothing can (its default is not a constant)."""
    kind = column.type
    text = column.origin_default
    if text is None and column.origin_default_bit is None:
        if not kind.not_null:
            return NULL_DATUM
        return _zero(column)
    try:
        if kind.tp == BIT:
            bits = column.origin_default_bit
            return put_value(kind, (text or "").encode() if bits is None else bits)
        assert text is not None
        if kind.tp in TIME_TYPES and text.upper().startswith(_NOT_CONSTANT):
            return None
        return put_value(kind, text)
    except (ValueError, TypeError, ArithmeticError):
        return None


def _zero(column: Column) -> bytes:
    kind = column.type
    if kind.tp in STRING_TYPES:
        return put_value(kind, "")
    if kind.tp in TIME_TYPES:
        return b"\x09\x00"
    if kind.tp == TIME:
        return b"\x08\x00"
    if kind.tp == ENUM:
        return put_value(kind, 1)
    if kind.tp in (BIT, SET):
        return put_value(kind, 0)
    if kind.tp == JSON:
        return put_value(kind, "null")
    return put_value(kind, 0)
