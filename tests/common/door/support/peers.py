"""Peers of a real door on loopback: a raw HTTP/2 client, a polite one, a service to call, and waiting."""

from __future__ import annotations

import asyncio
import socket
import struct
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import pytest

from tests.attacks import frames
from tests.attacks.frames import DATA, END_HEADERS, END_STREAM, HEADERS, frame, message
from tests.attacks.session import Target
from tests.attacks.stalls import PAGE, PAGE_BYTES
from tests.waiting import PATIENCE_S, settle, until
from tidb_binlog import rpc
from tidb_binlog.door.http.metrics_route import add_metrics_route
from tidb_binlog.door.http.routes import HTML_TYPE, Guard, Request, Response, Routes, json_response
from tidb_binlog.door.limits import Limits
from tidb_binlog.door.server.listener import Server, serve
from tidb_binlog.net.tls import ServerTls, TlsConfig

FOR_EVER_S: Final = 3600.0
"""Longer than any test may take."""

Frame = tuple[int, int, int, bytes]


class Bench:
    """`test.Bench` as the attackers know it; counts handlers that run."""

    def __init__(self) -> None:
        self.flowing = 0
        self.running = 0
        self.called = 0
        self.release = asyncio.Event()
        self.gate: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def service(self) -> rpc.Service:
        return rpc.Service(
            name="test.Bench",
            inline={"Empty": self.empty, "Gated": self.gated},
            unary={"Swallow": self.swallow, "Give": self.give, "Wait": self.wait},
            server_streams={"Flow": self.flow},
            bidi_streams={"Echo": self.echo},
        )

    async def empty(self, request: bytes) -> bytes:
        self.called += 1
        return b""

    async def gated(self, request: bytes) -> bytes:
        self.running += 1
        try:
            await asyncio.shield(self.gate)
        finally:
            self.running -= 1
        return b""

    async def swallow(self, request: bytes) -> bytes:
        return struct.pack(">Q", len(request))

    async def give(self, request: bytes) -> bytes:
        return b"g" * int(struct.unpack(">Q", request)[0])

    async def wait(self, request: bytes) -> bytes:
        self.running += 1
        try:
            await self.release.wait()
        finally:
            self.running -= 1
        return b"waited"

    async def flow(self, request: bytes) -> AsyncIterator[bytes]:
        count, size = struct.unpack(">QQ", request)
        self.flowing += 1
        try:
            reply = b"f" * size
            for _ in range(count):
                yield reply
        finally:
            self.flowing -= 1

    async def echo(self, requests: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        self.flowing += 1
        try:
            async for request in requests:
                yield bytes(request)
        finally:
            self.flowing -= 1


class House:
    """A door with its bench."""

    def __init__(self, server: Server, bench: Bench) -> None:
        self.server = server
        self.bench = bench

    @property
    def port(self) -> int:
        return self.server.port

    @property
    def target(self) -> Target:
        return Target("127.0.0.1", self.port)

    async def at_rest(self, connections: int = 0) -> None:
        """Nothing is left of what peers did."""
        await until(lambda: self.server.connections == connections, f"connections: {self.server.connections}")
        await until(lambda: not self.server.tasks, f"tasks: {self.server.tasks}")
        await until(lambda: not self.server.handshakes, "handshakes")
        budget = self.server.budget
        assert len(self.server.wires) == len(budget.holders) == connections
        assert (budget.receive_held, budget.send_queued) == (0, 0)
        assert (self.bench.running, self.bench.flowing) == (0, 0)


def routes() -> Routes:
    made = Routes()

    async def page(params: dict[str, str]) -> Response:
        return json_response(params)

    async def echo(request: Request, params: dict[str, str]) -> Response:
        body = request.body
        size = -1 if body is None else len(body)
        return json_response({**params, "from": request.peer.address, "octets": size})

    async def large(_: dict[str, str]) -> Response:
        return Response(200, b"p" * PAGE_BYTES)

    async def more(_: dict[str, str]) -> Response:
        return Response(200, b"<p>", HTML_TYPE, (("x-more", "a b"), ("cache-control", "no-store")))

    made.add("GET", "/healthz", page)
    made.add("GET", "/more", more)
    made.add("GET", PAGE, large)
    made.add("GET", "/item/{name}", page)
    made.add("PUT", "/state/{name}", page, guarded=True)
    made.add("POST", "/post", page)
    made.add_change("PUT", "/echo/{name}", echo)
    add_metrics_route(made)
    return made


@asynccontextmanager
async def house(
    limits: Limits | None = None,
    *,
    tls: ServerTls | None = None,
    guard: Guard | None = None,
    grace_s: float = 0.0,
) -> AsyncIterator[House]:
    bench = Bench()
    server = await serve(
        [bench.service()], routes(), "127.0.0.1", 0, limits=limits or Limits(), tls=tls, guard=guard
    )
    try:
        yield House(server, bench)
    finally:
        await asyncio.wait_for(server.stop(grace_s), PATIENCE_S)
        bench.gate.cancel()


def call(stream: int, path: str, body: bytes = b"", *, end: bool = True) -> bytes:
    """A gRPC request with one message; `end` ends it."""
    return frame(HEADERS, END_HEADERS, stream, frames.request_block(path)) + frame(
        DATA, END_STREAM if end else 0, stream, message(body)
    )


def flow(stream: int, count: int, size: int) -> bytes:
    return call(stream, "/test.Bench/Flow", struct.pack(">QQ", count, size))


def connected(port: int, *, source: str = "127.0.0.1", receive_bytes: int = 0) -> socket.socket:
    """A plain socket. `source` makes it another peer: all of 127/8 is this machine."""
    sock = socket.socket()
    try:
        if receive_bytes:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        sock.settimeout(PATIENCE_S)
        sock.bind((source, 0))
        sock.connect(("127.0.0.1", port))
    except BaseException:
        sock.close()
        raise
    sock.setblocking(False)
    return sock


class Raw:
    """Speaks HTTP/2 as told, and reads only when asked to."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self._rest = b""
        self._loop = asyncio.get_running_loop()

    @classmethod
    @asynccontextmanager
    async def to(
        cls,
        port: int,
        *,
        hello: bytes = frames.PREFACE + frames.settings(),
        source: str = "127.0.0.1",
        receive_bytes: int = 0,
    ) -> AsyncIterator[Raw]:
        raw = cls(connected(port, source=source, receive_bytes=receive_bytes))
        try:
            await raw.send(hello)
            yield raw
        finally:
            raw.sock.close()

    async def send(self, data: bytes) -> None:
        await asyncio.wait_for(self._loop.sock_sendall(self.sock, data), PATIENCE_S)

    async def octets(self) -> bytes:
        """What comes next; empty at the end of the connection, however it came."""
        try:
            return await asyncio.wait_for(self._loop.sock_recv(self.sock, 1 << 18), PATIENCE_S)
        except ConnectionResetError:
            return b""

    async def next(self) -> Frame | None:
        """The next frame; None at the end of the connection."""
        while True:
            if len(self._rest) >= 9:
                first, flags, stream = struct.unpack_from(">LBL", self._rest)
                end = 9 + (first >> 8)
                if len(self._rest) >= end:
                    payload, self._rest = self._rest[9:end], self._rest[end:]
                    return first & 0xFF, flags, stream, payload
            data = await self.octets()
            if not data:
                return None
            self._rest += data

    async def until(self, kind: int, stream: int | None = None, flags: int = 0) -> Frame:
        """The next frame of a kind, others are passed over."""
        while (found := await self.next()) is not None:
            if found[0] == kind and stream in (None, found[2]) and found[1] & flags == flags:
                return found
        raise AssertionError(f"the connection ended before a frame of kind {kind}")

    async def rest(self) -> list[Frame]:
        """All frames until the connection ends; ends our side of it, too."""
        found = []
        while (one := await self.next()) is not None:
            found.append(one)
        self.sock.close()
        return found

    async def answers(self, stream: int = 101) -> bool:
        """Whether a call is answered on this connection."""
        await self.send(call(stream, "/test.Bench/Empty"))
        await self.until(HEADERS, stream, END_STREAM)
        return True


def told(caplog: pytest.LogCaptureFixture) -> str:
    """Why peers were refused, as the log has it: one line each."""
    fields = [getattr(record, "fields", {}) for record in caplog.records]
    whys = [f"{field['limit']}: {field['why']}" for field in fields if "why" in field and "limit" in field]
    assert not any("\n" in why for why in whys)
    return "\n".join(whys)


def goaway_of(found: list[Frame]) -> tuple[int, bytes]:
    """Code and text of the last GOAWAY."""
    payload = [payload for kind, _, _, payload in found if kind == frames.GOAWAY][-1]
    return int.from_bytes(payload[4:8], "big"), payload[8:]


class Polite:
    """Calls one after the other beside an attack; none may fail."""

    def __init__(self, client: rpc.Client) -> None:
        self._client = client
        self._stopped = False
        self._task = asyncio.create_task(self._run())
        self.calls = 0
        self.slowest_s = 0.0

    async def _run(self) -> None:
        while not self._stopped:
            began_s = time.monotonic()
            await self._client.unary("/test.Bench/Empty", b"", PATIENCE_S)
            self.slowest_s = max(self.slowest_s, time.monotonic() - began_s)
            self.calls += 1
            await settle(10)

    async def stop(self) -> None:
        """At least one more call is answered; raises what failed."""
        seen = self.calls
        await until(lambda: self._task.done() or self.calls > seen, "a polite call")
        self._stopped = True
        await self._task


@asynccontextmanager
async def polite(port: int, tls: TlsConfig | None = None) -> AsyncIterator[Polite]:
    client = rpc.Client(f"127.0.0.1:{port}", tls=tls)
    await client.unary("/test.Bench/Empty", b"", PATIENCE_S)
    caller = Polite(client)
    try:
        yield caller
        await caller.stop()
    finally:
        caller._task.cancel()
        await client.close()
