"""The strict reader: any column order, absent columns, unknown columns; everything wrong has a name.

Slow and complete. Generated readers hand it every row that is not exactly what they expect, so this module
decides what is a row. It walks to the end of each body, and holds at most `PAIRS_MAX` offsets.

Tests  tests/common/rowcodec/test_hostile.py
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any, Final, NoReturn

from tidb_binlog.rowcodec.datum import NIL, ROW_FORMAT_2, VARINT, read_handle, skip
from tidb_binlog.rowcodec.layout import Layout
from tidb_binlog.rowcodec.row_error import RowError
from tidb_binlog.rowcodec.varint import svarint

# More columns than a table can have, in one body.
PAIRS_MAX: Final = 4200

Reader = Callable[[bytes, int], tuple[Any, int]]
MALFORMED: Final = (IndexError, ValueError, struct.error, OverflowError)


class StrictReader:
    """Reads images of one table version into values, one per writable column.

    `readers` and `handle_readers` give a column's value from its datum (never NULL); `missing` holds, per
    column, the datum that stands for an absent one, None when it must not be absent.
    """

    def __init__(
        self,
        layout: Layout,
        readers: Sequence[Reader],
        handle_readers: Sequence[Reader],
        missing: Sequence[bytes | None],
    ) -> None:
        self._layout = layout
        self._readers = tuple(readers)
        self._handle_readers = tuple(handle_readers)
        self._missing = tuple(missing)
        self._keys = layout.key_indexes

    def insert(self, row: bytes) -> tuple[Any, ...]:
        """Values of an INSERT image."""
        handle: dict[int, tuple[Reader, int]] = {}
        i = 0
        integer = not self._layout.info.is_common_handle
        for part, reader in zip(self._layout.handle, self._handle_readers, strict=True):
            name = part.column.name if part.column is not None else "_tidb_rowid"
            start = i
            try:
                i = read_handle(row, i)[1] if integer else skip(row, i)
                if row[start] == NIL:
                    raise RowError("NULL in the handle")
            except RowError as error:
                self._fail(row, name, start, error.message)
            except MALFORMED:
                self._fail(row, name, start, "row ends inside the handle")
            if part.index >= 0:
                handle[part.index] = (reader, start)
        places = self._places(row, i, len(row))
        return self._values(row, places, handle, keys_required=False)

    def delete(self, row: bytes) -> tuple[Any, ...]:
        """Values of a DELETE image."""
        return self._values(row, self._places(row, 0, len(row)), {}, keys_required=True)

    def present(self, row: bytes) -> dict[int, Any]:
        """Values of the columns that a DELETE image holds, by place: nothing stands for absent ones."""
        places = self._places(row, 0, len(row))
        values = self._values(row, places, {}, keys_required=True)
        columns = self._layout.columns
        return {place: value for place, value in enumerate(values) if columns[place].id in places}

    def update(self, row: bytes) -> tuple[tuple[Any, ...], tuple[Any, ...], int]:
        """Values of both halves of an UPDATE image, and the offset of the second half."""
        split = self._split(row)
        old, new = self._places(row, 0, split), self._places(row, split, len(row))
        if list(old) != list(new):
            self._fail(row, "", split, "the halves of the update hold different columns")
        values = self._values(row, old, {}, keys_required=True)
        return values, self._values(row, new, {}, keys_required=True), split

    def _split(self, row: bytes) -> int:
        """Offset of the second half: where the first column id comes again."""
        if not row or row[0] == NIL:
            self._fail(row, "", 0, "update without columns")
        first = None
        i = pairs = 0
        while i < len(row) and pairs <= PAIRS_MAX:
            pairs += 1
            column_id, value = self._column_id(row, i)
            if first is None:
                first = column_id
            elif column_id == first:
                return i
            i = self._skip(row, column_id, value)
        return self._fail(row, "", i, "second half of the update not found")

    def _column_id(self, row: bytes, i: int) -> tuple[int, int]:
        if row[i] != VARINT:
            if i == 0 and row[0] == ROW_FORMAT_2:
                self._fail(row, "", i, "unsupported row format 2")
            self._fail(row, "", i, f"column id has datum flag {row[i]:#04x}, not an integer's")
        try:
            return svarint(row, i + 1)
        except RowError as error:
            self._fail(row, "", i, f"column id: {error.message}")
        except IndexError:
            self._fail(row, "", i, "row ends inside a column id")

    def _skip(self, row: bytes, column_id: int, i: int) -> int:
        if i >= len(row):
            self._fail(row, self._layout.name_of(column_id), i, "column id without a value")
        try:
            return skip(row, i)
        except RowError as error:
            self._fail(row, self._layout.name_of(column_id), i, error.message)
        except MALFORMED:
            self._fail(row, self._layout.name_of(column_id), i, "row ends inside the value")

    def _places(self, row: bytes, i: int, end: int) -> dict[int, int]:
        """Column id -> offset of its datum, for the body row[i:end]."""
        if i >= end:
            self._fail(row, "", i, "row without a body")
        places: dict[int, int] = {}
        if row[i] == NIL:
            if i + 1 != end:
                self._fail(row, "", i, "bytes after an empty body")
            return places
        if row[i] == ROW_FORMAT_2:
            self._fail(row, "", i, "unsupported row format 2")
        while i < end:
            column_id, value = self._column_id(row, i)
            if column_id in places:
                self._fail(row, self._layout.name_of(column_id), i, "column occurs twice")
            if len(places) >= PAIRS_MAX:
                self._fail(row, "", i, "more columns than a table can have")
            places[column_id] = value
            i = self._skip(row, column_id, value)
        if i != end:
            self._fail(row, "", end, "value reaches into the other half")
        return places

    def _values(
        self,
        row: bytes,
        places: dict[int, int],
        handle: dict[int, tuple[Reader, int]],
        *,
        keys_required: bool,
    ) -> tuple[Any, ...]:
        values: list[Any] = []
        for index, column in enumerate(self._layout.columns):
            at = places.get(column.id)
            reader, source = self._readers[index], row
            if at is None and index in handle:
                reader, at = handle[index]
            if at is None:
                datum = self._missing[index]
                if datum is None or (keys_required and index in self._keys):
                    self._fail(row, column.name, len(row), "column is missing")
                source, at = datum, 0
            if source[at] == NIL:
                values.append(None)
                continue
            try:
                values.append(reader(source, at)[0])
            except RowError as error:
                self._fail(row, column.name, at, error.message)
            except MALFORMED:
                self._fail(row, column.name, at, "value cannot be read")
        return tuple(values)

    def _fail(self, row: bytes, column: str, at: int, what: str) -> NoReturn:
        info = self._layout.info
        place = f" column {column}" if column else ""
        raise RowError(
            f"row of table {info.name} ({info.id}){place} at byte {at} of {len(row)}: {what}", column=column
        ) from None
