"""The outcome table refuses what cannot keep its promise: autocommit, engines without transactions."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pymysql
import pytest

from binlog_playground.cluster.mariadb import MariaDbServer
from pumpclient import InvalidDefinition, NoTransaction, OutcomeTable
from pumpclient.publish.outcome_table import commits_by_itself


def drivers() -> Iterator[tuple[str, Any, bool]]:
    """What drivers that are not installed here show of a connection, and whether it commits by itself."""

    def psycopg(autocommit: bool, status: int) -> Any:
        return SimpleNamespace(
            autocommit=autocommit, isolation_level=None, info=SimpleNamespace(transaction_status=status)
        )

    yield "psycopg, as it is by default", psycopg(False, 0), False
    yield "psycopg, autocommit", psycopg(True, 0), True
    yield "psycopg, autocommit and BEGIN", psycopg(True, 2), False
    yield "connector, as it is by default", SimpleNamespace(autocommit=False, in_transaction=False), False
    yield "connector, autocommit", SimpleNamespace(autocommit=True, in_transaction=False), True
    yield "connector, autocommit and BEGIN", SimpleNamespace(autocommit=True, in_transaction=True), False
    mysqlclient = {"autocommit": lambda on: None}
    yield "mysqlclient", SimpleNamespace(get_autocommit=lambda: False, **mysqlclient), False
    yield "mysqlclient, autocommit", SimpleNamespace(get_autocommit=lambda: True, **mysqlclient), True
    yield "Django, as it is by default", SimpleNamespace(get_autocommit=lambda: True), True
    yield "Django, in atomic()", SimpleNamespace(get_autocommit=lambda: False), False
    yield "sqlite3 of 3.12, autocommit", SimpleNamespace(autocommit=True, in_transaction=False), True
    yield "one that tells nothing", SimpleNamespace(), False


@pytest.mark.parametrize(
    ("connection", "alone"), [case[1:] for case in drivers()], ids=[c[0] for c in drivers()]
)
def test_drivers_tell_whether_they_commit_by_themselves(connection: Any, alone: bool) -> None:
    assert commits_by_itself(connection) is alone


def test_sqlite(tmp_path: Path) -> None:
    outcomes = OutcomeTable(lambda: sqlite3.connect(tmp_path / "app"))
    outcomes.create()
    with closing(sqlite3.connect(tmp_path / "app", isolation_level=None)) as connection:
        with pytest.raises(NoTransaction, match="autocommit"):
            outcomes.mark(connection, 1)
        connection.execute("BEGIN")
        outcomes.mark(connection, 2)
        connection.rollback()
    with closing(sqlite3.connect(tmp_path / "app")) as connection:
        outcomes.mark(connection, 3)  # begins by itself
        connection.commit()
    assert [outcomes.committed(start_ts) for start_ts in (1, 2, 3)] == [False, False, True]


def test_a_setting_that_loses_commits_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def connect(mode: str) -> sqlite3.Connection:
        connection = sqlite3.connect(tmp_path / "app")
        connection.execute(f"PRAGMA synchronous = {mode}")
        return connection

    for mode, said in (("NORMAL", False), ("OFF", True)):
        caplog.clear()
        OutcomeTable(partial(connect, mode)).create()
        assert ("may lose commits" in caplog.text) is said


class Server:
    def __init__(self, mariadb: MariaDbServer) -> None:
        self.account = {
            "host": mariadb.host,
            "port": mariadb.port,
            "user": mariadb.user,
            "password": mariadb.password,
            "ssl_disabled": True,
        }
        self.run("DROP DATABASE IF EXISTS outcome_app")
        self.run("CREATE DATABASE outcome_app")

    def connect(self, **options: Any) -> pymysql.Connection[Any]:
        return pymysql.connect(**self.account, database="outcome_app", **options)

    def run(self, *statements: str) -> Any:
        with pymysql.connect(**self.account, autocommit=True) as connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
            return cursor.fetchone()


@pytest.fixture
def server(mariadb: MariaDbServer) -> Iterator[Server]:
    made = Server(mariadb)
    yield made
    made.run("DROP DATABASE outcome_app")


@pytest.mark.integration
@pytest.mark.parametrize("table", ["binlog_outcome", "outcome_app.marks"])
def test_the_table_is_made_in_an_engine_with_transactions(server: Server, table: str) -> None:
    def connect() -> pymysql.Connection[Any]:
        return server.connect(init_command="SET default_storage_engine = MyISAM")

    outcomes = OutcomeTable(connect, table)
    outcomes.create()
    name = table.rpartition(".")[2]
    assert server.run(
        "SELECT ENGINE FROM information_schema.TABLES WHERE TABLE_SCHEMA = 'outcome_app'"
        f" AND TABLE_NAME = '{name}'"
    ) == ("InnoDB",)
    assert outcomes.name()


@pytest.mark.integration
@pytest.mark.parametrize("engine", ["MyISAM", "Aria"])
def test_a_table_that_is_there_in_another_engine_is_refused(server: Server, engine: str) -> None:
    OutcomeTable(server.connect).create()
    server.run(f"ALTER TABLE outcome_app.binlog_outcome ENGINE={engine}")
    for ask in (OutcomeTable(server.connect).create, OutcomeTable(server.connect).name):
        with pytest.raises(InvalidDefinition, match=f"engine {engine}, which has no transactions"):
            ask()


@pytest.mark.integration
def test_pymysql_in_autocommit_is_refused(server: Server) -> None:
    outcomes = OutcomeTable(server.connect)
    outcomes.create()
    with server.connect(autocommit=True) as connection:
        with pytest.raises(NoTransaction):
            outcomes.mark(connection, 1)
        connection.begin()
        outcomes.mark(connection, 2)
        connection.commit()
    assert [outcomes.committed(1), outcomes.committed(2)] == [False, True]


@pytest.mark.integration
def test_while_a_program_alters_its_tables_no_snapshot_is_taken_and_others_publish(server: Server) -> None:
    outcomes = OutcomeTable(server.connect)
    outcomes.create()
    lock = "LOCK TABLES binlog_outcome READ"
    with server.connect() as altering, server.connect() as other, server.connect() as snapshot:
        with pytest.raises(NoTransaction), server.connect(autocommit=True) as connection:
            outcomes.hold_snapshots(connection)
        outcomes.hold_snapshots(altering)
        outcomes.mark(other, 7)
        other.commit()
        cursor = snapshot.cursor()
        cursor.execute("SET SESSION lock_wait_timeout = 0")
        with pytest.raises(pymysql.err.OperationalError):
            cursor.execute(lock)
        altering.rollback()
        cursor.execute(lock)
        cursor.execute("UNLOCK TABLES")
    assert outcomes.committed(7)


@pytest.mark.integration
def test_a_server_that_may_lose_commits_is_said(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    (before,) = server.run("SELECT @@GLOBAL.innodb_flush_log_at_trx_commit")
    try:
        for value, said in ((1, False), (2, True), (0, True)):
            server.run(f"SET GLOBAL innodb_flush_log_at_trx_commit = {value}")
            caplog.clear()
            with caplog.at_level(logging.WARNING):
                OutcomeTable(server.connect).create()
            assert (f"innodb_flush_log_at_trx_commit={value}" in caplog.text) is said
    finally:
        server.run(f"SET GLOBAL innodb_flush_log_at_trx_commit = {before}")
