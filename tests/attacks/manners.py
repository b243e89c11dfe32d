"""Manners: how a message may come that no client sends so: octet by octet, by halves, on many streams."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, suppress
from typing import Final

from tests.attacks import frames
from tests.attacks.frames import DATA, END_HEADERS, END_STREAM, HEADERS, frame
from tests.common.door.support.peers import Raw

STREAMS: Final = 60
SLOW_OCTETS: Final = 20
ENOUGH_S: Final = 5.0
SOURCE: Final = "127.0.1.1"
"""Another peer than those at 127.0.0.1: no address gets all that there is."""
Frames = Iterator[bytes]


def _begun(stream: int, path: str) -> bytes:
    return frame(HEADERS, END_HEADERS, stream, frames.request_block(path))


def _pieces(stream: int, octets: bytes, flags: int = 0) -> bytes:
    """As DATA frames, as far as the windows go that a server gives at first."""
    octets = octets[: 1 << 15]
    size = frames.FRAME_BYTES_MAX
    parts = [octets[at : at + size] for at in range(0, len(octets), size)] or [b""]
    return b"".join(frame(DATA, flags if part is parts[-1] else 0, stream, part) for part in parts)


def slowly(path: str, message: bytes) -> Frames:
    octets = frames.message(message)
    yield _begun(1, path)
    for at in range(min(SLOW_OCTETS, len(octets))):
        yield frame(DATA, 0, 1, octets[at : at + 1])
    yield _pieces(1, octets[SLOW_OCTETS:], END_STREAM)


def never_ended(path: str, message: bytes) -> Frames:
    """Its side stays open."""
    yield _begun(1, path) + _pieces(1, frames.message(message))


def half_a_message(path: str, message: bytes) -> Frames:
    octets = frames.message(message)
    yield _begun(1, path) + _pieces(1, octets[: len(octets) // 2], END_STREAM)


def ended_at_once(path: str, message: bytes) -> Frames:
    yield frame(HEADERS, END_HEADERS | END_STREAM, 1, frames.request_block(path))


def taken_back(path: str, message: bytes) -> Frames:
    for stream in range(1, 41, 2):
        yield _begun(stream, path) + _pieces(stream, frames.message(message[:400]), END_STREAM)
        yield frames.rst_stream(stream)


def many(path: str, message: bytes) -> Frames:
    """On many streams at once, and one of them many times; nothing of what comes is taken."""
    for stream in range(1, 2 * STREAMS, 2):
        yield _begun(stream, path) + _pieces(stream, frames.message(message[:400]))
    yield _pieces(1, frames.message(message[:40]) * 50)


MANNERS: Final[tuple[Callable[[str, bytes], Frames], ...]] = (
    slowly, never_ended, half_a_message, ended_at_once, taken_back, many,
)  # fmt: skip


async def send(port: int, path: str, message: bytes, rng: random.Random, held: AsyncExitStack) -> None:
    """In one manner, on a connection of its own, which is `held`."""
    windows = frames.settings([(frames.INITIAL_WINDOW_SIZE, rng.choice((0, 1, 65_535)))])
    with suppress(ConnectionError, TimeoutError):  # it has been enough
        async with asyncio.timeout(ENOUGH_S):
            raw = await held.enter_async_context(Raw.to(port, hello=frames.PREFACE + windows, source=SOURCE))
            for chunk in rng.choice(MANNERS)(path, message):
                await raw.send(chunk)
