"""A peer that sends valid messages with every field at its edges, and prewrites in quantity, beside an honest
writer and reader: whatever the honest writer was told is stored arrives, in order and in bounded time.

It has prewrites for its commits: a commit whose prewrite is nowhere stops readers, by intent.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from common import binlog, rpc, tso
from common.binlog import KEY_BYTES_MAX
from common.clock import SystemClock
from common.errors import BinlogError
from common.upstream.standalone import StandaloneUpstream
from common.wire import binlog_pb2, pump_pb2
from tests.pump.support.process import PumpClient, Start

pytestmark = pytest.mark.integration

ARRIVES_S = 60.0
FLOOD = 20_000
SIZES = (0, 1, 127, 128, KEY_BYTES_MAX, 3 * KEY_BYTES_MAX)


def edges(field: Any, near_ts: int) -> list[Any]:
    """Values of a field: none, its smallest and largest, and those around its bounds here."""
    if field.type == field.TYPE_ENUM:
        return [None, *field.enum_type.values_by_number]
    if field.type == field.TYPE_BOOL:
        return [None, False, True]
    if field.type == field.TYPE_INT32:
        return [None, 0, 1, -1, (1 << 31) - 1, -(1 << 31)]
    if field.type == field.TYPE_INT64:
        ahead = near_ts + tso.compose(10 * 3600 * 1000)
        return [None, 0, 1, -1, near_ts - 1, near_ts, near_ts + 1, ahead, (1 << 63) - 1, -(1 << 63)]
    assert field.type == field.TYPE_BYTES, field.name
    return [None, *(bytes(size) for size in SIZES)]


def binlogs(near_ts: int, rng: random.Random) -> Iterator[bytes]:
    """Each pair of a field and one of its values with random ones of the others, and many more at random."""
    fields = binlog_pb2.Binlog.DESCRIPTOR.fields
    choices = {field.name: edges(field, near_ts) for field in fields}
    each = [(name, value) for name, values in choices.items() for value in values]
    for name, value in itertools.chain(each * 3, [("", None)] * 200):
        message = binlog_pb2.Binlog()
        for other, values in choices.items():
            chosen = value if other == name else rng.choice(values)
            if chosen is not None:
                setattr(message, other, chosen)
        yield message.SerializeToString()


async def edge_peer(address: str, cluster_id: int, near_ts: int) -> int:
    """Sends them one by one and in streams; how many were taken."""
    peer, taken, rng = PumpClient(address, cluster_id), 0, random.Random(1)
    client = rpc.Client(address)
    try:
        for start_ts in (1, near_ts - 1, near_ts, near_ts + 1):
            await peer.write(binlog.prewrite(start_ts, b"key", b"value"))
        for payload in binlogs(near_ts, rng):
            try:
                await peer.write(payload)
                taken += 1
            except (BinlogError, rpc.RpcStatus):
                pass
            request = pump_pb2.WriteBinlogsReq(cluster_id=cluster_id, payloads=[payload] * 3)

            async def sent(data: bytes = request.SerializeToString()) -> Any:
                yield data

            async for _ in client.bidi("/binlog.PumpBatch/WriteBinlogs", sent()):
                pass
    finally:
        await peer.close()
        await client.close()
    return taken


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
    reading = asyncio.create_task(read(first_ts))
    writing = asyncio.create_task(honest(writer, upstream, stop))
    near_ts = await upstream.oracle.timestamp()
    await flood(process.address, upstream.cluster_id, near_ts - FLOOD)
    taken = await edge_peer(process.address, upstream.cluster_id, near_ts)
    assert taken > 50
    stop.set()
    stored = await writing
    began_s = clock.monotonic_s()
    while stored.keys() - arrived.keys() and clock.monotonic_s() < began_s + ARRIVES_S:
        assert not reading.done(), reading
        await asyncio.sleep(0.05)
    reading.cancel()
    assert {ts: arrived.get(ts) for ts in stored} == stored
    assert len(stored) > 20
    await writer.close()
    await reader.close()
    assert process.stop() == 0
