"""The door on real sockets: turns and writes, cancellation, the end of connections."""

from __future__ import annotations

import asyncio
import socket
import struct
import time
from typing import Any, cast

import grpc
import grpc.aio
import pytest

from tests.attacks import frames
from tests.attacks.frames import DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, PING, RST_STREAM, frame
from tests.common.door.support.peers import (
    FOR_EVER_S,
    PATIENCE_S,
    Raw,
    call,
    connected,
    flow,
    goaway_of,
    house,
)
from tests.waiting import settle, until
from tidb_binlog import rpc
from tidb_binlog.door.http.routes import Routes
from tidb_binlog.door.limits import Limits
from tidb_binlog.door.server import connection_transport
from tidb_binlog.door.server.listener import serve
from tidb_binlog.errors import Unavailable

LOOPS = ("asyncio", "uvloop")


def get(stream: int, path: str) -> bytes:
    block = b"\x82\x86" + frames.unindexed(":path", path) + frames.unindexed(":authority", "localhost")
    return frame(HEADERS, END_HEADERS | END_STREAM, stream, block)


def has_ipv6() -> bool:
    with socket.socket(socket.AF_INET6) as probe:
        try:
            probe.bind(("::1", 0))
        except OSError:
            return False
    return True


class Writes:
    """A transport that counts what goes through it."""

    def __init__(self, transport: Any) -> None:
        self.sizes: list[int] = []
        self._transport = transport

    def write(self, data: bytes) -> None:
        self.sizes.append(len(data))
        self._transport.write(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


async def test_replies_of_one_turn_are_one_write() -> None:
    async with house() as here, Raw.to(here.port) as raw:
        await raw.send(b"".join(call(stream, "/test.Bench/Gated") for stream in range(1, 129, 2)))
        await until(lambda: here.bench.running == 64)
        (wire,) = here.server.wires
        writes = Writes(wire._transport)
        wire._transport = cast(asyncio.Transport, writes)
        here.bench.gate.set_result(None)  # as the fsync of a group does
        for stream in range(1, 129, 2):
            await raw.until(HEADERS, stream, END_STREAM)
        assert len(writes.sizes) == 1
        # The same where the answers are ready at once: one write for one read.
        await raw.send(b"".join(call(stream, "/test.Bench/Empty") for stream in range(129, 257, 2)))
        await raw.until(HEADERS, 255, END_STREAM)
        assert len(writes.sizes) == 2


@pytest.mark.parametrize(
    "request_of",
    [
        lambda stream: call(stream, "/test.Bench/Wait"),
        lambda stream: call(stream, "/test.Bench/Gated"),
        lambda stream: call(stream, "/test.Bench/Swallow"),
        lambda stream: flow(stream, 1 << 20, 1 << 10),
        lambda stream: call(stream, "/test.Bench/Echo", end=False),
        lambda stream: get(stream, "/healthz"),
    ],
    ids=["unary", "inline", "quick", "server stream", "bidi", "plain"],
)
async def test_a_call_cancelled_before_its_handler_began_leaves_nothing(request_of: Any) -> None:
    async with house() as here:
        async with Raw.to(here.port) as raw:
            await raw.send(
                b"".join(request_of(stream) + frames.rst_stream(stream) for stream in range(1, 101, 2))
            )
            assert await raw.answers()
            (wire,) = here.server.wires
            assert wire.connection is not None
            await until(lambda: wire.connection and not wire.connection.lingering, "handlers end")
            assert not wire.connection.streams
            assert not here.server.tasks
        await here.at_rest()


async def test_room_of_a_cancelled_stream_is_given_to_those_that_wait() -> None:
    limits = Limits(connection_send_bytes_max=1 << 20, stream_send_bytes_max=1 << 20)
    async with house(limits) as here, Raw.to(here.port) as raw:
        await raw.send(flow(1, 1 << 20, 1 << 16))  # beyond its window; the rest of it is queued
        await raw.send(frames.window_update(0, 1 << 24))
        await until(lambda: here.server.budget.send_queued >= 1 << 20)
        await raw.send(flow(3, 3, 1 << 10))  # has a window of its own, yet no room
        assert await raw.answers(5)
        assert here.bench.flowing == 1
        await raw.send(frames.rst_stream(1))
        await raw.until(HEADERS, 3, END_STREAM)
        await here.at_rest(1)


async def test_cancelling_frees_what_is_queued() -> None:
    async with house(Limits(stream_send_bytes_max=4 << 20)) as here:
        async with Raw.to(here.port) as raw:
            await raw.send(b"".join(flow(stream, 1 << 20, 1 << 16) for stream in (1, 3, 5)))
            await until(lambda: here.server.budget.send_queued > 3 * (3 << 20))
            await raw.send(b"".join(frames.rst_stream(stream) for stream in (1, 3, 5)))
            await here.at_rest(1)
            await raw.send(flow(7, 1 << 20, 1 << 16))
            await until(lambda: here.bench.flowing == 1)
        await here.at_rest()  # and so does going away


async def test_a_request_cut_anywhere() -> None:
    asked = frames.PREFACE + frames.settings() + call(1, "/test.Bench/Echo", b"word")
    async with house() as here:
        for at in (1, 23, 24, 30, 33, len(asked) - 3):
            async with Raw.to(here.port, hello=asked[:at]) as raw:
                await settle()
                await raw.send(asked[at:])
                assert (await raw.until(DATA, 1))[3] == frames.message(b"word")
                await raw.until(HEADERS, 1, END_STREAM)


# -- the end -----------------------------------------------------------------------------------------


async def test_goaway_in_two_steps() -> None:
    async with house() as here, Raw.to(here.port) as raw:
        await raw.send(call(1, "/test.Bench/Wait"))
        await until(lambda: here.bench.running == 1)
        stopping = asyncio.create_task(here.server.stop(PATIENCE_S))
        first = await raw.until(GOAWAY)
        assert struct.unpack(">LL", first[3][:8]) == (frames.WINDOW_MAX, 0)
        ping = await raw.until(PING)
        await raw.send(call(3, "/test.Bench/Empty"))  # crossed the GOAWAY: it is served
        await raw.until(HEADERS, 3, END_STREAM)
        await raw.send(frame(PING, frames.ACK, 0, ping[3]))
        second = await raw.until(GOAWAY)
        assert struct.unpack(">LL", second[3][:8]) == (3, 0)
        await raw.send(call(5, "/test.Bench/Empty"))  # too late, and told so
        here.bench.release.set()
        assert [found[2] for found in await raw.rest() if found[0] == HEADERS] == [1, 1]
        await asyncio.wait_for(stopping, PATIENCE_S)


async def test_stop_loses_no_call_of_grpcio() -> None:
    async with house() as here:
        channels = [grpc.aio.insecure_channel(f"127.0.0.1:{here.port}") for _ in range(4)]
        try:
            calls = [
                asyncio.ensure_future(channel.unary_unary("/test.Bench/Gated")(b""))  # type: ignore[call-arg]
                for channel in channels
                for _ in range(16)
            ]
            await until(lambda: here.bench.running == 64)
            stopping = asyncio.create_task(here.server.stop(PATIENCE_S))
            await settle()
            here.bench.gate.set_result(None)
            assert await asyncio.wait_for(asyncio.gather(*calls), PATIENCE_S) == [b""] * 64
            await asyncio.wait_for(stopping, PATIENCE_S)
        finally:
            for channel in channels:
                await channel.close(None)


async def test_stop_while_a_client_calls_without_pause() -> None:
    """A stop in the middle of calls: each is answered, or was never begun."""
    async with house() as here:
        client = rpc.Client(f"127.0.0.1:{here.port}")
        answered = 0
        refused: list[BaseException] = []

        async def caller() -> None:
            nonlocal answered
            while not refused:
                try:
                    await client.unary("/test.Bench/Empty", b"", PATIENCE_S)
                    answered += 1
                except rpc.RpcStatus as error:
                    raise AssertionError from error
                except Exception as error:  # no server listens any more
                    refused.append(error)

        callers = [asyncio.create_task(caller()) for _ in range(16)]
        await until(lambda: answered > 200)
        await asyncio.wait_for(here.server.stop(PATIENCE_S), PATIENCE_S)
        await asyncio.wait_for(asyncio.gather(*callers), PATIENCE_S)
        assert here.bench.called == answered
        await client.close()


async def test_what_was_sent_unread_does_not_eat_the_goaway() -> None:
    async with house() as here, Raw.to(here.port) as raw:
        await raw.send(frame(DATA, 0, 1))  # a fault, and much after it
        await raw.send(frame(frames.UNKNOWN, 0, 0, bytes(16_000)) * 60)
        found = await raw.rest()
        assert goaway_of(found)[0] == 1
        await here.at_rest()


async def test_a_goaway_is_sent_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_transport, "_LINGER_S", FOR_EVER_S)
    async with house() as here, Raw.to(here.port) as raw:
        await raw.send(frame(DATA, 0, 1))
        assert goaway_of(await raw.rest())[0] == 1


async def test_a_peer_that_stays_after_its_goaway_is_cut_off() -> None:
    async with house() as here, Raw.to(here.port) as raw:
        await raw.send(frame(DATA, 0, 1))
        while await raw.next():
            pass
        await here.at_rest()


async def test_a_fault_cancels_what_runs() -> None:
    async with house() as here, Raw.to(here.port) as raw:
        await raw.send(call(1, "/test.Bench/Wait") + call(3, "/test.Bench/Gated") + flow(5, 1 << 30, 1 << 10))
        await until(lambda: here.bench.running == 2 and here.bench.flowing == 1)
        await raw.send(frame(PING, 0, 1, bytes(8)))
        assert goaway_of(await raw.rest())[0] == 1
        await here.at_rest()


async def test_stop_ends_a_connection_that_has_just_come() -> None:
    """However far its transport has got by then."""
    for turns in range(8):
        async with house() as here:
            sock = connected(here.port)
            for _ in range(turns):
                await asyncio.sleep(0)
            await asyncio.wait_for(here.server.stop(0), PATIENCE_S)
            sock.close()


async def test_stop_cancels_after_the_grace() -> None:
    async with house() as here, Raw.to(here.port) as raw:
        await raw.send(call(1, "/test.Bench/Wait") + flow(3, 1 << 30, 1 << 10))
        await until(lambda: here.bench.running == 1 and here.bench.flowing == 1)
        began_s = time.monotonic()
        await asyncio.wait_for(here.server.stop(0.1), PATIENCE_S)
        assert time.monotonic() - began_s >= 0.09  # a loop's timer fires a millisecond early
        await here.at_rest()


async def test_stop_ends_idle_connections_of_every_kind() -> None:
    async with (
        house() as here,
        Raw.to(here.port, hello=b"") as silent,
        Raw.to(here.port, hello=b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n") as http1,
    ):
        assert (await http1.octets()).startswith(b"HTTP/1.1 200")
        await until(lambda: here.server.connections == 2)
        stopping = asyncio.create_task(here.server.stop(FOR_EVER_S))
        for raw in (silent, http1):
            assert await raw.octets() == b""
            raw.sock.close()
        await asyncio.wait_for(stopping, PATIENCE_S)
        await here.at_rest()


async def test_a_client_that_half_closes_is_gone() -> None:
    async with house() as here, Raw.to(here.port) as raw:
        await raw.send(call(1, "/test.Bench/Wait"))
        await until(lambda: here.bench.running == 1)
        raw.sock.shutdown(1)
        await here.at_rest()


async def test_reset_of_an_inline_handler_that_ignores_it() -> None:
    """Until such a handler ends, its stream counts as open."""
    async with house(Limits(streams_max=2)) as here, Raw.to(here.port) as raw:
        await raw.send(
            call(1, "/test.Bench/Gated") + call(3, "/test.Bench/Gated") + call(5, "/test.Bench/Empty")
        )
        assert (await raw.until(RST_STREAM, 5))[3] == frames.u32(7)
        await raw.send(frames.rst_stream(1) + frames.rst_stream(3))
        await until(lambda: here.bench.running == 0)
        assert await raw.answers(7)


@pytest.mark.parametrize(
    ("host", "families"), [("", "46"), ("::", "46"), ("::1", "6"), ("[::1]", "6"), ("0.0.0.0", "4")]
)
@pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6")
async def test_addresses_to_listen_on(host: str, families: str) -> None:
    async def empty(request: bytes) -> bytes:
        return b""

    server = await serve([rpc.Service("test.Bench", {"Empty": empty})], None, host, 0)
    for family, address in (("4", "127.0.0.1"), ("6", "[::1]")):
        client = rpc.Client(f"{address}:{server.port}")
        if family in families:
            assert await client.unary("/test.Bench/Empty", b"", PATIENCE_S) == b""
        else:
            with pytest.raises(Unavailable):
                await client.unary("/test.Bench/Empty", b"", 1.0)
        await client.close()
    await server.stop(0)


async def test_a_service_that_ignores_its_cancellation_for_a_while() -> None:
    """`stop` returns when nothing of it is left."""
    begun, ended = asyncio.Event(), False

    async def stubborn(request: bytes) -> bytes:
        nonlocal ended
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await settle()
        ended = True
        return b"late"

    server = await serve([rpc.Service("test.Bench", {"Wait": stubborn})], None, "127.0.0.1", 0)
    async with Raw.to(server.port) as raw:
        await raw.send(call(1, "/test.Bench/Wait"))
        await begun.wait()
        await asyncio.wait_for(server.stop(0), PATIENCE_S)
    assert ended
    assert not server.tasks


async def test_services_offered_later_are_served_on_connections_that_are_open_already() -> None:
    async def not_yet(_: bytes) -> bytes:
        raise Unavailable("not yet")

    async def echo(data: bytes) -> bytes:
        return data

    server = await serve([rpc.Service("t.S", {"Say": not_yet})], Routes(), "127.0.0.1", 0)
    client = rpc.Client(f"127.0.0.1:{server.port}")
    try:
        for _ in range(3):  # the head of a call is remembered from the second on
            with pytest.raises(Unavailable, match="not yet"):
                await client.unary("/t.S/Say", b"x", PATIENCE_S)
        server.offer([rpc.Service("t.S", inline={"Say": echo})])
        for _ in range(3):
            assert await client.unary("/t.S/Say", b"x", PATIENCE_S) == b"x"
        with pytest.raises(AssertionError, match="other methods"):
            server.offer([rpc.Service("t.S", inline={"Shout": echo})])
    finally:
        await client.close()
        await server.stop(0.0)
