"""Numerals: numbers as TiDB reads them from texts, rounds and prints them.

Out    numbers, and texts without exponents
Tests  tests/drainer/ddl/convert/test_cast.py
"""

from __future__ import annotations

import re
import struct
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Final

UINT64_MAX: Final = (1 << 64) - 1
EXACT: Final = Context(prec=400, rounding=ROUND_HALF_UP, Emax=10**6, Emin=-(10**6))
"""Has all digits that a column can have."""
_FLOAT_PREFIX: Final = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)


def prefix(text: str) -> str:
    """The number that a text begins with, as TiDB reads it; "0" where there is none."""
    match = _FLOAT_PREFIX.match(text.strip())
    return match[0] if match else "0"


def digits_of(text: str) -> int | None:
    """Of the number that a text begins with, halves away from zero; None beyond 64 bits."""
    number_text = prefix(text)
    mantissa, mark, exponent = number_text.lower().partition("e")
    if mark and int(exponent) >= 0 and len(mantissa.partition(".")[0]) + int(exponent) > 21:
        return int(mantissa) if "." not in mantissa else 0  # what TiDB's early detection leaves
    if mark and int(exponent) < -400:
        return 0
    number = int(EXACT.create_decimal(number_text).to_integral_value(ROUND_HALF_UP))
    return number if -(1 << 63) <= number <= UINT64_MAX else None


def decimal_of(text: str) -> Decimal:
    mantissa, mark, exponent = text.lower().partition("e")
    if mark and abs(int(exponent)) > 400:
        exponent = "400" if int(exponent) > 0 else "-400"
    return Decimal(mantissa + mark + exponent)


def rounded(number: int | float | Decimal) -> int:
    if isinstance(number, float):
        return round(number)
    if isinstance(number, Decimal):
        return int(number.to_integral_value(ROUND_HALF_UP))
    return int(number)


def float_text(value: float, short: bool) -> str:
    """All digits, never an exponent; of a FLOAT as many as it needs."""
    if short:
        value = next(
            number for size in range(1, 10) if _is_float(number := float(f"{value:.{size}g}"), value)
        )
    text = f"{Decimal(repr(value)):f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _is_float(number: float, value: float) -> bool:
    """Both are the same FLOAT."""
    try:
        return struct.pack("<f", number) == struct.pack("<f", value)
    except OverflowError:
        return False


def as_number(text: str) -> int | None:
    """A text that is a number, as TiDB takes it for one (0x10 is 16)."""
    try:
        base = 8 if re.fullmatch(r"0\d+", text) else 0
        is_plain = text.isascii() and text[:1].isdigit() and not text[-1].isspace()
        return int(text, base) if is_plain else None
    except ValueError:
        return None
