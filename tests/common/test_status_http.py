from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from common import status_http
from common.errors import PortTaken
from common.status_http import Limits, Response, Routes, json_response
from common.tls import TlsConfig


async def _params(params: dict[str, str]) -> Response:
    return json_response(params)


async def _fail(params: dict[str, str]) -> Response:
    raise ValueError("inner")


def _routes() -> Routes:
    routes = Routes()
    routes.add("GET", "/status", _params)
    routes.add("PUT", "/state/{node_id}/{action}", _params)
    routes.add("*", "/metrics", _params)
    routes.add("GET", "/fail", _fail)
    return routes


@asynccontextmanager
async def running(limits: Limits | None = None) -> AsyncIterator[status_http.HttpServer]:
    server = await status_http.serve(_routes(), "127.0.0.1", 0, limits=limits)
    try:
        yield server
    finally:
        await server.stop()


async def talk(server: status_http.HttpServer, data: bytes) -> bytes:
    """Send everything, read until the server closes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    try:
        writer.write(data)
        async with asyncio.timeout(10):
            return await reader.read()
    finally:
        writer.close()
        await writer.wait_closed()


def request(method: str, target: str, *headers: str, body: bytes = b"", close: bool = True) -> bytes:
    lines = [f"{method} {target} HTTP/1.1", "Host: h", *headers]
    if body:
        lines.append(f"Content-Length: {len(body)}")
    if close:
        lines.append("Connection: close")
    return "\r\n".join([*lines, "", ""]).encode() + body


def parse(reply: bytes) -> tuple[int, dict[str, str], bytes]:
    head, _, body = reply.partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines[1:])}
    return int(lines[0].split()[1]), headers, body


@pytest.mark.parametrize(
    ("method", "target", "status", "body"),
    [
        ("GET", "/status", 200, b"{}\n"),
        ("GET", "/status?a=1", 200, b'{"a":"1"}\n'),
        ("PUT", "/state/h%3A8250/pause", 200, b'{"node_id":"h:8250","action":"pause"}\n'),
        ("PUT", "/state/a%2Fb/close", 200, b'{"node_id":"a/b","action":"close"}\n'),
        ("DELETE", "/metrics", 200, b"{}\n"),
        ("GET", "/state/x/pause", 405, b""),
        ("POST", "/status", 405, b""),
        ("GET", "/state/x/y/z", 404, b"404 page not found\n"),
        ("GET", "/", 404, b"404 page not found\n"),
        ("GET", "/fail", 500, b"internal error, see the log\n"),
    ],
)
async def test_routes(method: str, target: str, status: int, body: bytes) -> None:
    async with running() as server:
        found_status, headers, found_body = parse(await talk(server, request(method, target)))
        assert (found_status, found_body) == (status, body)
        assert headers["content-length"] == str(len(body))


async def test_head_has_no_body() -> None:
    async with running() as server:
        status, headers, body = parse(await talk(server, request("HEAD", "/status")))
        assert (status, headers["content-length"], body) == (200, "3", b"")


async def test_keep_alive_and_pipelining() -> None:
    async with running() as server:
        reply = await talk(server, request("GET", "/status", close=False) * 2 + request("GET", "/status"))
        assert reply.count(b"HTTP/1.1 200 OK\r\n") == 3


def test_json_forms() -> None:
    assert json_response({"a": [1]}).body == b'{"a":[1]}\n'
    assert json_response({"a": None}, 2).body == b'{\n  "a": null\n}\n'
    assert json.loads(json_response({"ä": 1}).body) == {"ä": 1}
    assert json_response({}).content_type == "application/json; charset=UTF-8"


async def test_bodies_are_read_away_and_limited() -> None:
    async with running(Limits(body_bytes_max=1000)) as server:
        put = request("PUT", "/state/a/pause", body=b"x" * 1000)
        assert parse(await talk(server, put))[0] == 200
        status, headers, _ = parse(await talk(server, request("PUT", "/state/a/pause", body=b"x" * 1001)))
        assert (status, headers["connection"]) == (413, "close")


async def test_large_heads_are_refused() -> None:
    async with running(Limits(head_bytes_max=2000)) as server:
        assert parse(await talk(server, request("GET", "/status", "X: " + "y" * 1000)))[0] == 200
        assert parse(await talk(server, request("GET", "/status", "X: " + "y" * 4000)))[0] == 431


@pytest.mark.parametrize("data", [b"\x00\xff garbage\r\n\r\n", b"GET /a b c\r\n\r\n"])
async def test_garbage_gets_400(data: bytes) -> None:
    async with running() as server:
        assert parse(await talk(server, data))[0] in (400, 505)


async def test_silent_connections_are_closed() -> None:
    async with running(Limits(idle_s=0.05)) as server:
        assert await talk(server, b"") == b""
        assert await talk(server, b"GET /status HTTP/1.1\r\nHo") == b""
        reply = await talk(server, request("GET", "/status", close=False))
        assert reply.startswith(b"HTTP/1.1 200")


async def test_connections_are_limited() -> None:
    async with running(Limits(connections_max=1)) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(request("GET", "/status", close=False))
        assert (await reader.readline()).startswith(b"HTTP/1.1 200")
        try:
            assert await talk(server, request("GET", "/status")) == b""
        except ConnectionError:
            pass
        writer.close()
        await writer.wait_closed()


async def test_changes_from_web_pages_are_refused() -> None:
    async with running() as server:
        origin = "Origin: http://evil.example"
        assert parse(await talk(server, request("PUT", "/state/a/pause", origin)))[0] == 403
        assert parse(await talk(server, request("GET", "/status", origin)))[0] == 200


async def test_peers_that_vanish_leave_nothing_behind() -> None:
    async with running() as server:
        for data in (b"", b"GET /sta", request("GET", "/status", close=False)):
            _, writer = await asyncio.open_connection("127.0.0.1", server.port)
            writer.write(data)
            await writer.drain()
            writer.transport.abort()
        assert parse(await talk(server, request("GET", "/status")))[0] == 200


async def test_stop_drops_idle_connections_and_finishes_answers() -> None:
    started, release = asyncio.Event(), asyncio.Event()

    async def slow(params: dict[str, str]) -> Response:
        started.set()
        await release.wait()
        return Response(200, b"done")

    routes = Routes()
    routes.add("GET", "/slow", slow)
    server = await status_http.serve(routes, "127.0.0.1", 0)
    idle_reader, idle_writer = await asyncio.open_connection("127.0.0.1", server.port)
    call = asyncio.create_task(talk(server, request("GET", "/slow")))
    await started.wait()
    stopping = asyncio.create_task(server.stop(5))
    async with asyncio.timeout(5):
        assert await idle_reader.read() == b""
    release.set()
    assert parse(await call)[2] == b"done"
    await stopping
    await server.stop()
    idle_writer.close()
    await idle_writer.wait_closed()
    with pytest.raises(OSError):
        await asyncio.open_connection("127.0.0.1", server.port)


async def test_a_taken_port_is_named() -> None:
    async with running() as server:
        with pytest.raises(PortTaken, match=rf"127.0.0.1:{server.port}: the port is taken .*--status-addr"):
            await status_http.serve(_routes(), "127.0.0.1", server.port, flag="--status-addr")


async def test_mutual_tls() -> None:
    directory = Path(__file__).parent.parent / "golden" / "tls"
    tls = TlsConfig(str(directory / "ca.pem"), str(directory / "node.pem"), str(directory / "node.key"))
    server = await status_http.serve(_routes(), "127.0.0.1", 0, tls=tls.server_context())
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port, ssl=tls.client_context())
    writer.write(request("GET", "/status"))
    assert parse(await reader.read())[0] == 200
    writer.close()
    await writer.wait_closed()
    with pytest.raises((ConnectionError, ssl.SSLError)):
        await _read_over(TlsConfig(tls.ca), server.port)
    assert await talk(server, request("GET", "/status")) == b""
    await server.stop()


async def _read_over(tls: TlsConfig, port: int) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls.client_context())
    try:
        writer.write(request("GET", "/status"))
        await writer.drain()
        # TLS 1.3 tells the client only now that its certificate was missing.
        assert await reader.read() == b""
        raise ConnectionError("closed without an answer")
    finally:
        writer.transport.abort()
