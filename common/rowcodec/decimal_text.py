"""Text of DECIMAL datums by one function a precision and scale, without a loop, and a cache of the first met.

In     the bytes of a datum after flag, precision and scale
Out    canonical text, as `decimals.read_decimal` gives it
Never  says what is wrong: ValueError or struct.error, and the strict reader is asked

Of DECIMAL(12, 2), whose chunks have 1, 9 and 2 digits, the function is

    def text(d):
        found = get(d)
        if found is not None: return found
        x0, x1, x2, = unpack(d)  # >BIB
        if x0 < 128: return negative(text, d)
        x0 -= 128
        if x0 > 9 or x1 > 999999999 or x2 > 99: raise ValueError
        found = b"%d.%02d" % (x0 * 1000000000 + x1, x2)
        if len(cache) < CACHE_MAX: cache[d] = found
        return found

A full cache stays as it is. Amounts, rates and zeros come early and again; to make room again and again costs
more than it brings where values never come twice.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable
from typing import Any, Final

from common.rowcodec.decimals import chunks_of

_CACHE_MAX: Final = 4096
_FORMS: Final = {1: "B", 2: "H", 3: "BH", 4: "I"}  # a chunk of three bytes is read in two parts
_INVERTED: Final = bytes(255 - byte for byte in range(256))


@functools.cache  # at most 65 * 31 entries: arguments are those of a header
def decimal_bytes(precision: int, scale: int) -> Callable[[bytes], bytes]:
    """The text as bytes."""
    return _generated(precision, scale, "b", _negative_bytes)


@functools.cache
def decimal_str(precision: int, scale: int) -> Callable[[bytes], str]:
    return _generated(precision, scale, "", _negative_str)


def _negative_bytes(text: Callable[[bytes], bytes], d: bytes) -> bytes:
    found = text(d.translate(_INVERTED))
    return b"-" + found if found.strip(b"0.") else found


def _negative_str(text: Callable[[bytes], str], d: bytes) -> str:
    found = text(d.translate(_INVERTED))
    return "-" + found if found.strip("0.") else found


def _generated(precision: int, scale: int, literal: str, negative: Callable[..., Any]) -> Callable[..., Any]:
    chunks = [(f"x{number}", *chunk) for number, chunk in enumerate(chunks_of(precision, scale))]
    form = ">" + "".join(_FORMS[size] for _, _, size in chunks)
    parts = [f"y{name}, {name}" if size == 3 else name for name, _, size in chunks]
    first = parts[0].partition(",")[0]
    sign = {"B": 1 << 7, "H": 1 << 15, "I": 1 << 31}[form[1]]
    wrong = " or ".join(f"{name} > {10**digits - 1}" for name, digits, _ in chunks)
    before = len(chunks) - -(-scale // 9)  # chunks before the point
    number = ""
    for name, _, _ in chunks[:before]:
        number = f"({number}) * 1000000000 + {name}" if number else name
    after = [(name, f"%0{digits}d") for name, digits, _ in chunks[before:]]
    template = ("%d" if number else "0") + "." * bool(after) + "".join(width for _, width in after)
    values = ", ".join(filter(None, (number, *(name for name, _ in after))))
    lines = [
        "def text(d):",
        "    found = get(d)",
        "    if found is not None: return found",
        f"    {', '.join(parts)}, = unpack(d)  # {form}",
        f"    if {first} < {sign}: return negative(text, d)",
        f"    {first} -= {sign}",
        *(f"    {name} += y{name} << 16" for name, _, size in chunks if size == 3),
        f"    if {wrong}: raise ValueError",
        f'    found = {literal}"{template}" % ({values},)',
        f"    if len(cache) < {_CACHE_MAX}: cache[d] = found",
        "    return found",
    ]
    source = "\n".join(lines) + "\n"
    cache: dict[bytes, Any] = {}
    names: dict[str, Any] = {"negative": negative, "cache": cache, "get": cache.get}
    names["unpack"] = struct.Struct(form).unpack
    exec(compile(source, f"<decimal {precision},{scale}>", "exec"), names)
    text: Callable[..., Any] = names["text"]
    text.__doc__ = source
    return text
