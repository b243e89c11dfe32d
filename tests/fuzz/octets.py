"""Octets: how an input is changed that a decoder took, or nearly took."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeVar

from tidb_binlog.protobuf_fields import LENGTH, MalformedMessage, field_head
from tidb_binlog.rowcodec.varint import put_uvarint

T = TypeVar("T")
Mutation = Callable[[bytearray, random.Random], None]
"""In place, of octets that are not empty."""

TELLING: Final = (0, 1, 2, 4, 5, 8, 9, 0x22, 0x39, 0x5C, 0x7F, 0x80, 0xFE, 0xFF)
LENGTHS: Final = (
    0,
    1,
    0x7F,
    0x80,
    0xFF,
    0xFFFF,
    (1 << 31) - 1,
    1 << 31,
    (1 << 32) - 1,
    (1 << 63) - 1,
    (1 << 64) - 1,
)
REPEATED_BYTES: Final = 1 << 15


def below(rng: random.Random, stop: int) -> int:
    """As `randrange`, in a third of its time."""
    return int(rng.random() * stop)


def any_of(rng: random.Random, choices: Sequence[T]) -> T:
    return choices[int(rng.random() * len(choices))]


def flip(octets: bytearray, rng: random.Random) -> None:
    at = below(rng, len(octets))
    octets[at] ^= 1 << below(rng, 8)


def overwrite(octets: bytearray, rng: random.Random) -> None:
    octets[below(rng, len(octets))] = any_of(rng, (*TELLING, below(rng, 256)))


def remove(octets: bytearray, rng: random.Random) -> None:
    at = below(rng, len(octets))
    del octets[at : at + 1 + below(rng, 15)]


def insert(octets: bytearray, rng: random.Random) -> None:
    at = below(rng, len(octets) + 1)
    octets[at:at] = rng.randbytes(1 + below(rng, 11))


def duplicate(octets: bytearray, rng: random.Random) -> None:
    at = below(rng, len(octets))
    octets[at:at] = octets[at : at + 1 + below(rng, 59)]


def cut_off(octets: bytearray, rng: random.Random) -> None:
    del octets[below(rng, len(octets)) :]


def length(octets: bytearray, rng: random.Random) -> None:
    """A number where one may stand, as a varint or in so many octets, whatever it was."""
    value, at, size = any_of(rng, LENGTHS), below(rng, len(octets)), any_of(rng, (0, 2, 3, 4, 8))
    if size:
        octets[at : at + size] = (value & ((1 << 8 * size) - 1)).to_bytes(
            size, any_of(rng, ("little", "big"))
        )
        return
    varint = bytearray()
    while value > 0x7F:
        varint.append(value & 0x7F | 0x80)
        value >>= 7
    octets[at : at + 1 + below(rng, 9)] = varint + bytes((value,))


def repeat(octets: bytearray, rng: random.Random) -> None:
    """A stretch of it so often that what is worse than linear shows."""
    at = below(rng, len(octets))
    stretch = octets[at : at + 1 + below(rng, any_of(rng, (4, 40, 400)))]
    octets[at:at] = stretch * (REPEATED_BYTES // len(stretch))


MUTATIONS: Final[tuple[Mutation, ...]] = (
    flip, flip, overwrite, overwrite, remove, insert, duplicate, cut_off, length, length,
)  # fmt: skip


def spliced(octets: bytes, other: bytes, rng: random.Random) -> bytes:
    """The beginning of one and the end of another."""
    return octets[: below(rng, len(octets) + 1)] + other[below(rng, len(other) + 1) :]


def field(octets: bytearray, rng: random.Random) -> None:
    """Of a protobuf message, at any depth: changed inside, twice, gone, elsewhere, of another number. What is
    around it has the right length."""
    octets[:] = _with_field(bytes(octets), rng)


def _with_field(data: bytes, rng: random.Random) -> bytes:
    try:
        parts = list(_fields(data))
    except MalformedMessage:
        parts = []
    if not parts:
        octets = bytearray(data or b"\0")
        any_of(rng, MUTATIONS)(octets, rng)
        return bytes(octets)
    at, action = below(rng, len(parts)), rng.random()
    tag, content, whole = parts.pop(at)
    found = [other for _, _, other in parts]
    if content and action < 0.6:
        inner = _with_field(content, rng)
        found.insert(at, put_uvarint(tag) + put_uvarint(len(inner)) + inner)
    elif action < 0.9:
        for _ in range(below(rng, 3)):
            found.insert(below(rng, len(found) + 1), whole)
    else:
        number = put_uvarint(any_of(rng, LENGTHS)) if tag & 7 == 0 else whole[len(put_uvarint(tag)) :]
        found.insert(at, put_uvarint(any_of(rng, (tag, below(rng, 80) << 3 | tag & 7))) + number)
    return b"".join(found)


def _fields(data: bytes) -> Iterator[tuple[int, bytes, bytes]]:
    """Tag, content where it has a length, and the whole of each field."""
    at = 0
    while at < len(data):
        begin = at
        tag, value, at = field_head(data, at)
        content = b""
        if tag & 7 == LENGTH:
            content, at = data[at : at + value], at + value
            if at > len(data):
                raise MalformedMessage
        yield tag, content, data[begin:at]
