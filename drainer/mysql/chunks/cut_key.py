"""Cut key: the columns by whose order a table is cut into chunks.

Out    the key to cut by for copying, and for comparing; without one the table is read whole
Holds  columns of a cut key are never NULL, so that every row lies between two of its places
Why    to copy, any order will do as long as it is one server's. To compare, a place has to part the rows of
       both servers alike: numbers, times, binary strings, and text whose collation has the same name there
       and is one of those that sort alike everywhere. The first columns of a key may do where a later one
       does not: then several rows may have one place

Never  cut by: ENUM and SET (compared with a literal as text, sorted by number), FLOAT and DOUBLE (servers
       print and read them differently), a part of a column
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final

from drainer.mysql.chunks.printed import TIMES, Family, family_of, literal
from drainer.mysql.literal.downstream_column import DownstreamColumn
from drainer.mysql.rows.column_match import DownstreamTable, UniqueKey
from tidb_binlog.late_dataclass import dataclass

ROWID: Final = "_tidb_rowid"
"""What rows of a TiDB table without clustered key lie in the order of."""

_NUMBERS: Final = frozenset({Family.INTEGER, Family.YEAR, Family.BIT, Family.DECIMAL})
_CUTTING: Final = _NUMBERS | TIMES | {Family.BINARY, Family.TEXT}
_SORTED_ALIKE: Final = frozenset(
    {
        *("utf8mb4_bin", "utf8mb4_general_ci", "utf8mb3_bin", "utf8mb3_general_ci"),
        *("utf8_bin", "utf8_general_ci", "ascii_bin"),
    }
)


@dataclass(frozen=True, slots=True)
class CutColumn:
    """`literal`: expression of the column's literal, as a place has it."""

    name: str
    literal: bytes
    is_integer: bool = False


@dataclass(frozen=True, slots=True)
class CutKey:
    """`index` is the name of the index that has this order, "" where none need be named; `unique`: no two
    rows have one place."""

    columns: tuple[CutColumn, ...]
    index: str = ""
    unique: bool = True

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)

    @property
    def is_integer(self) -> bool:
        """One integer, whose range can be divided."""
        return len(self.columns) == 1 and self.columns[0].is_integer


WHOLE: Final = CutKey(())
"""The table is one chunk."""


def key_to_copy(table: DownstreamTable, *, hidden_rowid: bool = False) -> CutKey:
    """How to cut a table for reading it once. `hidden_rowid`: it is a TiDB's without clustered key."""
    if hidden_rowid:
        return CutKey((CutColumn(ROWID, ROWID.encode(), is_integer=True),))
    return _best(table, lambda column: True)


def key_to_compare(
    table: DownstreamTable, other: DownstreamTable, changed: Collection[str] = frozenset()
) -> CutKey:
    """How to cut `table` so that its chunks are those of `other`, too.

    `changed` are columns, in lower case, whose values are others there: masked ones.
    """

    def sorted_alike(column: DownstreamColumn) -> bool:
        counterpart = other.column(column.name)
        return (
            counterpart is not None
            and column.name.lower() not in changed
            and _sorted_alike(column, counterpart)
        )

    return _best(table, sorted_alike)


def _best(table: DownstreamTable, usable: Callable[[DownstreamColumn], bool]) -> CutKey:
    """Of the keys that identify a row the first that can be used whole, else the longest beginning of one."""
    keys = [_cut_key(table, key, usable) for key in table.unique_keys]
    whole = [key for key in keys if key.unique and key.columns]
    integers = [key for key in whole if key.is_integer and key.index == "PRIMARY"]
    return next(iter(integers or whole), max(keys, key=lambda key: len(key.columns), default=WHOLE))


def _cut_key(table: DownstreamTable, key: UniqueKey, usable: Callable[[DownstreamColumn], bool]) -> CutKey:
    columns = []
    for part in key.parts:
        column = table.column(part.column) if part.column is not None else None
        if column is None or part.length is not None or column.nullable:
            break
        if family_of(column) not in _CUTTING or not usable(column):
            break
        is_integer = family_of(column) is Family.INTEGER
        columns.append(CutColumn(column.name, literal(column, table.dialect), is_integer))
    return CutKey(tuple(columns), key.name, unique=len(columns) == len(key.parts)) if columns else WHOLE


def _sorted_alike(first: DownstreamColumn, second: DownstreamColumn) -> bool:
    family = family_of(first)
    if family is Family.TEXT:
        same = _collation(first) == _collation(second)
        return same and family_of(second) is family and first.collation in _SORTED_ALIKE
    if family in _NUMBERS:
        return family_of(second) in _NUMBERS and first.digits <= second.digits
    if family is Family.BINARY:  # BINARY(n) is filled up
        return (first.type, first.length) == (second.type, second.length)
    return family_of(second) is family and first.digits == second.digits


def _collation(column: DownstreamColumn) -> str:
    """MySQL 8 and MariaDB call three bytes utf8mb3, TiDB and older ones utf8."""
    return column.collation.replace("utf8mb3_", "utf8_")
