"""Moves many bytes over one raw HTTP/2 connection, as a process of its own.

    python -m tests.benchmarks.door.bulk ADDRESS [--tls CA CERT KEY] make BYTES | send BYTES | take BYTES |
                                         flow MESSAGE_BYTES SECONDS

`make` has the server prepare a reply of BYTES, `send` is one message to it, `take` one from it, `flow` a
stream of messages from it for SECONDS. What arrives is counted and discarded. Says as JSON when it begins
("flowing": the measured time of a stream) and what was moved in how many seconds.
"""

from __future__ import annotations

import argparse
import asyncio
import struct
import sys
import time
from typing import Final

import uvloop

from tests.attacks.frames import END_STREAM, RST_STREAM, WINDOW_UPDATE, frame, frame_head, message, u32
from tests.benchmarks.door.h2_load import say
from tests.benchmarks.door.raw import WINDOW_MAX, RawConnection, TlsFiles, connect, headers_frame
from tests.benchmarks.door.requests import PlainBlocks
from tidb_binlog.errors import BinlogError

FRAME_BYTES: Final = 1 << 14
WRITE_BYTES: Final = 1 << 20
WARM_UP_S: Final = 0.3
LOOK_S: Final = 0.01
_TOP_UP: Final = 1 << 28
_CANCEL: Final = 8


class Bulk(RawConnection):
    """One call on stream 1. `octets` of DATA have arrived so far."""

    def __init__(self, path: str, authority: str, scheme: str, message: bytes, zeros: int = 0) -> None:
        """`message` is the request, or with `zeros` that many octets instead."""
        super().__init__()
        self.octets = 0
        self.began_s = 0.0
        self.took_s = 0.0
        self._head = headers_frame(1, PlainBlocks(path, authority, scheme).first)
        self._message = message
        self._left = zeros
        self._zeros = memoryview(bytes(FRAME_BYTES))
        self._window = 0
        self._is_paused = False
        self._uncredited = 0

    def ready(self) -> None:
        self.began_s = time.monotonic()
        say(event="begin")
        self._window += self.stream_window
        self.transport.write(self._head)
        if self._left:
            # The prefix of the message travels in a frame of its own, as C-core does it.
            self.transport.write(frame(0, 0, 1, b"\0" + struct.pack(">L", self._left)))
            self._spend(5)
            self._send_more()
        else:
            self.transport.write(frame(0, END_STREAM, 1, message(self._message)))

    def _spend(self, octets: int) -> None:
        self._window -= octets
        self.window -= octets

    def _send_more(self) -> None:
        while self._left and not self._is_paused:
            out: list[bytes | memoryview] = []
            joined = 0
            while self._left and joined < WRITE_BYTES:
                octets = min(FRAME_BYTES, self._left, self._window, self.window)
                if octets <= 0:
                    break
                self._left -= octets
                self._spend(octets)
                joined += octets
                end = 0 if self._left else END_STREAM
                out += (frame_head(octets << 8, end, 1), self._zeros[:octets])
            if not out:
                return
            self.transport.write(b"".join(out))

    def pause_writing(self) -> None:
        self._is_paused = True

    def resume_writing(self) -> None:
        self._is_paused = False
        self._send_more()

    def window_opened(self, stream: int, octets: int) -> None:
        if stream:
            self._window += octets
        if self._is_ready:
            self._send_more()

    def received(self, stream: int, octets: int) -> None:
        self.octets += octets
        self._uncredited += octets
        if self._uncredited > _TOP_UP:
            self._to_send.append(frame(WINDOW_UPDATE, 0, 1, u32(self._uncredited)))
            self._uncredited = 0

    def replied(self, stream: int) -> None:
        if not self.ended.done():
            self.took_s = time.monotonic() - self.began_s
            self.ended.set_result(None)

    def cancel(self) -> None:
        self.transport.write(frame(RST_STREAM, 0, 1, u32(_CANCEL)))
        self.transport.close()


async def one_message(client: Bulk) -> None:
    """Until the reply is there."""
    await client.ended
    say(event="end", seconds=client.took_s, octets=client.octets)
    client.transport.close()


async def flow(client: Bulk, message_bytes: int, seconds: float) -> None:
    await asyncio.sleep(WARM_UP_S)
    say(event="flowing")
    began_s, before = time.monotonic(), client.octets
    done, _ = await asyncio.wait({client.ended}, timeout=seconds)
    while client.octets == before and not done:  # nothing came in the time that was asked for
        done, _ = await asyncio.wait({client.ended}, timeout=LOOK_S)
    if done:
        client.ended.result()
    octets = client.octets - before
    took_s = time.monotonic() - began_s
    say(event="end", seconds=took_s, octets=octets, messages=octets / (message_bytes + 5))
    client.cancel()


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="tests.benchmarks.door.bulk", allow_abbrev=False)
    parser.add_argument("address")
    parser.add_argument("--tls", nargs=3, metavar=("CA", "CERT", "KEY"))
    parser.add_argument("what", choices=("make", "send", "take", "flow"))
    parser.add_argument("octets", type=int)
    parser.add_argument("seconds", type=float, nargs="?", default=2.0)
    return parser.parse_args(arguments)


async def run(chosen: argparse.Namespace) -> None:
    path = {"make": "Make", "send": "Swallow", "take": "Give", "flow": "Flow"}[chosen.what]
    message = struct.pack(">Q", chosen.octets)
    if chosen.what == "flow":
        message = struct.pack(">QQ", WINDOW_MAX, chosen.octets)
    zeros = chosen.octets if chosen.what == "send" else 0
    scheme = "https" if chosen.tls else "http"
    client = Bulk(f"/test.Bench/{path}", chosen.address, scheme, message, zeros)
    await connect(client, chosen.address, TlsFiles(*chosen.tls) if chosen.tls else None)
    if chosen.what == "flow":
        await flow(client, chosen.octets, chosen.seconds)
    else:
        await one_message(client)


if __name__ == "__main__":
    try:
        uvloop.run(run(parse(sys.argv[1:])))
    except (BinlogError, OSError) as error:
        sys.exit(f"bulk client: {error}")
