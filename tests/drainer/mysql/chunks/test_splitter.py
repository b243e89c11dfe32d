"""The splitter against servers: every row once, chunks of about the size that was asked for, no scan."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace

import pytest

from drainer.mysql.chunks.chunk import Chunk
from drainer.mysql.chunks.cut_key import WHOLE, CutKey, key_to_copy
from drainer.mysql.chunks.splitter import Splitter, divide
from drainer.mysql.connection import Connection, Target, connect
from drainer.mysql.rows.column_match import DownstreamTable
from drainer.mysql.rows.dialect import Dialect
from drainer.mysql.table_reader import read_table

DATABASE = "chunks_splitter"


@pytest.fixture(scope="module")
def connection(server: Target) -> Iterator[Connection]:
    connection = connect(server)
    connection.run(b"DROP DATABASE IF EXISTS %b" % DATABASE.encode())
    connection.run(b"CREATE DATABASE %b" % DATABASE.encode())
    connection.select_db(DATABASE)
    yield connection
    connection.run(b"DROP DATABASE %b" % DATABASE.encode())
    connection.close()


def made(connection: Connection, columns: str, rows: list[str]) -> DownstreamTable:
    connection.run(b"DROP TABLE IF EXISTS t")
    connection.run(f"CREATE TABLE t ({columns})".encode())
    if rows:
        connection.run(f"INSERT INTO t VALUES {','.join(rows)}".encode())
    connection.commit()
    table = read_table(connection, DATABASE, "t")
    assert table is not None
    return table


def counts(connection: Connection, chunks: list[Chunk]) -> list[int]:
    found = []
    for chunk in chunks:
        ((count,),) = connection.rows(b"SELECT COUNT(*) FROM t" + chunk.where())
        found.append(int(count))
    return found


def check_parts(connection: Connection, chunks: list[Chunk], rows: int) -> list[int]:
    """Chunks follow each other without a gap, and have every row once."""
    assert [chunk.number for chunk in chunks] == list(range(len(chunks)))
    assert (chunks[0].low, chunks[-1].high) == ((), ())
    for one, next_ in itertools.pairwise(chunks):
        assert one.high == next_.low != ()
    found = counts(connection, chunks)
    assert sum(found) == rows
    return found


def test_integers_with_gaps_and_crowds(connection: Connection) -> None:
    """A dense range, one far below and a few rows far away: chunks follow the rows, not the numbers."""
    dense = [*range(1, 6001), *range(10**9, 10**9 + 3000), -(2**63), 2**63 - 1, *range(2**62, 2**62 + 50)]
    table = made(connection, "id BIGINT PRIMARY KEY, v INT", [f"({n},0)" for n in dense])
    if table.dialect is not Dialect.TIDB:  # it looks up what it does not know
        connection.run(b"ANALYZE TABLE t")
    splitter = Splitter(table, key_to_copy(table), 500)
    chunks = list(splitter.chunks(connection))
    found = check_parts(connection, chunks, len(dense))
    assert len(found) < 60
    assert max(found) <= 1500


@pytest.mark.parametrize("rows_wanted", [1, 7, 100, 1000])
def test_any_size(connection: Connection, rows_wanted: int) -> None:
    table = made(
        connection, "id INT UNSIGNED PRIMARY KEY", [f"({n})" for n in (0, *range(50, 150), 2**32 - 1)]
    )
    check_parts(connection, list(Splitter(table, key_to_copy(table), rows_wanted).chunks(connection)), 102)


def test_composite_keys_are_looked_up(connection: Connection) -> None:
    rows = [f"({n % 13},'k{n:04d}''\\\\',{n})" for n in range(1300)]
    table = made(connection, "a INT, b VARCHAR(20), v INT, PRIMARY KEY (a, b)", rows)
    chunks = list(Splitter(table, key_to_copy(table), 100).chunks(connection))
    found = check_parts(connection, chunks, 1300)
    assert found == [100] * 13


@pytest.mark.parametrize(
    ("columns", "value"),
    [
        ("a DECIMAL(20,5) PRIMARY KEY", "{n}.5"),
        ("a DATETIME(3) PRIMARY KEY", "FROM_UNIXTIME(1e9+{n})"),
        ("a TIMESTAMP PRIMARY KEY", "FROM_UNIXTIME(1e9+{n})"),
        ("a TIME(6) PRIMARY KEY", "SEC_TO_TIME({n}-100)"),
        ("a VARBINARY(9) PRIMARY KEY", "CHAR({n},{n})"),
        ("a BINARY(9) PRIMARY KEY", "CHAR({n},0)"),
        ("a VARCHAR(30) COLLATE utf8mb4_general_ci PRIMARY KEY", "CONCAT('Ä','ß{n}')"),
        ("a VARCHAR(30) CHARACTER SET latin1 PRIMARY KEY", "CONCAT('Ä{n}')"),
        ("a BIT(40) PRIMARY KEY", "{n}*1000000"),
        ("n INT NULL UNIQUE, a INT NOT NULL UNIQUE", "NULL,{n}"),
    ],
)
def test_keys_of_any_type(connection: Connection, columns: str, value: str) -> None:
    rows = [f"({value.format(n=n)})" for n in range(200)]
    table = made(connection, columns, rows)
    chunks = list(Splitter(table, key_to_copy(table), 60).chunks(connection))
    found = check_parts(connection, chunks, 200)
    assert len(found) > 1
    assert max(found) <= 120


def test_several_rows_of_one_place(connection: Connection) -> None:
    """The first column of a key does not tell rows apart: chunks go on, and none is cut within a place."""
    rows = [f"({n // 100},{n})" for n in range(1000)]
    table = made(connection, "a INT, b INT, PRIMARY KEY (a, b)", rows)
    whole = key_to_copy(table)
    first = replace(whole.columns[0], is_integer=False)
    key = CutKey((first,), whole.index, unique=False)
    found = check_parts(connection, list(Splitter(table, key, 30).chunks(connection)), 1000)
    assert [count for count in found if count] == [100] * 10


def test_it_goes_on_after_a_chunk(connection: Connection) -> None:
    table = made(connection, "id INT PRIMARY KEY", [f"({n})" for n in range(500)])
    splitter = Splitter(table, key_to_copy(table), 40)
    chunks = list(splitter.chunks(connection))
    for place, chunk in enumerate(chunks):
        rest = list(splitter.chunks(connection, chunk))
        assert sum(counts(connection, rest)) == sum(counts(connection, chunks[place + 1 :]))
        assert [one.number for one in rest] == list(range(chunk.number + 1, chunk.number + 1 + len(rest)))
    table = made(connection, "a INT, b INT, PRIMARY KEY (a, b)", [f"({n % 7},{n})" for n in range(500)])
    splitter = Splitter(table, key_to_copy(table), 40)
    chunks = list(splitter.chunks(connection))
    assert list(splitter.chunks(connection, chunks[3])) == chunks[4:]


def test_tables_without_key_and_empty_ones_are_whole(connection: Connection) -> None:
    table = made(connection, "a INT NULL UNIQUE, b INT", ["(1,1)", "(NULL,2)"])
    if connection.dialect is not Dialect.TIDB:
        assert key_to_copy(table) == WHOLE
    assert list(Splitter(table, WHOLE, 1).chunks(connection)) == [Chunk(0)]
    table = made(connection, "a INT PRIMARY KEY", [])
    assert list(Splitter(table, key_to_copy(table), 10).chunks(connection)) == [Chunk(0, ("a",))]
    table = made(connection, "a INT, b INT, PRIMARY KEY (a,b)", [])
    assert list(Splitter(table, key_to_copy(table), 10).chunks(connection)) == [Chunk(0, ("a", "b"))]


def test_it_reads_no_rows_of_a_large_integer_key(connection: Connection) -> None:
    """Cutting costs look-ups for each chunk, not reads for each row: one range is counted."""
    if connection.dialect is Dialect.TIDB:
        return
    table = made(connection, "id INT PRIMARY KEY, v INT", [f"({n},{n})" for n in range(20_000)])
    connection.run(b"ANALYZE TABLE t")
    connection.run(b"FLUSH STATUS")
    chunks = list(Splitter(table, key_to_copy(table), 2000).chunks(connection))
    reads = {
        str(name): int(value) for name, value in connection.rows(b"SHOW SESSION STATUS LIKE 'Handler_read%'")
    }
    assert len(chunks) >= 8
    assert sum(reads.values()) < 20_000 // 4, reads


def test_divide() -> None:
    for begin, end, pieces in ((0, 10, 3), (-5, 5, 16), (0, 1, 4), (7, 9, 100), (-(2**63), 2**64, 9)):
        parts = divide(begin, end, pieces)
        assert (parts[0][0], parts[-1][1]) == (begin, end)
        assert all(one[1] == next_[0] for one, next_ in itertools.pairwise(parts))
        assert all(one[0] < one[1] for one in parts)
        assert len(parts) <= 16
