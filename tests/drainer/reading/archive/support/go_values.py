"""What the Go drainer's decoded output says of rows, as the views have it: as JSON, and typed.

Nothing of the readers under test is used here but the definitions of the tables.
"""

from __future__ import annotations

import base64
import datetime
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from tidb_binlog.table_info import (
    BIT,
    DATE,
    DATETIME,
    DECIMAL,
    DOUBLE,
    ENUM,
    FLOAT,
    INTEGER_TYPES,
    JSON,
    LONGLONG,
    SET,
    TIME,
    TIMESTAMP,
    YEAR,
    FieldType,
)

_TIME = re.compile(r"(-?)(\d+):(\d\d):(\d\d)(?:\.(\d+))?")


@dataclass(frozen=True)
class Invalid:
    """A value that a typed column cannot hold, and what is said of it instead."""

    text: Any


def raw(value: Any) -> bytes:
    return bytes.fromhex(value["hex"]) if isinstance(value, dict) else str(value).encode()


def names(kind: FieldType, number: int) -> str | None:
    if kind.tp == ENUM:
        return kind.elems[number - 1] if 0 < number <= len(kind.elems) else None
    if not kind.elems or number >> len(kind.elems):
        return None
    return ",".join(name for bit, name in enumerate(kind.elems) if number >> bit & 1)


def as_json(kind: FieldType, value: Any) -> Any:
    """A cell of an image, parsed."""
    tp = kind.tp
    if value is None:
        return None
    if tp == JSON:
        return json.loads(value)
    if tp in INTEGER_TYPES or tp == BIT:
        return str(value) if (kind.unsigned and tp != YEAR) or tp == BIT else value
    if tp in (FLOAT, DOUBLE):
        return float(value["double"])
    if tp in (ENUM, SET):
        found = names(kind, value)
        return value if found is None else found
    if tp in (DECIMAL, DATE, DATETIME, TIMESTAMP, TIME):
        return value
    if kind.is_binary_string:
        return base64.b64encode(raw(value)).decode()
    return value if isinstance(value, str) else {"base64": base64.b64encode(raw(value)).decode()}


def from_json(kind: FieldType, cell: Any) -> Any:
    """A cell of an image as `as_json` says it: a document is the same whatever stands between its parts."""
    return json.loads(cell) if kind.tp == JSON and cell is not None else cell


def typed(kind: FieldType, value: Any) -> Any:
    """A cell of a typed column, as pyarrow gives it; `Invalid` if it cannot hold the value."""
    tp = kind.tp
    if value is None:
        return None
    if tp == JSON:
        return json.loads(value)
    if tp in INTEGER_TYPES or tp == BIT:
        return Decimal(value) if tp == BIT or (tp == LONGLONG and kind.unsigned) else value
    if tp in (FLOAT, DOUBLE):
        return float(value["double"])
    if tp in (ENUM, SET):
        found = names(kind, value)
        return Invalid(str(value)) if found is None else found
    if tp == DECIMAL:
        return Decimal(value) if kind.flen <= 38 else value
    if tp in (DATE, DATETIME, TIMESTAMP):
        return _moment(tp, value)
    if tp == TIME:
        return _duration(value)
    if kind.is_binary_string:
        return raw(value)
    return value if isinstance(value, str) else Invalid(as_json(kind, value))


def _moment(tp: int, text: str) -> Any:
    try:
        if tp == DATE:
            return datetime.date.fromisoformat(text)
        found = datetime.datetime.fromisoformat(text)
    except ValueError:
        return Invalid(text)
    return found.replace(tzinfo=datetime.UTC) if tp == TIMESTAMP else found


def _duration(text: str) -> datetime.timedelta:
    match = _TIME.fullmatch(text)
    assert match is not None
    sign, hours, minutes, seconds, fraction = match.groups()
    found = datetime.timedelta(
        hours=int(hours),
        minutes=int(minutes),
        seconds=int(seconds),
        microseconds=int((fraction or "").ljust(6, "0")),
    )
    return -found if sign else found


def halves(event: Mapping[str, Any]) -> dict[str, dict[str, Any] | None]:
    """Values before and after a change, by column."""
    value = {one["name"]: one["value"] for one in event["columns"]}
    if event["tp"] == "insert":
        return {"before": None, "after": value}
    if event["tp"] == "delete":
        return {"before": value, "after": None}
    return {"before": value, "after": {one["name"]: one["changed"] for one in event["columns"]}}
