"""Backup files: what Dumpling and BR write."""

from __future__ import annotations


def number(field: int, value: int) -> bytes:
    return varint(field << 3) + varint(value)


def varint(value: int) -> bytes:
    octets = bytearray()
    while value > 0x7F:
        octets.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*octets, value])
