from __future__ import annotations

import asyncio
import gc
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import grpc
import grpc.aio
import pytest

from common import rpc
from common.errors import (
    BinlogError,
    ConfigError,
    Conflict,
    Corruption,
    DownstreamError,
    PortTaken,
    Rejected,
    Unavailable,
)
from common.tls import TlsConfig

TLS = Path(__file__).parent.parent / "golden" / "tls"


class Example:
    """A service that does what its request says."""

    def __init__(self) -> None:
        self.open_streams = 0
        self.stream_started = asyncio.Event()
        self.stream_ended = asyncio.Event()
        self.release = asyncio.Event()
        self.failure: Exception | None = None

    async def echo(self, request: bytes) -> bytes:
        if self.failure is not None:
            raise self.failure
        return request

    async def wait(self, request: bytes) -> bytes:
        self.stream_started.set()
        await self.release.wait()
        return b"waited"

    async def count(self, request: bytes) -> AsyncIterator[bytes]:
        for number in range(int(request)):
            yield b"%d" % number
        if self.failure is not None:
            raise self.failure

    async def endless(self, request: bytes) -> AsyncIterator[bytes]:
        self.open_streams += 1
        self.stream_started.set()
        try:
            yield b"first"
            await asyncio.Event().wait()
        finally:
            self.open_streams -= 1
            self.stream_ended.set()

    async def chat(self, requests: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        self.open_streams += 1
        self.stream_started.set()
        try:
            async for request in requests:
                yield request.upper()
        finally:
            self.open_streams -= 1
            self.stream_ended.set()

    def service(self) -> rpc.Service:
        return rpc.Service(
            "test.Example",
            {"Echo": self.echo, "Wait": self.wait},
            {"Count": self.count, "Endless": self.endless},
            {"Chat": self.chat},
        )


@asynccontextmanager
async def running(example: Example) -> AsyncIterator[tuple[rpc.Server, rpc.Client]]:
    server = await rpc.serve([example.service()], "127.0.0.1", 0)
    client = rpc.Client(f"127.0.0.1:{server.port}")
    try:
        yield server, client
    finally:
        await client.close()
        await server.stop(0)
        gc.collect()  # anything left unawaited shows now


async def test_three_kinds_of_calls() -> None:
    async with running(Example()) as (_, client):
        assert await client.unary("/test.Example/Echo", b"x", 5) == b"x"
        assert [part async for part in client.server_stream("/test.Example/Count", b"3")] == [
            b"0",
            b"1",
            b"2",
        ]

        async def requests() -> AsyncIterator[bytes]:
            for word in (b"a", b"b"):
                yield word

        assert [part async for part in client.bidi("/test.Example/Chat", requests())] == [b"A", b"B"]


async def test_bidi_is_interactive() -> None:
    async with running(Example()) as (_, client):
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
async def test_errors_cross_the_wire(error: Exception, code: int, text: str) -> None:
    example = Example()
    example.failure = error
    async with running(example) as (_, client):
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

    for cls in below(BinlogError):
        error = rpc.RpcStatus(5, "x") if cls is rpc.RpcStatus else cls("x")
        code, text = rpc.status_of(error)
        assert 0 < code <= 16
        assert text == "x"
        assert (code == rpc.UNAVAILABLE) == isinstance(error, Unavailable)


async def test_unavailable_is_unavailable_on_the_other_side() -> None:
    example = Example()
    example.failure = Unavailable("writer stopped")
    async with running(example) as (_, client):
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


async def test_cancelling_a_call_is_a_cancellation() -> None:
    example = Example()
    async with running(example) as (_, client):
        call = asyncio.create_task(client.unary("/test.Example/Wait", b"", 10))
        await example.stream_started.wait()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        stream = client.server_stream("/test.Example/Endless", b"")
        assert await anext(stream) == b"first"
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(anext(stream), 0.01)


async def test_deadline_is_unavailable() -> None:
    async with running(Example()) as (_, client):
        with pytest.raises(Unavailable):
            await client.unary("/test.Example/Wait", b"", 0.05)


async def test_unknown_method() -> None:
    async with running(Example()) as (_, client):
        with pytest.raises(rpc.RpcStatus) as caught:
            await client.unary("/test.Example/Nothing", b"", 5)
        assert caught.value.code == rpc.UNIMPLEMENTED


async def test_large_messages_pass_both_ways() -> None:
    message = b"x" * (20 << 20)
    async with running(Example()) as (_, client):
        assert await client.unary("/test.Example/Echo", message, 30) == message


async def test_receive_limit() -> None:
    example = Example()
    server = await rpc.serve([example.service()], "127.0.0.1", 0, receive_bytes_max=1000)
    client = rpc.Client(f"127.0.0.1:{server.port}")
    with pytest.raises(rpc.RpcStatus) as caught:
        await client.unary("/test.Example/Echo", b"x" * 2000, 5)
    assert caught.value.code == rpc.RESOURCE_EXHAUSTED
    await client.close()
    await server.stop(0)


async def test_gzip_requests_are_accepted() -> None:
    async with running(Example()) as (server, _):
        channel = grpc.aio.insecure_channel(f"127.0.0.1:{server.port}")
        call = channel.unary_unary("/test.Example/Echo")  # type: ignore[call-arg]
        assert await call(b"x" * 5000, compression=grpc.Compression.Gzip) == b"x" * 5000
        await channel.close(None)


async def test_a_failure_of_the_requests_reaches_the_caller() -> None:
    example = Example()

    async def requests() -> AsyncIterator[bytes]:
        yield b"a"
        raise ValueError("cannot read the next one")

    async with running(example) as (_, client):
        replies = client.bidi("/test.Example/Chat", requests())
        with pytest.raises(ValueError, match="cannot read the next one"):
            assert [reply async for reply in replies] == []
        await asyncio.wait_for(example.stream_ended.wait(), 5)


async def test_an_abandoned_bidi_call_closes_its_requests() -> None:
    closed = asyncio.Event()

    async def requests() -> AsyncIterator[bytes]:
        try:
            yield b"a"
            await asyncio.Event().wait()
        finally:
            closed.set()

    async with running(Example()) as (_, client):
        async with aclosing(client.bidi("/test.Example/Chat", requests())) as replies:
            assert await anext(replies) == b"A"
        assert closed.is_set()


@pytest.mark.parametrize("kind", ["server_stream", "bidi"])
@pytest.mark.parametrize("how", ["stream closed", "connection closed"])
async def test_a_stream_ends_when_the_client_goes_away(kind: str, how: str) -> None:
    example = Example()

    async def requests() -> AsyncIterator[bytes]:
        yield b"a"
        await asyncio.Event().wait()

    async with running(example) as (server, _):
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
            await asyncio.wait_for(example.stream_ended.wait(), 5)
            await client.close()
        else:
            await client.close()
            await asyncio.wait_for(example.stream_ended.wait(), 5)
            with pytest.raises(Unavailable):
                await anext(stream)
        assert example.open_streams == 0


async def test_stop_waits_for_running_calls() -> None:
    example = Example()
    async with running(example) as (server, client):
        call = asyncio.create_task(client.unary("/test.Example/Wait", b"", 10))
        await example.stream_started.wait()
        stopping = asyncio.create_task(server.stop(5))
        await asyncio.sleep(0)
        example.release.set()
        assert await call == b"waited"
        await asyncio.wait_for(stopping, 5)


async def test_stop_ends_streams_after_the_grace() -> None:
    example = Example()
    async with running(example) as (server, client):
        stream = client.server_stream("/test.Example/Endless", b"")
        assert await anext(stream) == b"first"
        await asyncio.wait_for(server.stop(0.05), 5)
        with pytest.raises(Unavailable):
            await anext(stream)
        await asyncio.wait_for(example.stream_ended.wait(), 5)


async def test_a_taken_port_is_named() -> None:
    async with running(Example()) as (server, _):
        with pytest.raises(PortTaken) as caught:
            await rpc.serve([], "127.0.0.1", server.port)
    text = str(caught.value)
    assert f"127.0.0.1:{server.port}" in text
    assert "--addr" in text
    assert "\n" not in text
    assert caught.value.exit_code == 8


async def test_an_address_of_another_host_is_named(free_port: Callable[[], int]) -> None:
    with pytest.raises(PortTaken, match=r"192\.0\.2\.1.*--addr"):
        await rpc.serve([], "192.0.2.1", free_port())
    with pytest.raises(PortTaken):
        await rpc.serve([], "no.such.host.invalid", free_port())


async def test_port_is_taken_by_something_else_than_grpc() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        with pytest.raises(PortTaken):
            await rpc.serve([], "127.0.0.1", other.getsockname()[1])


async def test_mutual_tls() -> None:
    tls = TlsConfig(str(TLS / "ca.pem"), str(TLS / "node.pem"), str(TLS / "node.key"))
    server = await rpc.serve([Example().service()], "127.0.0.1", 0, tls=tls)
    address = f"127.0.0.1:{server.port}"
    accepted = rpc.Client(address, tls=tls)
    assert await accepted.unary("/test.Example/Echo", b"x", 5) == b"x"
    stranger = TlsConfig(str(TLS / "ca.pem"), str(TLS / "stranger.pem"), str(TLS / "stranger.key"))
    nobody = TlsConfig(str(TLS / "ca.pem"))
    for refused in (rpc.Client(address, tls=stranger), rpc.Client(address, tls=nobody), rpc.Client(address)):
        with pytest.raises(Unavailable):
            await refused.unary("/test.Example/Echo", b"x", 5)
        await refused.close()
    await accepted.close()
    await server.stop(0)


async def test_clients_check_the_server() -> None:
    wrong = TlsConfig(str(TLS / "ca.pem"), str(TLS / "stranger.pem"), str(TLS / "stranger.key"))
    server = await rpc.serve([Example().service()], "127.0.0.1", 0, tls=wrong)
    tls = TlsConfig(str(TLS / "ca.pem"), str(TLS / "node.pem"), str(TLS / "node.key"))
    client = rpc.Client(f"127.0.0.1:{server.port}", tls=tls)
    with pytest.raises(Unavailable):
        await client.unary("/test.Example/Echo", b"x", 5)
    await client.close()
    await server.stop(0)


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
async def test_unusable_tls_files_are_config_errors(ca: str, cert: str, key: str, text: str) -> None:
    tls = TlsConfig(str(TLS / ca), str(TLS / cert) if cert else "", str(TLS / key) if key else "")
    with pytest.raises(ConfigError, match=text):
        await rpc.serve([], "127.0.0.1", 0, tls=tls)


def test_tls_is_off_without_an_authority() -> None:
    assert TlsConfig.from_paths("", "c", "k") is None
    assert TlsConfig.from_paths("a", "", "") == TlsConfig("a")
    with pytest.raises(ConfigError, match="belong together"):
        TlsConfig.from_paths("a", "c", "")
