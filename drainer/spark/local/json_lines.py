"""JSON lines: rows as Spark's `to_json` writes them.

Out    one JSON object a row, without blanks and without what is null
Holds  times have milliseconds, as Spark cuts them; binary is base64; a TIME is an interval. The digits of
       FLOAT and DOUBLE are the fewest that tell the number apart, as Java writes them from version 19 on
Tests  tests/spark/local/test_same_output.py
"""

from __future__ import annotations

import base64
import datetime
import json
import re
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from typing import Any, Final

import numpy as np
import pyarrow as pa

_ESCAPED: Final = re.compile(r"\\(?:u00[01][0-9a-f]|.)")
_LARGE, _SMALL = 1e7, 1e-3
"""Between these Java writes no exponent."""
_DAY_US: Final = 86_400_000_000

Write = Callable[[Any], str]


def lines(schema: pa.Schema, rows: Iterable[Mapping[str, Any]]) -> list[str]:
    write = _object(list(schema))
    return [write(row) for row in rows]


def _object(fields: list[pa.Field]) -> Write:
    writers = [(field.name, f"{_text(field.name)}:", _writer(field.type)) for field in fields]

    def write(value: Mapping[str, Any]) -> str:
        parts = [
            head + write_field(value[name])
            for name, head, write_field in writers
            if value.get(name) is not None
        ]
        return "{" + ",".join(parts) + "}"

    return write


def _writer(kind: pa.DataType) -> Write:
    if pa.types.is_struct(kind):
        return _object([kind.field(place) for place in range(kind.num_fields)])
    if pa.types.is_list(kind):
        write_item = _writer(kind.value_type)
        return lambda value: "[" + ",".join(map(write_item, value)) + "]"
    for fits, write in _WRITERS:
        if fits(kind):
            return write
    raise NotImplementedError(str(kind))


def _text(value: str) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return _ESCAPED.sub(_upper, text) if "\\u00" in text else text


def _upper(match: re.Match[str]) -> str:
    escaped = match[0]
    return "\\u" + escaped[2:].upper() if len(escaped) > 2 else escaped


def _binary(value: bytes) -> str:
    return f'"{base64.b64encode(value).decode()}"'


def _boolean(value: bool) -> str:
    return "true" if value else "false"


def _time(value: datetime.datetime) -> str:
    zone = "" if value.tzinfo is None else "Z"
    return f'"{value.replace(tzinfo=None).isoformat(timespec="milliseconds")}{zone}"'


def _date(value: datetime.date) -> str:
    return f'"{value.isoformat()}"'


def _interval(value: datetime.timedelta) -> str:
    micros = value // datetime.timedelta(microseconds=1)
    days, rest = divmod(abs(micros), _DAY_US)
    seconds, fraction = divmod(rest, 1_000_000)
    minutes, second = divmod(seconds, 60)
    hour, minute = divmod(minutes, 60)
    part = f".{fraction:06d}".rstrip("0") if fraction else ""
    sign = "-" if micros < 0 else ""
    return f"\"INTERVAL '{sign}{days} {hour:02d}:{minute:02d}:{second:02d}{part}' DAY TO SECOND\""


def _floating(number: type[np.floating[Any]]) -> Write:
    def write(value: float) -> str:
        if value == 0:
            return "-0.0" if str(value).startswith("-") else "0.0"
        if _SMALL <= abs(value) < _LARGE:
            return str(np.format_float_positional(number(value), unique=True, trim="0"))
        digits, _, exponent = np.format_float_scientific(number(value), unique=True, trim="0").partition("e")
        if digits.endswith(".0"):  # of two digits the nearer ones, if they tell it apart, too
            nearer = f"{value:.1e}"
            if number(nearer) == number(value):
                digits, _, exponent = nearer.partition("e")
        return f"{digits}E{int(exponent)}"

    return write


def _decimal(value: Decimal) -> str:
    return str(value)


_WRITERS: Final[tuple[tuple[Callable[[pa.DataType], bool], Write], ...]] = (
    (pa.types.is_string, _text),
    (pa.types.is_boolean, _boolean),
    (pa.types.is_integer, str),
    (pa.types.is_decimal, _decimal),
    (pa.types.is_float32, _floating(np.float32)),
    (pa.types.is_float64, _floating(np.float64)),
    (pa.types.is_timestamp, _time),
    (pa.types.is_date, _date),
    (pa.types.is_duration, _interval),
    (pa.types.is_binary, _binary),
)
