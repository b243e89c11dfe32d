"""Kinds: column types: SQL text, TiDB's field type, and how a value is shown when compared.

Tests  tests/rig/workload/test_encoding.py
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from tidb_binlog import table_info as ti

UNSIGNED: Final = ti.FLAG_UNSIGNED
BINARY: Final = 128
ZEROFILL: Final = 64

Value = int | float | str | bytes | None


@dataclass(frozen=True, slots=True)
class Kind:
    """A column type: its SQL text, its TiDB field type, and how a value is shown when compared."""

    sql: str
    tp: int
    repr: str  # int, uint, dec, double, hex, text: as in a recorded scenario
    flag: int = 0
    flen: int = -1
    decimal: int = 0
    charset: str = "binary"
    collate: str = "binary"
    elems: tuple[str, ...] = ()

    @property
    def ignores_case(self) -> bool:
        return self.collate.endswith("_ci")

    def field_type(self, extra_flags: int) -> dict[str, Any]:
        return {
            "Tp": self.tp,
            "Flag": self.flag | extra_flags,
            "Flen": self.flen,
            "Decimal": self.decimal,
            "Charset": self.charset,
            "Collate": self.collate,
            "Elems": list(self.elems) or None,
            "ElemsIsBinaryLit": None,
            "Array": False,
        }


def _text(sql: str, tp: int, flen: int, collate: str = "utf8mb4_bin") -> Kind:
    if collate != "utf8mb4_bin":
        sql = f"{sql} COLLATE {collate}"
    return Kind(sql, tp, "text", flen=flen, charset="utf8mb4", collate=collate)


def varchar(length: int, collate: str = "utf8mb4_bin") -> Kind:
    return _text(f"VARCHAR({length})", ti.VARCHAR, length, collate)


def _narrow(charset: str) -> Kind:
    collate = f"{charset}_bin"
    sql = f"VARCHAR(20) CHARACTER SET {charset} COLLATE {collate}"
    return Kind(sql, ti.VARCHAR, "text", flen=20, charset=charset, collate=collate)


LATIN1: Final = _narrow("latin1")
GBK: Final = _narrow("gbk")
TINYINT: Final = Kind("TINYINT", ti.TINY, "int", flen=4)
SMALLINT: Final = Kind("SMALLINT", ti.SHORT, "int", flen=6)
MEDIUMINT: Final = Kind("MEDIUMINT", ti.INT24, "int", flen=9)
INT: Final = Kind("INT", ti.LONG, "int", flen=11)
INT_UNSIGNED: Final = Kind("INT UNSIGNED", ti.LONG, "int", UNSIGNED, 10)
BIGINT: Final = Kind("BIGINT", ti.LONGLONG, "int", flen=20)
BIGINT_UNSIGNED: Final = Kind("BIGINT UNSIGNED", ti.LONGLONG, "int", UNSIGNED, 20)
DECIMAL: Final = Kind("DECIMAL(20,6)", ti.DECIMAL, "dec", flen=20, decimal=6)
FLOAT: Final = Kind("FLOAT", ti.FLOAT, "double", flen=12, decimal=-1)
DOUBLE: Final = Kind("DOUBLE", ti.DOUBLE, "double", flen=22, decimal=-1)
BIT: Final = Kind("BIT(17)", ti.BIT, "uint", UNSIGNED, 17)
YEAR: Final = Kind("YEAR", ti.YEAR, "int", UNSIGNED | ZEROFILL, 4)
DATE: Final = Kind("DATE", ti.DATE, "text", BINARY, 10)
DATETIME: Final = Kind("DATETIME(3)", ti.DATETIME, "text", BINARY, 23, 3)
TIMESTAMP: Final = Kind("TIMESTAMP(6)", ti.TIMESTAMP, "text", BINARY, 26, 6)
TIME: Final = Kind("TIME(2)", ti.TIME, "text", BINARY, 13, 2)
CHAR: Final = _text("CHAR(12)", ti.STRING, 12)
TEXT: Final = _text("TEXT", ti.BLOB, 65535)
BINARY_FIXED: Final = Kind("BINARY(6)", ti.STRING, "hex", BINARY, 6)
VARBINARY: Final = Kind("VARBINARY(20)", ti.VARCHAR, "hex", BINARY, 20)
BLOB: Final = Kind("BLOB", ti.BLOB, "hex", BINARY, 65535)
JSON: Final = Kind("JSON", ti.JSON, "text", BINARY, 4294967295)
ENUM: Final = Kind(
    "ENUM('small','big','ü,x')",
    ti.ENUM,
    "text",
    flen=5,
    charset="utf8mb4",
    collate="utf8mb4_bin",
    elems=("small", "big", "ü,x"),
)
SET: Final = Kind(
    "SET('a','b','c','d e')",
    ti.SET,
    "text",
    flen=9,
    charset="utf8mb4",
    collate="utf8mb4_bin",
    elems=("a", "b", "c", "d e"),
)

ALL_KINDS: Final[tuple[tuple[str, Kind], ...]] = (
    ("c_tiny", TINYINT),
    ("c_small", SMALLINT),
    ("c_medium", MEDIUMINT),
    ("c_int", INT_UNSIGNED),
    ("c_big", BIGINT),
    ("c_ubig", BIGINT_UNSIGNED),
    ("c_decimal", DECIMAL),
    ("c_float", FLOAT),
    ("c_double", DOUBLE),
    ("c_bit", BIT),
    ("c_year", YEAR),
    ("c_date", DATE),
    ("c_datetime", DATETIME),
    ("c_timestamp", TIMESTAMP),
    ("c_time", TIME),
    ("c_char", CHAR),
    ("c_varchar", varchar(40)),
    ("c_text", TEXT),
    ("c_binary", BINARY_FIXED),
    ("c_varbinary", VARBINARY),
    ("c_blob", BLOB),
    ("c_enum", ENUM),
    ("c_set", SET),
    ("c_json", JSON),
)
