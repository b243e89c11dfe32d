"""Tables that a snapshot does not hold still, on each server."""

from __future__ import annotations

import pytest

from drainer.mysql.connection import Target, connect
from drainer.mysql.rows.dialect import Dialect
from drainer.points.load.upstream_schema import engine_without_snapshots

pytestmark = pytest.mark.integration


def test_a_table_without_transactions_is_found(server: Target) -> None:
    connection = connect(server)
    is_tidb = connection.dialect is Dialect.TIDB
    try:
        connection.run(b"DROP DATABASE IF EXISTS engines_app")
        connection.run(b"CREATE DATABASE engines_app")
        connection.run(b"CREATE TABLE engines_app.kept (id INT PRIMARY KEY) ENGINE=InnoDB")
        connection.run(b"CREATE TABLE engines_app.`lo'ose` (id INT PRIMARY KEY) ENGINE=MyISAM")
        connection.run(b"CREATE VIEW engines_app.seen AS SELECT * FROM engines_app.`lo'ose`")
        connection.run(b"START TRANSACTION")
        found = [
            engine_without_snapshots(connection, "engines_app", name) for name in ("kept", "lo'ose", "seen")
        ]
    finally:
        connection.run(b"DROP DATABASE engines_app")
        connection.close()
    assert found == ["", "" if is_tidb else "MyISAM", ""]
