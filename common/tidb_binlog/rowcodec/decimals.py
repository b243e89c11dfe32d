"""DECIMAL datums: digits in big-endian words of nine, precision and scale in front.

    06 | precision | scale | integer words | fraction words

The outer chunks may be shorter than nine digits. Negative numbers have every byte inverted, and the top bit
of the first byte is flipped for all, so that bytes sort as numbers do. Each datum describes itself: the
column's own precision is never used to read it.

Two forms give the same text. The plain one takes any datum and says what is wrong with it. The fast one is a
function a precision and scale, made when it is needed, without a loop: it knows what comes, says ValueError
or struct.error, and the plain one is asked. Of DECIMAL(12, 2), whose chunks have 1, 9 and 2 digits, it is

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

Tests  tests/common/rowcodec/test_golden.py, tests/common/rowcodec/test_decimals.py
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Any, Final

from tidb_binlog.rowcodec.row_error import RowError

PRECISION_MAX: Final = 65
SCALE_MAX: Final = 30
_CHUNK_BYTES: Final = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)
_CACHE_MAX: Final = 20_000
_sizes: dict[bytes, int] = {}  # header -> bytes of the datum; one entry per legal precision and scale
_texts: dict[bytes, str] = {}  # datum -> text, only of datums that were right
_FAST_CACHE_MAX: Final = 4096
_FORMS: Final = {1: "B", 2: "H", 3: "BH", 4: "I"}  # a chunk of three bytes is read in two parts
_INVERTED: Final = bytes(255 - byte for byte in range(256))
_CONTEXT: Final = Context(prec=200, rounding=ROUND_HALF_UP)


@functools.cache  # at most 65 * 31 entries: the arguments are checked first
def chunks_of(precision: int, scale: int) -> tuple[tuple[int, int], ...]:
    """(digits, bytes) of every chunk, in order."""
    lead, words = (precision - scale) % 9, (precision - scale) // 9
    chunks = [(lead, _CHUNK_BYTES[lead])] if lead else []
    chunks += [(9, 4)] * (words + scale // 9)
    trail = scale % 9
    if trail:
        chunks.append((trail, _CHUNK_BYTES[trail]))
    return tuple(chunks)


def checked_size(precision: int, scale: int) -> int:
    """Bytes after the three header bytes; `RowError` if no column can have this precision and scale."""
    if not 0 < precision <= PRECISION_MAX or scale > min(precision, SCALE_MAX):
        raise RowError(f"decimal of precision {precision} and scale {scale}")
    return size_of(precision, scale)


@functools.cache
def size_of(precision: int, scale: int) -> int:
    return sum(size for _, size in chunks_of(precision, scale))


@functools.cache
def _text_of(precision: int, scale: int) -> Callable[[bytes], str]:
    """A function from the bytes after the header to canonical text."""
    layout = chunks_of(precision, scale)
    total = size_of(precision, scale)
    full = (1 << 8 * total) - 1
    sign = 1 << 8 * total - 1
    places: list[tuple[int, int, int, int]] = []  # shift, mask, digits limit, multiplier of the chunk
    below_bits, below_digits = 0, 0
    for digits, size in reversed(layout):
        places.append((below_bits, (1 << 8 * size) - 1, 10**digits, 10**below_digits))
        below_bits += 8 * size
        below_digits += digits
    split = 10**scale
    shown = f"%s%d.%0{scale}d"

    def text(raw: bytes) -> str:
        bits = int.from_bytes(raw, "big") ^ sign
        negative = bits & sign
        if negative:
            bits ^= full
        value = 0
        for shift, mask, limit, multiplier in places:
            chunk = bits >> shift & mask
            if chunk >= limit:
                raise RowError(f"decimal chunk {chunk} has too many digits")
            value += chunk * multiplier
        minus = "-" if negative and value else ""
        if not scale:
            return f"{minus}{value}"
        return shown % (minus, value // split, value % split)

    return text


def header_of(precision: int, scale: int) -> bytes:
    """What the datums of a DECIMAL(precision, scale) begin with; b"" if there is no such type."""
    if not 0 < precision <= PRECISION_MAX or not 0 <= scale <= min(precision, SCALE_MAX):
        return b""
    return bytes((6, precision, scale))


def read_decimal(b: bytes, i: int) -> tuple[str, int]:
    """Canonical text of the datum whose flag byte is at `i`, and the next offset."""
    size = _sizes.get(b[i : i + 3])
    if size is None:
        if b[i] != 6:
            raise RowError(f"datum flag {b[i]:#04x} instead of a decimal")
        size = 3 + checked_size(b[i + 1], b[i + 2])
        _sizes[b[i : i + 3]] = size
    end = i + size
    datum = b[i:end]
    text = _texts.get(datum)
    if text is None:
        if end > len(b):
            raise IndexError
        text = _text_of(datum[1], datum[2])(datum[3:])
        if len(_texts) >= _CACHE_MAX:
            _texts.clear()
        _texts[datum] = text
    return text, end


@functools.cache  # at most 65 * 31 entries: arguments are those of a header
def decimal_bytes(precision: int, scale: int) -> Callable[[bytes], bytes]:
    """The fast form: from the bytes after the header to canonical text as bytes."""
    return _generated(precision, scale, "b", _negative_bytes)


@functools.cache
def decimal_str(precision: int, scale: int) -> Callable[[bytes], str]:
    return _generated(precision, scale, "", _negative_str)


def _negative_bytes(text: Callable[[bytes], bytes], d: bytes) -> bytes:
    digits = text(d.translate(_INVERTED))
    return b"-" + digits if digits.strip(b"0.") else digits


def _negative_str(text: Callable[[bytes], str], d: bytes) -> str:
    digits = text(d.translate(_INVERTED))
    return "-" + digits if digits.strip("0.") else digits


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
        f"    if len(cache) < {_FAST_CACHE_MAX}: cache[d] = found",
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


def put_decimal(value: str | int | Decimal, precision: int, scale: int) -> bytes:
    """Datum of a value, rounded half up to the scale; ValueError if it does not fit."""
    scale = min(scale, SCALE_MAX)
    try:
        number = _CONTEXT.create_decimal(value)
    except ArithmeticError:
        raise ValueError("not a decimal number") from None
    fits = number.is_finite() and number.adjusted() < precision
    scaled = int(number.scaleb(scale, _CONTEXT).to_integral_value(ROUND_HALF_UP)) if fits else 0
    digits = abs(scaled)
    if not fits or digits >= 10**precision:
        raise ValueError(f"does not fit DECIMAL({precision},{scale})")
    bits = shift = 0
    for count, size in reversed(chunks_of(precision, scale)):
        digits, chunk = divmod(digits, 10**count)
        bits |= chunk << shift
        shift += 8 * size
    if scaled < 0:
        bits ^= (1 << shift) - 1
    bits ^= 1 << shift - 1
    return bytes((6, precision, scale)) + bits.to_bytes(shift // 8, "big")
