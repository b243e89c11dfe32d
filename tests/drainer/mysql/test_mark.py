"""Marks of two-way replication on a real MariaDB: whatever changes rows is marked, in its transaction."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from drainer.mysql import mark_table as loopback
from drainer.mysql.connection import Connection, Target, connect
from drainer.mysql.errors import StatementRefused, TransientError
from drainer.mysql.mark import Mark, changes_rows
from drainer.mysql.mark_table import close_marks, open_marks
from tidb_binlog.errors import DownstreamError

pytestmark = pytest.mark.integration
CHANNEL = 7
MARK = Mark(CHANNEL)
FIRST_SESSION_ID = 1 << 16


@pytest.fixture
def marked(target: Target) -> Target:
    """With a mark table of two lanes, and a table of an application."""
    with_mark = replace(target, mark=MARK)
    open_marks(with_mark, 2)
    with connect(target) as connection:
        connection.run(b"CREATE DATABASE app")
        connection.run(b"CREATE TABLE app.t (id INT PRIMARY KEY, v INT)")
    return with_mark


def lane(target: Target, number: int) -> Connection:
    return connect(replace(target, mark=MARK.of_lane(number)))


def marks(target: Target) -> list[tuple[Any, ...]]:
    with connect(replace(target, mark=None)) as connection:
        return connection.rows(b"SELECT * FROM retl._drainer_repl_mark ORDER BY channel_id, id")


def of_sessions(target: Target) -> int:
    """How often sessions that are no lanes have marked."""
    return sum(row[2] for row in marks(target) if row[0] >= FIRST_SESSION_ID)


def test_the_texts_are_those_of_the_go_drainer() -> None:
    assert loopback.CREATE_DATABASE == b"create database IF NOT EXISTS retl;"
    assert loopback.CREATE_TABLE == (
        b"CREATE TABLE If Not Exists retl._drainer_repl_mark (id bigint not null,channel_id bigint not null"
        b" DEFAULT 0, val bigint DEFAULT 0, channel_info varchar(64) ,PRIMARY KEY (id,channel_id));"
    )
    assert MARK.raise_row(3) == (
        b"update retl._drainer_repl_mark set val=val+1 where id=3 and channel_id=7 limit 1;"
    )


def test_what_changes_rows_is_known_by_its_words() -> None:
    for rows in (
        *("INSERT INTO t", " replace into t", "/* why */ UPDATE t", "DELETE FROM t", "LOAD DATA"),
        *("WITH c AS (SELECT 1) UPDATE t", "with recursive c (a) as (select 1)\ndelete from t", "CALL p()"),
        *("/*!40101 INSERT INTO t */", "/*T![auto_id_cache] */ UPDATE t", "/*M!100100 DELETE */ FROM t"),
        *("SET STATEMENT max_statement_time=1 FOR INSERT t", "EXPLAIN ANALYZE UPDATE t", "ANALYZE DELETE t"),
        "EXECUTE IMMEDIATE 'UPDATE t SET v = 1'",
    ):
        assert changes_rows(rows)
        assert changes_rows(f"-- as asked\n#\n{rows}".encode())
    for other in ("SELECT 1", "SET x=1", "ALTER TABLE t", "/* UPDATE */ SELECT", "UPDATED", "COMMIT", ""):
        assert not changes_rows(other)
    for other in ("WITH c AS (SELECT 1) SELECT", "ANALYZE TABLE t", "/*!40101 SET x=1 */", "EXPLAIN DELETE"):
        assert not changes_rows(other)
    assert not changes_rows("/**/" * 1000 + "DROP TABLE t"), "each comment is read once"


def test_rows_are_made_once_a_lane_and_removed_by_channel(marked: Target) -> None:
    theirs = replace(marked, mark=Mark(CHANNEL + 1))
    open_marks(theirs, 1)
    with lane(marked, 1) as connection:
        connection.run(b"INSERT INTO app.t VALUES (1, 1)")
        connection.commit()
    assert marks(marked) == [(0, 7, 1, ""), (1, 7, 2, ""), (0, 8, 1, "")]
    open_marks(marked, 3)
    assert marks(marked)[:3] == [(0, 7, 1, ""), (1, 7, 1, ""), (2, 7, 1, "")], "begun anew"
    close_marks(marked)
    assert marks(marked) == [(0, 8, 1, "")]


def test_a_transaction_is_marked_once_and_only_if_it_changes_rows(marked: Target) -> None:
    with lane(marked, 0) as connection:
        for _ in range(2):
            connection.rows(b"SELECT * FROM app.t FOR UPDATE")
            connection.commit()
        assert marks(marked)[0] == (0, 7, 1, "")
        for number in range(2):
            connection.run(b"INSERT INTO app.t VALUES (%d, 1)" % number)
            connection.run(b"UPDATE app.t SET v = 2")
            with connection.cursor() as cursor:
                cursor.execute("DELETE FROM app.t WHERE v = 3")
            connection.commit()
    assert marks(marked)[0] == (0, 7, 3, "")


def test_what_ends_a_transaction_ends_its_mark(marked: Target) -> None:
    """DDL commits, an error may roll back, and ROLLBACK takes the mark with it."""
    with connect(marked) as connection:
        connection.run(b"INSERT INTO app.t VALUES (1, 1)")
        connection.run(b"ALTER TABLE app.t ADD COLUMN w INT")
        connection.run(b"UPDATE app.t SET w = 1")
        connection.commit()
        assert of_sessions(marked) == 2
        connection.run(b"UPDATE app.t SET w = 2")
        connection.rollback()
        assert of_sessions(marked) == 2
        with pytest.raises(StatementRefused):
            connection.run(b"INSERT INTO app.t VALUES (1, 1, 1)")
        connection.run(b"UPDATE app.t SET w = 3")
        connection.commit()
        assert of_sessions(marked) > 2


def test_a_statement_that_commits_by_itself_is_one_transaction_with_its_mark(marked: Target) -> None:
    """As conversions of a DDL session are."""
    with connect(marked) as connection:
        connection.autocommit(True)
        assert connection.run(b"INSERT INTO app.t VALUES (1, 1), (2, 1)") == 2
        assert of_sessions(marked) == 1
        with pytest.raises(StatementRefused):
            connection.run(b"INSERT INTO app.t VALUES (1, 1)")
        assert of_sessions(marked) == 1, "the mark went with it"
        connection.begin()
        connection.run(b"UPDATE app.t SET v = 2")
        connection.run(b"UPDATE app.t SET v = 3")
        assert of_sessions(marked) == 1
        connection.commit()
        assert of_sessions(marked) == 2


def test_the_mark_of_an_earlier_transaction_is_none_of_the_next(marked: Target) -> None:
    """Nor is one that the server may have rolled back with a statement that failed."""
    with connect(marked) as connection:
        connection.autocommit(True)
        for number in (1, 2):
            connection.run(b"DELETE FROM app.t")
            connection.begin()
            connection.run(b"INSERT INTO app.t VALUES (%d, 1)" % number)
            connection.commit()
        assert of_sessions(marked) == 4
        connection.begin()
        connection.run(b"INSERT INTO app.t VALUES (3, 1)")
        with pytest.raises(StatementRefused):
            connection.run(b"INSERT INTO app.t VALUES (3, 1)")
        connection.run(b"INSERT INTO app.t VALUES (4, 1)")
        connection.commit()
        assert of_sessions(marked) == 6


def test_lanes_do_not_wait_for_each_other(marked: Target) -> None:
    with lane(marked, 0) as first, lane(marked, 1) as second, lane(marked, 0) as same:
        same.run(b"SET SESSION innodb_lock_wait_timeout=1")
        first.run(b"INSERT INTO app.t VALUES (1, 1)")
        second.run(b"INSERT INTO app.t VALUES (2, 1)")
        second.commit()
        with pytest.raises(TransientError, match="Lock wait timeout"):
            same.run(b"INSERT INTO app.t VALUES (3, 1)")  # what a shared row would be like
        first.commit()
    assert marks(marked) == [(0, 7, 2, ""), (1, 7, 2, "")]


def test_a_missing_row_is_written_in_the_transaction_that_needs_it(marked: Target) -> None:
    with lane(marked, 5) as connection:
        connection.run(b"INSERT INTO app.t VALUES (1, 1)")
        assert len(marks(marked)) == 2
        connection.rollback()
        assert len(marks(marked)) == 2
        for number in (1, 2):
            connection.run(b"INSERT INTO app.t VALUES (%d, 1)" % number)
            connection.commit()
    assert marks(marked)[2:] == [(5, 7, 2, "")]


def test_without_the_table_nothing_goes_out_unmarked(marked: Target) -> None:
    with connect(replace(marked, mark=None)) as connection:
        connection.run(b"DROP TABLE retl._drainer_repl_mark")
    for each in (marked, replace(marked, mark=MARK.of_lane(0))):
        with connect(each) as connection:
            with pytest.raises(DownstreamError, match="_drainer_repl_mark is gone downstream") as raised:
                connection.run(b"INSERT INTO app.t VALUES (1, 1)")
            assert raised.value.hint
            connection.commit()
            assert not connection.rows(b"SELECT * FROM app.t")


def test_a_mark_that_is_refused_is_no_fault_of_the_table(marked: Target) -> None:
    with connect(replace(marked, mark=None)) as connection:
        connection.run(b"ALTER TABLE retl._drainer_repl_mark DROP COLUMN val")
    for each in (marked, replace(marked, mark=MARK.of_lane(0))):
        with connect(each) as connection, pytest.raises(DownstreamError, match="mark of two-way") as raised:
            connection.run(b"INSERT INTO app.t VALUES (1, 1)")
        assert "ON retl.*" in raised.value.hint


def test_marks_that_cannot_be_removed_do_not_fail_the_end(target: Target) -> None:
    close_marks(replace(target, mark=MARK))  # there is no such table
    close_marks(Target("127.0.0.1", 1, "nobody", "", mark=MARK))
