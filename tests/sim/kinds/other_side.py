"""Other side: what the Drainer of the other direction writes upstream, beside programs; two-way replication.

Drives  a table that the model does not know, with transactions that carry a mark: of the Drainer's channel,
        of another ring's, or none
Holds   downstream has the rows of those that came from elsewhere, and none that its own cluster wrote
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from random import Random
from typing import Final

from drainer.mysql.connection import Connection
from drainer.mysql.mark import MARK_SCHEMA, MARK_TABLE
from drainer.mysql.mark_table import CREATE_DATABASE, CREATE_TABLE
from pumpclient.errors import OutcomeUnknown, TransactionLost, WriteFailed
from pumpclient.publish.publisher import Publisher
from pumpclient.schema import table_definition
from pumpclient.schema.ddl_job import create_database_job, create_table_job
from tidb_binlog.clock import Clock
from tidb_binlog.rowcodec.encoder import RowEncoder
from tidb_binlog.table_info import TableInfo

CHANNEL: Final = 1
_OTHER_CHANNEL: Final = 2
_SCHEMA, _TABLE = "both", "written"
OTHERS: Final = (_SCHEMA, MARK_SCHEMA)
"""Databases that the model does not know."""
_NUMBERS: Final = [
    table_definition.column(name, "bigint", nullable=False) for name in ("id", "channel_id", "val")
]
_MARKS: Final = table_definition.table(
    MARK_TABLE, [*_NUMBERS, table_definition.column("channel_info", "varchar(64)")], ["id", "channel_id"]
)
_ROWS: Final = table_definition.table(_TABLE, _NUMBERS[:1], ["id"])


class OtherSide:
    """`publisher` and `ids` are the application's."""

    def __init__(self, publisher: Publisher, ids: Iterator[int], rng: Random) -> None:
        self._publisher = publisher
        self._ids = ids
        self._rng = rng
        self.last_commit_ts = 0
        self.marked = 0  # transactions of the Drainer's own channel
        self._coming: set[int] = set()  # rows that have to be downstream in the end
        self._unknown: set[int] = set()  # or not: nobody has heard how their transaction ended

    async def create(self) -> None:
        """The tables, before any other DDL."""
        version = self._publisher.schema_version
        texts = CREATE_DATABASE.decode(), CREATE_TABLE.decode()
        self._marks = await self._create(MARK_SCHEMA, _MARKS, version, *texts)
        texts = f"CREATE DATABASE {_SCHEMA}", f"CREATE TABLE {_SCHEMA}.{_TABLE} (id BIGINT PRIMARY KEY)"
        self._rows = await self._create(_SCHEMA, _ROWS, version + 2, *texts)

    async def _create(
        self, schema: str, table: TableInfo, version: int, database: str, text: str
    ) -> TableInfo:
        schema_id, table = next(self._ids), replace(table, id=next(self._ids))
        job = create_database_job(next(self._ids), schema_id, schema, schema_version=version + 1)
        await self._publisher.ddl(job, database)
        job = create_table_job(next(self._ids), schema_id, schema, table, schema_version=version + 2)
        await self._publisher.ddl(job, text)
        return table

    async def write(self, end_s: float, clock: Clock) -> None:
        """Until then; each transaction inserts one row of its own."""
        marks, rows, number = RowEncoder(self._marks), RowEncoder(self._rows), 0
        while clock.monotonic_s() < end_s:
            number += 1
            channel = self._rng.choice((CHANNEL, CHANNEL, _OTHER_CHANNEL, None))
            try:
                async with self._publisher.transaction(ttl_s=10.0) as transaction:
                    if channel is not None:
                        transaction.insert(self._marks.id, marks.insert((number, channel, 1, None)))
                    transaction.insert(self._rows.id, rows.insert((number,)))
            except (WriteFailed, TransactionLost):
                continue
            except OutcomeUnknown:
                self._unknown.add(number)
            else:
                self.last_commit_ts = transaction.commit_ts
                self.marked += channel == CHANNEL
                if channel != CHANNEL:
                    self._coming.add(number)
            await asyncio.sleep(self._rng.expovariate(2.0))

    def differs(self, downstream: Connection) -> str:
        """What is wrong downstream, once all has arrived there; "" if nothing is."""
        there = {
            int(number) for (number,) in downstream.rows(f"SELECT id FROM `{_SCHEMA}`.`{_TABLE}`".encode())
        }
        came_back = there - self._coming - self._unknown
        lost = self._coming - there
        if came_back:
            return f"rows {sorted(came_back)} came back to where they were written"
        return f"rows {sorted(lost)} of elsewhere are missing" if lost else ""
