"""Serves `test.Bench` with the door or with grpcio's server, as a process of its own, until SIGTERM.

    python -m tests.benchmarks.door.server door|grpcio [--tls CA CERT KEY]

Prints {"event": "listening", "port": N}. Methods: Empty answers anything with no bytes; Swallow with the
request's length in 8 octets; Give with as many bytes as the request's 8 octets say, which Make makes before;
Flow streams `count` messages of `size` bytes (8 octets each); Echo sends each message back.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import struct
import sys
from collections.abc import AsyncIterator
from typing import Any, Final

import uvloop

from tests.attacks.stalls import PAGE, PAGE_BYTES
from tests.fakes import grpcio_server
from tidb_binlog import rpc
from tidb_binlog.errors import BinlogError
from tidb_binlog.net.tls import TlsConfig

HOST: Final = "127.0.0.1"
DOOR: Final = "door"
GRPCIO: Final = "grpcio"
SERVICE: Final = "test.Bench"


class Bench:
    """The handlers. What Give and Flow send is made once."""

    def __init__(self) -> None:
        self._made: dict[int, bytes] = {}

    def service(self) -> rpc.Service:
        return rpc.Service(
            name=SERVICE,
            inline={"Empty": self.empty},
            unary={"Swallow": self.swallow, "Give": self.give, "Make": self.make},
            server_streams={"Flow": self.flow},
            bidi_streams={"Echo": self.echo},
        )

    async def empty(self, request: bytes) -> bytes:
        return b""

    async def swallow(self, request: bytes) -> bytes:
        return struct.pack(">Q", len(request))

    async def give(self, request: bytes) -> bytes:
        return self._bytes(*struct.unpack(">Q", request))

    async def make(self, request: bytes) -> bytes:
        self._bytes(*struct.unpack(">Q", request))
        return b""

    async def flow(self, request: bytes) -> AsyncIterator[bytes]:
        count, size = struct.unpack(">QQ", request)
        message = self._bytes(size)
        for _ in range(count):
            yield message

    async def echo(self, requests: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        async for request in requests:
            yield request

    def _bytes(self, size: int) -> bytes:
        made = self._made.get(size)
        if made is None:
            made = self._made[size] = b"\xa5" * size  # not zeros: those would not be resident
        return made


async def start(kind: str, tls: list[str] | None) -> Any:
    """A running server, of either kind: `port`, `stop(grace_s)`."""
    services = [Bench().service()]
    if kind == GRPCIO:
        return await grpcio_server.serve(services, HOST, 0, tls=_files(tls))
    from tidb_binlog.door.http.routes import Response, Routes
    from tidb_binlog.door.server.listener import serve

    files, routes = _files(tls), Routes()

    async def page(_: dict[str, str]) -> Response:
        return Response(200, bytes(b"p" * PAGE_BYTES))

    routes.add("GET", PAGE, page)
    return await serve(services, routes, HOST, 0, tls=files.server_tls() if files else None)


def _files(tls: list[str] | None) -> TlsConfig | None:
    if not tls:
        return None
    ca, cert, key = tls
    return TlsConfig(ca, cert, key)


async def run(chosen: argparse.Namespace) -> None:
    server = await start(chosen.kind, chosen.tls)
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    print(json.dumps({"event": "listening", "port": server.port}), flush=True)
    await stopped.wait()
    await server.stop(0.5)


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="tests.benchmarks.door.server", allow_abbrev=False)
    parser.add_argument("kind", choices=(DOOR, GRPCIO))
    parser.add_argument("--tls", nargs=3, metavar=("CA", "CERT", "KEY"))
    return parser.parse_args(arguments)


if __name__ == "__main__":
    try:
        uvloop.run(run(parse(sys.argv[1:])))
    except BinlogError as error:
        sys.exit(f"door server: {error}")
