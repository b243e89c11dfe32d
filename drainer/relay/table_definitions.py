"""Table definitions: of tables of which a relay log has column names and types, from what a downstream says.

Why     a Go drainer's records say which columns a row has, not whether a number is unsigned, what an ENUM's
        elements are or which key columns may be NULL. `downstream_definitions` asks the downstream.
        Nothing is asked here: who reads files alone needs no driver of a database
Tests   tests/drainer/formats/obinlog/test_writer.py, tests/spark/local/test_without_spark.py
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from drainer.formats.obinlog.reader import ForeignTable
from drainer.formats.obinlog.writer import BINARY_NAMES, TYPE_NAMES, type_name
from tidb_binlog import table_info as ti
from tidb_binlog.errors import DownstreamError
from tidb_binlog.table_info import Column, FieldType, Index, IndexColumn, TableInfo
from tidb_binlog.wire import secondary_binlog_pb2 as pb

BINARY_TYPES: Final = frozenset(BINARY_NAMES.values())
_TEXT_TYPES: Final = {name: tp for tp, name in reversed(TYPE_NAMES.items())}
TYPES: Final = _TEXT_TYPES | {binary: _TEXT_TYPES[text] for text, binary in BINARY_NAMES.items()}
"""Type codes by their names."""


def info_of(table: ForeignTable, theirs: Mapping[str, Column], table_id: int) -> TableInfo:
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


def _column(table: ForeignTable, info: pb.ColumnInfo, theirs: Column | None, place: int) -> Column:
    tp = TYPES.get(info.mysql_type)
    if tp is None:
        raise DownstreamError(
            f"column {info.name} of {table.schema}.{table.name} in the relay log has the type "
            f"{info.mysql_type}, whose values it cannot hold",
            hint="leave the table out, and copy it by other means",
        )
    enumerated = tp in (ti.ENUM, ti.SET)
    flag = ti.FLAG_PRIMARY if info.is_primary_key else 0
    charset = collation = ""
    elements: tuple[str, ...] = ()
    if theirs is not None:
        kind = theirs.type
        if enumerated and kind.tp != tp:
            raise DownstreamError(
                f"column {info.name} of {table.schema}.{table.name} is {info.mysql_type} in the relay log,"
                f" which has numbers of elements only, and {type_name(kind)} downstream",
                hint=f"make it {info.mysql_type} downstream for the recovery",
            )
        flag |= kind.flag & (ti.FLAG_NOT_NULL if tp == ti.YEAR else ti.FLAG_NOT_NULL | ti.FLAG_UNSIGNED)
        if kind.charset != "binary":
            charset, collation = kind.charset, kind.collate
        elements = kind.elems if enumerated else ()
    if info.is_primary_key:
        flag |= ti.FLAG_NOT_NULL
    if info.mysql_type in BINARY_TYPES:
        charset = collation = "binary"
    field_type = FieldType(tp, flag, info.flen, info.decimal, charset, collation, elements)
    return Column(id=place + 1, name=info.name, offset=place, type=field_type)
