"""Made tables: a Drainer's life with rules, and what is downstream."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from drainer.mysql.connection import Target, connect
from drainer.mysql.literal.quoting import qualified, quote_name
from drainer.stream.pull.merged import Merged
from drainer.txn import INSERT, UPDATE
from tests.drainer.support.apply_life import (
    Recording,
    column,
    create_job,
    created,
)
from tidb_binlog import binlog
from tidb_binlog.ddl_job import ActionType
from tidb_binlog.rowcodec.encoder import RowEncoder, prewrite_value
from tidb_binlog.table_info import FLAG_NOT_NULL, FLAG_PRIMARY, LONG, VARCHAR, Index, IndexColumn, TableInfo

SYSTEM = {"information_schema", "performance_schema", "mysql", "sys", "tidb_binlog"}


def contents(target: Target) -> dict[str, dict[str, Any]]:
    """By database and table: columns and rows."""
    connection = connect(target)
    try:
        found: dict[str, dict[str, Any]] = {}
        for (schema,) in connection.rows(b"SHOW DATABASES"):
            if schema in SYSTEM:
                continue
            tables = found[schema] = {}
            for name, _kind in connection.rows(b"SHOW FULL TABLES FROM " + quote_name(schema)):
                table = qualified(schema, name)
                columns = connection.rows(b"SHOW COLUMNS FROM " + table)
                rows = sorted(map(repr, connection.rows(b"SELECT * FROM " + table)))
                tables[name] = (columns, rows)
        return found
    finally:
        connection.close()


KEY = FLAG_NOT_NULL | FLAG_PRIMARY


def shard(number: int, name: str) -> TableInfo:
    columns = (column(1, "id", LONG, KEY), column(2, "name", VARCHAR), column(3, "secret", VARCHAR))
    return TableInfo(number, name, columns, pk_is_handle=True)


class Made:
    """A recording made up: tables first, then transactions."""

    def __init__(self, *tables: TableInfo) -> None:
        self.encoders = {table.name: (table.id, RowEncoder(table)) for table in tables}
        jobs = []
        for number, table in enumerate(tables, 1):
            job = create_job(table, job_id=10 + number, schema_version=number)
            job["query"] = job["query"].replace("`id` INT", "`id` INT PRIMARY KEY")
            jobs.append(job)
        entries = [created(job, 900 + 10 * number) for number, job in enumerate(jobs)]
        self.recording = Recording(4712, [json.dumps(job).encode() for job in jobs], entries)
        self.version = len(tables)

    def rename(self, commit_ts: int, old: str, new: str) -> None:
        """Of a table of `orders`' shape."""
        self.version += 1
        table_id, encoder = self.encoders.pop(old)
        self.encoders[new] = (table_id, encoder)
        job = create_job(shard(table_id, new), job_id=50, schema_version=self.version)
        job |= {"type": ActionType.RENAME_TABLE, "query": f"RENAME TABLE `{old}` TO `{new}`"}
        self.recording.jobs.append(json.dumps(job).encode())
        self.recording.entries.append(created(job, commit_ts))

    def truncate(self, commit_ts: int, name: str) -> None:
        self.version += 1
        table_id, _ = self.encoders[name]
        table = unique(table_id + 100, name)
        self.encoders[name] = (table.id, RowEncoder(table))
        job = create_job(table, job_id=50, schema_version=self.version)
        job |= {"type": ActionType.TRUNCATE_TABLE, "query": f"TRUNCATE TABLE `{name}`", "table_id": table_id}
        self.recording.jobs.append(json.dumps(job).encode())
        self.recording.entries.append(created(job, commit_ts))

    def transaction(self, commit_ts: int, *events: tuple[str, int, tuple[Any, ...]]) -> None:
        by_table: dict[str, tuple[list[int], list[bytes]]] = {}
        for name, kind, row in events:
            encoder = self.encoders[name][1]
            kinds, rows = by_table.setdefault(name, ([], []))
            kinds.append(kind)
            if kind == UPDATE:
                rows.append(encoder.update(row, (row[0], f"{row[1]}+", row[2])))
            else:
                rows.append(encoder.insert(row) if kind == INSERT else encoder.delete(row))
        tables = [(self.encoders[name][0], kinds, rows) for name, (kinds, rows) in by_table.items()]
        value = prewrite_value(self.version, tables)
        start_ts = commit_ts - 1
        payload = binlog.join(
            binlog.prewrite(start_ts, b"k", value), binlog.commit(start_ts, commit_ts, b"k")
        )
        self.recording.entries.append(Merged(commit_ts, payload))


def unique(number: int, name: str) -> TableInfo:
    """`name` is unique, too."""
    return replace(
        shard(number, name), indexes=(Index(2, "u", (IndexColumn("name", 1),), unique=True, primary=False),)
    )
