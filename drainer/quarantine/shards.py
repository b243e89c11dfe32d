"""Shards: whether a DDL of one of several tables that share a target leaves room for the rows of the others.

In     a DDL with what it changes, the definitions by which rows of the other tables are still to come
Out    what is in its way, a line each; nothing where all their rows fit in the target afterwards
Holds  a type that is not known to hold another one does not: the DDL waits, which loses nothing
Why    a table downstream that has lost a column, or refuses NULL, has no place for rows of a table upstream
       that still has it: the statement runs once the last one has had it, as in TiDB DM's merge of shards

Rows that wait come by the definitions of the DDL before them, so those count too. After a start nothing is
said before the stream is where it was: what the others are is not known earlier.

Tests  tests/drainer/quarantine/test_shards.py
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from common import table_info as ti
from common.table_info import Column, FieldType, TableInfo
from drainer.quarantine.entry import SHARED, Name, name_of
from drainer.quarantine.waiting_tables import Quarantine
from drainer.txn import Ddl, Tracked

Sharing = Callable[[Sequence[Name]], tuple[Tracked, ...]]
"""The other tables, as they are now, that go to the targets of these."""

_SIZES: Final = (
    {size: rank for rank, size in enumerate((ti.TINY, ti.SHORT, ti.INT24, ti.LONG, ti.LONGLONG))},
    {size: rank for rank, size in enumerate((ti.TINY_BLOB, ti.BLOB, ti.MEDIUM_BLOB, ti.LONG_BLOB))},
    {size: rank for rank, size in enumerate((ti.FLOAT, ti.DOUBLE))},
)
_BY_LENGTH: Final = frozenset({ti.VARCHAR, ti.VAR_STRING, ti.STRING, ti.BIT})
_BY_DIGITS: Final = frozenset({ti.TIMESTAMP, ti.DATETIME, ti.TIME})


class Shards:
    """`sharing` gives the others as they are now; without it they are as they were when the DDL came."""

    def __init__(self, quarantine: Quarantine, sharing: Sharing | None) -> None:
        self._quarantine = quarantine
        self._sharing = sharing

    def in_the_way(self, ddl: Ddl) -> str:
        """Why it cannot run yet; "" where it can."""
        if not ddl.shared or ddl.skip or ddl.refused:
            return ""
        if not self._quarantine.is_where_it_was:
            return f"{SHARED} the stream has yet to come to where it was"
        shared = self._sharing(ddl.tables) if self._sharing is not None else ddl.shared
        names = {name_of(one.schema, one.name) for one in shared}
        pending = [
            one
            for kept in self._quarantine.pending()
            for one in kept.after
            if name_of(one.schema, one.name) in names
        ]
        lines = dict.fromkeys(line for other in (*shared, *pending) for line in unfit(ddl, other))
        return f"{SHARED} {'; '.join(lines)}" if lines else ""


def unfit(ddl: Ddl, other: Tracked) -> Iterator[str]:
    """What rows of another table have or lack that would not fit in the target afterwards."""
    theirs = TableInfo.from_json(other.document)
    for after in ddl.after:
        same = (one for one in ddl.before if one.id == after.id or one.name.lower() == after.name.lower())
        before = next((TableInfo.from_json(one.document) for one in same), None)
        for line in _lines(before, TableInfo.from_json(after.document), theirs):
            yield f"{other.schema}.{other.name} {line}"


def _lines(before: TableInfo | None, after: TableInfo, theirs: TableInfo) -> Iterator[str]:
    old, new, other = (_columns(info) for info in (before, after, theirs))
    for name in old.keys() - new.keys() & other.keys():
        yield f"still has column {name}"
    for name, column in new.items():
        if name in old and old[name].type == column.type:
            continue
        their = other.get(name)
        if their is None:
            if column.type.not_null and column.type.flag & ti.FLAG_NO_DEFAULT:
                yield f"has no column {name}, which is NOT NULL and has no default"
        elif not holds(column.type, their.type):
            yield f"has column {name} of another type"
        elif column.type.not_null and not their.type.not_null:
            yield f"has column {name} with NULL"
    for key in sorted(_keys(after) - _keys(before) - _keys(theirs)):
        yield f"has no unique key ({', '.join(column for column, _ in key)})"


def _columns(info: TableInfo | None) -> dict[str, Column]:
    return {each.name.lower(): each for each in info.columns if each.is_writable} if info else {}


def _keys(info: TableInfo | None) -> set[tuple[tuple[str, int], ...]]:
    """Of each unique key its columns, with the lengths of prefixes."""
    if info is None:
        return set()
    keys = {tuple((part.name.lower(), part.length) for part in key.columns) for key in info.unique_indexes}
    handle = info.handle_column
    return keys | ({((handle.name.lower(), ti.WHOLE_COLUMN),)} if handle is not None else set())


def holds(wide: FieldType, narrow: FieldType) -> bool:
    """Whether each value of one type is the same value of the other."""
    if (wide.charset, wide.collate, wide.unsigned) != (narrow.charset, narrow.collate, narrow.unsigned):
        return False
    for sizes in _SIZES:
        if wide.tp in sizes and narrow.tp in sizes:
            return sizes[wide.tp] >= sizes[narrow.tp] and wide.decimal == narrow.decimal
    if wide.tp != narrow.tp:
        return False
    if wide.tp in (ti.ENUM, ti.SET):
        return wide.elems[: len(narrow.elems)] == narrow.elems
    if wide.tp in _BY_LENGTH:
        return wide.flen >= narrow.flen
    if wide.tp in _BY_DIGITS:
        return wide.fsp >= narrow.fsp
    if wide.tp == ti.DECIMAL:
        whole = wide.flen - wide.decimal >= narrow.flen - narrow.decimal
        return whole and wide.decimal >= narrow.decimal
    return True
