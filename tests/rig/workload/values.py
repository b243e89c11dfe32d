"""Values: random ones of every column type, how each is shown, and when two of them are one key. Pure.

Tests  tests/rig/workload/test_model.py
"""

from __future__ import annotations

import json
import struct
import unicodedata
from collections.abc import Callable
from random import Random
from typing import Any, Final

from binlog_playground.check.verify import Canonical
from tests.rig.workload.kinds import Kind, Value
from tidb_binlog import table_info as ti

TEXTS: Final = (
    "",
    "plain",
    'it\'s "quoted"',
    "back\\slash %s %%",
    "line\nbreak\ttab",
    "ünïcödé",
    "日本語",
    "😀 smile",
    "trailing  ",
    "; DROP TABLE x; --",
)
WORDS: Final = ("ab", "Ab", "AB", "ab ", "ba", "bé", "BE", "be", "c", "C", "cd", "abc", "ABd", "x y", "X Y")
# What a narrow character set holds, with and without letters outside ASCII.
NARROW_WORDS: Final = {
    "latin1": ("ab", "AB", "c", "é", "É", "ß", "naïve", "ÿ", "üb", "x y"),
    "gbk": ("ab", "AB", "c", "中", "文", "数据", "数据库", "国a", "x y"),
}
ZERO_DATE: Final = "0000-00-00"


def shown(kind: Kind, value: Value) -> Canonical:
    """The compared form of a value."""
    if value is None:
        return None
    if isinstance(value, bytes):
        return value.hex()
    return repr(value) if isinstance(value, float) else str(value)


def same_key(kind: Kind, value: Value, length: int) -> Value:
    """What a unique index keeps of a value: equal results are one key for the server."""
    if not isinstance(value, str) or kind.charset == "binary":
        return value
    text = value if length < 0 else value[:length]
    if kind.ignores_case:
        text = "".join(c for c in unicodedata.normalize("NFD", text) if not unicodedata.combining(c)).upper()
    return text.rstrip(" ")


def random_word(kind: Kind, random: Random, suffixes: int) -> str:
    """A short text out of few, so that keys collide; some differ only in case, accent or trailing blanks."""
    word = random.choice(NARROW_WORDS.get(kind.charset, WORDS))
    return word if word.endswith(" ") else word + random.choice(["", str(random.randrange(suffixes))])


def random_value(kind: Kind, random: Random) -> Value:
    """A random value of a column type, edge values included."""
    if kind.tp in ti.INTEGER_BITS:
        return _integer(ti.INTEGER_BITS[kind.tp], bool(kind.flag & ti.FLAG_UNSIGNED), random)
    if kind.tp in _BY_TYPE:
        return _BY_TYPE[kind.tp](kind, random)
    if kind.charset == "binary":
        return _bytes(kind, random)
    return _text(kind, random)


def _integer(bits: int, unsigned: bool, random: Random) -> int:
    low, high = (0, (1 << bits) - 1) if unsigned else (-(1 << bits - 1), (1 << bits - 1) - 1)
    pick = random.random()
    if pick < 0.1:
        return random.choice((low, high))
    if pick < 0.6:
        return random.randint(max(low, -100), 100)
    return random.randint(low, high)


def _text(kind: Kind, random: Random) -> str:
    text = random.choice(TEXTS)
    if random.random() < 0.5:
        text += str(random.randrange(1000))
    text = text[: kind.flen]
    return text.rstrip(" ") if kind.tp == ti.STRING else text


def _bytes(kind: Kind, random: Random) -> bytes:
    if kind.tp == ti.STRING:  # BINARY(n) is padded with zeros by the database
        return random.randbytes(random.randint(0, kind.flen)).ljust(kind.flen, b"\0")
    return random.randbytes(random.randint(0, min(kind.flen, 60)))


def _decimal(kind: Kind, random: Random) -> str:
    digits = random.choice((1, kind.decimal, kind.flen - 4, kind.flen))
    unscaled = random.randrange(10**digits)
    text = str(unscaled).rjust(kind.decimal + 1, "0")
    sign = "-" if unscaled and random.random() < 0.5 else ""
    return f"{sign}{text[: -kind.decimal]}.{text[-kind.decimal :]}"


def _float(kind: Kind, random: Random) -> float:
    if random.random() < 0.2:
        return random.choice((0.0, 1.0, -1.5))
    number = random.uniform(-1.0, 1.0) * 10.0 ** random.randint(-20, 20)
    if kind.tp == ti.FLOAT:
        rounded: float = struct.unpack("<f", struct.pack("<f", number))[0]
        return rounded
    return number


def _day(random: Random, first_year: int, last_year: int) -> str:
    return (
        f"{random.randint(first_year, last_year):04d}-{random.randint(1, 12):02d}-{random.randint(1, 28):02d}"
    )


def _clock(seconds: int) -> str:
    return f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"


def _date(kind: Kind, random: Random) -> str:
    return ZERO_DATE if random.random() < 0.05 else _day(random, 1000, 9999)


def _fraction(microseconds: int, digits: int) -> str:
    return f".{microseconds:06d}"[: digits + 1] if digits else ""


def _datetime(kind: Kind, random: Random) -> str:
    if random.random() < 0.05:
        return f"{ZERO_DATE} 00:00:00{_fraction(0, kind.decimal)}"
    clock = _clock(random.randrange(86400))
    return f"{_day(random, 1000, 9999)} {clock}{_fraction(random.randrange(10**6), kind.decimal)}"


def _timestamp(kind: Kind, random: Random) -> str:
    # UTC; the range ends in January 2038 and must not begin before its first second.
    clock = _clock(random.randrange(1, 86400))
    return f"{_day(random, 1970, 2037)} {clock}{_fraction(random.randrange(10**6), kind.decimal)}"


def _time(kind: Kind, random: Random) -> str:
    seconds = random.randrange(838 * 3600)
    sign = "-" if seconds and random.random() < 0.5 else ""
    return f"{sign}{_clock(seconds)}{_fraction(random.randrange(10**6), kind.decimal)}"


def _year(kind: Kind, random: Random) -> int:
    return random.choice((0, 1901, 2155, random.randint(1970, 2030)))


def _bit(kind: Kind, random: Random) -> int:
    return random.choice((0, (1 << kind.flen) - 1, random.getrandbits(kind.flen)))


def _enum(kind: Kind, random: Random) -> str:
    return random.choice(kind.elems)


def _set(kind: Kind, random: Random) -> str:
    return ",".join(element for element in kind.elems if random.random() < 0.5)


def _document(random: Random, depth: int) -> Any:
    pick = random.randrange(8 if depth else 6)
    if pick == 6:
        return [_document(random, depth - 1) for _ in range(random.randrange(4))]
    if pick == 7:
        return {random.choice(("a", "b", "ü", "long key")): _document(random, depth - 1) for _ in range(3)}
    return (None, True, random.randint(-(2**63), 2**63 - 1), 2.5, random.choice(TEXTS), "")[pick]


def _json(kind: Kind, random: Random) -> str:
    return json_text(_document(random, 2))


def json_text(document: Any) -> str:
    """JSON as TiDB prints it: keys ordered bytewise, a blank after each comma and colon."""
    return json.dumps(document, sort_keys=True, ensure_ascii=False, separators=(", ", ": "))


_BY_TYPE: Final[dict[int, Callable[[Kind, Random], Value]]] = {
    ti.DECIMAL: _decimal,
    ti.FLOAT: _float,
    ti.DOUBLE: _float,
    ti.DATE: _date,
    ti.DATETIME: _datetime,
    ti.TIMESTAMP: _timestamp,
    ti.TIME: _time,
    ti.YEAR: _year,
    ti.BIT: _bit,
    ti.ENUM: _enum,
    ti.SET: _set,
    ti.JSON: _json,
}
