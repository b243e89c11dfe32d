"""Model: what every table must hold, in commit order, with locks that make the sessions serialisable. Pure.

A transaction is planned in one go against the committed contents and locks every row and unique key that it
touches, old and new ones, until it has its commit timestamp; a key that another transaction holds is simply
not chosen. So the order of commits on any key is the order in which the model applies them, and the model is
what a replica must show. A DDL closes its table to new transactions and runs when the last one has ended.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from random import Random
from types import MappingProxyType

from binlog_playground.check.verify import ColumnForm, ExpectedTable
from tests.rig.workload.kinds import Value
from tests.rig.workload.tables import Table
from tests.rig.workload.values import same_key, shown

INSERT = 0
UPDATE = 1
DELETE = 2

Row = tuple[Value, ...]
UniqueKey = tuple[str, tuple[Value, ...]]  # index name, what the index keeps of each column


@dataclass(frozen=True, slots=True)
class Change:
    """One row change; `old` is None for an insert, `new` for a delete."""

    table: Table
    kind: int
    row_id: int
    old: Row | None
    new: Row | None


def unique_keys(table: Table, row: Row) -> list[UniqueKey]:
    """The row's keys in every unique index; an index with a NULL in it has none."""
    keys: list[UniqueKey] = []
    for name, parts in table.unique_parts:
        if any(row[position] is None for position, _ in parts):
            continue
        kept = (same_key(table.columns[at].kind, row[at], length) for at, length in parts)
        keys.append((name, tuple(kept)))
    return keys


class TableState:
    """Committed rows of one table by an internal row id, and who holds which of its locks."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self.rows: dict[int, Row] = {}
        self.owners: dict[UniqueKey, int] = {}
        self.locked_rows: set[int] = set()
        self.locked_keys: set[UniqueKey] = set()
        self.in_flight = 0
        self.closed = False  # a DDL waits or runs
        self.reserved = False  # not for random transactions
        self.last_row_id = 0
        self._order: list[int] = []
        self._where: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self.rows)

    def random_row_id(self, random: Random) -> int | None:
        return random.choice(self._order) if self._order else None

    def put(self, row_id: int, row: Row) -> None:
        self.remove(row_id)
        self._where[row_id] = len(self._order)
        self._order.append(row_id)
        self.rows[row_id] = row
        for key in unique_keys(self.table, row):
            assert key not in self.owners, f"{self.table.name}: two rows with key {key}"
            self.owners[key] = row_id

    def fill(self, rows: Iterable[Row]) -> list[Row]:
        """Add those of the rows whose unique keys are free, as if they had been there always; these."""
        added = []
        for row in rows:
            if not any(key in self.owners for key in unique_keys(self.table, row)):
                self.last_row_id += 1
                self.put(self.last_row_id, row)
                added.append(row)
        return added

    def remove(self, row_id: int) -> None:
        row = self.rows.pop(row_id, None)
        if row is None:
            return
        at, last = self._where.pop(row_id), self._order.pop()
        if last != row_id:
            self._order[at] = last
            self._where[last] = at
        for key in unique_keys(self.table, row):
            del self.owners[key]

    def become(self, table: Table, rewrite: Callable[[Row], Row] | None) -> None:
        """Take a new definition, with every row rewritten for it; None empties the table."""
        assert not self.locked_rows
        assert not self.locked_keys
        rows = {} if rewrite is None else {row_id: rewrite(row) for row_id, row in self.rows.items()}
        self.table = table
        self.rows, self.owners, self._order, self._where = {}, {}, [], {}
        for row_id, row in rows.items():
            self.put(row_id, row)


@dataclass(slots=True)
class _Overlay:
    """What one transaction has done to one table so far."""

    rows: dict[int, Row | None] = field(default_factory=dict)
    owners: dict[UniqueKey, int | None] = field(default_factory=dict)
    locked_rows: set[int] = field(default_factory=set)
    locked_keys: set[UniqueKey] = field(default_factory=set)


class Transaction:
    """One transaction being planned: sees its own changes, holds its locks until `Model.end`."""

    def __init__(self) -> None:
        self.changes: list[Change] = []
        self._overlays: dict[TableState, _Overlay] = {}

    @property
    def states(self) -> list[TableState]:
        return list(self._overlays)

    def row(self, state: TableState, row_id: int) -> Row | None:
        overlay = self._overlays.get(state)
        if overlay is not None and row_id in overlay.rows:
            return overlay.rows[row_id]
        return state.rows.get(row_id)

    def pick(self, state: TableState, random: Random) -> int | None:
        """A row that this transaction may change; often one that it has changed already."""
        overlay = self._overlays.get(state)
        if overlay is not None and overlay.rows and random.random() < 0.3:
            own = random.choice(list(overlay.rows))
            if overlay.rows[own] is not None:
                return own
        for _ in range(5):
            row_id = state.random_row_id(random)
            if row_id is None:
                return None
            if self._may_lock_row(state, row_id) and self.row(state, row_id) is not None:
                return row_id
        return None

    def insert(self, state: TableState, row: Row) -> int | None:
        """Add a row; None if one of its unique keys is taken or held by another transaction."""
        keys = unique_keys(state.table, row)
        if not self._free(state, keys, None):
            return None
        state.last_row_id += 1
        self._change(state, INSERT, state.last_row_id, None, row, [], keys)
        return state.last_row_id

    def update(self, state: TableState, row_id: int, row: Row) -> bool:
        """Give a row new values; False if it, or a key of either image, is not to be had."""
        old = self.row(state, row_id)
        if old is None or old == row or not self._may_lock_row(state, row_id):
            return False
        old_keys, new_keys = unique_keys(state.table, old), unique_keys(state.table, row)
        if not self._free(state, new_keys, row_id) or not self._free(state, old_keys, row_id):
            return False
        self._change(state, UPDATE, row_id, old, row, old_keys, new_keys)
        return True

    def delete(self, state: TableState, row_id: int) -> bool:
        old = self.row(state, row_id)
        if old is None or not self._may_lock_row(state, row_id):
            return False
        keys = unique_keys(state.table, old)
        if not self._free(state, keys, row_id):
            return False
        self._change(state, DELETE, row_id, old, None, keys, [])
        return True

    def _may_lock_row(self, state: TableState, row_id: int) -> bool:
        overlay = self._overlays.get(state)
        mine = overlay is not None and row_id in overlay.locked_rows
        return mine or row_id not in state.locked_rows

    def _free(self, state: TableState, keys: list[UniqueKey], owner: int | None) -> bool:
        """No other transaction holds these keys, and no row but `owner` has them."""
        overlay = self._overlays.get(state)
        for key in keys:
            if key in state.locked_keys and (overlay is None or key not in overlay.locked_keys):
                return False
            has = overlay.owners[key] if overlay and key in overlay.owners else state.owners.get(key)
            if has is not None and has != owner:
                return False
        return True

    def _change(
        self,
        state: TableState,
        kind: int,
        row_id: int,
        old: Row | None,
        new: Row | None,
        old_keys: list[UniqueKey],
        new_keys: list[UniqueKey],
    ) -> None:
        overlay = self._overlays.get(state)
        if overlay is None:
            overlay = self._overlays[state] = _Overlay()
            state.in_flight += 1
        overlay.locked_rows.add(row_id)
        overlay.locked_keys.update(old_keys, new_keys)
        state.locked_rows.add(row_id)
        state.locked_keys.update(old_keys, new_keys)
        overlay.owners.update(dict.fromkeys(old_keys))
        overlay.owners.update(dict.fromkeys(new_keys, row_id))
        overlay.rows[row_id] = new
        self.changes.append(Change(state.table, kind, row_id, old, new))

    def _release(self) -> Iterator[tuple[TableState, _Overlay]]:
        for state, overlay in self._overlays.items():
            state.locked_rows -= overlay.locked_rows
            state.locked_keys -= overlay.locked_keys
            state.in_flight -= 1
            yield state, overlay


class Model:
    """All tables of the demo, by name."""

    def __init__(self, schema: str) -> None:
        self.schema = schema
        self.tables: dict[str, TableState] = {}
        self.transactions = 0
        self.rows_changed = 0

    def add(self, table: Table) -> TableState:
        assert table.name not in self.tables
        state = self.tables[table.name] = TableState(table)
        return state

    def drop(self, name: str) -> None:
        del self.tables[name]

    def rename(self, name: str, table: Table) -> None:
        state = self.tables.pop(name)
        state.table = table
        self.tables[table.name] = state

    def open_tables(self) -> list[TableState]:
        """Tables that a new random transaction may use."""
        return [state for state in self.tables.values() if not (state.closed or state.reserved)]

    def end(self, transaction: Transaction, *, committed: bool) -> None:
        """The transaction has its outcome: apply it or forget it, and release its locks.

        Must be called in the order of the commit timestamps of transactions that touch the same keys, which
        it is when the locks are held until the timestamp is known.
        """
        for state, overlay in transaction._release():
            if not committed:
                continue
            # All removals first: a key may have moved from one row to another.
            for row_id in overlay.rows:
                state.remove(row_id)
            for row_id, row in overlay.rows.items():
                if row is not None:
                    state.put(row_id, row)
        if committed:
            self.transactions += 1
            self.rows_changed += len(transaction.changes)

    def expected(self, targets: Mapping[str, str] = MappingProxyType({})) -> list[ExpectedTable]:
        """The contents as the comparison wants them. `targets`: names downstream, where they are others."""
        found: dict[str, ExpectedTable] = {}
        for state in self.tables.values():
            table = self._expected(state)
            name = targets.get(table.name, table.name)
            rows = [*found[name].rows, *table.rows] if name in found else table.rows
            found[name] = replace(table, name=name, rows=rows)
        return list(found.values())

    @staticmethod
    def _expected(state: TableState) -> ExpectedTable:
        table = state.table
        kinds = [column.kind for column in table.columns]
        columns = tuple(ColumnForm(c.name, c.kind.repr, c.kind.sql.lower()) for c in table.columns)
        rows = [tuple(shown(k, v) for k, v in zip(kinds, row, strict=True)) for row in state.rows.values()]
        return ExpectedTable(table.schema, table.name, columns, table.primary, rows)
