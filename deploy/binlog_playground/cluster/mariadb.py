"""MariaDB: a private server with its own data directory, socket, port and user; no file of the system.

The server runs with `--no-defaults` and MariaDB's own defaults, but for the character set that TiDB has by
default (utf8mb4, utf8mb4_bin), and for syncing: everything is written at once and left to the page cache. So
killing the process loses nothing; only a power cut could, and a scratch directory need not survive that.
"""

from __future__ import annotations

import os
import secrets
import shutil
import time
from pathlib import Path
from typing import Any

from binlog_playground.cluster.supervisor import POLL_S, Process, ProcessDied
from drainer.mysql.connection import Connection
from drainer.mysql.errors import SessionError
from tidb_binlog.errors import BinlogError, ConfigError, Unavailable
from tidb_binlog.net.port import LOOPBACK, free_ports

INSTALL_HINT = "apt-get install mariadb-server"
INSTALL_DEADLINE_S = 120.0
START_DEADLINE_S = 60.0
STOP_DEADLINE_S = 20.0
_FAST = (
    "--skip-log-bin",
    "--innodb-flush-log-at-trx-commit=2",
    "--loose-innodb-flush-method=nosync",
    "--loose-sync-frm=0",
    "--loose-debug-no-sync",  # its log of DDL and its system tables: most syncs of a DDL
)
_DURABLE = (
    "--log-bin=binlog",
    "--binlog-format=ROW",
    "--sync-binlog=1",
    "--server-id=1",
    "--innodb-flush-log-at-trx-commit=1",
)
# What a Drainer needs: rows, all of DDL, and to see how far its DDL is. Not: to write on a read-only server.
DRAINER_RIGHTS = (
    "SELECT, INSERT, UPDATE, DELETE, CREATE, CREATE TEMPORARY TABLES, ALTER, DROP, INDEX, REFERENCES,"
    " CREATE VIEW, SHOW VIEW, TRIGGER, PROCESS, SET USER"
)
SOCKET_PATH_MAX = 100  # of the 108 bytes of a Unix socket address


def find_program(*names: str) -> str:
    """Path of the first program found, in PATH or where servers live; `ConfigError` names the package."""
    path = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin", "/usr/local/bin"])
    for name in names:
        program = shutil.which(name, path=path)
        if program:
            return program
    raise ConfigError(f"{names[0]} is not installed", hint=INSTALL_HINT)


def programs() -> tuple[str, str]:
    """Paths of the server and of the program that makes a data directory; `ConfigError` if one is missing."""
    return find_program("mariadbd", "mysqld"), find_program("mariadb-install-db", "mysql_install_db")


class MariaDbServer:
    """One server process with a data directory made for it. Start, kill and restart as often as needed.

    `durable`: as in production, it syncs its log and its binary log at every commit.
    """

    def __init__(self, port: int = 0, *, durable: bool = False) -> None:
        self.port = port
        self.durable = durable
        self.host = LOOPBACK
        self.user = "playground"
        self.drainer_user = "drainer"
        self.password = secrets.token_hex(8)
        self.directory = Path()
        self.socket = ""
        self.process: Process | None = None

    def prepare(self, directory: Path, log: Path | None = None) -> None:
        """Make the data directory and the process, which is not started yet; about a second.

        Raises `ConfigError` when MariaDB is not installed, `BinlogError` when its set-up fails.
        """
        program, installer = programs()
        self.directory = directory
        self.port = self.port or free_ports(1)[0]
        self.socket = str(directory / "mariadb.sock")
        if len(self.socket) > SOCKET_PATH_MAX:
            raise ConfigError(
                f"{directory} is too long a path for a Unix socket", hint="set TMPDIR to a shorter directory"
            )
        directory.mkdir(parents=True, exist_ok=True)
        log = log or directory / "mariadb.log"
        self._install(installer, log)
        self._write_users()
        self.process = Process("mariadb", [program, *self._options()], log)

    def start(self, directory: Path, log: Path | None = None) -> None:
        """`prepare`, start, and wait until it answers. Raises `ProcessDied` when it does not come up."""
        self.prepare(directory, log)
        self.restart()

    def restart(self) -> None:
        """Start the process on its data directory (again) and wait until it answers."""
        self.launch()
        end = time.monotonic() + START_DEADLINE_S
        while not self.answers():
            self.check_running()
            if time.monotonic() > end:
                assert self.process is not None
                raise ProcessDied("MariaDB does not answer", hint=f"see {self.process.log}")
            time.sleep(POLL_S)

    def launch(self) -> None:
        """Start the process without waiting for it to answer."""
        assert self.process is not None
        self.process.start()

    def check_running(self) -> None:
        """`ProcessDied` if the server is not running."""
        if self.process is None or not self.process.is_running:
            assert self.process is not None
            raise self.process.death()

    def answers(self) -> bool:
        """It accepts a login now."""
        try:
            self.ping()
        except Unavailable:
            return False
        return True

    def ping(self) -> None:
        """Log in and out; `Unavailable` if that is not possible now."""
        self.open(2.0, read_timeout=2.0).close()  # what listens there may be silent, and no MariaDB

    def open(self, timeout_s: float = 10.0, **options: Any) -> Connection:
        """`connect`, or `Unavailable`."""
        try:
            return self.connect(timeout_s, **options)
        except SessionError as error:
            raise Unavailable(f"MariaDB at {self.host}:{self.port} does not answer: {error}") from None

    def connect(self, timeout_s: float = 10.0, **options: Any) -> Connection:
        """A connection as the private user (all privileges)."""
        return Connection(
            host=self.host,
            port=self.port,
            user=self.user,
            password=self.password,
            charset="utf8mb4",
            connect_timeout=max(1, int(timeout_s)),
            autocommit=True,
            ssl_disabled=True,  # loopback; reading the system's certificates costs 10 ms each time
            **options,
        )

    def kill(self) -> None:
        """kill -9."""
        if self.process is not None:
            self.process.kill()

    def stop(self) -> None:
        """Stop cleanly. The data directory stays; who made it removes it."""
        if self.process is not None:
            self.process.stop(STOP_DEADLINE_S)

    def _install(self, installer: str, log: Path) -> None:
        setup = Process(
            "mariadb-install-db",
            [
                installer,
                "--no-defaults",
                f"--datadir={self.directory / 'data'}",
                "--auth-root-authentication-method=normal",
                "--skip-test-db",
                f"--tmpdir={self.directory}",  # in a shared one, servers made at the same time collide
                *self._user_option(),
            ],
            log,
        )
        setup.start()
        if setup.wait(INSTALL_DEADLINE_S) != 0:
            raise BinlogError(f"mariadb-install-db failed: {setup.tail(2)}", hint=f"see {log}")

    def _write_users(self) -> None:
        init = self.directory / "init.sql"
        # REPLACE-like forms: the file is run at every start of the server.
        init.write_text(
            f"CREATE USER IF NOT EXISTS '{self.user}'@'%' IDENTIFIED BY '{self.password}';\n"
            f"GRANT ALL PRIVILEGES ON *.* TO '{self.user}'@'%' WITH GRANT OPTION;\n"
            f"CREATE USER IF NOT EXISTS '{self.drainer_user}'@'%' IDENTIFIED BY '{self.password}';\n"
            f"GRANT {DRAINER_RIGHTS} ON *.* TO '{self.drainer_user}'@'%';\n"
        )
        init.chmod(0o600)

    def _options(self) -> list[str]:
        return [
            "--no-defaults",
            f"--datadir={self.directory / 'data'}",
            f"--tmpdir={self._temporary()}",
            f"--socket={self.socket}",
            f"--pid-file={self.directory / 'mariadb.pid'}",
            f"--init-file={self.directory / 'init.sql'}",
            f"--port={self.port}",
            f"--bind-address={self.host}",
            "--skip-name-resolve",
            "--character-set-server=utf8mb4",
            "--collation-server=utf8mb4_bin",
            "--max-allowed-packet=64M",
            *(_DURABLE if self.durable else _FAST),
            "--innodb-buffer-pool-size=256M",
            "--innodb-log-file-size=96M",
            *self._user_option(),
        ]

    def _temporary(self) -> Path:
        """A starting server removes the temporary tables of every other one that has the same directory."""
        directory = self.directory / "tmp"
        directory.mkdir(exist_ok=True)
        return directory

    @staticmethod
    def _user_option() -> list[str]:
        # mariadbd refuses to run as root unless asked to by name.
        return ["--user=root"] if os.geteuid() == 0 else []
