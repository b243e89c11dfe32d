"""`messages`: encoded rows to Python rows and to messages, beside the Drainer's own archive of the same rows.

Transactions are sysbench's: two updates, a delete and an insert in a table of four columns. Rounds of all of
them take turns in one process, so that they share whatever else the machine does. CPU of one core, a change.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from random import Random
from typing import Final

from drainer.changes.row_reader import RowReader
from drainer.formats.messages.message import FORMATS, FormatOptions, open_format
from drainer.formats.pb import PbEncoder
from drainer.txn import DELETE, INSERT, UPDATE, TableEvents, TableVersion, Transaction
from tests.benchmarks.drainer import sysbench_like
from tests.benchmarks.drainer.recorder import char, text
from tests.benchmarks.measure import percentile
from tests.benchmarks.report import Result
from tests.benchmarks.settings import Settings
from tests.rig.workload.kinds import INT
from tests.rig.workload.tables import HANDLE, new_table
from tidb_binlog import tso
from tidb_binlog.rowcodec.encoder import RowEncoder
from tidb_binlog.table_info import TableInfo

TRANSACTIONS: Final = 1000
CHANGES: Final = 4
ROUNDS_MIN: Final = 5
START_TS: Final = tso.compose(1_700_000_000_000)


class FixedIds:
    """A registry that knows every schema."""

    def register(self, subject: str, schema: str) -> int:
        return 1


def transactions() -> list[Transaction]:
    columns = (("id", INT), ("k", INT), ("c", char(120)), ("pad", char(60)))
    table = new_table(100, "sbtest", "sbtest1", columns, primary=("id",), storage=HANDLE)
    version = TableVersion(TableInfo.from_json(table.info()), "sbtest", "sbtest1", 1)
    encoder, random = RowEncoder(version.info), Random(1)
    found = []
    for number in range(TRANSACTIONS):
        one, two, three = (sysbench_like.row(random, 3 * number + n) for n in range(3))
        rows = [
            encoder.update(one, (one[0], one[1] + 1, *one[2:])),
            encoder.update(two, (*two[:2], text(random, 10), two[3])),
            encoder.delete(three),
            encoder.insert(sysbench_like.row(random, three[0])),
        ]
        events = TableEvents(version, (UPDATE, UPDATE, DELETE, INSERT), rows, 0)
        ts = START_TS + number
        found.append(Transaction(ts - 1, ts, (events,), sum(map(len, rows))))
    return found


def jobs() -> dict[str, Callable[[Transaction], object]]:
    """What is done with each transaction, by name."""
    archive, reader = PbEncoder(), RowReader()
    archive.begin_file()
    found: dict[str, Callable[[Transaction], object]] = {
        "archive": archive.transaction,
        "rows": reader.transaction,
    }
    for name in FORMATS:
        made = open_format(name, FormatOptions(registry=FixedIds()))
        found[name] = lambda transaction, rows=made.rows: list(rows(transaction))  # type: ignore[misc]
    return found


def check(found: dict[str, Callable[[Transaction], object]], transaction: Transaction) -> None:
    """That a row comes out as a row of its values."""
    read = RowReader().transaction(transaction)
    for row, message in zip(read.rows, list(found["canal-json"](transaction)), strict=True):  # type: ignore[call-overload]
        image = row.before if row.after is None else row.after
        data = json.loads(message.value)["data"][0]
        assert data == {name: str(value) for name, value in (image or {}).items()}


def run(settings: Settings) -> list[Result]:
    """A result for each form; `ratio` is to the archive's writer."""
    given, found = transactions(), jobs()
    check(found, given[0])
    cost: dict[str, list[float]] = {name: [] for name in found}
    end_s = time.monotonic() + settings.seconds
    while len(cost["archive"]) < ROUNDS_MIN or time.monotonic() < end_s:
        for name, function in found.items():
            began_s = time.process_time()
            for transaction in given:
                function(transaction)
            cost[name].append((time.process_time() - began_s) * 1e6 / (TRANSACTIONS * CHANGES))
    # Other work on the machine only ever makes a round dearer: the best one is the cost.
    archive = min(cost["archive"])
    return [
        Result(
            name=f"messages.{name}",
            value=min(costs),
            unit="us/change",
            cpu_us_per_unit=min(costs),
            p50_ms=percentile(costs, 0.5) / 1000,
            p99_ms=percentile(costs, 0.99) / 1000,
            compared_to=f"the Drainer's archive writer, {archive:.2f} us",
            ratio=min(costs) / archive,
            note=f"best of {len(costs)} rounds; {1e6 / min(costs):,.0f} changes/s on one core",
        )
        for name, costs in cost.items()
        if name != "archive"
    ]
