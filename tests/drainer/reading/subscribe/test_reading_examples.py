"""The examples that read the stream, as processes that are killed: what they keep is what was committed.

Each has a table of its own, in which rows are inserted, changed and deleted all the time.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import socketserver
import sqlite3
import subprocess
import sys
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from fnmatch import fnmatch
from pathlib import Path
from random import Random
from typing import Any

import duckdb
import pandas
import pytest

import drainer
import pumpclient
from pumpclient import SyncPublisher, column
from tests.pump.support.process import PumpProcess
from tests.waiting import PATIENCE_S, until_here
from tidb_binlog.net.port import free_ports

ROOT = Path(__file__).resolve().parents[4]
DUCKDB_HEADERS_BYTES = 3 * 4096
"""A file of DuckDB's is not one without its three headers, which it writes one by one."""
ROUNDS = 3
ITEMS = ("pen", "ink", "paper")

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def endpoint(etcd: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    pump = PumpProcess(
        tmp_path_factory.mktemp("reading") / "pump", etcd, lambda: free_ports(1)[0], "-node-id=reading"
    )
    asyncio.run(pump.start_and_wait())
    try:
        yield etcd.removeprefix("http://")
    finally:
        pump.stop()


@dataclass
class Table:
    """One table, and what is in it. `changes` counts the rows that were written."""

    publisher: SyncPublisher
    name: str
    rows: dict[int, dict[str, Any]] = field(default_factory=dict)
    changes: int = 0
    _random: Random = field(default_factory=lambda: Random(7))

    def create(self) -> None:
        self.publisher.create_database("shop", if_not_exists=True)
        self.publisher.create_table(
            self.name,
            [
                column("id", "bigint", nullable=False),
                column("item", "varchar(20)", nullable=False),
                column("price", "decimal(8,2)", nullable=False),
            ],
            primary_key=["id"],
        )

    def write(self, transactions: int) -> None:
        for _ in range(transactions):
            with self.publisher.transaction() as txn:
                for _ in range(self._random.randint(1, 3)):
                    self._change(txn)

    def _change(self, txn: Any) -> None:
        number = self._random.randint(1, 12)
        before = self.rows.get(number)
        after = {
            "id": number if self._random.random() < 0.8 else number + 100,
            "item": self._random.choice(ITEMS),
            "price": f"{self._random.randint(100, 999) / 100:.2f}",
        }
        if before is None:
            txn.insert(self.name, after := {**after, "id": number})
        elif self._random.random() < 0.3 or (after["id"] != number and after["id"] in self.rows):
            txn.delete(self.name, before)
            after = {}
        else:
            txn.update(self.name, before, after)
        self.rows.pop(number, None)
        if after:
            self.rows[after["id"]] = after
        self.changes += 1


@pytest.fixture
def table(endpoint: str, request: pytest.FixtureRequest) -> Iterator[Table]:
    with pumpclient.open_publisher_sync(endpoint) as publisher:
        made = Table(publisher, f"shop.{request.node.name.removeprefix('test_')}")
        made.create()
        yield made


@contextlib.contextmanager
def example(name: str, *arguments: str, home: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process of it; killed at the end of the block."""
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "DLT_DATA_DIR": str(home), "HOME": str(home)}
    environ["RUNTIME__DLTHUB_TELEMETRY"] = "false"
    command = [sys.executable, str(ROOT / "examples" / name), *arguments]
    with (
        (home / "said").open("ab") as said,
        subprocess.Popen(command, cwd=home, env=environ, stdout=said, stderr=said) as running,
    ):
        try:
            yield running
        finally:
            running.send_signal(signal.SIGKILL)


def until(holds: Callable[[], bool], running: subprocess.Popen[bytes], home: Path) -> None:
    def lives_and_holds() -> bool:
        assert running.poll() is None, (home / "said").read_text()
        return holds()

    until_here(lives_and_holds, holds)


def run_killed(
    table: Table,
    home: Path,
    name: str,
    *arguments: str,
    seen: Callable[[], object],
    expected: Callable[[], object],
) -> None:
    """Killed while it works, again and again, and in the end right."""
    for round_number in range(ROUNDS):
        before = seen()
        with example(name, *arguments, home=home) as running:
            table.write(25)
            if round_number < ROUNDS - 1:
                until(lambda before=before: seen() != before, running, home)  # type: ignore[misc]
            else:
                until(lambda: seen() == expected(), running, home)


class KeyValues(socketserver.ThreadingTCPServer):
    """Speaks as much of Redis as the example needs."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self) -> None:
        self.values: dict[str, str] = {}
        super().__init__(("127.0.0.1", 0), KeyValuesHandler)


class KeyValuesHandler(socketserver.StreamRequestHandler):
    server: KeyValues

    def handle(self) -> None:
        values = self.server.values
        while line := self.rfile.readline():
            words = []
            for _ in range(int(line[1:])):
                size = int(self.rfile.readline()[1:])
                words.append(self.rfile.read(size + 2)[:-2].decode())
            match words:
                case ["SET", key, value]:
                    values[key] = value
                    self.wfile.write(b"+OK\r\n")
                case ["DEL", key]:
                    self.wfile.write(b":%d\r\n" % (values.pop(key, None) is not None))
                case ["SCAN", "0", "MATCH", pattern, *_]:
                    found = [key.encode() for key in values if fnmatch(key, pattern)]
                    listed = b"".join(b"$%d\r\n%s\r\n" % (len(key), key) for key in found)
                    self.wfile.write(b"*2\r\n$1\r\n0\r\n*%d\r\n" % len(found) + listed)
                case _:
                    self.wfile.write(b"-ERR unknown command\r\n")


def test_cache(table: Table, endpoint: str, tmp_path: Path) -> None:
    with KeyValues() as store:
        threading.Thread(target=store.serve_forever, daemon=True).start()
        arguments = ("--etcd", endpoint, "--store", f"127.0.0.1:{store.server_address[1]}", table.name)

        def cached() -> dict[str, Any]:
            return {key: json.loads(value) for key, value in dict(store.values).items()}

        def expected() -> dict[str, Any]:
            return {f"{table.name}:{number}": row for number, row in table.rows.items()}

        run_killed(table, tmp_path, "cache.py", *arguments, seen=cached, expected=expected)
        with example("cache.py", *arguments, home=tmp_path) as running:
            table.publisher.truncate_table(table.name)
            until(lambda: not store.values, running, tmp_path)
        store.shutdown()


def rows_of(path: Path, query: str) -> list[tuple[Any, ...]]:
    if not path.exists():
        return []
    with contextlib.closing(sqlite3.connect(path)) as database:
        try:
            return database.execute(query).fetchall()
        except sqlite3.OperationalError:  # it makes its tables just now
            return []


def test_search_index(table: Table, endpoint: str, tmp_path: Path) -> None:
    index = tmp_path / "index.db"
    arguments = ("--etcd", endpoint, "--index", str(index), table.name, "item")

    def expected() -> list[tuple[Any, ...]]:
        return sorted((str(number), row["item"]) for number, row in table.rows.items())

    run_killed(
        *(table, tmp_path, "search_index.py", *arguments),
        seen=lambda: sorted(rows_of(index, "SELECT * FROM document")),
        expected=expected,
    )
    pens = rows_of(index, "SELECT id FROM document WHERE document MATCH 'pen'")
    assert sorted(int(number) for (number,) in pens) == sorted(
        number for number, row in table.rows.items() if row["item"] == "pen"
    )


def test_own_database(table: Table, endpoint: str, tmp_path: Path) -> None:
    """Sums: a row that counted twice, or not at all, would show."""
    database = tmp_path / "sums.db"

    def expected() -> list[tuple[Any, ...]]:
        sums: dict[str, list[Decimal]] = defaultdict(list)
        for row in table.rows.values():
            sums[row["item"]].append(Decimal(row["price"]))
        return sorted((item, len(prices), float(sum(prices))) for item, prices in sums.items())

    def seen() -> list[tuple[Any, ...]]:
        found = rows_of(database, "SELECT category, rows, round(amount, 2) FROM total WHERE rows > 0")
        return sorted(found)

    arguments = ("--etcd", endpoint, "--database", str(database), table.name, "item", "price")
    run_killed(table, tmp_path, "own_database.py", *arguments, seen=seen, expected=expected)


def test_micro_batches(table: Table, endpoint: str, tmp_path: Path) -> None:
    """Every change is in exactly one file, and they lead to the rows that there are."""
    directory = tmp_path / "batches"

    def read() -> pandas.DataFrame:
        files = sorted(directory.glob("*.parquet"))
        return pandas.concat(map(pandas.read_parquet, files)) if files else pandas.DataFrame()

    run_killed(
        *(table, tmp_path, "micro_batches.py", "--etcd", endpoint, "--directory", str(directory), table.name),
        seen=lambda: len(read()),
        expected=lambda: table.changes,
    )
    changes = read()
    assert list(changes.commit_ts) == sorted(changes.commit_ts)
    assert set(changes.kind) == {"insert", "update", "delete"}
    last = changes[changes.id < 100].groupby("id").tail(1)
    kept = {row.id: str(row.price) for row in last.itertuples() if row.kind != "delete"}
    moved = {number for number in kept if number not in table.rows}  # an update gave it another key
    assert {number: price for number, price in kept.items() if number not in moved} == {
        number: row["price"] for number, row in table.rows.items() if number < 100
    }


def test_dlt_resource(table: Table, endpoint: str, tmp_path: Path) -> None:
    """Killed at any time from DuckDB's having made its file on, the next run goes on."""
    arguments = ("--etcd", endpoint, table.name)
    database = tmp_path / "changes.duckdb"

    def run() -> None:
        with example("dlt_resource.py", *arguments, home=tmp_path) as running:
            assert running.wait(PATIENCE_S) == 0, (tmp_path / "said").read_text()

    def made() -> bool:
        return database.exists() and database.stat().st_size >= DUCKDB_HEADERS_BYTES

    def loaded() -> list[tuple[Any, ...]]:
        shutil.copy(database, tmp_path / "copy.duckdb")
        with duckdb.connect(str(tmp_path / "copy.duckdb"), read_only=True) as connection:
            name = table.name.partition(".")[2]
            return connection.execute(f"SELECT id, item, price FROM replica.{name} ORDER BY id").fetchall()

    table.write(25)
    with example("dlt_resource.py", *arguments, home=tmp_path) as running:
        until(made, running, tmp_path)  # it loads
    run()
    table.write(25)
    run()
    assert loaded() == [
        (number, row["item"], Decimal(row["price"])) for number, row in sorted(table.rows.items())
    ]


def test_a_named_reader_goes_on_after_its_table_was_dropped(table: Table, endpoint: str) -> None:
    """It was there when the name was new; the DROP is one of the changes that were read."""
    table.publisher.drop_table(table.name)
    tables = [table.name]
    with drainer.subscribe_sync(
        endpoint, tables=tables, start="oldest", name="dropped", missing_ok=True
    ) as stream:
        for item in stream:
            if isinstance(item, drainer.Ddl) and item.kind == "drop":
                stream.done(item, stored=True)
                break
    with drainer.subscribe_sync(endpoint, tables=tables, name="dropped") as stream:
        assert stream.position
    with pytest.raises(drainer.NoSuchTable), drainer.subscribe_sync(endpoint, tables=tables, name="other"):
        pass
