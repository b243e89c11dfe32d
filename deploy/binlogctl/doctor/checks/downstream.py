"""Downstream: whether a MySQL, MariaDB or TiDB server is what a drainer needs.

Out    findings: whether it can be reached, its version, rights, tables, and what its settings mean
Why    a drainer gives its own sessions the modes and the time zone that its literals are made for. The global
       ones count for all others: what loads the first snapshot, a Go drainer, readers
Tests  tests/deploy/binlogctl/doctor/checks/test_checks.py, tests/deploy/binlogctl/doctor/test_examination.py
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from binlogctl.doctor.checks import grants
from binlogctl.doctor.facts import DownstreamFacts, Replicated
from binlogctl.doctor.findings import Check, Finding, Severity

_NO_GRANT_CHECK: Final = "SHOW GRANTS could not be read"
_SHOWN_MAX: Final = 10
# Oldest release of each kind whose statements a drainer is made for.
_OLDEST: Final = {"mariadb": (10, 3), "mysql": (5, 7)}

PACKET_MIN: Final = 16 << 20
"""A row of TiDB has up to 6 MiB; as text, with the row before it, it has more than twice as much."""
SESSIONS_APART: Final = 8
_STRICT: Final = frozenset({"STRICT_TRANS_TABLES", "STRICT_ALL_TABLES", "TRADITIONAL"})
_CHANGES_TEXT: Final = frozenset(
    {"NO_BACKSLASH_ESCAPES", "ANSI_QUOTES", "EMPTY_STRING_IS_NULL", "ORACLE", "MSSQL", "DB2", "ANSI"}
)
_ON: Final = frozenset({"ON", "1", "YES", "TRUE"})
_OFF: Final = frozenset({"OFF", "0", "NO", "FALSE"})
_NO_WRITES: Final = (
    "read_only",
    "super_read_only",
    "innodb_read_only",
    "tidb_super_read_only",
    "tidb_restricted_read_only",
)


def check_downstream(
    seen: DownstreamFacts, replicated: Replicated, upstream_zone_s: float | None = None
) -> list[Finding]:
    """`upstream_zone_s`: the time zone that the upstream's users have, east of UTC."""
    if seen.error is not None:
        return _unreachable(seen)
    findings = Check("downstream.reachable", seen.where).ok(
        f"{seen.version or 'unknown version'}, as {seen.user or 'unknown user'}"
    )
    findings += _version(seen)
    findings += _rights(seen, replicated)
    findings += _untransactional(seen, replicated)
    return findings + _variables(seen, replicated, upstream_zone_s)


def check_row_server(seen: DownstreamFacts) -> list[Finding]:
    """The server of the checkpoint row, where it is another one."""
    if seen.error is not None:
        return _unreachable(seen)
    return [
        *Check("downstream.reachable", seen.where).ok(f"{seen.version}, has the checkpoint row"),
        *check_writable(seen),
    ]


def _unreachable(seen: DownstreamFacts) -> list[Finding]:
    if seen.refused:
        return Check("downstream.login", seen.where).error(
            str(seen.error),
            "the drainer cannot log in either",
            "correct user and password in the section of the drainer's file that names this server; on the"
            " server: CREATE USER 'drainer'@'%' IDENTIFIED BY '...';",
        )
    return Check("downstream.reachable", seen.where).error(
        str(seen.error),
        "the drainer waits, and pumps keep binlogs for it, until it answers (if this host may reach it"
        " at all)",
        "start the server; check host, port and TLS in the drainer's file",
    )


def _version(seen: DownstreamFacts) -> list[Finding]:
    if seen.is_tidb or not any(_release(seen)):
        return []
    kind = "mariadb" if seen.is_mariadb else "mysql"
    if _release(seen) >= _OLDEST[kind]:
        return []
    oldest = ".".join(map(str, _OLDEST[kind]))
    return Check("downstream.version", seen.where).warning(
        seen.version,
        "statements are made and tested for later releases",
        f"upgrade the server to {kind} {oldest} or later",
    )


def _release(seen: DownstreamFacts) -> tuple[int, int]:
    """(0, 0) if it does not tell."""
    numbers = re.match(r"(?:5\.5\.5-(?=\d))?(\d+)\.(\d+)", seen.version)
    return (int(numbers[1]), int(numbers[2])) if numbers else (0, 0)


def _rights(seen: DownstreamFacts, replicated: Replicated) -> list[Finding]:
    if seen.grants is None:
        return Check("downstream.rights", seen.where).unchecked(
            _NO_GRANT_CHECK,
            "a missing right ends replication at the first statement that needs it",
            "SHOW GRANTS;   # as the drainer's user",
        )
    apart = grants.apart_of(_release(seen) if seen.is_mariadb else None)
    lacking = grants.missing(
        grants.parse(seen.grants), replicated.databases, replicated.checkpoint_schema, apart=apart
    )
    if not lacking:
        return Check("downstream.rights", seen.where).ok(f"{seen.user} has all rights that a drainer needs")
    shown = "; ".join(f"on {_place(place)}: {', '.join(rights)}" for place, rights in lacking.items())
    mend = " ".join(
        f"GRANT {', '.join(rights)} ON {_place(place)} TO {_account(seen.user)};"
        for place, rights in lacking.items()
    )
    everything = [right for rights in lacking.values() for right in rights]
    if grants.is_serious(everything):
        return Check("downstream.rights", seen.where).error(
            f"{seen.user} lacks {shown}",
            "the drainer stops at the first statement that is refused, or cannot make its checkpoint tables",
            mend,
        )
    return Check("downstream.rights", seen.where).warning(
        f"{seen.user} lacks {shown}",
        "some DDL of the upstream will be"
        " refused and its tables will wait; and the drainer cannot see what its own DDL waits for",
        mend,
    )


def _untransactional(seen: DownstreamFacts, replicated: Replicated) -> list[Finding]:
    """Tables that a crash in the middle of a transaction leaves half written."""
    named = replicated.databases
    tables = [table for table in seen.untransactional if named is None or table.schema in named]
    findings = []
    for has_key, consequence in (
        (False, "the drainer refuses their rows: a crash would leave rows twice"),
        (True, "their rows are written in statements that may run twice; readers see half a transaction"),
    ):
        alike = [table for table in tables if table.has_key is has_key]
        if not alike:
            continue
        shown = ", ".join(f"{table.schema}.{table.name} ({table.engine})" for table in alike[:_SHOWN_MAX])
        more = f" and {len(alike) - _SHOWN_MAX} more" if len(alike) > _SHOWN_MAX else ""
        kind = f"with{'' if has_key else 'out'} a key, of engines without transactions"
        first = alike[0]
        findings += Check("downstream.transactions", seen.where).finding(
            Severity.WARNING if has_key or named is None else Severity.ERROR,
            f"tables {kind}: {shown}{more}",
            consequence if named is not None else f"if they are replicated: {consequence}",
            f"ALTER TABLE {_quoted(first.schema)}.{_quoted(first.name)} ENGINE=InnoDB;   -- and so on",
        )
    return findings


def _place(name: str) -> str:
    return "*.*" if name == grants.EVERYWHERE else f"{_quoted(name)}.*"


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _account(user: str) -> str:
    name, _, host = user.rpartition("@")
    return f"'{name or host}'@'{host if name else '%'}'"


# Variables -----------------------------------------------------------------------------------------------


def _variables(seen: DownstreamFacts, replicated: Replicated, upstream_zone_s: float | None) -> list[Finding]:
    """`upstream_zone_s`: the time zone that the upstream's users have, east of UTC."""
    return [
        *_modes(seen),
        *_zone(seen, upstream_zone_s),
        *_text(seen),
        *check_writable(seen),
        *_limits(seen, replicated),
        *_engine(seen),
    ]


def _modes(seen: DownstreamFacts) -> list[Finding]:
    if "sql_mode" not in seen.variables:
        return _unread(seen, "sql_mode")
    text = seen.variables["sql_mode"]
    modes = {mode.strip().upper() for mode in text.split(",") if mode.strip()}
    mend = (
        "SET GLOBAL sql_mode = 'STRICT_TRANS_TABLES,NO_ENGINE_SUBSTITUTION,ERROR_FOR_DIVISION_BY_ZERO';"
        "   -- and in the server's file"
    )
    whose = (
        "the drainer sets its own mode, but a snapshot is loaded, and a Go drainer works, under this one: "
    )
    findings = []
    if not modes & _STRICT:
        findings += Check("downstream.sql_mode", seen.where).warning(
            f"global sql_mode is {text!r}: not strict",
            whose + "values that do not fit are clipped silently, and rows differ from then on",
            mend,
        )
    if changing := sorted(modes & _CHANGES_TEXT):
        findings += Check("downstream.sql_mode", seen.where).warning(
            f"global sql_mode has {', '.join(changing)}",
            whose + "texts are read otherwise than TiDB wrote them",
            mend,
        )
    return findings or Check("downstream.sql_mode", seen.where).ok("strict")


def _zone(seen: DownstreamFacts, upstream_zone_s: float | None) -> list[Finding]:
    findings = []
    offset_s = seen.zone_offset_s
    name = seen.variables.get("time_zone", "?")
    if name == "SYSTEM":
        name = f"SYSTEM ({seen.variables.get('system_time_zone', '?')})"
    if offset_s is None:
        findings += _unread(seen, "time_zone")
    elif upstream_zone_s is not None and round(offset_s - upstream_zone_s) != 0:
        findings += Check("downstream.time_zone", seen.where).warning(
            f"global time_zone is {name}, {_offset(offset_s)}; the upstream's is {_offset(upstream_zone_s)}",
            "rows are stored right, but readers see other TIMESTAMPs here than there, and what loads"
            " the first snapshot or compares both sides without setting a zone goes wrong",
            f"SET GLOBAL time_zone = '{_offset(upstream_zone_s)}';   -- and in the server's file",
        )
    elif upstream_zone_s is None and round(offset_s) != 0:
        findings += Check("downstream.time_zone", seen.where).info(
            f"global time_zone is {name}, {_offset(offset_s)}",
            "rows are stored right; readers see the same TIMESTAMPs only if the upstream has this zone",
            "binlogctl doctor -time-zone ZONE   # compares with the upstream's zone",
        )
    else:
        findings += Check("downstream.time_zone", seen.where).ok(_offset(offset_s))
    if seen.knows_zones is False:
        findings += Check("downstream.time_zone_names", seen.where).info(
            "does not know time zones by name",
            "DDL that ran in a named zone upstream runs with that zone's offset: what it fills in for"
            " days of the other half of the year is an hour off",
            "mariadb-tzinfo-to-sql /usr/share/zoneinfo | mariadb mysql",
        )
    return findings


def _text(seen: DownstreamFacts) -> list[Finding]:
    findings = []
    charset = seen.variables.get("character_set_server", "")
    if not charset:
        return _unread(seen, "character_set_server")
    if charset != "utf8mb4":
        findings += Check("downstream.charset", seen.where).warning(
            f"character_set_server is {charset}",
            "tables that are made by hand or from a dump without a character set cannot hold the"
            " characters that TiDB has: rows are refused, or stored with question marks",
            "SET GLOBAL character_set_server = 'utf8mb4', GLOBAL collation_server = 'utf8mb4_bin';"
            "   -- and in the server's file",
        )
    collation = seen.variables.get("collation_server", "")
    if charset == "utf8mb4" and collation != "utf8mb4_bin":
        findings += Check("downstream.collation", seen.where).info(
            f"collation_server is {collation}",
            "TiDB's default is utf8mb4_bin; tables made by hand without a collation compare otherwise",
        )
    if seen.variables.get("lower_case_table_names", "0") not in ("0", "2"):
        findings += Check("downstream.names", seen.where).info(
            "lower_case_table_names is 1", "names of tables are stored in lower case here"
        )
    return findings or Check("downstream.charset", seen.where).ok(f"{charset}, {collation}")


def check_writable(seen: DownstreamFacts) -> list[Finding]:
    """Say whether the server takes writes."""
    if "read_only" not in seen.variables:
        return _unread(seen, "read_only")
    on = [name for name in _NO_WRITES if seen.variables.get(name, "OFF").upper() not in _OFF]
    if seen.variables.get("innodb_force_recovery", "0") not in ("0", ""):
        on.append("innodb_force_recovery")
    if not on:
        return Check("downstream.writable", seen.where).ok("takes writes")
    name = on[-1]
    return Check("downstream.writable", seen.where).error(
        f"{', '.join(on)} is set",
        "the server takes no writes: the drainer"
        " waits until it does; or it is a replica, and the wrong server",
        f"SET GLOBAL {name} = 0;   -- or correct [syncer.to] host",
    )


def _limits(seen: DownstreamFacts, replicated: Replicated) -> list[Finding]:
    numbers = {name: int(value) for name, value in seen.variables.items() if value.isdigit()}
    packet = numbers.get("max_allowed_packet")
    findings = []
    if packet is None:
        findings += _unread(seen, "max_allowed_packet")
    elif packet < PACKET_MIN:
        findings += Check("downstream.max_allowed_packet", seen.where).warning(
            f"max_allowed_packet is {packet} bytes",
            "a row of TiDB has up to 6 MiB and its statement more than twice as much: at the first such"
            " row the drainer stops",
            "SET GLOBAL max_allowed_packet = 67108864;   -- and in the server's file",
        )
    else:
        findings += Check("downstream.max_allowed_packet", seen.where).ok(f"{packet} bytes")
    sessions = replicated.lanes + SESSIONS_APART
    if (most := numbers.get("max_connections")) and most < sessions:
        findings += Check("downstream.max_connections", seen.where).warning(
            f"max_connections is {most}, {replicated.lanes} lanes and"
            f" what is beside them use up to {sessions}",
            "lanes wait for connections",
            f"SET GLOBAL max_connections = {max(151, 2 * sessions)};",
        )
    if re.fullmatch(r"0*(\.0*)?", statement_s := seen.variables.get("max_statement_time", "0")) is None:
        findings += Check("downstream.max_statement_time", seen.where).warning(
            f"max_statement_time is {statement_s} s",
            "a long DDL is broken off again and again, and replication stands before it",
            "SET GLOBAL max_statement_time = 0;   -- and in the server's file",
        )
    if (silent_s := numbers.get("wait_timeout")) is not None and 0 < silent_s < 60:
        findings += Check("downstream.wait_timeout", seen.where).warning(
            f"wait_timeout is {silent_s} s",
            "the server closes sessions that are only waiting for rows: they are opened again each time",
            "SET GLOBAL wait_timeout = 28800;",
        )
    return findings


def _engine(seen: DownstreamFacts) -> list[Finding]:
    if seen.is_tidb:  # these are there for old clients only, or mean something else
        return []
    return list(_engine_findings(seen.where, seen.variables))


def _engine_findings(where: str, variables: Mapping[str, str]) -> Iterator[Finding]:
    engine = variables.get("default_storage_engine", "InnoDB")
    if engine.lower() != "innodb":
        yield from Check("downstream.engine", where).error(
            f"default_storage_engine is {engine}",
            "tables without transactions: after a crash rows and the position that belongs to them differ",
            "SET GLOBAL default_storage_engine = 'InnoDB';   -- and in the server's file",
        )
    if (
        variables.get("log_bin", "").upper() in _ON
        and variables.get("binlog_format", "").upper() == "STATEMENT"
    ):
        yield from Check("downstream.binlog_format", where).error(
            "log_bin is on with binlog_format STATEMENT",
            "InnoDB refuses writes at READ COMMITTED then (error 1665): nothing can be replicated",
            "SET GLOBAL binlog_format = 'ROW';   -- and in the server's file",
        )
    if variables.get("sql_require_primary_key", "").upper() in _ON:
        yield from Check("downstream.primary_key", where).warning(
            "sql_require_primary_key is on",
            "upstream tables without a primary key are refused here, and their rows wait",
            "SET GLOBAL sql_require_primary_key = OFF;",
        )
    if variables.get("wsrep_on", "").upper() in _ON:
        yield from Check("downstream.galera", where).info(
            "a Galera cluster",
            "there are no user locks: a successor waits for the sessions of a frozen drainer",
        )
    if variables.get("innodb_flush_log_at_trx_commit", "1") != "1":
        yield from Check("downstream.durability", where).info(
            "innodb_flush_log_at_trx_commit is not 1",
            "a power cut there loses rows and their position together; pumps still have them",
        )


def _unread(seen: DownstreamFacts, name: str) -> list[Finding]:
    return Check(f"downstream.{name}", seen.where).unchecked(
        f"{name} could not be read",
        "a wrong setting would not be noticed",
        f"SHOW GLOBAL VARIABLES LIKE '{name}';",
    )


def _offset(seconds: float) -> str:
    minutes = abs(round(seconds / 60))
    return f"{'-' if seconds < 0 else '+'}{minutes // 60:02d}:{minutes % 60:02d}"
