"""A peer that is made from the .proto files sends valid messages with every field at its edges, in quantity,
slowly and by halves, beside an honest writer and reader: whatever the honest writer was told is stored
arrives, in order. Memory grows no further than was promised, no callback of the loop is long, and the node
stops in order.

It has prewrites for its commits: a commit whose prewrite is nowhere stops readers, by intent.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any, Final

import pytest
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import Message

import drainer
from pump.config import PumpConfig
from tests.attacks import http_edges, manners
from tests.attacks.edges import Edges, forms
from tests.attacks.measured.node import MeasuredNode
from tests.integration.support.subscribed_shop import shop, write
from tests.pump.conftest import upstream as upstream
from tests.pump.support.process import PumpClient
from tests.waiting import until
from tidb_binlog import binlog, rpc
from tidb_binlog.config import loading
from tidb_binlog.door.limits import CALL_BYTES, CONNECTION_BYTES
from tidb_binlog.errors import BinlogError, Unavailable
from tidb_binlog.net.port import split_address
from tidb_binlog.upstream.standalone import StandaloneUpstream
from tidb_binlog.wire import binlog_pb2, drainer_pb2, pump_pb2

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

METHODS: Final = [
    method
    for file in (pump_pb2, drainer_pb2)
    for service in file.DESCRIPTOR.services_by_name.values()
    for method in service.methods
]
FLOOD: Final = 20_000
PULLS: Final = 40
TRIES: Final = 20
OPEN_BYTES: Final = 1 << 10
LARGEST_BYTES: Final = 4 << 20
BASE_MIB: Final = 40
"""What a pump comes to in its first minutes, whoever its peers are."""
LIMITS: Final = """
pull-streams = 24
[door]
message-size = "4 MiB"
connection-requests = "8 MiB"
requests = "16 MiB"
connection-send-queue = "4 MiB"
send-queue = "16 MiB"
calls = 2000
connections = 400
[storage]
write-queue = "8 MiB"
index-queue = "4 MiB"
recent-commits = "4 MiB"
[storage.kv]
write-buffer = 4194304
"""


def promised_mib(path: Path, open_prewrites: int) -> float:
    """The sum of docs/config-pump.md, section [door]."""
    config = loading.load(PumpConfig, [f"-config={path}"], {}, program="pump", env_prefix="PUMP")
    door = config.effective()
    octets = door.receive_bytes_max + door.send_bytes_max
    octets += door.calls_max * CALL_BYTES + door.connections_max * CONNECTION_BYTES
    octets += config.write_queue_bytes + config.index_queue_bytes + 3 * config.recent_bytes
    octets += open_prewrites * OPEN_BYTES + 2 * config.write_buffer_bytes + config.pull_streams * (2 << 20)
    return (octets + 3 * LARGEST_BYTES) / (1 << 20)


async def once(*requests: Message) -> AsyncIterator[bytes]:
    for request in requests:
        yield request.SerializeToString()


def path_of(method: MethodDescriptor) -> str:
    return f"/{method.containing_service.full_name}/{method.name}"


async def edge_writer(edges: Edges, peer: PumpClient, client: rpc.Client) -> int:
    """Sends them one by one and in streams; how many were taken."""
    taken, path = 0, "/binlog.PumpBatch/WriteBinlogs"
    for message in edges.messages(binlog_pb2.Binlog.DESCRIPTOR, 2):
        payloads = [*forms(message)]
        for each in (binlog.prewrite(message.start_ts, b"key", b"value"), *payloads):  # type: ignore[attr-defined]
            with suppress(BinlogError, rpc.RpcStatus):
                await peer.write(each)
                taken += 1
        request = pump_pb2.WriteBinlogsReq(cluster_id=edges.cluster_id, payloads=payloads[:2])
        with suppress(BinlogError, rpc.RpcStatus):
            async for _ in client.bidi(path, once(request)):
                pass
    return taken


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

    for method in METHODS:
        path = path_of(method)
        for message in edges.messages(method.input_type, 1):
            data = edges.rng.choice([*forms(message)])
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


async def bad_manners(edges: Edges, address: str) -> None:
    """Messages of every method in every manner, each on a connection that stays until the end."""
    port = split_address("address", address)[1]
    async with AsyncExitStack() as held:
        for method in METHODS:
            for message in edges.messages(method.input_type, 1):
                data = edges.rng.choice([*forms(message)])
                await manners.send(port, path_of(method), data, edges.rng, held)


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


async def told(one: PumpClient, payload: bytes) -> None:
    """That it is stored; what was not answered in time is sent again."""
    for _ in range(TRIES):
        with suppress(Unavailable):
            await one.write(payload)
            return
    await one.write(payload)


async def honest(one: PumpClient, upstream: StandaloneUpstream, stop: asyncio.Event) -> dict[int, int]:
    """commit_ts of each transaction that was acknowledged, by its start_ts."""
    stored: dict[int, int] = {}
    while not stop.is_set():
        start_ts = await upstream.transactions.begin()
        await told(one, binlog.prewrite(start_ts, b"honest", b"honest %d" % start_ts))
        commit_ts = await upstream.transactions.commit(start_ts)
        await told(one, binlog.commit(start_ts, commit_ts, b"honest"))
        stored[start_ts] = commit_ts
        await asyncio.sleep(0.02)
    return stored


async def read(reader: PumpClient, after_ts: int, arrived: dict[int, int]) -> None:
    last = after_ts
    async for headers, payloads, _ in reader.pull_batches(after_ts):
        for header, payload in zip(headers, payloads, strict=True):
            assert header.commit_ts > last, "in order, each once"
            last = header.commit_ts
            if b"honest %d" % header.start_ts in payload:
                arrived[header.start_ts] = header.commit_ts


async def test_all_that_an_honest_writer_was_told_is_stored_arrives_beside_a_hostile_one(
    etcd_clean: str, free_port: Callable[[], int], upstream: StandaloneUpstream, tmp_path: Path
) -> None:
    (tmp_path / "pump.toml").write_text(LIMITS)
    node = MeasuredNode("pump", tmp_path, etcd_clean, free_port, f"-config={tmp_path / 'pump.toml'}")
    async with AsyncExitStack() as ended:
        ended.callback(node.end)
        await node.start_and_wait()
        stop, arrived = asyncio.Event(), dict[int, int]()
        writer, reader, peer = (PumpClient(node.address, upstream.cluster_id) for _ in range(3))
        client = rpc.Client(node.address)
        for one in (writer, reader, peer, client):
            ended.push_async_callback(one.close)
        node.begin()
        reading = asyncio.create_task(read(reader, await upstream.oracle.timestamp(), arrived))
        near_ts = await upstream.oracle.timestamp()
        assert await upstream.oracle.timestamp() > near_ts, "which may be the one after it, see NOT_DRAWN"
        writing = asyncio.create_task(honest(writer, upstream, stop))
        edges = Edges(upstream.cluster_id, near_ts, random.Random(1))
        taken, answered, statuses, _ = await asyncio.gather(
            edge_writer(edges, peer, client),
            edge_caller(edges, client),
            http_edges.ask_all(node.address),
            bad_manners(edges, node.address),
        )
        assert taken > 50
        assert answered > 50
        assert len(statuses) > 3
        await flood(node.address, upstream.cluster_id, near_ts - FLOOD)
        open_prewrites = (await node.status())["pump"]["open_prewrites"]
        stop.set()
        stored = await writing
        await until(lambda: stored.keys() <= arrived.keys(), "what is stored", beside=[reading])
        reading.cancel()
        assert {ts: arrived[ts] for ts in stored} == stored
        assert len(stored) > 20
        promised = promised_mib(tmp_path / "pump.toml", max(open_prewrites, FLOOD))
        print(f"{taken} taken, {answered} answered, {len(stored)} honest, HTTP {dict(statuses)}, "
              f"{node.grown_mib:.0f} of {promised:.0f} MiB")  # fmt: skip
        assert node.grown_mib < promised + BASE_MIB
        node.check_stop()


async def test_a_drainer_that_is_asked_anything_goes_on(
    etcd_clean: str, free_port: Callable[[], int], tmp_path: Path
) -> None:
    (tmp_path / "drainer.toml").write_text(
        f'initial-commit-ts = 0\n[syncer]\ndb-type = "file"\n[syncer.to]\ndir = "{tmp_path / "archive"}"\n'
    )
    async with AsyncExitStack() as ended:
        for program, flags in (("pump", ()), ("drainer", (f"-config={tmp_path / 'drainer.toml'}",))):
            node = MeasuredNode(program, tmp_path, etcd_clean, free_port, *flags)
            ended.callback(node.end)
            await node.start_and_wait()
        publisher = await shop(etcd_clean)
        ended.push_async_callback(publisher.close)
        client = rpc.Client(node.address)
        ended.push_async_callback(client.close)
        node.begin()
        edges = Edges(1, 1, random.Random(1))

        async def shopping() -> int:
            return [await write(publisher, number) for number in range(100)][-1]

        statuses, last_ts, *_ = await asyncio.gather(
            http_edges.ask_all(node.address),
            shopping(),
            edge_caller(edges, client),
            bad_manners(edges, node.address),
        )
        for path in ("/apply/resume", "/apply/rate?rows=0&bytes=0"):
            assert node.http(path, "PUT")[0] == 200

        async def is_archived() -> bool:
            await asyncio.sleep(0.2)
            return bool((await node.status())["LastTS"] >= last_ts)

        await until(is_archived)
        print(f"HTTP {dict(statuses)}, {node.grown_mib:.0f} MiB")
        assert len(statuses) > 3
        node.check_stop()
        items = drainer.open_archive(str(tmp_path / "archive"))
        rows = [
            row.key_values[0] for item in items if isinstance(item, drainer.Transaction) for row in item.rows
        ]
        assert rows == list(range(100))
