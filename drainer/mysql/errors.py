"""Errors of a downstream session: the project's own, whichever client library met them.

    SessionError              `number` and `text` are the server's; 0 where the client found the error
    ├── StatementRefused      the same would be refused again
    │   └── NoSuchTable       the table, or its database, is not there
    └── TransientError        passes by itself; `trouble` says what it is
        └── ConnectionLost    and the session with it
            └── CommitUnknown   while its COMMIT was under way, which may have been carried out

Holds  every error of PyMySQL and of its sockets leaves `drainer.mysql.connection` as one of these
Never  in the tree of `tidb_binlog.errors`: a caller decides what a refusal means for the work that met it
"""

from __future__ import annotations

import re
from enum import Enum
from typing import Final

from tidb_binlog.errors import BinlogError, DownstreamError, Unavailable

DUPLICATE: Final = 1062
NO_SUCH_DATABASE: Final = 1049
NO_SUCH_TABLE: Final = 1146
_NO_SUCH_VIEW: Final = 1109  # of information_schema, in an old release
NOT_ALLOWED: Final = frozenset({1142, 1143})
"""The user has no right on a table, or on a column."""

WHOLE_SERVER: Final = frozenset(
    {
        *(1044, 1045, 1227, 1410, 1820, 1862, 3118),  # the account and its rights
        *(1193, 1223, 1231, 1238, 1298),  # the session's settings, its locks
        *(1598, 1665, 1666, 1785, 1786, 3032),  # the server's own log, its mode
    }
)
"""Refusals that any other table would get too. A right may be missing on one table alone."""

_QUOTED: Final = re.compile(r"'.*'", re.DOTALL)  # from the first to the last quote: values may hold some
_FIRST_VALUE: Final = re.compile(r"('.*')(?= for (?:key|column|function)\b)", re.DOTALL)
# Numbers of errors whose text has a row value: before `for key/column`, or anywhere between quotes.
_VALUE_FIRST: Final = frozenset({1062, 1292, 1366, 1411, 1526, 1586})
_VALUES_ANYWHERE: Final = frozenset(
    {1064, 1105, 1149, 1300, 1367, 1525, 1690, 3140, 3141, 3156, 3854, 4025, 4038}
)
_MASK: Final = "'...'"
_BROKEN_KEY: Final = {number: re.compile(r"^.* for key '(.*)'\s*$", re.DOTALL) for number in (1062, 1586)}
_BROKEN_CHECK: Final = {
    4025: re.compile(r"CONSTRAINT `((?:[^`]|``)*)` failed"),
    3819: re.compile(r"Check constraint '(.*)' is violated", re.DOTALL),
}


class SessionError(Exception):
    """An error with which a statement, or the session itself, ended; `args` are those of the client."""

    @property
    def number(self) -> int:
        number = self.args[0] if self.args else 0
        return number if isinstance(number, int) else 0

    @property
    def text(self) -> str:
        """As the server said it: it may have row values, see `safe_text`."""
        return str(self.args[1]) if len(self.args) > 1 else str(self)


class StatementRefused(SessionError):
    """The server does not do it, and would not the next time."""


class NoSuchTable(StatementRefused):
    """What a statement names is not there: a table, or its database."""


class TransientError(SessionError):
    """The same work may succeed later, on a fresh connection."""

    @property
    def trouble(self) -> Trouble:
        return trouble_of_number(self.number, self.text) or Trouble.CONNECTION


class ConnectionLost(TransientError):
    """The session is of no use any more."""

    @property
    def trouble(self) -> Trouble:
        return Trouble.CONNECTION


class CommitUnknown(ConnectionLost):
    """The session was lost while it committed: whether that was done only the data can tell."""


def session_error(arguments: tuple[object, ...]) -> SessionError:
    """What an error with these arguments, number and text, means."""
    error = SessionError(*arguments)
    trouble = trouble_of_number(error.number, error.text)
    if trouble is Trouble.CONNECTION:
        return ConnectionLost(*arguments)
    if trouble is not None:
        return TransientError(*arguments)
    exists = error.number not in (NO_SUCH_DATABASE, NO_SUCH_TABLE, _NO_SUCH_VIEW)
    return StatementRefused(*arguments) if exists else NoSuchTable(*arguments)


def trouble_of(error: BaseException) -> Trouble | None:
    """What passes by itself; None: the same work would fail again."""
    if isinstance(error, Unavailable):
        return trouble_of_number(getattr(error, "code", 0)) or Trouble.CONNECTION
    return error.trouble if isinstance(error, TransientError) else None


def broken_key(error: BaseException) -> str:
    """The unique key that a row breaks, maybe with its table's name and a dot before; "" for other errors."""
    return _named(error, _BROKEN_KEY)


def broken_check(error: BaseException) -> str:
    """The CHECK constraint that a row breaks; "" for other errors."""
    return _named(error, _BROKEN_CHECK).replace("``", "`")


def _named(error: BaseException, patterns: dict[int, re.Pattern[str]]) -> str:
    if not isinstance(error, SessionError) or error.number not in patterns:
        return ""
    match = patterns[error.number].search(error.text)
    return match[1] if match is not None else ""


def safe_text(error: BaseException, *, values: bool = False) -> str:
    """The server's text; row values in it only if they are allowed."""
    if not isinstance(error, SessionError):
        return str(error)
    number, text = error.number, error.text
    if not values:
        if number in _VALUE_FIRST:
            masked = _FIRST_VALUE.sub(_MASK, text, count=1)
            text = masked if masked != text else _QUOTED.sub(_MASK, text)
        elif number in _VALUES_ANYWHERE:
            text = _QUOTED.sub(_MASK, text)
    return f"{number}: {text}" if number else text


def passing_error(error: BaseException, doing: str) -> Unavailable:
    """The error to stop with when what passes by itself did not in the time there was."""
    return Unavailable(f"{doing}: downstream says {safe_text(error)}", hint="start again when it answers")


def final_error(error: BaseException, doing: str, *, values: bool = False) -> BinlogError:
    """The error to stop with when the downstream refused for good; row values in it only if allowed."""
    return DownstreamError(
        f"{doing}: downstream says {safe_text(error, values=values)}",
        hint="correct the downstream and start the drainer again; the checkpoint is before this point",
    )


# Transient errors: which errors of the downstream pass by themselves.
# Holds  what is in the table is tried again without limit; of everything else the row's table waits, or the
#        drainer stops: see `drainer.mysql.refusal`


class Trouble(Enum):
    """Values are shown to operators and label a metric. The last is a lane's own, no error."""

    CONNECTION = "connection lost"
    RESTART = "server starting or stopping"
    READ_ONLY = "server is read-only"
    CONNECTIONS = "too many connections"
    LOCK = "deadlock or lock wait"
    INTERRUPTED = "statement interrupted"
    RESOURCES = "server out of space or memory"
    COMMIT = "commit failed"
    STORE = "TiDB's store"
    RELAY_LOG = "relay log is slow"

    @property
    def keeps_connection(self) -> bool:
        """The session is as good as before, once it is rolled back."""
        return self in (Trouble.LOCK, Trouble.RELAY_LOG)


NUMBERS: Final[dict[Trouble, tuple[int, ...]]] = {
    # reading and writing packets, killed, gone away, lost
    Trouble.CONNECTION: (1152, 1158, 1159, 1160, 1161, 1184, 1927, 2002, 2003, 2006, 2013, 2014, 2055, 4031),
    Trouble.RESTART: (1047, 1053, 1077, 1079, 3169),
    Trouble.READ_ONLY: (1290, 1792, 1836),
    Trouble.CONNECTIONS: (1040, 1129, 1135, 1203, 1226, 1637),
    Trouble.LOCK: (1020, 1205, 1213, 1614),
    Trouble.INTERRUPTED: (1317, 1969, 3024),
    Trouble.RESOURCES: (1021, 1037, 1038, 1041, 1114, 1206),
    Trouble.COMMIT: (1180, 3101),
    # PD and TiKV timeouts, busy, region, write conflict, schema changed, lock's time is over
    Trouble.STORE: (
        *(8002, 8005, 8022, 8027, 8028, 8229),
        *(9001, 9002, 9003, 9004, 9005, 9007, 9010, 9011, 9012, 9013),
    ),
}
_BY_NUMBER: Final = {number: trouble for trouble, numbers in NUMBERS.items() for number in numbers}
_OF_FILES: Final = frozenset({3, 1026, 1030})  # a storage engine's, for any reason
_FULL: Final = re.compile(r"\b(?:28|122)\b|No space left|quota exceeded", re.IGNORECASE)


def trouble_of_number(number: int, text: str = "") -> Trouble | None:
    """`text` is the server's, for numbers that do not say enough."""
    if number in _OF_FILES and _FULL.search(text):
        return Trouble.RESOURCES
    return _BY_NUMBER.get(number)
