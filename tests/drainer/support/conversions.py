"""What a real TiDB made of values when their column's type changed: `tests/golden/conversions`."""

from __future__ import annotations

import gzip
import json
import re
import struct
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from functools import cache
from typing import Any

from drainer.ddl.convert.cast import Value, float_text, member_name
from tests.drainer.support import recorded
from tidb_binlog import table_info as ti
from tidb_binlog.table_info import ColumnKind, FieldType

DAY = datetime(2026, 11, 23)
"""When it was recorded."""
_TYPES = {
    "tinyint": ti.TINY,
    "int": ti.LONG,
    "bigint": ti.LONGLONG,
    "float": ti.FLOAT,
    "double": ti.DOUBLE,
    "decimal": ti.DECIMAL,
    "year": ti.YEAR,
    "bit": ti.BIT,
    "date": ti.DATE,
    "datetime": ti.DATETIME,
    "timestamp": ti.TIMESTAMP,
    "time": ti.TIME,
    "char": ti.STRING,
    "varchar": ti.VARCHAR,
    "text": ti.BLOB,
    "binary": ti.STRING,
    "varbinary": ti.VARCHAR,
    "blob": ti.BLOB,
    "json": ti.JSON,
    "enum": ti.ENUM,
    "set": ti.SET,
}


@dataclass(frozen=True)
class Case:
    source: str
    target: str
    literal: str
    was: str | None
    after: str | None
    hex: str | None


@cache
def cases() -> list[Case]:
    """Those that TiDB did not refuse."""
    with gzip.open(
        recorded.ROOT.parent / "conversions" / "conversions.jsonl.gz", "rt", encoding="utf-8"
    ) as file:
        rows = [json.loads(line) for line in file]
    return [
        Case(row["from"], row["to"], row["literal"], row["was"], row["is"], row["hex"])
        for row in rows
        if "refused" not in row
    ]


def field_type(text: str) -> FieldType:
    """Of SQL, as TiDB would define it."""
    match = re.fullmatch(r"(\w+)(?:\((.*)\))?( unsigned)?", text)
    assert match is not None
    name, inside = match[1], match[2] or ""
    tp = _TYPES[name]
    flag = ti.FLAG_UNSIGNED if match[3] or tp == ti.YEAR else 0
    charset, collate = ("utf8mb4", "utf8mb4_bin")
    if name in ("binary", "varbinary", "blob"):
        charset = collate = "binary"
    flen, decimal, elems = -1, -1, ()
    if tp in (ti.ENUM, ti.SET):
        elems = tuple(json.loads(f"[{inside}]".replace("'", '"')))
    elif tp in (ti.DATETIME, ti.TIMESTAMP, ti.TIME):
        decimal = int(inside or 0)
    elif inside:
        flen, decimal = [*map(int, inside.split(",")), -1][:2]
    return FieldType(tp, flag, flen, decimal, charset, collate, elems)


def value_before(case: Case) -> Value:
    kind = field_type(case.source).kind
    if case.was is None:
        return None
    if kind is ColumnKind.BIT:
        return int(case.literal, 0) if "'" not in case.literal else int(case.literal.strip("b'"), 2)
    if kind is ColumnKind.SET:
        elems = field_type(case.source).elems
        return sum(1 << elems.index(one) for one in case.was.split(",") if one)
    if kind is ColumnKind.ENUM:
        return field_type(case.source).elems.index(case.was) + 1
    if kind is ColumnKind.BINARY:
        return bytes.fromhex(case.was)
    if kind in (ColumnKind.TEXT, ColumnKind.JSON):
        return case.was.encode()
    if kind is ColumnKind.DOUBLE:
        return float(case.literal) + 0.0  # TiDB reads -0.0 as a decimal, which has no negative zero
    if kind is ColumnKind.FLOAT:
        return float(struct.unpack("<f", struct.pack("<f", float(case.literal)))[0])
    if kind is ColumnKind.DECIMAL:
        return Decimal(case.was)
    return case.was if kind in _PRINTED else int(case.was)


_PRINTED = (ColumnKind.DATE, ColumnKind.DATETIME, ColumnKind.TIMESTAMP, ColumnKind.TIME)


def shown(value: Value, target: FieldType) -> tuple[str | None, str | None]:
    """CAST(v AS CHAR) as TiDB shows it, None where only the bytes tell; and HEX(v)."""
    if value is None:
        return None, None
    kind: Any = target.kind
    if isinstance(value, bytes):
        return None, value.hex().upper()
    if isinstance(value, str):
        return value, value.encode().hex().upper()
    if kind in (ColumnKind.ENUM, ColumnKind.SET):
        name = member_name(int(value), target)
        return name, name.encode().hex().upper()
    if isinstance(value, float):
        return float_text(value, kind is ColumnKind.FLOAT), None
    if isinstance(value, Decimal):
        return f"{value:f}", None
    number = f"{value & ((1 << 64) - 1):X}"
    if kind is ColumnKind.BIT:
        return None, number
    return (f"{value:04d}" if kind is ColumnKind.YEAR else str(value)), number
