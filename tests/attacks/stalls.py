"""Peers that keep something open and do little or nothing more."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

from tests.attacks import frames
from tests.attacks.frames import CONTINUATION, DATA, END_HEADERS, END_STREAM, HEADERS, frame, settings
from tests.attacks.session import Chunk, Outcome, Session, Target, attack

STREAMS: Final = 200
PAGES: Final = 1000
PAGE: Final = "/page"
"""A page of this size is there: `PAGE_BYTES`."""

PAGE_BYTES: Final = 1 << 17
_STEP_S: Final = 0.5
_MESSAGE_BYTES: Final = 1 << 16
_FOR_EVER: Final = 1 << 31


def _flow_calls(target: Target, streams: int) -> bytes:
    """Requests for more than anybody will send."""
    block = target.block(target.flow)
    body = frames.message(struct.pack(">QQ", _FOR_EVER, _MESSAGE_BYTES))
    return b"".join(
        frame(HEADERS, END_HEADERS, stream, block) + frame(DATA, END_STREAM, stream, body)
        for stream in range(1, 2 * streams, 2)
    )


def _window(target: Target, seconds: float, frames_max: int, octets: int) -> Outcome:
    hello = frames.PREFACE + settings([(frames.INITIAL_WINDOW_SIZE, octets)])

    def steps(session: Session) -> Iterator[Chunk]:
        yield _flow_calls(target, STREAMS), 2 * STREAMS

    return attack(target, seconds, frames_max, steps, hello=hello, hold=True)


def zero_window(target: Target, seconds: float, frames_max: int) -> Outcome:
    """200 streams of replies for which there is never any room, then silence."""
    return _window(target, seconds, frames_max, 0)


def window_of_one(target: Target, seconds: float, frames_max: int) -> Outcome:
    return _window(target, seconds, frames_max, 1)


def window_drips(target: Target, seconds: float, frames_max: int) -> Outcome:
    """Room for one more octet, again and again: each may cost a frame of one octet."""
    hello = frames.PREFACE + settings([(frames.INITIAL_WINDOW_SIZE, 0)])
    drips = b"".join(frames.window_update(stream, 1) for stream in range(1, 2 * STREAMS, 2))

    def steps(session: Session) -> Iterator[Chunk]:
        yield _flow_calls(target, STREAMS), 2 * STREAMS
        while True:
            yield drips, STREAMS

    return attack(target, seconds, frames_max, steps, hello=hello)


def deaf_puller(target: Target, seconds: float, frames_max: int) -> Outcome:
    """Streams of replies with all the window there is, and nobody reads the socket."""
    more = frames.window_update(0, frames.WINDOW_MAX - 65_535)
    hello = frames.PREFACE + settings([(frames.INITIAL_WINDOW_SIZE, frames.WINDOW_MAX)]) + more

    def steps(session: Session) -> Iterator[Chunk]:
        yield _flow_calls(target, STREAMS), 2 * STREAMS

    return attack(target, seconds, frames_max, steps, hello=hello, deaf=True, hold=True)


def pages_unread(target: Target, seconds: float, frames_max: int) -> Outcome:
    """Plain pages by HTTP/2, on as many streams as there may be, and never any room for them."""
    hello = frames.PREFACE + settings([(frames.INITIAL_WINDOW_SIZE, 0)])
    get = (
        frames.indexed(2)
        + frames.SCHEME[target.scheme]
        + frames.unindexed(":path", PAGE)
        + frames.unindexed(":authority", "localhost")
    )

    def steps(session: Session) -> Iterator[Chunk]:
        for first in range(1, 2 * PAGES, 40):
            some = range(first, first + 40, 2)
            yield b"".join(frame(HEADERS, END_HEADERS | END_STREAM, stream, get) for stream in some), 20

    return attack(target, seconds, frames_max, steps, hello=hello, hold=True)


def pages_unread_http1(target: Target, seconds: float, frames_max: int) -> Outcome:
    """Requests for pages one after the other, as fast as they go; nobody reads an answer."""
    request = f"GET {PAGE} HTTP/1.1\r\nhost: localhost\r\n\r\n".encode()

    def steps(session: Session) -> Iterator[Chunk]:
        while True:
            yield request * 64, 64

    return attack(target, seconds, frames_max, steps, hello=request, deaf=True, hold=True)


def slow_preface(target: Target, seconds: float, frames_max: int) -> Outcome:
    """An octet of the preface now and then."""

    def steps(session: Session) -> Iterator[Chunk]:
        for octet in frames.PREFACE + settings():
            yield bytes((octet,)), 0
            yield _STEP_S

    return attack(target, seconds, frames_max, steps, hello=b"", hold=True)


def silence(target: Target, seconds: float, frames_max: int) -> Outcome:
    """Connected, and not one octet."""
    return attack(target, seconds, frames_max, lambda session: iter(()), hello=b"", hold=True)


def slow_header_block(target: Target, seconds: float, frames_max: int) -> Outcome:
    """A block that is begun; then a CONTINUATION of one octet in five seconds."""

    def steps(session: Session) -> Iterator[Chunk]:
        session.in_block = True
        yield frame(HEADERS, 0, 1, target.block(target.empty)), 1
        while True:
            yield 10 * _STEP_S
            yield frame(CONTINUATION, 0, 1, b"\x83"), 1

    return attack(target, seconds, frames_max, steps, hold=True)


def slow_frame(target: Target, seconds: float, frames_max: int) -> Outcome:
    """The head of a frame of 16 KiB, then its octets one by one."""

    def steps(session: Session) -> Iterator[Chunk]:
        yield frame(HEADERS, END_HEADERS, 1, target.block(target.swallow)), 1
        session.in_block = True  # or rather, inside a frame
        yield frames.frame_head(frames.FRAME_BYTES_MAX << 8 | DATA, 0, 1), 1
        while True:
            yield b"x", 0
            yield _STEP_S

    return attack(target, seconds, frames_max, steps, hold=True)


def slow_body(target: Target, seconds: float, frames_max: int) -> Outcome:
    """1,000 requests each of which has begun its message, then silence."""

    def steps(session: Session) -> Iterator[Chunk]:
        block = target.block(target.swallow)
        for stream in range(1, 2001, 2):
            start = frame(HEADERS, END_HEADERS, stream, block)
            yield start + frame(DATA, 0, stream, b"\0" + frames.u32(100) + b"x"), 2

    return attack(target, seconds, frames_max, steps, hold=True)
