"""Sizes of tables, as a MariaDB estimates them."""

from __future__ import annotations

from binlog_playground.cluster.mariadb import MariaDbServer
from drainer.mysql.chunks.table_size import TableSize, table_size
from drainer.mysql.connection import Target, connect


def test_the_size_of_a_table(mariadb: MariaDbServer) -> None:
    connection = connect(Target(mariadb.host, mariadb.port, mariadb.user, mariadb.password))
    try:
        connection.run(b"CREATE DATABASE chunks_size")
        connection.run(b"CREATE TABLE chunks_size.`t'` (id INT PRIMARY KEY, v VARCHAR(200))")
        rows = ",".join(f"({n},REPEAT('x',200))" for n in range(2000))
        connection.run(f"INSERT INTO chunks_size.`t'` VALUES {rows}".encode())
        connection.commit()
        connection.run(b"ANALYZE TABLE chunks_size.`t'`")
        found = table_size(connection, "chunks_size", "t'")
        assert 1500 < found.rows < 2500
        assert found.size_bytes > 300_000
        assert table_size(connection, "chunks_size", "none") == TableSize(0, 0)
    finally:
        connection.run(b"DROP DATABASE chunks_size")
        connection.close()


def test_how_many_chunks_that_will_be() -> None:
    assert [TableSize(rows, 0).chunks(100) for rows in (0, 1, 100, 101, 1000)] == [1, 1, 1, 2, 10]
