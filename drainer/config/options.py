"""Configuration of a Drainer: the keys, flags and environment of the Go drainer that mean something here.

Environment: `BINLOG_SERVER_<FLAG>`. Differences: `worker-count` is the number of lanes, `txn-batch` the row
changes of one downstream transaction, and both default to what multi-row statements need.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from common.config.declaring import defaults, option, options
from common.errors import ConfigError
from common.net.port import split_address
from drainer.config.sink_options import SinkOptions

ENV_PREFIX: Final = "BINLOG_SERVER"
EXIT_CODES: Final = """
Exit codes:
  0   stopped on request (signal, pause, close)
  1   wrong configuration
  2   internal failure, or a flag that cannot be read
  3   etcd or the downstream does not answer at the start
  4   a peer refused what was asked of it
  5   another drainer runs under this node id, or took over
  6   damaged or inconsistent binlogs or checkpoint, or binlogs that pumps no longer have
  7   the downstream refused the login or a statement
  8   the port is taken
  9   the relay log's directory is in use
  10  the data directory belongs to another cluster
  130 ended at once, by a second signal
"""


@dataclass(frozen=True, slots=True)
class DrainerConfig(SinkOptions):
    usage_notes: ClassVar[str] = EXIT_CODES

    addr: str = option("127.0.0.1:8249", key="addr", flag="addr", help="address to listen on, host:port")
    advertise_addr: str = option(
        "", key="advertise-addr", flag="advertise-addr", help="address given to others (default: addr)"
    )
    node_id: str = option("", key="node-id", flag="node-id", help="name in the registry (default: host:port)")
    data_dir: str = option("data.drainer", key="data-dir", flag="data-dir", help="directory of this node")
    initial_commit_ts: int = option(
        -1,
        key="initial-commit-ts",
        flag="initial-commit-ts",
        kind="int",
        help="where to begin without a checkpoint; -1: now, 0: everything the pumps hold",
    )
    load: bool = option(
        False,
        key=None,
        flag="load",
        kind="bool",
        help="before the first start copy what the upstream ([syncer.from]) has; later it changes nothing",
    )
    standby: bool = option(
        False,
        key="standby",
        flag="standby",
        kind="bool",
        help="wait while another drainer has this node id, and take over when it ends",
    )
    heartbeat_interval_s: float = option(
        1.0, key="heartbeat-interval", kind="duration", help="pace of the registry entry"
    )
    trace: str = option(
        "", key=None, flag="trace", help="timeline to write, for the trace viewers of Chrome and Perfetto"
    )
    log_level: str = option("info", key="log-level", flag="L", help="debug, info, warn or error")
    log_file: str = option("", key="log-file", flag="log-file", help="log file (default: standard error)")
    synced_check_time: int = option(
        5,
        key="synced-check-time",
        flag="synced-check-time",
        kind="int",
        help="minutes without a change after which /status says Synced",
    )
    ignore_schemas: str = option(
        "INFORMATION_SCHEMA,PERFORMANCE_SCHEMA,mysql",
        key="syncer.ignore-schemas",
        flag="ignore-schemas",
        help="databases left out, comma separated",
    )
    replicate_do_db: tuple[str, ...] = option(
        (), key="syncer.replicate-do-db", kind="list", help="databases to replicate; ~ begins a pattern"
    )
    replicate_do_table: tuple[dict[str, Any], ...] = option(
        (), key="syncer.replicate-do-table", kind="tables", help="tables to replicate: db-name, tbl-name"
    )
    ignore_table: tuple[dict[str, Any], ...] = option(
        (), key="syncer.ignore-table", kind="tables", help="tables left out: db-name, tbl-name"
    )
    ddl_rules: tuple[dict[str, Any], ...] = option(
        (),
        key="syncer.ddl-rule",
        kind="tables",
        help="what becomes of DDL: kind, db-name, tbl-name, sql; action apply, skip, rewrite (text) or stop",
    )
    load_schema_snapshot: bool = option(
        True,
        key="syncer.load-schema-snapshot",
        flag="load-schema-snapshot",
        kind="bool",
        help="read the schema at the checkpoint from TiKV, and hold it there; false: read the DDL history",
    )
    quarantine_bytes: int = option(
        "4 GiB",
        key="syncer.quarantine-size",
        kind="size",
        help="rows that may wait on disk for a decision about a refused DDL; 0: stop at such a DDL",
    )
    ignore_txn_commit_ts: tuple[str | int, ...] = option(
        (), key="syncer.ignore-txn-commit-ts", kind="ints", help="commit timestamps of binlogs to pass over"
    )
    case_sensitive: bool = option(
        False,
        key="syncer.case-sensitive",
        kind="bool",
        help="source patterns of table-migrate-rule distinguish upper and lower case",
    )
    table_migrate_rule: tuple[dict[str, Any], ...] = option(
        (),
        key="syncer.table-migrate-rule",
        kind="tables",
        help="source and target of tables, and the binlog-filter-rule names that count for them",
    )
    binlog_filter_rule: Mapping[str, Any] = option(
        None, key="syncer.binlog-filter-rule", kind="table", help="by name: ignore-event, ignore-sql"
    )
    column_rule: tuple[dict[str, Any], ...] = option(
        (), key="syncer.column-rule", kind="tables", help="db-name, tbl-name, columns or ignore-columns"
    )
    row_rule: tuple[dict[str, Any], ...] = option(
        (),
        key="syncer.row-rule",
        kind="tables",
        help="db-name, tbl-name, and where, mask (salt-file), python: docs/row-rules.md",
    )
    sync_ddl: bool = option(
        True, key="syncer.sync-ddl", flag="sync-ddl", kind="bool", help="run DDL downstream"
    )
    loopback_control: bool = option(
        False,
        key="syncer.loopback-control",
        flag="loopback-control",
        kind="bool",
        help="two-way replication: mark what is written, drop what a drainer of this channel wrote",
    )
    channel_id: int = option(
        0, key="syncer.channel-id", flag="channel-id", kind="int", help="channel of loopback-control"
    )
    worker_count: int = option(4, key="syncer.worker-count", flag="c", kind="int", help="number of lanes")
    txn_batch: int = option(
        3200,
        key="syncer.txn-batch",
        flag="txn-batch",
        kind="int",
        help="row changes of one downstream transaction at most",
    )
    dispatch: str = option(
        "row",
        key="syncer.dispatch",
        help="row: lanes by key, or transaction: whole upstream transactions, in order, on one lane",
    )
    safe_mode: bool = option(
        False,
        key="syncer.safe-mode",
        flag="safe-mode",
        kind="bool",
        help="use only statements that may be repeated",
    )
    strict: bool = option(
        False,
        key="syncer.strict",
        kind="bool",
        help="stop where downstream rows are not as they should be, instead of counting them, or of letting"
        " their table wait",
    )
    log_values: bool = option(
        False, key="syncer.log-values", kind="bool", help="errors of the downstream may show row values"
    )
    keep_dropped_s: float = option(
        1800.0,
        key="syncer.keep-dropped",
        kind="duration",
        help="dropped and truncated tables are kept for so long, for a RECOVER or FLASHBACK",
    )
    lane_queue_bytes: int = option(
        "32 MiB", key="syncer.lane-queue", kind="size", help="encoded rows that may wait in one lane"
    )
    pull_bytes: int = option(
        "32 MiB", key="syncer.pull-queue", kind="size", help="binlogs that may wait between pumps and lanes"
    )
    spill_above_bytes: int = option(
        "8 MiB",
        key="syncer.spill-above",
        kind="size",
        help="larger transactions wait on disk, below data-dir",
    )
    spill_ahead_bytes: int = option(
        "1 GiB",
        key="syncer.spill-ahead",
        kind="size",
        help="a pump is not read further while more than this of it waits on disk",
    )
    checkpoint_interval_s: float = option(
        0.5, key="syncer.checkpoint-interval", kind="duration", help="pace of the checkpoint row"
    )
    rate_rows: int = option(
        0, key="syncer.rate-rows", kind="int", help="row changes a second that may go downstream; 0: no limit"
    )
    rate_bytes: int = option(
        0,
        key="syncer.rate-size",
        kind="size",
        help="encoded bytes a second that may go downstream; 0: no limit",
    )
    relay_max_file_size: int = option(
        "10 MiB",
        key="syncer.relay.max-file-size",
        flag="relay-max-file-size",
        kind="size",
        help="a file of the relay log ends with the record that reaches this",
    )

    def validate(self) -> None:
        """Relations between values; `ConfigError` names the key."""
        for key, address in (("addr", self.addr), ("advertise-addr", self.advertised)):
            try:
                split_address(key, address)
            except ConfigError as error:
                raise ConfigError(f"invalid {key}: {error.message}", hint=error.hint) from None
        self.check_sink()
        if self.dispatch not in ("row", "transaction"):
            raise ConfigError(f"syncer.dispatch is {self.dispatch!r}", hint="row or transaction")
        self.check_node()
        for key, value in (
            ("worker-count", self.worker_count),
            ("txn-batch", self.txn_batch),
            ("spill-above", self.spill_above_bytes),
        ):
            if value < 1:
                raise ConfigError(f"syncer.{key} is {value}", hint="it must be at least 1")
        if self.rate_rows < 0:
            raise ConfigError(f"syncer.rate-rows is {self.rate_rows}", hint="0 is no limit")
        if self.initial_commit_ts < -1:
            raise ConfigError(f"initial-commit-ts is {self.initial_commit_ts}", hint="-1, 0 or a timestamp")
        if self.ignore_schemas.strip() and any(not name.strip() for name in self.ignore_schemas.split(",")):
            raise ConfigError("empty schema name in `ignore-schemas` config", hint="remove the stray comma")
        if not all(self.replicate_do_db):
            raise ConfigError("empty schema name in `replicate-do-db` config", hint="remove the empty entry")
        if self.load and (self.standby or not self.to_database):
            raise ConfigError(
                "--load is for the first start of a drainer of a database",
                hint="a standby takes over what was loaded; start without it",
            )
        self.check_former()
        self.check_listener()

    @property
    def dispatches_whole(self) -> bool:
        """Upstream transactions are never cut, and go out in their order."""
        return self.dispatch == "transaction" or self.dispatch_is_off

    @property
    def listen(self) -> str:
        return self.addr

    @property
    def advertised(self) -> str:
        return self.advertise_addr or self.addr

    @property
    def name(self) -> str:
        return self.node_id or f"{socket.gethostname()}:{split_address('addr', self.addr)[1]}"

    def remarks(self) -> list[str]:
        """What an operator should know of what he set, one line each, for the log."""
        said = [
            f"{entry.key or entry.flag} is accepted for Go's sake: {entry.help}"
            for name, entry in options(type(self)).items()
            if entry.deprecated and getattr(self, name) != defaults(type(self))[name]
        ]
        return said + self.remarks_on_sink()
