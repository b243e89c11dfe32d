"""Trouble: what an error of the downstream means for the work that met it.

In     errors of PyMySQL, of sockets, and `Unavailable`
Out    the class of a trouble that passes by itself, None for an error that would come again; the server's
       text without row values
Holds  what is transient is tried again without limit; everything else stops the drainer at once
"""

from __future__ import annotations

import re
from enum import Enum
from typing import Final

import pymysql

from common.errors import BinlogError, DownstreamError, Unavailable


class Trouble(Enum):
    """Values are shown to operators and label a metric."""

    CONNECTION = "connection lost"
    RESTART = "server starting or stopping"
    READ_ONLY = "server is read-only"
    CONNECTIONS = "too many connections"
    LOCK = "deadlock or lock wait"
    INTERRUPTED = "statement interrupted"
    RESOURCES = "server out of space or memory"
    COMMIT = "commit failed"
    STORE = "TiDB's store"

    @property
    def keeps_connection(self) -> bool:
        """The session is as good as before, once it is rolled back."""
        return self is Trouble.LOCK


_CODES: Final[dict[Trouble, tuple[int, ...]]] = {
    # reading and writing packets, killed, gone away, lost
    Trouble.CONNECTION: (1152, 1158, 1159, 1160, 1161, 1184, 1927, 2002, 2003, 2006, 2013, 2014, 2055),
    Trouble.RESTART: (1047, 1053, 1077, 1079, 3169),
    Trouble.READ_ONLY: (1290, 1792, 1836),
    Trouble.CONNECTIONS: (1040, 1129, 1135, 1203, 1226),
    Trouble.LOCK: (1020, 1205, 1213, 1614),
    Trouble.INTERRUPTED: (1317, 1969, 3024),
    Trouble.RESOURCES: (1021, 1037, 1038, 1041, 1114),
    Trouble.COMMIT: (1180,),
    # PD and TiKV timeouts, busy, region, write conflict, schema changed, lock's time is over
    Trouble.STORE: (
        *(8002, 8005, 8022, 8027, 8028, 8229),
        *(9001, 9002, 9003, 9004, 9005, 9007, 9010, 9011, 9012, 9013),
    ),
}
_BY_CODE: Final = {code: trouble for trouble, codes in _CODES.items() for code in codes}

DUPLICATE: Final = 1062
NO_SUCH_DATABASE: Final = 1049
NO_SUCH_TABLE: Final = 1146

_QUOTED: Final = re.compile(r"'.*'", re.DOTALL)  # from the first to the last quote: values may hold some
_FIRST_VALUE: Final = re.compile(r"('.*')(?= for (?:key|column|function)\b)", re.DOTALL)
# Codes whose text has a row value: before `for key/column`, or anywhere between quotes.
_VALUE_FIRST: Final = frozenset({1062, 1292, 1366, 1411, 1526, 1586})
_VALUES_ANYWHERE: Final = frozenset({1064, 1105, 1149, 1367, 1525, 1690, 3140, 3141, 3156, 4025, 4038})
_MASK: Final = "'...'"
_BROKEN_KEY: Final = {code: re.compile(r"^.* for key '(.*)'\s*$", re.DOTALL) for code in (1062, 1586)}
_BROKEN_CHECK: Final = {
    4025: re.compile(r"CONSTRAINT `((?:[^`]|``)*)` failed"),
    3819: re.compile(r"Check constraint '(.*)' is violated", re.DOTALL),
}


def error_code(error: BaseException) -> int:
    """MySQL error code of a PyMySQL error, 0 if it carries none."""
    code = error.args[0] if error.args else 0
    return code if isinstance(code, int) else 0


def trouble_of(error: BaseException) -> Trouble | None:
    """The class of a passing trouble; None: the same work would fail again."""
    if isinstance(error, Unavailable):
        return _BY_CODE.get(getattr(error, "code", 0), Trouble.CONNECTION)
    if isinstance(error, OSError | pymysql.err.InterfaceError):
        return Trouble.CONNECTION
    if not isinstance(error, pymysql.err.MySQLError):
        return None
    code = error_code(error)
    if not code and isinstance(error, pymysql.err.InternalError):
        return Trouble.CONNECTION  # a packet that makes no sense: the client's own error
    return _BY_CODE.get(code)


def broken_key(error: BaseException) -> str:
    """The unique key that a row breaks, maybe with its table's name and a dot before; "" for other errors."""
    return _named(error, _BROKEN_KEY)


def broken_check(error: BaseException) -> str:
    """The CHECK constraint that a row breaks; "" for other errors."""
    return _named(error, _BROKEN_CHECK).replace("``", "`")


def _named(error: BaseException, patterns: dict[int, re.Pattern[str]]) -> str:
    pattern = patterns.get(error_code(error))
    found = pattern.search(str(error.args[1])) if pattern is not None and len(error.args) > 1 else None
    return found[1] if found is not None else ""


def is_transient(error: BaseException) -> bool:
    """Whether the same work may succeed on a fresh connection."""
    return trouble_of(error) is not None


def safe_text(error: BaseException, *, values: bool = False) -> str:
    """The server's text; row values in it only if they are allowed."""
    if isinstance(error, Unavailable):
        return str(error)
    code = error_code(error)
    text = str(error.args[1]) if len(error.args) > 1 else str(error)
    if not values:
        if code in _VALUE_FIRST:
            masked = _FIRST_VALUE.sub(_MASK, text, count=1)
            text = masked if masked != text else _QUOTED.sub(_MASK, text)
        elif code in _VALUES_ANYWHERE:
            text = _QUOTED.sub(_MASK, text)
    return f"{code}: {text}" if code else text


def refuse(error: BaseException, doing: str, *, values: bool = False) -> BinlogError:
    """The error to stop with when the downstream refused for good; row values in it only if allowed."""
    return DownstreamError(
        f"{doing}: downstream says {safe_text(error, values=values)}",
        hint="correct the downstream and start the drainer again; the checkpoint is before this point",
    )
