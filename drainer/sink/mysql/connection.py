"""Connections to a MySQL, MariaDB or TiDB downstream: one fixed session, one error table.

Drives  PyMySQL; SQL goes in as bytes and is sent untouched (`Connection.query`)
Holds   every session has the same time zone, modes and isolation, whatever the server's defaults are,
        because literals are rendered for exactly this session
Never   logs a statement or an error text that may carry row values

Session settings and why:

    time_zone +00:00                TIMESTAMPs are rendered in UTC
    READ COMMITTED                  no gap locks between lanes
    foreign_key_checks = 0          parent and child rows may go through different lanes, and the binlog
                                    already contains what cascades did
    sql_mode strict, with invalid   a value that does not fit is an error, never clipped; dates that the
    and zero dates allowed          upstream accepted under a looser mode are stored as they are
    NO_AUTO_VALUE_ON_ZERO           0 in an AUTO_INCREMENT column stays 0
    client flag FOUND_ROWS          an UPDATE that changes nothing still counts the row it matched

A user may give another sql_mode and variables of the session (`drainer.sink.mysql.session_mode`).
"""

from __future__ import annotations

import ssl
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

import pymysql
from pymysql.constants import CLIENT

from common.errors import BinlogError, DownstreamError, Unavailable
from common.net.tls import ClientTls
from drainer.sink.mysql.errors import error_code as error_code
from drainer.sink.mysql.errors import is_transient as is_transient
from drainer.sink.mysql.errors import safe_text as safe_text
from drainer.sink.mysql.server_text import read_as_sent
from drainer.sink.mysql.session_mode import DEFAULT, SessionMode

SQL_MODE: Final = DEFAULT.strict

_NO_TLS: Final = 2026
# Rows with given AUTO_RANDOM values, commits checked at their end, no placement of ours: if it knows them.
TIDB_VARIABLES: Final = (
    ("allow_auto_random_explicit_insert", "1"),
    ("tidb_txn_mode", "'optimistic'"),
    ("tidb_placement_mode", "'ignore'"),
)
UNKNOWN_VARIABLE: Final = 1193
LOGIN: Final = frozenset({1044, 1045, 1049, 1130, 1698})
DUPLICATE: Final = 1062
NO_SUCH_DATABASE: Final = 1049
NO_SUCH_TABLE: Final = 1146


@dataclass(frozen=True, slots=True)
class Target:
    """Where the downstream is. The password is never shown."""

    host: str
    port: int
    user: str
    password: str
    socket: str = ""
    read_timeout_s: float = 60.0
    tls: ClientTls | None = None  # None: not encrypted
    mode: SessionMode = DEFAULT
    variables: tuple[tuple[str, str], ...] = ()  # (name, literal) set in every session

    def __repr__(self) -> str:
        return f"{self.user}@{self.socket or f'{self.host}:{self.port}'}"


class Away(Unavailable):
    """The server cannot be reached; `code` is the error's, 0 if it has none."""

    def __init__(self, message: str, *, hint: str = "", code: int = 0) -> None:
        super().__init__(message, hint=hint)
        self.code = code


def connect(target: Target, *, read_timeout_s: float | None = -1.0) -> pymysql.Connection[Any]:
    """A session as described above. `Unavailable`: the server is away; `DownstreamError`: it refuses us."""
    timeout = target.read_timeout_s if read_timeout_s == -1.0 else read_timeout_s
    try:
        connection = pymysql.connect(
            host=target.host,
            port=target.port,
            user=target.user,
            password=target.password.encode(),  # a text would go as Latin-1
            unix_socket=target.socket or None,
            charset="utf8mb4",
            autocommit=False,
            client_flag=CLIENT.FOUND_ROWS,
            connect_timeout=5,
            read_timeout=timeout,
            write_timeout=timeout,
            ssl=target.tls.context() if target.tls else None,
            ssl_disabled=target.tls is None,
        )
    except (pymysql.err.MySQLError, OSError) as error:
        if error_code(error) in LOGIN:
            raise DownstreamError(
                f"downstream {target!r} refused the login: {safe_text(error)}",
                hint="check user, password and grants: of [syncer.to], or of the URL that was given",
            ) from None
        cause = getattr(error, "original_exception", error)
        raise Away(
            f"downstream {target!r} cannot be reached: {safe_text(error)}",
            hint="check [syncer.to.security], the certificates and the host's name in the downstream's"
            if isinstance(cause, ssl.SSLError) or error_code(error) == _NO_TLS
            else "is it running? check host and port: of [syncer.to], or of the URL that was given",
            code=error_code(error),
        ) from None
    read_as_sent(connection)
    try:
        if target.tls is not None:
            check_encrypted(connection, target, target.tls)
        prepare_session(connection, target.mode.strict, target.variables)
    except BaseException:
        connection.close()
        raise
    return connection


def check_encrypted(connection: pymysql.Connection[Any], target: Target, tls: ClientTls) -> None:
    """Whoever asked for TLS gets it, from whom he named, or nothing. Raises `Unavailable`."""
    transport = getattr(connection, "_sock", None)
    if not isinstance(transport, ssl.SSLSocket):
        refusal = "it does not speak TLS"
    else:
        refusal = tls.refusal(transport.getpeercert()) or ""
    if refusal:
        raise Unavailable(
            f"downstream {target!r} is not used: {refusal}",
            hint="check [syncer.to.security] and its certificate",
        )


def prepare_session(
    connection: pymysql.Connection[Any],
    sql_mode: str = SQL_MODE,
    variables: Iterable[tuple[str, str]] = (),
) -> None:
    """Give the session the settings that literals and statements are made for, and those of the user.

    `DownstreamError`: the server does not take one of the user's.
    """
    # The variable has another name in each server and version; the statement has not.
    run(connection, b"SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
    settings = f"time_zone='+00:00', foreign_key_checks=0, sql_mode='{sql_mode}'"
    run(connection, f"SET SESSION {settings}".encode())
    wanted = dict(variables)
    if "tidb" in server_version(connection).lower():
        for name, value in TIDB_VARIABLES:
            if name not in wanted:
                _set_if_known(connection, name, value)
    for name, value in wanted.items():
        try:
            run(connection, f"SET SESSION {name}={value}".encode())
        except pymysql.err.MySQLError as error:
            if is_transient(error):
                raise
            raise DownstreamError(
                f"syncer.to.params: downstream does not take {name}: {safe_text(error)}",
                hint="take it out, or correct its value",
            ) from None


def _set_if_known(connection: pymysql.Connection[Any], name: str, value: str) -> None:
    try:
        run(connection, f"SET SESSION {name}={value}".encode())
    except pymysql.err.MySQLError as error:
        if error_code(error) != UNKNOWN_VARIABLE:
            raise


def server_version(connection: pymysql.Connection[Any]) -> str:
    return str(connection.get_server_info())  # type: ignore[no-untyped-call]


def packet_bytes_max(connection: pymysql.Connection[Any], scope: str = "session") -> int:
    """Largest statement the server takes; a larger one looks like a dead network, so it is never sent.

    A session keeps the limit that was `global` when it began.
    """
    ((size,),) = rows(connection, b"SELECT @@%b.max_allowed_packet" % scope.encode())
    return int(size)


def session_id(connection: pymysql.Connection[Any]) -> int:
    """The number by which the server knows the session."""
    return int(connection.thread_id())  # type: ignore[no-untyped-call]


def run(connection: pymysql.Connection[Any], statement: bytes) -> int:
    """Execute one statement given as bytes; the number of affected (for UPDATE: matched) rows."""
    return int(connection.query(statement))


def rows(connection: pymysql.Connection[Any], statement: bytes) -> list[tuple[Any, ...]]:
    """Execute a query given as bytes and return all its rows."""
    with connection.cursor() as cursor:
        cursor.execute(statement.decode("utf-8", "surrogateescape"))
        return list(cursor.fetchall())


def rows_if_there(connection: pymysql.Connection[Any], *queries: bytes) -> list[list[tuple[Any, ...]]]:
    """The rows of each query; none where its table or database is not there."""
    found: list[list[tuple[Any, ...]]] = []
    for query in queries:
        try:
            found.append(rows(connection, query))
        except pymysql.err.MySQLError as error:
            if error_code(error) not in (NO_SUCH_DATABASE, NO_SUCH_TABLE):
                raise
            found.append([])
    return found


def refuse(error: BaseException, doing: str, *, values: bool = False) -> BinlogError:
    """The error to stop with when the downstream refused for good; row values in it only if allowed."""
    return DownstreamError(
        f"{doing}: downstream says {safe_text(error, values=values)}",
        hint="correct the downstream and start the drainer again; the checkpoint is before this point",
    )


def quote(name: str) -> bytes:
    """An identifier in backquotes."""
    return b"`" + name.replace("`", "``").encode() + b"`"


def qualified(schema: str, table: str) -> bytes:
    return quote(schema) + b"." + quote(table)


def literal(text: str) -> bytes:
    """A string literal for this session (backslash escapes are on)."""
    return b"'" + text.replace("\\", "\\\\").replace("'", "''").encode() + b"'"


def joined(parts: Iterable[bytes]) -> bytes:
    return b",".join(parts)
