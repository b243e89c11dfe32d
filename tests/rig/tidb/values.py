"""Literals of random values for a column of any type, by its text: ordinary ones and those at the edges.

Some are refused in a strict session and cut to fit in a loose one: what TiDB makes of them is what counts.

Tests  tests/rig/tidb/test_values.py
"""

from __future__ import annotations

import re
from random import Random
from typing import Final

_BITS: Final = {"tinyint": 8, "smallint": 16, "mediumint": 24, "int": 32, "bigint": 64}
_ALIASES: Final = {
    **dict.fromkeys(("dec", "numeric", "fixed"), "decimal"),
    **dict.fromkeys(("boolean", "int1"), "tinyint"),
    **dict.fromkeys(("int3", "middleint"), "mediumint"),
    "int8": "bigint",
    "real": "double",
}
_WORDS: Final = (
    "| |a|A|á|ß|ss|abc|ABC|abc |Abc|x'y|q\"q|back\\slash|%_|日本|😀|null|0|1e3|-1|ЁЖ|ﬁ|line\nline|tab\t|\0"
)
_BYTES: Final = "|00|ff|5c27|61|6100|e697a5|80|c3|00ff00ff|0a1a22|4141414141414141414141414141414141414141"
_DATES: Final = "2024-02-29|1970-01-01|1000-01-01|9999-12-31|0000-00-00|2010-00-00|2023-02-31|2021-03-28"
_TIMES: Final = "00:00:00|23:59:59|23:59:59.999999|02:30:00|12:00:00.5|01:00:00.000001|02:59:59.9999999"
_DURATIONS: Final = "838:59:59|-838:59:59|00:00:00|-00:00:01|12:34:56.789012|99:00:00|1"
_JSON: Final = (
    '{}|[]|null|true|-0.5|1e20|"text"|{"a": 1, "b": [1, 2, {"c": null}]}|[[]]|{"quo": "\\\\"", "日本": "😀"}'
    '|12345678901234567890|{"b": 1, "a": 2, "aa": 3}|"\\\\u0000"'
)
_DOUBLES: Final = "0|-0e0|1.5|-1e308|1e-308|3.4028235e38|0.1|123456.789|16777217|1e10"

_LARGE: Final = {
    **dict.fromkeys(("longtext", "mediumtext", "longblob", "mediumblob", "json"), 1_500_000),
    **dict.fromkeys(("text", "blob"), 65_535),
}
"""Bytes at most."""


def _pick(random: Random, alternatives: str) -> str:
    return random.choice(alternatives.split("|"))


def literal(random: Random, column_type: str, *, nullable: bool = True) -> str:
    """SQL of a value for a column of this type."""
    if random.random() < (0.12 if nullable else 0.005):
        return "NULL"
    match = re.match(r"(\w+)(?:\((.*?)\))?(.*)", column_type.lower())
    assert match is not None, column_type
    kind, inner, rest = _ALIASES.get(match[1], match[1]), match[2] or "", match[3]
    if kind in _BITS:
        return _integer(random, _BITS[kind], unsigned="unsigned" in rest)
    if kind == "bit":
        bits = int(inner or 1)
        return str(random.choice((0, 1, (1 << bits) - 1, random.getrandbits(bits))))
    if kind == "decimal":
        return _decimal(random, *map(int, (inner or "10,0").split(",")), unsigned="unsigned" in rest)
    if kind in ("float", "double"):
        value = _pick(random, f"{_DOUBLES}|{random.randrange(-999, 999) / 8}")
        return value.lstrip("-") if "unsigned" in rest else value
    if kind == "year":
        return str(random.choice((0, 1901, 2155, 1970, random.randrange(1901, 2156), 69, 70)))
    if kind == "date":
        return f"'{_date(random)}'"
    if kind in ("datetime", "timestamp"):
        return f"'{_date(random)} {_pick(random, _TIMES)}'"
    if kind == "time":
        return f"'{_pick(random, f'{_DURATIONS}|{_TIMES}')}'"
    if kind == "json":
        return (
            f"'{_pick(random, _JSON)}'"
            if random.random() < 0.7
            else f"JSON_ARRAY({random.randrange(99)}, 'é', NULL)"
        )
    if kind in ("enum", "set"):
        return _element(random, kind, column_type)
    if "binary" in kind or "blob" in kind:
        return f"x'{_pick(random, f'{_BYTES}|{random.randbytes(random.randrange(30)).hex()}')}'"
    return _text(random)


def large(random: Random, column_type: str, *, nullable: bool = True) -> str:
    """The same; a large one, if the column may have such."""
    kind = column_type.partition("(")[0]
    if kind not in _LARGE:
        return literal(random, column_type, nullable=nullable)
    text = f"repeat('{_pick(random, 'x|é|日|a b')}', {random.randrange(_LARGE[kind] // 6)})"
    return f"json_array({text})" if kind == "json" else text


def _integer(random: Random, bits: int, *, unsigned: bool) -> str:
    low, high = (0, 2**bits - 1) if unsigned else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    if random.random() < 0.75:
        return str(random.randrange(0 if unsigned else -20, 60))
    return str(random.choice((low, high, 0, high - 1, low + 1, random.randint(low, high), high + 1)))


def _decimal(random: Random, digits: int, places: int, *, unsigned: bool) -> str:
    most = "9" * (digits - places) or "0"
    sign = "" if unsigned else random.choice(("", "-"))
    fraction = "." + "9" * places if places else ""
    small = f"{random.randrange(100)}.{random.randrange(10**6)}"
    return sign + random.choice((most + fraction, "0", "0.5", "0.000001", small, small, most + "9"))


def _date(random: Random) -> str:
    if random.random() < 0.4:
        return _pick(random, _DATES)
    return f"{random.randrange(1971, 2037)}-{random.randrange(1, 13):02}-{random.randrange(1, 29):02}"


def _element(random: Random, kind: str, column_type: str) -> str:
    names = re.findall(r"'((?:[^']|'')*)'", column_type)
    if random.random() < 0.15:
        return str(random.randrange(len(names) + 2))
    if kind == "enum":
        return f"'{random.choice(names)}'"
    return "'" + ",".join(name for name in names if random.random() < 0.5) + "'"


def _text(random: Random) -> str:
    word = _pick(random, _WORDS) if random.random() < 0.6 else f"w{random.randrange(50)}"
    return "'" + word.replace("\\", "\\\\").replace("'", "''") + "'"
