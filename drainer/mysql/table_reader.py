"""Table reader: what a table is downstream, read from information_schema.

Holds  names come back as the downstream writes them; of several tables that differ only in case, the exact
       one is meant
Never  fails on what it does not know: expression parts of keys have no column name, old servers no
       GENERATION_EXPRESSION

Blocking, some milliseconds. Raises `SessionError`, and `DownstreamError` when a name is ambiguous.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from drainer.mysql.connection import Connection
from drainer.mysql.errors import NOT_ALLOWED, NoSuchTable, SessionError, StatementRefused, TransientError
from drainer.mysql.literal.downstream_column import DownstreamColumn
from drainer.mysql.literal.quoting import qualified, quote_name
from drainer.mysql.rows.column_match import DownstreamTable, KeyPart, UniqueKey
from drainer.mysql.rows.dialect import Dialect
from tidb_binlog.errors import DownstreamError

_COLUMNS: Final = (
    "SELECT COLUMN_NAME, COLUMN_TYPE, IS_NULLABLE, COLLATION_NAME, DATA_TYPE, CHARACTER_MAXIMUM_LENGTH,"
    " NUMERIC_SCALE, DATETIME_PRECISION, COLUMN_DEFAULT, EXTRA, CHARACTER_SET_NAME"
    " FROM information_schema.COLUMNS WHERE TABLE_SCHEMA=%s AND TABLE_NAME=%s ORDER BY ORDINAL_POSITION"
)
_KEYS: Final = (
    "SELECT INDEX_NAME, SEQ_IN_INDEX, COLUMN_NAME, SUB_PART, NON_UNIQUE FROM information_schema.STATISTICS"
    " WHERE TABLE_SCHEMA=%s AND TABLE_NAME=%s ORDER BY INDEX_NAME, SEQ_IN_INDEX"
)
_OF_KEYS: Final = ("Key_name", "Seq_in_index", "Column_name", "Sub_part", "Non_unique")
_TRIGGERS: Final = (
    "SELECT 1 FROM information_schema.TRIGGERS WHERE EVENT_OBJECT_SCHEMA=%s AND EVENT_OBJECT_TABLE=%s LIMIT 1"
)
_SEES_TRIGGERS: Final = (
    "SELECT 1 FROM information_schema.USER_PRIVILEGES WHERE PRIVILEGE_TYPE='TRIGGER'"
    " UNION SELECT 1 FROM information_schema.SCHEMA_PRIVILEGES"
    " WHERE PRIVILEGE_TYPE='TRIGGER' AND %s LIKE TABLE_SCHEMA"
    " UNION SELECT 1 FROM information_schema.TABLE_PRIVILEGES"
    " WHERE PRIVILEGE_TYPE='TRIGGER' AND TABLE_SCHEMA=%s AND TABLE_NAME=%s LIMIT 1"
)
# On MariaDB this would open every table of the schema: InnoDB's own list is asked there.
_REFERENCES: Final = (
    "SELECT 1 FROM information_schema.REFERENTIAL_CONSTRAINTS"
    " WHERE UNIQUE_CONSTRAINT_SCHEMA=%s AND REFERENCED_TABLE_NAME=%s LIMIT 1"
)
_REFERENCES_MARIADB: Final = (
    "SELECT 1 FROM information_schema.INNODB_SYS_FOREIGN WHERE REF_NAME = BINARY CONCAT("
    "CONVERT(CONVERT(%s USING filename) USING binary), '/', CONVERT(CONVERT(%s USING filename) USING binary)"
    ") LIMIT 1"
)
_NO_TRANSACTIONS: Final = "SELECT 1 FROM information_schema.ENGINES WHERE ENGINE=%s AND TRANSACTIONS='NO'"
_NOT_ALLOWED: Final = 1227
_NO_DATABASE_FOR_USER: Final = 1044
_NO_SUCH_COLUMN: Final = 1054
_SCHEMA_CHANGED: Final = 8028
"""TiDB's number."""
_NAME: Final = "SELECT TABLE_SCHEMA, TABLE_NAME, ENGINE FROM information_schema.TABLES WHERE "
_EXACT: Final = _NAME + "TABLE_SCHEMA=%s AND TABLE_NAME=%s"
_ANY_CASE: Final = _NAME + "LOWER(TABLE_SCHEMA)=LOWER(%s) AND LOWER(TABLE_NAME)=LOWER(%s)"
JSON_CHECKS: Final = (
    "SELECT CHECK_CLAUSE FROM information_schema.CHECK_CONSTRAINTS"
    " WHERE CONSTRAINT_SCHEMA=%s AND TABLE_NAME=%s AND CHECK_CLAUSE LIKE 'json_valid(%%'"
)


def read_table(connection: Connection, schema: str, name: str) -> DownstreamTable | None:
    """The table as it is now; ends the connection's read view."""
    connection.rollback()
    dialect = connection.dialect
    with connection.cursor() as cursor:
        entry = _find(cursor, schema, name)
        if entry is None:
            return None
        place = entry[:2]
        checked = _json_columns(cursor, place) if dialect is Dialect.MARIADB else frozenset()
        # A view, which has no engine, cannot say what columns it has if its table is gone.
        lists = dialect if entry[2] else Dialect.MYSQL
        try:
            columns = tuple(_column(row, checked) for row in columns_of(cursor, _COLUMNS, place, lists))
            keys = keys_of(cursor, _KEYS, place, lists)
        except NoSuchTable:
            return None
        table = DownstreamTable(
            *place,
            columns=columns,
            unique_keys=_unique_keys([row for row in keys if not int(row[4])]),
            may_have_triggers=_may_have_triggers(cursor, place),
            referenced=_is_referenced(cursor, place, dialect),
            engine=entry[2],
            transactional=_is_transactional(cursor, entry[2]),
            dialect=dialect,
        )
    connection.rollback()
    return table


def is_absent(connection: Connection, schema: str, name: str, column: str = "") -> bool:
    """Whether a table that `read_table` does not show, or a column of one, is not there, as a SELECT says:
    information_schema hides what the user has no right on."""
    if not connection.dialect.has_names(schema, name, column):
        return True
    shown = quote_name(column) if column else b"1"
    try:
        connection.rows(b"SELECT %b FROM %b LIMIT 0" % (shown, qualified(schema, name)))
    except NoSuchTable:
        return True
    except StatementRefused as error:
        if column and error.number == _NO_SUCH_COLUMN:
            return True
        if error.number not in (*NOT_ALLOWED, _NO_DATABASE_FOR_USER):
            raise
        return False
    finally:
        connection.rollback()
    return False


def columns_of(
    cursor: Any, query: str, place: tuple[str, str], dialect: Dialect
) -> Sequence[tuple[Any, ...]]:
    """Columns in order: what `query` has of them begins with name, type, nullable, collation."""
    rows = shown(cursor, query, place)
    return listed_now(cursor, rows, place) if dialect is Dialect.TIDB else rows


def listed_now(
    cursor: Any, rows: Sequence[tuple[Any, ...]], place: tuple[str, str]
) -> Sequence[tuple[Any, ...]]:
    """Rows as of `columns_of`, of columns that a TiDB's table has now. It goes on to list a table that was
    renamed away, and its columns as they were, by a name that is another's now; and it lists types without
    ZEROFILL, and old releases YEAR and BIT as unsigned."""
    cursor.execute(b"SHOW FULL COLUMNS FROM " + qualified(*place))
    listed = {(row[0], _plain(row[1]), *row[2:4]): row for row in rows}
    shape = [(name, _plain(kind), null, collation) for name, kind, collation, null, *_ in cursor.fetchall()]
    if not all(facts in listed for facts in shape):
        raise TransientError(_SCHEMA_CHANGED, f"{'.'.join(place)} was changed while it was read")
    return [listed[facts] for facts in shape]


def _plain(kind: str) -> str:
    kind = kind.removesuffix(" zerofill")
    return kind.removesuffix(" unsigned") if kind.startswith(("year", "bit")) else kind


def keys_of(cursor: Any, query: str, place: tuple[str, str], dialect: Dialect) -> Sequence[tuple[Any, ...]]:
    """Parts of all keys: name, number, column, length, not unique, used, kind. A TiDB lists them as it does
    columns, and without lengths; an expression has no column, not one whose name is NULL."""
    if dialect is not Dialect.TIDB:
        return shown(cursor, query, place)
    cursor.execute(b"SHOW KEYS FROM " + qualified(*place))
    names = [name for name, *_ in cursor.description]
    rows = [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
    for row in rows:
        row["Column_name"] = None if row.get("Expression") else row["Column_name"]
    parts = [(*map(row.__getitem__, _OF_KEYS), row.get("Visible", "YES"), "") for row in rows]
    return sorted(parts, key=lambda part: (part[0].lower(), part[1]))


def shown(cursor: Any, query: str, values: tuple[str, ...]) -> list[tuple[Any, ...]]:
    """Each row once: a TiDB may list all of a table twice, while its name changes and long after."""
    if not cursor.connection.dialect.has_names(*values):
        return []
    cursor.execute(query, values)
    return list(dict.fromkeys(cursor.fetchall()))


def _find(cursor: Any, schema: str, name: str) -> tuple[str, str, str] | None:
    rows = shown(cursor, _EXACT, (schema, name))
    if len(rows) != 1:
        rows = shown(cursor, _ANY_CASE, (schema, name))
    exact = [row for row in rows if row[:2] == (schema, name)]
    rows = exact or rows
    if len({row[:2] for row in rows}) > 1:
        names = ", ".join(f"{row[0]}.{row[1]}" for row in rows)
        raise DownstreamError(
            f"table {schema}.{name} may be any of {names} downstream",
            hint="rename them, so that one has the name as it is written upstream",
        )
    return (str(rows[0][0]), str(rows[0][1]), str(rows[0][2] or "")) if rows else None


def _column(row: tuple[Any, ...], checked: frozenset[str]) -> DownstreamColumn:
    name, full, nullable, collation, kind, length, scale, precision, default, extra, charset = row
    extra, kind, is_nullable = str(extra or "").upper(), str(kind).lower(), str(nullable).upper() == "YES"
    counts = "AUTO_INCREMENT" in extra or "AUTO_RANDOM" in extra
    return DownstreamColumn(
        name=str(name),
        type=kind,
        length=int(length or 0),
        digits=int((scale if scale is not None else precision) or 0),
        nullable=is_nullable,
        has_default=default is not None or counts,
        generated="VIRTUAL GENERATED" in extra or "STORED GENERATED" in extra or "PERSISTENT" in extra,
        charset=str(charset or "").lower(),
        collation=str(collation or "").lower(),
        checks_json=str(name).lower() in checked,
        full_type=str(full),
        # A TIMESTAMP gets the current time where explicit_defaults_for_timestamp cannot be set.
        fills_null=counts or (kind == "timestamp" and not is_nullable),
    )


def _is_transactional(cursor: Any, engine: str) -> bool:
    """Whether its rows can be rolled back; views have no engine."""
    if engine.lower() in ("", "innodb"):
        return True
    return not shown(cursor, _NO_TRANSACTIONS, (engine,))


def _json_columns(cursor: Any, place: tuple[str, str]) -> frozenset[str]:
    try:
        clauses = [str(row[0]) for row in shown(cursor, JSON_CHECKS, place)]
    except NoSuchTable:
        return frozenset()  # a release without that view makes no such checks either
    return frozenset(
        clause[len("json_valid(`") : -len("`)")].replace("``", "`").lower()
        for clause in clauses
        if clause.startswith("json_valid(`") and clause.endswith("`)")
    )


def _unique_keys(rows: list[tuple[Any, ...]]) -> tuple[UniqueKey, ...]:
    """The primary key first."""
    parts: dict[str, list[KeyPart]] = {}
    for index, _, column, length, *_ in rows:
        part = KeyPart(None if column is None else str(column), None if length is None else int(length))
        parts.setdefault(str(index), []).append(part)
    names = sorted(parts, key=lambda name: (name.upper() != "PRIMARY", name))
    return tuple(UniqueKey(name, tuple(parts[name])) for name in names)


def _may_have_triggers(cursor: Any, place: tuple[str, str]) -> bool:
    if shown(cursor, _TRIGGERS, place):
        return True
    return not shown(cursor, _SEES_TRIGGERS, (place[0], *place))


def _is_referenced(cursor: Any, place: tuple[str, str], dialect: Dialect) -> bool:
    """A foreign key refers to the table, or it cannot be known."""
    if dialect is not Dialect.MARIADB:
        return bool(shown(cursor, _REFERENCES, place))
    try:
        return bool(shown(cursor, _REFERENCES_MARIADB, place))
    except SessionError as error:
        if error.number == _NOT_ALLOWED:
            return True
        raise
