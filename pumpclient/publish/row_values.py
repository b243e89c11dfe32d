"""Row values: what database drivers and mappers return, as the row encoder takes it.

In     a table, a row by column name: str, bytes, int, float, bool, Decimal, date, datetime, time, timedelta,
       Enum, UUID, set, None; dict and list for JSON
Out    the same row for `RowEncoder`
Holds  a name that is no column is an error, not a column forgotten; TIMESTAMP is UTC: a datetime with a zone
       is converted, one without is taken as UTC
Tests  tests/pumpclient/publish/test_schema_publishing.py
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any, Final
from uuid import UUID

from common import table_info as ti
from common.rowcodec.temporal import clock_text
from common.table_info import FieldType, TableInfo
from pumpclient.errors import InvalidDefinition

Row = Mapping[str, Any]

_PLAIN: Final = (str, bytes, int, float, Decimal)


def row_values(info: TableInfo, row: Row) -> dict[str, Any]:
    """The row with the names of the table's columns. Raises `InvalidDefinition`; no value is in its text."""
    columns = {column.name.lower(): column for column in info.columns}
    found: dict[str, Any] = {}
    for name, value in row.items():
        column = columns.get(name.lower())
        if column is None:
            raise InvalidDefinition(
                f"table {info.name} has no column {name}", hint="publish its schema first"
            )
        try:
            found[column.name] = None if value is None else _value(column.type, value)
        except (TypeError, ValueError):
            raise InvalidDefinition(
                f"column {name} of table {info.name} cannot hold a {type(value).__name__}"
            ) from None
    for column in info.columns:
        if column.name not in found:
            if column.type.not_null and column.default is None:
                raise InvalidDefinition(f"the row has no column {column.name} of table {info.name}")
            found[column.name] = column.default
    return found


def _value(kind: FieldType, value: Any) -> Any:
    if kind.tp == ti.JSON:
        return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    if isinstance(value, Enum):
        value = value.name if kind.tp == ti.ENUM else value.value
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, _PLAIN):
        return value
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    if isinstance(value, date | time | timedelta):
        return clock_text(value)
    if isinstance(value, UUID):
        return value.bytes if kind.is_binary_string else value.hex
    if isinstance(value, set | frozenset):
        return ",".join(sorted(map(str, value)))
    raise TypeError
