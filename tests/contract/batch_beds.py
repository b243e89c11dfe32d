"""Batch sinks on stores of a test: SQLite with a position in each transaction, and a list without any."""

from __future__ import annotations

import contextlib
import json
import sqlite3
import weakref
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from drainer import Ddl, PositionTable, Row, Transaction
from drainer.sink.messages.http_sink import Endpoint, HttpSink
from drainer.sink.messages.json_items import JsonItems
from drainer.sink.messages.stdout_sink import StdoutSink
from drainer.stream.translate.translator import Translator
from drainer.testing.batch_bed import BatchBed
from drainer.testing.stream import CLUSTER_ID, Rows
from tests.fakes.webhook import Webhook
from tidb_binlog.clock import SystemClock


class SqliteSink:
    """Changes and position in one transaction: exactly once. Methods block."""

    retriable = (sqlite3.OperationalError,)

    def __init__(self, path: Path) -> None:
        self._path = path

    def open(self) -> int:
        self._connection = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False)
        weakref.finalize(self, self._connection.close)  # of a life that was killed
        self._position = PositionTable()
        with self.transaction() as cursor:
            for table in "tu":
                cursor.execute(f"CREATE TABLE IF NOT EXISTS {table} (id INT, v TEXT)")
            return self._position.load(cursor)

    @contextlib.contextmanager
    def transaction(self) -> Iterator[sqlite3.Cursor]:
        cursor = self._connection.cursor()
        cursor.execute("BEGIN IMMEDIATE")
        try:
            yield cursor
        except BaseException:
            cursor.execute("ROLLBACK")
            raise
        cursor.execute("COMMIT")

    def write(self, items: Sequence[Transaction | Ddl], position: int) -> None:
        with self.transaction() as cursor:
            for item in items:
                self.apply(cursor, item)
            self._position.move(cursor, position)

    def apply(self, cursor: sqlite3.Cursor, item: Transaction | Ddl) -> None:
        if isinstance(item, Ddl):
            for table in item.before:
                if not item.after:
                    cursor.execute(f"DELETE FROM {table.name}")
            return
        for row in item.rows:
            self.change(cursor, row)

    def change(self, cursor: sqlite3.Cursor, row: Row) -> None:
        if row.before is not None:
            cursor.execute(
                f"DELETE FROM {row.table.name} WHERE rowid IN"
                f" (SELECT rowid FROM {row.table.name} WHERE id = ? AND v = ? LIMIT 1)",
                (row.before["id"], row.before["v"]),
            )
        if row.after is not None:
            cursor.execute(f"INSERT INTO {row.table.name} VALUES (?, ?)", (row.after["id"], row.after["v"]))

    def close(self) -> None:
        self._connection.close()


class SqliteBed(BatchBed):
    def __init__(self, directory: Path, of: type[SqliteSink] = SqliteSink) -> None:
        super().__init__(directory)
        self._path = directory / "store.db"
        self._of = of

    def sink(self) -> SqliteSink:
        return self._of(self._path)

    def rows(self, table: str) -> Rows:
        with contextlib.closing(sqlite3.connect(self._path)) as connection:
            return connection.execute(f"SELECT id, v FROM {table}").fetchall()


class Journal:
    """No position: the Drainer's savepoint counts. Coroutine functions."""

    def __init__(self, store: list[Transaction | Ddl]) -> None:
        self._store = store

    async def write(self, items: Sequence[Transaction | Ddl], position: int) -> None:
        for item in items:
            if isinstance(item, Transaction):
                item = Transaction(item.commit_ts, item.start_ts, list(item.rows))
            self._store.append(item)


class JournalBed(BatchBed):
    """What a reader of the journal has who puts and deletes by key."""

    exactly_once = False

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self._store: list[Transaction | Ddl] = []

    def sink(self) -> Journal:
        return Journal(self._store)

    def rows(self, table: str) -> Rows:
        found: dict[int, str] = {}
        for item in self._store:
            if isinstance(item, Ddl):
                if not item.after and table in [one.name for one in item.before]:
                    found.clear()
                continue
            for row in item.rows:
                if row.table.name == table:
                    if row.before is not None:
                        found.pop(row.before["id"], None)
                    if row.after is not None:
                        found[row.after["id"]] = row.after["v"]
        return list(found.items())


class JsonBed(BatchBed):
    """What a reader of the lines has who puts and deletes by key."""

    exactly_once = False

    def convert(self) -> JsonItems:
        self._items = JsonItems()
        return self._items

    def follow(self, translator: Translator) -> None:
        self._items.route = translator.route

    def lines(self) -> Iterable[dict[str, Any]]:
        raise NotImplementedError

    def rows(self, table: str) -> Rows:
        found: dict[int, str] = {}
        for line in self.lines():
            if line["table"] == table and line["isDdl"]:
                found.clear()
            elif line["table"] == table:
                for row in line["old"] or [] if line["type"] == "UPDATE" else []:
                    found.pop(int(row["id"]), None)
                for row in line["data"]:
                    if line["type"] == "DELETE":
                        found.pop(int(row["id"]), None)
                    else:
                        found[int(row["id"])] = row["v"]
        return list(found.items())


class StdoutBed(JsonBed):
    """Standard output is a file."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self._path = directory / "lines"
        self._opened = open(self._path, "ab")  # noqa: SIM115

    def sink(self) -> StdoutSink:
        return StdoutSink(self._opened.fileno())

    def lines(self) -> Iterable[dict[str, Any]]:
        return [json.loads(line) for line in self._path.read_bytes().splitlines()]

    def close(self) -> None:
        self._opened.close()


class HttpBed(JsonBed):
    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self._hook = Webhook()

    def sink(self) -> HttpSink:
        endpoint = Endpoint("http", "127.0.0.1", self._hook.port, "/", 5.0)
        self._sink = HttpSink(
            endpoint, SystemClock(), cluster_id=CLUSTER_ID, batch_rows=100, batch_bytes=1 << 14
        )
        return self._sink

    async def die(self) -> None:
        await super().die()
        self._sink.close()

    def lines(self) -> Iterable[dict[str, Any]]:
        return [line for request in self._hook.taken for line in request.lines()]

    def close(self) -> None:
        self._hook.close()
