"""Mirror: what a subscribing program keeps of the tables, with its position, in one SQLite file.

In     changes as `drainer.subscribe` gives them
Out    contents in the form in which the playground compares tables
Holds  rows and position change in one transaction: a program that is killed goes on exactly behind it. Each
       change must fit what is there (an insert finds no row, an update and a delete find the image before):
       what came twice, was left out or came in another order raises `Misfit`
Why    no database reads the statements: a DDL's definitions say what became of rows, `recast` what of values

Tests  tests/rig/test_mirror.py
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping
from datetime import date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

from binlog_playground.check.verify import ActualTable, Canonical, ExpectedTable, Raw, TableName
from drainer.changes.model import Column, Ddl, Row, Table, Transaction
from tests.rig.workload.recast import BY_TYPE, recast
from tidb_binlog.errors import Corruption

_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS position (one INTEGER PRIMARY KEY CHECK (one = 1), ts INTEGER, changes INTEGER);
CREATE TABLE IF NOT EXISTS tables (id INTEGER PRIMARY KEY, schema TEXT, name TEXT, columns TEXT);
CREATE TABLE IF NOT EXISTS rows (
  id INTEGER, key TEXT, image TEXT, copies INTEGER, PRIMARY KEY (id, key)
) WITHOUT ROWID;
INSERT OR IGNORE INTO position VALUES (1, 0, 0);
"""
Image = dict[str, Any]


class Misfit(Corruption):
    """A change that does not follow on what is there."""


def shown(value: Any, column_type: str) -> Any:
    """A value as it is compared: text, None, or for text that is no UTF-8 `{"hex": ...}`."""
    if value is None:
        return None
    if isinstance(value, bytes):
        is_text = column_type.startswith(("char", "varchar", "text", "enum", "set"))
        return {"hex": value.hex()} if is_text else value.hex()
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, datetime):
        text = value.replace(tzinfo=None).isoformat(" ", "microseconds")
        return _cut(text, column_type)
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, timedelta):
        micro = value // timedelta(microseconds=1)
        seconds, fraction = divmod(abs(micro), 1_000_000)
        sign = "-" if micro < 0 else ""
        text = f"{sign}{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.{fraction:06}"
        return _cut(text, column_type)
    return str(value)


def _cut(text: str, column_type: str) -> str:
    """To the digits that the column keeps."""
    _, _, digits = column_type.rstrip(")").partition("(")
    places = int(digits) if digits.isdigit() else 0
    return text[: len(text) - 6 + places] if places else text[:-7]


class Mirror:
    """One file; one process at a time."""

    def __init__(self, path: Path) -> None:
        self._db = sqlite3.connect(path, isolation_level=None)
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = OFF")  # processes are killed, not machines
        self._db.executescript(_SCHEMA)
        self._columns: dict[Table, dict[str, str]] = {}

    def close(self) -> None:
        self._db.close()

    @property
    def position(self) -> int:
        """Everything at or below it is in here."""
        return int(self._db.execute("SELECT ts FROM position").fetchone()[0])

    @property
    def changes(self) -> int:
        """Row changes taken, in all lives."""
        return int(self._db.execute("SELECT changes FROM position").fetchone()[0])

    # -- changes ---------------------------------------------------------------------------------------

    def take(self, change: Transaction | Ddl) -> None:
        """Raises `Misfit`, and keeps nothing of it."""
        if change.commit_ts <= self.position:
            raise Misfit(f"commit_ts {change.commit_ts} came again: {self.position} was reached")
        with self._db:
            self._db.execute("BEGIN")
            count = 0
            if isinstance(change, Ddl):
                self._take_ddl(change)
            else:
                for row in change.rows:
                    self._take_row(row, change.commit_ts)
                    count += 1
            self._db.execute("UPDATE position SET ts = ?, changes = changes + ?", (change.commit_ts, count))

    def passed(self, ts: int) -> None:
        """Nothing else is at or below it."""
        self._db.execute("UPDATE position SET ts = max(ts, ?)", (ts,))

    def _take_row(self, row: Row, commit_ts: int) -> None:
        table = row.table
        types = self._columns.get(table)
        if types is None:
            types = self._columns[table] = {column.name: column.type for column in table.columns}
            self._know(table)
        before = {name: shown(value, types[name]) for name, value in (row.before or {}).items()}
        after = {name: shown(value, types[name]) for name, value in (row.after or {}).items()}
        try:
            if row.before is not None:
                self._remove(table, before)
            if row.after is not None:
                self._add(table, after)
        except Misfit as error:
            raise Misfit(f"commit_ts {commit_ts}, {row.kind} in {table}: {error.message}") from None

    def _key(self, names: Iterable[str], image: Image) -> str:
        return json.dumps([image[name] for name in (list(names) or sorted(image))])

    def _remove(self, table: Table, image: Image) -> None:
        key = self._key(table.key, image)
        found = self._db.execute("SELECT image, copies FROM rows WHERE id = ? AND key = ?", (table.id, key))
        there = found.fetchone()
        if there is None:
            raise Misfit(f"there is no row {key}")
        if json.loads(there[0]) != image:
            raise Misfit(f"row {key} is {there[0]}, not {json.dumps(image)}")
        if there[1] > 1:
            self._db.execute("UPDATE rows SET copies = copies - 1 WHERE id = ? AND key = ?", (table.id, key))
        else:
            self._db.execute("DELETE FROM rows WHERE id = ? AND key = ?", (table.id, key))

    def _add(self, table: Table, image: Image) -> None:
        key = self._key(table.key, image)
        if table.key:
            found = self._db.execute("SELECT image FROM rows WHERE id = ? AND key = ?", (table.id, key))
            if (there := found.fetchone()) is not None:
                raise Misfit(f"row {key} is there: {there[0]}")
        self._put(table.id, key, image, 1)

    def _put(self, table_id: int, key: str, image: Image, copies: int) -> None:
        self._db.execute(
            "INSERT INTO rows VALUES (?, ?, ?, ?)"
            " ON CONFLICT (id, key) DO UPDATE SET copies = copies + excluded.copies",
            (table_id, key, json.dumps(image), copies),
        )

    def _know(self, table: Table) -> None:
        columns = json.dumps({column.name: column.type for column in table.columns})
        self._db.execute(
            "INSERT OR REPLACE INTO tables VALUES (?, ?, ?, ?)", (table.id, table.schema, table.name, columns)
        )

    def _take_ddl(self, change: Ddl) -> None:
        """Rows of a table that is gone go, those of one that has other columns get them."""
        after = {table.id: table for table in change.after}
        before = {table.id: {column.name: column for column in table.columns} for table in change.before}
        for table in change.before:
            if table.id not in after:
                self._db.execute("DELETE FROM rows WHERE id = ?", (table.id,))
                self._db.execute("DELETE FROM tables WHERE id = ?", (table.id,))
        for table in after.values():
            self._know(table)
            self._reshape(table, before.get(table.id, {}))

    def _reshape(self, table: Table, before: Mapping[str, Column]) -> None:
        found = self._db.execute("SELECT image, copies FROM rows WHERE id = ?", (table.id,)).fetchall()
        self._db.execute("DELETE FROM rows WHERE id = ?", (table.id,))
        for image, copies in found:
            old = json.loads(image)
            new = {column.name: old.get(column.name, column.default) for column in table.columns}
            for column in table.columns:
                was = before.get(column.name)
                if was is not None and was.id != column.id:  # TiDB's way of a change that is more than room
                    new[column.name] = recast(BY_TYPE[was.type], BY_TYPE[column.type], new[column.name])
            self._put(table.id, self._key(table.key, new), new, copies)

    # -- contents --------------------------------------------------------------------------------------

    def contents(self, expected: Iterable[ExpectedTable]) -> Mapping[TableName, ActualTable]:
        """All tables of the schemas that are expected."""
        wanted = {(table.schema, table.name): table for table in expected}
        schemas = {schema for schema, _ in wanted}
        found: dict[TableName, ActualTable] = {}
        for table_id, schema, name, columns in self._db.execute("SELECT * FROM tables").fetchall():
            if schema not in schemas:
                continue
            table = wanted.get((schema, name))
            names = [column.name for column in table.columns] if table else list(json.loads(columns))
            rows: list[tuple[Canonical, ...]] = []
            for image, copies in self._db.execute("SELECT image, copies FROM rows WHERE id = ?", (table_id,)):
                values = json.loads(image)
                rows += [tuple(_canonical(values.get(one)) for one in names)] * copies
            found[schema, name] = ActualTable(tuple(json.loads(columns)), rows)
        return found


def _canonical(value: Any) -> Canonical:
    return Raw(value["hex"]) if isinstance(value, dict) else value
