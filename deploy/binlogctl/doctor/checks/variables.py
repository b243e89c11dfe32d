"""Variables: what the global settings of a downstream mean for a drainer.

In     `DownstreamFacts`, what the drainer writes, the upstream's time zone if it is known
Out    findings: modes, time zone, character set, limits, engine
Why    a drainer gives its own sessions the modes and the time zone that its literals are made for. The global
       ones count for all others: what loads the first snapshot, a Go drainer, readers
Tests  tests/deploy/binlogctl/doctor/test_examination.py
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from binlogctl.doctor.facts import DownstreamFacts, Replicated
from binlogctl.doctor.findings import Check, Finding

PACKET_MIN: Final = 16 << 20
"""A row of TiDB has up to 6 MiB; as text, with the row before it, it has more than twice as much."""
SESSIONS_APART: Final = 8
_STRICT: Final = frozenset({"STRICT_TRANS_TABLES", "STRICT_ALL_TABLES", "TRADITIONAL"})
_CHANGES_TEXT: Final = frozenset(
    {"NO_BACKSLASH_ESCAPES", "ANSI_QUOTES", "EMPTY_STRING_IS_NULL", "ORACLE", "MSSQL", "DB2", "ANSI"}
)
_ON: Final = frozenset({"ON", "1", "YES", "TRUE"})


def check_variables(
    seen: DownstreamFacts, replicated: Replicated, upstream_zone_s: float | None
) -> list[Finding]:
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
    on = [
        name
        for name in ("read_only", "super_read_only", "innodb_read_only", "tidb_restricted_read_only")
        if seen.variables.get(name, "").upper() in _ON
    ]
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
