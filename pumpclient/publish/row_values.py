"""Row values: what database drivers and mappers return, as the row encoder takes it.

In     a table, a row by column name, or an object whose fields have the columns' names. Values: str, bytes,
       int, float, bool, Decimal, date, datetime, time, timedelta, Enum, UUID, set, None; dict and list for
       JSON
Out    the same row for `RowEncoder`
Holds  a name that is no column is an error, not a column forgotten; TIMESTAMP is UTC: a datetime with a zone
       is converted, one without is taken as UTC. What a strict server refuses is refused
Tests  tests/pumpclient/publish/test_publisher_schema_publishing.py
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any, Final
from uuid import UUID

from pumpclient.errors import InvalidDefinition, InvalidValue
from pumpclient.schema.value_fit import Unfit, fit
from tidb_binlog import table_info as ti
from tidb_binlog.errors import ConfigError
from tidb_binlog.row_class import columns_of
from tidb_binlog.rowcodec.temporal import clock_text
from tidb_binlog.table_info import FieldType, TableInfo

Row = Mapping[str, Any] | object
"""Values by column, or an object of a dataclass, or of a class of attrs or pydantic."""

_PLAIN: Final = (str, bytes, int, float, Decimal)


def row_values(info: TableInfo, row: Row, *, old: bool = False) -> dict[str, Any]:
    """The row with the names of the table's columns. `old`: one that is there already, perhaps since its
    columns were others: a value that no column takes any more is taken as it is. Raises `InvalidDefinition`,
    `InvalidValue`."""
    row = _given(info, row)
    columns = {column.name.lower(): column for column in info.columns}
    values: dict[str, Any] = {}
    for name, value in row.items():
        column = columns.get(name.lower())
        if column is None:
            names = ", ".join(column.name for column in info.columns)
            raise InvalidDefinition(
                f"table {info.name} has no column {name}",
                hint=f"it has {names}; add_column publishes another one",
            )
        try:
            values[column.name] = _fitting(column.type, value, old=old)
        except Unfit as error:
            raise InvalidValue(
                f"column {column.name} of table {info.name} cannot hold this {_kind(value)}: {error}",
                hint="a strict server would refuse it, too",
            ) from None
        except (TypeError, ValueError):
            raise InvalidValue(
                f"column {column.name} of table {info.name} cannot hold a {type(value).__name__}"
            ) from None
    for column in info.columns:
        if column.name not in values:
            if column.type.not_null and column.default is None:
                raise InvalidDefinition(f"the row has no column {column.name} of table {info.name}")
            values[column.name] = column.default
    return values


def updated_values(info: TableInfo, before: Row, after: Row) -> tuple[dict[str, Any], dict[str, Any]]:
    """Both rows of an update. A column that the row before has may not be left out of the row after: its
    default would take the place of its value. Raises as `row_values`."""
    old, new = _given(info, before), _given(info, after)
    names = {name.lower() for name in new}
    if lacking := [name for name in old if name.lower() not in names]:
        raise InvalidDefinition(
            f"the row after an update of table {info.name} lacks {', '.join(lacking)}, which that before has",
            hint="give all columns of both: {**before, **changes}",
        )
    return row_values(info, old, old=True), row_values(info, new)


def _given(info: TableInfo, row: Row) -> Mapping[str, Any]:
    if isinstance(row, Mapping):
        return row
    try:
        return columns_of(row)
    except ConfigError as error:
        raise InvalidDefinition(f"a row of table {info.name}: {error.message}", hint=error.hint) from None


def _fitting(kind: FieldType, value: Any, *, old: bool) -> Any:
    if value is None:
        if kind.not_null:  # of an old row, too: nobody can find one whose key is NULL
            raise Unfit("it is NOT NULL")
        return None
    plain = _value(kind, value)
    try:
        return fit(kind, plain)
    except Unfit:
        if not old:
            raise
        return plain


def _kind(value: Any) -> str:
    """Not the value itself: errors are logged."""
    return "NULL" if value is None else type(value).__name__


def _value(kind: FieldType, value: Any) -> Any:
    if kind.tp == ti.JSON:
        return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, allow_nan=False)
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
