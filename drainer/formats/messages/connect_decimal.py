"""Decimals of Kafka Connect and Avro: the digits as one number, the scale apart in the schema.

Tests  tests/drainer/formats/messages/test_debezium_json.py
"""

from __future__ import annotations

from tidb_binlog.rowcodec.row_error import RowError


def unscaled(digits: int) -> bytes:
    """A number as Java's BigInteger has it: big-endian, two's complement, as short as can be."""
    return digits.to_bytes((digits + (digits < 0)).bit_length() // 8 + 1, "big", signed=True)


def scaled_digits(text: str, scale: int) -> int:
    """The digits of a DECIMAL with so many of them after the point; `RowError` if it has more."""
    whole, _, fraction = text.partition(".")
    if len(fraction) > scale:
        raise RowError(f"DECIMAL with {len(fraction)} digits after the point, its column has {scale}")
    return int(whole + fraction.ljust(scale, "0"))
