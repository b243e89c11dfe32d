"""What a server sums up: it changes with every value, and only with values."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from binlog_playground.cluster.mariadb import MariaDbServer
from drainer.compare.verify import checksum
from drainer.compare.verify.checksum import Sum
from drainer.compare.verify.compared_table import DOWNSTREAM, UPSTREAM, ComparedTable, compared_table
from drainer.mysql.chunks import printed
from drainer.mysql.connection import Connection, Target, connect
from drainer.mysql.literal.downstream_column import DownstreamColumn
from drainer.mysql.table_reader import read_table

COLUMNS = {
    "i": ("BIGINT", "-5", "5"),
    "u": ("BIGINT UNSIGNED", "18446744073709551615", "18446744073709551614"),
    "z": ("INT(6) ZEROFILL", "12", "120"),
    "y": ("YEAR", "0", "2000"),
    "n": ("DECIMAL(30,10)", "0.1000000001", "0.1000000002"),
    "f": ("FLOAT", "16777216", "16777218"),
    "d": ("DOUBLE(10,2)", "0.1", "0.11"),
    "b": ("BIT(9)", "b'100000000'", "b'0'"),
    "t": ("VARCHAR(20)", "'a'", "'A'"),
    "e": ("VARCHAR(20)", "''", "NULL"),
    "p": ("VARCHAR(20)", "'a'", "'a '"),
    "l": ("VARCHAR(20) CHARACTER SET latin1", "'\u00e4'", "'a'"),
    "x": ("VARBINARY(20)", "x'00'", "x'0000'"),
    "o": ("BLOB", "x'ff'", "x'fe'"),
    "k": ("ENUM('', 'a')", "''", "0"),
    "s": ("SET('a', 'b')", "'a'", "'a,b'"),
    "j": ("JSON", "'{\"a\": 1}'", '\'{"a": "1"}\''),
    "w": ("DATETIME(3)", "'2023-01-01 00:00:00.5'", "'2023-01-01 00:00:00.501'"),
    "v": ("TIME", "'-1:00:00'", "'1:00:00'"),
    "q": ("DATE", "'0000-00-00'", "NULL"),
}


@pytest.fixture(scope="module")
def connection(mariadb: MariaDbServer) -> Iterator[Connection]:
    made = connect(Target(mariadb.host, mariadb.port, mariadb.user, mariadb.password))
    made.run(b"CREATE DATABASE sums")
    # An ENUM takes 0, the value of what was none of its names, in no strict session.
    made.run(b"SET SESSION sql_mode='NO_AUTO_VALUE_ON_ZERO'")
    yield made
    made.run(b"DROP DATABASE sums")
    made.close()


def make(connection: Connection, definition: str, *rows: str) -> ComparedTable:
    connection.run(b"DROP TABLE IF EXISTS sums.t")
    connection.run(f"CREATE TABLE sums.t ({definition})".encode())
    for row in rows:
        connection.run(f"INSERT INTO sums.t VALUES ({row})".encode())
    connection.commit()
    table = read_table(connection, "sums", "t")
    assert table is not None
    found = compared_table([table], table)
    assert isinstance(found, ComparedTable), found
    return found


def summed(connection: Connection, table: ComparedTable, where: bytes = b"") -> Sum:
    (query,) = checksum.sum_queries(table, UPSTREAM, where)
    return checksum.read_sum(connection.rows(query)[0])


def test_every_value_counts(connection: Connection) -> None:
    definition = ", ".join(f"{name} {kind}" for name, (kind, _, _) in COLUMNS.items())
    first = ", ".join(value for _, value, _ in COLUMNS.values())
    table = make(connection, f"id INT PRIMARY KEY, {definition}", f"1, {first}")
    assert table.is_by_checksum
    assert {one.name for one in table.pairs} == {"id", *COLUMNS}
    before = summed(connection, table)
    assert (before.rows, before.is_whole) == (1, True)
    for name, (_, old, new) in COLUMNS.items():
        connection.run(f"UPDATE sums.t SET {name}={new}".encode())
        assert summed(connection, table) != before, name
        connection.run(f"UPDATE sums.t SET {name}={old}".encode())
        assert summed(connection, table) == before, name


def test_texts_cannot_be_taken_for_others(connection: Connection) -> None:
    """Rows whose columns together are one text, and exchanged values of two rows."""
    definition = "a VARCHAR(20), b VARCHAR(20), c INT"
    rows = ["'x,1', '', 1", "'x', '1,', 1", "'', 'x,1', 1", "NULL, 'x', 1", "'N', 'x', 1", "'x', NULL, 1"]
    found = {summed(connection, make(connection, definition, row)).checksum for row in rows}
    assert len(found) == len(rows)
    one = summed(connection, make(connection, definition, "'aa', '', 1", "'bb', '', 2"))
    assert one != summed(connection, make(connection, definition, "'bb', '', 1", "'aa', '', 2"))


def test_a_row_that_is_there_twice_counts_twice(connection: Connection) -> None:
    one = summed(connection, make(connection, "a INT", "1", "2"))
    assert summed(connection, make(connection, "a INT", "1", "2", "2", "2")).checksum != one.checksum
    assert summed(connection, make(connection, "a INT", "1", "1", "2")).rows == 3


def test_buckets_are_parts_of_the_whole(connection: Connection) -> None:
    table = make(connection, "id INT PRIMARY KEY, a TEXT", *(f"{n}, '{n % 3}'" for n in range(50)))
    (query,) = checksum.bucket_queries(table, DOWNSTREAM, b"id<40", 8)
    answers = connection.rows(query)
    assert 1 < len(answers) <= 8
    whole = summed(connection, table, b"id<40")
    assert sum(map(checksum.read_sum, answers), Sum()) == whole
    number, rows = answers[0][0], answers[0][1]
    (query,) = checksum.row_queries(table, UPSTREAM, b"id<40", [number], 8)
    assert len(connection.rows(query)) == rows


def test_a_row_that_is_too_large_to_be_summed_up_is_noticed(connection: Connection) -> None:
    table = make(connection, "id INT PRIMARY KEY, a LONGTEXT, b LONGTEXT", "1, 'x', 'x'")
    assert summed(connection, table).is_whole
    size = connection.packet_bytes_max() // 2 + 10
    for name in (b"a", b"b"):
        connection.run(b"UPDATE sums.t SET %b=REPEAT('x', %d)" % (name, size))
    found = summed(connection, table)
    assert (found.rows, found.is_whole) == (1, False)


def test_a_row_that_a_small_packet_cannot_hold_is_noticed(
    mariadb: MariaDbServer, connection: Connection
) -> None:
    """Whatever the types are: a VARCHAR is too large where the server's limit is small."""
    table = make(connection, "id INT PRIMARY KEY, a VARCHAR(2000)", "1, REPEAT('x', 2000)", "2, 'y'")
    ((before,),) = connection.rows(b"SELECT @@global.max_allowed_packet")
    connection.run(b"SET GLOBAL max_allowed_packet=1024")
    try:
        with closing(connect(Target(mariadb.host, mariadb.port, mariadb.user, mariadb.password))) as small:
            found = summed(small, table)
            assert (found.rows, found.hashed) == (2, 1)
            (query,) = checksum.row_queries(table, UPSTREAM, b"id=1")
            assert small.printed(query) == [(b"1", b"x" * 2000)], "a value is never NULL for its size"
            shown = [printed.value(DownstreamColumn("a", kind)) for kind in ("json", "text")]
            query = b"SELECT %b,%b FROM sums.t WHERE id=1" % tuple(shown)
            assert small.printed(query) == [(b"x" * 2000,) * 2], "nor where it is loaded"
    finally:
        connection.run(b"SET GLOBAL max_allowed_packet=%d" % int(before))


def test_collations_that_do_not_go_together_are_summed_up(connection: Connection) -> None:
    definition = "a VARCHAR(9) COLLATE utf8mb4_bin, b VARCHAR(9) COLLATE utf8mb4_nopad_bin, c BLOB"
    table = make(connection, definition, "'é', 'é', x'ff'")
    assert summed(connection, table).is_whole


@pytest.mark.parametrize("name", ["b", "bucket", "1", "a`b", "a'b", 'a"b', "COUNT", "h"])
def test_no_column_is_taken_for_a_bucket(connection: Connection, name: str) -> None:
    quoted = "`" + name.replace("`", "``") + "`"
    rows = [f"{number}, {number % 2}" for number in range(40)]
    table = make(connection, f"id INT PRIMARY KEY, {quoted} INT", *rows)
    (query,) = checksum.bucket_queries(table, UPSTREAM, b"", 8)
    answers = connection.rows(query)
    assert len(answers) > 2, "by buckets and not by the column's two values"
    assert len({row[0] for row in answers}) == len(answers)
