"""Configuration of a Pump: flags, TOML keys and environment (`PUMP_<FLAG>`) of the Go pump, and our own.

Keys that only had a meaning inside the Go pump are accepted and have no effect. Durations are seconds,
sizes bytes; `validate` checks what must hold between values.
"""

from __future__ import annotations

import os
import re
import socket
from dataclasses import dataclass
from typing import Final

from common.config.declaring import option
from common.errors import ConfigError
from common.net.port import own_address, socket_path, split_address
from common.serving.node_config import NodeConfig
from pump.retention.policy import DISK, DRAINERS, Policy

ENV_PREFIX: Final = "PUMP"
PORT: Final = 8250
_URL: Final = re.compile(r"(?:(?P<scheme>[a-z]+)://)?(?P<address>[^/]*)(?P<path>/.*)?")
_ACCEPT_LOSS: Final = re.compile(r"(\d{6,10}\.vlog):(\d+)")


@dataclass(frozen=True, slots=True)
class PumpConfig(NodeConfig):
    """See `deploy/pump.toml` for every key with its reason."""

    node_id: str = option("", key="node-id", flag="node-id", help="name in the registry; kept in data-dir")
    addr: str = option("", key="addr", flag="addr", help="host:port to listen on")
    advertise_addr: str = option("", key="advertise-addr", flag="advertise-addr", help="host:port for others")
    socket: str = option(
        "", key="socket", flag="socket", help="unix:///path of a socket for gRPC besides addr"
    )
    start_wait_s: float = option(
        "10m",
        key="start-wait",
        flag="start-wait",
        kind="duration",
        help="how long a start waits for etcd and timestamps; 0: not at all",
    )
    data_dir: str = option("data.pump", key="data-dir", flag="data-dir", help="directory of the value log")
    heartbeat_interval_s: float = option(
        2, key="heartbeat-interval", flag="heartbeat-interval", kind="duration", help="seconds between beats"
    )
    gc_s: float = option("7", key="gc", flag="gc", kind="retention", help="how long binlogs are kept")
    pull_streams: int = option(
        128,
        key="pull-streams",
        kind="int",
        help="pull streams at once, of one address half: RESOURCE_EXHAUSTED",
    )
    pull_streams_per_connection: int = option(
        32, key="pull-streams-per-connection", kind="int", help="and of one connection"
    )
    log_level: str = option("info", key="log-level", flag="L", help="debug, info, warn, error, fatal")
    log_file: str = option("", key="log-file", flag="log-file", help="log file; empty: standard output")
    gen_binlog_interval_s: float = option(
        3,
        key="gen-binlog-interval",
        flag="fake-binlog-interval",
        kind="duration",
        help="pause of stored time marks for old drainers while nothing is written",
    )
    resolve_after_s: float = option(
        "100ms",
        key="resolve-after",
        flag="resolve-after",
        kind="duration",
        help="age at which the upstream is asked about an open prewrite that a puller waits for",
    )
    accept_loss: str = option(
        "",
        key=None,
        flag="accept-loss",
        help="FILE:OFFSET of a damage that an error names; what is lost there is given up for good",
    )
    sync_log: bool = option(
        True, key="storage.sync-log", kind="bool", help="acknowledge only what is on the medium"
    )
    stop_write_at_bytes: int = option(
        "10 GiB",
        key="storage.stop-write-at-available-space",
        kind="size",
        help="no prewrite enters when less is free",
    )
    retention_bytes: int = option(
        0, key="storage.retention-bytes", kind="size", help="the log grows no larger than this; 0: no limit"
    )
    retention_free_bytes: int = option(
        0,
        key="storage.retention-free-space",
        kind="size",
        help="the oldest binlogs go when less is free; 0: no limit",
    )
    retention_protects: str = option(
        "disk",
        key="storage.retention-protects",
        help="disk or drainers: which one wins when space runs out",
    )
    retention_alarm_s: float = option(
        "20h",
        key="storage.retention-alarm",
        kind="duration",
        help="how long before retention reaches a drainer the alarm is raised",
    )
    write_queue_bytes: int = option(
        "64 MiB", key="storage.write-queue", kind="size", help="payloads waiting for the writer"
    )
    index_queue_bytes: int = option(
        "16 MiB", key="storage.index-queue", kind="size", help="payloads waiting for the index"
    )
    recent_bytes: int = option(
        "32 MiB", key="storage.recent-commits", kind="size", help="commits kept in memory for pullers"
    )
    segment_bytes: int = option(
        500 << 20, key="storage.segment-size", kind="size", help="size at which a new log file begins"
    )
    cache_bytes: int = option(
        8 << 20, key="storage.kv.block-cache-capacity", kind="int", help="LevelDB's block cache"
    )
    write_buffer_bytes: int = option(
        64 << 20, key="storage.kv.write-buffer", kind="int", help="LevelDB's write buffer"
    )

    # Accepted, no effect.
    kv_chan_cap: int = option(0, key="storage.kv_chan_cap", kind="int", help="", deprecated=True)
    slow_write_threshold: float = option(
        1.0, key="storage.slow_write_threshold", kind="float", help="", deprecated=True
    )
    kv_restart: int = option(
        16, key="storage.kv.block-restart-interval", kind="int", help="", deprecated=True
    )
    kv_block: int = option(4096, key="storage.kv.block-size", kind="int", help="", deprecated=True)
    kv_l0: int = option(8, key="storage.kv.compaction-L0-trigger", kind="int", help="", deprecated=True)
    kv_table: int = option(0, key="storage.kv.compaction-table-size", kind="int", help="", deprecated=True)
    kv_total: int = option(0, key="storage.kv.compaction-total-size", kind="int", help="", deprecated=True)
    kv_factor: float = option(
        8.0, key="storage.kv.compaction-total-size-multiplier", kind="float", help="", deprecated=True
    )
    kv_pause: int = option(24, key="storage.kv.write-L0-pause-trigger", kind="int", help="", deprecated=True)
    kv_slow: int = option(
        17, key="storage.kv.write-L0-slowdown-trigger", kind="int", help="", deprecated=True
    )
    etcd_dial_timeout: int = option(0, key="EtcdDialTimeout", kind="int", help="", deprecated=True)
    enable_debug: bool = option(False, key=None, flag="enable-debug", kind="bool", help="", deprecated=True)
    binlog_file_size: int = option(0, key=None, flag="binlog-file-size", kind="int", help="", deprecated=True)
    enable_slice: bool = option(
        False, key=None, flag="enable-binlog-slice", kind="bool", help="", deprecated=True
    )
    slice_size: int = option(0, key=None, flag="binlog-slice-size", kind="int", help="", deprecated=True)
    log_rotate: str = option("", key=None, flag="log-rotate", help="", deprecated=True)

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
        for key, value in (
            ("heartbeat-interval", self.heartbeat_interval_s),
            ("gen-binlog-interval", self.gen_binlog_interval_s),
            ("resolve-after", self.resolve_after_s),
            ("pull-streams", self.pull_streams),
            ("pull-streams-per-connection", self.pull_streams_per_connection),
            ("storage.write-queue", self.write_queue_bytes),
            ("storage.index-queue", self.index_queue_bytes),
            ("storage.recent-commits", self.recent_bytes),
            ("storage.segment-size", self.segment_bytes),
            ("storage.kv.block-cache-capacity", self.cache_bytes),
            ("storage.kv.write-buffer", self.write_buffer_bytes),
        ):
            if value <= 0:
                raise ConfigError(f"{key} is {value:g}, it must be above zero", hint=f"correct {key}")
        self._validate_retention()
        if self.accept_loss and not _ACCEPT_LOSS.fullmatch(self.accept_loss):
            raise ConfigError(
                f"accept-loss {self.accept_loss!r} is not FILE:OFFSET", hint="copy it from the error at start"
            )

    def _validate_retention(self) -> None:
        if self.retention_protects not in (DISK, DRAINERS):
            raise ConfigError(
                f"storage.retention-protects is {self.retention_protects!r}",
                hint=f'set it to "{DISK}" or "{DRAINERS}"',
            )
        if self.retention_alarm_s < 0:
            raise ConfigError("storage.retention-alarm is negative", hint='set a duration, as "20h"')
        if 0 < self.retention_free_bytes <= self.stop_write_at_bytes:
            raise ConfigError(
                f"storage.retention-free-space is {self.retention_free_bytes} bytes, but prewrites are "
                f"refused at {self.stop_write_at_bytes} already (storage.stop-write-at-available-space)",
                hint="set retention-free-space above stop-write-at-available-space",
            )

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
