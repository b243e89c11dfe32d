"""A client that harms nobody: an empty call every few milliseconds, in its own process, until stdin ends.

    python -m tests.benchmarks.door.polite ADDRESS [--every-ms MS] [--tls CA CERT KEY]

Says {"event": "begin"} after its first reply. At the end: `calls`, a list of [when sent, seconds it took] by
the monotonic clock that all processes of the machine share, and `failed`, the times at which a call or a
connection failed. A call that is still open at the end counts with the time it has taken so far.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from typing import Final

import uvloop

from tests.attacks.frames import END_STREAM, frame, message
from tests.benchmarks.door.h2_load import say
from tests.benchmarks.door.raw import RawConnection, TlsFiles, connect, headers_frame
from tests.benchmarks.door.requests import PlainBlocks
from tidb_binlog.errors import Unavailable

PATH: Final = "/test.Bench/Empty"
PAUSE_S: Final = 0.05
CONNECT_DEADLINE_S: Final = 10.0


class Polite(RawConnection):
    def __init__(self, blocks: PlainBlocks) -> None:
        super().__init__()
        self._blocks = blocks
        self._reply: asyncio.Future[None] | None = None
        self.is_up: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def ready(self) -> None:
        self.is_up.set_result(None)

    def replied(self, stream: int) -> None:
        if self._reply is not None and not self._reply.done():
            self._reply.set_result(None)

    def lost(self, why: str) -> None:
        for waiting in (self.is_up, self._reply):
            if waiting is not None and not waiting.done():
                waiting.set_exception(Unavailable(why))

    def failed(self, why: str) -> None:
        self.lost(why)
        self.transport.abort()

    async def call(self) -> None:
        block = self._blocks.first if self.next_id == 1 else self._blocks.later
        self._reply = asyncio.get_running_loop().create_future()
        request = headers_frame(self.next_id, block) + frame(0, END_STREAM, self.next_id, message(b""))
        self.next_id += 2
        self.transport.write(request)
        await self._reply


async def calls(
    address: str, tls: TlsFiles | None, every_s: float, seen: list[tuple[float, float]], failed: list[float]
) -> None:
    """Until cancelled."""
    scheme = "https" if tls is not None else "http"
    while True:
        client = Polite(PlainBlocks(PATH, address, scheme))
        try:
            async with asyncio.timeout(CONNECT_DEADLINE_S):
                await connect(client, address, tls)
                await client.is_up
            while True:
                began_s = time.monotonic()
                try:
                    await client.call()
                except asyncio.CancelledError:
                    seen.append((began_s, time.monotonic() - began_s))
                    raise
                took_s = time.monotonic() - began_s
                if not seen:
                    say(event="begin")
                seen.append((began_s, took_s))
                await asyncio.sleep(max(0.0, every_s - took_s))
        except (OSError, Unavailable):
            failed.append(time.monotonic())
            await asyncio.sleep(PAUSE_S)


async def run(chosen: argparse.Namespace) -> None:
    seen: list[tuple[float, float]] = []
    failed: list[float] = []
    tls = TlsFiles(*chosen.tls) if chosen.tls else None
    task = asyncio.create_task(calls(chosen.address, tls, chosen.every_ms / 1000, seen, failed))
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.buffer.read)
    task.cancel()
    await asyncio.wait({task})
    say(event="end", calls=seen, failed=failed)


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="tests.benchmarks.door.polite", allow_abbrev=False)
    parser.add_argument("address")
    parser.add_argument("--every-ms", type=float, default=5.0)
    parser.add_argument("--tls", nargs=3, metavar=("CA", "CERT", "KEY"))
    return parser.parse_args(arguments)


if __name__ == "__main__":
    uvloop.run(run(parse(sys.argv[1:])))
