"""What peers make a pump hold, through a real door: pull streams that nobody reads, writes to a disk that
stands still. The budget's counters say it, and the memory that Python took."""

from __future__ import annotations

import asyncio
import gc
import itertools
import threading
import tracemalloc
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from pump.storage.opening import StorageLimits
from tests.attacks import frames
from tests.attacks.frames import DATA, END_HEADERS, END_STREAM, HEADERS, frame, message
from tests.common.door.support.peers import Raw
from tests.exposition import sample
from tests.pump.support.payloads import opened, put_pair
from tests.pump.support.services import CLUSTER, Pump, pump
from tests.waiting import PATIENCE_S, until
from tidb_binlog import binlog, compression
from tidb_binlog.clock import ManualClock
from tidb_binlog.cluster import node
from tidb_binlog.cluster.node import NodeStatus
from tidb_binlog.cluster.registry import ClusterView, NodeEntry
from tidb_binlog.door.limits import Limits as DoorLimits
from tidb_binlog.door.server.listener import Server, serve
from tidb_binlog.wire import pump_pb2

MIB: Final = 1 << 20
TRANSACTION: Final = 3 * MIB
COUNT: Final = 3
STREAMS: Final = 24
LIMITS: Final = DoorLimits(
    stream_send_bytes_max=1 << 18, connection_send_bytes_max=8 * MIB, send_bytes_max=32 * MIB
)
NO_WINDOW: Final = frames.PREFACE + frames.settings([(frames.INITIAL_WINDOW_SIZE, 0)])
WRITERS: Final = "binlog_pump_batch_writes_streams_count"
FROM_LOG: Final = {"limits": StorageLimits(recent_bytes_max=1)}


@dataclass
class House:
    pump: Pump
    server: Server
    clock: ManualClock

    def streams_of(self, address: str) -> int:
        return sum(stream.caller.address == address for stream in self.pump.pullers._streams)


@asynccontextmanager
async def house(path: Path, door_limits: DoorLimits = LIMITS, **options: Any) -> AsyncIterator[House]:
    clock = ManualClock(1000.0)
    async with pump(path, **options) as one:
        server = await serve(one.server.services(), None, "127.0.0.1", 0, limits=door_limits, clock=clock)
        try:
            yield House(one, server, clock)
        finally:
            one.server.end_streams()
            await server.stop(0.0)
            assert (server.budget.send_queued, server.budget.receive_held) == (0, 0)


async def filled(path: Path, size: int, count: int) -> list[bytes]:
    """Transactions that the next storage on this directory reads from the log."""
    async with opened(path) as storage:
        return [
            await put_pair(storage, 10 * at, 10 * at + 1, bytes([at]) * size) for at in range(1, count + 1)
        ]


def asking(method: str) -> tuple[str, bytes]:
    """Path and body of a pull from the beginning."""
    if method == "PullBinlogs":
        request = pump_pb2.PullBinlogReq(clusterID=CLUSTER)
        request.startFrom.offset = 0
        return "/binlog.Pump/PullBinlogs", request.SerializeToString()
    opening = pump_pb2.PullBatchesReq(cluster_id=CLUSTER, credit_bytes=1 << 40)
    if method in ("parts", "packed parts"):
        opening.parts_above = 1 << 16
    if method.startswith("packed"):
        opening.takes_compression.append(compression.ZSTD)
    return "/binlog.PumpBatch/PullBatches", opening.SerializeToString()


def pulling(method: str, stream: int) -> bytes:
    path, body = asking(method)
    end = END_STREAM if method == "PullBinlogs" else 0
    return frame(HEADERS, END_HEADERS, stream, frames.request_block(path)) + frame(
        DATA, end, stream, message(body)
    )


async def at_rest(here: House) -> None:
    """Nobody can send or read anything more."""
    seen: list[tuple[int, int]] = []

    def rests() -> bool:
        seen.append((here.server.budget.send_queued, len(here.pump.pullers.facts())))
        return len(seen) > 300 and len(set(seen[-100:])) == 1

    await until(rests)


async def pulled(port: int, method: str, source: str = "127.0.0.2") -> list[bytes]:
    """All payloads, by somebody who reads, from another address."""
    found: list[bytes] = []
    part = bytearray()
    async with Raw.to(port, source=source) as raw:
        more = frames.window_update(0, 1 << 30) + pulling(method, 1) + frames.window_update(1, 1 << 30)
        await raw.send(more)
        data = bytearray()
        while len(found) < COUNT:
            data += (await raw.until(DATA, 1))[3]
            while len(data) >= 5 and len(data) >= 5 + (size := int.from_bytes(data[1:5])):
                reply = bytes(data[5 : 5 + size])
                del data[: 5 + size]
                if method == "PullBinlogs":
                    found.append(pump_pb2.PullBinlogResp.FromString(reply).entity.payload)
                    continue
                batch = pump_pb2.PullBatchesResp.FromString(reply)
                if batch.HasField("compressed"):
                    frame = batch.compressed
                    unpacked = compression.decompress(frame.compression, frame.data, frame.size)
                    batch = pump_pb2.PullBatchesResp.FromString(unpacked)
                found += batch.payloads
                part += batch.part.data
                if batch.HasField("part") and len(part) == batch.part.size:
                    found.append(bytes(part))
                    part.clear()
    return found


@pytest.mark.parametrize(
    ("method", "source"),
    [
        *itertools.product(["PullBinlogs", "PullBatches", "parts"], ["log", "memory"]),
        ("packed", "log"),
        ("packed parts", "log"),
    ],
)
async def test_pulls_that_nobody_reads(tmp_path: Path, method: str, source: str) -> None:
    """Each stream of a connection asks for megabytes and never reads an octet."""
    written = await filled(tmp_path, TRANSACTION, COUNT)
    options = FROM_LOG if source == "log" else {}
    async with house(tmp_path, **options) as here, AsyncExitStack() as stack:
        if source == "memory":
            for at in range(1, COUNT + 1):
                await put_pair(here.pump.storage, 100 * at, 100 * at + 1, bytes([at]) * TRANSACTION)
            written = []
        gc.collect()
        tracemalloc.start()
        try:
            raws = [await stack.enter_async_context(Raw.to(here.server.port, hello=NO_WINDOW)) for _ in "12"]
            for raw in raws:
                await raw.send(b"".join(pulling(method, 2 * at + 1) for at in range(STREAMS)))
            await at_rest(here)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert len(here.pump.pullers.facts()) > 2, "of each connection more than one is served"
        for wire in here.server.wires:
            assert wire.connection is not None
            assert wire.connection.outbound.queued <= LIMITS.connection_send_bytes_max + TRANSACTION
        assert here.server.budget.send_queued <= 2 * (LIMITS.connection_send_bytes_max + MIB)
        assert peak < 64 * MIB, "two connections' shares, blocks of the log, and what is under way"
        if written:
            assert await pulled(here.server.port, method) == written


@pytest.mark.integration
async def test_a_transaction_larger_than_all_shares_is_pulled_by_one_at_a_time(tmp_path: Path) -> None:
    """Who does not read it makes the others wait, for a while: then it is their turn."""
    limits = DoorLimits(
        stream_send_bytes_max=1 << 18,
        connection_send_bytes_max=MIB,
        send_bytes_max=4 * MIB,
        stuck_reply_s=5.0,
        handshake_s=1e6,
        keepalive_s=1e6,
    )
    written = await filled(tmp_path, TRANSACTION, COUNT)
    async with (
        house(tmp_path, limits, **FROM_LOG) as here,
        Raw.to(here.server.port, hello=NO_WINDOW) as deaf,
    ):
        await deaf.send(b"".join(pulling("PullBinlogs", 2 * at + 1) for at in range(4)))
        await at_rest(here)
        assert here.server.budget.replies.waiting == 3
        assert TRANSACTION < here.server.budget.send_queued < TRANSACTION + MIB
        polite = asyncio.create_task(pulled(here.server.port, "PullBinlogs"))
        await until(lambda: here.server.budget.replies.waiting == 4)
        while not polite.done():  # each of its transactions waits for one of the others' at most
            here.clock.advance(1.0)
            await asyncio.sleep(0.02)
        assert polite.result() == written
        reset = [await deaf.until(frames.RST_STREAM) for _ in range(COUNT)]
        assert [stream for _, _, stream, _ in reset] == [1, 3, 5]


@pytest.mark.integration
async def test_who_reads_a_few_octets_a_second_is_in_the_way_no_longer_than_who_reads_none(
    tmp_path: Path,
) -> None:
    """Each of its streams has one stuck time, whatever its transaction's size allows who reads it."""
    limits = DoorLimits(
        stream_send_bytes_max=1 << 18,
        connection_send_bytes_max=MIB,
        send_bytes_max=4 * MIB,
        stuck_reply_s=2.0,
        handshake_s=1e6,
        keepalive_s=1e6,
        glitches_burst=1 << 20,
    )
    await filled(tmp_path, 4 * TRANSACTION, COUNT)
    async with (
        house(tmp_path, limits, **FROM_LOG) as here,
        Raw.to(here.server.port, hello=NO_WINDOW) as slow,
    ):
        await slow.send(frames.window_update(0, 1 << 30) + pulling("PullBinlogs", 1))
        await at_rest(here)
        polite = asyncio.create_task(pulled(here.server.port, "PullBinlogs"))
        await until(lambda: here.server.budget.replies.waiting == 1)
        began_s = here.clock.monotonic_s()
        while here.server.budget.replies.waiting:
            await slow.send(frames.window_update(1, 1 << 10))
            here.clock.advance(0.5)
            await asyncio.sleep(0.1)  # in which a busy machine, too, does what is due by then
            assert here.clock.monotonic_s() - began_s < 8.0, "and not 16 for what it might have read"
        assert len(await polite) == COUNT


async def test_a_drainer_of_the_registry_gets_a_place_whoever_has_taken_them(tmp_path: Path) -> None:
    """As many addresses as there are places, each with one."""
    drainers = {
        "here": NodeStatus("here", "127.0.0.99:8249", node.ONLINE),
        "nowhere": NodeStatus("nowhere", "no.such.host.invalid:8249", node.PAUSED),
        "past": NodeStatus("past", "127.0.0.1:8249", node.OFFLINE),
    }
    view = ClusterView(1, {}, {name: NodeEntry(one, 1, alive=None) for name, one in drainers.items()})

    async def registered() -> ClusterView:
        return view

    async with house(tmp_path) as here, AsyncExitStack() as stack:
        pullers = here.pump.pullers
        keeping = asyncio.create_task(pullers.keep_places(registered))
        await until(lambda: bool(pullers.kept))
        assert pullers.kept == {"127.0.0.99": 1}
        pullers.change_limits(8, 8)

        async def comes(host: int) -> Raw:
            raw = await stack.enter_async_context(Raw.to(here.server.port, source=f"127.0.0.{host}"))
            await raw.send(pulling("PullBatches", 1))
            return raw

        async def is_refused(raw: Raw) -> bool:
            return b"are open (pull-streams)" in (await raw.until(HEADERS, flags=END_STREAM))[3]

        others = [await comes(host) for host in range(10, 18)]
        await until(lambda: pullers.new_streams == 8)
        assert await is_refused(await comes(20))
        await comes(99)
        await until(lambda: here.streams_of("127.0.0.99") == 1)
        assert await is_refused(others[-1]), "the newest gave its place up"
        assert await is_refused(await comes(99)), "it has one"
        assert await is_refused(await comes(21)), "and keeps it"
        assert here.streams_of("127.0.0.99") == 1
        keeping.cancel()
        await asyncio.wait({keeping})


async def test_pull_streams_are_counted_by_connection_and_address(tmp_path: Path) -> None:
    async with house(tmp_path) as here, AsyncExitStack() as stack:

        async def opened_streams(source: str, count: int) -> Raw:
            raw = await stack.enter_async_context(Raw.to(here.server.port, source=source))
            await raw.send(b"".join(pulling("PullBatches", 2 * at + 1) for at in range(count)))
            return raw

        raw = await opened_streams("127.0.0.1", 33)
        refused = await raw.until(HEADERS, flags=END_STREAM)
        assert refused[2] == 65
        assert b"grpc-status\x018" in refused[3]
        assert b"32 of its connection are open (pull-streams-per-connection)" in refused[3]
        newest = await opened_streams("127.0.0.1", 32)
        await until(lambda: here.pump.pullers.new_streams == 64)
        raw = await opened_streams("127.0.0.1", 1)
        refused = await raw.until(HEADERS, flags=END_STREAM)
        assert b"64 of its address are open (half of pull-streams)" in refused[3]
        await opened_streams("127.0.0.2", 32)
        await opened_streams("127.0.0.2", 32)
        await until(lambda: here.pump.pullers.new_streams == 128)
        for source in (
            "127.0.0.3",
            "127.0.0.4",
        ):  # each gets what the busiest have more, and no more than that
            for _ in range(2):
                await opened_streams(source, 16)
            await until(lambda: here.pump.pullers.new_streams == 128)
            assert here.streams_of(source) == 32
        assert [here.streams_of(f"127.0.0.{at}") for at in (1, 2, 3, 4)] == [32, 32, 32, 32]
        ended = await newest.until(HEADERS, flags=END_STREAM)
        assert b"and its address has most" in ended[3]
        raw = await opened_streams("127.0.0.1", 1)
        refused = await raw.until(HEADERS, flags=END_STREAM)
        assert b"are open (pull-streams" in refused[3]
        assert here.pump.pullers.new_streams == 128
        await stack.aclose()
        await until(lambda: here.pump.pullers.new_streams == 0)


# -- writes ----------------------------------------------------------------------------------------


async def test_messages_count_until_they_are_stored(tmp_path: Path) -> None:
    """A disk that stands still: each stream's message is with its service, which waits for the writer."""
    limits = DoorLimits(
        message_bytes_max=4 * MIB,
        connection_receive_bytes_max=16 * MIB,
        receive_bytes_max=24 * MIB,
        stream_window_bytes=4 * MIB,
    )
    stored = StorageLimits(write_queue_bytes_max=1)
    gate = threading.Event()
    async with house(tmp_path, limits, limits=stored) as here, AsyncExitStack() as stack:
        log = here.pump.storage.value_log
        commit = log.commit

        def stands_still(*arguments: Any, **options: Any) -> None:
            gate.wait(PATIENCE_S)
            commit(*arguments, **options)

        log.commit = stands_still  # type: ignore[method-assign]
        try:
            before = sample(WRITERS)
            raws = [
                await stack.enter_async_context(Raw.to(here.server.port, source=f"127.0.0.{at}"))
                for at in (1, 2)
            ]
            for raw in raws:  # all are asked for their first message while the queue is empty
                block = frames.request_block("/binlog.PumpBatch/WriteBinlogs")
                await raw.send(b"".join(frame(HEADERS, END_HEADERS, 2 * at + 1, block) for at in range(12)))
            await until(lambda: sample(WRITERS) == before + 24)
            for at in range(12):
                for raw in raws:
                    await raw.send(written(2 * at + 1, 3 * MIB))
            refused = 0
            for raw in raws:
                while (await raw.until(HEADERS, flags=END_STREAM))[3].find(b"grpc-status\x0214") >= 0:
                    refused += 1
                    if refused in (8, 16):
                        break
            assert refused == 16, (
                "of each connection five are in memory, or less where all together are too many"
            )
            await until(lambda: here.server.budget.receive_held <= limits.receive_bytes_max)
        finally:
            gate.set()


async def test_failures_that_nobody_reads_count(tmp_path: Path) -> None:
    """48 KiB of payloads that are none make megabytes of failures: for a few streams, then it is too much."""
    limits = DoorLimits(
        message_bytes_max=MIB, connection_receive_bytes_max=16 * MIB, receive_bytes_max=24 * MIB
    )
    bad = message(
        pump_pb2.WriteBinlogsReq(cluster_id=CLUSTER, payloads=[b"x"] * (1 << 13)).SerializeToString()
    )
    async with house(tmp_path, limits) as here, Raw.to(here.server.port, hello=NO_WINDOW) as raw:
        block = frames.request_block("/binlog.PumpBatch/WriteBinlogs")
        for stream in range(1, 41, 2):
            await raw.send(frame(HEADERS, END_HEADERS, stream, block))
            for at in range(0, len(bad), 1 << 14):
                await raw.send(frame(DATA, 0, stream, bad[at : at + (1 << 14)]))
        refused = await raw.until(HEADERS, flags=END_STREAM)
        assert b"grpc-status\x0214" in refused[3]
        await at_rest(here)
        assert 8 * MIB < here.server.budget.receive_held <= 16 * MIB


def written(stream: int, size: int) -> bytes:
    """A message of `WriteBinlogs` with one prewrite."""
    payload = binlog.prewrite(10 + stream, b"key", bytes(size))
    body = message(pump_pb2.WriteBinlogsReq(cluster_id=CLUSTER, payloads=[payload]).SerializeToString())
    step = 1 << 14
    return b"".join(frame(DATA, 0, stream, body[at : at + step]) for at in range(0, len(body), step))
