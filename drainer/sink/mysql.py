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
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

import pymysql
from pymysql.constants import CLIENT

from common.errors import BinlogError, DownstreamError, Unavailable

SQL_MODE: Final = "STRICT_TRANS_TABLES,NO_AUTO_VALUE_ON_ZERO,NO_ENGINE_SUBSTITUTION,ALLOW_INVALID_DATES"
LAX_SQL_MODE: Final = "NO_AUTO_VALUE_ON_ZERO,NO_ENGINE_SUBSTITUTION,ALLOW_INVALID_DATES"

# Codes after which the same batch is tried again on a fresh connection.
TRANSIENT: Final = frozenset(
    {
        1020,  # record has changed since last read
        1040,  # too many connections
        1053,  # server shutdown in progress
        1077,
        1129,  # host blocked after connection errors
        1152,  # aborted connection
        1158,
        1159,
        1160,
        1161,  # network read and write errors
        1180,  # error during COMMIT
        1184,
        1205,  # lock wait timeout: only the statement was rolled back, hence always ROLLBACK
        1213,  # deadlock
        1290,  # read_only
        1317,  # query interrupted
        1836,
        1927,  # connection was killed
        2002,
        2003,
        2006,
        2013,
        2014,
        2055,  # client side: cannot connect, gone away, lost
        3024,
        8002,
        8022,
        8028,
        9001,
        9002,
        9003,
        9004,
        9005,
        9007,  # TiDB: retryable transaction and store errors
    }
)
LOGIN: Final = frozenset({1044, 1045, 1049, 1130, 1698})
DUPLICATE: Final = 1062
NO_SUCH_DATABASE: Final = 1049
NO_SUCH_TABLE: Final = 1146
_CARRIES_VALUES: Final = frozenset({1062, 1264, 1265, 1292, 1366, 1411, 1586, 4025})
_QUOTED = re.compile(r"'(?:[^'\\]|\\.|'')*'")


@dataclass(frozen=True, slots=True)
class Target:
    """Where the downstream is. The password is never shown."""

    host: str
    port: int
    user: str
    password: str
    socket: str = ""
    read_timeout_s: float = 60.0
    tls: ssl.SSLContext | None = None  # None: not encrypted; made once, since it costs 40 ms

    def __repr__(self) -> str:
        return f"{self.user}@{self.socket or f'{self.host}:{self.port}'}"


def error_code(error: BaseException) -> int:
    """MySQL error code of a PyMySQL error, 0 if it carries none."""
    code = error.args[0] if error.args else 0
    return code if isinstance(code, int) else 0


def is_transient(error: BaseException) -> bool:
    """Whether the same work may succeed on a fresh connection."""
    if isinstance(error, OSError | pymysql.err.InterfaceError):
        return True
    return isinstance(error, pymysql.err.MySQLError) and error_code(error) in TRANSIENT


def safe_text(error: BaseException) -> str:
    """The server's text without row values."""
    code = error_code(error)
    text = str(error.args[1]) if len(error.args) > 1 else str(error)
    if code in _CARRIES_VALUES:
        text = _QUOTED.sub("'...'", text)
    return f"{code}: {text}" if code else text


def connect(target: Target, *, read_timeout_s: float | None = -1.0) -> pymysql.Connection[Any]:
    """A session as described above. `Unavailable`: the server is away; `DownstreamError`: it refuses us."""
    timeout = target.read_timeout_s if read_timeout_s == -1.0 else read_timeout_s
    try:
        connection = pymysql.connect(
            host=target.host,
            port=target.port,
            user=target.user,
            password=target.password,
            unix_socket=target.socket or None,
            charset="utf8mb4",
            autocommit=False,
            client_flag=CLIENT.FOUND_ROWS,
            connect_timeout=5,
            read_timeout=timeout,
            write_timeout=timeout,
            ssl=target.tls,
            ssl_disabled=target.tls is None,
        )
    except (pymysql.err.MySQLError, OSError) as error:
        if error_code(error) in LOGIN:
            raise DownstreamError(
                f"downstream {target!r} refused the login: {safe_text(error)}",
                hint="check [syncer.to] user, password and grants",
            ) from None
        raise Unavailable(
            f"downstream {target!r} cannot be reached: {safe_text(error)}",
            hint="is it running? check [syncer.to] host and port",
        ) from None
    try:
        prepare_session(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def prepare_session(connection: pymysql.Connection[Any], sql_mode: str = SQL_MODE) -> None:
    """Give the session the settings that literals and statements are made for."""
    mariadb = "mariadb" in server_version(connection).lower()
    isolation = "tx_isolation" if mariadb else "transaction_isolation"
    settings = f"time_zone='+00:00', foreign_key_checks=0, sql_mode='{sql_mode}'"
    run(connection, f"SET SESSION {isolation}='READ-COMMITTED', {settings}".encode())


def server_version(connection: pymysql.Connection[Any]) -> str:
    return str(connection.get_server_info())  # type: ignore[no-untyped-call]


def packet_bytes_max(connection: pymysql.Connection[Any]) -> int:
    """Largest statement the server takes; a larger one looks like a dead network, so it is never sent."""
    ((size,),) = rows(connection, b"SELECT @@max_allowed_packet")
    return int(size)


def run(connection: pymysql.Connection[Any], statement: bytes) -> int:
    """Execute one statement given as bytes; the number of affected (for UPDATE: matched) rows."""
    return int(connection.query(statement))


def rows(connection: pymysql.Connection[Any], statement: bytes) -> list[tuple[Any, ...]]:
    """Execute a query given as bytes and return all its rows."""
    with connection.cursor() as cursor:
        cursor.execute(statement.decode())
        return list(cursor.fetchall())


def refuse(error: BaseException, doing: str) -> BinlogError:
    """The error to stop with when the downstream refused for good."""
    return DownstreamError(
        f"{doing}: downstream says {safe_text(error)}",
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
