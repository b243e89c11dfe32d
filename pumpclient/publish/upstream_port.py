"""Writable upstream: the port that a publisher needs of the system it draws timestamps from.

`StandaloneUpstream` is one, `pumpclient.testing.MemoryUpstream` another.

Tests  tests/pumpclient/publish/test_publisher.py
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Protocol

from tidb_binlog.tso import Ts
from tidb_binlog.upstream.standalone import CatalogChange, Definitions, InDoubt
from tidb_binlog.upstream_port import Committed, RolledBack, TimestampOracle


class Transactions(Protocol):
    """Outcomes, as the standalone upstream keeps them."""

    async def begin(self, ttl_s: float = ...) -> int:
        """A new start_ts, open until its end, or until nobody has renewed it for `ttl_s` seconds."""
        ...

    async def commit(self, start_ts: Ts, *, schema_revision: int | None = ...) -> int:
        """The commit_ts, drawn now. Raises `Conflict` where it has another end, `SchemaMoved` where the
        catalogue is not at that revision.
        """
        ...

    async def prepare(
        self, start_ts: Ts, database: str, ttl_s: float = ..., *, schema_revision: int | None = ...
    ) -> int:
        """The commit_ts that it gets if `database` commits it. Raises as `commit`."""
        ...

    async def decide(self, start_ts: Ts, *, committed: bool) -> Committed | RolledBack | None:
        """Write down what the database did with a prepared one; the end that it has now, None where it is not
        prepared. Raises `Conflict` where the opposite is written down.
        """
        ...

    async def in_doubt(self, database: str) -> tuple[list[InDoubt], int]:
        """Those prepared for a database, and a start_ts: all below it have ended, but these."""
        ...

    async def roll_back(self, start_ts: Ts) -> None:
        """Give it that end. Raises `Conflict` where it is committed."""
        ...

    async def keep_alive(self, start_ts: Ts, ttl_s: float) -> None:
        """Renew it for `ttl_s` seconds. Raises `Conflict` where it has an end."""
        ...

    async def forget(self, start_ts: Ts) -> None:
        """Drop an end that every pump concerned has."""
        ...

    async def sweep(self, below_ts: Ts) -> None:
        """Drop all ends of what began before, which all pumps have passed."""
        ...


class History(Protocol):
    """Finished DDL jobs."""

    async def job(self, job_id: int) -> bytes | None:
        """The JSON of one."""
        ...

    def pages(self) -> AsyncIterator[list[bytes]]:
        """All of them, some at a time."""
        ...


class Definition(Protocol):
    """The catalogue."""

    async def load(self) -> Definitions:
        """Everything at one revision."""
        ...

    async def revision(self) -> int:
        """When it was changed last; 0 where there is none."""
        ...

    async def begin(self, head: bytes) -> bool:
        """Begin one. False where there is one."""
        ...

    async def commit(self, start_ts: Ts, change: CatalogChange) -> int:
        """Commit a schema change, its job and the new catalogue in one step; the commit_ts. Raises
        `SchemaMoved` where another one came first, `Conflict`.
        """
        ...


class WritableUpstream(Protocol):
    """What a publisher needs of an upstream. `StandaloneUpstream` is one."""

    @property
    def cluster_id(self) -> int:
        """The id that all nodes of the cluster share."""
        ...

    @property
    def oracle(self) -> TimestampOracle:
        """Where timestamps come from."""
        ...

    @property
    def transactions(self) -> Transactions:
        """Where the outcome of each transaction is stored."""
        ...

    @property
    def history(self) -> History:
        """The DDL jobs."""
        ...

    @property
    def catalog(self) -> Definition:
        """The definitions of tables as they are now."""
        ...

    async def close(self) -> None:
        """Nothing more is asked of it."""
        ...
