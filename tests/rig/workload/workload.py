"""Workload: what random sessions do: transactions planned on the model by a seeded generator. Pure.

Each plan is one transaction of a few statements of mixed forms (inserts, updates, deletes, moves and swaps of
keys, the same row changed several times) and what is to become of it.

Tests  tests/rig/workload/test_model.py
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from random import Random
from typing import Final

from tests.rig.workload.kinds import Value
from tests.rig.workload.model import Model, Row, TableState, Transaction
from tests.rig.workload.tables import SHARD, Column, Table
from tests.rig.workload.values import random_value, random_word

STATEMENTS_MAX: Final = 6
ROWS_WANTED: Final = 600  # a table grows to about this many rows, then deletes keep it there
NULL_SHARE: Final = 0.1
KEY_SPACE: Final = 2000
PLAN_TRIES: Final = 20


class Ending(Enum):
    """What becomes of a transaction after its prewrite."""

    COMMIT = "commit"
    ROLL_BACK = "roll back"
    ABANDON = "abandon"  # never ended: its lease expires
    LOSE_COMMIT = "lose commit"  # it commits, but the Pump never learns of it


@dataclass(frozen=True, slots=True)
class Plan:
    """One transaction with its locks held."""

    transaction: Transaction
    ending: Ending


@dataclass(frozen=True, slots=True)
class Mix:
    """Shares of the endings; what is left commits."""

    roll_back: float = 0.03
    abandon: float = 0.0
    lose_commit: float = 0.0


class Workload:
    """Plans transactions; the same seed and the same order of calls give the same plans."""

    def __init__(self, random: Random, model: Model, mix: Mix = Mix()) -> None:
        self._random = random
        self._model = model
        self._mix = mix

    def next(self, ending: Ending | None = None, statements: int = 0) -> Plan | None:
        """A transaction with at least one change, None when no table is free just now. `statements`: so many,
        0 for a few."""
        for _ in range(PLAN_TRIES):
            transaction = Transaction()
            for _ in range(statements or self._random.randint(1, STATEMENTS_MAX)):
                free = self._model.open_tables()
                if not free:
                    break
                self._statement(transaction, self._random.choice(free))
            if transaction.changes:
                return Plan(transaction, ending or self._ending())
        return None

    def _ending(self) -> Ending:
        pick = self._random.random()
        for share, ending in (
            (self._mix.roll_back, Ending.ROLL_BACK),
            (self._mix.abandon, Ending.ABANDON),
            (self._mix.lose_commit, Ending.LOSE_COMMIT),
        ):
            if pick < share:
                return ending
            pick -= share
        return Ending.COMMIT

    def _statement(self, transaction: Transaction, state: TableState) -> None:
        growing = len(state) < ROWS_WANTED
        weights = (6 if growing else 2, 6, 2 if growing else 5, 2, 1, 2)
        forms: tuple[Callable[[Transaction, TableState], None], ...] = (
            self._insert,
            self._update,
            self._delete,
            self._move,
            self._swap,
            self._churn,
        )
        self._random.choices(forms, weights)[0](transaction, state)

    def _insert(self, transaction: Transaction, state: TableState) -> None:
        for _ in range(self._random.choice((1, 1, 1, 3))):
            transaction.insert(state, self.random_row(state.table))

    def _update(self, transaction: Transaction, state: TableState) -> None:
        row_id = transaction.pick(state, self._random)
        if row_id is not None:
            row = transaction.row(state, row_id)
            assert row is not None
            transaction.update(state, row_id, self._changed(state.table, row, keys=False))

    def _delete(self, transaction: Transaction, state: TableState) -> None:
        row_id = transaction.pick(state, self._random)
        if row_id is not None:
            transaction.delete(state, row_id)

    def _move(self, transaction: Transaction, state: TableState) -> None:
        """Give a row another key: an UPDATE of key columns."""
        row_id = transaction.pick(state, self._random)
        if row_id is not None:
            row = transaction.row(state, row_id)
            assert row is not None
            transaction.update(state, row_id, self._changed(state.table, row, keys=True))

    def _swap(self, transaction: Transaction, state: TableState) -> None:
        """Two rows exchange the values of one unique key, over a third value."""
        if not state.table.unique_parts:
            return
        one, other = transaction.pick(state, self._random), transaction.pick(state, self._random)
        if one is None or other is None or one == other:
            return
        first, second = transaction.row(state, one), transaction.row(state, other)
        assert first is not None
        assert second is not None
        _, parts = self._random.choice(state.table.unique_parts)
        positions = [position for position, _ in parts]
        interim = self._changed_at(state.table, first, positions)
        if transaction.update(state, one, interim) and transaction.update(
            state, other, _with_values_of(second, first, positions)
        ):
            transaction.update(state, one, _with_values_of(first, second, positions))

    def _churn(self, transaction: Transaction, state: TableState) -> None:
        """Several changes of one row: deleted and inserted again, or inserted, changed, deleted."""
        if self._random.random() < 0.5:
            row_id = transaction.pick(state, self._random)
            row = None if row_id is None else transaction.row(state, row_id)
            if row_id is not None and row is not None and transaction.delete(state, row_id):
                again = self._changed(state.table, row, keys=False)
                transaction.insert(state, self._respelled(state.table, again))
            return
        row = self.random_row(state.table)
        row_id = transaction.insert(state, row)
        if row_id is None:
            return
        transaction.update(state, row_id, self._changed(state.table, row, keys=False))
        if self._random.random() < 0.5:
            transaction.delete(state, row_id)

    def random_row(self, table: Table) -> Row:
        keyed = _key_positions(table)
        return tuple(self._value(table, i, column, i in keyed) for i, column in enumerate(table.columns))

    def _changed(self, table: Table, row: Row, *, keys: bool) -> Row:
        """The row with one or more columns changed: of its keys, or of the others."""
        keyed = _key_positions(table)
        candidates = [i for i in range(len(row)) if (i in keyed) == keys] or list(range(len(row)))
        count = self._random.randint(1, max(1, len(candidates) // 2))
        return self._changed_at(table, row, self._random.sample(candidates, count))

    def _changed_at(self, table: Table, row: Row, positions: list[int]) -> Row:
        keyed = _key_positions(table)
        changed = list(row)
        for i in positions:
            changed[i] = self._value(table, i, table.columns[i], i in keyed)
        return tuple(changed)

    def _respelled(self, table: Table, row: Row) -> Row:
        """The same keys in other letters where case is ignored: one key for the server, other bytes."""
        keyed = _key_positions(table)
        changed: list[Value] = list(row)
        for i in keyed:
            value = changed[i]
            if isinstance(value, str) and table.columns[i].kind.ignores_case:
                changed[i] = value.swapcase()
        return tuple(changed)

    def _value(self, table: Table, position: int, column: Column, keyed: bool) -> Value:
        required = column.not_null or column.name in table.primary
        if not required and self._random.random() < NULL_SHARE:
            return None
        kind = column.kind
        if not keyed:
            return random_value(kind, self._random)
        if column.name == SHARD:
            return table.name
        if kind.repr == "text" and kind.charset != "binary":
            word = random_word(kind, self._random, 30)
            # A clustered text key keeps its blanks out of the handle: leave that to the other tables.
            return word.rstrip(" ") if column.name in table.primary and len(table.primary) > 1 else word
        if kind.repr == "int":
            number = self._random.randrange(KEY_SPACE)
            unsigned_big = kind.sql == "BIGINT UNSIGNED" and self._random.random() < 0.5
            return 2**64 - 1 - number if unsigned_big else number + 1
        return random_value(kind, self._random)


def _key_positions(table: Table) -> frozenset[int]:
    return frozenset(position for _, parts in table.unique_parts for position, _ in parts)


def _with_values_of(row: Row, source: Row, positions: list[int]) -> Row:
    return tuple(source[i] if i in positions else value for i, value in enumerate(row))
