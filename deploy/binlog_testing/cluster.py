"""Cluster: etcd, pumps and their connections in memory, for tests of programs that publish or subscribe.

    with BinlogCluster() as cluster:
        main(cluster.endpoint)

Holds   `endpoint` stands for this cluster in `pumpclient.open_publisher` and `drainer.subscribe`, with
        asyncio and without, on any thread; time is the host's
Stops   at the end of the `with`; streams and publishers are their programs' to close

Tests  tests/deploy/binlog_testing/test_cluster.py
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any, Final, Self

import drainer
import pumpclient
from binlog_testing import memory_reader
from binlog_testing.memory_pull import MemoryPull
from binlog_testing.memory_reader import MemoryReader, MemoryReaders
from drainer.points.rows.snapshot_position import SnapshotRequest
from drainer.reading.subscribe import ways
from drainer.reading.subscribe.stream_start import Ask
from drainer.stream.pull.pump_source import PullClient
from drainer.stream.schema.tracker import SchemaTracker
from drainer.stream.schema.upstream_schema import read_schema
from pumpclient.publish import publisher
from pumpclient.testing import MemoryCluster, MemoryRegistry, RealTime
from pumpclient.testing.memory_pump import MemoryPump
from tidb_binlog.errors import Unavailable
from tidb_binlog.late_dataclass import replace
from tidb_binlog.tso import Ts
from tidb_binlog.upstream.choice import Kind
from tidb_binlog.upstream.upstream_time import UpstreamTime
from tidb_binlog.upstream_port import Upstream

PATIENCE_S: Final = 30.0
_numbers = itertools.count(1)


class BinlogCluster:
    """`endpoint`: give it to the program."""

    def __init__(self, pumps: Iterable[str] = ("pump-1", "pump-2")) -> None:
        self.endpoint = f"memory:{next(_numbers)}"
        self._memory = MemoryCluster(pumps, time=RealTime())
        self._readers = MemoryReaders()
        self._whole = f"{self.endpoint}:whole"  # for all that was ever committed, purged or not

    @property
    def pumps(self) -> dict[str, MemoryPump]:
        """By id. `broken`, `hanging` and `failures` of each may be set at any time; one that is taken out is
        away."""
        return self._memory.pumps

    def add_pump(self, pump_id: str) -> MemoryPump:
        """Have one more join."""
        return self._memory.add_pump(pump_id)

    def __enter__(self) -> Self:
        way = _MemoryWay(self._memory, self._readers, lambda ts: self._state(self._whole, ts))
        ways.IN_MEMORY[self.endpoint] = way
        ways.IN_MEMORY[self._whole] = _MemoryWay(self._memory, self._readers, way.state, keeps=True)
        publisher.IN_MEMORY[self.endpoint] = self._memory.publisher
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        del ways.IN_MEMORY[self.endpoint], ways.IN_MEMORY[self._whole]
        del publisher.IN_MEMORY[self.endpoint]

    # -- what a program calls, for the test -----------------------------------------------------------

    def publisher(self) -> pumpclient.Opening[pumpclient.Publisher]:
        """`pumpclient.open_publisher`: awaited, or entered with `async with`."""
        return pumpclient.open_publisher(self.endpoint)

    def publisher_sync(self) -> pumpclient.SyncPublisher:
        """`pumpclient.open_publisher_sync`."""
        return pumpclient.open_publisher_sync(self.endpoint)

    def subscribe(self, **options: Any) -> drainer.Subscription:
        """`drainer.subscribe`, which has the options."""
        return drainer.subscribe(self.endpoint, **options)

    def subscribe_sync(self, **options: Any) -> drainer.SyncSubscription:
        """`drainer.subscribe_sync`."""
        return drainer.subscribe_sync(self.endpoint, **options)

    # -- what happened --------------------------------------------------------------------------------

    def changes(self, *tables: str) -> list[drainer.Transaction | drainer.Ddl]:
        """Everything that was committed so far, in order; of tables by name or pattern, or of all."""
        return _changes(self.endpoint, tables, "now")

    def rows(self, table: str) -> list[dict[str, Any]]:
        """The rows that a table has now, in the order of their last insert or update. Raises `KeyError` where
        there is no such table."""
        return self._state(self.endpoint, "now")[table]

    def _state(self, endpoint: str, stop: int | str) -> dict[str, list[dict[str, Any]]]:
        state: dict[str, dict[object, dict[str, Any]]] = {}
        for change in _changes(endpoint, (), stop):
            if isinstance(change, drainer.Ddl):
                for gone in change.effect.emptied:
                    state.pop(str(gone), None)
                moved = [(str(new), state.pop(str(old), {})) for old, new in change.effect.moved]
                state.update(moved)
                for after in change.after:
                    state.setdefault(str(after), {})
                continue
            for row in change.rows:
                kept = state.setdefault(str(row.table), {})
                if row.before is not None:
                    kept.pop(_identity(row.table, row.before), None)
                if row.after is not None:
                    kept[_identity(row.table, row.after)] = row.after
        return {table: list(rows.values()) for table, rows in state.items()}

    # -- readers with a name --------------------------------------------------------------------------

    def position(self, name: str) -> Ts:
        """Up to where the reader of this name has done everything; 0 for one that was never there."""
        return self._readers.stored.get(name, 0)

    async def caught_up(self, name: str, *, timeout_s: float = PATIENCE_S) -> Ts:
        """Wait until this reader has done all that is committed when it is called; up to where that is.

        Raises `TimeoutError`.
        """
        return await asyncio.to_thread(self.caught_up_sync, name, timeout_s=timeout_s)

    def caught_up_sync(self, name: str, *, timeout_s: float = PATIENCE_S) -> Ts:
        """The same, for a program that reads in another thread."""
        ts = self._memory.upstream.draw()
        self._readers.reach(name, ts, timeout_s)
        return ts

    def purge(self, ts: Ts) -> None:
        """Pumps hold what is above this timestamp only, as after their retention."""
        for pump in self.pumps.values():
            pump.purged_ts = ts


def _changes(
    endpoint: str, tables: Iterable[str], stop: int | str
) -> list[drainer.Transaction | drainer.Ddl]:
    with drainer.subscribe_sync(
        endpoint, tables=tables, start="oldest", stop=stop, missing_ok=True
    ) as stream:
        changes = []
        for change in stream:
            if isinstance(change, drainer.Transaction):
                change.rows = list(change.rows)  # those of a large one are read now or never
            changes.append(change)
    return changes


def _identity(table: drainer.Table, row: dict[str, Any]) -> object:
    names = table.key or tuple(row)
    return tuple(repr(row[name]) for name in names)


class _MemoryWay:
    """The `Way` of a stream. `state`: rows of all tables at a timestamp; `keeps`: nothing is purged on it."""

    def __init__(
        self,
        memory: MemoryCluster,
        readers: MemoryReaders,
        state: Callable[[Ts], memory_reader.Rows],
        *,
        keeps: bool = False,
    ) -> None:
        self._memory = memory
        self._readers = readers
        self.state = state
        self._keeps = keeps

    async def upstream(self, kind: Kind) -> Upstream:
        return self._memory.upstream

    async def registry(self) -> MemoryRegistry:
        return self._memory.registry

    async def reader(
        self,
        name: str,
        time: UpstreamTime,
        doing: Callable[[], str],
        address: drainer.ReaderAddress | None,
    ) -> MemoryReader:
        return self._readers.open(name)

    async def snapshot(self, request: SnapshotRequest) -> tuple[memory_reader.MemorySnapshot, SchemaTracker]:
        upstream, position = request.upstream, request.position
        at = replace(position, ts=position.ts or await upstream.oracle.timestamp())
        rows = await asyncio.to_thread(self.state, at.ts)
        tracker = await read_schema(upstream.history, at.ts, 0)
        return memory_reader.MemorySnapshot(rows, tracker, request.rules, at, upstream.cluster_id), tracker

    def asks(self) -> Ask:
        async def ask(address: str) -> int:
            pump = self._memory.pumps.get(address)
            if pump is None:
                raise Unavailable(f"{address} does not answer")
            return 0 if self._keeps else pump.purged_ts

        return ask

    def client(self, address: str) -> PullClient:
        return MemoryPull(
            address, lambda: self._memory.pumps.get(address), self._memory.upstream, keeps=self._keeps
        )
