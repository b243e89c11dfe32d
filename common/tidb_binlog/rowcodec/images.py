"""Images of rows as bytes: from one kind of row to another, and with other datums in them.

Out    rows as TiDB writes them: of an UPDATE the DELETE and the INSERT row of its halves
Holds  what is not exchanged keeps its bytes
Why    a row that enters or leaves the rows that replicate is another kind of row downstream

Tests  tests/common/rowcodec/test_images.py
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from tidb_binlog.rowcodec.datum import NIL, NULL_DATUM, read_duration, read_int, skip
from tidb_binlog.rowcodec.defaults import absent_datum
from tidb_binlog.rowcodec.encoder import key_datum, needs_restored_data
from tidb_binlog.rowcodec.put import put_int
from tidb_binlog.rowcodec.row_error import RowError
from tidb_binlog.rowcodec.strict import MALFORMED
from tidb_binlog.rowcodec.varint import INT64_END, UINT64_END, put_svarint, svarint
from tidb_binlog.table_info import ROWID_COLUMN_ID, TIME, WHOLE_COLUMN, Column, ColumnKind, TableInfo

Exchange = Callable[[bytes], bytes]
"""From the datum of a column, never NULL, to the one in its place."""
Pairs = dict[int, bytes]
_NO_ROWID: Final = b"\x08\x00"


class Images:
    """Of one table version. Raises `RowError` for a row that cannot be right."""

    def __init__(self, info: TableInfo) -> None:
        self._name = f"{info.name} ({info.id})"
        ordered = sorted(info.columns, key=lambda column: column.offset)
        self._rank = {column.id: number for number, column in enumerate(ordered)}
        self._virtual = frozenset(column.id for column in ordered if column.is_virtual)
        self._absent = {column.id: absent_datum(column) for column in ordered if column.is_writable}
        handle = info.handle_column
        self._handle = handle
        self._clustered = info.clustered_key
        self._has_rowid = handle is None and not info.is_common_handle
        self._only_in_handle = frozenset(
            column.id
            for column, length in self._clustered
            if length == WHOLE_COLUMN and not needs_restored_data(column.type)
        )
        self.handle_ids: frozenset[int] = frozenset(
            [column.id for column, _ in self._clustered] + ([handle.id] if handle else [])
        )

    def insert_of(self, row: bytes, split: int = 0) -> bytes:
        """The INSERT row of the second half of an UPDATE, or with 0 of a DELETE image."""
        return self._inserted(self._body(row, split, len(row)))

    def split(self, row: bytes) -> int:
        """Offset of the second half of an UPDATE row: where its first column comes again."""
        first = None
        at = 0
        try:
            while at < len(row):
                column_id, value = svarint(row, at + 1)
                if column_id == first and row[at] == 8:
                    return at
                first = column_id if first is None else first
                at = skip(row, value)
        except (RowError, *MALFORMED):
            pass
        raise RowError(f"row of table {self._name} at byte {at}: it has no second half")

    def exchanged_insert(
        self, row: bytes, exchanges: Mapping[int, Exchange], *, always: bool = False
    ) -> bytes:
        """An INSERT row with other datums. What is NULL, absent or not, stays so unless `always`."""
        at = 0
        datums = []
        for _ in self._clustered or (None,):
            end = self._skip(row, at)
            datums.append(row[at:end])
            at = end
        pairs = self._body(row, at, len(row))
        if self.handle_ids.isdisjoint(exchanges):
            return row[:at] + (self._joined(self._exchanged(pairs, exchanges, always)) or NULL_DATUM)
        keys = [self._handle] if self._handle is not None else [column for column, _ in self._clustered]
        for column, datum in zip(keys, datums, strict=True):
            pairs.setdefault(column.id, _body_datum(column, datum))
        return self._inserted(self._exchanged(self._in_order(pairs), exchanges, always))

    def exchanged_image(
        self,
        row: bytes,
        exchanges: Mapping[int, Exchange],
        start: int = 0,
        end: int | None = None,
        *,
        always: bool = False,
    ) -> bytes:
        """A DELETE row, or one half of an UPDATE, with other datums."""
        pairs = self._body(row, start, len(row) if end is None else end)
        return self._joined(self._exchanged(pairs, exchanges, always)) or NULL_DATUM

    # -- bodies --------------------------------------------------------------------------------------

    def _body(self, row: bytes, at: int, end: int) -> Pairs:
        """Datums by column id, in the order of the row."""
        pairs: Pairs = {}
        if row[at : at + 1] == NULL_DATUM and at + 1 == end:
            return pairs
        while at < end:
            try:
                column_id, value = svarint(row, at + 1)
                if row[at] != 8 or column_id in pairs:
                    raise RowError("")
                at = skip(row, value)
            except (RowError, *MALFORMED):
                raise RowError(f"row of table {self._name} at byte {at}: it cannot be read") from None
            pairs[column_id] = row[value:at]
        if at != end:
            raise RowError(f"row of table {self._name} at byte {end}: a value reaches beyond it")
        return pairs

    def _skip(self, row: bytes, at: int) -> int:
        try:
            return skip(row, at)
        except (RowError, *MALFORMED):
            raise RowError(f"row of table {self._name} at byte {at}: its key cannot be read") from None

    def _exchanged(self, pairs: Pairs, exchanges: Mapping[int, Exchange], always: bool) -> Pairs:
        added = False
        for column_id, exchange in exchanges.items():
            datum = pairs.get(column_id) or self._absent.get(column_id) or NULL_DATUM
            if datum[0] != NIL or always:
                added = added or column_id not in pairs
                pairs[column_id] = exchange(datum)
        return self._in_order(pairs) if added else pairs

    def _in_order(self, pairs: Pairs) -> Pairs:
        last = len(self._rank)
        return dict(sorted(pairs.items(), key=lambda pair: self._rank.get(pair[0], last)))

    def _joined(self, pairs: Pairs) -> bytes:
        return b"".join([b"\x08" + put_svarint(column_id) + datum for column_id, datum in pairs.items()])

    def _inserted(self, pairs: Pairs) -> bytes:
        """An INSERT row of all columns."""
        for column_id in self._virtual:
            pairs.pop(column_id, None)
        try:
            if self._handle is not None:
                value, _ = read_int(pairs.pop(self._handle.id), 0)
                handle = put_int(value - UINT64_END if value >= INT64_END else value, unsigned=False)
            elif self._has_rowid:
                handle = pairs.pop(ROWID_COLUMN_ID, _NO_ROWID)
            else:
                handle = b"".join(
                    [key_datum(column.type, length, pairs[column.id]) for column, length in self._clustered]
                )
        except KeyError:
            raise RowError(f"row of table {self._name} lacks a column of its key") from None
        for column_id in self._only_in_handle:
            pairs.pop(column_id)
        return handle + (self._joined(pairs) or NULL_DATUM)


def _body_datum(column: Column, datum: bytes) -> bytes:
    """What a body holds for a datum that stands in front of an INSERT."""
    if column.type.tp == TIME:
        return b"\x08" + put_svarint(read_duration(datum, 0)[0])
    if column.type.kind is ColumnKind.UNSIGNED:
        return put_int(read_int(datum, 0)[0] & (UINT64_END - 1), unsigned=True)
    return datum
