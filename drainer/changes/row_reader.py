"""Row reader: encoded rows to `Row`s, by one function for each table version and kind of change.

Out    the same as programs see them (`model`): a function goes from the bytes to the dicts of the images
Holds  the functions of every table version met, found by its identity. A DDL's effect on rows is told by what
       the Drainer itself goes by (`drainer.changes.ddl_effect`): tables are told apart by id, so that a
       rename takes the rows along. A table that the filters leave out is not there: who is renamed from
       there comes with rows that were never given
Why    a program that mirrors rows is wrong for ever after a TRUNCATE PARTITION that it takes for nothing
Never  passes over a row that cannot be right: `RowError` names table and column

Tests  tests/drainer/changes/test_row_reader.py, tests/drainer/changes/test_row_effect.py
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

from drainer import txn
from drainer.changes import ddl_effect
from drainer.changes.ddl_effect import EffectKind
from drainer.changes.model import Column, Ddl, DdlEffect, Kind, Row, Table, Transaction
from drainer.changes.values import PYTHON_TYPES, value_conversion
from drainer.mysql.literal.keys import row_key_places
from drainer.txn import DELETE, INSERT, UPDATE, TableEvents, TableVersion, Tracked
from tidb_binlog import table_info
from tidb_binlog.rowcodec.layout import make_layout
from tidb_binlog.rowcodec.plan import RowReaders
from tidb_binlog.table_info import ColumnKind, TableInfo
from tidb_binlog.type_text import type_text

PLANS_MAX: Final = 10_000
KINDS: Final[dict[int, Kind]] = {INSERT: "insert", UPDATE: "update", DELETE: "delete"}
Read = Callable[[bytes], Row]


def table_of(version: TableVersion) -> Table:
    """What a program is told about a table version."""
    schema, name = version.downstream
    return _table(version.info, schema, name, version.version, version.left_out)


def _table(
    info: TableInfo, schema: str, name: str, version: int | None, left_out: frozenset[int] = frozenset()
) -> Table:
    ordered = sorted(info.columns, key=lambda column: column.offset)
    columns = tuple(_column(column) for column in ordered if column.is_writable and column.id not in left_out)
    return Table(schema, name, columns, key_names(info, left_out), info.id, version)


def _column(column: table_info.Column) -> Column:
    kind = column.type
    has_type = kind.kind is not ColumnKind.UNKNOWN
    return Column(
        column.name,
        type_text(kind) if has_type else f"unknown type {kind.tp}",
        not kind.not_null,
        PYTHON_TYPES[kind.kind] if has_type else object,
        kind.charset,
        kind.collate,
        kind.elems,
        column.default,
        column.id,
    )


def key_names(info: TableInfo, left_out: frozenset[int]) -> tuple[str, ...]:
    """Names of the columns that identify a row."""
    columns = tuple(column for column in info.columns if column.type.kind is not ColumnKind.UNKNOWN)
    layout = make_layout(replace(info, columns=columns), frozenset())
    return tuple(layout.columns[place].name for place in row_key_places(layout, left_out))


class RowPlan:
    """Reads rows of one table version: `read[kind](row)`."""

    table: Table
    read: tuple[Read, Read, Read]

    def __init__(self, version: TableVersion) -> None:
        self.table = table_of(version)
        readers = RowReaders(version.info, value_conversion)
        strict, columns = readers.strict, readers.layout.columns
        places = [place for place, column in enumerate(columns) if column.id not in version.left_out]
        names = [(place, columns[place].name) for place in places]
        table, extra = self.table, {"Row": Row, "TABLE": self.table}

        def image(values: tuple[Any, ...]) -> dict[str, Any]:
            return {name: values[place] for place, name in names}

        def literal(prefix: str) -> str:
            return "{" + ", ".join(f"{name!r}: {prefix}{place}" for place, name in names) + "}"

        def slow_update(row: bytes) -> Row:
            old, new, _ = strict.update(row)
            return Row(table, "update", image(old), image(new))

        of_insert = readers.of_insert(
            places,
            [f"return Row(TABLE, 'insert', None, {literal('v')})"],
            lambda row: Row(table, "insert", None, image(strict.insert(row))),
            extra=extra,
        )
        of_update = readers.of_update(
            places,
            places,
            [f"return Row(TABLE, 'update', {literal('o')}, {literal('v')})"],
            slow_update,
            extra=extra,
        )
        of_delete = readers.of_delete(
            places,
            [f"return Row(TABLE, 'delete', {literal('v')}, None)"],
            lambda row: Row(table, "delete", image(strict.delete(row)), None),
            extra=extra,
        )
        self.read = (of_insert, of_update, of_delete)


class RowReader:
    """Reads what the translator gives. Not for several threads at once."""

    def __init__(self) -> None:
        self._plans: dict[TableVersion, RowPlan] = {}
        self._reads: dict[TableVersion, tuple[Read, Read, Read]] = {}

    def table(self, version: TableVersion) -> Table:
        """The table of rows of this version, always the same object."""
        return self._plan(version).table

    def rows(self, events: TableEvents) -> list[Row]:
        """Rows of one table in one transaction."""
        read = self._reads.get(events.table) or self._plan(events.table).read
        rows = events.rows
        if len(rows) == 1:
            return [read[events.kinds[0]](rows[0])]
        return [read[kind](row) for kind, row in zip(events.kinds, rows, strict=True)]

    def transaction(self, transaction: txn.Transaction) -> Transaction:
        """A whole transaction, or the rows of one piece of a large one."""
        tables = transaction.tables
        if len(tables) == 1:
            rows = self.rows(tables[0])
        else:
            rows = [row for events in tables for row in self.rows(events)]
        return Transaction(transaction.commit_ts, transaction.start_ts, rows, snapshot=transaction.snapshot)

    def ddl(self, ddl: txn.Ddl) -> Ddl:
        """A schema change; tables bear the names that they have downstream. Views and sequences are none, nor
        is what filters leave out."""
        names = dict(zip(ddl.tables, ddl.targets, strict=True)) if ddl.targets else {}

        def tables(definitions: Iterable[Tracked], version: int | None) -> Iterator[Table]:
            for tracked in definitions:
                if (tracked.schema, tracked.name) in ddl.unread:
                    continue
                info = TableInfo.from_json(tracked.document)
                if not (info.is_view or info.is_sequence):
                    schema, name = names.get((tracked.schema, tracked.name), (tracked.schema, tracked.name))
                    yield _table(info, schema, name, version)

        before, after = tuple(tables(ddl.before, None)), tuple(tables(ddl.after, ddl.schema_version))
        change = ddl_effect.effect(ddl.action, ddl_effect.sub_actions(ddl.job))
        kind = change.kind.name.lower().replace("_", " ")
        effect = _effect(change, before, after, stays=bool(ddl.refused))
        return Ddl(ddl.commit_ts, ddl.query, ddl.schema, before, after, ddl.instead, kind, effect)

    def _plan(self, version: TableVersion) -> RowPlan:
        plan = self._plans.get(version)
        if plan is None:
            if len(self._plans) >= PLANS_MAX:
                self._plans.clear()
                self._reads.clear()
            plan = self._plans[version] = RowPlan(version)
            self._reads[version] = plan.read
        return plan


def _effect(
    change: ddl_effect.DdlEffect, before: Sequence[Table], after: Sequence[Table], *, stays: bool
) -> DdlEffect:
    """`before` and `after` are the tables that are read, under the names that they have for the program.
    `stays`: others share the table, which is as it was."""
    by_id = {table.id: table for table in after}
    if change.kind in (
        EffectKind.ALTER,
        EffectKind.EXCHANGE,
    ):  # PARTITION BY gives another id, not other rows
        by_id |= {old.id: new for old in before for new in after if str(old) == str(new)}
    pairs = [(old, by_id[old.id]) for old in before if old.id in by_id]
    moved = tuple((old, new) for old, new in pairs if str(old) != str(new))
    gone = [old for old in before if old.id not in by_id]
    anew = []
    if change.replaces_rows:
        anew = list(after)
    elif change.kind is EffectKind.RENAME:
        had = {table.id for table in before}
        anew = [table for table in after if table.id not in had]
    elif change.modifies_columns:  # values became others where the column became another one
        had = {column.id for table in before for column in table.columns}
        anew = [table for table in after if {column.id for column in table.columns} - had]
    if stays:
        gone, anew = [], [*gone, *anew]
    return DdlEffect(moved, tuple(gone), tuple(anew), everything=change.kind is EffectKind.REWIND)
