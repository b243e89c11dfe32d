"""Workloads that each stress one thing, made up; the final contents are known.

inserts    INSERTs of sysbench rows into one table, 100 a transaction
keyless    a table without any key: INSERTs, then an UPDATE, a DELETE and an INSERT a transaction
hot        one table with one row that every transaction updates, and another row that it inserts
wide       a table of 60 columns, two rows inserted and two updated a transaction
named      a table whose key is text of some collation: INSERTs, then two UPDATEs and an INSERT a transaction
backlog    as many bytes as wanted, made while they are stored: updates of the same few rows
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Final

from binlog_playground.arrival import Record
from binlog_playground.scenario import Scenario
from tests.benchmarks.drainer import sysbench_like
from tests.benchmarks.drainer.recorder import SCHEMA, SPACING, Recorder, Row, text
from tests.rig.workload.kinds import BIGINT, DATETIME, DECIMAL, Kind, varchar
from tests.rig.workload.tables import COMMON, HANDLE, ROWID, new_table

INSERTS: Final = 120_000
INSERTS_A_TRANSACTION: Final = 100
KEYLESS_ROWS: Final = 2000
KEYLESS_TRANSACTIONS: Final = 2000
HOT_TRANSACTIONS: Final = 20_000
BACKLOG_KINDS: Final = 8
BACKLOG_ROWS: Final = 16
BACKLOG_TEXT: Final = 4000
WIDE_COLUMNS: Final = 60
WIDE_ROWS: Final = 2000
WIDE_TRANSACTIONS: Final = 2500
NAMED_ROWS: Final = 20_000
NAMED_TRANSACTIONS: Final = 20_000
_WIDE_KINDS: Final = (BIGINT, varchar(32), DECIMAL, DATETIME)


def inserts(rows: int = INSERTS) -> Scenario:
    random = Random(2)
    recorder = Recorder()
    made = sysbench_like.create(recorder, 1)
    made_up = (sysbench_like.row(random, row_id) for row_id in range(1, rows + 1))
    recorder.insert_all(made, made_up, INSERTS_A_TRANSACTION)
    return recorder.scenario("inserts")


def keyless(rows: int = KEYLESS_ROWS, transactions: int = KEYLESS_TRANSACTIONS) -> Scenario:
    random = Random(3)
    recorder = Recorder()
    columns = (("id", BIGINT), ("amount", BIGINT), ("note", varchar(64)))
    made = recorder.create(new_table(recorder.next_id(), SCHEMA, "keyless", columns, storage=ROWID))
    loaded = ((row_id, random.randrange(1000), text(random, 3)) for row_id in range(1, rows + 1))
    recorder.insert_all(made, loaded, sysbench_like.LOAD_ROWS)
    for number in range(1, transactions + 1):
        row_id, amount, note = made.rows[number + rows // 2]
        change = made.update((row_id, amount + 1, note))
        new = made.insert((rows + number, number, text(random, 3)))
        recorder.transaction([change, made.delete(number), new])
    return recorder.scenario("keyless")


def hot(transactions: int = HOT_TRANSACTIONS) -> Scenario:
    random = Random(4)
    recorder = Recorder()
    made = sysbench_like.create(recorder, 1)
    first = sysbench_like.row(random, 1)
    recorder.transaction([made.insert(first)])
    for number in range(2, transactions + 2):
        _, k, c, pad = made.rows[1]
        counted = made.update((1, k + 1, c, pad))
        recorder.transaction([counted, made.insert(sysbench_like.row(random, number))])
    return recorder.scenario("hot")


def wide(rows: int = WIDE_ROWS, transactions: int = WIDE_TRANSACTIONS) -> Scenario:
    random = Random(5)
    recorder = Recorder()
    kinds = [_WIDE_KINDS[number % len(_WIDE_KINDS)] for number in range(1, WIDE_COLUMNS)]
    columns = (("id", BIGINT), *((f"c{number}", kind) for number, kind in enumerate(kinds, 1)))
    table = new_table(recorder.next_id(), SCHEMA, "wide", columns, primary=("id",), storage=HANDLE)
    made = recorder.create(table)

    def value(kind: Kind) -> int | str:
        if kind is BIGINT:
            return random.randrange(1 << 40)
        if kind is DECIMAL:
            return f"{random.randrange(10**6)}.{random.randrange(10**6):06d}"
        if kind is DATETIME:
            day, second = random.randrange(1, 29), random.randrange(10, 60)
            return f"2026-01-{day:02d} 10:00:{second}.{random.randrange(100, 1000)}"
        return text(random, 2)

    def row(row_id: int) -> Row:
        return (row_id, *map(value, kinds))

    recorder.insert_all(made, map(row, range(1, rows + 1)), 100)
    for number in range(1, transactions + 1):
        first, second = random.sample(range(1, rows + 1), 2)
        new = (rows + 2 * number - 1, rows + 2 * number)
        changes = [made.update((*row(first)[:20], *made.rows[first][20:])), made.update(row(second))]
        recorder.transaction([*changes, *(made.insert(row(row_id)) for row_id in new)])
    return recorder.scenario("wide")


def named(collation: str, rows: int = NAMED_ROWS, transactions: int = NAMED_TRANSACTIONS) -> Scenario:
    random = Random(7)
    recorder = Recorder()
    columns = (("id", BIGINT), ("name", varchar(40, collation)), ("amount", BIGINT), ("note", varchar(64)))
    table = new_table(recorder.next_id(), SCHEMA, "named", columns, primary=("name",), storage=COMMON)
    made = recorder.create(table)

    def row(row_id: int) -> Row:
        return (row_id, f"Größe {row_id % 7} of Customer {row_id}", random.randrange(1000), text(random, 3))

    recorder.insert_all(made, map(row, range(1, rows + 1)), 100)
    for number in range(1, transactions + 1):
        changes = [made.update(row(row_id)) for row_id in random.sample(range(1, rows + 1), 2)]
        recorder.transaction([*changes, made.insert(row(rows + number))])
    return recorder.scenario("named")


class Backlog:
    """About `size_bytes` of transactions behind `scenario`, or so many rows. To be iterated once."""

    def __init__(self, size_bytes: int = 0, *, rows: int = 0, text_bytes: int = BACKLOG_TEXT) -> None:
        random = Random(6)
        self._recorder = recorder = Recorder()
        columns = (("id", BIGINT), ("note", varchar(BACKLOG_TEXT)))
        table = new_table(recorder.next_id(), SCHEMA, "backlog", columns, primary=("id",), storage=HANDLE)
        made = recorder.create(table)
        ids = range(BACKLOG_KINDS * BACKLOG_ROWS)
        recorder.insert_all(made, ((row_id, "") for row_id in ids), len(ids))
        self._values = [
            recorder.value(
                [made.update((row_id, text(random, 400)[:text_bytes])) for row_id in ids[at::BACKLOG_KINDS]]
            )
            for at in range(BACKLOG_KINDS)
        ]
        wanted = rows // BACKLOG_ROWS or size_bytes // len(self._values[0])
        self.transactions = max(BACKLOG_KINDS, wanted)
        self.scenario = recorder.scenario("backlog")
        self.last_ts = self.scenario.last_commit_ts + 2 * SPACING * self.transactions

    @property
    def rows(self) -> int:
        return self.transactions * BACKLOG_ROWS

    def __iter__(self) -> Iterator[Record]:
        for number in range(self.transactions):
            yield from self._recorder.pair(self._values[number % BACKLOG_KINDS])
