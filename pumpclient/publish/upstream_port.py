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

    async def begin(self, ttl_s: float = ...) -> int: ...

    async def commit(self, start_ts: Ts, *, schema_revision: int | None = ...) -> int: ...

    async def prepare(
        self, start_ts: Ts, database: str, ttl_s: float = ..., *, schema_revision: int | None = ...
    ) -> int: ...

    async def decide(self, start_ts: Ts, *, committed: bool) -> Committed | RolledBack | None: ...

    async def in_doubt(self, database: str) -> tuple[list[InDoubt], int]: ...

    async def roll_back(self, start_ts: Ts) -> None: ...

    async def keep_alive(self, start_ts: Ts, ttl_s: float) -> None: ...

    async def forget(self, start_ts: Ts) -> None: ...

    async def sweep(self, below_ts: Ts) -> None: ...


class History(Protocol):
    """Finished DDL jobs."""

    async def job(self, job_id: int) -> bytes | None: ...

    def pages(self) -> AsyncIterator[list[bytes]]: ...


class Definition(Protocol):
    """The catalogue."""

    async def load(self) -> Definitions: ...

    async def revision(self) -> int: ...

    async def found(self, head: bytes) -> bool: ...

    async def commit(self, start_ts: Ts, change: CatalogChange) -> int: ...


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
