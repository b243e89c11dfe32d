"""Proxy: of TCP, on loopback in front of a server, to break its connections in the ways a network does.

Owns    a listening port and every connection through it
Stops   `close` ends all of it
Tests   tests/integration/test_back_in_time.py, tests/integration/test_far_away.py
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from typing import Final

from tidb_binlog.net.port import LOOPBACK

PIECE: Final = 256 * 1024
_LINGER_NONE: Final = struct.pack("ii", 1, 0)  # closing sends RST


class Proxy:
    """Passes octets on between clients and `host:port`, each way `delay_s` later. `port` is its own, known
    after `start`."""

    def __init__(self, host: str, port: int, delay_s: float = 0.0) -> None:
        self._host = host
        self._port = port
        self._delay_s = delay_s
        self._server: asyncio.Server | None = None
        self._links: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._flows = asyncio.Event()
        self._flows.set()
        self.port = 0

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, LOOPBACK, 0, limit=PIECE)
        self.port = int(self._server.sockets[0].getsockname()[1])

    def lead_to(self, host: str, port: int) -> None:
        """New connections go there; those that are there stay where they are."""
        self._host, self._port = host, port

    @property
    def local_ports(self) -> set[int]:
        """Its own, of all connections: by them the server names those who come through it."""
        return {writer.get_extra_info("sockname")[1] for writer in self._writers}

    def reset(self) -> int:
        """End every connection with RST in the middle of whatever it does; how many there were."""
        links = len(self._links)
        for writer in self._writers:
            taken: socket.socket = writer.get_extra_info("socket")
            with contextlib.suppress(OSError):
                taken.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_NONE)
            writer.transport.abort()
        return links

    def stall(self) -> None:
        """Pass nothing on; connections stay."""
        self._flows.clear()

    def flow(self) -> None:
        self._flows.set()

    def refuse(self) -> None:
        """No new connections; those that are there stay."""
        if self._server is not None:
            self._server.close()

    async def close(self) -> None:
        self.refuse()
        self.reset()
        await asyncio.gather(*self._links, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._links.add(task)
        mine = [writer]
        self._writers.add(writer)
        try:
            far_reader, far_writer = await asyncio.open_connection(self._host, self._port, limit=PIECE)
            mine.append(far_writer)
            self._writers.add(far_writer)
            both = [
                asyncio.ensure_future(self._pass_on(reader, far_writer)),
                asyncio.ensure_future(self._pass_on(far_reader, writer)),
            ]
            try:
                await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for half in both:
                    half.cancel()
                await asyncio.gather(*both, return_exceptions=True)
        except OSError:
            pass  # the server is away: the client sees its connection end
        finally:
            for one in mine:
                self._writers.discard(one)
                one.transport.abort() if one is writer else one.close()
            self._links.discard(task)

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        loop = asyncio.get_running_loop()
        with contextlib.suppress(OSError):
            while piece := await reader.read(PIECE):
                await self._flows.wait()
                if self._delay_s:
                    loop.call_later(self._delay_s, _write, writer, piece)
                else:
                    writer.write(piece)
                await writer.drain()
            await asyncio.sleep(self._delay_s)  # the last pieces


def _write(writer: asyncio.StreamWriter, piece: bytes) -> None:
    if not writer.is_closing():
        writer.write(piece)
