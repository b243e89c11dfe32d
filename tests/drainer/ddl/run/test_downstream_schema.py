"""What is downstream, as a TiDB shows it; tests/drainer/ddl/run/test_runner_recorded.py has it of MariaDB."""

from __future__ import annotations

import pytest

from binlog_playground.cluster.mariadb import MariaDbServer
from drainer.ddl.derive.compare import PresentKey
from drainer.ddl.run.downstream_schema import read, server_of
from drainer.mysql.connection import connect
from drainer.mysql.table_reader import read_table
from tests.fakes.tidb_sql import tidb_sql

pytestmark = pytest.mark.integration


def test_a_table_that_a_tidb_lists_twice_is_one_as_it_is_now(mariadb: MariaDbServer) -> None:
    own = mariadb.connect()
    own.run(b"CREATE DATABASE shown")
    own.run(b"CREATE TABLE shown.t (id INT PRIMARY KEY, a VARCHAR(20), UNIQUE u (a(3), id), KEY k (a))")
    own.run(b"CREATE TABLE shown.old_t (id BIGINT, gone INT, a VARCHAR(9), UNIQUE g (id)) COMMENT 'gone'")
    try:
        with tidb_sql(mariadb) as target:
            connection = connect(target)
            server = server_of(connection)
            present = read(connection, ("shown", "T"), server)
            own.run(b"CREATE VIEW shown.v AS SELECT id FROM shown.t")
            own.run(b"RENAME TABLE shown.t TO shown.other")
            view, table = read(connection, ("shown", "v"), server), read_table(connection, "shown", "v")
            assert read(connection, ("shown", "t"), server) is None
            connection.close()
    finally:
        own.run(b"DROP DATABASE shown")
        own.close()
    assert server.invisible == "INVISIBLE"
    assert present is not None
    assert [column.name for column in present.columns] == ["id", "a"]
    assert (view and view.kind, table and table.engine) == ("view", "")
    assert present.keys == (
        PresentKey("k", (("a", 0),)),
        PresentKey("PRIMARY", (("id", 0),), unique=True),
        PresentKey("u", (("a", 3), ("id", 0)), unique=True),
    )
