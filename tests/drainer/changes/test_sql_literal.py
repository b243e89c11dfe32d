"""Literals of values; that a server reads them as the value is in test_values_mariadb.py."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest

from drainer.changes.sql_literal import sql_literal
from tests.cases import case
from tidb_binlog.rowcodec.values import EnumValue, JsonText, PartialDate, SetValue

LITERALS: list[tuple[Any, str]] = [
    (None, "NULL"),
    (True, "1"),
    (-(2**63), "-9223372036854775808"),
    (2**64 - 1, "18446744073709551615"),
    (1.5, "1.5e0"),
    (-1e300, "-1e+300"),
    (Decimal("-0.10"), "-0.10"),
    (Decimal("1E+3"), "1000"),
    ("it's \\ 日本", "'it''s \\\\ 日本'"),
    (b"", "x''"),
    (b"\x00'\xff", "x'0027ff'"),
    (bytearray(b"a"), "x'61'"),
    (date(2024, 2, 29), "'2024-02-29'"),
    (datetime(2024, 2, 29, 1, 2, 3, 450), "'2024-02-29 01:02:03.000450'"),
    (datetime(2024, 2, 29, 1, 2, 3, tzinfo=UTC), "'2024-02-29 01:02:03'"),
    (datetime(2024, 2, 29, 1, tzinfo=timezone(timedelta(hours=2))), "'2024-02-28 23:00:00'"),
    (time(1, 2, 3), "'01:02:03'"),
    (-timedelta(hours=30, microseconds=1), "'-30:00:00.000001'"),
    (PartialDate("2010-02-30"), "'2010-02-30'"),
    (EnumValue("it's", 2), "'it''s'"),
    (EnumValue("", 0), "0"),
    (EnumValue("", 3), "3"),
    (SetValue("a,b", 3), "'a,b'"),
    (SetValue("", 0), "''"),
    (JsonText('{"a": "\\n"}'), '\'{"a": "\\\\n"}\''),
]


def test_literals() -> None:
    for value, literal in LITERALS:
        with case(value, literal):
            assert sql_literal(value) == literal


def test_what_is_no_value_of_a_column_is_refused() -> None:
    with pytest.raises(TypeError, match="a dict is no value of a column"):
        sql_literal({"a": 1})
