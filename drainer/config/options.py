"""Options of a Drainer: the keys, flags and environment of the Go drainer that mean something here.

Environment: `BINLOG_SERVER_<FLAG>`. Differences: `worker-count` is the number of lanes, `txn-batch` the row
changes of one downstream transaction; both default to what multi-row statements need, and a Go drainer's
defaults for them in a file count as not set.
"""

from __future__ import annotations

import socket
from typing import ClassVar, Final

from drainer.config import remarks
from drainer.config.rule_options import RuleOptions
from tidb_binlog import compression
from tidb_binlog.config.declaring import check_limits, option
from tidb_binlog.errors import ConfigError
from tidb_binlog.late_dataclass import dataclass
from tidb_binlog.net.port import split_address
from tidb_binlog.observe import log

ENV_PREFIX: Final = "BINLOG_SERVER"
BESIDE_ROWS: Final = 10_000
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
class DrainerConfig(RuleOptions):
    usage_notes: ClassVar[str] = EXIT_CODES
    keys_told: ClassVar[str] = "binlogctl config docs drainer"

    addr: str = option("127.0.0.1:8249", key="addr", flag="addr", help="host:port to listen on", starter=True)
    advertise_addr: str = option(
        "",
        key="advertise-addr",
        flag="advertise-addr",
        help="host:port that is given to other nodes; empty: addr",
        starter=True,
    )
    node_id: str = option(
        "", key="node-id", flag="node-id", help="name in the registry; empty: host name and port of addr"
    )
    data_dir: str = option(
        "data.drainer",
        key="data-dir",
        kind="path",
        flag="data-dir",
        help="directory of what this node keeps on disk",
        starter=True,
    )
    initial_commit_ts: int = option(
        -1,
        key="initial-commit-ts",
        flag="initial-commit-ts",
        help="where to begin without a checkpoint: -1 now, 0 everything the pumps hold, or a timestamp",
        starter=True,
        least=-1,
    )
    load: bool = option(
        False,
        key=None,
        flag="load",
        help="before the first start copy what the upstream ([syncer.from]) has; later it changes nothing",
    )
    standby: bool = option(
        False,
        key="standby",
        flag="standby",
        help="wait while another drainer has this node id, and take over when it ends",
        more="Both have the same node-id, and each an addr of its own.",
    )
    compressor: str = option(
        "",
        key="compressor",
        flag="compressor",
        help="compression of what pumps send: zstd or gzip; empty: none",
        more="For a slow or costly line to the pumps: zstd takes a small part of gzip's CPU. A pump of an "
        "older version sends as it is. A Go pump compresses with gzip, whichever of the two is set. See "
        "docs/compression.md.",
        choices=("", *compression.NAMES),
    )
    heartbeat_interval_s: float = option(
        1.0,
        key="heartbeat-interval",
        kind="duration",
        help="pause between two beats in the registry",
        more="A beat extends the lease; the entry is written with it when the checkpoint has moved, "
        "otherwise by every fifth.",
        above=0,
    )
    trace: str = option(
        "", key=None, flag="trace", help="timeline to write, for the trace viewers of Chrome and Perfetto"
    )
    log_level: str = option(
        "info",
        key="log-level",
        flag="L",
        help="least level that is logged: debug, info, warn or error",
        live=True,
        suggested=tuple(log.LEVELS),
    )
    log_file: str = option(
        "",
        key="log-file",
        kind="path",
        flag="log-file",
        help="file to log into; empty: standard error",
        starter=True,
        live=True,
    )
    synced_check_time: int = option(
        5,
        key="synced-check-time",
        flag="synced-check-time",
        help="time without a change after which /status says Synced",
        unit="minutes",
    )
    load_schema_snapshot: bool = option(
        True,
        key="syncer.load-schema-snapshot",
        flag="load-schema-snapshot",
        help="read the schema at the checkpoint from TiKV, and hold it there",
        more="It is needed where no schema is stored with the checkpoint: at a first start, or after a "
        "Go drainer. So that it works for a checkpoint that lags, garbage newer than it (but of a "
        "day at most) is not collected upstream while the drainer runs. false: the whole DDL "
        "history is read instead, and nothing is held.",
    )
    quarantine_bytes: int = option(
        "4 GiB",
        key="syncer.quarantine-size",
        kind="size",
        help="size of the rows that may wait for a decision about a refused DDL; 0: stop at such a DDL",
        more="A DDL that the downstream refuses in every form waits for a decision (`binlogctl ddl "
        "list`), and its tables with it, while all others go on: their rows are kept in "
        "data-dir/quarantine. When this is used up, the whole stream waits.",
    )
    loopback_control: bool = option(
        False,
        key="syncer.loopback-control",
        flag="loopback-control",
        help="two-way replication: mark what is written, drop what a drainer of this channel wrote",
        more="The mark is in retl._drainer_repl_mark; what comes with such a mark is dropped, and so "
        "are the checkpoint tables.",
    )
    channel_id: int = option(
        0,
        key="syncer.channel-id",
        flag="channel-id",
        help="channel of loopback-control, the same in both directions",
    )
    worker_count: int = option(
        4,
        key="syncer.worker-count",
        flag="c",
        help="number of lanes that write downstream at once",
        more="2 on a downstream with two cores, 4 where commits wait for a disk, 8 to 15 over a network. In "
        "a file 16, which Go drainers' files have, counts as not set; `-c 16` means it.",
        starter=True,
        go_default=16,
        above=0,
    )
    txn_batch: int = option(
        3200,
        key="syncer.txn-batch",
        flag="txn-batch",
        help="row changes of one downstream transaction at most",
        more="A statement needs 80 to 200 rows of one table to be cheap, and changes of one row within "
        "one transaction are written once. In a file 20, which Go drainers' files have, counts as not set; "
        "`-txn-batch 20` means it.",
        live=True,
        go_default=20,
        above=0,
    )
    dispatch: str = option(
        "row",
        key="syncer.dispatch",
        help="what lanes are given: row (rows by key) or transaction (whole transactions, one lane)",
        more="With row a statement has many rows. With transaction they go downstream in their order, "
        "and readers never see half of an upstream transaction; several of them go into one "
        "downstream transaction.",
        choices=("row", "transaction"),
    )
    safe_mode: bool = option(
        False,
        key="syncer.safe-mode",
        flag="safe-mode",
        help="use only statements that may be repeated",
        more="It is switched on by itself after a Go drainer's checkpoint. Rows of one key that came before "
        "the end of a DROP PRIMARY KEY or DROP INDEX take each other's place then.",
    )
    strict: bool = option(
        False,
        key="syncer.strict",
        help="stop where downstream rows are not as they should be",
        more="Such rows: one to delete is missing, one to insert is there already. Without it they are "
        "counted (binlog_drainer_drift_rows_total, /status), and a table whose rows break a key "
        "or a CHECK waits (`binlogctl ddl list`).",
    )
    log_values: bool = option(
        False, key="syncer.log-values", help="errors of the downstream may show row values, in the log too"
    )
    ddl_conversions: str = option(
        "convert",
        key="syncer.ddl-conversions",
        help="what happens where a type change converts values otherwise: convert, wait or downstream",
        more="convert: the Drainer converts them as TiDB did, in a new column that takes the place of the "
        "old one. wait: the table waits (`binlogctl ddl list`). downstream: the server's own conversion "
        "runs, and `missing` in /status says for which columns.",
        choices=("convert", "wait", "downstream"),
    )
    ddl_beside_rows: int = option(
        BESIDE_ROWS,
        key="syncer.ddl-beside-rows",
        help="from how many rows of its table on a DDL that takes long stops that table alone; -1: never",
        more="By the downstream's estimate, where 8 KiB count for a row; 0: whatever the table's size. "
        "The table waits as for a decision that is made: its rows are kept in data-dir/quarantine, all other "
        "tables go on. Otherwise all tables wait until the DDL has run.",
        least=-1,
    )
    keep_dropped_s: float = option(
        "30m",
        key="syncer.keep-dropped",
        kind="duration",
        help="how long dropped and truncated tables are kept, for a RECOVER or FLASHBACK",
        more="They are moved to the schema of the checkpoint: what RECOVER and FLASHBACK bring back "
        "upstream is not in the binlog. The time is the stream's, and stands while a DDL waits. Set at "
        'least TiDB\'s GC life time; "0s" drops them at once.',
        least=0,
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
        help="size of a transaction beyond which it waits on disk, below data-dir",
        more="It is not held in memory, but in a file without a name in data-dir/spill, and applied "
        "piece by piece. Smaller values save memory, larger ones disk writes.",
        above=0,
    )
    spill_ahead_bytes: int = option(
        "1 GiB",
        key="syncer.spill-ahead",
        kind="size",
        help="what may wait on disk of one pump before it is read no further",
        more="One transaction of any size always fits.",
    )
    checkpoint_interval_s: float = option(
        "500ms",
        key="syncer.checkpoint-interval",
        kind="duration",
        help="pause between two writes of the checkpoint row",
        more="A restart pulls again what follows it, and skips what lanes have applied.",
        live=True,
        above=0,
    )
    rate_rows: int = option(
        0,
        key="syncer.rate-rows",
        help="row changes a second that may go downstream; 0: no limit",
        more="Also while the drainer runs: PUT /apply/rate?rows=N&bytes=M.",
        live=True,
        least=0,
    )
    rate_bytes: int = option(
        0,
        key="syncer.rate-size",
        kind="size",
        help="encoded bytes a second that may go downstream; 0: no limit",
        more="Also while the drainer runs: PUT /apply/rate?rows=N&bytes=M.",
        live=True,
    )
    relay_max_file_size: int = option(
        "10 MiB",
        key="syncer.relay.max-file-size",
        flag="relay-max-file-size",
        kind="size",
        help="a file of the relay log ends with the record that reaches this size",
        more="A file is removed when all in it is applied.",
    )

    go_defaults: tuple[str, ...] = ()
    """Fields that the file sets to what a Go drainer's file has: they count as not set."""

    def validate(self) -> None:
        """Relations between values; `ConfigError` names the key."""
        for key, address in (("addr", self.addr), ("advertise-addr", self.advertised)):
            try:
                split_address(key, address)
            except ConfigError as error:
                raise ConfigError(f"invalid {key}: {error.message}", hint=error.hint) from None
        self.check_sink()
        self.check_node()
        if self.compressor not in ("", *compression.available()):
            raise ConfigError(
                f"Invalid compressor: {self.compressor}, must be one of these: "
                f"[{' '.join(compression.available())}]",
                hint='zstd takes least CPU; "" does not compress',
            )
        check_limits(self, DrainerConfig)
        self.check_names()
        if self.load and (self.standby or not self.takes_rows_first):
            raise ConfigError(
                "--load is for the first start of a drainer; a standby, an archive and a class that"
                " implements the whole port take no rows first",
                hint="a standby takes over what was loaded; for an archive `binlogctl load -to archive` makes"
                " an image: start without it",
            )
        self.check_listener()

    @property
    def dispatches_whole(self) -> bool:
        """Upstream transactions are never cut, and go out in their order."""
        return self.dispatch == "transaction" or self.dispatch_is_off

    @property
    def rows_may_wait(self) -> bool:
        """A table waits whose rows the downstream refuses for good."""
        return not self.strict and self.quarantine_bytes > 0

    @property
    def listen(self) -> str:
        """The address that the drainer listens on."""
        return self.addr

    @property
    def advertised(self) -> str:
        """The address that others are told."""
        return self.advertise_addr or self.addr

    @property
    def name(self) -> str:
        """The node id, by default of the host and the port."""
        return self.node_id or f"{socket.gethostname()}:{split_address('addr', self.addr)[1]}"

    def remarks(self) -> list[str]:
        """What an operator should know of what he set, one line each, for the log."""
        return remarks.on_go_keys(self) + remarks.on_others_keys(self) + self.remarks_on_sink()
