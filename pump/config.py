"""Configuration of a Pump: flags, TOML keys and environment (`PUMP_<FLAG>`) of the Go pump, and our own.

Keys that only had a meaning inside the Go pump are accepted and have no effect. Durations are seconds,
sizes bytes; `validate` checks what must hold between values.
"""

from __future__ import annotations

import os
import re
import socket
from typing import ClassVar, Final

from pump.index import backends
from pump.retention.policy import DISK, DRAINERS, Policy
from tidb_binlog.config.declaring import check_limits, defaults, option, options
from tidb_binlog.errors import ConfigError
from tidb_binlog.late_dataclass import dataclass
from tidb_binlog.net.port import own_address, socket_path, split_address
from tidb_binlog.observe import log
from tidb_binlog.serving.node_config import NodeConfig

ENV_PREFIX: Final = "PUMP"
PORT: Final = 8250
_URL: Final = re.compile(r"(?:(?P<scheme>[a-z]+)://)?(?P<address>[^/]*)(?P<path>/.*)?")
_ACCEPT_LOSS: Final = re.compile(r"\d{6,10}\.vlog:\d+(-\d{6,10}\.vlog:\d+)?")


@dataclass(frozen=True, slots=True)
class PumpConfig(NodeConfig):
    """`docs/config-pump.md` is made from it."""

    keys_told: ClassVar[str] = "binlogctl config docs pump"

    node_id: str = option(
        "",
        key="node-id",
        flag="node-id",
        help="name in the registry; empty: host name and port of addr",
        more="Kept in data-dir from the first start on, because drainers know this pump by it.",
    )
    addr: str = option(
        "",
        key="addr",
        flag="addr",
        help="host:port to listen on; empty: this host's first address, port 8250",
        starter=True,
    )
    advertise_addr: str = option(
        "",
        key="advertise-addr",
        flag="advertise-addr",
        help="host:port that other nodes connect to; empty: addr",
        more="It must not be 0.0.0.0.",
        starter=True,
    )
    socket: str = option(
        "",
        key="socket",
        flag="socket",
        help="unix:///path of a socket for gRPC besides addr",
        more="For clients on this host: the pump's owner and group may connect. It speaks in clear, "
        "also where addr has TLS. Its directory must exist.",
    )
    label: tuple[str, ...] = option(
        (),
        key="label",
        flag="label",
        kind="list",
        help="NAME=VALUE, as zone=a: clients with the same label write to this pump first",
        more="Any number of them: a client prefers the pumps that have all of its own. See docs/zones.md.",
        example='label = ["zone=shanghai-a", "rack=r12"]',
    )
    data_dir: str = option(
        "data.pump",
        key="data-dir",
        kind="path",
        flag="data-dir",
        help="directory of the value log and its index",
        more="One pump per directory. A Go pump's directory opens as it is.",
        starter=True,
    )
    heartbeat_interval_s: float = option(
        2,
        key="heartbeat-interval",
        flag="heartbeat-interval",
        kind="duration",
        help="pause between two beats in the registry",
        more="A pump counts as dead after five missed beats. A beat extends the lease; the entry "
        "(watermark, time) is written by every fifth beat, and at once when the state changes.",
        above=0,
    )
    gc_s: float = option(
        7,
        key="gc",
        flag="gc",
        kind="retention",
        help="how long binlogs are kept at least",
        more="Days, or a duration as \"12h\", in the upstream's time: this host's clock has no part in "
        "it. A file goes ten minutes after the newest binlog in it has reached this age. What a "
        "live drainer has not applied stays longer (storage.retention-protects).",
        starter=True,
        live=True,
    )
    pull_streams: int = option(
        128,
        key="pull-streams",
        help="pull streams at once, of one address half as many: RESOURCE_EXHAUSTED",
        more="A drainer or reader has one; each may hold a megabyte or two in memory. When all are "
        "taken, the address with most gives its newest up for an address that has fewer. A drainer of the "
        "registry, known by its advertise-addr, finds a place whoever has taken them.",
        live=True,
        above=0,
    )
    pull_streams_per_connection: int = option(
        32,
        key="pull-streams-per-connection",
        help="pull streams of one connection at once: RESOURCE_EXHAUSTED",
        live=True,
        above=0,
    )
    log_level: str = option(
        "info",
        key="log-level",
        flag="L",
        help="least level that is logged: debug, info, warn, error or fatal",
        live=True,
        suggested=tuple(log.LEVELS),
    )
    log_file: str = option(
        "",
        key="log-file",
        kind="path",
        flag="log-file",
        help="file to log into; empty: standard output",
        starter=True,
        live=True,
    )
    gen_binlog_interval_s: float = option(
        3,
        key="gen-binlog-interval",
        flag="fake-binlog-interval",
        kind="duration",
        help="pause between stored time marks for old drainers while nothing is written",
        more="Drainers of the newer protocol ask for a watermark and get one at once; this counts "
        "while none of them, or no drainer at all, is connected.",
        above=0,
    )
    resolve_after_s: float = option(
        "100ms",
        key="resolve-after",
        flag="resolve-after",
        kind="duration",
        help="age at which the upstream is asked about an open prewrite that a drainer waits for",
        more="A shorter time asks about transactions that merely take their time; a longer one lets a "
        "crashed client hold replication up for longer.",
        above=0,
    )
    accept_loss: str = option(
        "",
        key=None,
        flag="accept-loss",
        help="FILE:OFFSET of a damage that an error names; what is lost there is given up for good",
        more="FILE:OFFSET-FILE:OFFSET gives up whatever is damaged, or misses its prewrite, from the one "
        "place to before the other: one start where a directory was lost under load. What is whole there is "
        "delivered.",
    )
    sync_log: bool = option(
        True,
        key="storage.sync-log",
        help="acknowledge a write only when it is on the disk",
        more="Without it a power cut may lose acknowledged binlogs.",
    )
    stop_write_at_bytes: int = option(
        "10 GiB",
        key="storage.stop-write-at-available-space",
        flag="stop-write-at-available-space",
        kind="size",
        help="free disk space below which prewrites are refused",
        more="Ends of transactions are still accepted until a sixteenth of it is left: a log that runs "
        "into a full disk takes nothing more before a restart, while an end that is refused is "
        "sent again.",
        starter=True,
        live=True,
    )
    retention_bytes: int = option(
        0,
        key="storage.retention-bytes",
        kind="size",
        help="size that the value log may grow to; 0: no limit",
        more="Beyond it the oldest binlogs go, younger than gc or not, but never what a live drainer "
        "has not applied.",
        starter=True,
        live=True,
    )
    retention_free_bytes: int = option(
        0,
        key="storage.retention-free-space",
        kind="size",
        help="free disk space below which the oldest binlogs go; 0: no limit",
        more="They go whether younger than gc or not. It must be above stop-write-at-available-space, "
        "or prewrites are refused first.",
        live=True,
    )
    retention_protects: str = option(
        "disk",
        key="storage.retention-protects",
        help="what wins when space runs out: disk or drainers",
        more='It counts where a live drainer has not applied the oldest binlogs. "disk": they go once '
        "less than retention-free-space is free; the database goes on, and that drainer needs a "
        'new snapshot. "drainers": they stay whatever the disk does, and prewrites are refused at '
        "stop-write-at-available-space. A drainer is live while its lease is held, or if it "
        "showed itself within the last hour; `binlogctl forget` takes out one that never comes "
        "back.",
        live=True,
        choices=(DISK, DRAINERS),
    )
    retention_alarm_s: float = option(
        "20h",
        key="storage.retention-alarm",
        kind="duration",
        help="how long before retention reaches a drainer an alarm is raised",
        more="In the log and in the metrics, at once and every hour. Set at most half of the time that "
        "binlogs are kept: with more, a drainer that is up to date raises it.",
        live=True,
        least=0,
    )
    write_queue_bytes: int = option(
        "64 MiB",
        key="storage.write-queue",
        kind="size",
        help="payloads that may wait for the writer; then requests wait",
        above=0,
    )
    index_queue_bytes: int = option(
        "16 MiB",
        key="storage.index-queue",
        kind="size",
        help="payloads that may wait for the index; then it follows by reading the log",
        above=0,
    )
    recent_bytes: int = option(
        "32 MiB",
        key="storage.recent-commits",
        kind="size",
        help="commits kept in memory, so that drainers that keep up cost no disk read",
        above=0,
    )
    segment_bytes: int = option(
        "500 MiB",
        key="storage.segment-size",
        kind="size",
        help="size at which a new log file begins",
        above=0,
    )
    index_backend: str = option(
        backends.AUTO,
        key="storage.index",
        help="files of the index: auto, leveldb or sqlite",
        choices=backends.NAMES,
        more="auto keeps what the directory has, and takes LevelDB for a new one, where this Python has "
        "plyvel or plyvel-next; else sqlite, which needs no package. After a change the index is built anew "
        "from the value log. Go pumps read LevelDB only: see docs/pump.md.",
    )
    cache_bytes: int = option(
        8 << 20, key="storage.kv.block-cache-capacity", help="cache of index blocks", unit="bytes", above=0
    )
    write_buffer_bytes: int = option(
        64 << 20,
        key="storage.kv.write-buffer",
        help="LevelDB's buffer, which is written out as one table",
        unit="bytes",
        above=0,
    )

    # Accepted, no effect.
    kv_chan_cap: int = option(0, key="storage.kv_chan_cap", help="", deprecated=True)
    slow_write_threshold: float = option(1.0, key="storage.slow_write_threshold", help="", deprecated=True)
    kv_restart: int = option(16, key="storage.kv.block-restart-interval", help="", deprecated=True)
    kv_block: int = option(4096, key="storage.kv.block-size", help="", deprecated=True)
    kv_l0: int = option(8, key="storage.kv.compaction-L0-trigger", help="", deprecated=True)
    kv_table: int = option(0, key="storage.kv.compaction-table-size", help="", deprecated=True)
    kv_total: int = option(0, key="storage.kv.compaction-total-size", help="", deprecated=True)
    kv_factor: float = option(
        8.0, key="storage.kv.compaction-total-size-multiplier", help="", deprecated=True
    )
    kv_pause: int = option(24, key="storage.kv.write-L0-pause-trigger", help="", deprecated=True)
    kv_slow: int = option(17, key="storage.kv.write-L0-slowdown-trigger", help="", deprecated=True)
    etcd_dial_timeout: int = option(0, key="EtcdDialTimeout", help="", deprecated=True)
    enable_debug: bool = option(False, key=None, flag="enable-debug", help="", deprecated=True)
    binlog_file_size: int = option(0, key=None, flag="binlog-file-size", help="", deprecated=True)
    enable_slice: bool = option(False, key=None, flag="enable-binlog-slice", help="", deprecated=True)
    slice_size: int = option(0, key=None, flag="binlog-slice-size", help="", deprecated=True)
    log_rotate: str = option("", key=None, flag="log-rotate", help="", deprecated=True)

    def remarks(self) -> list[str]:
        """Keys of Go pumps that are set and have no effect, one line each, for the log."""
        unset = defaults(type(self))
        return [
            f"{entry.key or f'-{entry.flag}'} is accepted for Go's sake and has no effect"
            for name, entry in options(type(self)).items()
            if entry.deprecated and getattr(self, name) != unset[name]
        ]

    def validate(self) -> None:
        """Raise `ConfigError` for values that cannot work."""
        self.check_listener()
        host, _ = split_address("advertise-addr", self.advertised)
        if host in ("", "0.0.0.0", "::"):
            raise ConfigError(
                f"invalid advertiseAddr host: {host!r}",
                hint="set advertise-addr to what other hosts can reach",
            )
        self._validate_urls()
        self.check_node()
        check_limits(self, PumpConfig)
        self._validate_retention()
        _ = self.labels
        if self.accept_loss and not _ACCEPT_LOSS.fullmatch(self.accept_loss):
            raise ConfigError(
                f"accept-loss {self.accept_loss!r} is not FILE:OFFSET or FILE:OFFSET-FILE:OFFSET",
                hint="copy it from the error at start",
            )

    def _validate_retention(self) -> None:
        if 0 < self.retention_free_bytes <= self.stop_write_at_bytes:
            raise ConfigError(
                f"storage.retention-free-space is {self.retention_free_bytes} bytes, but prewrites are "
                f"refused at {self.stop_write_at_bytes} already (storage.stop-write-at-available-space)",
                hint="set retention-free-space above stop-write-at-available-space",
            )

    @property
    def labels(self) -> dict[str, str]:
        """Raises `ConfigError`."""
        labels: dict[str, str] = {}
        for text in self.label:
            name, is_pair, value = (part.strip() for part in text.partition("="))
            if not (name and is_pair and value):
                raise ConfigError(f"label {text!r} is not NAME=VALUE", hint='write label = ["zone=a"]')
            if name in labels:
                raise ConfigError(f"label {name} is given twice", hint="a pump has one value of each")
            labels[name] = value
        return labels

    def address(self, port: int) -> str:
        """The one in the registry; `port`: where it listens, which counts where none is configured."""
        host, configured = split_address("advertise-addr", self.advertised)
        return f"{host}:{configured or port}"

    @property
    def retention_policy(self) -> Policy:
        return Policy(
            self.gc_s,
            self.retention_bytes,
            self.retention_free_bytes,
            self.retention_protects,
            self.retention_alarm_s,
        )

    def _validate_urls(self) -> None:
        for url in self.endpoints.split(","):
            match = _URL.fullmatch(url)
            assert match is not None
            if match["scheme"] not in (None, "http", "https"):
                raise ConfigError(f"pd-urls: URL scheme must be http or https: {url}", hint="correct pd-urls")
            if match["path"]:
                raise ConfigError(f"pd-urls: URL must not contain a path: {url}", hint="correct pd-urls")
            host, _, port = match["address"].rpartition(":")
            if not host or not port.isdigit():
                raise ConfigError(
                    f'pd-urls: URL address does not have the form "host:port": {url}', hint="correct pd-urls"
                )

    @property
    def listen(self) -> str:
        return self.addr or f"{own_address()}:{PORT}"

    @property
    def advertised(self) -> str:
        return self.advertise_addr or self.listen

    @property
    def unix_path(self) -> str:
        return socket_path("socket", self.socket) if self.socket else ""

    @property
    def endpoints(self) -> str:
        """etcd endpoints, sorted."""
        return ",".join(sorted(url.strip() for url in self.pd_urls.split(",")))

    @property
    def default_node_id(self) -> str:
        return f"{socket.gethostname()}:{split_address('addr', self.listen)[1]}"


def read_environment() -> dict[str, str]:
    """The process's environment; read here only."""
    return dict(os.environ)
