"""Rows as TiDB writes them into binlogs: for tests and for programs that write binlogs themselves.

    encoder = RowEncoder(info)
    encoder.insert({"id": 1, "name": "a"})

Values are those of `values`, and what `put` takes besides. A sequence holds the writable columns in table
order; a mapping may leave columns out (NULL) and may name stored generated columns.

Byte-equal to TiDB, except for the sort key in front of an INSERT whose clustered key has text under a
case-insensitive collation: it is exact for ASCII under `*_general_ci` and a stand-in otherwise. TiDB puts the
real text into the body of such rows, and readers take it from there.

Tests  tests/common/rowcodec/test_golden.py
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from tidb_binlog.errors import Rejected
from tidb_binlog.rowcodec.datum import put_comparable_duration, read_bytes, read_duration
from tidb_binlog.rowcodec.put import put_bytes, put_int, put_value
from tidb_binlog.rowcodec.varint import INT64_END, UINT64_END, put_svarint
from tidb_binlog.table_info import (
    FLAG_BINARY,
    ROWID_COLUMN_ID,
    STRING_TYPES,
    TIME,
    VAR_STRING,
    VARCHAR,
    WHOLE_COLUMN,
    Column,
    FieldType,
    TableInfo,
)
from tidb_binlog.wire import binlog_pb2

Values = Mapping[str, Any] | Sequence[Any]

_BIN_COLLATIONS: Final = frozenset({"ascii_bin", "latin1_bin", "utf8_bin", "utf8mb4_bin"})
_BEYOND_BMP: Final = 0xFFFD
_KINDS: Final = {0: binlog_pb2.Insert, 1: binlog_pb2.Update, 2: binlog_pb2.DeleteRow}


class UnwritableValue(Rejected):
    """A value that does not fit its column; the text names the column."""


def needs_restored_data(kind: FieldType) -> bool:
    """Whether a clustered key's sort key loses what the column holds, so that the body repeats the column."""
    if kind.tp not in STRING_TYPES or kind.is_binary_string or kind.flag & FLAG_BINARY:
        return False
    if kind.collate == "utf8mb4_0900_bin":
        return False
    return kind.collate not in _BIN_COLLATIONS or kind.tp in (VARCHAR, VAR_STRING)


def sort_key(kind: FieldType, raw: bytes) -> bytes:
    """What stands for a string in keys."""
    if kind.is_binary_string:
        return raw
    raw = raw.rstrip(b" ")
    if kind.collate == "gbk_bin":
        return raw.decode("utf-8", "replace").encode("gbk", "replace")
    if kind.collate.endswith("_bin"):
        return raw
    weights = bytearray()
    for character in raw.decode("utf-8", "replace"):
        sign = "\u2000" <= character <= "\u2bff"  # these keep a weight of their own
        base = character if sign else unicodedata.normalize("NFD", character)[0].upper()[0]
        weights += min(ord(base), _BEYOND_BMP).to_bytes(2, "big")
    return bytes(weights)


def key_datum(kind: FieldType, length: int, datum: bytes) -> bytes:
    """What stands in front of an INSERT for a column of a clustered key; `datum` as a body holds it."""
    if kind.tp == TIME:
        return put_comparable_duration(read_duration(datum, 0)[0])
    if kind.tp not in STRING_TYPES:
        return datum
    raw = read_bytes(datum, 0)[0]
    if length != WHOLE_COLUMN:
        raw = raw[:length] if kind.is_binary_string else raw.decode("utf-8", "replace")[:length].encode()
    return put_bytes(sort_key(kind, raw))


class RowEncoder:
    """Encodes rows of one table version. Raises `UnwritableValue`."""

    def __init__(self, info: TableInfo) -> None:
        self._info = info
        ordered = sorted(info.columns, key=lambda column: column.offset)
        self._columns = tuple(column for column in ordered if column.is_writable)
        self._bodies = tuple(
            column for column in ordered if column in self._columns or column.generated_stored
        )
        handle = info.handle_column
        self._handle = handle
        self._clustered = () if handle is not None else info.clustered_key
        left_out = {handle.id} if handle is not None else set()
        left_out.update(
            column.id
            for column, length in self._clustered
            if length == WHOLE_COLUMN and not needs_restored_data(column.type)
        )
        self._left_out = left_out
        self._has_rowid = handle is None and not info.is_common_handle

    def insert(self, values: Values, rowid: int | None = None) -> bytes:
        """INSERT row. `rowid` is the hidden row id of a table that has one."""
        row = self._named(values)
        out = bytearray(self._handle_of(row, rowid))
        before = len(out)
        for column in self._bodies:
            if column.id in self._left_out or column.name not in row:
                continue
            if row[column.name] is None and _null_is_default(column):
                continue
            out += self._pair(column, row)
        return bytes(out) if len(out) > before else bytes(out) + b"\x00"

    def update(self, old: Values, new: Values, rowid: int | None = None) -> bytes:
        """UPDATE row: both images, with the same columns."""
        return self.delete(old, rowid) + self.delete(new, rowid)

    def delete(self, values: Values, rowid: int | None = None) -> bytes:
        """DELETE row: one complete image."""
        row = self._named(values)
        out = bytearray()
        for column in self._bodies:
            if column.name in row:
                out += self._pair(column, row)
        if self._has_rowid:
            out += b"\x08" + put_svarint(ROWID_COLUMN_ID) + put_int(self._checked(rowid), unsigned=False)
        return bytes(out) or b"\x00"

    def _named(self, values: Values) -> dict[str, Any]:
        if isinstance(values, Mapping):
            return {**{column.name: None for column in self._columns}, **values}
        if len(values) != len(self._columns):
            raise UnwritableValue(
                f"table {self._info.name}: {len(values)} values for {len(self._columns)} columns"
            )
        return {column.name: value for column, value in zip(self._columns, values, strict=True)}

    def _checked(self, rowid: int | None) -> int:
        if rowid is None:
            raise UnwritableValue(
                f"table {self._info.name} has no clustered key: its rows have a hidden row id",
                hint="pass rowid",
            )
        return rowid

    def _pair(self, column: Column, row: Mapping[str, Any]) -> bytes:
        return b"\x08" + put_svarint(column.id) + self._datum(column, row[column.name])

    def _datum(self, column: Column, value: Any) -> bytes:
        try:
            return put_value(column.type, value)
        except (ValueError, TypeError, OverflowError, AttributeError) as error:
            said = str(error) if type(error) is ValueError else f"it cannot hold this {type(value).__name__}"
            raise UnwritableValue(f"column {column.name} of table {self._info.name}: {said}") from None

    def _handle_of(self, row: Mapping[str, Any], rowid: int | None) -> bytes:
        if self._handle is not None:
            datum = self._datum(self._handle, row[self._handle.name])
            if datum == b"\x00":
                raise UnwritableValue(f"column {self._handle.name} of table {self._info.name}: key is NULL")
            value = int(row[self._handle.name])
            return put_int(value - UINT64_END if value >= INT64_END else value, unsigned=False)
        if self._has_rowid:
            return put_int(self._checked(rowid), unsigned=False)
        return b"".join(self._key_datum(column, length, row) for column, length in self._clustered)

    def _key_datum(self, column: Column, length: int, row: Mapping[str, Any]) -> bytes:
        kind = column.type
        datum = self._datum(column, row[column.name])
        if datum == b"\x00":
            raise UnwritableValue(f"column {column.name} of table {self._info.name}: key is NULL")
        return key_datum(kind, length, datum)


def _null_is_default(column: Column) -> bool:
    return column.default is None and column.origin_default is None and column.origin_default_bit is None


def prewrite_value(
    schema_version: int, tables: Iterable[tuple[int, Iterable[int], Iterable[bytes]]]
) -> bytes:
    """Serialized PrewriteValue of a transaction's row events.

    Per table: id, kinds (0 insert, 1 update, 2 delete) in execution order, and the row of each.
    """
    message = binlog_pb2.PrewriteValue(schema_version=schema_version)
    for table_id, kinds, rows in tables:
        mutation = message.mutations.add(table_id=table_id)
        places = (mutation.inserted_rows, mutation.updated_rows, mutation.deleted_rows)
        for kind, row in zip(kinds, rows, strict=True):
            places[kind].append(row)
            mutation.sequence.append(_KINDS[kind])
    return message.SerializeToString()
