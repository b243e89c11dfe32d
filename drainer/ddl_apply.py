"""DDL on the downstream: run each once, whatever happens in between.

Drives  `checkpoint` (the stored intent) and one connection without read time-out
Holds   the intent, with the shape of the tables concerned before the statement, is durable before the
        statement runs; after a crash the shape decides whether it had run. Error codes decide nothing.
Never   edits the statement's text

A statement that leaves the shape as it was can be run again without harm: it changed nothing that a second
run would change differently (TRUNCATE runs at a barrier, so no later row can be in the table).
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import pymysql

from common import log
from common.errors import DownstreamError
from common.table_info import STRING_TYPES, TableInfo
from drainer.checkpoint import Intent
from drainer.sink import mysql
from drainer.txn import Ddl, TableVersion

logger = log.get(__name__)

NO_SUCH_DATABASE: Final = 1049
NO_SUCH_TABLE: Final = 1146
_AUTO_INCREMENT = re.compile(r" AUTO_INCREMENT=\d+")
_DATABASE_STATEMENT = re.compile(
    r"\s*(?:/\*.*?\*/\s*)*(?:create|drop|alter)\s+(?:database|schema)\b", re.I | re.S
)


_DROPS: Final = {4: b"DROP TABLE", 24: b"DROP VIEW", 36: b"DROP SEQUENCE"}
_QUOTED_NAME = re.compile(r"`(?:[^`]|``)*`")


@dataclass(frozen=True, slots=True)
class Ran:
    """What was executed, and what the downstream lacks nevertheless: one line each."""

    statements: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()


class Refused(DownstreamError):
    """The downstream refused a DDL, and no other statement reaches the same columns and keys."""

    def __init__(self, message: str, *, hint: str = "", code: int = 0) -> None:
        super().__init__(message, hint=hint)
        self.code = code


class TrackedSchema(Protocol):
    """What DDL needs of the tracked schema, as it is after the DDL."""

    def table_named(self, schema: str, name: str) -> TableVersion | None: ...

    def database_collation(self, schema: str) -> tuple[str, str] | None:
        """(charset, collation) of a database."""
        ...


def touches_database(query: str) -> bool:
    """CREATE, DROP or ALTER DATABASE: must not run inside the database it is about."""
    return _DATABASE_STATEMENT.match(query) is not None


def statement_of(ddl: Ddl) -> bytes:
    """What to run: the statement as it was, except where one statement became several jobs.

    `DROP TABLE a, b` is one job (and one binlog) for each table, all with the same text; each job drops its
    own table, or rows of `b` that come between the two would meet no table.
    """
    kind = _DROPS.get(ddl.action)
    if kind is None or len(ddl.tables) != 1 or "," not in _QUOTED_NAME.sub("", ddl.query):
        return ddl.query.encode()
    return kind + b" IF EXISTS " + mysql.qualified(*ddl.tables[0])


def shape(connection: pymysql.Connection[Any], names: Sequence[tuple[str, str]]) -> dict[str, str | None]:
    """Definition of each (schema, table) as the downstream prints it; None where it does not exist."""
    found: dict[str, str | None] = {}
    for schema, table in names:
        statement = (
            b"SHOW CREATE TABLE " + mysql.qualified(schema, table)
            if table
            else b"SHOW CREATE DATABASE " + mysql.quote(schema)
        )
        try:
            rows = mysql.rows(connection, statement)
            text = _AUTO_INCREMENT.sub("", str(rows[0][1]))
        except pymysql.err.MySQLError as error:
            if mysql.error_code(error) not in (NO_SUCH_TABLE, NO_SUCH_DATABASE):
                raise
            text = None
        found[f"{schema}.{table}"] = text
    return found


class DdlRunner:
    """Runs DDL on one session of its own; PyMySQL errors come through for the caller to classify.

    Not thread-safe: one call at a time.
    """

    def __init__(self, target: mysql.Target, schema: TrackedSchema) -> None:
        self._target = target
        self._schema = schema
        self._connection: pymysql.Connection[Any] | None = None

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(pymysql.err.MySQLError, OSError):
                connection.close()

    def before(self, ddl: Ddl) -> dict[str, str | None]:
        """The shape of what the statement touches, as it is now."""
        with self._session() as connection:
            return shape(connection, ddl.tables)

    def had_run(self, intent: Intent, ddl: Ddl) -> bool:
        """Whether the statement of a stored intent had taken effect before the crash."""
        return self.before(ddl) != intent.before

    def progress(self, ddl: Ddl) -> str:
        """How far the statement under way has come, in words of the downstream; "" if it does not say.

        May be called from another thread while `run` works.
        """
        return ""

    def run(self, ddl: Ddl, text: str | None = None) -> Ran:
        """Execute the statement, or `text` in its place; what the downstream refuses is derived.

        Raises `Refused` when nothing that can be derived is accepted.
        """
        with self._session() as connection:
            self._set_defaults(connection, ddl)
            self._use(connection, ddl)
            try:
                mysql.run(connection, statement_of(ddl) if text is None else text.encode())
            except pymysql.err.MySQLError as error:
                if mysql.is_transient(error):
                    raise
                raise self._refused(ddl, error) from None
            self._align_collation(connection, ddl)
            return Ran((ddl.query if text is None else text,))

    def already_done(self, ddl: Ddl) -> bool:
        """Whether the downstream already has exactly the columns that the tracked schema has after the DDL.

        Asked only in safe mode, where another program may have run the statement without recording it.
        """
        with self._session() as connection:
            return all(self._as_tracked(connection, schema, table) for schema, table in ddl.tables)

    def _as_tracked(self, connection: pymysql.Connection[Any], schema: str, table: str) -> bool:
        if not table:
            exists = shape(connection, [(schema, "")])[f"{schema}."] is not None
            return exists == (self._schema.database_collation(schema) is not None)
        tracked = self._schema.table_named(schema, table)
        wanted = [column.name.lower() for column in _visible(tracked.info)] if tracked else []
        rows = mysql.rows(
            connection,
            b"SELECT LOWER(column_name) FROM information_schema.columns WHERE table_schema="
            + mysql.literal(schema)
            + b" AND table_name="
            + mysql.literal(table)
            + b" ORDER BY ordinal_position",
        )
        return [str(name) for (name,) in rows] == wanted

    @contextlib.contextmanager
    def _session(self) -> Iterator[pymysql.Connection[Any]]:
        """The session, made when there is none and dropped after any error."""
        try:
            if self._connection is None:
                self._connection = mysql.connect(self._target, read_timeout_s=None)
                mysql.prepare_session(self._connection, mysql.LAX_SQL_MODE)
                # MariaDB's EXCHANGE PARTITION waits for itself inside a transaction.
                self._connection.autocommit(True)
            yield self._connection
        except BaseException:
            self.close()
            raise

    def _set_defaults(self, connection: pymysql.Connection[Any], ddl: Ddl) -> None:
        """What a database gets that is created without naming a character set: the upstream's."""
        names = self._schema.database_collation(ddl.tables[0][0] if ddl.tables else ddl.schema)
        if names is not None and all(re.fullmatch(r"\w+", name) for name in names):
            charset, collation = names
            mysql.run(
                connection,
                f"SET SESSION character_set_server='{charset}', collation_server='{collation}'".encode(),
            )

    def _use(self, connection: pymysql.Connection[Any], ddl: Ddl) -> None:
        if not ddl.schema or touches_database(ddl.query):
            return
        try:
            mysql.run(connection, b"USE " + mysql.quote(ddl.schema))
        except pymysql.err.MySQLError as error:
            if mysql.error_code(error) != NO_SUCH_DATABASE:
                raise
            logger.warning("database is missing downstream, creating it", schema=ddl.schema)
            mysql.run(connection, b"CREATE DATABASE " + mysql.quote(ddl.schema))
            mysql.run(connection, b"USE " + mysql.quote(ddl.schema))

    def _align_collation(self, connection: pymysql.Connection[Any], ddl: Ddl) -> None:
        """Give text columns the upstream's collation where the downstream chose another default.

        `CHARSET=utf8mb4` alone means utf8mb4_bin upstream and something case-insensitive elsewhere: keys
        that differ upstream would collide downstream.
        """
        for schema, table in ddl.tables:
            tracked = self._schema.table_named(schema, table) if table else None
            if tracked is None or tracked.info.is_view or tracked.info.is_sequence:
                continue
            wanted = {
                column.name.lower(): (column.type.charset, column.type.collate)
                for column in _visible(tracked.info)
                if column.type.tp in STRING_TYPES and not column.type.is_binary_string
            }
            rows = mysql.rows(
                connection,
                b"SELECT column_name, character_set_name, collation_name, column_type, is_nullable"
                b" FROM information_schema.columns WHERE collation_name IS NOT NULL AND table_schema="
                + mysql.literal(schema)
                + b" AND table_name="
                + mysql.literal(table),
            )
            differing = [row for row in rows if wanted.get(row[0].lower(), row[1:3]) != tuple(row[1:3])]
            if differing:
                self._convert(connection, tracked, differing, set(wanted.values()))

    def _convert(
        self,
        connection: pymysql.Connection[Any],
        tracked: TableVersion,
        differing: list[tuple[Any, ...]],
        wanted: set[tuple[str, str]],
    ) -> None:
        if len(wanted) != 1:
            logger.warning(
                "text columns have another collation downstream than upstream",
                table=f"{tracked.schema}.{tracked.name}",
                columns=[row[0] for row in differing],
            )
            return
        ((charset, collation),) = wanted
        statement = (
            b"ALTER TABLE "
            + mysql.qualified(tracked.schema, tracked.name)
            + f" CONVERT TO CHARACTER SET {charset} COLLATE {collation}".encode()
        )
        try:
            mysql.run(connection, statement)
        except pymysql.err.MySQLError as error:
            logger.warning(
                "downstream cannot hold the upstream's collation",
                table=f"{tracked.schema}.{tracked.name}",
                collation=collation,
                reason=mysql.safe_text(error),
            )

    def _refused(self, ddl: Ddl, error: BaseException) -> Refused:
        return Refused(
            f"DDL job {ddl.job_id} at commit_ts {ddl.commit_ts} was refused: {mysql.safe_text(error)};"
            f" statement in `{ddl.schema}`: {ddl.query}",
            hint="run an equivalent statement downstream, or correct it, and start the drainer again",
            code=mysql.error_code(error),
        )


def _visible(info: TableInfo) -> list[Any]:
    return [column for column in info.columns if not column.hidden and column.state == 5]
