"""Pinned settings: whatever the server's administrator has set, our sessions mean the same."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from binlog_playground.cluster.mariadb import MariaDbServer
from drainer.mysql.connection import Target, connect
from drainer.mysql.errors import StatementRefused
from drainer.mysql.pinned_settings import FIRST, PINNED, pin
from drainer.mysql.rows.dialect import Dialect
from tidb_binlog.errors import DownstreamError

OTHERS = {
    "completion_type": "RELEASE",
    "sql_select_limit": "3",
    "max_join_size": "4",
    "sql_big_selects": "OFF",
    "sql_safe_updates": "ON",
    "sql_auto_is_null": "ON",
    "max_statement_time": "0.2",
    "explicit_defaults_for_timestamp": "OFF",
    "default_storage_engine": "MEMORY",
    "default_tmp_storage_engine": "MEMORY",
    "innodb_strict_mode": "OFF",
    "sql_if_exists": "ON",
    "alter_algorithm": "INSTANT",
    "sql_quote_show_create": "OFF",
    "unique_checks": "OFF",
    "check_constraint_checks": "OFF",
    "auto_increment_increment": "7",
    "auto_increment_offset": "3",
    "div_precision_increment": "9",
    "default_week_format": "3",
    "lc_time_names": "de_DE",
}
"""What MariaDB has of them, each with another value."""


@pytest.fixture
def strange(mariadb: MariaDbServer) -> Iterator[Target]:
    """A server on which every setting has another value."""
    root = mariadb.connect()
    names = ",".join(f"'{name}'" for name in OTHERS)
    before = dict(root.rows(f"SHOW GLOBAL VARIABLES WHERE Variable_name IN ({names})".encode()))
    assert set(before) == set(OTHERS)
    for name, value in OTHERS.items():
        root.run(f"SET GLOBAL {name}={value if value[0].isdigit() else repr(value)}".encode())
    yield Target(mariadb.host, mariadb.port, mariadb.user, mariadb.password)
    for name, value in before.items():
        quoted = value if value and value[0].isdigit() else repr(value)
        root.run(f"SET GLOBAL {name}={quoted if value else 'NULL'}".encode())
    root.close()


@pytest.mark.integration
def test_a_session_means_the_same_on_every_server(strange: Target) -> None:
    with connect(strange) as connection:
        for name in PINNED.keys() & OTHERS.keys():
            ((_, value),) = connection.rows(f"SHOW SESSION VARIABLES LIKE '{name}'".encode())
            assert value.upper() == PINNED[name].upper(), name
        connection.begin()
        connection.commit()
        assert connection.run(b"SELECT COUNT(*) FROM information_schema.COLLATIONS a, mysql.user b")
        assert connection.rows(b"SELECT @@sql_safe_updates, @@sql_auto_is_null") == [(0, 0)]
        assert connection.rows(b"SELECT 1 UNION SELECT 2 UNION SELECT 3 UNION SELECT 4")[3:] == [(4,)]


@pytest.mark.integration
def test_a_users_variables_come_after(mariadb: MariaDbServer) -> None:
    own = (("default_storage_engine", "MyISAM"),)
    target = Target(mariadb.host, mariadb.port, mariadb.user, mariadb.password, variables=own)
    with connect(target) as connection:
        assert connection.rows(b"SELECT @@default_storage_engine") == [("MyISAM",)]


class Server:
    """A session on a server that lets nobody change a setting."""

    def __init__(self, **settings: str) -> None:
        self.settings = settings
        self.dialect = Dialect.MARIADB

    def run(self, statement: bytes) -> int:
        if statement == FIRST:
            return 0
        raise StatementRefused(1227, "Access denied; you need BINLOG ADMIN")

    def rows(self, query: bytes) -> list[tuple[Any, ...]]:
        return list(self.settings.items())


def test_a_log_of_statements_is_named_before_anything_is_written() -> None:
    with pytest.raises(DownstreamError, match="binlog_format = STATEMENT") as raised:
        pin(Server(log_bin="ON", binlog_format="STATEMENT"), "downstream")
    assert "BINLOG ADMIN" in raised.value.hint
    pin(Server(log_bin="ON", binlog_format="STATEMENT"), "upstream")
    pin(Server(log_bin="OFF", binlog_format="STATEMENT"), "downstream")


def test_a_tidb_with_binlogs_is_written_to() -> None:
    """It has log_bin = ON and binlog_format = STATEMENT, and does not know ROW."""
    server = Server(log_bin="ON", binlog_format="STATEMENT")
    server.dialect = Dialect.TIDB
    pin(server, "downstream")


def test_what_cannot_be_pinned_is_said(caplog: pytest.LogCaptureFixture) -> None:
    pin(Server(explicit_defaults_for_timestamp="OFF"), "downstream")
    assert not caplog.records, "statements are written for both values"
    pin(Server(default_storage_engine="MEMORY"), "downstream")
    assert "setting cannot be pinned" in caplog.text
