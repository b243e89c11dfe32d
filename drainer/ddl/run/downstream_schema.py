"""Downstream schema: what is downstream now, as far as DDL goes: tables with columns, keys and partitions.

Out    `Present` of each, None where nothing has that name; what the server is and which collations it knows
Holds  names are compared as they are written, then in any case

Blocking, a few milliseconds a table. Raises PyMySQL's errors.
Tests  tests/drainer/ddl/run/test_downstream_schema.py, test_runner_recorded.py
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, Final

from drainer.ddl.derive.compare import (
    SEQUENCE,
    TABLE,
    VIEW,
    Present,
    PresentColumn,
    PresentKey,
    bound_of,
    by_of,
)
from drainer.ddl.derive.render import Server
from drainer.mysql.connection import Connection
from drainer.mysql.errors import NoSuchTable, StatementRefused
from drainer.mysql.literal.quoting import qualified
from drainer.mysql.rows.dialect import Dialect
from drainer.mysql.table_reader import columns_of, keys_of, read_table, shown

_KINDS: Final = {"VIEW": VIEW, "SEQUENCE": SEQUENCE}
_TABLE: Final = (
    "SELECT TABLE_SCHEMA, TABLE_NAME, TABLE_TYPE, TABLE_COMMENT, TABLE_COLLATION, CREATE_OPTIONS, ENGINE"
    " FROM information_schema.TABLES WHERE "
)
_EXACT: Final = "TABLE_SCHEMA=%s AND TABLE_NAME=%s"
# Names alone, or the server would open every table there is.
_ANY_CASE: Final = (
    "SELECT TABLE_SCHEMA, TABLE_NAME FROM information_schema.TABLES"
    " WHERE LOWER(TABLE_SCHEMA)=LOWER(%s) AND LOWER(TABLE_NAME)=LOWER(%s)"
)
_HERE: Final = " WHERE TABLE_SCHEMA=%s AND TABLE_NAME=%s"
_COLUMNS: Final = (
    "SELECT COLUMN_NAME, COLUMN_TYPE, IS_NULLABLE, COLLATION_NAME, COLUMN_DEFAULT, EXTRA, COLUMN_COMMENT"
    " FROM information_schema.COLUMNS" + _HERE + " ORDER BY ORDINAL_POSITION"
)
_KEYS: Final = (
    "SELECT INDEX_NAME, SEQ_IN_INDEX, COLUMN_NAME, SUB_PART, NON_UNIQUE, {used}, INDEX_TYPE"
    " FROM information_schema.STATISTICS" + _HERE + " ORDER BY INDEX_NAME, SEQ_IN_INDEX"
)
_CONSTRAINTS: Final = (
    "SELECT CONSTRAINT_TYPE, CONSTRAINT_NAME FROM information_schema.TABLE_CONSTRAINTS"
    + _HERE
    + " AND CONSTRAINT_TYPE IN ('FOREIGN KEY','CHECK')"
)
ROUNDING: Final = "TIME_ROUND_FRACTIONAL"
"""SQL mode of MariaDB: fractions of a second that do not fit are rounded, as TiDB does it, and not cut."""
_ENGINES: Final = "SELECT ENGINE FROM information_schema.ENGINES WHERE TRANSACTIONS='YES'"
_PARTITION: Final = re.compile(
    r"\bPARTITION (?:`((?:[^`]|``)*)`|(\w+))(?:\s+(?:VALUES (?:LESS THAN|IN)\s+(.*?)|DEFAULT))?\s*"
    r"(?:(?:COMMENT|DATA|ENGINE|INDEX|TABLESPACE|MAX_ROWS|MIN_ROWS)\b.*)?[,)]?\s*(?:\*/)?\s*$",
    re.MULTILINE,
)
_PARTITION_COUNT: Final = re.compile(r"\bPARTITIONS (\d+)\b")
_USED: Final = {"IGNORED": "IF(IGNORED='YES','NO','YES')", "INVISIBLE": "IS_VISIBLE"}
"""Whether queries use a key, by the word for one that they do not use."""


def server_of(connection: Connection) -> Server:
    """What the server is and has: asked of it, where it can say so."""
    dialect = connection.dialect
    if dialect is Dialect.MARIADB:  # collations of UCA 14 have one name for all character sets
        query = "SELECT FULL_COLLATION_NAME FROM information_schema.COLLATION_CHARACTER_SET_APPLICABILITY"
    else:
        query = "SELECT COLLATION_NAME FROM information_schema.COLLATIONS"
    try:
        names = connection.rows(query.encode())
    except StatementRefused:
        names = connection.rows(b"SELECT COLLATION_NAME FROM information_schema.COLLATIONS")
    engines = connection.rows(_ENGINES.encode())
    explicit = connection.rows(b"SHOW VARIABLES LIKE 'explicit_defaults_for_timestamp'")

    def shows_of_keys(column: str) -> bool:
        return _takes(connection, f"SELECT {column} FROM information_schema.STATISTICS LIMIT 0".encode())

    return Server(
        dialect,
        frozenset(str(name).lower() for (name,) in names),
        invisible="IGNORED"
        if shows_of_keys("IGNORED")
        else "INVISIBLE"
        if shows_of_keys("IS_VISIBLE")
        else "",
        functional_keys=shows_of_keys("EXPRESSION"),
        engines=frozenset(str(name).lower() for (name,) in engines),
        json=_takes(connection, b"SELECT JSON_VALID('1')"),
        rounds_times=_takes(connection, f"SET @@sql_mode=CONCAT(@@sql_mode,',{ROUNDING}')".encode()),
        explicit_timestamps=not explicit or str(explicit[0][1]).upper() in ("1", "ON"),
    )


def _takes(connection: Connection, statement: bytes) -> bool:
    try:
        connection.rows(statement)
    except StatementRefused:
        return False
    return True


def read_all(
    connection: Connection, names: Iterable[tuple[str, str]], server: Server
) -> dict[tuple[str, str], Present | None]:
    return {name: read(connection, name, server) for name in names}


def read(connection: Connection, name: tuple[str, str], server: Server) -> Present | None:
    """The table, view or sequence of that name."""
    with connection.cursor() as cursor:
        rows = shown(cursor, _TABLE + _EXACT, name)
        if not rows:
            other = shown(cursor, _ANY_CASE, name)
            if len(other) != 1:
                return None
            rows = shown(cursor, _TABLE + _EXACT, (str(other[0][0]), str(other[0][1])))
        if not rows:
            return None
        schema, table, kind, comment, collation, options, engine = rows[-1]
        here = str(schema), str(table)
        kind = _KINDS.get(str(kind).upper().replace("SYSTEM ", ""), TABLE)
        # A view whose table is gone cannot say what columns it has.
        dialect = server.dialect if kind == TABLE else Dialect.MYSQL
        try:
            columns = tuple(_column(row) for row in columns_of(cursor, _COLUMNS, here, dialect))
            keys = keys_of(cursor, _KEYS.format(used=_USED.get(server.invisible, "'YES'")), here, dialect)
        except NoSuchTable:
            return None
        constraints = [(str(row[0]), str(row[1]).lower()) for row in shown(cursor, _CONSTRAINTS, here)]
        by, partitions = "", list[tuple[str, str]]()
        if "partitioned" in str(options).lower():
            by, partitions = partitions_of(connection, here)
        return Present(
            kind=kind,
            columns=columns,
            keys=_keys(keys),
            foreign_keys=frozenset(name for kind, name in constraints if kind == "FOREIGN KEY"),
            checks=frozenset(name for kind, name in constraints if kind == "CHECK"),
            partitions=tuple(name for name, _ in partitions),
            bounds=tuple(bound for _, bound in partitions),
            partition_by=by,
            comment=str(comment or ""),
            collation=str(collation or ""),
            engine=str(engine or ""),
        )


def tables_in(connection: Connection, schema: str) -> list[str]:
    """Names of all tables of a schema."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT TABLE_NAME FROM information_schema.TABLES WHERE TABLE_SCHEMA=%s", (schema,))
        return [str(row[0]) for row in cursor.fetchall()]


def is_movable(connection: Connection, name: tuple[str, str]) -> bool:
    """A table that nothing else hangs on: no trigger, no foreign key refers to it."""
    table = read_table(connection, *name)
    return table is not None and not table.may_have_triggers and not table.referenced


def partitions_of(connection: Connection, name: tuple[str, str]) -> tuple[str, list[tuple[str, str]]]:
    """What decides (`by_of`); names in order, and bounds. Some releases of MariaDB 10.11 die of a query on
    information_schema.PARTITIONS."""
    ((_, text),) = connection.rows(b"SHOW CREATE TABLE " + qualified(*name))
    clause = str(text)[str(text).upper().rindex("PARTITION BY") :]
    partitions = [
        ((quoted or plain).replace("``", "`"), bound_of(re.sub(r"^\((.*)\)$", r"\1", bound)))
        for quoted, plain, bound in _PARTITION.findall(clause)
    ]
    count = _PARTITION_COUNT.search(clause)
    first = clause[len("PARTITION BY") :].partition("\n")[0]
    by = by_of(_PARTITION_COUNT.split(first)[0])
    return by, partitions or [(f"p{number}", "") for number in range(int(count[1]) if count else 0)]


def _column(row: tuple[Any, ...]) -> PresentColumn:
    name, kind, nullable, collation, default, extra, comment = (_text(value) for value in row)
    return PresentColumn(
        name=name or "",
        type=kind or "",
        nullable=(nullable or "").upper() == "YES",
        collation=collation or "",
        default=default,
        extra=extra or "",
        comment=comment or "",
    )


def _text(value: Any) -> str | None:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def _keys(rows: Sequence[tuple[Any, ...]]) -> tuple[PresentKey, ...]:
    parts: dict[str, list[tuple[str, int]]] = {}
    facts: dict[str, tuple[bool, bool, str]] = {}
    for name, _, column, length, non_unique, used, kind in rows:
        parts.setdefault(str(name), []).append((str(column or "").lower(), int(length or 0)))
        kind = "" if kind in ("BTREE", "HASH") else str(kind)
        facts[str(name)] = not int(non_unique), str(used).upper() == "YES", kind
    return tuple(PresentKey(name, tuple(parts[name]), *facts[name]) for name in parts)
