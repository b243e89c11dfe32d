"""Database options: the keys of a downstream that is a database, and of the server of its checkpoint row.

The keys of [syncer.to.security] are those of every sink that a network leads to.

Tests  tests/drainer/config/test_options.py
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from common.config.declaring import option
from common.errors import ConfigError
from common.net.tls import TlsConfig
from drainer.config import password
from drainer.config.verify_options import VerifyOptions
from drainer.sink.mysql.column_match import FULL, PARTIAL
from drainer.sink.mysql.session_mode import session_mode, session_variables


@dataclass(frozen=True, slots=True)
class DatabaseOptions(VerifyOptions):
    """`downstream` and `checkpoint_server` have the defaults of the environment."""

    sql_mode: str = option(
        "",
        key="syncer.sql-mode",
        help="sql_mode of the session that writes rows; empty: strict, but for dates that upstream took",
    )
    to_host: str = option("", key="syncer.to.host", help="downstream host (default: MYSQL_HOST or localhost)")
    to_port: int = option(
        0, key="syncer.to.port", kind="int", help="downstream port (default: MYSQL_PORT or 3306)"
    )
    to_user: str = option("", key="syncer.to.user", help="downstream user (default: MYSQL_USER or root)")
    to_password: str = option(
        "", key="syncer.to.password", secret=True, help="downstream password (default: MYSQL_PSWD)"
    )
    to_encrypted_password: str = option(
        "", key="syncer.to.encrypted_password", secret=True, help="as a Go drainer's file has it; wins"
    )
    to_password_file: str = option(
        "", key="syncer.to.password-file", help="file that holds the downstream password and nothing else"
    )
    to_socket: str = option(
        "", key="syncer.to.socket", help="downstream unix socket instead of host and port"
    )
    to_read_timeout_s: float = option(
        "1m", key="syncer.to.read-timeout", kind="duration", help="limit of a row statement; DDL has none"
    )
    to_sync_mode: int = option(
        0,
        key="syncer.to.sync-mode",
        kind="int",
        help="tables that lack a column downstream: 1 (or 0) refused, 2 the column is left out",
    )
    to_params: Mapping[str, Any] = option(
        None, key="syncer.to.params", kind="table", help="session variables of the downstream"
    )
    to_ssl_ca: str = option("", key="syncer.to.security.ssl-ca", help="downstream's authority; empty: no TLS")
    to_ssl_cert: str = option(
        "", key="syncer.to.security.ssl-cert", help="our certificate for the downstream"
    )
    to_ssl_key: str = option("", key="syncer.to.security.ssl-key", help="our private key for the downstream")
    to_cert_allowed_cn: tuple[str, ...] = option(
        (),
        key="syncer.to.security.cert-allowed-cn",
        kind="list",
        help="common names that the downstream's certificate may have; empty: all",
    )
    checkpoint_schema: str = option(
        "tidb_binlog", key="syncer.to.checkpoint.schema", help="database of the checkpoint tables"
    )
    checkpoint_table: str = option(
        "checkpoint", key="syncer.to.checkpoint.table", help="table of the row, on a server of its own"
    )
    checkpoint_host: str = option("127.0.0.1", key="syncer.to.checkpoint.host", help="server of the row")
    checkpoint_port: int = option(3306, key="syncer.to.checkpoint.port", kind="int", help="and its port")
    checkpoint_user: str = option("root", key="syncer.to.checkpoint.user", help="and its user")
    checkpoint_password: str = option(
        "", key="syncer.to.checkpoint.password", secret=True, help="and the password"
    )
    checkpoint_encrypted_password: str = option(
        "",
        key="syncer.to.checkpoint.encrypted_password",
        secret=True,
        help="as a Go drainer's file has it; wins",
    )
    checkpoint_password_file: str = option(
        "", key="syncer.to.checkpoint.password-file", help="file that holds this password and nothing else"
    )
    checkpoint_ssl_ca: str = option(
        "", key="syncer.to.checkpoint.security.ssl-ca", help="and its authority; empty: no TLS"
    )
    checkpoint_ssl_cert: str = option(
        "", key="syncer.to.checkpoint.security.ssl-cert", help="our certificate for it"
    )
    checkpoint_ssl_key: str = option(
        "", key="syncer.to.checkpoint.security.ssl-key", help="our private key for it"
    )
    checkpoint_cert_allowed_cn: tuple[str, ...] = option(
        (), key="syncer.to.checkpoint.security.cert-allowed-cn", kind="list", help="names of its certificate"
    )

    def check_database(self) -> None:
        """Raises `ConfigError`."""
        if self.to_sync_mode not in (0, FULL, PARTIAL):
            raise ConfigError(f"syncer.to.sync-mode is {self.to_sync_mode}", hint="0 or 1 full, 2 partial")
        _ = session_mode(self.sql_mode), session_variables(self.to_params)
        _ = self.downstream, self.checkpoint_server  # the passwords can be read
        _ = self.downstream_tls, self.checkpoint_tls

    @property
    def downstream(self) -> tuple[str, int, str, str]:
        """host, port, user, password with the defaults of the environment."""
        environ = os.environ
        port = environ.get("MYSQL_PORT", "3306")
        if not port.isascii() or not port.isdigit():
            raise ConfigError("MYSQL_PORT is not a number", hint="unset it, or set [syncer.to] port")
        return (
            self.to_host or environ.get("MYSQL_HOST", "localhost"),
            self.to_port or int(port),
            self.to_user or environ.get("MYSQL_USER", "root"),
            password.find(
                "syncer.to", self.to_encrypted_password, self.to_password_file, self.to_password, environ
            ),
        )

    @property
    def downstream_tls(self) -> TlsConfig | None:
        """None: in clear. Raises `ConfigError`."""
        return TlsConfig.from_paths(
            self.to_ssl_ca,
            self.to_ssl_cert,
            self.to_ssl_key,
            self.to_cert_allowed_cn,
            section="syncer.to.security",
        )

    @property
    def checkpoint_tls(self) -> TlsConfig | None:
        """To the server of the checkpoint row. None: in clear. Raises `ConfigError`."""
        return TlsConfig.from_paths(
            self.checkpoint_ssl_ca,
            self.checkpoint_ssl_cert,
            self.checkpoint_ssl_key,
            self.checkpoint_cert_allowed_cn,
            section="syncer.to.checkpoint.security",
        )

    @property
    def checkpoint_server(self) -> tuple[str, int, str, str]:
        """host, port, user, password of the server of the checkpoint row, where it is another one."""
        found = password.find(
            "syncer.to.checkpoint",
            self.checkpoint_encrypted_password,
            self.checkpoint_password_file,
            self.checkpoint_password,
            {key: value for key, value in os.environ.items() if key == password.KEY_VARIABLE},
        )
        return self.checkpoint_host, self.checkpoint_port, self.checkpoint_user, found
