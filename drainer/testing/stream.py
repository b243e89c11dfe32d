"""Stream: a made-up upstream for tests of sinks, what its rows are, and what its tables have at the end.

Database d has the tables t (id INT PRIMARY KEY, v VARCHAR) and u (the same without a key). Binlogs are ten
apart from 1000 on, in the form in which a Drainer pulls them.

Tests  tests/contract/test_sink.py
"""

from __future__ import annotations

import json
import random
from typing import Any, Final

from drainer.stream.pull.merged import Merged, Spilled
from drainer.stream.rules.rule_set import Rules
from drainer.stream.schema.tracker import SchemaTracker
from drainer.stream.translate.translator import Translator
from drainer.txn import DELETE, INSERT, UPDATE
from tidb_binlog import binlog
from tidb_binlog.ddl_job import ActionType, DdlJob, database_info
from tidb_binlog.record import crc32c
from tidb_binlog.rowcodec.encoder import RowEncoder, prewrite_value
from tidb_binlog.table_info import FLAG_NOT_NULL, FLAG_PRIMARY, LONG, VARCHAR, Column, FieldType, TableInfo
from tidb_binlog.tso import Ts

CLUSTER_ID: Final = 4712
SCHEMA: Final = "d"
SCHEMA_ID: Final = 5
Rows = list[tuple[int, str]]
Event = tuple[str, int, tuple[int, str]]
"""(table, kind of `drainer.txn`, row). The row of an update is the one before it; its text gets a `+`."""


class Stream:
    """`entries` are the binlogs so far, `jobs` the DDL history, `expected` the rows of each table."""

    def __init__(self) -> None:
        self.jobs: list[bytes] = []
        self.entries: list[Merged] = []
        self.expected: dict[str, Rows] = {"t": [], "u": []}
        self.rows_of: dict[tuple[int, bytes], tuple[tuple[int, str], tuple[int, str]]] = {}
        """(kind, encoded row): the row before and after."""
        self.now_ts = 880
        self.tables = {"t": _table(7, "t", with_key=True), "u": _table(8, "u", with_key=False)}
        self._encoders = {name: RowEncoder(table) for name, table in self.tables.items()}
        self._version = 0
        self._ddl(ActionType.CREATE_SCHEMA, f"CREATE DATABASE `{SCHEMA}`", None)
        for table in self.tables.values():
            self._ddl(ActionType.CREATE_TABLE, _create(table), table)
        self.now_ts = 1000

    def transaction(self, *events: Event, large: bool = False) -> int:
        """Its commit_ts. `large`: it waits on disk, and comes in pieces."""
        by_table: dict[str, tuple[list[int], list[bytes]]] = {}
        for name, kind, row in events:
            new = (row[0], f"{row[1]}+") if kind == UPDATE else row
            encoded = self._encoded(name, kind, row, new)
            self.rows_of[kind, encoded] = row, new
            kinds, rows = by_table.setdefault(name, ([], []))
            kinds.append(kind)
            rows.append(encoded)
            if kind != INSERT:
                self.expected[name].remove(row)
            if kind != DELETE:
                self.expected[name].append(new)
        tables = [(self.tables[name].id, kinds, rows) for name, (kinds, rows) in by_table.items()]
        self.now_ts += 10
        ts = self.now_ts
        value = prewrite_value(self._version, tables)
        payload = binlog.join(binlog.prewrite(ts - 1, b"k", value), binlog.commit(ts - 1, ts, b"k"))
        self.entries.append(_spilled(ts, payload) if large else Merged(ts, payload))
        return ts

    def changes(self, rng: random.Random, transactions: int) -> None:
        """Keys of `t` that come and go, and rows of `u` that stay."""
        for number in range(transactions):
            rows = dict(self.expected["t"])
            key = rng.randrange(8)
            text = f"{len(self.entries)}"
            events: list[Event] = [("u", INSERT, (len(self.expected["u"]), "x" * 40))]
            if key not in rows:
                events.append(("t", INSERT, (key, text)))
            else:
                events.append(("t", rng.choice([UPDATE, DELETE]), (key, rows[key])))
            self.transaction(*events[: 1 + (number % 5 > 0)])

    def large_transaction(self, rows: int) -> int:
        """So many rows of `u`."""
        first = len(self.expected["u"])
        return self.transaction(*(("u", INSERT, (first + number, "l")) for number in range(rows)), large=True)

    def drop_and_make_again(self) -> int:
        """`t` is another table from now on, and empty. Where that begins."""
        dropped_ts = self._ddl(ActionType.DROP_TABLE, "DROP TABLE `t`", self.tables["t"])
        self.tables["t"] = table = _table(self.tables["t"].id + 20, "t", with_key=True)
        self._encoders["t"] = RowEncoder(table)
        self._ddl(ActionType.CREATE_TABLE, _create(table), table)
        self.expected["t"].clear()
        return dropped_ts

    def translator(self, start_ts: Ts) -> Translator:
        """What reads the binlogs above `start_ts`."""
        jobs = [entry.job for entry in self.entries if entry.job and entry.commit_ts <= start_ts]
        version = max((job["binlog"]["SchemaVersion"] for job in jobs), default=0)
        tracker = SchemaTracker.from_history(self.jobs, schema_version=version)
        return Translator(tracker, Rules())

    def _encoded(self, name: str, kind: int, row: tuple[int, str], new: tuple[int, str]) -> bytes:
        encoder = self._encoders[name]
        rowid = None if self.tables[name].pk_is_handle else row[0]
        if kind == UPDATE:
            return encoder.update(row, new, rowid)
        return encoder.insert(row, rowid) if kind == INSERT else encoder.delete(row, rowid)

    def _ddl(self, action: int, query: str, table: TableInfo | None) -> int:
        self._version += 1
        self.now_ts += 10
        job_id = 10 + self._version
        job = DdlJob(
            job_id,
            action,
            schema_id=SCHEMA_ID,
            table_id=table.id if table else 0,
            schema_name=SCHEMA,
            table_name=table.name if table else "",
            query=query,
            schema_version=self._version,
            db_info=None if table else database_info(SCHEMA_ID, SCHEMA),
            table_info=table.to_json() if table else None,
        )
        text = job.to_json()
        document: dict[str, Any] = json.loads(text)
        start_ts = self.now_ts - 1
        prewrite = binlog.prewrite_ddl(start_ts, b"m", query, job_id=job_id)
        self.jobs.append(text)
        payload = binlog.join(prewrite, binlog.commit(start_ts, self.now_ts, b"m"))
        self.entries.append(Merged(self.now_ts, payload, document))
        return self.now_ts


def _table(number: int, name: str, *, with_key: bool) -> TableInfo:
    key = FLAG_NOT_NULL | FLAG_PRIMARY if with_key else 0
    columns = (
        Column(1, "id", 0, FieldType(LONG, key, 64, charset="binary", collate="binary_bin")),
        Column(2, "v", 1, FieldType(VARCHAR, 0, 64, charset="utf8mb4", collate="utf8mb4_bin")),
    )
    return TableInfo(number, name, columns, pk_is_handle=with_key)


def _create(table: TableInfo) -> str:
    key = " PRIMARY KEY" if table.pk_is_handle else ""
    return f"CREATE TABLE `{table.name}` (`id` INT{key}, `v` VARCHAR(64))"


def _spilled(commit_ts: Ts, payload: bytes) -> Merged:
    begin = binlog.contents_offset(payload)
    spilled = Spilled(
        commit_ts,
        binlog.parse(payload).start_ts,
        len(payload),
        begin,
        crc32c(payload[begin:]),
        lambda offset, size: payload[offset : offset + size],
    )
    return Merged(commit_ts, b"", None, spilled)
