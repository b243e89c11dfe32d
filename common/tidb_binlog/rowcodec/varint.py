"""Variable-length integers: 7 bits a byte, low group first; signed ones zigzag.

Readers take the whole buffer and an offset and give (value, next offset). Running out of bytes raises
IndexError, which the caller turns into an error with a place; more than 64 bits raises `RowError`.

Tests  tests/common/rowcodec/test_hostile.py
"""

from __future__ import annotations

from typing import Final

from tidb_binlog.rowcodec.row_error import RowError

UINT64_END: Final = 1 << 64
INT64_END: Final = 1 << 63


def uvarint(b: bytes, i: int) -> tuple[int, int]:
    """Unsigned value at `i`. Overlong forms are accepted, values above 64 bits are not."""
    c = b[i]
    if c < 128:
        return c, i + 1
    u = c & 127
    c = b[i + 1]
    if c < 128:
        return u | c << 7, i + 2
    u |= (c & 127) << 7
    c = b[i + 2]
    if c < 128:
        return u | c << 14, i + 3
    u |= (c & 127) << 14
    c = b[i + 3]
    if c < 128:
        return u | c << 21, i + 4
    u |= (c & 127) << 21
    c = b[i + 4]
    if c < 128:
        return u | c << 28, i + 5
    u |= (c & 127) << 28
    shift = 35
    for at in range(i + 5, i + 10):
        c = b[at]
        if c < 128:
            u |= c << shift
            if u >= UINT64_END:
                break
            return u, at + 1
        u |= (c & 127) << shift
        shift += 7
    raise RowError("varint of more than 64 bits")


def unsigned_of(group: bytes) -> int:
    """Value of the bytes of one varint, known to be right.

    Unrolled, and in two halves: sums below 2**30 are the cheap ones.
    """
    size = len(group)
    if size == 1:
        return group[0]
    if size == 2:
        c, d = group
        return c + (d << 7) - 0x80
    if size == 3:
        c, d, e = group
        return c + (d << 7) + (e << 14) - 0x4080
    if size == 4:
        c, d, e, f = group
        return c + (d << 7) + (e << 14) + (f << 21) - 0x204080
    if size == 5:
        c, d, e, f, high = group
    elif size == 6:
        c, d, e, f, g, h = group
        high = g + (h << 7) - 0x80
    else:
        return uvarint(group, 0)[0]
    return c + (d << 7) + (e << 14) + (f << 21) - 0x10204080 + (high << 28)


def signed_of(group: bytes) -> int:
    """The same of a zigzag varint: its lowest bit is the sign, and is left out of the sum."""
    size = len(group)
    if size == 1:
        c = group[0]
        n = c >> 1
    elif size == 2:
        c, d = group
        n = (c >> 1) + (d << 6) - 0x40
    elif size == 3:
        c, d, e = group
        n = (c >> 1) + (d << 6) + (e << 13) - 0x2040
    elif size == 4:
        c, d, e, f = group
        n = (c >> 1) + (d << 6) + (e << 13) + (f << 20) - 0x102040
    elif size == 6:
        c, d, e, f, g, h = group
        n = (c >> 1) + (d << 6) + (e << 13) + (f << 20) - 0x8102040 + ((g + (h << 7) - 0x80) << 27)
    elif size == 5:
        c, d, e, f, g = group
        n = (c >> 1) + (d << 6) + (e << 13) + (f << 20) - 0x8102040 + (g << 27)
    else:
        return svarint(group, 0)[0]
    return ~n if c & 1 else n


def svarint(b: bytes, i: int) -> tuple[int, int]:
    """Signed value at `i`."""
    u, i = uvarint(b, i)
    return (u >> 1) ^ -(u & 1), i


def put_uvarint(value: int) -> bytes:
    """Shortest form of 0 <= value < 2**64."""
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def put_svarint(value: int) -> bytes:
    """Shortest form of a signed 64-bit value."""
    return put_uvarint(((value << 1) ^ (value >> 63)) & (UINT64_END - 1))
