"""Database options: the keys of both databases, and those of Go drainers that mean nothing any more.

    FormerOptions     what a Go drainer's file may hold: accepted as it is, and remarked on once at the start.
                      Two of them still mean something: dispatch that is switched off asks for whole
                      transactions, in order
    UpstreamOptions   the database that the stream comes from, for whoever reads its rows: loading what is
                      there already, and comparing both sides. A Drainer's rows come from pumps
    VerifyOptions     a Drainer that compares its downstream with the upstream every so often
    DatabaseOptions   a downstream that is a database, and the server of its checkpoint row. The keys of
                      [syncer.to.security] are those of every sink that a network leads to

Holds  without `outcome-table` the upstream is a TiDB; with it, a MySQL or MariaDB whose programs publish with
       `pumpclient.OutcomeTable`
Never  takes a password of the downstream's environment for the upstream's
Tests  tests/drainer/config/test_database_options.py, tests/drainer/config/test_options.py
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any, ClassVar, Final

from drainer.config import password
from drainer.mysql.rows.column_match import FULL, PARTIAL
from drainer.mysql.session_mode import session_mode, session_variables
from tidb_binlog.config.declaring import check_limits, option
from tidb_binlog.errors import ConfigError
from tidb_binlog.late_dataclass import dataclass
from tidb_binlog.net.port import split_address
from tidb_binlog.net.tls import TlsConfig
from tidb_binlog.serving.node_config import NodeConfig


@dataclass(frozen=True, slots=True)
class FormerOptions(NodeConfig):
    """Options that the help does not list."""

    cache_binlog_count: int = option(
        8,
        key=None,
        flag="cache-binlog-count",
        deprecated=True,
        help="queues are bounded in bytes: syncer.pull-queue",
    )
    log_rotate: str = option(
        "", key=None, flag="log-rotate", deprecated=True, help="log files are rotated at 300 MiB"
    )
    detect_interval: int = option(
        5,
        key="detect-interval",
        flag="detect-interval",
        deprecated=True,
        help="pumps are watched, not polled",
    )
    enable_dispatch: bool | None = option(
        None,
        key="syncer.enable-dispatch",
        flag="enable-dispatch",
        kind="bool",
        deprecated=True,
        help='false is dispatch = "transaction"',
    )
    disable_dispatch: bool | None = option(
        None,
        key="syncer.disable-dispatch",
        flag="disable-dispatch",
        kind="bool",
        deprecated=True,
        help='true is dispatch = "transaction"',
    )
    enable_detect: bool | None = option(
        None,
        key="syncer.enable-detect",
        flag="enable-detect",
        kind="bool",
        deprecated=True,
        help="rows with a common key always go through one lane",
    )
    disable_detect: bool | None = option(
        None,
        key="syncer.disable-detect",
        flag="disable-detect",
        kind="bool",
        deprecated=True,
        help="rows with a common key always go through one lane",
    )
    to_merge: bool = option(
        False, key="syncer.to.merge", deprecated=True, help="changes of one row are always folded into one"
    )
    oracle_service_name: str = option(
        "", key="syncer.to.oracle-service-name", deprecated=True, help="there is no downstream Oracle here"
    )
    oracle_connect_string: str = option(
        "", key="syncer.to.oracle-connect-string", deprecated=True, help="there is no downstream Oracle here"
    )
    checkpoint_oracle_service_name: str = option(
        "",
        key="syncer.to.checkpoint.oracle-service-name",
        deprecated=True,
        help="there is no downstream Oracle here",
    )
    checkpoint_oracle_connect_string: str = option(
        "",
        key="syncer.to.checkpoint.oracle-connect-string",
        deprecated=True,
        help="there is no downstream Oracle here",
    )

    @property
    def dispatch_is_off(self) -> bool:
        """Whether dispatch is switched off. Of the switches, the first that is set counts."""
        if self.disable_dispatch is not None:
            return self.disable_dispatch
        return self.enable_dispatch is False


SECTION: Final = "syncer.from"
_TABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\.[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True, slots=True)
class UpstreamOptions(FormerOptions):
    """Nothing of it is needed to replicate."""

    table_notes: ClassVar[Mapping[str, str]] = {
        SECTION: "SQL of the upstream, for `binlogctl load`, `binlogctl verify` and [verify], which read "
        "its tables: a TiDB, or the MySQL or MariaDB of programs that publish with pumpclient's "
        "OutcomeTable. Replication does not need it."
    }

    from_host: str = option(
        "", key="syncer.from.host", help="upstream's SQL host, for load and verify; empty: it is not known"
    )
    from_port: int = option(
        0, key="syncer.from.port", help="upstream's SQL port; 0: 4000, with outcome-table 3306"
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
        "",
        key="syncer.from.password-file",
        kind="path",
        help="file that holds the upstream's password and nothing else",
    )
    from_socket: str = option(
        "", key="syncer.from.socket", kind="path", help="upstream's unix socket, instead of host and port"
    )
    from_outcome_table: str = option(
        "",
        key="syncer.from.outcome-table",
        help="database.table of the OutcomeTable with which programs publish; empty: upstream is a TiDB",
    )
    from_ssl_ca: str = option(
        "",
        key="syncer.from.security.ssl-ca",
        kind="path",
        help="PEM file of the upstream's authority; empty: no TLS",
    )
    from_ssl_cert: str = option(
        "",
        key="syncer.from.security.ssl-cert",
        kind="path",
        help="PEM file of our certificate, if the upstream asks for one",
    )
    from_ssl_key: str = option(
        "",
        key="syncer.from.security.ssl-key",
        kind="path",
        help="PEM file of our private key for the upstream",
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


@dataclass(frozen=True, slots=True)
class VerifyOptions(UpstreamOptions):
    """The budget is of what both servers read for it."""

    verify_every_s: float = option(
        "0s",
        key="verify.every",
        kind="duration",
        help="pause between two comparisons of all tables with the upstream; 0s: never",
        more="A process of its own compares, with [syncer.from]. The result is in /status (Verify), in "
        "the metrics and in `binlogctl status`. See [verify](verify.md).",
        least=0,
    )
    verify_rows: int = option(
        50_000,
        key="verify.rows-per-second",
        help="rows a second that are compared at most; 0: unlimited",
        least=0,
    )

    def check_verify(self, *, to_database: bool) -> None:
        """Raises `ConfigError`."""
        check_limits(self, VerifyOptions)
        if not self.verify_every_s:
            return
        if not to_database:
            raise ConfigError("verify.every is for db-type mysql and tidb", hint="take [verify] out")
        if not self.has_upstream:
            raise ConfigError(
                "verify.every needs the upstream's SQL address", hint=f"set host and user in [{SECTION}]"
            )


@dataclass(frozen=True, slots=True)
class DatabaseOptions(VerifyOptions):
    """`downstream` and `checkpoint_server` have the defaults of the environment."""

    table_notes: ClassVar[Mapping[str, str]] = {
        "syncer.to": "The downstream that db-type names. A key that begins with archive, Kafka, HTTP or "
        "lake is for that kind alone; the keys of the connection are for databases, and user and passwords "
        "are the SASL login with Kafka.",
        "syncer.to.security": "TLS to the downstream: a database, Kafka or an HTTP server.",
        "syncer.to.checkpoint": "Where the checkpoint row is. Without a type it is downstream, in the "
        "same transactions as the rows.",
    }

    sql_mode: str = option(
        "",
        key="syncer.sql-mode",
        help="sql_mode of the session that writes rows; empty: strict, with invalid and zero dates",
        more="The default refuses a value that does not fit and never clips it, and takes the invalid "
        "and zero dates that upstream took. A value takes the place of that: without a STRICT "
        "mode values are clipped. NO_AUTO_VALUE_ON_ZERO and ALLOW_INVALID_DATES are always added.",
    )
    to_host: str | tuple[str, ...] = option(
        "",
        key="syncer.to.host",
        kind="texts",
        help="host of the downstream; empty: MYSQL_HOST, else localhost",
        more="A list names servers that take turns, each with a port of its own where it has one: "
        'host = ["a:3306", "b:3307"]. docs/failover.md says when the next one is used.',
        starter=True,
    )
    to_port: int = option(
        0, key="syncer.to.port", help="port of the downstream; 0: MYSQL_PORT, else 3306", starter=True
    )
    to_user: str = option(
        "",
        key="syncer.to.user",
        help="user of the downstream; empty: MYSQL_USER, else root",
        more="With Kafka: of the SASL login.",
        starter=True,
    )
    to_password: str = option(
        "",
        key="syncer.to.password",
        secret=True,
        help="password of the downstream; empty: MYSQL_PSWD, else none",
    )
    to_encrypted_password: str = option(
        "",
        key="syncer.to.encrypted_password",
        secret=True,
        help="password of the downstream as `binlogctl encrypt` wrote it; wins over password",
        more="The key is BINLOG_SECRET_KEY of the environment. Go drainers' files have it in the same form.",
    )
    to_password_file: str = option(
        "",
        key="syncer.to.password-file",
        kind="path",
        help="file that holds the password of the downstream and nothing else",
        more="Only the drainer's user should be able to read it.",
        starter=True,
    )
    to_socket: str = option(
        "",
        key="syncer.to.socket",
        kind="path",
        help="unix socket of the downstream, instead of host and port",
    )
    to_read_timeout_s: float = option(
        "1m",
        key="syncer.to.read-timeout",
        kind="duration",
        help="limit of a row statement; DDL has none",
        more="It is doubled each time a statement takes longer.",
        above=0,
    )
    to_sync_mode: int = option(
        0,
        key="syncer.to.sync-mode",
        help="tables that lack a column downstream: 0 or 1 rows are refused, 2 the column is left out",
        more="2 also gives columns that only the downstream has, NOT NULL and without a default, the "
        "zero of their type.",
        choices=(0, FULL, PARTIAL),
    )
    to_params: Mapping[str, Any] = option(
        None,
        key="syncer.to.params",
        kind="table",
        help="session variables of the downstream",
        more="time_zone is passed over: TIMESTAMPs are sent in UTC.",
        example="[syncer.to.params]\ninnodb_lock_wait_timeout = 10",
    )
    to_ssl_ca: str = option(
        "",
        key="syncer.to.security.ssl-ca",
        kind="path",
        help="PEM file of the downstream's authority; empty: no TLS",
        more="The files are read again at every connect.",
    )
    to_ssl_cert: str = option(
        "",
        key="syncer.to.security.ssl-cert",
        kind="path",
        help="PEM file of our certificate, if the downstream asks for one",
    )
    to_ssl_key: str = option(
        "",
        key="syncer.to.security.ssl-key",
        kind="path",
        help="PEM file of our private key for the downstream",
    )
    to_cert_allowed_cn: tuple[str, ...] = option(
        (),
        key="syncer.to.security.cert-allowed-cn",
        kind="list",
        help="common names that the downstream's certificate may have; empty: all",
        more="It has to be the host's in any case.",
    )
    checkpoint_schema: str = option(
        "tidb_binlog",
        key="syncer.to.checkpoint.schema",
        help="database of everything that a drainer stores downstream",
        more="Rows are distinguished by cluster id, so two drainers of one upstream need two.",
    )
    checkpoint_table: str = option(
        "checkpoint",
        key="syncer.to.checkpoint.table",
        help="table of the checkpoint row, where checkpoint.type is set",
        more="What a lane needs in its transactions stays downstream.",
    )
    checkpoint_host: str = option(
        "127.0.0.1",
        key="syncer.to.checkpoint.host",
        help="host of the checkpoint row, where checkpoint.type is set",
    )
    checkpoint_port: int = option(
        3306, key="syncer.to.checkpoint.port", help="port of the server of the checkpoint row"
    )
    checkpoint_user: str = option(
        "root", key="syncer.to.checkpoint.user", help="user of the server of the checkpoint row"
    )
    checkpoint_password: str = option(
        "",
        key="syncer.to.checkpoint.password",
        secret=True,
        help="password of the server of the checkpoint row",
    )
    checkpoint_encrypted_password: str = option(
        "",
        key="syncer.to.checkpoint.encrypted_password",
        secret=True,
        help="the same as `binlogctl encrypt` wrote it; wins over password",
    )
    checkpoint_password_file: str = option(
        "",
        key="syncer.to.checkpoint.password-file",
        kind="path",
        help="file that holds the password of the checkpoint row's server and nothing else",
    )
    checkpoint_ssl_ca: str = option(
        "",
        key="syncer.to.checkpoint.security.ssl-ca",
        kind="path",
        help="PEM file of the authority of the checkpoint row's server; empty: no TLS",
    )
    checkpoint_ssl_cert: str = option(
        "",
        key="syncer.to.checkpoint.security.ssl-cert",
        kind="path",
        help="PEM file of our certificate, if that server asks for one",
    )
    checkpoint_ssl_key: str = option(
        "",
        key="syncer.to.checkpoint.security.ssl-key",
        kind="path",
        help="PEM file of our private key for that server",
    )
    checkpoint_cert_allowed_cn: tuple[str, ...] = option(
        (),
        key="syncer.to.checkpoint.security.cert-allowed-cn",
        kind="list",
        help="common names that the certificate of that server may have; empty: all",
    )

    def check_database(self) -> None:
        """Raises `ConfigError`."""
        check_limits(self, DatabaseOptions)
        _ = session_mode(self.sql_mode), session_variables(self.to_params)
        _ = self.downstream, self.checkpoint_server  # the passwords can be read
        _ = self.downstream_tls, self.checkpoint_tls

    @property
    def downstream_places(self) -> tuple[tuple[str, int], ...]:
        """host and port of each server, in the operator's order. Raises `ConfigError`."""
        port = self._downstream_port
        if isinstance(self.to_host, str):  # as it is: Go takes whatever stands there
            return ((self.to_host or os.environ.get("MYSQL_HOST", "localhost"), port),)
        servers = tuple(_place(text, port) for text in self.to_host)
        if not servers:
            raise ConfigError("syncer.to.host is an empty list", hint='host = ["a", "b:3307"]')
        if len(set(servers)) < len(servers):
            raise ConfigError(
                f"syncer.to.host names a server twice: {list(self.to_host)}", hint="once will do"
            )
        return servers

    @property
    def has_several_downstreams(self) -> bool:
        """Whether servers take turns."""
        return not isinstance(self.to_host, str) and not self.to_socket and len(self.to_host) > 1

    @property
    def _downstream_port(self) -> int:
        port = os.environ.get("MYSQL_PORT", "3306")
        if not port.isascii() or not port.isdigit():
            raise ConfigError("MYSQL_PORT is not a number", hint="unset it, or set [syncer.to] port")
        return self.to_port or int(port)

    @property
    def downstream(self) -> tuple[str, int, str, str]:
        """host, port, user, password with the defaults of the environment; of several servers the first."""
        environ = os.environ
        return (
            *self.downstream_places[0],
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
        secret = password.find(
            "syncer.to.checkpoint",
            self.checkpoint_encrypted_password,
            self.checkpoint_password_file,
            self.checkpoint_password,
            {key: value for key, value in os.environ.items() if key == password.KEY_VARIABLE},
        )
        return self.checkpoint_host, self.checkpoint_port, self.checkpoint_user, secret


def _place(text: str, port: int) -> tuple[str, int]:
    """`host`, `host:port`, `[address]:port` or an IPv6 address alone. Raises `ConfigError`."""
    if ":" not in text or (text.count(":") > 1 and not text.startswith("[")):
        host, number = text, port
    else:
        try:
            host, number = split_address(
                "syncer.to.host", text if not text.endswith("]") else f"{text}:{port}"
            )
        except ConfigError as error:
            raise ConfigError(f"syncer.to.host: {error.message}", hint='host = ["a", "b:3307"]') from None
    if not host.strip() or not 0 < number < 65536:
        raise ConfigError(f"syncer.to.host: {text!r} names no server", hint='host = ["a", "b:3307"]')
    return host.strip("[]"), number
