"""Options of reparo: every flag and key of the Go tool, and what a Drainer's file says of rules.

In      the command line, the environment (`Reparo_<FLAG>`), a TOML file
Out     the range as timestamps; rules, downstream and way of writing as a Drainer has them
Holds   a time is in the zone of this process, and wins over a timestamp, as in the Go tool
Tests   tests/drainer/reparo/test_options.py

Differences: `worker-count` is the number of lanes and `txn-batch` the row changes of one transaction
downstream, and both default to what statements of many rows need. Keys below `syncer` are a Drainer's.
"""

from __future__ import annotations

import datetime
import json
import os
from collections.abc import Mapping
from typing import Any, ClassVar, Final

from drainer.config.options import DrainerConfig
from drainer.ddl import rules as ddl_rules
from drainer.formats.segment_index import UTC
from drainer.places.place import READ, Place
from drainer.stream.rules.rule_set import Rules, name_pairs, read_rules
from drainer.stream.rules.table_rules import TableFilter
from tidb_binlog import tso
from tidb_binlog.clock import SystemClock
from tidb_binlog.config.declaring import option
from tidb_binlog.errors import ConfigError
from tidb_binlog.late_dataclass import dataclass, fields, replace

ENV_PREFIX: Final = "Reparo"
PRINT: Final = "print"
DATABASES: Final = ("mysql", "tidb")
KINDS: Final = ("auto", "pb", "relay")
TEXT: Final = "text"
JSON: Final = "json"
SCHEMA: Final = "tidb_binlog_reparo"
"""Where it keeps its positions: never where Drainers keep theirs."""
_GO_BATCH: Final = 100
_FILTERS: Final = frozenset({"replicate_do_db", "replicate_do_table"})
"""Options that a Drainer has as well: what is left out is decided by `rules`."""
_TIME: Final = "%Y-%m-%d %H:%M:%S"

USAGE: Final = """
What it does:
  reads an archive that a Drainer wrote (db-type = "file", or a relay log) and prints its changes, or applies
  them to a MySQL, MariaDB or TiDB. It needs neither a TiDB nor a Pump.

    reparo -data-dir /archive                                          print all of it
    reparo -data-dir /archive -config reparo.toml                      apply it (dest-type = "mysql" is there)
    reparo -config reparo.toml -start-datetime "2026-11-22 03:00:00" -stop-datetime "2026-11-22 04:00:00"
    reparo -config reparo.toml -dry-run                                count what would be applied

  It may be stopped and killed at any time: the same command goes on where the last one stopped, and no change
  is applied twice. Without an end of the range, the same command later applies what has come since.

In the file (TOML), besides the flags by their names (worker-count for -c, log-level for -L):
  [dest-db] host, port, user, password               the destination; also socket, password-file
  replicate-do-db, [[replicate-do-table]]            only these; ~ begins an expression
  replicate-ignore-db, [[replicate-ignore-table]]    not these (each table has db-name and tbl-name)
  [[syncer.table-migrate-rule]], [[syncer.column-rule]], [[syncer.row-rule]], [[syncer.ddl-rule]]
                                                     as in a Drainer's file

Exit codes:
  0   everything is done, or it was stopped by a signal: the last line says which
  1   wrong configuration, or a directory without an archive
  2   internal failure, or a flag that cannot be read
  3   the destination does not answer
  5   another reparo is at the same job, or a Drainer works on the destination
  6   a damaged archive, or a file of it is missing
  7   the destination refused the login or a statement, or lacks a table
  9   the relay log's directory is in use
  130 ended at once, by a second signal
"""


@dataclass(frozen=True, slots=True)
class ReparoConfig:
    usage_notes: ClassVar[str] = USAGE

    data_dir: str = option("", key="data-dir", flag="data-dir", help="directory of the archive, or its URI")
    start_datetime: str = option(
        "",
        key="start-datetime",
        flag="start-datetime",
        help="from this time on, 'YYYY-MM-DD hh:mm:ss' in the local time zone; empty: from the beginning",
    )
    stop_datetime: str = option(
        "", key="stop-datetime", flag="stop-datetime", help="up to this time; empty: to the end"
    )
    start_tso: int = option(
        0, key="start-tso", flag="start-tso", help="the same as a commit timestamp, included"
    )
    stop_tso: int = option(
        0, key="stop-tso", flag="stop-tso", help="the same as a commit timestamp, included"
    )
    dest_type: str = option(
        PRINT, key="dest-type", flag="dest-type", help="where to: print, mysql (MariaDB too), tidb"
    )
    txn_batch: int = option(
        1600, key="txn-batch", flag="txn-batch", help="row changes of one downstream transaction at most"
    )
    worker_count: int = option(4, key="worker-count", flag="c", help="number of lanes")
    safe_mode: bool = option(
        False,
        key="safe-mode",
        flag="safe-mode",
        help="statements that may be repeated: where rows of the range may be there already",
    )
    log_level: str = option("info", key="log-level", flag="L", help="debug, info, warn or error")
    log_file: str = option(
        "", key="log-file", kind="path", flag="log-file", help="log file (default: standard error)"
    )
    kind: str = option("auto", key="kind", flag="kind", help="pb or relay; auto: found out")
    time_zone: str = option(
        "",
        key="time-zone",
        flag="time-zone",
        help="in which a Go Drainer wrote TIMESTAMPs, its local one (Asia/Shanghai; default: the one here)",
    )
    speed: int = option(0, key="speed", flag="speed", help="row changes a second at most; 0: no limit")
    job: str = option(
        "",
        key="job",
        flag="job",
        help="name of the job; a new one applies a range anew (default: made of archive, range and rules)",
    )
    dry_run: bool = option(False, key="dry-run", flag="dry-run", help="read and count, and write nothing")
    output: str = option(TEXT, key="output", flag="output", help="summary as text, or json for programs")
    beside_drainer: bool = option(
        False,
        key="beside-drainer",
        flag="beside-drainer",
        help="go on where a Drainer works on the destination: it must not write the same tables",
    )
    to_host: str = option("", key="dest-db.host", help="host of the destination")
    to_port: int = option(3306, key="dest-db.port", help="and its port")
    to_user: str = option("root", key="dest-db.user", help="and its user")
    to_password: str = option("", key="dest-db.password", secret=True, help="and the password")
    to_password_file: str = option(
        "", key="dest-db.password-file", kind="path", help="file that holds the password"
    )
    to_socket: str = option(
        "", key="dest-db.socket", kind="path", help="unix socket instead of host and port"
    )
    replicate_do_db: tuple[str, ...] = option(
        (), key="replicate-do-db", kind="list", help="databases to apply; ~ begins an expression"
    )
    replicate_do_table: tuple[dict[str, Any], ...] = option(
        (), key="replicate-do-table", kind="tables", help="tables to apply: db-name, tbl-name"
    )
    replicate_ignore_db: tuple[str, ...] = option(
        (), key="replicate-ignore-db", kind="list", help="databases left out"
    )
    replicate_ignore_table: tuple[dict[str, Any], ...] = option(
        (), key="replicate-ignore-table", kind="tables", help="tables left out: db-name, tbl-name"
    )
    case_sensitive: bool = option(
        False, key="syncer.case-sensitive", help="of source patterns of table-migrate-rule"
    )
    table_migrate_rule: tuple[dict[str, Any], ...] = option(
        (), key="syncer.table-migrate-rule", kind="tables", help="source and target of tables"
    )
    binlog_filter_rule: Mapping[str, Any] = option(
        None, key="syncer.binlog-filter-rule", kind="table", help="by name: ignore-event, ignore-sql"
    )
    column_rule: tuple[dict[str, Any], ...] = option(
        (), key="syncer.column-rule", kind="tables", help="columns that are left out"
    )
    row_rule: tuple[dict[str, Any], ...] = option(
        (), key="syncer.row-rule", kind="tables", help="which rows, and what of their values"
    )
    ddl_rules: tuple[dict[str, Any], ...] = option(
        (), key="syncer.ddl-rule", kind="tables", help="what becomes of DDL"
    )
    sync_ddl: bool = option(True, key="syncer.sync-ddl", help="run DDL")
    sync_mode: int = option(0, key="syncer.to.sync-mode", help="2: a column that is not there is left out")
    log_values: bool = option(
        False, key="syncer.log-values", help="errors of the destination may show row values"
    )
    to_ssl_ca: str = option(
        "", key="dest-db.security.ssl-ca", kind="path", help="authority of the destination: TLS is on"
    )
    to_ssl_cert: str = option("", key="dest-db.security.ssl-cert", kind="path", help="our certificate")
    to_ssl_key: str = option("", key="dest-db.security.ssl-key", kind="path", help="and its key")

    def validate(self) -> None:
        """Relations between values; `ConfigError` names the key."""
        if not self.data_dir:
            raise ConfigError("data-dir is empty", hint="say where the archive is: -data-dir DIR")
        Place(self.data_dir).require("data-dir", READ)
        _one_of("dest-type", self.dest_type, (PRINT, *DATABASES))
        _one_of("kind", self.kind, KINDS)
        _one_of("output", self.output, (TEXT, JSON))
        for key, value, least in (
            ("txn-batch", self.txn_batch, 1),
            ("worker-count", self.worker_count, 1),
            ("speed", self.speed, 0),
            ("start-tso", self.start_tso, 0),
            ("stop-tso", self.stop_tso, 0),
        ):
            if value < least:
                raise ConfigError(f"{key} is {value}", hint=f"it must be at least {least}")
        if self.stop and self.stop < self.start:
            raise ConfigError(
                f"the range ends at {self.stop}, before it begins at {self.start}",
                hint="exchange start and stop",
            )
        if self.applies and not (self.to_host or self.to_socket):
            raise ConfigError(
                f'dest-type is "{self.dest_type}", and the file does not say which server',
                hint="write [dest-db] host, port, user and password into the file of -config",
            )
        changes = self.table_migrate_rule or self.column_rule or self.row_rule
        if self.dest_type == PRINT and changes:
            raise ConfigError(
                'dest-type is "print", which shows an archive as it is: it knows no table-migrate-rule,'
                " column-rule and row-rule",
                hint="take them out of the file, or apply it to a database",
            )
        self.drainer.check_database()
        _ = self.rules, ddl_rules.parse(self.ddl_rules)

    @property
    def applies(self) -> bool:
        """Tell whether changes go into a database."""
        return self.dest_type in DATABASES

    @property
    def start(self) -> int:
        """The first commit_ts; 0: from the beginning."""
        return _timestamp("start-datetime", self.start_datetime) or self.start_tso

    @property
    def stop(self) -> int:
        """The last commit_ts; 0: to the end."""
        return _timestamp("stop-datetime", self.stop_datetime) or self.stop_tso

    @property
    def archive_zone(self) -> str:
        """Of TIMESTAMPs in records that do not say theirs; "" is the zone of this process."""
        if self.time_zone:
            return self.time_zone
        here = datetime.datetime.fromtimestamp(SystemClock().wall_s()).astimezone()
        is_utc = os.environ.get("TZ", "") in ("UTC", "UTC0") or not here.utcoffset()
        return UTC if is_utc else ""

    @property
    def drainer(self) -> DrainerConfig:
        """What a Drainer would be configured as that does the same."""
        names = {field.name for field in fields(DrainerConfig)} - _FILTERS
        alike = {field.name: getattr(self, field.name) for field in fields(self) if field.name in names}
        return DrainerConfig(
            **alike,
            initial_commit_ts=max(self.start - 1, 0),
            db_type="mysql",
            to_sync_mode=self.sync_mode,
            checkpoint_schema=SCHEMA,
            quarantine_bytes=0,
            ignore_schemas="",
        )

    @property
    def rules(self) -> Rules:
        """Raises `ConfigError`."""
        rules = read_rules(self.drainer)
        names = TableFilter(
            do_db=self.replicate_do_db,
            do_table=name_pairs("replicate-do-table", self.replicate_do_table),
            ignore_table=name_pairs("replicate-ignore-table", self.replicate_ignore_table),
            ignore_schemas=self.replicate_ignore_db,
        )
        lists = self.replicate_do_db, self.replicate_do_table
        lists_not = self.replicate_ignore_db, self.replicate_ignore_table
        return replace(rules, names=names, text=f"{rules.text}{json.dumps([lists, lists_not])}")

    def remarks(self) -> list[str]:
        """What a user should know of what is set, one line each."""
        said = []
        if self.applies and not self.dry_run and self.txn_batch < _GO_BATCH:
            said.append(
                f"txn-batch = {self.txn_batch} makes small transactions: without this line of the file it is"
                " several times faster"
            )
        if self.dry_run and self.row_rule:
            said.append("rows are counted as the archive has them, before row rules")
        return said


def _one_of(key: str, value: str, values: tuple[str, ...]) -> None:
    if value not in values:
        raise ConfigError(f"{key} {value!r} is not supported", hint=f"one of {', '.join(values)}")


def _timestamp(key: str, text: str) -> int:
    """Of a time in the zone of this process; 0 for none."""
    if not text:
        return 0
    try:
        local = datetime.datetime.strptime(text, _TIME)
    except ValueError:
        raise ConfigError(
            f"{key} is {text!r}", hint='write a time as "2026-11-22 03:04:05", in the local time zone'
        ) from None
    return tso.compose(int(local.timestamp()) * 1000)
