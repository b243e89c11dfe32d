"""DDL connection: the one session on which DDL runs, and its settings.

Drives  PyMySQL: one connection without read time-out, made when it is needed and dropped after any error
Holds   a statement runs with the settings of its job, never with those of the lanes; TCP keep-alive notices
        a server that is gone while a statement runs for hours. Where InnoDB's strict mode is all that refuses
        a statement, it runs without: rows that do not fit are refused later, one by one
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final, Protocol

from drainer.ddl.derive.render import Server, collated
from drainer.ddl.run import downstream_schema, fingerprint
from drainer.ddl.run.downstream_schema import ROUNDING
from drainer.ddl.run.session_settings import Session
from drainer.mysql.connection import Connection, Target
from drainer.mysql.errors import SessionError, StatementRefused, safe_text
from drainer.mysql.literal.quoting import quote_name
from drainer.mysql.server_text import as_listed
from drainer.mysql.session import DownstreamSession
from drainer.mysql.sql_tokens import tokens
from tidb_binlog.observe import log

logger = log.get("drainer.ddl_connection")

_UNKNOWN_ZONE: Final = 1298
_NO_SUCH_NAME: Final = 1300
_REFUSED_BY_STRICT_MODE: Final = frozenset({1118, 1478})  # a row could be too large; an option is ignored
_SHOWN: Final = 200


Guard = Callable[[Connection], None]


class TrackedSchema(Protocol):
    """What DDL needs of the tracked schema besides what it carries itself."""

    def database_collation(self, schema: str) -> tuple[str, str] | None:
        """(charset, collation) of a database."""
        ...


class DdlConnection:
    """`server` is what the last session found out; `thread_id` its number there, 0 before the first.

    `guard` is called each time before anything runs in the session; it raises what forbids that.
    """

    def __init__(self, target: Target, schema: TrackedSchema, guard: Guard | None = None) -> None:
        self.target = target
        self._guard = guard
        self.server = Server()
        self.thread_id = 0
        self._schema = schema
        self._session = DownstreamSession(replace(target, read_timeout_s=None), self._prepare)

    def close(self) -> None:
        self._session.close()

    @contextlib.contextmanager
    def session(self) -> Iterator[Connection]:
        """The session; after any error the next one is a new one."""
        is_new = self._session.current is None
        with self._session.connection() as connection:
            if not is_new:
                self._watch(connection)
            yield connection

    def _prepare(self, connection: Connection) -> None:
        connection.keep_alive()
        # MariaDB's EXCHANGE PARTITION waits for itself inside a transaction.
        connection.autocommit(True)
        self._watch(connection)
        self.server = downstream_schema.server_of(connection)
        self.thread_id = connection.session_id

    def _watch(self, connection: Connection) -> None:
        if self._guard is not None:
            self._guard(connection)

    def settings(self, connection: Connection, settings: Session, *, zone: str) -> None:
        """Mode and time zone for the statements that follow."""
        mode = settings.sql_mode + (f",{ROUNDING}" if self.server.rounds_times else "")
        connection.run(f"SET SESSION sql_mode='{mode}', foreign_key_checks=0".encode())
        try:
            connection.run(f"SET SESSION time_zone='{zone}'".encode())
        except SessionError as error:
            if error.number != _UNKNOWN_ZONE:
                raise
            logger.warning("downstream does not know a time zone", zone=zone, used=settings.offset)
            connection.run(f"SET SESSION time_zone='{settings.offset}'".encode())

    def defaults(self, connection: Connection, schema: str, settings: Session) -> None:
        """What a database gets that is created without naming a character set: the upstream's."""
        names = self._collation(schema)
        if names is not None:
            charset, collation = names
            connection.run(
                f"SET SESSION character_set_server='{charset}', collation_server='{collation}'".encode(),
            )
        if settings.collation in self.server.collations:
            connection.run(f"SET SESSION collation_connection='{settings.collation}'".encode())

    def make_database(self, connection: Connection, name: str, upstream: str) -> None:
        """Create a database that is not there, with the character set of the one upstream."""
        if fingerprint.has_database(connection, name, self.server):
            return
        logger.warning("database is missing downstream, creating it", schema=name)
        collation = self._collation(upstream)
        clause = f" {collated(*collation)}" if collation else ""
        run_ddl(connection, b"CREATE DATABASE IF NOT EXISTS " + quote_name(name) + clause.encode())

    def _collation(self, schema: str) -> tuple[str, str] | None:
        """(charset, collation) of a database upstream, as near as the server can."""
        names = self._schema.database_collation(schema)
        if names is None or not all(re.fullmatch(r"\w+", name) for name in names):
            return None
        return self.server.collation(*names)


def run_ddl(connection: Connection, statement: bytes) -> None:
    """Run one statement, without InnoDB's strict mode if that is all that refuses it.

    Raises `StatementRefused` for a name that the server cannot have: MySQL would take it for `?`.
    """
    words = tokens(statement.decode("utf-8", "surrogateescape"))
    if not connection.dialect.has_names(*(word for word in words if word[0] not in "'\"")):
        raise StatementRefused(_NO_SUCH_NAME, "only a TiDB has names with characters outside the BMP")
    try:
        connection.run(statement)
    except SessionError as error:
        if error.number not in _REFUSED_BY_STRICT_MODE or not _run_without(connection, statement):
            raise
        logger.warning(
            "DDL ran with innodb_strict_mode = OFF, with which it was refused",
            reason=safe_text(error),
            statement=as_listed(statement.decode("utf-8", "replace"), _SHOWN),
        )


def _run_without(connection: Connection, statement: bytes) -> bool:
    """Whether the statement runs without strict mode."""
    try:
        ((is_on,),) = connection.rows(b"SELECT @@SESSION.innodb_strict_mode")
        if not is_on:
            return False
        connection.run(b"SET SESSION innodb_strict_mode=OFF")
        connection.run(statement)
        connection.run(b"SET SESSION innodb_strict_mode=ON")
    except StatementRefused:
        with contextlib.suppress(SessionError):  # or it may not be set at all
            connection.run(b"SET SESSION innodb_strict_mode=ON")
        return False
    return True
