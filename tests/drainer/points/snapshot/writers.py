"""A MariaDB whose rows are written while a moment of it is read."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator
from contextlib import closing
from typing import Any

import pymysql

from binlog_playground.cluster.mariadb import MariaDbServer
from drainer.mysql.connection import Target
from drainer.points.snapshot.downstream import Patience
from drainer.points.snapshot.moment import Moment, open_moment
from drainer.stream.pull.merged import Merged, MergedBatch
from drainer.txn import INSERT
from pumpclient import OutcomeTable, Publisher
from pumpclient.testing import MemoryCluster
from tests.drainer.support.apply_life import Life, Recording, run
from tests.drainer.support.held_life import TABLES, TwoTables, hold_of, settings_of
from tests.waiting import PATIENCE_S
from tidb_binlog import binlog

OUTCOMES = "app.binlog_outcome"

WRITERS, MOMENTS = 3, 6

DDL = TwoTables()


class Feed:
    """What a pump has, in order, as far as nothing earlier can come."""

    def __init__(self, memory: MemoryCluster) -> None:
        self._memory = memory
        self._read = 0
        self._open: dict[int, bytes] = {}
        self._ready: list[Merged] = []

    async def batches(self) -> AsyncIterator[MergedBatch]:
        yield MergedBatch(DDL.created, DDL.created[-1].commit_ts)
        while True:
            drawn_ts = await self._memory.upstream.timestamp()
            self._file()
            upto_ts = min(self._open, default=drawn_ts + 1) - 1
            batch = sorted(entry for entry in self._ready if entry.commit_ts <= upto_ts)
            self._ready = [entry for entry in self._ready if entry.commit_ts > upto_ts]
            yield MergedBatch(batch, upto_ts)
            await asyncio.sleep(0.001)

    def _file(self) -> None:
        payloads = self._memory.pumps["pump"].payloads
        for payload in payloads[self._read :]:
            header = binlog.header(binlog.parse(payload))
            if not header.commit_ts and header.tp == binlog.PREWRITE:
                self._open[header.start_ts] = payload
                continue
            prewrite = self._open.pop(header.start_ts)
            if header.commit_ts:
                self._ready.append(Merged(header.commit_ts, binlog.join(prewrite, payload)))
        self._read = len(payloads)


class World:
    """Programs that write into `app`, and a stream that brings it into `d`; one server has both."""

    def __init__(self, server: MariaDbServer, target: Target, memory: MemoryCluster) -> None:
        self._server = server
        self._memory = memory
        self.outcomes = OutcomeTable(self.connect, OUTCOMES)
        tables = [f"CREATE TABLE app.{name} (a INT PRIMARY KEY)" for name in TABLES]
        run(target, "CREATE DATABASE app", *tables, "SELECT 1")
        self.outcomes.create()
        self.settings = settings_of(
            target,
            from_host=target.host,
            from_port=target.port,
            from_user=target.user,
            from_password=target.password,
            from_outcome_table=OUTCOMES,
        )
        self.life = Life(Recording(memory.cluster_id, DDL.jobs, DDL.created), target, batch_rows=20)
        self.drainer = hold_of(self.life.control.hold)
        self.committed: dict[int, int] = {}
        self._rows = itertools.count(1)

    def connect(self) -> Any:
        server = self._server
        return pymysql.connect(
            host=server.host, port=server.port, user=server.user, password=server.password, ssl_disabled=True
        )

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Programs write, and the stream brings it downstream."""
        memory = self._memory
        while await memory.upstream.timestamp() < 2 * DDL.created[-1].commit_ts:
            pass
        publisher = await memory.publisher(self.outcomes)
        applying = asyncio.create_task(self.life.runner.run(Feed(memory).batches()))
        writing = [asyncio.create_task(self._write(publisher)) for _ in range(WRITERS)]
        while self.life.runner.rows == 0:
            await asyncio.sleep(0.001)
        yield
        for task in writing:
            task.cancel()
        await asyncio.gather(*writing, return_exceptions=True)
        assert await self.life.runner.stop(PATIENCE_S)
        await applying
        await publisher.close(drain_s=0.0)

    async def _write(self, publisher: Publisher) -> None:
        with closing(await asyncio.to_thread(self.connect)) as connection:
            while True:
                await self._transaction(publisher, connection, next(self._rows))

    async def _transaction(self, publisher: Publisher, connection: Any, row: int) -> None:
        transaction = publisher.transaction(schema_version=len(TABLES))
        await transaction.begin()
        cursor = connection.cursor()
        for statement in (
            *(f"INSERT INTO app.{name} VALUES ({row})" for name in TABLES),
            self.outcomes.statement(transaction.start_ts),
        ):
            await asyncio.to_thread(cursor.execute, statement)
        for table_id, encoded in DDL.changes(row):
            transaction.add(table_id, INSERT, encoded)  # type: ignore[arg-type]
        commit_ts = await transaction.prepare()
        await asyncio.to_thread(connection.commit)
        self.committed[row] = commit_ts
        await transaction.commit()

    async def moment(self, **patience: float) -> Moment:
        upstream: Any = self._memory.upstream  # timestamps are all that is asked of it
        return await open_moment(self.settings, upstream, self.drainer, 2, patience=Patience(**patience))
