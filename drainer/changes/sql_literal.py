"""SQL literal: a value of a row as a statement writes it.

Out    text for MySQL, MariaDB and TiDB, in a session with `time_zone = '+00:00'` and backslash escapes
Why    a program that writes statements of its own needs no driver to know what a value looks like
"""

from __future__ import annotations

from datetime import date, time, timedelta
from decimal import Decimal
from typing import Any

from drainer.mysql.literal.literals import double_literal
from drainer.mysql.literal.quoting import string_literal
from tidb_binlog.rowcodec.temporal import clock_text
from tidb_binlog.rowcodec.values import EnumValue


def sql_literal(value: Any) -> str:
    """The literal of a value: `NULL`, `-1.50`, `'it''s'`, `x'00ff'`. TypeError for other classes.

    An ENUM without a text is its number.
    """
    if value is None:
        return "NULL"
    if isinstance(value, EnumValue) and not value:
        return str(value.number)
    if isinstance(value, str):
        return string_literal(value).decode()
    if isinstance(value, int):
        return str(int(value))
    if isinstance(value, float):
        return double_literal(value).decode()
    if isinstance(value, Decimal):
        return f"{value:f}"
    if isinstance(value, date | time | timedelta):
        return f"'{clock_text(value)}'"
    if isinstance(value, bytes | bytearray | memoryview):
        return f"x'{bytes(value).hex()}'"
    raise TypeError(f"a {type(value).__name__} is no value of a column")
