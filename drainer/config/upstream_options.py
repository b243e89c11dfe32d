"""Upstream options: the keys of the database that the stream comes from, for whoever reads its rows.

A Drainer does not need them: its rows come from pumps. Loading what is there already, and comparing both
sides, read the upstream's tables over SQL.

Out    `upstream_target_of`: what to connect to. Without `outcome-table` the upstream is a TiDB; with it, a
       MySQL or MariaDB whose programs publish with `pumpclient.OutcomeTable`
Never  takes a password of the downstream's environment for the upstream's
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import Final

from common.config.declaring import option
from common.errors import ConfigError
from common.net.tls import ClientTls, TlsConfig
from drainer.config import password
from drainer.config.go_options import FormerOptions
from drainer.sink.mysql.connection import Target

SECTION: Final = "syncer.from"
TIDB_PORT: Final = 4000
MYSQL_PORT: Final = 3306
_TABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\.[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True, slots=True)
class UpstreamOptions(FormerOptions):
    """Nothing of it is needed to replicate."""

    from_host: str = option(
        "", key="syncer.from.host", help="upstream's SQL host, for load and verify; empty: it is not known"
    )
    from_port: int = option(
        0, key="syncer.from.port", kind="int", help="its port (default: 4000, with outcome-table 3306)"
    )
    from_user: str = option("root", key="syncer.from.user", help="its user")
    from_password: str = option("", key="syncer.from.password", secret=True, help="and the password")
    from_encrypted_password: str = option(
        "",
        key="syncer.from.encrypted_password",
        secret=True,
        help="as `binlogctl encrypt` wrote it; wins",
    )
    from_password_file: str = option(
        "", key="syncer.from.password-file", help="file that holds this password and nothing else"
    )
    from_socket: str = option(
        "", key="syncer.from.socket", help="upstream's unix socket instead of host and port"
    )
    from_outcome_table: str = option(
        "",
        key="syncer.from.outcome-table",
        help="database.table of the OutcomeTable with which programs publish; empty: upstream is a TiDB",
    )
    from_ssl_ca: str = option(
        "", key="syncer.from.security.ssl-ca", help="upstream's authority; empty: no TLS"
    )
    from_ssl_cert: str = option(
        "", key="syncer.from.security.ssl-cert", help="our certificate for the upstream"
    )
    from_ssl_key: str = option("", key="syncer.from.security.ssl-key", help="our private key for it")
    from_cert_allowed_cn: tuple[str, ...] = option(
        (), key="syncer.from.security.cert-allowed-cn", kind="list", help="names of its certificate"
    )

    @property
    def has_upstream(self) -> bool:
        """Whether the upstream's SQL address is given."""
        return bool(self.from_host or self.from_socket)

    def check_upstream(self) -> None:
        """Raises `ConfigError`."""
        if self.from_outcome_table and not _TABLE.fullmatch(self.from_outcome_table):
            raise ConfigError(
                f"{SECTION}.outcome-table is {self.from_outcome_table!r}",
                hint='name it with its database: outcome-table = "shop.binlog_outcome"',
            )
        _ = self.upstream_password(), self.upstream_tls

    def upstream_password(self) -> str:
        """Raises `ConfigError`."""
        key = {name: value for name, value in os.environ.items() if name == password.KEY_VARIABLE}
        return password.find(
            SECTION, self.from_encrypted_password, self.from_password_file, self.from_password, key
        )

    @property
    def upstream_tls(self) -> TlsConfig | None:
        """None: in clear. Raises `ConfigError`."""
        return TlsConfig.from_paths(
            self.from_ssl_ca,
            self.from_ssl_cert,
            self.from_ssl_key,
            self.from_cert_allowed_cn,
            section=f"{SECTION}.security",
        )


def upstream_target_of(settings: UpstreamOptions) -> Target:
    """`ConfigError` where the configuration has no address of the upstream's SQL."""
    if not settings.has_upstream:
        raise ConfigError(
            "the configuration does not say where the upstream's SQL is",
            hint=f"set host, user and password-file in [{SECTION}] of the drainer's file",
        )
    paths = settings.upstream_tls
    port = settings.from_port or (MYSQL_PORT if settings.from_outcome_table else TIDB_PORT)
    return Target(
        settings.from_host or "localhost",
        port,
        settings.from_user,
        settings.upstream_password(),
        settings.from_socket,
        read_timeout_s=None,  # a part of a table takes as long as it takes; who vanishes is noticed
        tls=ClientTls(paths, use="upstream") if paths else None,
        side="upstream",
        section=SECTION,
    )
