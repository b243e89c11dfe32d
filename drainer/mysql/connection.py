"""Connections to a MySQL, MariaDB or TiDB downstream: one fixed session, errors of our own.

Drives  PyMySQL, here and nowhere else; SQL goes in as bytes and is sent untouched (`Connection.run`)
Holds   every session has the same time zone, modes and isolation, whatever the server's defaults are,
        because literals are rendered for exactly this session
        Of a target with a `mark`, no transaction that changes rows goes out without one
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
    drainer.sink.mysql.pinned_settings   whatever else would change what statements mean

A user may give another sql_mode and variables of the session (`drainer.mysql.session_mode`).
"""

from __future__ import annotations

import contextlib
import socket
import ssl
from collections.abc import Collection, Iterable, Iterator
from typing import Any, Final

import pymysql
from pymysql.constants import CLIENT, SERVER_STATUS

from drainer import metrics
from drainer.mysql.addresses import Addresses, Place
from drainer.mysql.errors import (
    CommitUnknown,
    ConnectionLost,
    NoSuchTable,
    SessionError,
    StatementRefused,
    safe_text,
    session_error,
)
from drainer.mysql.mark import MARK_SCHEMA, MARK_TABLE, Mark, changes_rows
from drainer.mysql.pinned_settings import pin
from drainer.mysql.rows.dialect import Dialect
from drainer.mysql.server_text import AS_SENT
from drainer.mysql.session_mode import DEFAULT, SessionMode
from tidb_binlog.errors import DownstreamError, Unavailable
from tidb_binlog.late_dataclass import dataclass, field, replace
from tidb_binlog.net.tls import ClientTls
from tidb_binlog.observe import log

logger = log.get("drainer.connection")

SQL_MODE: Final = DEFAULT.strict

_ERRORS: Final = (pymysql.err.MySQLError, OSError)
_NO_TLS: Final = 2026
# Rows with given AUTO_RANDOM values and any text that a TiDB has stored, commits checked at their end, no
# placement of ours: if it knows them.
TIDB_VARIABLES: Final = (
    ("allow_auto_random_explicit_insert", "1"),
    ("tidb_skip_ascii_check", "1"),
    ("tidb_skip_utf8_check", "1"),
    ("tidb_txn_mode", "'optimistic'"),
    ("tidb_placement_mode", "'ignore'"),
)
TIDB_CHECKS_AT_ONCE: Final = ("tidb_constraint_check_in_place", "1")
_UNKNOWN_VARIABLE: Final = 1193
_TRUNCATED: Final = 1265
_CHANGED: Final = frozenset({1048, 1264, _TRUNCATED, 1292, 1364, 1366, 1406})
"""Warnings of a session that is not strict: what is stored is not what was given."""
_FETCH_ROWS: Final = 4000
_FETCH_ROWS_FIRST: Final = 16
_FETCH_BYTES: Final = 1 << 20  # about so much of an answer is in memory
_KEEP_ALIVE: Final = (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 6))
_LOGIN: Final = frozenset({1044, 1045, 1049, 1130, 1698})


@dataclass(frozen=True, slots=True)
class Target:
    """Where the downstream is. The password is never shown."""

    host: str
    port: int
    user: str
    password: str
    socket: str = ""
    read_timeout_s: float | None = 60.0  # None: an answer may take for ever
    tls: ClientTls | None = None  # None: not encrypted
    mode: SessionMode = DEFAULT
    variables: tuple[tuple[str, str], ...] = ()  # (name, literal) set in every session
    side: str = "downstream"  # or "upstream": what it is, for errors
    section: str = "syncer.to"  # of the configuration
    mark: Mark | None = None  # what transactions of rows are marked with; None: with nothing
    addresses: Addresses | None = field(default=None, compare=False)  # of several servers, `host` the first

    def __repr__(self) -> str:
        host, port = self.place
        return f"{self.user}@{self.socket or f'{host}:{port}'}"

    @property
    def place(self) -> Place:
        """The server in use."""
        return (self.host, self.port) if self.addresses is None else self.addresses.place


class Away(Unavailable):
    """The server cannot be reached; `code` is the error's, 0 if it has none."""

    def __init__(self, message: str, *, hint: str = "", code: int = 0) -> None:
        super().__init__(message, hint=hint)
        self.code = code


def own_error(error: pymysql.err.MySQLError | OSError) -> SessionError:
    """The project's error for one of PyMySQL, or of its socket."""
    own = session_error(error.args)
    is_clients = isinstance(error, pymysql.err.InternalError) and not own.number  # a packet makes no sense
    if is_clients or isinstance(error, OSError | pymysql.err.InterfaceError):
        return ConnectionLost(*error.args)
    return own


@contextlib.contextmanager
def own_errors() -> Iterator[None]:
    """Whatever PyMySQL raises within is raised as a `SessionError`."""
    try:
        yield
    except _ERRORS as error:
        raise own_error(error) from error


class Connection(pymysql.connections.Connection):
    """A session of the downstream; statements go in as bytes. Its errors are `SessionError`."""

    server_version: str
    server_status: int
    mark: Mark | None = None
    _is_marked = False  # the transaction that is open, if one is

    # -- what PyMySQL does, with errors of our own ------------------------------------------------

    @own_errors()
    def connect(self, sock: Any = None) -> None:
        super().connect(sock)

    def query(self, sql: bytes | str, unbuffered: bool = False) -> int:
        if self.mark is not None and changes_rows(sql):
            return self._marked(self.mark, sql, unbuffered)
        return self._query(sql, unbuffered)

    def _query(self, sql: bytes | str, unbuffered: bool = False) -> int:
        try:  # as `own_errors` does, for a tenth of its time: all statements of a lane come through here
            return super().query(sql, unbuffered)
        except _ERRORS as error:
            self._is_marked = False  # some errors end the transaction
            raise own_error(error) from error

    @own_errors()
    def next_result(self, unbuffered: bool = False) -> int:
        return super().next_result(unbuffered)

    @own_errors()
    def begin(self) -> None:
        self._is_marked = False
        super().begin()

    def commit(self) -> None:
        """`CommitUnknown` where the answer got lost."""
        self._is_marked = False
        try:
            super().commit()
        except _ERRORS as error:
            own = own_error(error)
            raise CommitUnknown(*own.args) if isinstance(own, ConnectionLost) else own from error

    @own_errors()
    def rollback(self) -> None:
        self._is_marked = False
        super().rollback()

    @own_errors()
    def autocommit(self, value: bool) -> None:
        super().autocommit(value)

    def close(self) -> None:
        """Of one that is closed, or lost, already nothing is left to do."""
        with contextlib.suppress(*_ERRORS):
            super().close()

    @property
    def dialect(self) -> Dialect:
        return Dialect.of(self.server_version)

    # -- statements -------------------------------------------------------------------------------

    def run(self, statement: bytes) -> int:
        """Execute one statement; the number of affected (for UPDATE: matched) rows."""
        return int(self.query(statement))

    def run_lax(self, statement: bytes, mode: SessionMode, enums: Collection[str] | None = None) -> int:
        """`run`, with values that no strict mode takes. Strict again after an error, too, or closed.

        With `enums` (columns) only these may hold what they cannot: any other value that the server changed
        to fit is the `StatementRefused` that it would be in a strict session.
        """
        strict = b"SET SESSION sql_mode='" + mode.strict.encode() + b"'"
        self.run(b"SET SESSION max_error_count=65535,sql_mode='" + mode.lax.encode() + b"'")
        try:
            affected = self.run(statement)
            if enums is not None:
                self._refuse_changed(enums)
        except SessionError:
            try:
                self.run(strict)
            except SessionError:
                self.close()
            raise
        self.run(strict)
        return affected

    def _refuse_changed(self, enums: Collection[str]) -> None:
        named = [f"'{name.lower()}'" for name in enums]
        for _, number, text in self.rows(b"SHOW WARNINGS"):
            of_enum = number == _TRUNCATED and any(name in text.lower() for name in named)
            if number in _CHANGED and not of_enum:
                raise StatementRefused(number, text)

    def rows(self, query: bytes) -> list[tuple[Any, ...]]:
        """Execute a query and return all its rows."""
        with self.cursor() as cursor:
            cursor.execute(query.decode("utf-8", "surrogateescape"))
            return list(cursor.fetchall())

    def rows_if_there(self, *queries: bytes) -> list[list[tuple[Any, ...]]]:
        """The rows of each query; none where its table or database is not there."""
        answers: list[list[tuple[Any, ...]]] = []
        for query in queries:
            try:
                answers.append(self.rows(query))
            except NoSuchTable:
                answers.append([])
        return answers

    def rows_by_name(self, query: bytes) -> list[dict[str, Any]]:
        """All rows of a query by the names of its columns, in upper case."""
        with self.cursor(pymysql.cursors.DictCursor) as cursor:
            cursor.execute(query.decode())
            return [{str(name).upper(): value for name, value in row.items()} for row in cursor.fetchall()]

    # -- marks ------------------------------------------------------------------------------------

    def _marked(self, mark: Mark, sql: bytes | str, unbuffered: bool) -> int:
        """As `query`. `DownstreamError` where the transaction cannot be marked."""
        is_open = self.server_status & SERVER_STATUS.SERVER_STATUS_IN_TRANS
        if is_open and self._is_marked:
            return self._query(sql, unbuffered)
        is_alone = not is_open and self.get_autocommit()
        try:
            if is_alone:
                self.begin()
            self._write_mark(mark)
            self._is_marked = True
            matched = self._query(sql, unbuffered)
            if is_alone:
                self.commit()
        except BaseException:
            if is_alone:
                with contextlib.suppress(SessionError):
                    self.rollback()
            raise
        return matched

    def _write_mark(self, mark: Mark) -> None:
        row_id = mark.row_id(self.session_id)
        try:
            if mark.lane is not None:
                if self._query(mark.raise_row(row_id)) == 1:
                    return
                metrics.MARKS_MISSING.inc()
                logger.warning(
                    "the lane's mark row was missing, it is written anew",
                    lane=row_id,
                    channel=mark.channel_id,
                )
            self._query(mark.write_row(row_id))
        except NoSuchTable:
            raise DownstreamError(
                f"{MARK_SCHEMA}.{MARK_TABLE} is gone downstream: without marks rows would come "
                "back from there",
                hint="start the drainer again, it makes the table",
            ) from None
        except StatementRefused as error:  # it is none of the table whose rows are to be written
            raise DownstreamError(
                f"the mark of two-way replication is refused: {safe_text(error)}",
                hint=f"GRANT SELECT, INSERT, UPDATE, DELETE ON {MARK_SCHEMA}.* to the user",
            ) from None

    # -- values as the server prints them, bytes and NULL -----------------------------------------

    def printed(self, query: bytes) -> list[tuple[bytes | None, ...]]:
        """All rows of a query."""
        with self._printing():
            return self.rows(query)

    def stream_printed(self, query: bytes) -> Iterator[tuple[bytes | None, ...]]:
        """The rows of a query as they arrive. Until the last one was taken the session has no other use."""
        with own_errors(), self.cursor(pymysql.cursors.SSCursor) as cursor:
            with self._printing():
                cursor.execute(query.decode("utf-8", "surrogateescape"))
            count = _FETCH_ROWS_FIRST
            while some := cursor.fetchmany(count):
                yield from some
                sample = some[::_FETCH_ROWS_FIRST]
                size = 1 + sum(len(value or b"") for row in sample for value in row)
                count = max(1, min(_FETCH_ROWS, 4 * count, _FETCH_BYTES * len(sample) // size))

    @contextlib.contextmanager
    def _printing(self) -> Iterator[None]:
        decoders, unicode = self.decoders, self.use_unicode
        self.decoders, self.use_unicode = {}, False
        try:
            yield
        finally:
            self.decoders, self.use_unicode = decoders, unicode

    # -- the session ------------------------------------------------------------------------------

    @property
    def session_id(self) -> int:
        """The number by which the server knows the session."""
        return int(self.thread_id())  # type: ignore[no-untyped-call]

    def packet_bytes_max(self, scope: str = "session") -> int:
        """Largest statement the server takes; a larger one ends like a lost connection, so it is never sent.

        A session keeps the limit that was `global` when it began.
        """
        ((size,),) = self.rows(b"SELECT @@%b.max_allowed_packet" % scope.encode())
        return int(size)

    def is_read_only(self) -> bool:
        """Whether the server is: it follows another one, and what is written there is lost. Raises `Away`."""
        try:
            ((value,),) = self.rows(b"SELECT @@global.read_only")
        except SessionError as error:
            raise Away(f"the downstream does not say whether it is read-only: {safe_text(error)}") from None
        return str(value).upper() in ("1", "ON")

    def cut(self) -> None:
        """From any thread: whatever waits for the server is told that the connection is lost."""
        transport = getattr(self, "_sock", None)
        if transport is not None:
            with contextlib.suppress(OSError):
                socket.socket.shutdown(transport, socket.SHUT_RDWR)

    @own_errors()
    def keep_alive(self) -> None:
        """A server that vanishes while a statement runs for hours is noticed all the same."""
        transport = getattr(self, "_sock", None)
        if transport is None or transport.family == getattr(socket, "AF_UNIX", None):
            return
        transport.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in _KEEP_ALIVE:
            if hasattr(socket, name):
                transport.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def connect(target: Target) -> Connection:
    """A session as described above. `Unavailable`: the server is away; `DownstreamError`: it refuses us. Of
    several servers: at the one in use."""
    if target.addresses is None:
        return _connected(target)

    def at(place: Place) -> Connection:
        host, port = place
        return _connected(replace(target, host=host, port=port, addresses=None))

    return target.addresses.session(at)


def _connected(target: Target) -> Connection:
    try:
        connection = _opened(target)
    except SessionError as error:
        if error.number in _LOGIN:
            raise DownstreamError(
                f"{target.side} {target!r} refused the login: {safe_text(error)}",
                hint=f"check user, password and grants: of [{target.section}], or of the URL that was given",
            ) from None
        cause = getattr(error.__cause__, "original_exception", error.__cause__)
        raise Away(
            f"{target.side} {target!r} cannot be reached: {safe_text(error)}",
            hint=f"check [{target.section}.security], the certificates and the host's name in the server's"
            if isinstance(cause, ssl.SSLError) or error.number == _NO_TLS
            else f"is it running? check host and port: of [{target.section}], or of the URL that was given",
            code=error.number,
        ) from None
    connection.encoding = AS_SENT
    try:
        if target.tls is not None:
            check_encrypted(connection, target, target.tls)
        pin(connection, target.side)
        prepare_session(connection, target.mode.strict, target.variables)
        connection.mark = target.mark
    except BaseException:
        connection.close()
        raise
    return connection


@own_errors()
def _opened(target: Target) -> Connection:
    return Connection(
        host=target.host,
        port=target.port,
        user=target.user,
        password=target.password.encode(),  # a text would go as Latin-1
        unix_socket=target.socket or None,
        charset="utf8mb4",
        autocommit=False,
        client_flag=CLIENT.FOUND_ROWS,
        connect_timeout=5,
        read_timeout=target.read_timeout_s,
        write_timeout=target.read_timeout_s,
        ssl=target.tls.context() if target.tls else None,
        ssl_disabled=target.tls is None,
    )


def check_encrypted(connection: Connection, target: Target, tls: ClientTls) -> None:
    """A session that is to be encrypted is, to the server that was named. Raises `Unavailable`."""
    transport = getattr(connection, "_sock", None)
    if not isinstance(transport, ssl.SSLSocket):
        refusal = "it does not speak TLS"
    else:
        refusal = tls.refusal(transport.getpeercert()) or ""
    if refusal:
        raise Unavailable(
            f"{target.side} {target!r} is not used: {refusal}",
            hint=f"check [{target.section}.security] and its certificate",
        )


def prepare_session(
    connection: Connection,
    sql_mode: str = SQL_MODE,
    variables: Iterable[tuple[str, str]] = (),
) -> None:
    """Give the session the settings that literals and statements are made for, and those of the user.

    `DownstreamError`: the server does not take one of the user's.
    """
    # The variable has another name in each server and version; the statement has not.
    connection.run(b"SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
    settings = f"time_zone='+00:00', foreign_key_checks=0, sql_mode='{sql_mode}'"
    connection.run(f"SET SESSION {settings}".encode())
    pinned = dict(variables)
    if connection.dialect is Dialect.TIDB:
        for name, value in TIDB_VARIABLES:
            if name not in pinned:
                set_if_known(connection, name, value)
    for name, value in pinned.items():
        try:
            connection.run(f"SET SESSION {name}={value}".encode())
        except StatementRefused as error:
            raise DownstreamError(
                f"syncer.to.params: downstream does not take {name}: {safe_text(error)}",
                hint="take it out, or correct its value",
            ) from None


def set_if_known(connection: Connection, name: str, value: str) -> None:
    """Set a variable of the session, on a server that has it."""
    try:
        connection.run(f"SET SESSION {name}={value}".encode())
    except StatementRefused as error:
        if error.number != _UNKNOWN_VARIABLE:
            raise
