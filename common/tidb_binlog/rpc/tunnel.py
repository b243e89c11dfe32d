"""Tunnel: TLS to a peer that selects no ALPN protocol, which grpcio's channels refuse to speak to.

Go nodes of old listen without ALPN. For such a peer the channel goes in the clear to a unix socket that only
this user can reach, and each of its connections is carried on over a TLS connection of our own, with the same
authority, certificate, name check and least version as any other.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import ssl
import tempfile
from typing import Final

from tidb_binlog.net.port import split_address
from tidb_binlog.net.tls import Reread, TlsConfig
from tidb_binlog.observe import log

HANDSHAKE_S: Final = 2.0
_GOODBYE_S: Final = 0.5  # a peer on the next continent answers within it
_PIECE_BYTES: Final = 1 << 16

_logger = log.get("rpc")


def client_contexts(tls: TlsConfig, address: str) -> Reread[ssl.SSLContext]:
    """Contexts that offer h2 and leave it to the peer. Raises `ConfigError`."""

    def build() -> ssl.SSLContext:
        context = tls.client_context()
        context.set_alpn_protocols(["h2"])
        return context

    return Reread(tls, build, use=f"tunnel to {address}")


async def selects_alpn(address: str, context: ssl.SSLContext) -> bool:
    """Whether the peer selects a protocol. Raises `OSError` (also TLS's errors) if there is no connection."""
    host, port = split_address("address", address)
    async with asyncio.timeout(HANDSHAKE_S):
        _, writer = await asyncio.open_connection(host, port, ssl=context, server_hostname=host)
    try:
        tls: ssl.SSLObject = writer.get_extra_info("ssl_object")
        return tls.selected_alpn_protocol() is not None
    finally:
        # Not cut off: the peer may still be at its end of the handshake, and would report one that failed.
        writer.close()
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(_GOODBYE_S):
                await writer.wait_closed()
        writer.transport.abort()


class Tunnel:
    """`target` is what the channel connects to."""

    def __init__(self, address: str, contexts: Reread[ssl.SSLContext]) -> None:
        self._address = address
        self._contexts = contexts
        self._directory = tempfile.mkdtemp(prefix="binlog-tunnel-")  # mode 0700
        self._server: asyncio.Server | None = None
        self._relays: set[asyncio.Task[None]] = set()
        self.target = f"unix:{self._directory}/peer"

    async def start(self) -> None:
        self._server = await asyncio.start_unix_server(self._relay, f"{self._directory}/peer")

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._relays.add(task)
        host, port = split_address("address", self._address)
        far_writer: asyncio.StreamWriter | None = None
        try:
            async with asyncio.timeout(HANDSHAKE_S):
                far_reader, far_writer = await asyncio.open_connection(
                    host, port, ssl=self._contexts.current(), server_hostname=host
                )
            async with asyncio.TaskGroup() as both:
                both.create_task(_carry(reader, far_writer))
                both.create_task(_carry(far_reader, writer))
        except* (OSError, TimeoutError) as errors:
            _logger.debug("tunnel ended", address=self._address, error=errors.exceptions[0])
        except* asyncio.CancelledError:
            pass  # `close` ends us; the stream machinery would report it as an error
        finally:
            self._relays.discard(task)
            for end in (writer, far_writer):
                if end is not None:
                    end.transport.abort()

    async def close(self) -> None:
        """End all connections. Idempotent."""
        if self._server is not None:
            self._server.close()
            self._server = None
        for task in self._relays:
            task.cancel()
        if self._relays:
            await asyncio.wait(self._relays)
        shutil.rmtree(self._directory, ignore_errors=True)


class _Ended(OSError):
    """One side closed; the other has nothing left to say."""


async def _carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(_PIECE_BYTES):
        writer.write(data)
        await writer.drain()
    with contextlib.suppress(OSError):
        await writer.drain()
    raise _Ended("closed")
