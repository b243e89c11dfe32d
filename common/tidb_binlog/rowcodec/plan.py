"""Decoding plan of one table version: from encoded rows to Python values.

`compile_table` is a pure function of the definition. A plan may be used from several threads.

Tests  tests/common/rowcodec/test_hostile.py
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final

from tidb_binlog.rowcodec.codegen import Conversion, ReaderSource
from tidb_binlog.rowcodec.datum import NULL_DATUM, read_handle
from tidb_binlog.rowcodec.defaults import absent_datum
from tidb_binlog.rowcodec.layout import Layout, make_layout
from tidb_binlog.rowcodec.strict import Reader, StrictReader
from tidb_binlog.rowcodec.values import python_conversion
from tidb_binlog.rowcodec.varint import UINT64_END
from tidb_binlog.table_info import Column, TableInfo

Row = tuple[Any, ...]
Slow = Callable[..., Any]
Names = Mapping[str, Any]
NO_NAMES: Final[Names] = {}


def read_unsigned_handle(b: bytes, i: int) -> tuple[int, int]:
    """Handle of an unsigned key: written as the signed number with the same bits."""
    value, end = read_handle(b, i)
    return value & (UINT64_END - 1), end


class RowReaders:
    """Layout, conversions and readers of one table version for one target.

    `convert` gives the conversion of the column at a place among the writable columns.
    """

    def __init__(self, info: TableInfo, convert: Callable[[Column, int], Conversion]) -> None:
        absent = {column.id: absent_datum(column) for column in info.columns if column.is_writable}
        self.layout: Layout = make_layout(
            info, frozenset(column_id for column_id, datum in absent.items() if datum == NULL_DATUM)
        )
        columns = self.layout.columns
        self.conversions = tuple(convert(column, place) for place, column in enumerate(columns))
        self.strict = StrictReader(
            self.layout,
            [conversion.read for conversion in self.conversions],
            [self._handle_reader(part.index) for part in self.layout.handle],
            [absent[column.id] for column in columns],
        )

    def _handle_reader(self, index: int) -> Reader:
        if self.layout.info.is_common_handle and index >= 0:
            return self.conversions[index].read
        if index >= 0 and self.layout.columns[index].type.unsigned:
            return read_unsigned_handle
        return read_handle

    @property
    def all_places(self) -> range:
        return range(len(self.layout.columns))

    def _source(self, name: str, arguments: str = "b") -> ReaderSource:
        return ReaderSource(self.layout, self.conversions, name, arguments)

    def of_insert(
        self,
        places: Collection[int],
        result: Sequence[str],
        slow: Slow,
        *,
        whole: bool = True,
        extra: Names = NO_NAMES,
    ) -> Callable[..., Any]:
        """Function of an INSERT row. `result` finds the values in v0, v1, ...; `slow` gets odd rows."""
        source = self._source("of_insert")
        base = source.handle(places)
        source.body(self.layout.insert, places, "v", base, whole=whole)
        if whole:
            source.end(self.layout.insert)
        return source.finish(result, slow, extra)

    def of_delete(
        self,
        places: Collection[int],
        result: Sequence[str],
        slow: Slow,
        *,
        whole: bool = True,
        extra: Names = NO_NAMES,
    ) -> Callable[..., Any]:
        """Function of a DELETE row. `result` finds the values in v0, v1, ..."""
        source = self._source("of_delete")
        source.body(self.layout.delete, places, "v", "0", whole=whole)
        if whole:
            source.end(self.layout.delete)
        return source.finish(result, slow, extra)

    def of_update(
        self,
        old: Collection[int],
        new: Collection[int],
        result: Sequence[str],
        slow: Slow,
        *,
        whole: bool = True,
        extra: Names = NO_NAMES,
    ) -> Callable[..., Any]:
        """Function of an UPDATE row. Old values are in o0, o1, ..., new ones in v0, ...; also `split`.

        The old half is always walked to its end, because only that shows where the new one begins.
        """
        source = self._source("of_update")
        source.body(self.layout.half, old, "o", "0", whole=True)
        source.add(2, "split = i", f"if not 0 < split < n: {source.bail}")
        if not new:
            # A column that is not known here may follow the known ones: only the first id begins a half.
            source.begins(self.layout.half)
        source.body(self.layout.half, new, "v", "i", whole=whole)
        if whole:
            source.add(2, f"if i != n: {source.bail}")
        return source.finish(result, slow, extra)

    def of_new_half(
        self, places: Collection[int], result: Sequence[str], slow: Slow, *, extra: Names = NO_NAMES
    ) -> Callable[..., Any]:
        """Function of an UPDATE row and the offset of its second half. Values are in v0, v1, ..."""
        source = self._source("of_new_half", "b, split")
        source.body(self.layout.half, places, "v", "split", whole=True)
        source.add(2, f"if i != n: {source.bail}")
        return source.finish(result, slow, extra)


class TablePlan:
    """Decodes rows of one table version.

    `columns` are the writable ones (public, not generated, not hidden) in table order; rows become tuples of
    their values (see `values`). Raises `RowError`, which names the column, for any row that cannot be right.
    """

    columns: tuple[Column, ...]
    decode_insert: Callable[[bytes], Row]
    decode_update: Callable[[bytes], tuple[Row, Row]]
    decode_delete: Callable[[bytes], Row]

    def __init__(self, info: TableInfo) -> None:
        readers = RowReaders(info, python_conversion)
        strict, places = readers.strict, readers.all_places
        self.columns = readers.layout.columns
        values, old = _tuple_of("v", places), _tuple_of("o", places)
        self.decode_insert = readers.of_insert(places, [f"return {values}"], strict.insert)
        self.decode_delete = readers.of_delete(places, [f"return {values}"], strict.delete)
        self.decode_update = readers.of_update(
            places, places, [f"return {old}, {values}"], lambda row: strict.update(row)[:2]
        )
        self.strict = strict


def _tuple_of(prefix: str, places: Iterable[int]) -> str:
    return "(" + "".join(f"{prefix}{place}, " for place in places) + ")"


def compile_table(info: TableInfo) -> TablePlan:
    """Plan for a table version. `UnsupportedTable` if a column has a type that rows cannot hold."""
    return TablePlan(info)
