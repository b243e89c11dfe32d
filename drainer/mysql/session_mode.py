"""Session mode: the sql_mode and the session variables that rows are written with.

Out    the modes of a lane's session, and the variables to set; `ConfigError` for what would make literals
       mean something else or let lanes disturb each other
Holds  a mode that is given replaces the strict one, as it did with the Go drainer; two are always added:
       0 in an AUTO_INCREMENT column stays 0, and dates that the upstream accepted are stored as they are
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from tidb_binlog.errors import ConfigError
from tidb_binlog.late_dataclass import dataclass

STRICT: Final = "STRICT_TRANS_TABLES"
_ALWAYS: Final = ("NO_AUTO_VALUE_ON_ZERO", "ALLOW_INVALID_DATES")
_DEFAULT: Final = (STRICT, "NO_AUTO_VALUE_ON_ZERO", "NO_ENGINE_SUBSTITUTION", "ALLOW_INVALID_DATES")
_STRICT: Final = frozenset({STRICT, "STRICT_ALL_TABLES", "TRADITIONAL"})
_LEGAL: Final = frozenset(
    {
        *_DEFAULT,
        *_STRICT,
        "ANSI",
        "ANSI_QUOTES",
        "ERROR_FOR_DIVISION_BY_ZERO",
        "HIGH_NOT_PRECEDENCE",
        "IGNORE_SPACE",
        "NO_AUTO_CREATE_USER",
        "NO_DIR_IN_CREATE",
        "NO_FIELD_OPTIONS",
        "NO_KEY_OPTIONS",
        "NO_TABLE_OPTIONS",
        "NO_UNSIGNED_SUBTRACTION",
        "NO_ZERO_DATE",
        "NO_ZERO_IN_DATE",
        "ONLY_FULL_GROUP_BY",
        "PIPES_AS_CONCAT",
        "REAL_AS_FLOAT",
        "SIMULTANEOUS_ASSIGNMENT",
        "TIME_ROUND_FRACTIONAL",
        "TIME_TRUNCATE_FRACTIONAL",
    }
)
_HARMFUL: Final = {
    "NO_BACKSLASH_ESCAPES": "a backslash in a text would be stored twice",
    "EMPTY_STRING_IS_NULL": "an empty text would become NULL",
    "PAD_CHAR_TO_FULL_LENGTH": "rows of tables without a key would not be found",
    **dict.fromkeys(
        ("DB2", "MAXDB", "MSSQL", "MYSQL323", "MYSQL40", "ORACLE", "POSTGRESQL"),
        "it stands for several modes and changes how statements are read",
    ),
}
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*")
_NOT_TO_SET: Final = {
    "sql_mode": "use syncer.sql-mode",
    "foreign_key_checks": "rows of parents and children go through different lanes, so the checks stay off",
    "autocommit": "a batch and its position are one transaction",
    "init_connect": "it is not a session variable",
    "names": "text is sent as utf8mb4",
}
_PASSED_OVER: Final = frozenset({"time_zone"})  # TIMESTAMPs are sent in UTC: any zone stores the same


@dataclass(frozen=True, slots=True)
class SessionMode:
    """`strict` is the sql_mode of a lane's session, `lax` the one for values that no strict mode takes."""

    strict: str = ",".join(_DEFAULT)
    lax: str = ",".join(mode for mode in _DEFAULT if mode not in _STRICT)


DEFAULT: Final = SessionMode()


def session_mode(configured: str) -> SessionMode:
    """Empty: the default. `ConfigError` names a mode that is not known or cannot be used."""
    if not configured:
        return DEFAULT
    modes = [mode.strip().upper() for mode in configured.split(",") if mode.strip()]
    for mode in modes:
        if mode in _HARMFUL:
            raise ConfigError(
                f"invalid config: `sql-mode` has {mode}: {_HARMFUL[mode]}", hint="take it out of the list"
            )
        if mode not in _LEGAL:
            raise ConfigError(
                f"invalid config: `sql-mode` must be a valid SQL_MODE, {mode!r} is none",
                hint="see the list of modes of the downstream's version",
            )
    modes = list(dict.fromkeys([*modes, *_ALWAYS]))
    return SessionMode(",".join(modes), ",".join(mode for mode in modes if mode not in _STRICT))


def session_variables(params: Mapping[str, Any] | None) -> tuple[tuple[str, str], ...]:
    """(name, literal) of each variable to set. `ConfigError` names one that cannot be set."""
    variables = []
    for key, value in (params or {}).items():
        name = key.lower()
        if not _VARIABLE.fullmatch(name):
            raise ConfigError(f"syncer.to.params: {key!r} is no name of a variable")
        if name in _NOT_TO_SET or name.startswith(("character_set", "collation")):
            why = _NOT_TO_SET.get(name, "text is sent as utf8mb4")
            raise ConfigError(f"syncer.to.params: {key} cannot be set: {why}", hint="take it out")
        if name not in _PASSED_OVER:
            variables.append((name, _literal(key, value)))
    return tuple(variables)


def _literal(key: str, value: Any) -> str:
    if isinstance(value, bool):
        return "1" if value else "0"
    if isinstance(value, int | float):
        return str(value)
    if isinstance(value, str):
        # Numbers in quotes are not taken by every variable.
        if re.fullmatch(r"-?\d+(\.\d+)?", value):
            return value
        return "'" + value.replace("\\", "\\\\").replace("'", "''") + "'"
    raise ConfigError(f"syncer.to.params: {key} is neither a number nor a text")
