"""Chunks: their conditions part the rows of a table, whatever the key and the places are."""

from __future__ import annotations

import itertools
import json
import sqlite3
from contextlib import closing

import pytest

from drainer.mysql.chunks.chunk import Chunk, after, at_or_after, before
from tidb_binlog.errors import Corruption


def test_the_condition_of_a_chunk() -> None:
    assert Chunk(0).where() == b""
    assert Chunk(0, ("a",), high=(b"5",)).where() == b" WHERE `a`<5"
    assert Chunk(1, ("a",), (b"5",), (b"9",)).where() == b" WHERE `a`>=5 AND `a`<9"
    assert Chunk(2, ("a", "b"), (b"1", b"'x'")).condition() == b"(`a`>1 OR (`a`=1 AND `b`>='x'))"


@pytest.mark.parametrize("columns", [1, 2, 3])
def test_conditions_compare_as_rows_do(columns: int) -> None:
    """Every row against every place, by a database that is no server of ours."""
    key = ("a", "b", "c")[:columns]
    rows = list(itertools.product(range(3), repeat=columns))
    with closing(sqlite3.connect(":memory:")) as database:
        database.execute(f"CREATE TABLE t ({','.join(key)})")
        database.executemany(f"INSERT INTO t VALUES ({','.join('?' * columns)})", rows)
        for place in rows:
            literals = tuple(b"%d" % value for value in place)
            for condition, expected in (
                (at_or_after(key, literals), [row for row in rows if row >= place]),
                (after(key, literals), [row for row in rows if row > place]),
                (before(key, literals), [row for row in rows if row < place]),
            ):
                found = database.execute(f"SELECT * FROM t WHERE {condition.decode()}").fetchall()
                assert sorted(found) == expected


def test_a_chunk_is_kept_as_text() -> None:
    for chunk in (
        Chunk(0),
        Chunk(7, ("a", "b`"), (b"-1", b"'\xc3\xa9'"), (b"2", b"'\xff'")),
        Chunk(8, ("a",), (b"x'00ff'",)),
        Chunk(9, ("a", "b"), (b"-1.50", b"'it\\'s '' \\\\ \n'"), ()),
    ):
        assert Chunk.of_stored(chunk.stored()) == chunk


REFUSED = ["", "{}", "[1]", '["a", [], [], []]', '[1, ["a"], [1], []]', "null", '[1, ["a"], ["1", "2"], []]']
# Text that others may have written becomes SQL.
REFUSED += [
    json.dumps([1, ["a"], [literal], []])
    for literal in (
        *("1 OR 1=1", "(SELECT 1)", "'a' OR ''=''", "'a\\' OR 1=1", "'a\\\\' OR 1=1 -- '"),
        *("b", "", "1\n"),
    )
]


@pytest.mark.parametrize("text", REFUSED)
def test_what_is_no_chunk_is_refused(text: str) -> None:
    with pytest.raises(Corruption, match="no chunk of a table"):
        Chunk.of_stored(text)
