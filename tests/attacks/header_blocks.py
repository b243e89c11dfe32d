"""Header blocks that cost memory or time: without end, with bombs in them, with huge tables."""

from __future__ import annotations

from collections.abc import Iterator

from tests.attacks import frames
from tests.attacks.floods import repeated
from tests.attacks.frames import CONTINUATION, END_HEADERS, END_STREAM, HEADERS, frame, settings
from tests.attacks.session import Chunk, Outcome, Session, Steps, Target, attack


def continuation_endless(target: Target, seconds: float, frames_max: int) -> Outcome:
    """A header block that never ends."""
    more = repeated(frame(CONTINUATION, 0, 1, frames.unindexed("x-more", "y" * 1000)))

    def steps(session: Session) -> Iterator[Chunk]:
        session.in_block = True
        yield frame(HEADERS, 0, 1, target.block(target.empty)), 1
        yield from more(session)

    return attack(target, seconds, frames_max, steps)


def continuation_empty(target: Target, seconds: float, frames_max: int) -> Outcome:
    """A header block that never ends and does not even grow."""
    more = repeated(frame(CONTINUATION, 0, 1))

    def steps(session: Session) -> Iterator[Chunk]:
        session.in_block = True
        yield frame(HEADERS, 0, 1, target.block(target.empty)), 1
        yield from more(session)

    return attack(target, seconds, frames_max, steps)


def _blocks(target: Target, block: bytes, first: bytes = b"") -> Steps:
    """Requests with this header block, `first` in front of it in the first one."""

    def steps(session: Session) -> Iterator[Chunk]:
        for stream in range(1, 1 << 31, 2):
            yield _split(stream, (first if stream == 1 else b"") + block)

    return steps


def _split(stream: int, block: bytes) -> tuple[bytes, int]:
    parts = [block[at : at + frames.FRAME_BYTES_MAX] for at in range(0, len(block), frames.FRAME_BYTES_MAX)]
    out = []
    for number, part in enumerate(parts):
        flags = END_HEADERS if number == len(parts) - 1 else 0
        kind = CONTINUATION if number else HEADERS
        out.append(frame(kind, flags | (0 if number else END_STREAM), stream, part))
    return b"".join(out), len(out)


def hpack_bomb(target: Target, seconds: float, frames_max: int) -> Outcome:
    """16,000 references to an entry of 3.9 KiB in each block of 16 KiB."""
    start = target.block(target.empty)
    first = start + frames.literal("x-bomb", "b" * 3900)
    block = start + frames.indexed(62) * (16_000)

    def steps(session: Session) -> Iterator[Chunk]:
        yield frame(HEADERS, END_HEADERS | END_STREAM, 1, first), 1
        for stream in range(3, 1 << 31, 2):
            yield frame(HEADERS, END_HEADERS | END_STREAM, stream, block), 1

    return attack(target, seconds, frames_max, steps)


def table_churn(target: Target, seconds: float, frames_max: int) -> Outcome:
    """Each block brings 1,900 new entries: all of them are evicted at once."""
    entries = b"".join(frames.literal(f"x{number:04}", "v") for number in range(1900))
    return attack(target, seconds, frames_max, _blocks(target, target.block(target.empty) + entries))


def huge_literal(target: Target, seconds: float, frames_max: int) -> Outcome:
    """One value of 30 KiB a request."""
    block = target.block(target.empty, ("x-huge", "v" * 30_000))
    return attack(target, seconds, frames_max, _blocks(target, block))


def huge_table(target: Target, seconds: float, frames_max: int) -> Outcome:
    """A table of 4 GiB for replies is allowed, and one of a MiB for requests is made, against the setting."""
    hello = frames.PREFACE + settings([(frames.HEADER_TABLE_SIZE, (1 << 32) - 1)])
    update = frames.integer(1 << 20, 5, 0x20)
    return attack(
        target, seconds, frames_max, _blocks(target, target.block(target.empty), update), hello=hello
    )
