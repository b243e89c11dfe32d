"""The servers that tests of what goes downstream run against: MariaDB always, others where they are given.

    BINLOG_MYSQLD   program of a MySQL 5.7 or newer, started here with a data directory of its own
    BINLOG_TIDB     host:port of a TiDB that may be written to, user root without a password

A server that is not given is no parameter of the tests, so nothing is skipped.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from binlog_playground.cluster.mariadb import MariaDbServer
from binlog_playground.cluster.supervisor import Process
from drainer.mysql.connection import Target, connect
from tests.waiting import PATIENCE_S, until_here
from tidb_binlog.errors import Unavailable
from tidb_binlog.net.port import LOOPBACK, free_ports

MYSQLD, TIDB = os.environ.get("BINLOG_MYSQLD", ""), os.environ.get("BINLOG_TIDB", "")
GIVEN = ["mariadb", *(["mysql"] if MYSQLD else []), *(["tidb"] if TIDB else [])]
_DRAINER = "tests"


@pytest.fixture(scope="session", params=GIVEN)
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """Each server in turn, shared by the session: clean up the databases you make."""
    yield from _given(request, tmp_path_factory)


@pytest.fixture(scope="session", params=[name for name in GIVEN if name != "tidb"])
def server_not_tidb(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Target]:
    """The same, of what a TiDB does in its own way: it alters definitions alone, and converts as upstream."""
    yield from _given(request, tmp_path_factory)


def _given(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    if request.param == "mariadb":
        mariadb: MariaDbServer = request.getfixturevalue("_mariadb_server")
        yield Target(mariadb.host, mariadb.port, mariadb.user, mariadb.password, mariadb.socket)
    elif request.param == "tidb":
        yield _tidb()
    else:
        with _mysql(tmp_path_factory.mktemp("mysql")) as target:
            yield target


def _tidb() -> Target:
    host, _, port = TIDB.rpartition(":")
    return Target(host, int(port), "root", "")


@contextmanager
def of_a_campaign(directory: Path) -> Iterator[Target]:
    """The server of a campaign, by its port: the TiDB or MySQL that is given, else a MariaDB of its own."""
    if TIDB:
        yield _tidb()
        return
    if MYSQLD:
        directory.mkdir()
        with _mysql(directory) as target:
            yield target
        return
    server = MariaDbServer()
    server.start(directory)
    try:
        yield Target(server.host, server.port, server.user, server.password)
    finally:
        server.stop()


@contextmanager
def _mysql(directory: Path) -> Iterator[Target]:
    data, log = directory / "data", directory / "mysqld.log"
    places = ["--no-defaults", f"--datadir={data}", f"--tmpdir={directory}", "--user=root"]
    places.append("--secure-file-priv=NULL")  # a package names a directory that only its server has
    made = Process("mysqld --initialize", [MYSQLD, *places, "--initialize-insecure"], log)
    made.start()
    assert made.wait(PATIENCE_S) == 0, made.tail(5)
    init = directory / "init.sql"
    init.write_text(
        f"CREATE USER '{_DRAINER}'@'%' IDENTIFIED BY '';\n"
        f"GRANT ALL PRIVILEGES ON *.* TO '{_DRAINER}'@'%' WITH GRANT OPTION;\n"
    )
    port = free_ports(1)[0]
    process = Process("mysqld", [MYSQLD, *places, f"--init-file={init}", *_options(directory, port)], log)
    process.start()
    target = Target(LOOPBACK, port, _DRAINER, "")
    try:
        _wait(target, process)
        yield target
    finally:
        process.stop(30.0)


def _options(directory: Path, port: int) -> list[str]:
    return [
        *(f"--port={port}", f"--bind-address={LOOPBACK}", f"--socket={directory / 's.sock'}"),
        *("--character-set-server=utf8mb4", "--collation-server=utf8mb4_bin"),
        *(
            "--loose-mysqlx=OFF",
            "--loose-skip-log-bin",
            "--skip-name-resolve",
            "--innodb-flush-log-at-trx-commit=2",
        ),
        *(
            "--loose-default-authentication-plugin=mysql_native_password",
            "--loose-innodb-file-format=Barracuda",
        ),
        *("--loose-innodb-large-prefix=ON", f"--pid-file={directory / 'pid'}"),
    ]


def _wait(target: Target, process: Process) -> None:
    def answers() -> bool:
        try:
            connect(target).close()
        except Unavailable:
            assert process.is_running, process.tail(5)
            return False
        return True

    until_here(answers, "MySQL answers")
