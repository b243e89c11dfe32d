"""Upstream in memory: timestamps, outcomes, history and catalogue as the standalone upstream keeps them.

For the host's own tests, through `pumpclient.testing`; the publisher's tests run on it and, step for step, on
etcd.

Tests  tests/pumpclient/publish/test_publisher.py
"""

from __future__ import annotations

import json
import threading
from collections.abc import AsyncGenerator, Collection

from tidb_binlog import tso
from tidb_binlog.clock import Clock
from tidb_binlog.errors import BinlogError, Conflict
from tidb_binlog.late_dataclass import dataclass
from tidb_binlog.tso import Ts
from tidb_binlog.upstream.standalone import CatalogChange, Definitions, Forgotten, InDoubt, SchemaMoved
from tidb_binlog.upstream_port import Committed, Outcome, RolledBack, SchemaAt, Undecided, UnderWay


@dataclass(frozen=True, slots=True)
class MemoryPrepared:
    """An entry of which only its database knows the end."""

    commit_ts: Ts
    database: str


class MemoryUpstream:
    """`log` has every step. `dated`: timestamps are of the clock's time, else 1, 2, 3. For any threads."""

    def __init__(self, time: Clock, cluster_id: int = 1, *, dated: bool = False) -> None:
        self.cluster_id = cluster_id
        self.log: list[tuple[str, int]] = []
        self.entries: dict[int, Outcome | MemoryPrepared] = {}
        self.deadlines: dict[int, float] = {}
        self.job_list: list[bytes] = []
        self.definitions: dict[str, bytes] = {}
        self.head: bytes | None = None
        self.head_revision = 0
        self.failing: dict[str, BinlogError] = {}
        """Step (`commit`, `forget`, ...) to the error it raises."""
        self.time = time
        self.lock = threading.RLock()
        """Around each step that reads and then writes; nothing waits for anything inside."""
        self._dated = dated
        self._last_ts = 0

    @property
    def oracle(self) -> MemoryUpstream:
        return self

    @property
    def transactions(self) -> MemoryTransactions:
        return MemoryTransactions(self)

    @property
    def history(self) -> MemoryHistory:
        return MemoryHistory(self)

    @property
    def catalog(self) -> MemoryCatalog:
        return MemoryCatalog(self)

    @property
    def garbage(self) -> MemoryUpstream:
        return self

    async def hold(self, name: str, ts: Ts, ttl_s: int) -> int:
        """Everything stays."""
        return ts

    async def close(self) -> None:
        """Nothing to end."""

    async def timestamp(self) -> Ts:
        return self.draw()

    def draw(self) -> Ts:
        """A timestamp."""
        with self.lock:
            now_ts = tso.compose(int(self.time.wall_s() * 1000)) if self._dated else 0
            self._last_ts = max(self._last_ts + 1, now_ts)
            return self._last_ts

    def step(self, name: str, start_ts: Ts) -> None:
        """Note it, and fail where a test wants it."""
        self.log.append((name, start_ts))
        if name in self.failing:
            raise self.failing[name]


class MemoryTransactions:
    """The table of one `MemoryUpstream`."""

    clients_know = True

    def __init__(self, upstream: MemoryUpstream) -> None:
        self._upstream = upstream

    async def begin(self, ttl_s: float = 3.0) -> int:
        upstream = self._upstream
        start_ts = await upstream.timestamp()
        upstream.step("begin", start_ts)
        upstream.entries[start_ts] = Undecided(ttl_s)
        upstream.deadlines[start_ts] = upstream.time.monotonic_s() + ttl_s
        return start_ts

    async def commit(self, start_ts: Ts, *, schema_revision: int | None = None) -> int:
        self._upstream.step("commit", start_ts)
        with self._upstream.lock:
            entry = self._entry(start_ts)
            if isinstance(entry, Committed):
                return entry.commit_ts
            commit_ts = await self._draw(start_ts, schema_revision)
            self._upstream.entries[start_ts] = Committed(commit_ts)
            return commit_ts

    async def prepare(
        self, start_ts: Ts, database: str, ttl_s: float = 3.0, *, schema_revision: int | None = None
    ) -> int:
        self._upstream.step("prepare", start_ts)
        with self._upstream.lock:
            entry = self._entry(start_ts)
            if isinstance(entry, MemoryPrepared):
                return entry.commit_ts
            commit_ts = await self._draw(start_ts, schema_revision)
            self._upstream.entries[start_ts] = MemoryPrepared(commit_ts, database)
            self._upstream.deadlines[start_ts] = self._upstream.time.monotonic_s() + ttl_s
            return commit_ts

    async def decide(self, start_ts: Ts, *, committed: bool) -> Committed | RolledBack | None:
        self._upstream.step("decide", start_ts)
        entry = self._upstream.entries.get(start_ts)
        if isinstance(entry, MemoryPrepared):
            entry = Committed(entry.commit_ts) if committed else RolledBack()
            self._upstream.entries[start_ts] = entry
        if not isinstance(entry, Committed | RolledBack):
            return None
        if isinstance(entry, Committed) is not committed:
            raise Conflict(f"the opposite of transaction {start_ts} is written down")
        return entry

    async def in_doubt(self, database: str) -> tuple[list[InDoubt], int]:
        self._upstream.step("in_doubt", 0)
        horizon_ts: int = await self._upstream.timestamp()
        doubtful = []
        for start_ts, entry in self._upstream.entries.items():
            if isinstance(entry, Undecided) and isinstance(self._judge(start_ts), Undecided):
                horizon_ts = min(horizon_ts, start_ts)
            if isinstance(entry, MemoryPrepared) and entry.database == database:
                horizon_ts = min(horizon_ts, start_ts)
                doubtful.append(InDoubt(start_ts, entry.commit_ts, database, self._left_s(start_ts)))
        return doubtful, horizon_ts

    async def roll_back(self, start_ts: Ts) -> None:
        self._upstream.step("roll_back", start_ts)
        if isinstance(self._upstream.entries.get(start_ts), Committed):
            raise Conflict(f"transaction {start_ts} is committed")
        self._upstream.entries[start_ts] = RolledBack()

    async def keep_alive(self, start_ts: Ts, ttl_s: float) -> None:
        self._upstream.step("keep_alive", start_ts)
        if not isinstance(self._upstream.entries.get(start_ts), Undecided | MemoryPrepared):
            raise Conflict(f"transaction {start_ts} is over")
        self._upstream.deadlines[start_ts] = self._upstream.time.monotonic_s() + ttl_s

    async def forget(self, start_ts: Ts) -> None:
        self._upstream.step("forget", start_ts)
        self._upstream.entries.pop(start_ts, None)

    async def sweep(self, below_ts: Ts) -> None:
        self._upstream.step("sweep", below_ts)
        for start_ts in [start_ts for start_ts in self._upstream.entries if start_ts < below_ts]:
            end = self._judge(start_ts)
            if isinstance(end, RolledBack) or (isinstance(end, Committed) and end.commit_ts < below_ts):
                await self.forget(start_ts)

    async def outcomes(
        self, transactions: list[tuple[int, bytes]], given_up: Collection[int] = ()
    ) -> list[Outcome]:
        """As pumps ask it: an expired lease is rolled back by the question, unless it is prepared."""
        with self._upstream.lock:
            return [self._judge(start_ts) for start_ts, _ in transactions]

    def _judge(self, start_ts: Ts) -> Outcome:
        entry = self._upstream.entries.get(start_ts, Undecided(0.0))
        if isinstance(entry, MemoryPrepared):
            return Undecided(max(self._left_s(start_ts), 0.5))
        if isinstance(entry, Undecided) and self._left_s(start_ts) <= 0:
            entry = self._upstream.entries[start_ts] = RolledBack()
        return entry

    def _left_s(self, start_ts: Ts) -> float:
        return self._upstream.deadlines.get(start_ts, 0.0) - self._upstream.time.monotonic_s()

    def _entry(self, start_ts: Ts) -> Outcome | MemoryPrepared:
        entry = self._upstream.entries.get(start_ts)
        if entry is None:
            raise Forgotten(f"transaction {start_ts} has no entry any more")
        if isinstance(entry, RolledBack):
            raise Conflict(f"transaction {start_ts} is no longer open")
        return entry

    async def _draw(self, start_ts: Ts, schema_revision: int | None) -> int:
        if schema_revision not in (None, self._upstream.head_revision):
            raise SchemaMoved("the schema has changed")
        return await self._upstream.timestamp()


class MemoryHistory:
    """Finished DDL jobs of one `MemoryUpstream`."""

    def __init__(self, upstream: MemoryUpstream) -> None:
        self._upstream = upstream

    async def job(self, job_id: int) -> bytes | None:
        return next((job for job in self._upstream.job_list if json.loads(job)["id"] == job_id), None)

    async def pages(self, after_id: int = 0) -> AsyncGenerator[list[bytes], None]:
        yield [job for job in self._upstream.job_list if json.loads(job)["id"] > after_id]

    async def schema_at(self, ts: Ts) -> SchemaAt | None:
        """Only the history has it."""
        return None

    async def under_way(self, *, table_id: int = 0, job_id: int = 0) -> UnderWay | None:
        """A DDL is done at once."""
        return None


class MemoryCatalog:
    """The catalogue of one `MemoryUpstream`."""

    def __init__(self, upstream: MemoryUpstream) -> None:
        self._upstream = upstream

    async def load(self) -> Definitions:
        return Definitions(
            self._upstream.head_revision, self._upstream.head, dict(self._upstream.definitions)
        )

    async def revision(self) -> int:
        return self._upstream.head_revision

    async def begin(self, head: bytes) -> bool:
        if self._upstream.head is not None:
            return False
        self._upstream.head, self._upstream.head_revision = head, 1
        return True

    async def commit(self, start_ts: Ts, change: CatalogChange) -> int:
        upstream = self._upstream
        with upstream.lock:
            commit_ts = await upstream.transactions.commit(start_ts, schema_revision=change.revision)
            upstream.head, upstream.head_revision = change.head, upstream.head_revision + 1
            upstream.job_list.append(change.job(commit_ts))
            for name, value in change.puts.items():
                upstream.definitions.pop(name, None)
                if value is not None:
                    upstream.definitions[name] = value
            return commit_ts
