"""A made-up history that is hard to replay, and what its tables hold at the end.

n   keyed by a number            k   without a key, equal rows are common
t   keyed by text that the downstream compares without case: 'a' goes and 'A' comes
u   keyed by a number, with a unique value besides, which rows exchange within a transaction
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any, Final

from drainer.mysql.connection import Target
from drainer.txn import DELETE, INSERT, UPDATE, Ddl, Item, TableEvents, TableVersion, Transaction
from tests.drainer.support.apply_life import column, run
from tidb_binlog.rowcodec.encoder import RowEncoder
from tidb_binlog.table_info import (
    FLAG_NOT_NULL,
    FLAG_PRIMARY,
    LONG,
    VARCHAR,
    Column,
    FieldType,
    Index,
    IndexColumn,
    TableInfo,
)

FIRST_TS: Final = 440_000_000_000_000_000
_KEY: Final = FLAG_NOT_NULL | FLAG_PRIMARY
_FOLDED: Final = FieldType(VARCHAR, _KEY, 16, charset="utf8mb4", collate="utf8mb4_general_ci")
_VALUE: Final = column(2, "b", VARCHAR)


def _index(number: int, name: str, place: int) -> Index:
    return Index(number, name, (IndexColumn(name, place),), unique=True, primary=name == "id")


VERSIONS: Final = tuple(
    TableVersion(info, "d", info.name, 1)
    for info in (
        TableInfo(1, "n", (column(1, "id", LONG, _KEY), _VALUE), pk_is_handle=True),
        TableInfo(2, "t", (Column(1, "id", 0, _FOLDED), _VALUE), (_index(1, "id", 0),)),
        TableInfo(3, "k", (column(1, "a", LONG), _VALUE)),
        TableInfo(
            4,
            "u",
            (column(1, "id", LONG, _KEY), _VALUE, column(3, "v", LONG, FLAG_NOT_NULL)),
            (_index(2, "v", 2),),
            pk_is_handle=True,
        ),
    )
)
TABLES: Final = (
    "CREATE DATABASE d CHARACTER SET utf8mb4",
    "CREATE TABLE d.n (id INT NOT NULL PRIMARY KEY, b VARCHAR(64))",
    "CREATE TABLE d.t (id VARCHAR(16) COLLATE utf8mb4_general_ci NOT NULL PRIMARY KEY, b VARCHAR(64))",
    "CREATE TABLE d.k (a INT, b VARCHAR(64))",
    "CREATE TABLE d.u (id INT NOT NULL PRIMARY KEY, b VARCHAR(64), v INT NOT NULL, UNIQUE KEY (v))",
)
TRUNCATE: Final = "TRUNCATE TABLE d.k"
_LETTERS: Final = "abcdefgh"


class MixedHistory:
    """`rows`: what the tables hold, sorted."""

    def __init__(self, seed: int) -> None:
        self._pick = Random(seed)
        self._encoders = [RowEncoder(version.info) for version in VERSIONS]
        self._there: list[dict[Any, tuple[Any, ...]]] = [{}, {}, {}, {}]
        self._ts = FIRST_TS
        self._unique = 0
        self.changes = 0

    def items(self, count: int, ddl_at: int = -1, query: str = TRUNCATE) -> Iterator[Item]:
        for number in range(count):
            self._ts += self._pick.randrange(1, 1 << 20)
            if number == ddl_at:
                if query == TRUNCATE:
                    self._there[2] = {}
                yield Ddl(self._ts, 1, 11, "d", query, (("d", "k"),), 2)
                continue
            yield self._transaction()

    @property
    def rows(self) -> list[list[tuple[Any, ...]]]:
        return [sorted(there.values()) for there in self._there]

    def create(self, target: Target) -> None:
        run(target, *TABLES, "SELECT 1")

    @staticmethod
    def downstream(target: Target) -> list[list[tuple[Any, ...]]]:
        return [sorted(run(target, f"SELECT * FROM d.{version.name}")) for version in VERSIONS]

    def _transaction(self) -> Transaction:
        events = [self._change(self._pick.randrange(4)) for _ in range(self._pick.randrange(1, 6))]
        if self._pick.random() < 0.3:
            events += self._exchange()
        self.changes += len(events)
        tables = tuple(
            TableEvents(VERSIONS[place], (kind,), [row], seq) for seq, (place, kind, row) in enumerate(events)
        )
        return Transaction(self._ts - 1, self._ts, tables, 100)

    def _change(self, place: int) -> tuple[int, int, bytes]:
        pick, there, encoder = self._pick, self._there[place], self._encoders[place]
        key = self._key(place)
        before = there.get(key)
        row = self._row(place, key)
        rowid = None if place in (0, 3) else key if place == 2 else 1
        if before is None:
            there[key] = row
            return place, INSERT, encoder.insert(row, rowid)
        if pick.random() < 0.4:
            del there[key]
            return place, DELETE, encoder.delete(before, rowid)
        moved = self._key(place) if place in (0, 1) else key
        if moved in there or pick.random() < 0.5:
            moved = key
        after = (moved, *row[1:]) if place in (0, 1) else row
        if place == 3:
            after = (key, row[1], before[2])
        del there[key]
        there[moved] = after
        return place, UPDATE, encoder.update(before, after, rowid)

    def _key(self, place: int) -> Any:
        """A key that is there, or none that the downstream takes for one that is there."""
        if place == 1:
            letter = self._pick.choice(_LETTERS)
            other = letter.upper()
            both = [one for one in (letter, other) if one in self._there[1]]
            return both[0] if both else self._pick.choice((letter, other))
        return self._pick.randrange(60)

    def _row(self, place: int, key: Any) -> tuple[Any, ...]:
        value = f"v{self._pick.randrange(3)}"
        if place == 2:
            return self._pick.randrange(3), value
        self._unique += 1
        return (key, value, self._unique) if place == 3 else (key, value)

    def _exchange(self) -> list[tuple[int, int, bytes]]:
        """Two rows of `u` exchange their unique values, by way of a third value."""
        there, encoder = self._there[3], self._encoders[3]
        if len(there) < 2:
            return []
        one, two = self._pick.sample(sorted(there), 2)
        a, b = there[one], there[two]
        steps = [(a, (*a[:2], -1)), (b, (*b[:2], a[2])), ((*a[:2], -1), (*a[:2], b[2]))]
        there[one], there[two] = steps[2][1], steps[1][1]
        return [(3, UPDATE, encoder.update(before, after)) for before, after in steps]
