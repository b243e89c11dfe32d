"""Upstream options: the keys of the database that the stream comes from, for whoever reads its rows.

A Drainer does not need them: its rows come from pumps. Loading what is there already, and comparing both
sides, read the upstream's tables over SQL.

Holds  without `outcome-table` the upstream is a TiDB; with it, a MySQL or MariaDB whose programs publish with
       `pumpclient.OutcomeTable`
Never  takes a password of the downstream's environment for the upstream's
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Final

from drainer.config import password
from drainer.config.go_options import FormerOptions
from tidb_binlog.config.declaring import option
from tidb_binlog.errors import ConfigError
from tidb_binlog.net.tls import TlsConfig

SECTION: Final = "syncer.from"
_TABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\.[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True, slots=True)
class UpstreamOptions(FormerOptions):
    """Nothing of it is needed to replicate."""

    table_notes: ClassVar[Mapping[str, str]] = {
        SECTION: "SQL of the upstream, for `binlogctl load`, `binlogctl verify` and [verify], which read "
        "its tables: a TiDB, or the MySQL or MariaDB of programs that publish with pumpclient's "
        "OutcomeTable. Replication does not need it.",
    }

    from_host: str = option(
        "", key="syncer.from.host", help="upstream's SQL host, for load and verify; empty: it is not known"
    )
    from_port: int = option(
        0, key="syncer.from.port", kind="int", help="upstream's SQL port; 0: 4000, with outcome-table 3306"
    )
    from_user: str = option("root", key="syncer.from.user", help="upstream's SQL user")
    from_password: str = option("", key="syncer.from.password", secret=True, help="upstream's SQL password")
    from_encrypted_password: str = option(
        "",
        key="syncer.from.encrypted_password",
        secret=True,
        help="the same as `binlogctl encrypt` wrote it; wins over password",
    )
    from_password_file: str = option(
        "", key="syncer.from.password-file", help="file that holds the upstream's password and nothing else"
    )
    from_socket: str = option(
        "", key="syncer.from.socket", help="upstream's unix socket, instead of host and port"
    )
    from_outcome_table: str = option(
        "",
        key="syncer.from.outcome-table",
        help="database.table of the OutcomeTable with which programs publish; empty: upstream is a TiDB",
    )
    from_ssl_ca: str = option(
        "", key="syncer.from.security.ssl-ca", help="PEM file of the upstream's authority; empty: no TLS"
    )
    from_ssl_cert: str = option(
        "",
        key="syncer.from.security.ssl-cert",
        help="PEM file of our certificate, if the upstream asks for one",
    )
    from_ssl_key: str = option(
        "", key="syncer.from.security.ssl-key", help="PEM file of our private key for the upstream"
    )
    from_cert_allowed_cn: tuple[str, ...] = option(
        (),
        key="syncer.from.security.cert-allowed-cn",
        kind="list",
        help="common names that the upstream's certificate may have; empty: all",
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
