"""Positions of batch sinks: in a row that one writer moves, and in a file."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from drainer import PositionFile, PositionTable
from tidb_binlog.errors import ConfigError, Conflict, Corruption


def test_a_row_moves_in_the_transaction_of_the_changes() -> None:
    with sqlite3.connect(":memory:", isolation_level=None) as connection:
        cursor = connection.cursor()
        position = PositionTable()
        assert position.load(cursor) == 0
        cursor.execute("BEGIN")
        position.move(cursor, 400)
        cursor.execute("COMMIT")
        assert PositionTable().load(cursor) == 400
        assert PositionTable(name="other").load(cursor) == 0
        cursor.execute("BEGIN")
        position.move(cursor, 500)
        position.move(cursor, 500)
        cursor.execute("ROLLBACK")
        assert position.load(cursor) == 400
    connection.close()


def test_of_two_writers_with_one_name_the_later_one_wins() -> None:
    with sqlite3.connect(":memory:", isolation_level=None) as connection:
        cursor = connection.cursor()
        older, newer = PositionTable(), PositionTable()
        older.load(cursor)
        newer.load(cursor)
        newer.move(cursor, 7)
        with pytest.raises(Conflict, match="is not at 0 any more") as raised:
            older.move(cursor, 8)
        assert raised.value.hint
        assert PositionTable().load(cursor) == 7
    connection.close()


@pytest.mark.parametrize("name", ["a b", "x'; DROP TABLE t; --", "", "a.b.c", "ä"])
def test_names_are_checked_before_they_are_in_a_statement(name: str) -> None:
    with pytest.raises(ConfigError):
        PositionTable(table=name)
    with pytest.raises(ConfigError):
        PositionTable(name=name)


def test_a_file_is_replaced_whole(tmp_path: Path) -> None:
    position = PositionFile(tmp_path / "position")
    assert position.load() == 0
    position.save(12)
    position.save(345)
    assert PositionFile(tmp_path / "position").load() == 345
    assert [one.name for one in tmp_path.iterdir()] == ["position"]


@pytest.mark.parametrize("text", ["", "x", "-4", "1 2", "٣"])
def test_a_file_without_a_position_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "position").write_text(text)
    with pytest.raises(Corruption, match="holds no position"):
        PositionFile(tmp_path / "position").load()
