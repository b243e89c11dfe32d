"""Plain HTTP on the door's port, over HTTP/1.1 and HTTP/2, by clients that others wrote."""

from __future__ import annotations

import asyncio
import http.client
import json
import re
import subprocess
from collections.abc import Callable
from typing import Any

import h2.config
import h2.connection
import h2.events
import pytest

from tests.attacks import frames
from tests.attacks.frames import DATA, END_HEADERS, END_STREAM, HEADERS, frame
from tests.common.door.support.peers import House, Raw, house, polite
from tests.waiting import PATIENCE_S
from tidb_binlog.door.http.admin_guard import AdminGuard
from tidb_binlog.door.http.routes import Peer, Request, Response
from tidb_binlog.door.limits import Limits
from tidb_binlog.observe import metrics

LOOPS = ("asyncio", "uvloop")

PIECE_BYTES = 1 << 14
Answer = tuple[int, dict[str, str], bytes]


class Suspicious:
    """A guard that takes everybody for a stranger."""

    def __init__(self) -> None:
        self._guard = AdminGuard(["10.0.0.0/8"], ["node.example"])

    def refusal(self, request: Request) -> Response | None:
        stranger = Peer("192.0.2.7")
        return self._guard.refusal(
            Request(request.method, request.target, request.host, request.origin, stranger)
        )


async def http1(here: House, method: str, target: str, body: bytes = b"", **headers: str) -> Answer:
    def ask() -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", here.port, timeout=PATIENCE_S)
        try:
            fields = {name.replace("_", "-"): value for name, value in headers.items()}
            connection.request(method, target, body or None, fields)
            response = connection.getresponse()
            return response.status, {k.lower(): v for k, v in response.getheaders()}, response.read()
        finally:
            connection.close()

    return await asyncio.to_thread(ask)


class Http2:
    """Requests through the `h2` library, which checks what we send."""

    def __init__(self, raw: Raw) -> None:
        self._raw = raw
        self._h2 = h2.connection.H2Connection(h2.config.H2Configuration(header_encoding="utf-8"))
        self._h2.initiate_connection()

    async def ask(self, method: str, target: str, body: bytes = b"", **headers: str) -> Answer:
        stream = self._h2.get_next_available_stream_id()
        host = headers.pop("host", "localhost")
        fields = [(":method", method), (":scheme", "http"), (":path", target), (":authority", host)]
        fields += [(name.replace("_", "-"), value) for name, value in headers.items()]
        self._h2.send_headers(stream, fields, end_stream=not body)
        for at in range(0, len(body), PIECE_BYTES):
            self._h2.send_data(stream, body[at : at + PIECE_BYTES], end_stream=at + PIECE_BYTES >= len(body))
        await self._raw.send(self._h2.data_to_send())
        found: dict[str, str] = {}
        content = b""
        while True:
            data = await self._raw.octets()
            assert data, "the connection ended"
            for event in self._h2.receive_data(data):
                if isinstance(event, h2.events.ResponseReceived):
                    found = {str(name): str(value) for name, value in event.headers or ()}
                elif isinstance(event, h2.events.DataReceived):
                    content += event.data or b""
                    self._h2.acknowledge_received_data(event.flow_controlled_length or 0, stream)
                elif isinstance(event, h2.events.StreamEnded):
                    await self._raw.send(self._h2.data_to_send())
                    return int(found.pop(":status")), found, content
            await self._raw.send(self._h2.data_to_send())


async def http2(here: House, method: str, target: str, body: bytes = b"", **headers: str) -> Answer:
    async with Raw.to(here.port, hello=b"") as raw:
        return await Http2(raw).ask(method, target, body, **headers)


BOTH = pytest.mark.parametrize("ask", [http1, http2], ids=["HTTP/1.1", "HTTP/2"])
Ask = Callable[..., Any]


@BOTH
async def test_routes(ask: Ask) -> None:
    async with house() as here:
        status, fields, body = await ask(here, "GET", "/item/a%20b?x=1")
        assert (status, json.loads(body)) == (200, {"name": "a b", "x": "1"})
        assert fields["content-type"].startswith("application/json")
        assert fields["content-length"] == str(len(body))
        assert (await ask(here, "GET", "/nothing"))[::2] == (404, b"404 page not found\n")
        assert (await ask(here, "DELETE", "/healthz"))[::2] == (405, b"")
        assert (await ask(here, "POST", "/post", b"x" * 60_000))[0] == 200
        status, fields, body = await ask(here, "HEAD", "/healthz")
        assert (status, fields["content-length"], body) == (200, "3", b"")
        await here.at_rest()


@BOTH
async def test_an_answer_may_have_headers_of_its_own(ask: Ask) -> None:
    async with house() as here:
        for method in ("GET", "HEAD"):
            status, fields, _ = await ask(here, method, "/more")
            said = [fields[name] for name in ("x-more", "cache-control", "content-type", "content-length")]
            assert (status, said) == (200, ["a b", "no-store", "text/html; charset=utf-8", "3"])


@BOTH
async def test_guarded_routes(ask: Ask) -> None:
    async with house() as here:
        assert (await ask(here, "PUT", "/state/x"))[0] == 200  # from this machine
        status, _, body = await ask(here, "PUT", "/state/x", host="rebound.example")
        assert (status, b"no name of this node" in body) == (403, True)
        status, _, body = await ask(here, "PUT", "/state/x", origin="http://evil.example")
        assert (status, b"web pages" in body) == (403, True)
    async with house(guard=Suspicious()) as here:
        status, _, body = await ask(here, "PUT", "/state/x")
        assert (status, b"192.0.2.7 may not administrate" in body) == (403, True)
        assert (await ask(here, "GET", "/healthz"))[0] == 200


@BOTH
async def test_large_bodies(ask: Ask) -> None:
    async with house(Limits(http_body_bytes_max=10_000)) as here:
        assert (await ask(here, "POST", "/post", b"x" * 10_000))[0] == 200
        assert (await ask(here, "POST", "/post", b"x" * 10_001))[0] == 413
        await here.at_rest()


@BOTH
async def test_a_change_is_told_who_asks_and_its_body_unless_it_is_large(ask: Ask) -> None:
    async with house() as here:
        for size, told in ((0, 0), (5, 5), (32 * 1024, 32 * 1024), (32 * 1024 + 1, -1)):
            status, _, body = await ask(here, "PUT", "/echo/x", b"y" * size)
            assert (status, json.loads(body)) == (200, {"name": "x", "from": "127.0.0.1", "octets": told})
    async with house(guard=Suspicious()) as here:
        assert (await ask(here, "PUT", "/echo/x", b"y"))[0] == 403


PROMETHEUS = (  # what Prometheus 2.42 sends
    "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,"
    "text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
)


@BOTH
async def test_metrics_come_as_open_metrics_where_that_is_asked_for(ask: Ask) -> None:
    async with house() as here:
        status, fields, body = await ask(here, "GET", "/metrics", accept=PROMETHEUS)
        assert (status, fields["content-type"]) == (200, metrics.OPEN_METRICS_TYPE)
        assert body.endswith(b"# EOF\n")
        status, fields, body = await ask(here, "GET", "/metrics")
        assert (status, fields["content-type"]) == (200, metrics.CONTENT_TYPE)
        assert b"# EOF" not in body


async def test_paths_of_grpc_asked_for_without_grpc() -> None:
    async with house() as here:
        path = "/test.Bench/Empty"
        assert (await http2(here, "POST", path, b"{}", content_type="application/json"))[0] == 415
        assert (await http2(here, "POST", path, b"{}"))[0] == 415
        assert (await http2(here, "GET", path))[0] == 405
        assert (await http2(here, "GET", path, content_type="application/grpc"))[0] == 405
        assert (await http1(here, "POST", path, b"{}"))[0] == 404  # gRPC is not spoken over HTTP/1
        assert here.bench.called == 0
        async with polite(here.port):
            pass


async def test_requests_one_after_the_other_on_one_connection() -> None:
    async with house() as here:
        async with Raw.to(here.port, hello=b"") as raw:
            peer = Http2(raw)
            for number in range(50):
                assert json.loads((await peer.ask("GET", f"/item/{number}"))[2]) == {"name": str(number)}
        connection = http.client.HTTPConnection("127.0.0.1", here.port, timeout=PATIENCE_S)

        def asks() -> None:
            for number in range(50):
                connection.request("GET", f"/item/{number}")
                response = connection.getresponse()
                assert json.loads(response.read()) == {"name": str(number)}
            connection.close()

        await asyncio.to_thread(asks)
        assert here.server.budget.holders == set()


async def test_pipelining() -> None:
    asked = b"".join(b"GET /item/%d HTTP/1.1\r\nhost: x\r\n\r\n" % number for number in range(100))
    async with house() as here, Raw.to(here.port, hello=asked) as raw:
        await raw.send(b"GET /nothing HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
        found = b""
        while data := await raw.octets():
            found += data
        names = re.findall(r'{"name":"([0-9]+)"}\n', found.decode())
        assert names == [str(number) for number in range(100)]
        assert found.endswith(b"404 page not found\n")
        raw.sock.close()
        await here.at_rest()


async def test_grpc_and_pages_share_a_connection() -> None:
    async with house() as here, Raw.to(here.port) as raw:
        assert await raw.answers(1)
        block = b"\x82\x86" + frames.unindexed(":path", "/healthz") + frames.unindexed(":authority", "x")
        await raw.send(frame(HEADERS, END_HEADERS | END_STREAM, 3, block))
        assert (await raw.until(DATA, 3))[3] == b"{}\n"
        assert await raw.answers(5)


async def test_upgrades_are_not_taken_up() -> None:
    """`Upgrade: h2c` gets its answer, in HTTP/1.1 (R3.1)."""
    async with house() as here:
        status, _, body = await http1(
            here, "GET", "/healthz", connection="Upgrade, HTTP2-Settings", upgrade="h2c", http2_settings="AA"
        )
        assert (status, body) == (200, b"{}\n")


@pytest.mark.parametrize("version", ["--http1.0", "--http1.1", "--http2", "--http2-prior-knowledge"])
async def test_curl(version: str) -> None:
    async with house() as here:

        def curl(*arguments: str) -> tuple[str, str]:
            where = f"http://127.0.0.1:{here.port}"
            command = ["curl", "-sS", "--max-time", "5", version, "-w", "\n%{http_code} %{http_version}"]
            ran = subprocess.run(
                [*command, *(argument.replace("@", where) for argument in arguments)],
                capture_output=True,
                text=True,
                check=True,
            )
            body, _, written = ran.stdout.rpartition("\n")
            return body, written

        spoken = "2" if "prior" in version else "1.1"
        body, written = await asyncio.to_thread(curl, "@/item/x?y=%C3%A9")
        assert (json.loads(body), written) == ({"name": "x", "y": "é"}, f"200 {spoken}")
        body, written = await asyncio.to_thread(curl, "-X", "PUT", "@/state/paused")
        assert (json.loads(body), written) == ({"name": "paused"}, f"200 {spoken}")
        body, written = await asyncio.to_thread(curl, "-I", "@/healthz")
        assert written == f"200 {spoken}"
        body, written = await asyncio.to_thread(curl, "-d", "x" * 5000, "@/post")
        assert written == f"200 {spoken}"
        body, written = await asyncio.to_thread(curl, "@/nothing")
        assert written == f"404 {spoken}"
        await here.at_rest()
