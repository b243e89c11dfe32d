"""Node configuration: the options that both daemons have.

Out    where the node listens and whom it lets in, where the cluster is, where metrics and logs go
Tests  tests/pump/test_config.py
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Final

from tidb_binlog.config.declaring import check_limits, option
from tidb_binlog.door.http.admin_guard import AdminGuard
from tidb_binlog.errors import ConfigError
from tidb_binlog.late_dataclass import dataclass
from tidb_binlog.net.permission import Permission
from tidb_binlog.net.port import split_address
from tidb_binlog.net.tls import TlsConfig, check_names
from tidb_binlog.serving.notify_options import NotifyOptions
from tidb_binlog.upstream.choice import KINDS

DOOR: Final = "door"


def _names_option(permission: str, may: str) -> tuple[str, ...]:
    names: tuple[str, ...] = option(
        (),
        key=f"security.cert-{permission}-cn",
        kind="list",
        help=f"common names that may {may}; empty: all that may connect",
        more="A name must be in cert-allowed-cn as well, where that has any. The unix socket needs none.",
        live=True,
    )
    return names


@dataclass(frozen=True, slots=True)
class NodeConfig(NotifyOptions):
    """The options that a pump and a drainer share. The daemon says what `listen` and `advertised` are."""

    table_notes: ClassVar[Mapping[str, str]] = {
        "security": "TLS between the nodes of the cluster, with etcd, PD and TiKV, and with clients."
    }

    rpc_server: str = option(
        DOOR,
        key="rpc-server",
        flag="rpc-server",
        help="gRPC and HTTP share one port: nothing else serves it any more",
        deprecated=True,
        choices=(DOOR,),
    )
    status_addr: str = option(
        "", key="status-addr", flag="status-addr", help="host:port of HTTP alone; empty: none"
    )
    admin_from: tuple[str, ...] = option(
        (),
        key="admin-from",
        flag="admin-from",
        kind="list",
        help="networks that may change this node's state over HTTP, as 10.1.0.0/16",
        more="This host always may, and clients with mutual TLS. A `binlogctl` on another host needs "
        "it where there is no TLS.",
        live=True,
    )
    debug_routes: bool = option(
        False,
        key="debug-routes",
        flag="debug-routes",
        help="serve /debug/..., which shows what is stored",
        more="To all who may change the node's state. A drainer has none yet.",
    )
    ssl_ca: str = option(
        "",
        key="security.ssl-ca",
        kind="path",
        flag="ssl-ca",
        help="PEM file of the authority of all certificates; empty: no TLS",
        more="With it ssl-cert and ssl-key are needed; without it they are refused. Both sides must "
        "show a certificate of this authority. The downstream has TLS settings of its own.",
        starter=True,
    )
    ssl_cert: str = option(
        "",
        key="security.ssl-cert",
        kind="path",
        flag="ssl-cert",
        help="PEM file of this node's certificate",
        starter=True,
    )
    ssl_key: str = option(
        "",
        key="security.ssl-key",
        kind="path",
        flag="ssl-key",
        help="PEM file of this node's private key",
        starter=True,
    )
    cert_allowed_cn: tuple[str, ...] = option(
        (),
        key="security.cert-allowed-cn",
        flag="cert-allowed-cn",
        kind="list",
        help="common names of the clients that may connect; empty: all of the authority",
        more="They are looked up in the client's own certificate.",
        live=True,
    )

    cert_read_cn: tuple[str, ...] = _names_option("read", "read: binlogs, status, metrics")
    cert_write_cn: tuple[str, ...] = _names_option("write", "write binlogs, or tell a drainer of a pump")
    cert_admin_cn: tuple[str, ...] = _names_option("admin", "change the node (pause, close, reload, decide)")

    pd_urls: str = option(
        "http://127.0.0.1:2379",
        key="pd-urls",
        flag="pd-urls",
        help="PD's client URLs, comma separated; or those of an etcd, which then holds everything",
        starter=True,
    )
    upstream: str = option(
        "auto",
        key="upstream",
        flag="upstream",
        help="where timestamps and DDL come from: tidb (PD and TiKV), standalone (etcd) or auto",
        more="The outcomes of transactions, too. auto asks pd-urls whether PD answers there.",
        choices=KINDS,
    )
    start_wait_s: float = option(
        "10m",
        key="start-wait",
        flag="start-wait",
        kind="duration",
        help="how long a start waits for etcd and the upstream; 0: not at all",
        more="Then the start fails. Machines that come up together need no order this way; a wrong "
        "pd-urls shows in /readyz at once. A drainer with a relay log brings its downstream to a "
        "consistent state meanwhile.",
        least=0,
    )
    log_format: str = option(
        "tidb",
        key="log-format",
        flag="log-format",
        help="form of the log: tidb (the unified log format) or json",
        live=True,
        choices=("tidb", "json"),
    )
    metrics_addr: str = option(
        "",
        key="MetricsAddr",
        flag="metrics-addr",
        help="URL of a Prometheus Pushgateway that gets the metrics; empty: none",
        more="For a host that cannot be scraped.",
    )
    metrics_interval_s: float = option(
        15,
        key="MetricsInterval",
        flag="metrics-interval",
        kind="duration",
        help="pause between two pushes; 0: none",
        least=0,
    )

    @property
    def listen(self) -> str:
        raise NotImplementedError

    @property
    def advertised(self) -> str:
        raise NotImplementedError

    def check_listener(self) -> None:
        """Raises `ConfigError`."""
        self.check()
        if self.rpc_server != DOOR:
            raise ConfigError(
                f"rpc-server {self.rpc_server!r} is gone: gRPC and HTTP share one port",
                hint="remove it; status-addr gives HTTP a port of its own",
            )
        _ = self.cert_permissions
        split_address("addr", self.listen)
        split_address("advertise-addr", self.advertised)
        _ = self.status_address, self.tls, self.unix_path
        AdminGuard(self.admin_from)
        self.check_notify()

    def check_node(self) -> None:
        """Raises `ConfigError`."""
        check_limits(self, NodeConfig)

    @property
    def unix_path(self) -> str:
        """Where gRPC is served besides; "" for nowhere. Raises `ConfigError`."""
        return ""

    @property
    def tls(self) -> TlsConfig | None:
        """Raises `ConfigError`."""
        return TlsConfig.from_paths(
            self.ssl_ca, self.ssl_cert, self.ssl_key, self.cert_allowed_cn, section="security"
        )

    @property
    def cert_permissions(self) -> dict[Permission, frozenset[str]]:
        """The names that have each; without any, all that may connect have it. Raises `ConfigError`."""
        connecting, permissions = check_names(self.cert_allowed_cn), dict[Permission, frozenset[str]]()
        for permission in Permission:
            key = f"security.cert-{permission}-cn"
            names = check_names(getattr(self, f"cert_{permission}_cn"), key)
            if names and not self.ssl_ca:
                raise ConfigError(f"{key} has no effect: nobody shows a certificate", hint="set ssl-ca")
            if connecting and (strangers := sorted(names - connecting)):
                raise ConfigError(
                    f"{key} names {strangers[0]!r}, which may not connect",
                    hint="add it to cert-allowed-cn, too",
                )
            permissions[permission] = names
        return permissions

    @property
    def status_address(self) -> tuple[str, int] | None:
        """Where HTTP alone is served; None if nowhere."""
        return split_address("status-addr", self.status_addr) if self.status_addr else None
