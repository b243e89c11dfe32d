"""Literal rows: the rows of a chunk as the server itself writes them for INSERT, many in one value.

Drives  one session, which has the chunk's table in sight; ends no transaction of it
Out     `(1,'abc',NULL),(2,..)` with the number of its rows; None instead of a way if one column is not exact.
        A row whose literal the server cannot make is counted and is not there: who writes the rows compares
        how many were written
Holds   what is stored is what a Drainer would store of the same rows (`drainer.mysql.literal`). A
        value of GROUP_CONCAT that has reached its limit is thrown away, and the rows come one by one
Why     Python spends no time on a row: it joins what servers have written

Exact means: the column is on both servers what the definition says, and the server there has every text of
the server here. Not exact is JSON, but for a TiDB's: each server prints it in a way of its own, a Drainer
writes it in TiDB's. Text of a TiDB may be no UTF-8: `NotLiteral`, and the chunk has to be read as values.

Tests  tests/drainer/mysql/chunks/test_both_ways.py
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from drainer.mysql.chunks.chunk import Chunk, check_rows
from drainer.mysql.chunks.cut_key import CutKey
from drainer.mysql.chunks.printed import Family, family_of, literal
from drainer.mysql.chunks.splitter import index_hint
from drainer.mysql.connection import Connection
from drainer.mysql.literal.charset import Charset
from drainer.mysql.literal.downstream_column import DownstreamColumn
from drainer.mysql.literal.literals import ENUM_ZERO
from drainer.mysql.literal.quoting import qualified
from drainer.mysql.rows.column_match import DownstreamTable
from drainer.mysql.rows.dialect import Dialect
from tidb_binlog.late_dataclass import dataclass
from tidb_binlog.table_info import Column, ColumnKind

BYTES_MAX: Final = 8 << 20
"""Of one value; a chunk with more comes row by row."""
_AT_LIMIT: Final = 16  # a value is cut between two characters
_ROWS_GATHERED: Final = 1000
_REPLACED: Final = "\ufffd".encode()
"""What QUOTE of a TiDB makes of octets that are no UTF-8."""
# GROUP_CONCAT keeps its argument in a field as wide as the argument is thought to become, and cuts off the
# rest without a word. MySQL takes QUOTE(c) for two characters longer than c, and a double for 22 characters.
# A row is NULL only where its literal cannot be made; what stands for NULL makes the field wide.
_WIDE: Final = b"IFNULL(%b,SPACE(16777216))"

_NAMES: Final = frozenset(family.value for family in Family)
_FAMILIES: Final = {
    **{kind: Family(kind.value) for kind in ColumnKind if kind.value in _NAMES},
    **dict.fromkeys((ColumnKind.SIGNED, ColumnKind.UNSIGNED), Family.INTEGER),
    **dict.fromkeys((ColumnKind.FLOAT, ColumnKind.DOUBLE), Family.FLOATING),
    ColumnKind.BINARY: Family.BINARY,
}
_SAME_IN_BOTH: Final = frozenset({"latin1", "ascii", "utf8", "utf8mb3"})


class NotLiteral(Exception):
    """The server cannot write the rows of the chunk: a text is no UTF-8, so it cannot stand in a statement;
    or the literal of a row would be larger than max_allowed_packet."""


@dataclass(frozen=True, slots=True)
class LiteralRows:
    """`sql` is what follows VALUES in an INSERT. `lax`: it has ENUM values that strict mode refuses."""

    count: int
    sql: bytes
    lax: bool = False


@dataclass(frozen=True, slots=True)
class LiteralSelect:
    """How the literals of a table's rows are asked for."""

    table: bytes
    row: bytes

    @classmethod
    def of(
        cls, columns: Sequence[Column], here: DownstreamTable, destination: DownstreamTable, key: CutKey
    ) -> LiteralSelect | None:
        """For `columns` of an INSERT into `destination`, in order, read from `here`; None: not exact."""
        shown = []
        for column in columns:
            source, target = here.column(column.name), destination.column(column.name)
            if source is None or target is None:
                return None
            if not _is_exact(column, source, here.dialect, target, destination.dialect):
                return None
            shown.append(literal(source, here.dialect))
        table = qualified(here.schema, here.name) + index_hint(key)
        # A collation that is said goes before those of the columns, which may not go together.
        row = b"CONCAT('(' COLLATE utf8mb4_bin,%b,')')" % b",',',".join(shown) if shown else b"'()'"
        return cls(table, row if here.dialect is Dialect.TIDB else _WIDE % row)

    def read(self, connection: Connection, chunk: Chunk, bytes_max: int = BYTES_MAX) -> Iterator[LiteralRows]:
        """All rows of a chunk. Raises `SessionError`, `NotLiteral`, `RowsLost`."""
        where = self.table + chunk.where()
        connection.run(b"SET SESSION group_concat_max_len=%d" % bytes_max)
        query = b"SELECT COUNT(*),GROUP_CONCAT(%b) FROM %b" % (self.row, where)
        ((count, sql),) = connection.printed(query)
        if count == b"0":
            return
        if sql is not None and len(sql) < bytes_max - _AT_LIMIT:
            yield _checked(int(count or 0), sql)
            return
        gathered: list[bytes] = []
        size = number = 0
        for (row,) in connection.stream_printed(b"SELECT %b FROM %b" % (self.row, where)):
            if row is None or not row.startswith(b"("):
                raise NotLiteral
            gathered.append(row)
            number += 1
            size += len(row)
            if len(gathered) == _ROWS_GATHERED or size > bytes_max // 8:
                yield _checked(len(gathered), b",".join(gathered))
                gathered, size = [], 0
        check_rows(self.table.decode("utf-8", "replace"), number, int(count or 0))
        if gathered:
            yield _checked(len(gathered), b",".join(gathered))


def _checked(count: int, sql: bytes) -> LiteralRows:
    if _REPLACED in sql:
        raise NotLiteral
    if not sql.isascii():
        try:
            sql.decode()
        except UnicodeDecodeError:
            raise NotLiteral from None
    return LiteralRows(count, sql, lax=ENUM_ZERO in sql)


def _is_exact(
    column: Column, here: DownstreamColumn, from_: Dialect, destination: DownstreamColumn, to: Dialect
) -> bool:
    family = _FAMILIES.get(column.type.kind)
    if destination.fills_null and here.nullable:  # the Drainer's way sees the NULL
        return False
    if family is None or family_of(here) is not family:
        return False
    if family is Family.JSON:
        return from_ is Dialect.TIDB and (family_of(destination) is family or destination.checks_json)
    if family_of(destination) is not family:
        return False
    if (
        family in (Family.TEXT, Family.ENUM)
        and to is not Dialect.TIDB
        and Charset.is_narrow(destination.charset)
    ):
        return (
            from_ is not Dialect.TIDB
            and here.charset == destination.charset
            and here.charset in _SAME_IN_BOTH
        )
    return True
