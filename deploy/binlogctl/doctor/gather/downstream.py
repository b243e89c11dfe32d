"""Downstream: logs in as the drainer does and reads what the server is; writes nothing.

Drives  `drainer.mysql.connection.connect`: the same session, TLS and variables, or the same error
Never   shows a password, a grant's line or a row of replicated data
Tests   tests/deploy/binlogctl/doctor/test_examination.py
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final, TypeVar

from binlogctl.doctor.facts import VARIABLES, CheckpointFacts, ClockFacts, DownstreamFacts, TableFacts
from drainer.mysql.connection import Connection, Target, connect
from drainer.mysql.errors import NO_SUCH_DATABASE, NO_SUCH_TABLE, SessionError, safe_text
from drainer.mysql.literal.quoting import qualified
from drainer.mysql.rows.dialect import Dialect
from tidb_binlog.clock import Clock
from tidb_binlog.errors import BinlogError, DownstreamError
from tidb_binlog.net.abandonable_thread import in_abandonable_thread

_MISSING: Final = frozenset({NO_SUCH_DATABASE, NO_SUCH_TABLE})
_STEPS: Final = 12
_UNTRANSACTIONAL: Final = (
    b"SELECT t.TABLE_SCHEMA, t.TABLE_NAME, t.ENGINE, EXISTS(SELECT 1 FROM information_schema.STATISTICS s"
    b" WHERE s.TABLE_SCHEMA=t.TABLE_SCHEMA AND s.TABLE_NAME=t.TABLE_NAME AND s.NON_UNIQUE=0)"
    b" FROM information_schema.TABLES t JOIN information_schema.ENGINES e ON e.ENGINE=t.ENGINE"
    b" WHERE e.TRANSACTIONS='NO' AND t.TABLE_TYPE='BASE TABLE' AND t.TABLE_SCHEMA NOT IN"
    b" ('mysql','sys','information_schema','performance_schema') LIMIT 10000"
)
T = TypeVar("T")


async def gather_downstream(
    target: Target,
    clock: Clock,
    timeout_s: float,
    *,
    schema: str,
    row_table: str | None,
    state_table: bool = True,
) -> DownstreamFacts:
    """`row_table`: table of the checkpoint row, None if it is elsewhere; `state_table`: ours are here too."""
    where = f"downstream {target!r}"
    try:
        return await in_abandonable_thread(
            _read_server,
            target,
            clock,
            timeout_s,
            where,
            schema,
            row_table,
            state_table,
            timeout_s=_STEPS * timeout_s,
        )
    except TimeoutError:
        return DownstreamFacts(where, error=f"it took longer than {_STEPS * timeout_s:g} s to examine it")


def _read_server(
    target: Target,
    clock: Clock,
    timeout_s: float,
    where: str,
    schema: str,
    row_table: str | None,
    state_table: bool,
) -> DownstreamFacts:
    try:
        connection = connect(replace(target, read_timeout_s=timeout_s))
    except DownstreamError as error:
        return DownstreamFacts(where, error=error.message, refused=True)
    except (BinlogError, SessionError) as error:
        said = error.message if isinstance(error, BinlogError) else safe_text(error)
        return DownstreamFacts(where, error=said)
    try:
        return DownstreamFacts(
            where,
            user=_value(connection, "SELECT CURRENT_USER()") or target.user,
            version=connection.server_version,
            variables=_tried(lambda: _variables(connection), {}),
            grants=_tried(lambda: _grants(connection), None),
            zone_offset_s=_tried(lambda: _zone_offset_s(connection), None),
            knows_zones=_value(connection, "SELECT CONVERT_TZ('2020-07-01 00:00:00', 'UTC', 'Europe/Berlin')")
            is not None,
            clock=_tried(lambda: _clock(connection, clock, where), None),
            untransactional=_tried(lambda: _untransactional(connection), ()),
            checkpoint=_checkpoint(connection, schema, row_table, state_table) if row_table else None,
        )
    finally:
        connection.close()


def _tried(function: Callable[[], T], otherwise: T) -> T:
    """What a server does not know or does not allow is reported as not known."""
    try:
        return function()
    except (SessionError, ValueError):
        return otherwise


def _tried_rows(connection: Connection, query: bytes) -> list[tuple[Any, ...]]:
    none: list[tuple[Any, ...]] = []
    return _tried(lambda: connection.rows(query), none)


def _value(connection: Connection, query: str) -> str | None:
    def ask() -> str | None:
        ((value,),) = connection.rows(query.encode())
        return None if value is None else str(value)

    return _tried(ask, None)


def _variables(connection: Connection) -> dict[str, str]:
    names = ",".join(f"'{name}'" for name in VARIABLES)
    rows = connection.rows(f"SHOW GLOBAL VARIABLES WHERE Variable_name IN ({names})".encode())
    return {str(name).lower(): str(value) for name, value in rows}


def _grants(connection: Connection) -> tuple[str, ...]:
    lines = [str(line) for (line,) in connection.rows(b"SHOW GRANTS")]
    role = _value(connection, "SELECT CURRENT_ROLE()")
    if role and role != "NONE":
        mariadb = connection.dialect is Dialect.MARIADB
        query = "SHOW GRANTS FOR CURRENT_ROLE" if mariadb else f"SHOW GRANTS FOR CURRENT_USER() USING {role}"
        lines += [str(line) for (line,) in _tried_rows(connection, query.encode())]
    return tuple(lines)


def _zone_offset_s(connection: Connection) -> float:
    connection.run(b"SET SESSION time_zone=@@global.time_zone")
    try:
        ((seconds,),) = connection.rows(b"SELECT TIMESTAMPDIFF(SECOND, UTC_TIMESTAMP(), NOW())")
        return float(seconds)
    finally:
        connection.run(b"SET SESSION time_zone='+00:00'")


def _clock(connection: Connection, clock: Clock, where: str) -> ClockFacts:
    began_s = clock.wall_s()
    ((theirs_s,),) = connection.rows(b"SELECT UNIX_TIMESTAMP(NOW(6))")
    ended_s = clock.wall_s()
    return ClockFacts(where, float(theirs_s) - (began_s + ended_s) / 2, (ended_s - began_s) / 2)


def _untransactional(connection: Connection) -> tuple[TableFacts, ...]:
    tables = [
        TableFacts(str(schema), str(name), str(engine), bool(has_key))
        for schema, name, engine, has_key in connection.rows(_UNTRANSACTIONAL)
    ]
    return tuple(sorted(tables, key=lambda table: (table.schema, table.name)))


def _checkpoint(connection: Connection, schema: str, table: str, state_table: bool) -> CheckpointFacts:
    name, state = qualified(schema, table), qualified(schema, "drainer_state")
    owner: str | None = None
    try:
        stored = connection.rows(b"SELECT clusterID, checkPoint FROM %s LIMIT 100" % name)
        rows = {int(cluster_id): str(text or "") for cluster_id, text in stored}
        if state_table:
            owners = _tried_rows(connection, b"SELECT owner FROM %s LIMIT 2" % state)
            owner = str(owners[0][0]) if len(owners) == 1 else None
    except SessionError as error:
        if error.number in _MISSING:
            return CheckpointFacts(schema, table)
        return CheckpointFacts(schema, table, error=safe_text(error))
    return CheckpointFacts(schema, table, rows, owner)
