"""A publisher over a database and an upstream that lose connections and answers, and who disturbs it."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from pumpclient import (
    OutcomeTable,
    Publisher,
)
from pumpclient.testing import MemoryCluster
from tidb_binlog import binlog
from tidb_binlog.clock import ManualClock
from tidb_binlog.errors import Unavailable
from tidb_binlog.etcd.client import EtcdClient
from tidb_binlog.upstream.standalone import GRACE_S, StandaloneUpstream
from tidb_binlog.upstream_port import Committed, Outcome, Undecided


class Database:
    """SQLite in a file: one writer at a time, which is a lock on everything until COMMIT."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.outcomes = OutcomeTable(self.connect)
        self.outcomes.create()
        with closing(self.connect()) as connection:
            connection.execute("CREATE TABLE account (id INTEGER PRIMARY KEY, balance INTEGER NOT NULL)")
            connection.commit()

    def connect(self, wait_s: float = 0.0) -> sqlite3.Connection:
        connection = sqlite3.connect(self.path, timeout=wait_s, check_same_thread=False)
        connection.execute("PRAGMA synchronous = OFF")
        return connection

    def rows(self) -> list[tuple[int, int]]:
        with closing(self.connect()) as connection:
            return connection.execute("SELECT id, balance FROM account ORDER BY id").fetchall()


class LosingUpstream:
    """Loses what a test says: the next request, or the answer to it."""

    def __init__(self, real: Any) -> None:
        self.real = real
        self.lose: tuple[str, bool] | None = None

    def __getattr__(self, name: str) -> Any:
        call = getattr(self.real, name)

        async def losing(*arguments: Any, **named: Any) -> Any:
            if self.lose is not None and self.lose[0] == name:
                (_, takes_place), self.lose = self.lose, None
                if takes_place:
                    await call(*arguments, **named)
                raise Unavailable("the connection to etcd broke")
            return await call(*arguments, **named)

        return losing


@dataclass
class World:
    """One pump, one etcd; processes come and go."""

    clock: ManualClock
    etcd: EtcdClient
    path: Path
    memory: MemoryCluster = field(default_factory=lambda: MemoryCluster(["pump"]))
    upstreams: list[StandaloneUpstream] = field(default_factory=list)
    publishers: list[Publisher] = field(default_factory=list)
    interloper: Callable[[], Awaitable[None]] | None = None
    """Another process, which works while a publisher waits before it asks again."""

    async def upstream(self) -> StandaloneUpstream:
        self.upstreams.append(StandaloneUpstream(self.etcd, 1, self.clock, GRACE_S))
        return self.upstreams[-1]

    async def publisher(self, database: Database) -> tuple[Publisher, LosingUpstream]:
        """A process: nothing runs in its background but what a test starts."""
        upstream = await self.upstream()
        losing = LosingUpstream(upstream.transactions)
        upstream.transactions = losing  # type: ignore[assignment]
        upstream.catalog._transactions = losing  # type: ignore[assignment]
        client = self.memory.client()
        await client.start()
        publisher = Publisher(client, upstream, outcomes=database.outcomes, clock=self.clock, sleep=self.nap)
        await publisher.refresh()
        self.publishers.append(publisher)
        return publisher, losing

    async def nap(self, seconds: float) -> None:
        self.clock.advance(seconds)
        work, self.interloper = self.interloper, None
        await (work() if work is not None else asyncio.sleep(0))

    async def ask(self, upstream: StandaloneUpstream, start_ts: int) -> Outcome:
        """As the pump asks about a prewrite without an end."""
        return (await upstream.transactions.outcomes([(start_ts, b"")]))[0]

    async def stream(self, upstream: StandaloneUpstream) -> dict[int, int]:
        """start_ts -> commit_ts of what comes out of the pump; raises if anything holds it up."""
        found: dict[int, int] = {}
        prewrites: set[int] = set()
        ended: dict[int, int | None] = {}
        for payload in self.memory.pumps["pump"].payloads:
            message = binlog.parse(payload)
            if message.tp == binlog.PREWRITE:
                prewrites.add(message.start_ts)
            else:
                ended[message.start_ts] = message.commit_ts if message.tp == binlog.COMMIT else None
        for start_ts in prewrites - set(ended):
            outcome = await self.ask(upstream, start_ts)
            assert not isinstance(outcome, Undecided), f"{start_ts} is undecided"
            ended[start_ts] = outcome.commit_ts if isinstance(outcome, Committed) else None
        for start_ts in prewrites:
            if (commit_ts := ended[start_ts]) is not None:
                found[start_ts] = commit_ts
        return found

    async def close(self) -> None:
        for publisher in self.publishers:
            await publisher.close(drain_s=0.0)
        for upstream in self.upstreams:
            await upstream.close()
        await EtcdClient.close(self.etcd)


class SharedClient(EtcdClient):
    """One connection for all processes of a test."""

    async def close(self) -> None:
        """It is the world's."""


@pytest.fixture
async def world(etcd_clean: str, tmp_path: Path) -> AsyncIterator[World]:
    made = World(ManualClock(), await SharedClient.connect(etcd_clean), tmp_path)
    yield made
    await made.close()


async def commit_or_ddl(publisher: Publisher, what: str, database: str = "shop") -> int:
    if what == "ddl":
        return await publisher.create_database(database)
    transaction = publisher.transaction()
    await transaction.begin()
    transaction.add(5, 0, b"row")  # type: ignore[arg-type]
    return await transaction.commit()
