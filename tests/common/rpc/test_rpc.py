from __future__ import annotations

import asyncio
import contextlib
import gc
import random
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from tests.fakes import grpcio_server
from tests.waiting import PATIENCE_S, settle, until
from tidb_binlog import rpc
from tidb_binlog.door.limits import Limits
from tidb_binlog.door.server.listener import Server, serve
from tidb_binlog.door.server.stats import STATS
from tidb_binlog.errors import (
    BinlogError,
    ConfigError,
    Conflict,
    Corruption,
    DownstreamError,
    PortTaken,
    Rejected,
    Unavailable,
)
from tidb_binlog.net.tls import TlsConfig

TLS = Path(__file__).parents[2] / "golden" / "tls"
NODE = TlsConfig(str(TLS / "ca.pem"), str(TLS / "node.pem"), str(TLS / "node.key"))
STRANGER = TlsConfig(str(TLS / "ca.pem"), str(TLS / "stranger.pem"), str(TLS / "stranger.key"))

Server = Server | grpcio_server.Server


@pytest.fixture(params=["door", "grpcio"])
def server_kind(request: pytest.FixtureRequest) -> str:
    """Services must not notice which of the two carries them."""
    kind: str = request.param
    return kind


async def start(
    kind: str,
    services: list[rpc.Service],
    port: int = 0,
    *,
    host: str = "127.0.0.1",
    tls: TlsConfig | None = None,
    message_bytes_max: int | None = None,
) -> Server:
    if kind == "grpcio":
        limit = message_bytes_max or rpc.RECEIVE_BYTES_MAX
        return await grpcio_server.serve(services, host, port, tls=tls, receive_bytes_max=limit)
    limits = Limits() if message_bytes_max is None else Limits(message_bytes_max=message_bytes_max)
    server_tls = tls.server_tls() if tls else None
    return await serve(services, None, host, port, tls=server_tls, limits=limits)


class Example:
    """A service that does what its request says."""

    def __init__(self) -> None:
        self.open_streams = 0
        self.calls = 0
        self.cancelled = 0
        self.received: list[bytes] = []
        self.stream_started = asyncio.Event()
        self.stream_ended = asyncio.Event()
        self.release = asyncio.Event()
        self.failure: Exception | None = None

    async def echo(self, request: bytes) -> bytes:
        self.calls += 1
        if self.failure is not None:
            raise self.failure
        return bytes(request)

    async def length(self, request: bytes) -> bytes:
        return b"%d" % len(request)

    async def wait(self, request: bytes) -> bytes:
        self.calls += 1
        self.stream_started.set()
        try:
            await self.release.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        finally:
            self.stream_ended.set()
        return b"waited"

    async def count(self, request: bytes) -> AsyncIterator[bytes]:
        for number in range(int(request)):
            yield b"%d" % number
        if self.failure is not None:
            raise self.failure

    async def give(self, request: bytes) -> AsyncIterator[bytes]:
        yield b"g" * int(request)

    async def endless(self, request: bytes) -> AsyncIterator[bytes]:
        self.open_streams += 1
        self.stream_started.set()
        try:
            yield b"first"
            await self.release.wait()
        finally:
            self.open_streams -= 1
            self.stream_ended.set()

    async def chat(self, requests: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        self.open_streams += 1
        self.stream_started.set()
        try:
            async for request in requests:
                yield bytes(request).upper()
        finally:
            self.open_streams -= 1
            self.stream_ended.set()
        yield b"bye"

    async def collect(self, requests: AsyncIterator[bytes]) -> bytes:
        self.open_streams += 1
        self.stream_started.set()
        try:
            async for request in requests:
                self.received.append(bytes(request))
                if request == b"enough":
                    break
        finally:
            self.open_streams -= 1
            self.stream_ended.set()
        if self.failure is not None:
            raise self.failure
        return b",".join(self.received)

    def service(self) -> rpc.Service:
        return rpc.Service(
            "test.Example",
            {"Echo": self.echo, "Wait": self.wait, "Length": self.length},
            {"Count": self.count, "Endless": self.endless, "Give": self.give},
            {"Chat": self.chat},
            {"Collect": self.collect},
            {"InlineEcho": self.echo, "InlineWait": self.wait},
        )


@asynccontextmanager
async def running(
    example: Example, kind: str = "door", *, message_bytes_max: int | None = None
) -> AsyncIterator[tuple[Server, rpc.Client]]:
    server = await start(kind, [example.service()], message_bytes_max=message_bytes_max)
    client = rpc.Client(f"127.0.0.1:{server.port}")
    try:
        yield server, client
    finally:
        await client.close()
        await server.stop(0)
        gc.collect()  # anything left unawaited shows now


@asynccontextmanager
async def channel(server: Server) -> AsyncIterator[Any]:
    """grpcio's own client, for what ours does not offer."""
    options = (("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1))
    opened = grpc.aio.insecure_channel(f"127.0.0.1:{server.port}", options=options)
    try:
        yield opened
    finally:
        await opened.close(None)


async def each(*words: bytes) -> AsyncIterator[bytes]:
    for word in words:
        yield word


async def test_three_kinds_of_calls(server_kind: str) -> None:
    async with running(Example(), server_kind) as (_, client):
        assert await client.unary("/test.Example/Echo", b"x", 5) == b"x"
        assert [part async for part in client.server_stream("/test.Example/Count", b"3")] == [
            b"0",
            b"1",
            b"2",
        ]

        async def requests() -> AsyncIterator[bytes]:
            for word in (b"a", b"b"):
                yield word

        assert [part async for part in client.bidi("/test.Example/Chat", requests())] == [b"A", b"B", b"bye"]


async def test_bidi_is_interactive(server_kind: str) -> None:
    async with running(Example(), server_kind) as (_, client):
        words: asyncio.Queue[bytes] = asyncio.Queue(1)

        async def requests() -> AsyncIterator[bytes]:
            while True:
                yield await words.get()

        async with aclosing(client.bidi("/test.Example/Chat", requests())) as replies:
            for word in (b"one", b"two"):
                await words.put(word)
                assert await anext(replies) == word.upper()


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (Rejected("no", hint="do"), rpc.UNKNOWN, "no (do)"),
        (Conflict("lost"), rpc.UNKNOWN, "lost"),
        (DownstreamError("refused"), rpc.UNKNOWN, "refused"),
        (ConfigError("bad"), rpc.UNKNOWN, "bad"),
        (Corruption("torn"), rpc.DATA_LOSS, "torn"),
        (rpc.RpcStatus(rpc.FAILED_PRECONDITION, "cluster 1"), rpc.FAILED_PRECONDITION, "cluster 1"),
        (ValueError("inner secret"), rpc.INTERNAL, "internal error, see the server's log"),
    ],
)
async def test_errors_cross_the_wire(server_kind: str, error: Exception, code: int, text: str) -> None:
    example = Example()
    example.failure = error
    async with running(example, server_kind) as (_, client):
        with pytest.raises(rpc.RpcStatus) as caught:
            await client.unary("/test.Example/Echo", b"", 5)
        assert (caught.value.code, str(caught.value)) == (code, text)
        stream = client.server_stream("/test.Example/Count", b"2")
        assert [await anext(stream), await anext(stream)] == [b"0", b"1"]
        with pytest.raises(rpc.RpcStatus) as caught:
            await anext(stream)
        assert caught.value.code == code


async def test_every_error_class_has_a_status() -> None:
    def below(cls: type[BinlogError]) -> set[type[BinlogError]]:
        return {cls}.union(*(below(child) for child in cls.__subclasses__()))

    for cls in sorted(below(BinlogError), key=str):
        if not cls.__module__.startswith("common."):
            continue  # those say more than a text, and are of one of these kinds
        error = rpc.RpcStatus(5, "x") if cls is rpc.RpcStatus else cls("x")
        code, text = rpc.status_of(error)
        assert 0 < code <= 16
        assert text == "x"
        assert (code == rpc.UNAVAILABLE) == isinstance(error, Unavailable)


async def test_unavailable_is_unavailable_on_the_other_side(server_kind: str) -> None:
    example = Example()
    example.failure = Unavailable("writer stopped")
    async with running(example, server_kind) as (_, client):
        with pytest.raises(Unavailable, match="writer stopped"):
            await client.unary("/test.Example/Echo", b"", 5)


async def test_nobody_there(free_port: Callable[[], int]) -> None:
    client = rpc.Client(f"127.0.0.1:{free_port()}")
    with pytest.raises(Unavailable, match=r"does not answer /test\.Example/Echo"):
        await client.unary("/test.Example/Echo", b"", 5)
    with pytest.raises(Unavailable, match=r"check that 127\.0\.0\.1"):
        await anext(client.server_stream("/test.Example/Count", b"1"))
    await client.close()
    with pytest.raises(Unavailable, match="is closed"):
        await client.unary("/test.Example/Echo", b"", 5)
    with pytest.raises(Unavailable, match="is closed"):
        await anext(client.server_stream("/test.Example/Count", b"1"))


async def test_closing_the_client_is_not_a_cancellation() -> None:
    example = Example()
    async with running(example) as (_, client):
        call = asyncio.create_task(client.unary("/test.Example/Wait", b"", 10))
        await example.stream_started.wait()
        await client.close()
        with pytest.raises(Unavailable):
            await call


async def test_cancelling_a_call_is_a_cancellation(server_kind: str) -> None:
    example = Example()
    async with running(example, server_kind) as (_, client):
        call = asyncio.create_task(client.unary("/test.Example/Wait", b"", 10))
        await example.stream_started.wait()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        stream = client.server_stream("/test.Example/Endless", b"")
        assert await anext(stream) == b"first"
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(anext(stream), 0.01)


async def test_deadline_is_unavailable(server_kind: str) -> None:
    async with running(Example(), server_kind) as (_, client):
        with pytest.raises(Unavailable):
            await client.unary("/test.Example/Wait", b"", 0.05)


async def test_unknown_method(server_kind: str) -> None:
    async with running(Example(), server_kind) as (_, client):
        for path in ("/test.Example/Nothing", "/test.Other/Echo", "/nothing"):
            with pytest.raises(rpc.RpcStatus) as caught:
                await client.unary(path, b"", 5)
            assert caught.value.code == rpc.UNIMPLEMENTED


async def test_inline_handlers(server_kind: str) -> None:
    """grpcio's server runs them as any other; nobody can tell."""
    example = Example()
    async with running(example, server_kind) as (_, client):
        assert await client.unary("/test.Example/InlineEcho", b"x", 5) == b"x"
        calls = [asyncio.create_task(client.unary("/test.Example/InlineWait", b"", 10)) for _ in range(8)]
        await until(lambda: example.calls >= 9)
        example.release.set()
        assert await asyncio.gather(*calls) == [b"waited"] * 8
        example.failure = rpc.RpcStatus(rpc.INVALID_ARGUMENT, "not so")
        with pytest.raises(rpc.RpcStatus, match="not so"):
            await client.unary("/test.Example/InlineEcho", b"x", 5)
        example.failure = ValueError("secret")
        with pytest.raises(rpc.RpcStatus, match="internal error, see the server's log"):
            await client.unary("/test.Example/InlineEcho", b"x", 5)


@pytest.mark.parametrize("path", ["/test.Example/InlineWait", "/test.Example/Wait"])
@pytest.mark.parametrize("how", ["cancel", "deadline"])
async def test_a_unary_handler_is_cancelled(server_kind: str, path: str, how: str) -> None:
    example = Example()
    async with running(example, server_kind) as (_, client):
        call = asyncio.create_task(client.unary(path, b"", 0.1 if how == "deadline" else 10))
        await example.stream_started.wait()
        if how == "cancel":
            call.cancel()
        with pytest.raises((asyncio.CancelledError, Unavailable)):
            await call
        await asyncio.wait_for(example.stream_ended.wait(), PATIENCE_S)
        assert example.cancelled == 1


async def test_client_stream(server_kind: str) -> None:
    example = Example()
    async with running(example, server_kind) as (server, _), channel(server) as opened:
        collect = opened.stream_unary("/test.Example/Collect")
        assert await collect(each(b"a", b"", b"b")) == b"a,,b"
        example.received.clear()
        assert await collect(each()) == b""
        # The answer may come before the last request.
        call = collect()
        await call.write(b"enough")
        assert await asyncio.wait_for(call, PATIENCE_S) == b"enough"
        example.failure = Rejected("no")
        with pytest.raises(grpc.aio.AioRpcError, match="no"):
            await collect(each(b"a"))
        assert example.open_streams == 0


async def test_half_close_ends_the_requests_alone(server_kind: str) -> None:
    async with running(Example(), server_kind) as (server, _), channel(server) as opened:
        call = opened.stream_stream("/test.Example/Chat")()
        await call.write(b"a")
        assert await call.read() == b"A"
        await call.done_writing()
        assert await call.read() == b"bye"
        assert await call.read() is grpc.aio.EOF  # type: ignore[attr-defined]


async def test_empty_messages_and_streams(server_kind: str) -> None:
    async with running(Example(), server_kind) as (_, client):
        assert await client.unary("/test.Example/Echo", b"", 5) == b""
        assert [part async for part in client.server_stream("/test.Example/Count", b"0")] == []
        assert [part async for part in client.server_stream("/test.Example/Give", b"0")] == [b""]


async def test_deadlines_of_streams(server_kind: str) -> None:
    example = Example()
    async with running(example, server_kind) as (server, _), channel(server) as opened:
        for deadline_s in (0.1, 1.0, 10.0, PATIENCE_S):  # a busy machine may begin after the first
            call = opened.unary_stream("/test.Example/Endless")(b"", timeout=deadline_s)
            with contextlib.suppress(grpc.aio.AioRpcError):
                assert await call.read() == b"first"
                break
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call.read()
        assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        await asyncio.wait_for(example.stream_ended.wait(), PATIENCE_S)
        assert example.open_streams == 0


@pytest.mark.parametrize("path", ["/test.Example/Echo", "/test.Example/InlineEcho"])
async def test_details_of_a_status(server_kind: str, path: str) -> None:
    example = Example()
    details = bytes(range(256))
    example.failure = rpc.RpcStatus(rpc.FAILED_PRECONDITION, "100 % \N{SNOWMAN}", details=details)
    async with running(example, server_kind) as (server, _), channel(server) as opened:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await opened.unary_unary(path)(b"")
        assert caught.value.code() is grpc.StatusCode.FAILED_PRECONDITION
        assert caught.value.details() == "100 % \N{SNOWMAN}"
        trailers: Any = caught.value.trailing_metadata()
        assert dict(trailers)["grpc-status-details-bin"] == details
        call = opened.unary_stream("/test.Example/Count")(b"1")
        assert await call.read() == b"0"
        assert dict(await call.trailing_metadata())["grpc-status-details-bin"] == details


async def test_errors_of_many_calls_at_once(server_kind: str) -> None:
    """Good and bad ones on one connection: each has its own answer."""
    async with running(Example(), server_kind) as (_, client):
        paths = ["/test.Example/Echo", "/test.Example/Nothing", "/test.Example/InlineEcho"] * 30
        calls = (client.unary(path, b"%d" % number, 10) for number, path in enumerate(paths))
        replies = await asyncio.gather(*calls, return_exceptions=True)
        for number, (path, reply) in enumerate(zip(paths, replies, strict=True)):
            if path.endswith("Nothing"):
                assert isinstance(reply, rpc.RpcStatus)
            else:
                assert reply == b"%d" % number


async def test_large_messages_pass_both_ways(server_kind: str) -> None:
    message = bytes(range(256)) * (16 << 12)
    async with running(Example(), server_kind) as (_, client):
        assert await client.unary("/test.Example/Echo", message, 30) == message
        assert [part async for part in client.bidi("/test.Example/Chat", each(b"x" * len(message)))] == [
            b"X" * len(message),
            b"bye",
        ]


@pytest.mark.parametrize("gzip", [False, True])
async def test_message_limit(server_kind: str, gzip: bool) -> None:
    """It counts what a message is when unpacked. The limit itself passes. (The door lets pass what fits one
    frame, whatever the limit.)"""
    example = Example()
    compression = grpc.Compression.Gzip if gzip else None
    async with (
        running(example, server_kind, message_bytes_max=50_000) as (server, _),
        channel(server) as opened,
    ):
        length = opened.unary_unary("/test.Example/Length")
        chat = opened.stream_stream("/test.Example/Chat")
        assert await length(b"x" * 50_000, compression=compression) == b"50000"
        for _ in range(3):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await length(b"x" * 50_001, compression=compression)
            assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
            assert "larger than max" in (caught.value.details() or "")
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            async for _ in chat(each(b"x" * 50_001), compression=compression):
                pass
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert await length(b"after") == b"5"  # the connection lives on
        await asyncio.wait_for(example.stream_ended.wait(), PATIENCE_S)
        assert example.open_streams == 0


@pytest.mark.parametrize("size", [0, 10, 50_000, 1 << 20, 3 << 20])
async def test_gzip(server_kind: str, size: int) -> None:
    """The door answers gzip with gzip where that is worth it; grpcio's server never does."""
    message = random.Random(size).randbytes(64).hex().encode() * (size >> 7)
    async with running(Example(), server_kind) as (server, _), channel(server) as opened:
        sent = STATS.sent_bytes
        for path in ("/test.Example/Echo", "/test.Example/InlineEcho"):
            assert await opened.unary_unary(path)(message, compression=grpc.Compression.Gzip) == message
        if server_kind == "door" and 1 << 12 < size <= 1 << 18:
            assert STATS.sent_bytes - sent < size // 4
        chat = opened.stream_stream("/test.Example/Chat")
        replies = chat(each(message, b"a"), compression=grpc.Compression.Gzip)
        assert [reply async for reply in replies] == [message.upper(), b"A", b"bye"]


async def test_a_stream_with_gzip(server_kind: str) -> None:
    """As a drainer pulls from an old pump: the reply is compressed because the request says that it is."""
    async with running(Example(), server_kind) as (_, client):
        for gzip in (True, False):
            sent = STATS.sent_bytes
            replies = client.server_stream("/test.Example/Give", b"100000", gzip=gzip)
            assert [reply async for reply in replies] == [b"g" * 100_000]
            if server_kind == "door":
                assert (STATS.sent_bytes - sent < 10_000) == gzip


async def test_a_failure_of_the_requests_reaches_the_caller(server_kind: str) -> None:
    example = Example()

    async def requests() -> AsyncIterator[bytes]:
        yield b"a"
        await example.stream_started.wait()
        raise ValueError("cannot read the next one")

    async with running(example, server_kind) as (_, client):
        replies = client.bidi("/test.Example/Chat", requests())
        with pytest.raises(ValueError, match="cannot read the next one"):
            assert [reply async for reply in replies] == []
        await asyncio.wait_for(example.stream_ended.wait(), PATIENCE_S)


async def test_an_abandoned_bidi_call_closes_its_requests(server_kind: str) -> None:
    closed = asyncio.Event()

    async def requests() -> AsyncIterator[bytes]:
        try:
            yield b"a"
            await asyncio.Event().wait()
        finally:
            closed.set()

    async with running(Example(), server_kind) as (_, client):
        async with aclosing(client.bidi("/test.Example/Chat", requests())) as replies:
            assert await anext(replies) == b"A"
        assert closed.is_set()


@pytest.mark.parametrize("kind", ["server_stream", "bidi"])
@pytest.mark.parametrize("how", ["stream closed", "connection closed"])
async def test_a_stream_ends_when_the_client_goes_away(server_kind: str, kind: str, how: str) -> None:
    example = Example()

    async def requests() -> AsyncIterator[bytes]:
        yield b"a"
        await asyncio.Event().wait()

    async with running(example, server_kind) as (server, _):
        client = rpc.Client(f"127.0.0.1:{server.port}")
        stream = (
            client.bidi("/test.Example/Chat", requests())
            if kind == "bidi"
            else client.server_stream("/test.Example/Endless", b"")
        )
        assert await anext(stream) in (b"A", b"first")
        assert example.open_streams == 1
        if how == "stream closed":
            await stream.aclose()
            await asyncio.wait_for(example.stream_ended.wait(), PATIENCE_S)
            await client.close()
        else:
            await client.close()
            await asyncio.wait_for(example.stream_ended.wait(), PATIENCE_S)
            with pytest.raises(Unavailable):
                await anext(stream)
        assert example.open_streams == 0


async def test_stop_waits_for_running_calls(server_kind: str) -> None:
    example = Example()
    async with running(example, server_kind) as (server, client):
        paths = ["/test.Example/Wait", "/test.Example/InlineWait"] * 4
        calls = [asyncio.create_task(client.unary(path, b"", 10)) for path in paths]
        stream = client.server_stream("/test.Example/Endless", b"")
        assert await anext(stream) == b"first"
        await until(lambda: example.calls >= len(calls))
        stopping = asyncio.create_task(server.stop(PATIENCE_S))
        await settle()
        example.release.set()
        assert await asyncio.gather(*calls) == [b"waited"] * len(calls)
        assert [part async for part in stream] == []  # its end is a good one
        await asyncio.wait_for(stopping, PATIENCE_S)
        with pytest.raises(Unavailable):
            await client.unary("/test.Example/Echo", b"", 0.5)


async def test_stop_ends_what_runs_after_the_grace(server_kind: str) -> None:
    example = Example()
    async with running(example, server_kind) as (server, client):
        call = asyncio.create_task(client.unary("/test.Example/Wait", b"", 10))
        stream = client.server_stream("/test.Example/Endless", b"")
        assert await anext(stream) == b"first"
        await example.stream_started.wait()
        await asyncio.wait_for(server.stop(0.05), PATIENCE_S)
        with pytest.raises(Unavailable):
            await anext(stream)
        with pytest.raises(Unavailable):
            await call
        await asyncio.wait_for(example.stream_ended.wait(), PATIENCE_S)
        assert (example.open_streams, example.cancelled) == (0, 1)


async def test_stop_is_idempotent(server_kind: str) -> None:
    async with running(Example(), server_kind) as (server, _):
        await asyncio.wait_for(asyncio.gather(server.stop(0), server.stop(0)), PATIENCE_S)
        await asyncio.wait_for(server.stop(1), PATIENCE_S)


async def test_a_taken_port_is_named(server_kind: str) -> None:
    async with running(Example(), server_kind) as (server, _):
        for other in ("door", "grpcio"):
            with pytest.raises(PortTaken) as caught:
                await start(other, [], server.port)
            text = str(caught.value)
            assert f"127.0.0.1:{server.port}" in text
            assert "--addr" in text
            assert "\n" not in text
            assert caught.value.exit_code == 8


async def test_an_address_of_another_host_is_named(server_kind: str, free_port: Callable[[], int]) -> None:
    with pytest.raises(PortTaken, match=r"192\.0\.2\.1.*--addr"):
        await start(server_kind, [], free_port(), host="192.0.2.1")
    with pytest.raises(PortTaken):
        await start(server_kind, [], free_port(), host="no.such.host.invalid")


async def test_port_is_taken_by_something_else_than_grpc(server_kind: str) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        with pytest.raises(PortTaken):
            await start(server_kind, [], other.getsockname()[1])


async def test_a_port_is_free_again_after_stop(server_kind: str) -> None:
    async with running(Example(), server_kind) as (server, client):
        await client.unary("/test.Example/Echo", b"", 5)
        await server.stop(0)
        again = await start(server_kind, [Example().service()], server.port)
        await again.stop(0)


async def test_mutual_tls(server_kind: str) -> None:
    server = await start(server_kind, [Example().service()], tls=NODE)
    address = f"127.0.0.1:{server.port}"
    accepted = rpc.Client(address, tls=NODE)
    assert await accepted.unary("/test.Example/Echo", b"x", 5) == b"x"
    nobody = TlsConfig(str(TLS / "ca.pem"))
    for refused in (rpc.Client(address, tls=STRANGER), rpc.Client(address, tls=nobody), rpc.Client(address)):
        with pytest.raises(Unavailable):
            await refused.unary("/test.Example/Echo", b"x", 5)
        await refused.close()
    assert await accepted.unary("/test.Example/Echo", b"x", 5) == b"x"
    await accepted.close()
    await server.stop(0)


async def test_clients_check_the_server(server_kind: str) -> None:
    server = await start(server_kind, [Example().service()], tls=STRANGER)
    client = rpc.Client(f"127.0.0.1:{server.port}", tls=NODE)
    with pytest.raises(Unavailable):
        await client.unary("/test.Example/Echo", b"x", 5)
    await client.close()
    await server.stop(0)


async def test_a_peer_that_vanished_without_a_word_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """A network that loses everything: nothing arrives, no connection is reset."""
    monkeypatch.setattr("tidb_binlog.rpc.client._QUICK_PONG_S", 0.2)
    server = await start("grpcio", [Example().service()])
    lost = asyncio.Event()

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1 << 16):
            if not lost.is_set():
                writer.write(data)

    relays: set[asyncio.Task[None] | None] = set()

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        relays.add(asyncio.current_task())
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", server.port)
        with contextlib.suppress(OSError):
            await asyncio.gather(carry(reader, far_writer), carry(far_reader, writer))
        far_writer.transport.abort()
        writer.transport.abort()

    network = await asyncio.start_server(relay, "127.0.0.1", 0)
    client = rpc.Client(f"127.0.0.1:{network.sockets[0].getsockname()[1]}", ping_s=0.2)
    assert await client.unary("/test.Example/Echo", b"x", PATIENCE_S) == b"x"
    lost.set()
    async with asyncio.timeout(PATIENCE_S):
        with pytest.raises(Unavailable):
            await client.unary("/test.Example/Wait", b"", 600.0)
    await client.close()
    network.close()
    await server.stop(0)
    await asyncio.gather(*filter(None, relays))


@pytest.mark.parametrize(
    ("ca", "cert", "key", "text"),
    [
        ("missing.pem", "node.pem", "node.key", "could not read ssl-ca"),
        ("ca.pem", "missing.pem", "node.key", "could not read ssl-cert"),
        ("ca.pem", "node.pem", "missing.key", "could not read ssl-key"),
        ("node.key", "node.pem", "node.key", "ssl-ca .* is unusable"),
        ("ca.pem", "node.pem", "stranger.key", "ssl-cert .* is unusable"),
        ("ca.pem", "", "", "a TLS listener needs a certificate"),
    ],
)
async def test_unusable_tls_files_are_config_errors(
    server_kind: str, ca: str, cert: str, key: str, text: str
) -> None:
    tls = TlsConfig(str(TLS / ca), str(TLS / cert) if cert else "", str(TLS / key) if key else "")
    with pytest.raises(ConfigError, match=text):
        await start(server_kind, [], tls=tls)


def test_tls_is_off_where_nothing_is_set_and_never_by_mistake() -> None:
    assert TlsConfig.from_paths("", "", "") is None
    for cert, key, names in (("c", "k", ()), ("", "k", ()), ("", "", ["x"])):
        with pytest.raises(ConfigError, match=r"without ssl-ca: .* in clear"):
            TlsConfig.from_paths("", cert, key, names)
    assert TlsConfig.from_paths("a", "", "") == TlsConfig("a")
    with pytest.raises(ConfigError, match="belong together"):
        TlsConfig.from_paths("a", "c", "")


@pytest.mark.parametrize(
    "address", ["a..b:8250", f"{'x' * 64}.b:1", "\ud800:1", "nohost", "", "h:99999", "h:1/x"]
)
@pytest.mark.parametrize("tls", [None, NODE], ids=["clear", "tls"])
async def test_an_address_that_is_none_does_not_answer(address: str, tls: TlsConfig | None) -> None:
    """It may come from the registry or from PD: nobody who reads it may end by it."""
    client = rpc.Client(address, tls=tls)
    try:
        with pytest.raises(Unavailable, match="host"):
            await client.unary("/binlog.Pump/WriteBinlog", b"", 1.0)
        with pytest.raises(Unavailable, match="host"):
            async for _ in client.server_stream("/binlog.Pump/PullBinlogs", b""):
                pass
    finally:
        await client.close()
