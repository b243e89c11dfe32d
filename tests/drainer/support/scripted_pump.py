"""A pump that does what a test says, as the drainer sees it: behind the `PullClient` port or behind gRPC."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

from drainer.stream.pull.pump_source import PULL_BATCHES, PULL_BINLOGS
from tests.waiting import until
from tidb_binlog import binlog, rpc
from tidb_binlog.cluster.node import NodeStatus
from tidb_binlog.cluster.registry import ClusterView, NodeEntry
from tidb_binlog.errors import Unavailable
from tidb_binlog.wire import binlog_pb2, pump_pb2

THREADS_MS = 20_000


def row_payload(start_ts: int, commit_ts: int, table_id: int = 100, rows: int = 1, size: int = 10) -> bytes:
    """A joined binlog with inserts."""
    mutation = binlog_pb2.TableMutation(
        table_id=table_id, inserted_rows=[b"r" * size] * rows, sequence=[binlog_pb2.Insert] * rows
    )
    value = binlog_pb2.PrewriteValue(schema_version=1, mutations=[mutation]).SerializeToString()
    return binlog.join(binlog.prewrite(start_ts, b"k", value), binlog.commit(start_ts, commit_ts, b"k"))


def ddl_payload(commit_ts: int, job_id: int, query: str, schema_state: int = 5) -> bytes:
    prewritten = binlog.prewrite_ddl(commit_ts - 1, b"k", query, job_id, schema_state)
    return binlog.join(prewritten, binlog.commit(commit_ts - 1, commit_ts, b"k"))


@dataclass
class Connection:
    """One stream: `requests` so far; `replies` takes bytes, or an exception that ends it."""

    path: str
    gzip: bool = False
    requests: list[bytes] = field(default_factory=list)
    replies: asyncio.Queue[bytes | Exception | None] = field(default_factory=asyncio.Queue)
    closed: bool = False

    def batch_requests(self) -> list[pump_pb2.PullBatchesReq]:
        return [pump_pb2.PullBatchesReq.FromString(data) for data in self.requests]

    def send(self, payloads: list[bytes], watermark: int) -> None:
        reply = pump_pb2.PullBatchesResp(payloads=payloads, watermark=watermark)
        self.replies.put_nowait(reply.SerializeToString())

    def send_entity(self, payload: bytes) -> None:
        entity = pump_pb2.Entity(pos=pump_pb2.Pos(), payload=payload)
        self.replies.put_nowait(pump_pb2.PullBinlogResp(entity=entity).SerializeToString())

    def fail(self, error: Exception) -> None:
        self.replies.put_nowait(error)

    def finish(self) -> None:
        self.replies.put_nowait(None)


class ScriptedPump:
    """Several connections after one another. `serves_batches` False: an old pump; `up` False: refuses."""

    def __init__(self, address: str = "pump:1", *, serves_batches: bool = True) -> None:
        self.address = address
        self.serves_batches = serves_batches
        self.up = True
        self.connections: list[Connection] = []
        self.attempts = 0
        self.on_connect: Callable[[], None] = lambda: None

    @property
    def connection(self) -> Connection:
        return self.connections[-1]

    def client(self, address: str) -> ScriptedClient:
        assert address == self.address
        self.attempts += 1
        self.on_connect()
        return ScriptedClient(self)

    async def connected(self, count: int = 1) -> Connection:
        """The latest connection, once there have been `count`."""
        await until(lambda: len(self.connections) >= count and bool(self.connection.requests))
        return self.connection


class ScriptedClient:
    """One `PullClient`."""

    def __init__(self, pump: ScriptedPump) -> None:
        self._pump = pump
        self._connection: Connection | None = None

    async def _replies(self, path: str) -> AsyncIterator[bytes]:
        if not self._pump.up:
            raise Unavailable("nobody listens")
        if path == PULL_BATCHES and not self._pump.serves_batches:
            raise rpc.RpcStatus(rpc.UNIMPLEMENTED, "unknown service binlog.PumpBatch")
        self._connection = connection = Connection(path)
        self._pump.connections.append(connection)
        while True:
            reply = await connection.replies.get()
            if reply is None:
                return
            if isinstance(reply, Exception):
                raise reply
            yield reply

    async def server_stream(self, path: str, request: bytes, *, gzip: bool) -> AsyncIterator[bytes]:
        assert path == PULL_BINLOGS
        replies = self._replies(path)
        first = asyncio.ensure_future(anext(replies, None))
        await asyncio.sleep(0)
        if self._connection is not None:
            self._connection.gzip = gzip
            self._connection.requests.append(request)
        try:
            reply = await first
            while reply is not None:
                yield reply
                reply = await anext(replies, None)
        finally:
            first.cancel()

    async def bidi(self, path: str, requests: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        async def read() -> None:
            async for request in requests:
                if self._connection is not None:
                    self._connection.requests.append(request)

        replies = self._replies(path)
        first = asyncio.ensure_future(anext(replies, None))
        await asyncio.sleep(0)
        reader = asyncio.ensure_future(read())
        try:
            reply = await first
            while reply is not None:
                yield reply
                reply = await anext(replies, None)
        finally:
            first.cancel()
            reader.cancel()
            await asyncio.wait({reader})

    async def close(self) -> None:
        if self._connection is not None:
            self._connection.closed = True


class MemoryRegistry:
    """The pumps of a cluster; `change` is what others write into the registry."""

    def __init__(self, **pumps: str) -> None:
        """`name=state`; each has the address `name:1`."""
        self._revision = 1
        self.entries: dict[str, NodeEntry] = {}
        self.watchers: list[asyncio.Queue[ClusterView]] = []
        self.down = False
        for name, state in pumps.items():
            self.change(name, state)

    def change(
        self, name: str, state: str | None, address: str = "", *, watched: bool = True, last_ts: int = 0
    ) -> None:
        """Write (state None: delete) an entry; `watched` False: the watch is late."""
        self._revision += 1
        entries = dict(self.entries)
        if state is None:
            del entries[name]
        else:
            status = NodeStatus(name, address or f"{name}:1", state, last_ts)
            entries[name] = NodeEntry(status, self._revision, True)
        self.entries = entries
        for watcher in self.watchers if watched else ():
            watcher.put_nowait(self.current_view())

    def current_view(self) -> ClusterView:
        return ClusterView(self._revision, self.entries, {})

    async def view(self) -> ClusterView:
        if self.down:
            raise Unavailable("registry is down")
        return self.current_view()

    async def watch(self) -> AsyncIterator[ClusterView]:
        queue: asyncio.Queue[ClusterView] = asyncio.Queue()
        self.watchers.append(queue)
        if not self.down:
            yield self.current_view()
        while True:
            yield await queue.get()
