"""Causality: which lane applies a change, so that changes that depend on each other stay in order.

In     a table's definition, the key of a change
Out    the number of the lane
Holds  two changes that the downstream could see as touching the same row or the same unique value always
       go to the same lane, and for a given number of lanes it is always the same one: exactly-once rests
       on it, because a restarted lane skips by its own stored position
Why    a lane needs to wait for another lane only if one change can have keys in two lanes. Tables where
       that could be (secondary unique keys), tables whose key the server compares by looser rules than
       bytes (text under a case- or accent-insensitive collation, floating point, prefixes) and tables
       without a key are pinned to one lane by table; all others have exactly one key, so no change ever
       waits for a lane other than its own. Measured on InnoDB, spreading tables with moving unique values
       deadlocks at every isolation level, so nothing is lost by pinning them.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from enum import Enum, auto

from common.table_info import DOUBLE, FLOAT, STRING_TYPES, WHOLE_COLUMN, Column, Index, TableInfo


class Spread(Enum):
    """How a table's changes are spread over lanes."""

    BY_KEY = auto()  # exact keys: the identity bytes decide
    BY_PADDED_KEY = auto()  # text under a binary collation: equal but for trailing blanks is equal
    BY_TABLE = auto()


def other_unique_indexes(info: TableInfo, own: Index | None) -> list[Index]:
    """Unique indexes besides the one behind the row key (`own`, None for an integer handle)."""
    return [index for index in info.unique_indexes if index is not own]


def spread(info: TableInfo, key: Sequence[Column], own: Index | None) -> Spread:
    """How a table's changes may be spread; a pure function of its definition.

    `key` are the columns that identify a row (none if nothing does), `own` the index behind them.
    """
    if not key or other_unique_indexes(info, own):
        return Spread.BY_TABLE
    if own is not None and any(part.length != WHOLE_COLUMN for part in own.columns):
        return Spread.BY_TABLE
    padded = False
    for column in key:
        if column.type.tp in (FLOAT, DOUBLE) or column.type.array:
            return Spread.BY_TABLE
        if column.type.tp in STRING_TYPES and not column.type.is_binary_string:
            if not column.type.collate.endswith("_bin"):
                return Spread.BY_TABLE
            padded = True
    return Spread.BY_PADDED_KEY if padded else Spread.BY_KEY


def lane_of_table(table_id: int, lanes: int) -> int:
    """Lane of a pinned table."""
    return zlib.crc32(table_id.to_bytes(8, "little", signed=True)) % lanes


def lane_of_key(table_id: int, key: bytes, lanes: int) -> int:
    """Lane of a row key; the table takes part so that equal small keys of many tables spread."""
    return zlib.crc32(key, table_id & 0xFFFFFFFF) % lanes
