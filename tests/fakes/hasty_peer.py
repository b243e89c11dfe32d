"""Hasty peer: a server that ends every call as soon as it hears of it, as Go's do with what they refuse.

The status and an RST_STREAM are on their way before the request's messages are. grpcio's streams then fail to
write, and sometimes report their own failure instead of the status.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from tidb_binlog.http2 import frames

_PREFACE_BYTES = 24
_STATUS_200 = b"\x88"


def _field(name: str, value: str) -> bytes:
    """A literal of HPACK that is not indexed."""
    return b"\x00" + bytes([len(name)]) + name.encode() + bytes([len(value)]) + value.encode()


def _refusal(stream_id: int, code: int, message: str) -> bytes:
    block = _STATUS_200 + _field("content-type", "application/grpc")
    block += _field("grpc-status", str(code)) + _field("grpc-message", message)
    flags = frames.END_STREAM | frames.END_HEADERS
    return frames.frame(frames.HEADERS, flags, stream_id, block) + frames.rst_stream(stream_id, 0)


@contextlib.asynccontextmanager
async def hasty_peer(code: int, message: str) -> AsyncIterator[str]:
    """Address of a server that answers every call with this status."""

    writers: set[asyncio.StreamWriter] = set()
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.add(writer)
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            await reader.readexactly(_PREFACE_BYTES)
            writer.write(frames.settings({}))
            while True:
                word, flags, stream_id = frames.HEAD.unpack(await reader.readexactly(frames.HEAD_BYTES))
                payload = await reader.readexactly(word >> 8)
                match word & 255:
                    case frames.SETTINGS if not flags & frames.ACK:
                        writer.write(frames.SETTINGS_ACK)
                    case frames.PING if not flags & frames.ACK:
                        writer.write(frames.frame(frames.PING, frames.ACK, 0, payload))
                    case frames.HEADERS:
                        writer.write(_refusal(stream_id, code, message))

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for writer in writers:
            writer.close()
        if tasks:
            await asyncio.wait(tasks)
