"""Value rows: the rows of a chunk as binlogs would have them, for everything that works on rows.

Drives  one session, which has the chunk's table in sight; ends no transaction of it
Out     encoded INSERT rows (`tidb_binlog.rowcodec.encoder`), some at a time: fit for rules, masks, `SqlPlan`
Holds   a value is converted by what the column is on the server and stored as what the definition calls it.
        Stored generated columns come with the row, as TiDB's binlogs have them; virtual ones do not
Why     the slow way of a load: what conditions and masks see, and how a value is written, is decided in one
        place, the Drainer's. Rows without a clustered key get TiDB's hidden row id, elsewhere their number

Tests  tests/drainer/mysql/chunks/test_both_ways.py
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from drainer.mysql.chunks.chunk import Chunk, check_rows
from drainer.mysql.chunks.cut_key import ROWID, CutKey
from drainer.mysql.chunks.printed import Family, family_of, is_named, value
from drainer.mysql.chunks.splitter import index_hint
from drainer.mysql.connection import Connection
from drainer.mysql.literal.downstream_column import DownstreamColumn
from drainer.mysql.literal.quoting import qualified
from drainer.mysql.rows.column_match import DownstreamTable
from drainer.mysql.rows.dialect import Dialect
from tidb_binlog.errors import DownstreamError
from tidb_binlog.late_dataclass import dataclass
from tidb_binlog.rowcodec.encoder import RowEncoder
from tidb_binlog.table_info import Column, ColumnKind, SchemaState, TableInfo

ROWS_MAX: Final = 1000
BYTES_MAX: Final = 4 << 20
"""What is given at a time, but for the last row of it."""
_NUMBERED: Final = {ColumnKind.ENUM: Family.ENUM, ColumnKind.SET: Family.SET}
_INTEGERS: Final = frozenset(
    {ColumnKind.SIGNED, ColumnKind.UNSIGNED, ColumnKind.YEAR, ColumnKind.BIT, ColumnKind.ENUM, ColumnKind.SET}
)
_AS_BYTES: Final = frozenset({ColumnKind.TEXT, ColumnKind.BINARY})
Convert = Callable[[bytes], Any]


def converter(column: Column, here: DownstreamColumn) -> Convert:
    """From what the server prints for `printed.value` to what `RowEncoder` takes."""
    kind = column.type.kind
    if kind in _AS_BYTES:
        return bytes
    numbered = _NUMBERED.get(kind)
    if numbered is not None and (family_of(here) is not numbered or is_named(here)):
        return bytes.decode  # the names
    if kind in _INTEGERS:
        return int
    return bytes.decode


@dataclass(frozen=True, slots=True)
class ValueSelect:
    """How the values of a table's rows are asked for, and made rows of."""

    table: bytes
    shown: bytes
    columns: tuple[tuple[str, Convert], ...]
    has_rowid: bool
    encoder: RowEncoder

    @classmethod
    def of(cls, info: TableInfo, here: DownstreamTable, key: CutKey) -> ValueSelect:
        """`DownstreamError` when the table has not the columns of its definition."""
        shown, columns = [], []
        for column in sorted(info.columns, key=lambda column: column.offset):
            if column.state != SchemaState.PUBLIC or column.hidden or column.is_virtual:
                continue
            source = here.column(column.name)
            if source is None:
                raise DownstreamError(
                    f"upstream table {here.label} shows no column {column.name}, which its definition has",
                    hint="GRANT SELECT on the whole table, publish what was done to it, or leave it out",
                )
            shown.append(value(source))
            columns.append((column.name, converter(column, source)))
        rowless = info.pk_is_handle or info.is_common_handle
        has_rowid = here.dialect is Dialect.TIDB and not rowless
        if has_rowid:
            shown.append(ROWID.encode())
        table = qualified(here.schema, here.name) + index_hint(key)
        return cls(table, b",".join(shown), tuple(columns), has_rowid, RowEncoder(info))

    def read(self, connection: Connection, chunk: Chunk) -> Iterator[list[bytes]]:
        """All rows of a chunk as INSERT rows. Raises `SessionError`, `UnwritableValue`, `RowsLost`."""
        limited = self.table + chunk.where()
        ((count,),) = connection.printed(b"SELECT COUNT(*) FROM " + limited)
        rows: list[bytes] = []
        number = size = 0
        for number, printed in enumerate(
            connection.stream_printed(b"SELECT %b FROM %b" % (self.shown, limited)), 1
        ):
            rows.append(self._encoded(printed, number))
            size += len(rows[-1])
            if len(rows) == ROWS_MAX or size > BYTES_MAX:
                yield rows
                rows, size = [], 0
        check_rows(self.table.decode("utf-8", "replace"), number, int(count or 0))
        if rows:
            yield rows

    def _encoded(self, printed: tuple[bytes | None, ...], number: int) -> bytes:
        values = {
            name: None if text is None else convert(text)
            for (name, convert), text in zip(self.columns, printed, strict=False)
        }
        rowid = int(printed[-1] or 0) if self.has_rowid else number
        return self.encoder.insert(values, rowid)
