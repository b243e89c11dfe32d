"""Settings of binlogctl: every flag there is; which command takes which says `commands`.

Names, defaults and meaning of the first block are those of the Go binlogctl. Only where to connect, TLS, the
form of the output and the time zone may come from the environment (`BINLOGCTL_<FLAG>`): what a command does
stands on its command line.

Tests  tests/deploy/binlogctl/cli/test_command_line.py
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tidb_binlog.config.declaring import OptionKind, option
from tidb_binlog.late_dataclass import dataclass

if TYPE_CHECKING:
    from tidb_binlog.net.tls import TlsConfig

ENV_PREFIX: Final = "BINLOGCTL"
ENVIRONMENT: Final = ("pd-urls", "ssl-ca", "ssl-cert", "ssl-key", "output", "time-zone")


def _flag(flag: str, default: Any, help: str, *, kind: OptionKind | None = None) -> Any:
    return option(default, key=None, flag=flag, help=help, kind=kind)


@dataclass(frozen=True, slots=True)
class CtlSettings:
    """What a command line and the environment say."""

    cmd: str = _flag("cmd", "pumps", "a command of the Go binlogctl")
    node_id: str = _flag("node-id", "", "id of the node")
    data_dir: str = _flag(
        "data-dir", "binlog_position", "directory where the savepoint is written", kind="path"
    )
    pd_urls: str = _flag("pd-urls", "http://127.0.0.1:2379", "comma list of URLs of PD or etcd")
    ssl_ca: str = _flag("ssl-ca", "", "PEM file of the certificate authority; turns TLS on", kind="path")
    ssl_cert: str = _flag("ssl-cert", "", "PEM file of our certificate", kind="path")
    ssl_key: str = _flag("ssl-key", "", "PEM file of our private key", kind="path")
    time_zone: str = _flag("time-zone", "", "also show times in this zone, as Asia/Shanghai or Local")
    state: str = _flag(
        "state", "", "state to write: online, pausing, paused, closing, offline; verify: file of its progress"
    )
    show_offline: bool = _flag("show-offline-nodes", False, "list offline nodes too")
    text: str = _flag("text", "", "text to encrypt, or the statement to run instead")

    output: str = _flag("output", "", "form of the output")
    job_id: int = _flag("job-id", 0, "number of the DDL job")
    kind: str = _flag("kind", "", "pump or drainer; found out by default")
    no_wait: bool = _flag("no-wait", False, "return once the node has agreed")
    timeout_s: float = _flag("timeout", "10m", "wait so long at most; 0: without a limit", kind="duration")
    force: bool = _flag("force", False, "close without waiting: what no drainer has read is lost")
    apply: bool = _flag("apply", False, "pause only applying; the process continues")
    delete: bool = _flag("delete", False, "remove the entry instead of marking it offline")
    yes: bool = _flag("yes", False, "do it even if something is lost")
    interval_s: float = _flag("interval", "2s", "time between two updates", kind="duration")
    sort: str = _flag("sort", "name", "order of nodes: name, address, state or behind")
    once: bool = _flag("once", False, "end after one update")

    tables: str = _flag("tables", "", "comma list of tables, as shop.*,crm.customer; empty: all")
    begin: str = _flag("from", "now", "where to begin: a time, a timestamp, -10m, now or oldest")
    until: str = _flag("until", "", "where to end: a time or a timestamp")
    where: str = _flag("where", "", "condition on a row's columns, as a row-rule has it")
    limit: int = _flag("limit", 0, "end after so many rows")

    retries: int = _flag("retries", 2, "how often to compare differences again")
    workers: int = _flag("workers", 4, "chunks to compare at a time")
    at_rest: bool = _flag("at-rest", False, "no drainer runs, and nobody writes upstream")
    archive: str = _flag("archive", "", "directory or URI of an archive of the same stream")
    report: str = _flag("report", "", "write the result as a page into this file", kind="path")
    repair: str = _flag("repair", "", "write SQL that corrects the downstream into this file", kind="path")
    repair_now: bool = _flag("repair-now", False, "correct the downstream while its drainer runs")

    upstream: str = _flag("upstream", "auto", "auto, tidb (PD and TiKV) or standalone (etcd alone)")
    pump_config: str = _flag("pump-config", "", "a pump's file on this host", kind="path")
    drainer_config: str = _flag(
        "drainer-config", "", "a drainer's file here: names the downstream", kind="path"
    )
    tidb: str = _flag("tidb", "", "comma list of host:status_port of TiDB servers not registered")

    rate: int = _flag("rate", -1, "rows a second; 0: no limit; -1: verify beside a drainer 50000, else 0")
    replace: bool = _flag("replace", False, "remove the rows that are there first")
    give_up: bool = _flag("give-up", False, "end a load of tables that join a drainer")
    append: bool = _flag("append", False, "add to the rows that are there already")
    dry_run: bool = _flag("dry-run", False, "show what would be done, and change nothing")
    to: str = _flag("to", "database", "database, or archive: an image in -dir")
    directory: str = _flag("dir", "", "directory of the image that is written, new")
    image: str = _flag("image", "", "directory of an image to begin or compare with")
    mirror: str = _flag("mirror", "", "delta://PLACE or iceberg://PLACE: a mirror in place of the downstream")
    backup: str = _flag(
        "backup", "", "moment of the backup that the downstream has: a time, or its directory"
    )

    beside_drainer: bool = _flag("beside-drainer", False, "allow a drainer that writes other tables there")

    @property
    def tls(self) -> TlsConfig | None:
        """None: no TLS. Raises `ConfigError`."""
        from tidb_binlog.net.tls import TlsConfig  # half of what a start costs, and `-h` needs none

        return TlsConfig.from_paths(self.ssl_ca, self.ssl_cert, self.ssl_key)
