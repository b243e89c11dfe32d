"""A drainer's lives over a made-up upstream, one lane of which can be held back: for tests of what lane
positions belong to."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

from drainer.config.options import DrainerConfig
from drainer.mysql.connection import Target, connect
from drainer.stream.pull.merged import Merged, MergedBatch, Spilled
from drainer.stream.rules.rule_set import Rules, read_rules
from drainer.txn import INSERT, UPDATE
from pumpclient.schema.ddl_job import create_database_job
from tests.drainer.support.apply_life import Life, Recording, column, create_job, created, run
from tests.waiting import PATIENCE_S, until
from tidb_binlog import binlog
from tidb_binlog.record import crc32c
from tidb_binlog.rowcodec.encoder import RowEncoder, prewrite_value
from tidb_binlog.table_info import FLAG_NOT_NULL, FLAG_PRIMARY, LONG, VARCHAR, Index, IndexColumn, TableInfo

ADD_INDEX, DROP_INDEX, ADD_COLUMN, MODIFY_COLUMN = 7, 8, 5, 12
KEY = FLAG_NOT_NULL | FLAG_PRIMARY
Event = tuple[str, int, tuple[Any, ...]]


def keyed(number: int, name: str) -> TableInfo:
    return TableInfo(number, name, (column(1, "id", LONG, KEY), column(2, "v", VARCHAR)), pk_is_handle=True)


def keyless(number: int, name: str) -> TableInfo:
    return TableInfo(number, name, (column(1, "id", LONG), column(2, "v", VARCHAR)))


def keyed_by_text(number: int, name: str, collate: str) -> TableInfo:
    """`k`, the key, and `v`."""
    key = column(1, "k", VARCHAR, KEY)
    key = replace(key, type=replace(key.type, collate=collate))
    index = Index(1, "PRIMARY", (IndexColumn("k", 0),), unique=True, primary=True)
    return TableInfo(number, name, (key, column(2, "v", VARCHAR)), (index,), is_common_handle=True)


def spilled(entry: Merged) -> Merged:
    """The same binlog, as if it lay on disk; that of a DDL as it is."""
    payload = entry.payload
    message = binlog.parse(payload)
    if message.ddl_job_id:
        return entry
    begin = binlog.contents_offset(payload)
    return Merged(
        entry.commit_ts,
        b"",
        None,
        Spilled(
            entry.commit_ts,
            message.start_ts,
            len(payload),
            begin,
            crc32c(payload[begin:]),
            lambda offset, size: payload[offset : offset + size],
        ),
    )


def routes(*rules: tuple[str, str, str, str], **more: Any) -> Rules:
    """(schema, table) patterns to (schema, table), in a configuration."""
    found = [
        {"source": {"schema": schema, "table": table}, "target": {"schema": to, "table": name}}
        for schema, table, to, name in rules
    ]
    return read_rules(replace(DrainerConfig(), table_migrate_rule=tuple(found), **more))


class Upstream:
    """Tables of database d, DDL and transactions, ten apart from 1000 on."""

    def __init__(self, *tables: TableInfo) -> None:
        self.tables = {table.name: table for table in tables}
        self._encoders = {table.name: RowEncoder(table) for table in tables}
        self.version = 0
        self._jobs = 10
        self.now_ts = 880
        self.recording = Recording(4712, [], [])
        self._ddl(json.loads(create_database_job(0, 5, "d", schema_version=0)))
        for table in tables:
            job = create_job(table, job_id=0, schema_version=0)
            if table.pk_is_handle:
                job["query"] = job["query"].replace("`id` INT", "`id` INT PRIMARY KEY")
            if table.is_common_handle:
                key = f"`k` VARCHAR(64) COLLATE {table.columns[0].type.collate} PRIMARY KEY"
                job["query"] = job["query"].replace("`k` VARCHAR(64)", key)
            self._ddl(job)
        self.now_ts = 1000

    def _ddl(self, job: dict[str, Any]) -> int:
        self.version += 1
        self._jobs += 1
        self.now_ts += 10
        job["id"] = self._jobs
        job.setdefault("query", "")
        job["query"] = job["query"] or "CREATE DATABASE `d`"
        job["binlog"]["SchemaVersion"] = self.version
        self.recording.jobs.append(json.dumps(job).encode())
        self.recording.entries.append(created(job, self.now_ts))
        return self.now_ts

    def large(self) -> None:
        """The last transaction lies on disk, as one that is large."""
        self.recording.entries[-1] = spilled(self.recording.entries[-1])

    def alter(self, table: TableInfo, kind: int, clause: str) -> int:
        """The table is as given from now on. Its job's commit_ts."""
        self.tables[table.name] = table
        self._encoders[table.name] = RowEncoder(table)
        job = create_job(table, job_id=0, schema_version=0)
        job |= {"type": kind, "query": f"ALTER TABLE `{table.name}` {clause}"}
        return self._ddl(job)

    def add_unique(self, name: str) -> int:
        table = self.tables[name]
        index = Index(9, "u", (IndexColumn("v", 1),), unique=True, primary=False)
        return self.alter(replace(table, indexes=(index,)), ADD_INDEX, "ADD UNIQUE KEY `u` (`v`)")

    def transaction(self, *events: Event) -> int:
        by_table: dict[str, tuple[list[int], list[bytes]]] = {}
        for name, kind, row in events:
            encoder = self._encoders[name]
            table = self.tables[name]
            handle = {} if table.pk_is_handle or table.is_common_handle else {"rowid": row[0]}
            kinds, rows = by_table.setdefault(name, ([], []))
            kinds.append(kind)
            if kind == UPDATE:
                rows.append(encoder.update(row, (row[0], f"{row[1]}+"), **handle))
            else:
                rows.append((encoder.insert if kind == INSERT else encoder.delete)(row, **handle))
        tables = [(self.tables[name].id, kinds, rows) for name, (kinds, rows) in by_table.items()]
        self.now_ts += 10
        ts = self.now_ts
        value = prewrite_value(self.version, tables)
        payload = binlog.join(binlog.prewrite(ts - 1, b"k", value), binlog.commit(ts - 1, ts, b"k"))
        self.recording.entries.append(Merged(ts, payload))
        return ts

    def rows(self, name: str, ids: Iterable[int]) -> int:
        """A transaction each."""
        last = 0
        for number in ids:
            last = self.transaction((name, INSERT, (number, f"v{number}")))
        return last


class Running:
    """A life that gets its stream as a test hands it out, and dies or stops when it says."""

    def __init__(self, upstream: Upstream, target: Target, rules: Rules, **settings: Any) -> None:
        recording = Recording(upstream.recording.cluster_id, [*upstream.recording.jobs], [])
        recording.entries = upstream.recording.entries
        self._life = Life(recording, target, rules=rules, **settings)
        self.runner = self._life.runner
        self.sink = self._life.sink
        self.translator = self._life.translator
        self.control = self._life.control
        self._target = target
        self._upstream = upstream
        self._given: asyncio.Queue[MergedBatch | None] = asyncio.Queue()
        self._given_ts = self.sink.start_ts
        self.task = asyncio.create_task(self.runner.run(self._batches()))
        self._others = [
            asyncio.create_task(work) for work in (self.runner.watch(), self.sink.quarantine.run())
        ]

    async def _batches(self) -> AsyncIterator[MergedBatch]:
        while (batch := await self._given.get()) is not None:
            yield batch

    def give(self, upto_ts: int = 1 << 60) -> None:
        """What the upstream has had since, up to there."""
        entries = [one for one in self._life.recording.entries if self._given_ts < one.commit_ts <= upto_ts]
        for entry in entries:
            self._given.put_nowait(MergedBatch([entry], entry.commit_ts))
        if entries:
            self._given_ts = entries[-1].commit_ts

    async def until(self, condition: Callable[[], bool]) -> None:
        """Pumps raise their watermark meanwhile."""

        def holds() -> bool:
            if self._given.empty():
                self._given.put_nowait(MergedBatch([], self._given_ts))
            return condition()

        await until(holds, condition, beside=(self.task, self._others[0]))

    async def applied(self, upto_ts: int = 0) -> None:
        """Everything given so far is downstream."""
        wanted = upto_ts or self._given_ts
        await self.until(lambda: self.runner.resolved_ts >= wanted)

    async def reaches(self, lane: int, upto_ts: int) -> None:
        """A lane has stored that it stands at that transaction or after it."""
        await self.until(lambda: lanes(self._target)[lane] >= upto_ts)

    async def kill(self) -> None:
        for task in (self.task, *self._others):
            task.cancel()
        self._life.die()
        await asyncio.gather(self.task, *self._others, return_exceptions=True)

    async def stop(self) -> None:
        self._given.put_nowait(None)
        await self.task
        assert await self.runner.stop(PATIENCE_S)
        for task in self._others:
            task.cancel()
        await asyncio.gather(*self._others, return_exceptions=True)


async def whole_life(upstream: Upstream, target: Target, rules: Rules | None = None) -> None:
    """Up to the end of what the upstream has, and a graceful stop."""
    life = Running(upstream, target, rules or routes())
    life.give()
    await life.applied()
    await life.stop()


def lanes(target: Target) -> list[int]:
    return [
        int(ts)
        for (ts,) in run(target, "SELECT applied_ts FROM tidb_binlog.lanes WHERE lane < 65536 ORDER BY lane")
    ]


@contextlib.contextmanager
def held(target: Target, *statements: str) -> Iterator[None]:
    """Somebody's transaction that a lane waits for."""
    connection = connect(target)
    try:
        for statement in statements:
            connection.run(statement.encode())
        yield
    finally:
        with contextlib.suppress(Exception):
            connection.rollback()
        connection.close()


def ids(target: Target, table: str) -> list[int]:
    return [int(one) for (one,) in run(target, f"SELECT id FROM {table} ORDER BY id")]
