"""Stored row: one column out of a row as TiKV keeps it, which is not how binlogs carry rows.

    format 2   0x80 flags(1: large) n_values u16 n_nulls u16, ids (values' then nulls', each part ascending),
               ends of the values, values; all little endian. Ids and ends have 1 and 2 bytes, large: 4 and 4
    format 1   (column id, value) as datums, one after the other; one NULL datum: no columns

Only what the tables of the DDL framework need: a column of bytes. Both formats: a cluster that was upgraded
from TiDB 3 still writes the old one.

Tests  tests/common/upstream/tidb/meta/test_meta_keys.py
"""

from __future__ import annotations

from typing import Final

from tidb_binlog.errors import Corruption
from tidb_binlog.rowcodec import datum
from tidb_binlog.rowcodec.row_error import RowError

_HEAD: Final = 6
_LARGE: Final = 1


def bytes_of(row: bytes, column_id: int) -> bytes | None:
    """The bytes of a column; None where it is NULL or absent. Raises `Corruption`."""
    try:
        if row[0] == datum.ROW_FORMAT_2:
            return _of_format_2(row, column_id)
        return _of_format_1(row, column_id)
    except (IndexError, RowError) as error:
        raise Corruption(f"a stored row of {len(row)} bytes cannot be read: {error or 'cut off'}") from None


def _of_format_1(row: bytes, column_id: int) -> bytes | None:
    at = 0
    if row == datum.NULL_DATUM:
        return None
    while at < len(row):
        number, at = datum.read_int(row, at)
        if number == column_id:
            return None if row[at] == datum.NIL else datum.read_bytes(row, at)[0]
        at = datum.skip(row, at)
    return None


def _of_format_2(row: bytes, column_id: int) -> bytes | None:
    id_size, end_size = (4, 4) if row[1] & _LARGE else (1, 2)
    values, nulls = int.from_bytes(row[2:4], "little"), int.from_bytes(row[4:6], "little")
    ends = _HEAD + (values + nulls) * id_size
    data = ends + values * end_size
    if len(row) < max(data, _HEAD):
        raise IndexError
    start = 0
    for number in range(values):
        at = ends + number * end_size
        end = int.from_bytes(row[at : at + end_size], "little")
        if not start <= end <= len(row) - data:
            raise IndexError
        at = _HEAD + number * id_size
        if int.from_bytes(row[at : at + id_size], "little") == column_id:
            return row[data + start : data + end]
        start = end
    return None
