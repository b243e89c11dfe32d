"""Row sums: what tables must hold after an image and the changes after it, without holding their rows.

In     row events and schema changes in the order in which they were applied; the columns to compare
Out    of each table downstream: how many rows, and the sum of a hash of each in canonical form
Holds  rows that come add their hash and rows that go take it away, so the order does not matter and a table
       without a key is summed like any other. Equal tables have equal sums
Never  guesses: after a schema change that may have changed rows by itself a table is `unknown`, with the
       statement
Tests  tests/drainer/points/restore/test_row_sums.py
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from hashlib import blake2b
from typing import Any, Final

from drainer.changes import canonical
from drainer.changes.canonical import Canonical
from drainer.changes.ddl_effect import EffectKind
from drainer.changes.statement_effect import statement_effect
from drainer.txn import DELETE, INSERT, Ddl, TableEvents, TableVersion, Transaction
from tidb_binlog.late_dataclass import dataclass
from tidb_binlog.rowcodec.plan import TablePlan

Name = tuple[str, str]
_BITS: Final = 64


@dataclass(slots=True)
class TableSum:
    """`columns`: name in lower case to form, of what is compared, by name. `lacking`: names of what is not,
    since the destination computes it or has it not. `unknown`: why nothing is."""

    columns: dict[str, str]
    rows: int = 0
    total: int = 0
    unknown: str = ""
    lacking: frozenset[str] = frozenset()

    def add(self, packed: bytes) -> None:
        self.rows += 1
        self.total = (self.total + hash_of(packed)) % (1 << _BITS)

    def take(self, packed: bytes) -> None:
        self.rows -= 1
        self.total = (self.total - hash_of(packed)) % (1 << _BITS)

    def differs_from(self, actual: TableSum) -> str:
        """In words; "" if it does not."""
        if self.rows != actual.rows:
            return f"{self.rows:,} rows are to be there, and {actual.rows:,} are"
        if self.total != actual.total:
            return f"its {self.rows:,} rows are not all what they are to be"
        return ""


def hash_of(packed: bytes) -> int:
    return int.from_bytes(blake2b(packed, digest_size=8).digest(), "big")


def packed(values: Iterable[tuple[str, Canonical]]) -> bytes:
    """A row for `hash_of`, from canonical values by name."""
    return canonical.pack([value for _, value in sorted(values)])


Compared = Callable[[Name], frozenset[str] | None]
"""Names in lower case of a table's columns downstream that hold what was written; None: no such table."""


class RowSums:
    """`compared` is asked when the first rows of a table come."""

    def __init__(self, compared: Compared) -> None:
        self._compared = compared
        self._plans: dict[TableVersion, _Plan] = {}
        self.tables: dict[Name, TableSum] = {}

    def take(self, transaction: Transaction) -> None:
        """Raises `RowError`."""
        for events in transaction.tables:
            self._take(events)

    def know(self, version: TableVersion) -> None:
        """A table that is there, perhaps without rows."""
        self._sum(version)

    def _take(self, events: TableEvents) -> None:
        plan, table_sum = self._sum(events.table)
        if table_sum.unknown:
            return
        for kind, row in zip(events.kinds, events.rows, strict=True):
            if kind == INSERT:
                table_sum.add(plan.packed(plan.table.decode_insert(row)))
            elif kind == DELETE:
                table_sum.take(plan.packed(plan.table.decode_delete(row)))
            else:
                old, new = plan.table.decode_update(row)
                table_sum.take(plan.packed(old))
                table_sum.add(plan.packed(new))

    def _sum(self, version: TableVersion) -> tuple[_Plan, TableSum]:
        name = _name(version.downstream)
        plan = self._plans.get(version)
        table_sum = self.tables.get(name)
        if plan is None or table_sum is None:
            plan = self._plans[version] = _Plan(version, self._compared(name) or frozenset())
            table_sum = self.tables.setdefault(name, TableSum(plan.columns))
            table_sum.lacking |= plan.lacking
        if table_sum.columns != plan.columns and not table_sum.unknown:
            if table_sum.rows:
                table_sum.unknown = "its columns changed"
            else:
                table_sum.columns = plan.columns
        return plan, table_sum

    # -- schema changes --------------------------------------------------------------------------

    def pass_ddl(self, ddl: Ddl) -> None:
        """One that was run downstream."""
        if ddl.skip:
            return
        routed = dict(zip(ddl.tables, ddl.targets, strict=True)) if ddl.targets else {}
        names = [_name(routed.get(name, name)) for name in ddl.tables]
        done = statement_effect(ddl.query, ddl.schema, ddl.action)
        if done is None:
            self._doubt(names, ddl)
        elif done.kind is EffectKind.DROP_DATABASE:
            gone = {name for name, table in names if not table}
            self.tables = {name: table_sum for name, table_sum in self.tables.items() if name[0] not in gone}
        elif done.kind is EffectKind.RENAME:
            self._move([(routed.get(a, a), routed.get(b, b)) for a, b in done.renamed])
        elif done.takes_rows_away:
            for name in names:
                table_sum = self.tables.pop(name, None)
                if table_sum is not None and done.kind is EffectKind.TRUNCATE:
                    self.tables[name] = TableSum(table_sum.columns, lacking=table_sum.lacking)
        elif done.replaces_rows or done.modifies_columns:
            self._doubt(names, ddl)

    def _move(self, pairs: Sequence[tuple[Name, Name]]) -> None:
        for old, new in pairs:
            table_sum = self.tables.pop(_name(old), None)
            if table_sum is not None:
                self.tables[_name(new)] = table_sum

    def _doubt(self, names: list[Name], ddl: Ddl) -> None:
        for name in names or list(self.tables):
            table_sum = self.tables.get(name)
            if table_sum is not None and table_sum.rows:
                table_sum.unknown = f"a schema change may have changed its rows: {ddl.query:.100}"


def _name(name: Name) -> Name:
    return name[0].lower(), name[1].lower()


class _Plan:
    """How rows of one table version are read and put into canonical form."""

    def __init__(self, version: TableVersion, columns_there: frozenset[str]) -> None:
        self.table = TablePlan(version.info)
        written = [
            (column.name.lower(), place, canonical.form_of(column.type))
            for place, column in enumerate(self.table.columns)
            if column.id not in version.left_out
        ]
        kept = [entry for entry in written if entry[0] in columns_there]
        self.lacking = frozenset(name for name, _, _ in written) - columns_there
        self.columns = {name: form for name, _, form in kept}
        self._places = [(name, place, canonical.OF_IMAGE[form]) for name, place, form in kept]

    def packed(self, values: Sequence[Any]) -> bytes:
        return packed(
            (name, None if values[place] is None else make(values[place]))
            for name, place, make in self._places
        )
