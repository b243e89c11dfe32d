"""Downstream definitions: table versions made of information_schema alone.

Drives  a connection of its caller, or one of its own
Why     an archive of a Go drainer says of an event's columns how they are called and of which type they are,
        not which of them are the key, which are unsigned or what an ENUM's elements are. The table downstream
        says it: every schema change before the event has run there
Holds   as many queries for a thousand tables as for one, but of a TiDB; what was read stays until `forget`,
        which every DDL calls
Tests   tests/spark/replay/test_entry.py, tests/drainer/mysql/test_table_reader.py
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

from drainer.formats.obinlog.reader import ForeignTable
from drainer.mysql.connection import Connection, Target
from drainer.mysql.errors import NoSuchTable, TransientError, passing_error
from drainer.mysql.rows.dialect import Dialect
from drainer.mysql.session import DownstreamSession
from drainer.mysql.table_reader import keys_of, listed_now
from drainer.relay.table_definitions import BINARY_TYPES, TYPES, info_of
from drainer.txn import TableVersion
from tidb_binlog import table_info as ti
from tidb_binlog.errors import DownstreamError
from tidb_binlog.table_info import Column, FieldType, Index, IndexColumn, TableInfo

SYSTEM: Final = frozenset(
    {"information_schema", "performance_schema", "mysql", "sys", "tidb_binlog", "tidb_binlog_reparo"}
)
_NOT_SYSTEM: Final = " NOT IN (" + ",".join(f"'{name}'" for name in sorted(SYSTEM)) + ")"
_COLUMNS: Final = (
    "SELECT c.TABLE_SCHEMA, c.TABLE_NAME, COLUMN_NAME, COLUMN_TYPE, IS_NULLABLE, COLLATION_NAME, DATA_TYPE,"
    " CHARACTER_SET_NAME, EXTRA FROM information_schema.COLUMNS c"
    " JOIN information_schema.TABLES t ON c.TABLE_SCHEMA=t.TABLE_SCHEMA AND c.TABLE_NAME=t.TABLE_NAME"
    f" WHERE TABLE_TYPE='BASE TABLE' AND c.TABLE_SCHEMA{_NOT_SYSTEM}"
    " ORDER BY c.TABLE_SCHEMA, c.TABLE_NAME, ORDINAL_POSITION"
)
_KEYS: Final = (
    "SELECT TABLE_SCHEMA, TABLE_NAME, INDEX_NAME, COLUMN_NAME, SUB_PART FROM information_schema.STATISTICS"
    f" WHERE NON_UNIQUE=0 AND TABLE_SCHEMA{_NOT_SYSTEM}"
    " ORDER BY TABLE_SCHEMA, TABLE_NAME, INDEX_NAME, SEQ_IN_INDEX"
)
JSON_CHECKS: Final = (
    "SELECT CONSTRAINT_SCHEMA, TABLE_NAME, CHECK_CLAUSE FROM information_schema.CHECK_CONSTRAINTS"
    f" WHERE CHECK_CLAUSE LIKE 'json_valid(%' AND CONSTRAINT_SCHEMA{_NOT_SYSTEM}"
)
_CHECKED: Final = re.compile(r"json_valid\(`((?:[^`]|``)*)`\)")
_ELEMENT: Final = re.compile(r"'((?:[^']|'')*)'")
_SIZES: Final = re.compile(r"\((\d+)(?:,(\d+))?\)")
_WITH_FRACTION: Final = frozenset({"datetime", "timestamp", "time"})

Wanted = Callable[[str, str], bool]
Name = tuple[str, str]
Keys = dict[str, list[tuple[str, int | None]]]


def read(connection: Connection, wants: Wanted) -> list[TableVersion]:
    """Definitions of all base tables that are wanted, by name."""
    columns: dict[Name, list[tuple[Any, ...]]] = {}
    for schema, table, *column in connection.rows(_COLUMNS.encode()):
        if wants(schema, table):
            columns.setdefault((schema, table), []).append(tuple(column))
    keys: dict[Name, Keys] = {}
    for schema, table, index, column_name, length in connection.rows(_KEYS.encode()):
        keys.setdefault((schema, table), {}).setdefault(index, []).append((column_name, length))
    if connection.dialect is Dialect.TIDB:
        for name in list(columns):
            _take_listed_now(connection, name, columns, keys)
    checked = _json_columns(connection)
    connection.rollback()
    return [
        TableVersion(_info(number, name, described, keys.get(name, {}), checked), *name, 0)
        for number, (name, described) in enumerate(columns.items(), 1)
    ]


def _take_listed_now(
    connection: Connection, name: Name, columns: dict[Name, list[tuple[Any, ...]]], keys: dict[Name, Keys]
) -> None:
    with connection.cursor() as cursor:
        try:
            columns[name] = list(listed_now(cursor, columns[name], name))
            parts = keys_of(cursor, "", name, Dialect.TIDB)
        except NoSuchTable:
            del columns[name]
            return
    keys[name] = {}
    for index, _, column_name, length, non_unique, *_ in parts:
        if not int(non_unique):
            keys[name].setdefault(index, []).append((column_name, length))


def _json_columns(connection: Connection) -> frozenset[tuple[str, str, str]]:
    """MariaDB has JSON as text with a check; a release that does not show checks makes none."""
    if connection.dialect is not Dialect.MARIADB:
        return frozenset()
    return frozenset(
        (schema, table, checked[1].replace("``", "`").lower())
        for schema, table, clause in connection.rows_if_there(JSON_CHECKS.encode())[0]
        if (checked := _CHECKED.fullmatch(clause))
    )


def _info(
    number: int,
    name: Name,
    described: list[tuple[Any, ...]],
    keys: Keys,
    checked: frozenset[tuple[str, str, str]],
) -> TableInfo:
    primary = {column for column, _ in keys.get("PRIMARY", ())}
    columns = tuple(
        _column(place, column, column[0] in primary, (*name, str(column[0]).lower()) in checked)
        for place, column in enumerate(described)
    )
    offsets = {column.name: column.offset for column in columns}
    indexes = tuple(
        Index(
            place,
            index,
            tuple(
                IndexColumn(column, offsets[column], ti.WHOLE_COLUMN if length is None else int(length))
                for column, length in parts
            ),
            unique=True,
            primary=index == "PRIMARY",
        )
        for place, (index, parts) in enumerate(keys.items(), 1)
        if all(column in offsets for column, _ in parts)
    )
    return TableInfo(id=number, name=name[1], columns=columns, indexes=indexes)


def _column(place: int, described: tuple[Any, ...], is_primary: bool, is_json: bool) -> Column:
    name, column_type, nullable, collation, data_type, charset, extra = (
        str(cell or "") for cell in described
    )
    kind, text = data_type.lower(), column_type.lower()
    tp = ti.JSON if is_json else TYPES.get(kind, 0)
    flag = ti.FLAG_PRIMARY if is_primary else 0
    if is_primary or nullable.upper() != "YES":
        flag |= ti.FLAG_NOT_NULL
    if "unsigned" in text or kind == "year":
        flag |= ti.FLAG_UNSIGNED
    is_text = kind not in BINARY_TYPES and bool(charset) and not is_json
    elements = tuple(cell.replace("''", "'") for cell in _ELEMENT.findall(column_type))
    length, digits = _sizes(kind, text)
    field = FieldType(
        tp,
        flag,
        length,
        digits,
        charset if is_text else "binary",
        collation if is_text else "binary",
        elements if tp in (ti.ENUM, ti.SET) else (),
    )
    generated = "generated" if "GENERATED" in extra.upper() or "PERSISTENT" in extra.upper() else ""
    stored = "STORED" in extra.upper() or "PERSISTENT" in extra.upper()
    return Column(place + 1, name, place, field, generated=generated, generated_stored=stored)


def _sizes(kind: str, text: str) -> tuple[int, int]:
    """(flen, decimal) as TiDB has them; -1 where they are not given."""
    sizes = None if kind in ("enum", "set") else _SIZES.search(text)
    if sizes is None:
        return -1, 0 if kind in _WITH_FRACTION else -1
    first, second = int(sizes[1]), int(sizes[2] or 0)
    if kind in _WITH_FRACTION:
        return -1, first
    return first, second if kind == "decimal" else -1


class DownstreamTables:
    """The tables of a downstream by their names. Blocking; not thread-safe. Raises `SessionError`."""

    def __init__(self, target: Target) -> None:
        self._session = DownstreamSession(target)
        self._by_name: dict[Name, TableVersion] | None = None

    def forget(self) -> None:
        """Tables may have changed."""
        self._by_name = None

    def close(self) -> None:
        """Close the connection."""
        self._session.close()

    def named(self, schema: str, table: str) -> TableVersion | None:
        """The table of that name, in whatever case."""
        if self._by_name is None:
            with self._session.connection() as connection:
                connection.rollback()
                versions = read(connection, lambda schema, table: True)
            self._by_name = {(version.schema.lower(), version.name.lower()): version for version in versions}
        return self._by_name.get((schema.lower(), table.lower()))


class RelayTables(DownstreamTables):
    """What a relay log does not say of its tables."""

    def __init__(self, target: Target) -> None:
        super().__init__(target)
        self._resolved: dict[ForeignTable, TableVersion] = {}

    def forget(self) -> None:
        """Tables may have changed."""
        super().forget()
        self._resolved.clear()

    def resolve(self, table: ForeignTable) -> TableVersion:
        """A definition for the rows of a record. Raises `DownstreamError` if the table is not there,
        `Unavailable`."""
        version = self._resolved.get(table)
        if version is None:
            try:
                defined = self.named(table.schema, table.name)
            except TransientError as error:
                raise passing_error(error, "reading its tables") from None
            if defined is None:
                raise DownstreamError(
                    f"table {table.schema}.{table.name} of the relay log does not exist downstream",
                    hint="create it there as it was upstream, and start again",
                )
            theirs = {column.name.lower(): column for column in defined.info.columns}
            info = info_of(table, theirs, len(self._resolved) + 1)
            version = self._resolved[table] = TableVersion(info, table.schema, table.name, 0)
        return version
