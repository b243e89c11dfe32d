"""A drainer that starts has no stream to hold yet: that passes, and is no older release."""

from __future__ import annotations

import asyncio

import pytest

from drainer.points.snapshot.drainer_hold import DrainerHold
from tidb_binlog.clock import SystemClock
from tidb_binlog.errors import BinlogError, Rejected, Unavailable
from tidb_binlog.net.port import LOOPBACK


@pytest.mark.parametrize(
    ("ready", "error", "said"),
    [(503, Unavailable, "still starting"), (200, Rejected, "older release"), (404, Rejected, "Go drainer")],
)
async def test_a_drainer_without_the_route(ready: int, error: type[BinlogError], said: str) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = await reader.readuntil(b"\r\n\r\n")
        status = ready if b"/readyz" in request else 404
        writer.write(b"HTTP/1.1 %d x\r\nConnection: close\r\nContent-Length: 2\r\n\r\nno" % status)
        writer.close()
        await writer.wait_closed()

    server = await asyncio.start_server(answer, LOOPBACK, 0)
    port = server.sockets[0].getsockname()[1]

    async def locate() -> str:
        return f"{LOOPBACK}:{port}"

    try:
        with pytest.raises(error, match=said):
            await DrainerHold(locate, None, SystemClock()).hold(limit_s=1.0, wait_s=1.0)
    finally:
        server.close()
        await server.wait_closed()
