"""Protobuf fields: a message, or one that is too large to be decoded at once, is walked field by field.

Out    (tag, number or length, offset after them) of each field; contents are stepped over
Why    a message is walked from window to window: what is in memory does not depend on its size
Never  decodes what a field means
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

WINDOW_BYTES: Final = 256 << 10
VARINT: Final = 0
LENGTH: Final = 2
_HEAD_BYTES: Final = 24  # a tag and a varint of any length
_64_BITS: Final = (1 << 64) - 1

Read = Callable[[int, int], bytes]
"""(offset, size): bytes of the message, fewer only at its end."""


class MalformedMessage(ValueError):
    """Not a protobuf message."""


def fields(read: Read, start: int, stop: int) -> Iterator[tuple[int, int, int]]:
    """(tag, value or length, offset after them) of each field in [start, stop) of the payload."""
    base, data, at, last = start, b"", 0, -1
    while True:
        if at > last:
            base += at
            if base >= stop:
                return
            data, at = read(base, min(WINDOW_BYTES, stop - base)), 0
            last = sure_to(data, base, stop)
        tag, value, at = field_head(data, at)
        yield tag, value, base + at
        if tag & 7 == LENGTH:
            at += value
            if base + at > stop:
                raise MalformedMessage(f"a field of {value} bytes ends early")


def sure_to(data: bytes, base: int, stop: int) -> int:
    """The last place in `data` at which a field's tag and length are certainly in it."""
    if base + len(data) >= stop:
        return len(data) - 1
    if len(data) < WINDOW_BYTES:
        raise MalformedMessage("the payload ends early")
    return len(data) - _HEAD_BYTES


def field_head(data: bytes, at: int) -> tuple[int, int, int]:
    """Tag, number or length, and the offset after them."""
    if at < len(data) and (tag := data[at]) < 0x80:
        at += 1
    else:
        tag, at = varint(data, at)
    wire = tag & 7
    if not 0 < tag >> 3 < 1 << 29:
        raise MalformedMessage(f"a field with number {tag >> 3}")
    if wire in (VARINT, LENGTH):
        value, at = varint(data, at)
        return tag, value, at
    if wire in (1, 5) and at + (8 if wire == 1 else 4) <= len(data):
        return tag, 0, at + (8 if wire == 1 else 4)
    raise MalformedMessage(f"a field of wire type {wire}")


def utf8_text(value: str) -> str:
    """A string of a message of proto2, whose parser gives octets where they are not UTF-8. Raises
    `MalformedMessage`."""
    if not isinstance(value, str):
        raise MalformedMessage("a text is not UTF-8")
    return value


def varint(data: bytes | memoryview, at: int) -> tuple[int, int]:
    """The number at `at`, as the parser cuts it, and the offset after it."""
    value = shift = 0
    while True:
        if at >= len(data) or shift > 63:
            raise MalformedMessage("a number ends early")
        octet = data[at]
        at += 1
        value |= (octet & 0x7F) << shift
        shift += 7
        if octet < 0x80:
            return value & _64_BITS, at
