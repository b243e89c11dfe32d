"""How far a Drainer is behind, asked over HTTP; what is no answer is none."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from drainer.compare.verify.live import DrainerLag
from tidb_binlog.errors import Unavailable
from tidb_binlog.status.codec import plain
from tidb_binlog.status.drainer import DrainerDocument


@asynccontextmanager
async def answering(body: str, status: int = 200) -> AsyncIterator[str]:
    """Its address."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = await reader.readuntil(b"\r\n\r\n")
        assert request.startswith(b"GET /status HTTP/1.1\r\n")
        head = f"HTTP/1.1 {status} x\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        writer.write((head + body).encode())
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def said(body: str) -> float | None:
    async with answering(body) as address:

        async def locate() -> str:
            return address

        return await DrainerLag(locate, None).seconds()


async def test_seconds() -> None:
    assert await said(json.dumps(plain(DrainerDocument(lag_seconds=3.5)))) == 3.5


@pytest.mark.parametrize("body", ["{}", "[]", "no", '{"LagSeconds": null}', '{"LagSeconds": "much"}'])
async def test_what_is_no_lag(body: str) -> None:
    assert await said(body) is None


async def test_nobody_there() -> None:
    async def nobody() -> str:
        raise Unavailable("no drainer runs")

    async def gone() -> str:
        return "127.0.0.1:1"

    for locate in (nobody, gone):
        assert await DrainerLag(locate, None).seconds() is None
