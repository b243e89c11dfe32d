"""What a client does about its connections. The calls themselves: `test_rpc`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import pytest

from tests.waiting import PATIENCE_S, until
from tidb_binlog import rpc
from tidb_binlog.door.limits import Budget, Limits
from tidb_binlog.door.server.listener import serve, serve_unix
from tidb_binlog.errors import Unavailable
from tidb_binlog.http2 import frames, hpack

PATH = "/t.S/Call"
REQUEST = b"the request"
HEAD = hpack.literal(b":status", b"200") + hpack.literal(b"content-type", b"application/grpc")


class Gate:
    """A service whose calls wait."""

    def __init__(self) -> None:
        self.running = self.most = 0
        self.opened = asyncio.Event()

    async def call(self, request: bytes) -> bytes:
        self.running += 1
        self.most = max(self.most, self.running)
        await self.opened.wait()
        self.running -= 1
        return bytes(request)

    async def endless(self, request: bytes) -> AsyncIterator[bytes]:
        while True:
            yield bytes(1 << 20)

    def service(self) -> rpc.Service:
        return rpc.Service("t.S", unary={"Call": self.call}, server_streams={"Endless": self.endless})


Answer = Callable[[int, int, asyncio.StreamWriter], None]


@asynccontextmanager
async def raw(answer: Answer) -> AsyncIterator[tuple[str, list[int]]]:
    """A server of frames: `answer`, given the numbers of the connection and of its request, as one comes."""
    connections: list[int] = []
    serving: set[asyncio.Task[None] | None] = set()

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        serving.add(asyncio.current_task())
        connections.append(len(connections))
        number, asked, data = connections[-1], 0, b""
        writer.write(frames.settings({}))
        while piece := await reader.read(1 << 16):
            data += piece
            while REQUEST in data:
                data = data.partition(REQUEST)[2]
                answer(number, asked, writer)
                asked += 1
        writer.close()

    server = await asyncio.start_server(take, "127.0.0.1", 0)
    try:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}", connections
        await asyncio.gather(*filter(None, serving), return_exceptions=True)
    finally:
        server.close()


def good(writer: asyncio.StreamWriter, stream_id: int) -> None:
    writer.write(frames.frame(frames.HEADERS, frames.END_HEADERS, stream_id, HEAD))
    writer.write(frames.frame(frames.DATA, 0, stream_id, b"\0\0\0\0\1y"))
    end = hpack.literal(b"grpc-status", b"0")
    writer.write(frames.frame(frames.HEADERS, frames.END_HEADERS | frames.END_STREAM, stream_id, end))


async def test_calls_above_the_peers_limit_wait_for_room() -> None:
    gate = Gate()
    server = await serve([gate.service()], None, "127.0.0.1", 0, limits=Limits(streams_max=3))
    client = rpc.Client(f"127.0.0.1:{server.port}")
    calls = [asyncio.create_task(client.unary(PATH, b"%d" % number, PATIENCE_S)) for number in range(20)]
    await until(lambda: gate.running == 3)
    calls[0].cancel()  # one that runs, and some that wait
    for call in calls[10:12]:
        call.cancel()
    late = client.unary(PATH, b"late", 0.01)
    with pytest.raises(Unavailable, match="Deadline Exceeded"):
        await late
    gate.opened.set()
    done = await asyncio.gather(*calls, return_exceptions=True)
    kept = [number for number in range(20) if number not in (0, 10, 11)]
    assert [done[number] for number in kept] == [b"%d" % number for number in kept]
    assert gate.most <= 4  # the one that was given up may still run
    await client.close()
    await server.stop(0)


@pytest.mark.parametrize("how", ["refused", "left"])
async def test_a_call_that_was_not_begun_is_made_again(how: str) -> None:
    def answer(number: int, asked: int, writer: asyncio.StreamWriter) -> None:
        if number or asked:
            good(writer, 1 + 2 * asked)
        elif how == "left":
            writer.write(frames.goaway(0, frames.NO_ERROR))
        else:
            writer.write(frames.rst_stream(1, frames.REFUSED_STREAM))

    async with raw(answer) as (address, connections):
        client = rpc.Client(address)
        assert await client.unary(PATH, REQUEST, PATIENCE_S) == b"y"
        assert len(connections) == (2 if how == "left" else 1)
        await client.close()


async def test_a_call_that_may_have_been_begun_is_not() -> None:
    async with raw(lambda number, asked, writer: writer.transport.abort()) as (address, connections):
        client = rpc.Client(address)
        with pytest.raises(rpc.NoAnswer, match="the connection is lost") as caught:
            await client.unary(PATH, REQUEST, PATIENCE_S)
        assert (caught.value.code, len(connections)) == (rpc.UNAVAILABLE, 1)
        await client.close()


async def test_who_says_nothing_is_asked_on_a_new_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first one may lead to a host that is no more."""
    monkeypatch.setattr("tidb_binlog.rpc.client._SILENT_S", 0.0)
    async with raw(lambda number, asked, writer: good(writer, 1) if number else None) as (
        address,
        connections,
    ):
        client = rpc.Client(address)
        with pytest.raises(rpc.NoAnswer, match="Deadline Exceeded"):
            await client.unary(PATH, REQUEST, 0.05)
        assert await client.unary(PATH, REQUEST, PATIENCE_S) == b"y"
        assert len(connections) == 2
        await client.close()


async def test_who_does_not_read_our_answers_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidb_binlog.rpc.client._BACKLOG_BYTES_MAX", 1 << 16)
    flooding: list[asyncio.Task[None]] = []

    async def flood(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # Not where the connection is made: before Python 3.11.4 reading begins after that, paused or not.
        reader._transport.pause_reading()  # type: ignore[attr-defined]
        writer.write(frames.settings({}))
        pings = frames.frame(frames.PING, 0, 0, bytes(8)) * 4096
        try:
            while True:
                writer.write(pings)
                await writer.drain()
        except OSError:
            writer.transport.abort()

    def begin(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        flooding.append(asyncio.create_task(flood(reader, writer)))

    server = await asyncio.start_server(begin, "127.0.0.1", 0)
    client = rpc.Client(f"127.0.0.1:{server.sockets[0].getsockname()[1]}")
    with pytest.raises(rpc.NoAnswer, match="answers that it does not read"):
        await client.unary(PATH, b"", PATIENCE_S)
    await client.close()
    await asyncio.wait(flooding)
    server.close()


async def test_a_stream_that_is_not_read_is_not_collected() -> None:
    gate = Gate()
    server = await serve([gate.service()], None, "127.0.0.1", 0)
    client = rpc.Client(f"127.0.0.1:{server.port}")
    async with aclosing(client.server_stream("/t.S/Endless", b"")) as stream:
        assert len(await anext(stream)) == 1 << 20
        gate.opened.set()
        for _ in range(50):
            await client.unary(PATH, b"x", PATIENCE_S)
        (call,) = client._link.connection.calls.values()  # type: ignore[union-attr]
        assert call.unread <= 5 << 20
    await client.close()
    await server.stop(0)


async def test_over_a_unix_socket(tmp_path: Path) -> None:
    gate = Gate()
    gate.opened.set()
    path, limits = str(tmp_path / "s"), Limits()
    server = await serve_unix([gate.service()], path, limits=limits, budget=Budget(limits))
    for address in (f"unix:{path}", f"unix://{path}"):
        client = rpc.Client(address)
        assert await client.unary(PATH, b"x", PATIENCE_S) == b"x"
        await client.close()
    await server.stop(0)
    client = rpc.Client(f"unix:{tmp_path}/nobody")
    with pytest.raises(Unavailable, match="cannot connect"):
        await client.unary(PATH, b"x", PATIENCE_S)
    await client.close()


async def test_closed_while_it_connects() -> None:
    never = asyncio.Event()

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await never.wait()
        writer.close()

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    client = rpc.Client(f"127.0.0.1:{server.sockets[0].getsockname()[1]}")
    call = asyncio.create_task(client.unary(PATH, b"x", PATIENCE_S))
    await asyncio.sleep(0)
    await client.close()
    with pytest.raises(Unavailable, match="is closed"):
        await call
    await client.close()
    never.set()
    server.close()


async def test_a_close_that_is_cancelled_leaves_nothing_open() -> None:
    """As that of a publisher in a program whose tasks are ended."""
    async with raw(lambda number, asked, writer: good(writer, 1)) as (address, _):
        client = rpc.Client(address)
        assert await client.unary(PATH, REQUEST, PATIENCE_S) == b"y"
        (link,) = client._links
        link._transport.close = lambda: None  # type: ignore[method-assign]  # as TLS with a peer that is silent
        closing = asyncio.create_task(client.close())
        await asyncio.sleep(0)
        closing.cancel()
        await asyncio.wait({closing})
        await asyncio.wait_for(link.lost, PATIENCE_S)
