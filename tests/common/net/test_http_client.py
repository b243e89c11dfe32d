"""Requests over HTTP: what is said of servers that are not as they should be."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from binlogctl.doctor.facts import ClockFacts
from tests import certificates
from tests.waiting import PATIENCE_S
from tidb_binlog.clock import ManualClock, SystemClock
from tidb_binlog.errors import Unavailable
from tidb_binlog.net import node_http
from tidb_binlog.net.http_client import HttpClient
from tidb_binlog.net.port import free_ports
from tidb_binlog.net.tls import TlsConfig


@contextlib.asynccontextmanager
async def server(answer: bytes, *, port: int = 0, tls: ssl.SSLContext | None = None) -> AsyncIterator[str]:
    """One that says the same to everybody."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(answer)
            await writer.drain()
        writer.close()

    listening = await asyncio.start_server(serve, "127.0.0.1", port, ssl=tls)
    try:
        yield f"127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    finally:
        listening.close()
        await listening.wait_closed()


def look(tls: TlsConfig | None = None, timeout_s: float = 2.0) -> HttpClient:
    return HttpClient(SystemClock(), tls, timeout_s)


@pytest.mark.parametrize(
    "date", ["Mon, 45 Jan 2020 25:61:61 GMT", "Tue, 14 Nov 99999999999 22:13:20 GMT", "\x1b[2J", "", "0"]
)
async def test_a_date_that_is_none_counts_as_not_told(date: str) -> None:
    head = f"HTTP/1.1 200 OK\r\nDate: {date}\r\nContent-Length: 1\r\n\r\nx".encode()
    async with server(head) as address:
        page = await look().get(address, "/")
    assert (page.status, page.body, page.date_s) == (200, b"x", None)


async def test_body_in_chunks_and_the_servers_clock() -> None:
    date = b"Date: Tue, 14 Nov 2023 22:13:20 GMT\r\n"
    chunked = (
        b"HTTP/1.1 200 OK\r\n" + date + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"
    )
    async with server(chunked) as address:
        page = await HttpClient(ManualClock(1_700_000_000.0 - 5), None, 2.0).get(address, "/")
    assert (page.status, page.body) == (200, b"abcde")
    clock = ClockFacts.of_page("it", page)
    exact = ClockFacts.of_page("it", page, 1_700_000_001.0)
    assert clock is not None
    assert exact is not None
    assert (clock.offset_s, clock.slack_s) == (5.5, 0.5)
    assert (exact.offset_s, exact.slack_s) == (6.0, 0.0)


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"SSH-2.0-x\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc",
        b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\nabc",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nFFFFFFFFFFFFFFFF\r\nabc",
    ],
)
async def test_what_is_no_http_is_said(answer: bytes) -> None:
    async with server(answer) as address:
        with pytest.raises(
            Unavailable, match=r"does not speak HTTP|breaks the connection off|says nothing|ends"
        ):
            await look().get(address, "/")


async def test_nobody_there() -> None:
    with pytest.raises(Unavailable, match="refused"):
        await look().get(f"127.0.0.1:{free_ports(1)[0]}", "/")
    with pytest.raises(Unavailable, match="cannot be resolved"):
        await look().get("nobody.invalid:1", "/")
    with pytest.raises(Unavailable, match="not host:port"):
        await look().get("nobody", "/")


async def test_tls_with_the_right_and_with_a_wrong_name(tmp_path: Path) -> None:
    ca = certificates.authority()
    ours = certificates.write(tmp_path / "ours", ca=[ca], node=certificates.leaf("doctor", ca=ca))
    reply = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
    for sans, says in ((["127.0.0.1"], ""), (["pump-7"], "IP address mismatch")):
        node = certificates.leaf("pump", ca=ca, sans=sans)
        theirs = certificates.write(tmp_path / "theirs", ca=[ca], node=node)
        async with server(reply, tls=theirs.server_context()) as address:
            if not says:
                assert (await look(ours).get(address, "/")).body == b"ok"
                with pytest.raises(Unavailable):
                    await look().get(address, "/")
                continue
            with pytest.raises(Unavailable, match=says):
                await look(ours).get(address, "/")


@pytest.mark.integration
async def test_a_server_that_drips_gets_no_more_than_the_deadline() -> None:
    served: list[asyncio.Task[None]] = []

    async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        served.append(asyncio.current_task())  # type: ignore[arg-type]
        with contextlib.suppress(ConnectionError):
            while True:
                writer.write(b"H")
                await writer.drain()
                await asyncio.sleep(0.02)
        writer.close()

    listening = await asyncio.start_server(drip, "127.0.0.1", 0)
    address = f"127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    try:
        async with asyncio.timeout(PATIENCE_S):
            with pytest.raises(Unavailable, match=r"pump p at .* nothing was heard within 0.2 s"):
                await node_http.ask("pump p", address, "GET", "/status", None, deadline_s=0.2)
        await asyncio.wait(served)
    finally:
        listening.close()


async def test_a_name_server_that_hangs_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    hanging = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_: hanging.wait(PATIENCE_S))
    try:
        with pytest.raises(Unavailable, match=r"does not answer"):
            await node_http.ask("pump p", "pump-1:8250", "GET", "/status", None, deadline_s=0.2)
    finally:
        hanging.set()


async def test_every_address_of_a_name_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """localhost is ::1 first, where a node on 127.0.0.1 does not listen."""

    async def resolve(host: str, port: int = 0) -> tuple[str, ...]:
        return "127.0.0.9", "127.0.0.1"

    async with server(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok") as address:
        client = look()
        monkeypatch.setattr(client, "resolve", resolve)
        await client.connects(address)
        assert (await client.get(address, "/")).body == b"ok"
