"""A peer that is made from the .proto files sends valid messages with every field at its edges and in
quantity, beside an honest writer and reader: whatever the honest writer was told is stored arrives, in order
and in bounded time, and memory grows no further than was promised.

It has prewrites for its commits: a commit whose prewrite is nowhere stops readers, by intent.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

from tests.pump.support.process import PumpClient, Start
from tidb_binlog import binlog, rpc, tso
from tidb_binlog.binlog import KEY_BYTES_MAX
from tidb_binlog.clock import SystemClock
from tidb_binlog.errors import BinlogError
from tidb_binlog.upstream.standalone import StandaloneUpstream
from tidb_binlog.upstream.upstream_time import AHEAD_MAX_S
from tidb_binlog.wire import binlog_pb2, pump_pb2

pytestmark = pytest.mark.integration

PUMP, BATCH = (pump_pb2.DESCRIPTOR.services_by_name[name] for name in ("Pump", "PumpBatch"))

ARRIVES_S = 60.0
FLOOD = 20_000
SIZES = (0, 1, 127, 128, KEY_BYTES_MAX, 3 * KEY_BYTES_MAX)
MANY = 1000
PULLS = 40
GROWN_MIB = 400
SOON_S = AHEAD_MAX_S - 0.5
"""So far ahead a timestamp is taken, and may not hide what others commit until then."""
NOT_DRAWN = tso.LOGICAL_MAX // 2
"""Who ends another's transaction by its start_ts has ended it: the hostile one has timestamps that the oracle
does not give to the honest one."""


class Edges:
    """Values of fields: none, the smallest and the largest, and those around their bounds here."""

    def __init__(self, cluster_id: int, near_ts: int, rng: random.Random) -> None:
        self.cluster_id, self.near_ts, self.rng = cluster_id, near_ts, rng

    def of(self, field: FieldDescriptor) -> list[Any]:
        if field.name.lower().replace("_", "") == "clusterid":
            return [self.cluster_id] * 6 + [None, (1 << 64) - 1]
        found: list[Any]
        if field.message_type is not None:
            found = [self.message(field.message_type) for _ in range(4)]
        elif field.type == field.TYPE_ENUM:
            assert field.enum_type is not None
            found = [*field.enum_type.values_by_number]
        elif field.type == field.TYPE_BOOL:
            found = [False, True]
        elif field.type == field.TYPE_STRING:
            found = ["", "zstd", "gzip", "x" * MANY]
        elif field.type == field.TYPE_BYTES:
            found = [*map(bytes, SIZES)]
        else:
            found = self.number(field)
        if field.is_repeated:
            return [[], found, found * (MANY // len(found))]
        return [None, *found]

    def number(self, field: FieldDescriptor) -> list[int]:
        if field.type == field.TYPE_INT32:
            return [0, 1, -1, (1 << 31) - 1, -(1 << 31)]
        if field.type == field.TYPE_UINT64:
            return [0, 1, (1 << 64) - 1]
        assert field.type == field.TYPE_INT64, field.name
        now_ts, ts = tso.from_wall_s(SystemClock().wall_s()), self.near_ts
        ahead = [now_ts + tso.compose(int(seconds * 1000), NOT_DRAWN) for seconds in (SOON_S, 36_000)]
        return [0, 1, -1, ts - 1, ts, ts + 1, *ahead, (1 << 63) - 1, -(1 << 63)]

    def message(self, kind: Descriptor, name: str = "", value: Any = None) -> Message:
        """Random ones, but for one field."""
        message = message_factory.GetMessageClass(kind)()
        for field in kind.fields:
            chosen = value if field.name == name else self.rng.choice(self.of(field))
            if isinstance(chosen, list):
                getattr(message, field.name).extend(chosen)
            elif isinstance(chosen, Message):
                getattr(message, field.name).CopyFrom(chosen)
            elif chosen is not None:
                setattr(message, field.name, chosen)
        return message

    def messages(self, kind: Descriptor, times: int) -> Iterator[Message]:
        """Each pair of a field and one of its values with random ones of the others."""
        for _ in range(times):
            for field in kind.fields:
                for at in range(len(self.of(field))):
                    yield self.message(kind, field.name, self.of(field)[at])


async def edge_writer(edges: Edges, peer: PumpClient, client: rpc.Client) -> int:
    """Sends them one by one and in streams; how many were taken."""
    taken, path = 0, "/binlog.PumpBatch/WriteBinlogs"
    for message in edges.messages(binlog_pb2.Binlog.DESCRIPTOR, 4):
        payload = message.SerializeToString()
        for each in (binlog.prewrite(message.start_ts, b"key", b"value"), payload):  # type: ignore[attr-defined]
            with suppress(BinlogError, rpc.RpcStatus):
                await peer.write(each)
                taken += 1
        request = pump_pb2.WriteBinlogsReq(cluster_id=edges.cluster_id, payloads=[payload] * 3)
        with suppress(BinlogError, rpc.RpcStatus):
            async for _ in client.bidi(path, once(request)):
                pass
    return taken


async def once(*requests: Message) -> AsyncIterator[bytes]:
    for request in requests:
        yield request.SerializeToString()


async def edge_caller(edges: Edges, client: rpc.Client) -> int:
    """Calls whatever is declared with whatever is declared for it; how many calls were answered. What a pull
    gives is read in part, and the last ones stay open."""
    answered, open_ones = 0, deque[asyncio.Task[None]]()

    async def pull(replies: AsyncIterator[bytes]) -> None:
        nonlocal answered
        with suppress(BinlogError, rpc.RpcStatus):
            async for _ in replies:
                answered += 1
                await asyncio.sleep(0.05)

    methods = [one for service in (PUMP, BATCH) for one in service.methods]
    for method in methods:
        path = f"/{method.containing_service.full_name}/{method.name}"
        for message in edges.messages(method.input_type, 6):
            data = message.SerializeToString()
            if not method.server_streaming:
                with suppress(BinlogError, rpc.RpcStatus):
                    await client.unary(path, data, 10.0)
                    answered += 1
                continue
            more = (edges.message(method.input_type) for _ in range(3))
            bidi = method.client_streaming
            replies = client.bidi(path, once(message, *more)) if bidi else client.server_stream(path, data)
            open_ones.append(asyncio.create_task(pull(replies)))
            await asyncio.sleep(0.005)
            if len(open_ones) > PULLS:
                open_ones.popleft().cancel()
    for task in open_ones:
        task.cancel()
    await asyncio.gather(*open_ones, return_exceptions=True)
    return answered


async def flood(address: str, cluster_id: int, first_ts: int) -> None:
    """Prewrites that nobody ends."""
    client = rpc.Client(address)

    async def sent() -> Any:
        for at in range(first_ts, first_ts + FLOOD, 1000):
            payloads = [binlog.prewrite(ts, b"key", b"value") for ts in range(at, at + 1000)]
            yield pump_pb2.WriteBinlogsReq(cluster_id=cluster_id, payloads=payloads).SerializeToString()

    async for data in client.bidi("/binlog.PumpBatch/WriteBinlogs", sent()):
        assert not pump_pb2.WriteBinlogsResp.FromString(data).failures
    await client.close()


async def honest(one: PumpClient, upstream: StandaloneUpstream, stop: asyncio.Event) -> dict[int, int]:
    """commit_ts of each transaction that was acknowledged, by its start_ts."""
    stored: dict[int, int] = {}
    while not stop.is_set():
        start_ts = await upstream.transactions.begin()
        await one.write(binlog.prewrite(start_ts, b"honest", b"honest %d" % start_ts))
        commit_ts = await upstream.transactions.commit(start_ts)
        await one.write(binlog.commit(start_ts, commit_ts, b"honest"))
        stored[start_ts] = commit_ts
        await asyncio.sleep(0.02)
    return stored


async def test_all_that_an_honest_writer_was_told_is_stored_arrives_beside_a_hostile_one(
    pump: Start, upstream: StandaloneUpstream, tmp_path: Path
) -> None:
    process = pump()
    await process.start_and_wait()
    clock, stop, arrived = SystemClock(), asyncio.Event(), dict[int, int]()
    writer, reader = (PumpClient(process.address, upstream.cluster_id) for _ in range(2))

    async def read(after_ts: int) -> None:
        last = after_ts
        async for headers, payloads, _ in reader.pull_batches(after_ts):
            for header, payload in zip(headers, payloads, strict=True):
                assert header.commit_ts > last, "in order, each once"
                last = header.commit_ts
                if b"honest %d" % header.start_ts in payload:
                    arrived[header.start_ts] = header.commit_ts

    first_ts = await upstream.oracle.timestamp()
    before_mib = process.memory_mib("VmRSS")
    reading = asyncio.create_task(read(first_ts))
    near_ts = await upstream.oracle.timestamp()
    assert await upstream.oracle.timestamp() > near_ts, "which may be the one after it, see NOT_DRAWN"
    writing = asyncio.create_task(honest(writer, upstream, stop))
    edges = Edges(upstream.cluster_id, near_ts, random.Random(1))
    peer, client = PumpClient(process.address, upstream.cluster_id), rpc.Client(process.address)
    taken, answered = await asyncio.gather(edge_writer(edges, peer, client), edge_caller(edges, client))
    assert taken > 50
    assert answered > 50
    await flood(process.address, upstream.cluster_id, near_ts - FLOOD)
    stop.set()
    stored = await writing
    began_s = clock.monotonic_s()
    while stored.keys() - arrived.keys() and clock.monotonic_s() < began_s + ARRIVES_S:
        assert not reading.done(), reading
        await asyncio.sleep(0.05)
    reading.cancel()
    assert {ts: arrived.get(ts) for ts in stored} == stored
    assert process.memory_mib("VmHWM") - before_mib < GROWN_MIB
    assert len(stored) > 20
    for one in (writer, reader, peer, client):
        await one.close()
    assert process.stop() == 0
