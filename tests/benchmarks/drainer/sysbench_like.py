"""A workload like the recorded one, made up: for a machine that does not have the recording.

4 tables of 5,000 rows (id, k, c, pad), then 15,000 transactions of one index update, one other update, one
delete and one insert of the same id. Encoded as TiDB does, with its DDL jobs; the final contents are known.
"""

from __future__ import annotations

from random import Random
from typing import Final

from binlog_playground.scenario import Scenario
from tests.benchmarks.drainer.recorder import SCHEMA, Made, Recorder, char, text
from tests.rig.workload.kinds import INT
from tests.rig.workload.tables import HANDLE, Table, new_table
from tidb_binlog.ddl_job import ActionType

TABLES: Final = 4
ROWS: Final = 5000
TRANSACTIONS: Final = 15_000
LOAD_ROWS: Final = 500


def make(
    seed: int = 1,
    transactions: int = TRANSACTIONS,
    tables: int = TABLES,
    rows: int = ROWS,
    *,
    tables_first: bool = False,
    ddl_every: int = 0,
) -> Scenario:
    """The whole workload; the same for the same arguments. `rows`: of each table; `tables_first`: all are
    made before the first row, else each before its own. `ddl_every`: after so many transactions the next
    table gets one more key, or loses it."""
    random = Random(seed)
    recorder = Recorder()
    numbers = range(1, tables + 1)
    first = [create(recorder, number) for number in numbers if tables_first]
    made = [
        _load(recorder, first[number - 1] if first else create(recorder, number), random, rows)
        for number in numbers
    ]
    plain = [one.table for one in made]
    for number in range(transactions):
        if ddl_every and number % ddl_every == ddl_every - 1:
            at = number // ddl_every % tables
            _key(recorder, made[at], plain[at])
        _transaction(recorder, random.choice(made), random, rows)
    return recorder.scenario("sysbench-like")


def create(recorder: Recorder, number: int) -> Made:
    """One of sysbench's tables, empty."""
    columns = (("id", INT), ("k", INT), ("c", char(120)), ("pad", char(60)))
    table = new_table(
        recorder.next_id(), SCHEMA, f"sbtest{number}", columns, primary=("id",), storage=HANDLE
    ).with_index(f"k_{number}", (("k", -1),), unique=False)
    return recorder.create(table)


def row(random: Random, row_id: int) -> tuple[int, int, str, str]:
    return row_id, random.randrange(1, ROWS), text(random, 10), text(random, 5)


def _load(recorder: Recorder, made: Made, random: Random, rows: int) -> Made:
    recorder.insert_all(made, (row(random, row_id) for row_id in range(1, rows + 1)), LOAD_ROWS)
    return made


def _key(recorder: Recorder, made: Made, plain: Table) -> None:
    if made.table is plain:
        wide = plain.with_index("more", (("k", -1), ("id", -1)), unique=False)
        recorder.alter(made, ActionType.ADD_INDEX, "ADD INDEX `more` (`k`, `id`)", wide)
    else:
        recorder.alter(made, ActionType.DROP_INDEX, "DROP INDEX `more`", plain)


def _transaction(recorder: Recorder, made: Made, random: Random, rows: int) -> None:
    first, second, third = random.sample(range(1, rows + 1), 3)
    _, k, c, pad = made.rows[first]
    changes = [made.update((first, k + 1, c, pad))]
    _, k, _, pad = made.rows[second]
    changes.append(made.update((second, k, text(random, 10), pad)))
    changes.append(made.delete(third))
    changes.append(made.insert(row(random, third)))
    recorder.transaction(changes)
