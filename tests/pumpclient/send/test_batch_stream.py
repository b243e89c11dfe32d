"""Many binlogs a message: a client and pumps in memory, and streams on a scripted connection."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from pumpclient import BinlogTooLarge, Failure, Options
from pumpclient.send.batch_stream import FAILURE_OF_REASON
from pumpclient.send.batching import LARGE_BYTES
from pumpclient.send.transport import RpcTransport, TransportFailure
from pumpclient.testing import ManualTime, MemoryCluster, settle
from tidb_binlog import binlog, rpc
from tidb_binlog.errors import Unavailable
from tidb_binlog.wire import pump_pb2

P, C = binlog.PREWRITE, binlog.COMMIT
ADDRESS = "pump:8250"


async def transact(client: object, start_ts: int) -> bool:
    await client.write_prewrite(start_ts, b"k", b"v")  # type: ignore[attr-defined]
    done: bool = await client.write_commit(start_ts, start_ts + 1)  # type: ignore[attr-defined]
    return done


async def test_writers_that_wait_share_messages_and_each_has_its_own_answer() -> None:
    cluster = MemoryCluster(["a"])
    async with cluster.client(batches=True) as client:
        await client.write_prewrite(1, b"k", b"v")
        before = cluster.pumps["a"].messages
        assert all(await asyncio.gather(*(transact(client, 2 * number) for number in range(1, 101))))
    pump = cluster.pumps["a"]
    assert pump.messages - before == 2  # all prewrites, then all commits
    assert len(pump.payloads) == 201
    assert pump.payloads[1] == binlog.prewrite(2, b"k", b"v")
    assert pump.connections == 1


async def test_one_refused_binlog_does_not_touch_the_others_of_its_message() -> None:
    cluster = MemoryCluster(["a", "b"])
    pump = cluster.pumps["a"]
    async with cluster.client(batches=True) as client:
        for start_ts in (1, 2):
            await client.write_prewrite(start_ts, b"k", b"v")  # streams to both are open now
        pump.failures.extend([Failure.FAILED, Failure.TOO_LARGE])
        written = await asyncio.gather(
            *(client.write_prewrite(start_ts, b"k", b"v") for start_ts in range(10, 18)),
            return_exceptions=True,
        )
        assert [type(one) for one in written].count(BinlogTooLarge) == 1
        assert written.count(True) == 7
        assert client.counters.attempts_failed == 2
    assert sorted(entry[1] for pump in cluster.pumps.values() for entry in pump.transactions()) == [
        1, 2, *(start_ts for start_ts, one in zip(range(10, 18), written, strict=True) if one is True)
    ]  # fmt: skip


async def test_a_broken_stream_fails_what_is_in_it_and_the_policy_goes_to_the_next_pump() -> None:
    cluster = MemoryCluster(["a", "b"])
    async with cluster.client(batches=True) as client:
        for start_ts in (1, 2):
            await client.write_prewrite(start_ts, b"k", b"v")
        cluster.pumps["a"].broken = Failure.UNREACHABLE
        await asyncio.gather(*(transact(client, 2 * number) for number in range(5, 25)))
        assert client.counters.attempts_failed == 10
        assert len(cluster.pumps["b"].payloads) == 1 + 40
        cluster.pumps["a"].broken = None
        assert await client.write_commit(1, 4)
        assert cluster.pumps["a"].connections == 2


async def test_a_pump_without_the_method_is_asked_once_a_connection_and_gets_single_calls() -> None:
    cluster = MemoryCluster(["a"])
    pump = cluster.pumps["a"]
    pump.takes_batches = False
    async with cluster.client(batches=True) as client:
        assert all(await asyncio.gather(*(transact(client, 2 * number) for number in range(1, 11))))
        assert (pump.messages, len(pump.payloads), client.counters.attempts_failed) == (0, 20, 0)
        pump.takes_batches = True  # as after an exchange of the process, which breaks the connection
        assert await transact(client, 100)
        assert pump.messages == 0
        pump.failures.append(Failure.UNREACHABLE)
        write = asyncio.ensure_future(transact(client, 200))
        await cluster.time.run(1.0)
        assert await write
        assert pump.messages == 2


async def test_a_pump_that_does_not_answer_is_left_at_the_deadline() -> None:
    cluster = MemoryCluster(["a", "b"])
    async with cluster.client(batches=True, options=Options(write_timeout_s=5.0)) as client:
        for start_ts in (1, 2):
            await client.write_prewrite(start_ts, b"k", b"v")
        await cluster.time.run(60.0)  # nothing is awaited: nothing is late
        assert client.counters.attempts_failed == 0
        cluster.pumps["a"].hanging = True
        began_s = cluster.time.now_s
        writes = asyncio.gather(*(client.write_prewrite(start_ts, b"k", b"v") for start_ts in range(3, 9)))
        await cluster.time.run(4.9)
        assert not writes.done()
        await cluster.time.run(0.2)
        assert await writes
        assert cluster.time.now_s - began_s < 5.2
    assert len(cluster.pumps["b"].payloads) == 7


async def test_closing_the_client_ends_streams_and_what_is_in_them() -> None:
    cluster = MemoryCluster(["a"])
    client = cluster.client(batches=True)
    async with client:
        await client.write_prewrite(1, b"k", b"v")
        cluster.pumps["a"].hanging = True
        commit = asyncio.ensure_future(client.write_commit(1, 2))
        await settle()
        await client.close()
        assert await commit is False
    assert not [task for task in asyncio.all_tasks() if task.get_name().startswith("pumpclient")]


class Scripted:
    """A connection whose stream answers as told; single calls are answered with success."""

    def __init__(self, script: Callable[[list[bytes]], Awaitable[bytes]]) -> None:
        self.script = script
        self.singles: list[bytes] = []
        self.messages: list[list[bytes]] = []
        self.closed = 0

    async def unary(self, method_path: str, request: bytes, timeout_s: float) -> bytes:
        self.singles.append(pump_pb2.WriteBinlogReq.FromString(request).payload)
        return b""

    async def bidi(self, path: str, requests: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
        async for data in requests:
            message = pump_pb2.WriteBinlogsReq.FromString(data)
            assert message.cluster_id == 7
            self.messages.append(list(message.payloads))
            yield await self.script(self.messages[-1])

    async def close(self) -> None:
        self.closed += 1


def transport_on(*scripts: Callable[[list[bytes]], Awaitable[bytes]]) -> tuple[RpcTransport, list[Scripted]]:
    connections = [Scripted(script) for script in scripts]
    dialled = iter(connections)
    time = ManualTime()
    return RpcTransport(dial=lambda _: next(dialled), clock=time, sleep=time.sleep), connections


def answer(answered: int, *failures: tuple[int, int]) -> bytes:
    named = [pump_pb2.WriteFailure(number=number, reason=reason, text="why") for number, reason in failures]  # type: ignore[arg-type]
    return pump_pb2.WriteBinlogsResp(answered=answered, failures=named).SerializeToString()


async def failure_of(transport: RpcTransport) -> Failure:
    with pytest.raises(TransportFailure) as caught:
        await transport.write(ADDRESS, 7, b"payload", 15.0)
    return caught.value.failure


def test_every_reason_of_a_pump_has_its_failure() -> None:
    assert set(FAILURE_OF_REASON) == set(pump_pb2.WriteFailure.Reason.values())


@pytest.mark.parametrize("reason", sorted(FAILURE_OF_REASON))
async def test_a_reason_decides_what_kind_of_failure_it_is(reason: int) -> None:
    async def refuse(_: list[bytes]) -> bytes:
        return answer(1, (1, reason))

    transport, _ = transport_on(refuse)
    assert await failure_of(transport) is FAILURE_OF_REASON[reason]
    await transport.close()


@pytest.mark.parametrize("wrong", [answer(2), answer(1, (3, 1)), b"\xff\xff"])
async def test_an_answer_that_cannot_be_right_stores_nothing(wrong: bytes) -> None:
    async def lie(_: list[bytes]) -> bytes:
        return wrong

    async def store(_: list[bytes]) -> bytes:
        return answer(1)

    transport, connections = transport_on(lie)
    assert await failure_of(transport) is Failure.FAILED
    connections[0].script = store
    await transport.write(ADDRESS, 7, b"payload", 15.0)  # another stream
    await transport.close()


async def test_a_message_that_a_pump_calls_too_large_is_sent_in_single_calls() -> None:
    async def too_large(_: list[bytes]) -> bytes:
        raise rpc.RpcStatus(rpc.RESOURCE_EXHAUSTED, "message too large")

    transport, connections = transport_on(too_large)
    await asyncio.gather(*(transport.write(ADDRESS, 7, b"%d" % number, 15.0) for number in range(3)))
    assert connections[0].singles == [b"0", b"1", b"2"]
    await transport.close()


async def test_a_large_binlog_goes_alone_beside_the_stream() -> None:
    async def never(_: list[bytes]) -> bytes:
        await asyncio.Event().wait()
        raise AssertionError

    transport, connections = transport_on(never)
    waiting = asyncio.ensure_future(transport.write(ADDRESS, 7, b"small", 15.0))
    await settle()
    await transport.write(ADDRESS, 7, b"x" * LARGE_BYTES, 15.0)
    assert [len(payload) for payload in connections[0].singles] == [LARGE_BYTES]
    assert not waiting.done()
    await transport.close()
    with pytest.raises(TransportFailure):
        await waiting


async def test_a_dropped_connection_goes_on_until_its_stream_is_answered() -> None:
    gate = asyncio.Event()

    async def slow(_: list[bytes]) -> bytes:
        await gate.wait()
        return answer(1)

    async def quick(_: list[bytes]) -> bytes:
        return answer(1)

    transport, (old, young) = transport_on(slow, quick)
    waiting = asyncio.ensure_future(transport.write(ADDRESS, 7, b"slow", 15.0))
    await settle()
    await transport.drop(ADDRESS)
    await transport.write(ADDRESS, 7, b"quick", 15.0)
    assert (old.closed, young.closed) == (0, 0)
    gate.set()
    await waiting
    await settle()
    assert (old.closed, young.closed) == (1, 0)
    await transport.close()
    assert (old.closed, young.closed) == (1, 1)


async def test_a_stream_that_breaks_takes_its_connection_with_it() -> None:
    async def gone(_: list[bytes]) -> bytes:
        raise Unavailable("gone")

    async def store(_: list[bytes]) -> bytes:
        return answer(1)

    transport, (old, _) = transport_on(gone, store)
    assert await failure_of(transport) is Failure.UNREACHABLE
    await settle()
    assert old.closed == 1
    await transport.write(ADDRESS, 7, b"payload", 15.0)
    await transport.close()


async def test_a_cancelled_writer_disturbs_nobody() -> None:
    cluster = MemoryCluster(["a"])
    async with cluster.client(batches=True) as client:
        await client.write_prewrite(1, b"k", b"v")
        writes = [asyncio.ensure_future(client.write_prewrite(number, b"k", b"v")) for number in range(2, 6)]
        await asyncio.sleep(0)
        writes[1].cancel()
        assert await asyncio.gather(writes[0], *writes[2:]) == [True, True, True]
        assert replace(client.counters).prewrites_failed == 1
        assert sum(pump.in_flight for pump in client.pumps()) == 0


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def test_a_stream_keeps_nothing_of_what_it_has_sent() -> None:
    cluster = MemoryCluster(["a"])
    payload = os.urandom(LARGE_BYTES - 1)
    transport = cluster.rpc_transport()
    kept = cluster.pumps["a"].payloads

    async def send(count: int) -> int:
        for _ in range(count):
            await transport.write("a", cluster.cluster_id, payload, 15.0)
            kept.clear()
        return resident_bytes()

    before = await send(20)
    assert await send(400) - before < 30 << 20  # of 100 MiB
    await transport.close()
