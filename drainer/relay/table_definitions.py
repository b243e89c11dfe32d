"""Table definitions: of tables of which a relay log has column names and types, from what a downstream says.

Why     a Go drainer's records say which columns a row has, not whether a number is unsigned, what an ENUM's
        elements are or which key columns may be NULL. `relay_tables` asks the downstream. Nothing is asked
        here: who reads files alone needs no driver of a database
Tests   tests/drainer/formats/obinlog/test_writer.py, tests/spark/local/test_without_spark.py
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from drainer.formats.obinlog.reader import ForeignTable
from tidb_binlog.errors import DownstreamError
from tidb_binlog.table_info import (
    BIT,
    BLOB,
    DATE,
    DATETIME,
    DECIMAL,
    DOUBLE,
    ENUM,
    FLAG_NOT_NULL,
    FLAG_PRIMARY,
    FLAG_UNSIGNED,
    FLOAT,
    INT24,
    JSON,
    LONG,
    LONG_BLOB,
    LONGLONG,
    MEDIUM_BLOB,
    SET,
    SHORT,
    STRING,
    TIME,
    TIMESTAMP,
    TINY,
    TINY_BLOB,
    VAR_STRING,
    VARCHAR,
    YEAR,
    Column,
    FieldType,
    Index,
    IndexColumn,
    TableInfo,
)
from tidb_binlog.wire import secondary_binlog_pb2 as pb

TYPES: Final = {
    "tinyint": TINY,
    "smallint": SHORT,
    "mediumint": INT24,
    "int": LONG,
    "bigint": LONGLONG,
    "float": FLOAT,
    "double": DOUBLE,
    "decimal": DECIMAL,
    "bit": BIT,
    "date": DATE,
    "datetime": DATETIME,
    "timestamp": TIMESTAMP,
    "time": TIME,
    "year": YEAR,
    "enum": ENUM,
    "set": SET,
    "json": JSON,
    "char": STRING,
    "varchar": VARCHAR,
    "var_string": VAR_STRING,
    "tinytext": TINY_BLOB,
    "text": BLOB,
    "mediumtext": MEDIUM_BLOB,
    "longtext": LONG_BLOB,
    "binary": STRING,
    "varbinary": VARCHAR,
    "tinyblob": TINY_BLOB,
    "blob": BLOB,
    "mediumblob": MEDIUM_BLOB,
    "longblob": LONG_BLOB,
}
BINARY_TYPES: Final = frozenset({"binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"})
ELEMENT: Final = re.compile(r"'((?:[^']|'')*)'")


class DownstreamColumn:
    """One column as the downstream describes it."""

    def __init__(self, row: tuple[Any, ...]) -> None:
        self.type = str(row[1]).lower()
        self.elements = tuple(text.replace("''", "'") for text in ELEMENT.findall(str(row[1])))
        self.nullable = str(row[2]).upper() == "YES"
        self.charset, self.collation = str(row[3] or ""), str(row[4] or "")


def info_of(table: ForeignTable, theirs: Mapping[str, DownstreamColumn], table_id: int) -> TableInfo:
    """`theirs`: what the downstream says of columns, by name in lower case; where it says nothing, they are
    signed, ENUM and SET without elements."""
    infos = [pb.ColumnInfo.FromString(info) for info in table.columns]
    columns = tuple(
        _column(table, info, theirs.get(info.name.lower()), place) for place, info in enumerate(infos)
    )
    offsets = {column.name: column.offset for column in columns}
    keys = [pb.Key.FromString(key) for key in table.keys]
    named = [(key.name, list(key.column_names)) for key in keys]
    if not named and any(info.is_primary_key for info in infos):
        named = [("PRIMARY", [info.name for info in infos if info.is_primary_key])]
    indexes = tuple(
        Index(
            number,
            name,
            tuple(IndexColumn(column, offsets[column]) for column in names),
            unique=True,
            primary=name.upper() == "PRIMARY",
        )
        for number, (name, names) in enumerate(named, 1)
        if all(column in offsets for column in names)
    )
    return TableInfo(id=table_id, name=table.name, columns=columns, indexes=indexes)


def _column(table: ForeignTable, info: pb.ColumnInfo, theirs: DownstreamColumn | None, place: int) -> Column:
    tp = TYPES.get(info.mysql_type)
    if tp is None:
        raise DownstreamError(
            f"column {info.name} of {table.schema}.{table.name} in the relay log has the type "
            f"{info.mysql_type}, whose values it cannot hold",
            hint="leave the table out, and copy it by other means",
        )
    enumerated = tp in (ENUM, SET)
    if enumerated and theirs is not None and not theirs.type.startswith(info.mysql_type):
        raise DownstreamError(
            f"column {info.name} of {table.schema}.{table.name} is {info.mysql_type} in the relay log, which "
            f"has numbers of elements only, and {theirs.type.partition('(')[0]} downstream",
            hint=f"make it {info.mysql_type} downstream for the recovery",
        )
    flag = FLAG_PRIMARY if info.is_primary_key else 0
    if info.is_primary_key or (theirs is not None and not theirs.nullable):
        flag |= FLAG_NOT_NULL
    if theirs is not None and "unsigned" in theirs.type:
        flag |= FLAG_UNSIGNED
    binary = info.mysql_type in BINARY_TYPES
    kind = FieldType(
        tp,
        flag,
        info.flen,
        info.decimal,
        "binary" if binary else (theirs.charset if theirs else ""),
        "binary" if binary else (theirs.collation if theirs else ""),
        theirs.elements if enumerated and theirs is not None else (),
    )
    return Column(id=place + 1, name=info.name, offset=place, type=kind)
