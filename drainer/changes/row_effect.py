"""Row effect: what a schema change does to rows that no row change says, as programs see it.

In     the DDL of the stream, its tables as programs see them
Out    `DdlEffect`, and the kind in words
Holds  by what the Drainer itself goes by (`drainer.schema.ddl_effect`): tables are told apart by id, so
       that a rename takes the rows along, and one that swaps two names swaps them. A table that the filters
       leave out is not there: who is renamed from there comes with rows that were never given
Why    a program that mirrors rows is wrong for ever after a TRUNCATE PARTITION that it takes for nothing

Tests  tests/drainer/changes/test_row_effect.py
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from drainer.changes.model import DdlEffect, Table
from drainer.schema.ddl_effect import EffectKind, effect, sub_actions
from drainer.txn import Ddl

_BRINGS_ROWS: Final = (
    EffectKind.RECOVER_DATABASE,
    EffectKind.RECOVER,
    EffectKind.RESTORE,
    EffectKind.EXCHANGE,
)
_KEEPS_TABLES: Final = (EffectKind.ALTER, EffectKind.EXCHANGE)


def kind_of(ddl: Ddl) -> str:
    """In words: "create", "truncate", "drop database"; "alter" for all that has no other word."""
    return effect(ddl.action).kind.name.lower().replace("_", " ")


def row_effect(ddl: Ddl, before: Sequence[Table], after: Sequence[Table]) -> DdlEffect:
    """`before` and `after` are the tables that are read, under the names that they have for the program."""
    change = effect(ddl.action, sub_actions(ddl.job))
    there = {table.id: table for table in after}
    if change.kind in _KEEPS_TABLES:  # PARTITION BY and EXCHANGE give a table another id, not other rows
        there |= {old.id: new for old in before for new in after if str(old) == str(new)}
    pairs = [(old, there[old.id]) for old in before if old.id in there]
    moved = tuple((old, new) for old, new in pairs if str(old) != str(new))
    gone = [old for old in before if old.id not in there]
    anew = []
    if change.kind in _BRINGS_ROWS or change.empties_partitions or change.drops_partitions:
        anew = list(after)
    elif change.kind is EffectKind.RENAME:
        had = {table.id for table in before}
        anew = [table for table in after if table.id not in had]
    elif change.modifies_columns:  # values became others where the column became another one
        had = {column.id for table in before for column in table.columns}
        anew = [table for table in after if {column.id for column in table.columns} - had]
    if ddl.refused:  # others share the table, which is as it was
        gone, anew = [], [*gone, *anew]
    return DdlEffect(moved, tuple(gone), tuple(anew), everything=change.kind is EffectKind.REWIND)
