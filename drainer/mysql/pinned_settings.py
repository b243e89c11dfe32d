"""Pinned settings: what a server's administrator may set, and what would change what our statements mean.

Out    every such setting has one value in it, or the warning that the server does not let it be changed
Why    a global `completion_type = RELEASE` ends the session with its first COMMIT, `sql_select_limit` cuts
       answers, `explicit_defaults_for_timestamp = OFF` gives a TIMESTAMP the current time
Holds  the server is asked which settings it has; nothing is concluded from its version. What already has its
       value is not set: that may need a right
Tests  tests/drainer/sink/mysql/test_pinned_settings.py
"""

from __future__ import annotations

from typing import Any, Final

from drainer.mysql.errors import StatementRefused, safe_text
from drainer.mysql.rows.dialect import Dialect
from tidb_binlog.errors import DownstreamError
from tidb_binlog.observe import log

logger = log.get("drainer.pinned_settings")

# Every server has these, takes them of everybody, and would cut short the very question for the others.
FIRST: Final = (
    b"SET SESSION completion_type=0, sql_select_limit=18446744073709551615, sql_big_selects=1,"
    b" sql_safe_updates=0, sql_auto_is_null=0"
)
PINNED: Final = {
    "max_statement_time": "0.000000",
    # what a table becomes
    "explicit_defaults_for_timestamp": "ON",
    "default_storage_engine": "InnoDB",
    "default_tmp_storage_engine": "InnoDB",
    "innodb_strict_mode": "ON",
    "sql_generate_invisible_primary_key": "OFF",
    "sql_require_primary_key": "OFF",
    "sql_if_exists": "OFF",
    "alter_algorithm": "DEFAULT",
    "sql_quote_show_create": "ON",
    # which values rows get, and whether they are looked at
    "unique_checks": "ON",
    "check_constraint_checks": "ON",
    "auto_increment_increment": "1",
    "auto_increment_offset": "1",
    "div_precision_increment": "4",
    "default_week_format": "0",
    "lc_time_names": "en_US",
}
"""By name, as the server shows it; quoted, for DEFAULT alone is the global value.

A user's own variables (`syncer.to.params`) are set after these.
"""
_QUIET: Final = frozenset({"explicit_defaults_for_timestamp"})  # statements are written for both values


def pin(session: Any, side: str) -> None:
    """Give a session (a `Connection`) the settings. `DownstreamError`: it could not take a single write."""
    try:
        session.run(FIRST)
    except StatementRefused as error:
        logger.warning("settings cannot be pinned", statement=FIRST.decode(), reason=safe_text(error))
    names = ",".join(f"'{name}'" for name in (*PINNED, "binlog_format", "log_bin"))
    listed = session.rows(f"SHOW SESSION VARIABLES WHERE Variable_name IN ({names})".encode())
    values = {str(name).lower(): str(value) for name, value in listed}
    for name, value in PINNED.items():
        current = values.get(name) or value  # no engine of its own for temporary tables: that of others
        if current.upper() == value.upper():
            continue
        try:
            session.run(f"SET SESSION {name}={value if value[0].isdigit() else repr(value)}".encode())
        except StatementRefused as error:
            if name not in _QUIET:
                logger.warning("setting cannot be pinned", name=name, value=current, reason=safe_text(error))
    if (values.get("log_bin"), values.get("binlog_format", "").upper()) != ("ON", "STATEMENT"):
        return
    if session.dialect is Dialect.TIDB:  # one that writes binlogs says so, whatever it writes
        return
    try:  # InnoDB does not write under READ COMMITTED where the server logs statements (error 1665)
        session.run(b"SET SESSION binlog_format=ROW")
    except StatementRefused as error:
        if side == "downstream":
            raise DownstreamError(
                "the downstream has binlog_format = STATEMENT, with which it refuses all we write, and does"
                f" not let the session change it: {safe_text(error)}",
                hint="set binlog_format = ROW or MIXED there, or grant our user BINLOG ADMIN (MariaDB) or"
                " SESSION_VARIABLES_ADMIN (MySQL)",
            ) from None
