"""Settings of binlogctl: every flag there is; which command takes which says `commands`.

Names, defaults and meaning of the first block are those of the Go binlogctl. Only where to connect, TLS, the
form of the output and the time zone may come from the environment (`BINLOGCTL_<FLAG>`): what a command does
stands on its command line.

Tests  tests/deploy/binlogctl/cli/test_command_line.py
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tidb_binlog.config.declaring import option

if TYPE_CHECKING:
    from tidb_binlog.net.tls import TlsConfig

ENV_PREFIX: Final = "BINLOGCTL"
ENVIRONMENT: Final = ("pd-urls", "ssl-ca", "ssl-cert", "ssl-key", "output", "time-zone")


@dataclass(frozen=True, slots=True)
class CtlSettings:
    cmd: str = option("pumps", key=None, flag="cmd", help="a command of the Go binlogctl")
    node_id: str = option("", key=None, flag="node-id", help="id of the node that is meant")
    data_dir: str = option(
        "binlog_position", key=None, flag="data-dir", help="directory in which the savepoint is written"
    )
    pd_urls: str = option(
        "http://127.0.0.1:2379", key=None, flag="pd-urls", help="comma list of URLs of PD or etcd"
    )
    ssl_ca: str = option(
        "", key=None, flag="ssl-ca", help="PEM file of the certificate authority; turns TLS on"
    )
    ssl_cert: str = option("", key=None, flag="ssl-cert", help="PEM file of our certificate")
    ssl_key: str = option("", key=None, flag="ssl-key", help="PEM file of our private key")
    time_zone: str = option(
        "", key=None, flag="time-zone", help="also show times in this zone, as Asia/Shanghai or Local"
    )
    state: str = option(
        "",
        key=None,
        flag="state",
        help="state to write: online, pausing, paused, closing, offline; verify: file of its progress",
    )
    show_offline: bool = option(
        False, key=None, flag="show-offline-nodes", kind="bool", help="list offline nodes too"
    )
    text: str = option("", key=None, flag="text", help="text to encrypt, or the statement to run instead")

    output: str = option("", key=None, flag="output", help="form of what is printed")
    job_id: int = option(0, key=None, flag="job-id", kind="int", help="number of the DDL job")
    kind: str = option("", key=None, flag="kind", help="pump or drainer; otherwise found out")
    no_wait: bool = option(
        False, key=None, flag="no-wait", kind="bool", help="return once the node has agreed"
    )
    timeout_s: float = option(
        "10m", key=None, flag="timeout", kind="duration", help="wait so long at most; 0: without a limit"
    )
    force: bool = option(
        False,
        key=None,
        flag="force",
        kind="bool",
        help="close without waiting: what no drainer has read is lost",
    )
    apply: bool = option(
        False, key=None, flag="apply", kind="bool", help="hold only applying; the drainer goes on running"
    )
    delete: bool = option(
        False, key=None, flag="delete", kind="bool", help="remove the entry instead of marking it offline"
    )
    yes: bool = option(False, key=None, flag="yes", kind="bool", help="do it although something is lost")
    interval_s: float = option(
        "2s", key=None, flag="interval", kind="duration", help="pause between two snapshots"
    )
    sort: str = option("name", key=None, flag="sort", help="order of nodes: name, address, state or behind")
    once: bool = option(False, key=None, flag="once", kind="bool", help="print one snapshot and end")

    tables: str = option(
        "", key=None, flag="tables", help="comma list of tables, as shop.*,crm.customer; empty: all"
    )
    begin: str = option(
        "now", key=None, flag="from", help="where to begin: a time, a timestamp, -10m, now or oldest"
    )
    until: str = option("", key=None, flag="until", help="where to end: a time or a timestamp")
    where: str = option("", key=None, flag="where", help="condition on a row's columns, as a row-rule has it")
    limit: int = option(0, key=None, flag="limit", kind="int", help="end after so many rows")

    retries: int = option(
        2, key=None, flag="retries", kind="int", help="how often differences are looked at again"
    )
    workers: int = option(4, key=None, flag="workers", kind="int", help="chunks that are compared at a time")
    at_rest: bool = option(
        False, key=None, flag="at-rest", kind="bool", help="no drainer runs, and nobody writes upstream"
    )
    archive: str = option(
        "", key=None, flag="archive", help="directory or URI of an archive of the same stream"
    )
    report: str = option("", key=None, flag="report", help="write the result as a page into this file")
    repair: str = option(
        "", key=None, flag="repair", help="write SQL that mends the downstream into this file"
    )
    repair_now: bool = option(
        False, key=None, flag="repair-now", kind="bool", help="mend the downstream while its drainer runs"
    )

    upstream: str = option(
        "auto", key=None, flag="upstream", help="auto, tidb (PD and TiKV) or standalone (etcd alone)"
    )
    pump_config: str = option("", key=None, flag="pump-config", help="a pump's file on this host")
    drainer_config: str = option(
        "", key=None, flag="drainer-config", help="a drainer's file on this host: names the downstream"
    )
    tidb: str = option(
        "", key=None, flag="tidb", help="comma list of host:status_port of TiDB servers not registered"
    )

    rate: int = option(
        -1,
        key=None,
        flag="rate",
        kind="int",
        help="rows a second; 0: no limit; -1: verify beside a drainer 50000, else 0",
    )
    replace: bool = option(
        False, key=None, flag="replace", kind="bool", help="remove what is there first, and begin anew"
    )
    append: bool = option(
        False, key=None, flag="append", kind="bool", help="add to the rows that are there already"
    )
    dry_run: bool = option(
        False, key=None, flag="dry-run", kind="bool", help="say what would be done, and do nothing of it"
    )
    to: str = option("database", key=None, flag="to", help="database, or archive: an image in -dir")
    directory: str = option("", key=None, flag="dir", help="directory of the image that is written, new")
    image: str = option("", key=None, flag="image", help="directory of an image to begin or compare with")
    backup: str = option(
        "",
        key=None,
        flag="backup",
        help="up to when the backup is that the downstream has: a time, or its directory",
    )

    @property
    def tls(self) -> TlsConfig | None:
        """None: no TLS. Raises `ConfigError`."""
        from tidb_binlog.net.tls import TlsConfig  # half of what a start costs, and `-h` needs none

        return TlsConfig.from_paths(self.ssl_ca, self.ssl_cert, self.ssl_key)
