"""Marks of two-way replication on a real MariaDB: texts, lanes apart, missing rows, removal."""

from __future__ import annotations

from typing import Any

import pytest

from drainer.mysql.connection import Target, connect
from drainer.mysql.errors import TransientError
from drainer.sink.mysql import loopback_marks as loopback
from drainer.sink.mysql.loopback_marks import LoopbackMarks
from tidb_binlog.errors import DownstreamError

pytestmark = pytest.mark.integration
CHANNEL = 7


def marks(target: Target) -> list[tuple[Any, ...]]:
    connection = connect(target)
    try:
        return connection.rows(b"SELECT * FROM retl._drainer_repl_mark ORDER BY channel_id, id")
    finally:
        connection.close()


def test_the_texts_are_those_of_the_go_drainer() -> None:
    assert loopback.CREATE_DATABASE == b"create database IF NOT EXISTS retl;"
    assert loopback.CREATE_TABLE == (
        b"CREATE TABLE If Not Exists retl._drainer_repl_mark (id bigint not null,channel_id bigint not null"
        b" DEFAULT 0, val bigint DEFAULT 0, channel_info varchar(64) ,PRIMARY KEY (id,channel_id));"
    )


def test_rows_are_made_once_a_lane_and_removed_by_channel(target: Target) -> None:
    ours, theirs = LoopbackMarks(CHANNEL), LoopbackMarks(CHANNEL + 1)
    ours.open(target, 2)
    theirs.open(target, 1)
    connection = connect(target)
    ours.begin(connection, 1)
    connection.commit()
    connection.close()
    assert marks(target) == [(0, 7, 1, ""), (1, 7, 2, ""), (0, 8, 1, "")]
    ours.open(target, 3)
    assert marks(target)[:3] == [(0, 7, 1, ""), (1, 7, 1, ""), (2, 7, 1, "")], "begun anew"
    ours.close(target)
    assert marks(target) == [(0, 8, 1, "")]


def test_lanes_do_not_wait_for_each_other(target: Target) -> None:
    own = LoopbackMarks(CHANNEL)
    own.open(target, 2)
    first, second = connect(target), connect(target)
    second.run(b"SET SESSION innodb_lock_wait_timeout=1")
    try:
        own.begin(first, 0)
        own.begin(second, 1)
        second.commit()
        with pytest.raises(TransientError, match="Lock wait timeout"):
            own.begin(second, 0)  # what a shared row would be like
        second.rollback()
        first.commit()
    finally:
        first.close()
        second.close()
    assert marks(target) == [(0, 7, 2, ""), (1, 7, 2, "")]


def test_a_missing_row_is_written_in_the_transaction_that_needs_it(target: Target) -> None:
    own = LoopbackMarks(CHANNEL)
    own.open(target, 1)
    connection = connect(target)
    try:
        own.begin(connection, 5)
        assert marks(target) == [(0, 7, 1, "")]
        connection.rollback()
        assert marks(target) == [(0, 7, 1, "")]
        own.begin(connection, 5)
        connection.commit()
        own.begin(connection, 5)
        connection.commit()
    finally:
        connection.close()
    assert marks(target) == [(0, 7, 1, ""), (5, 7, 2, "")]


def test_without_the_table_nothing_goes_out_unmarked(target: Target) -> None:
    connection = connect(target)
    try:
        with pytest.raises(DownstreamError, match="_drainer_repl_mark is gone downstream") as raised:
            LoopbackMarks(CHANNEL).begin(connection, 0)
        assert raised.value.hint
    finally:
        connection.close()


def test_marks_that_cannot_be_removed_do_not_fail_the_end(target: Target) -> None:
    LoopbackMarks(CHANNEL).close(target)  # there is no such table
    LoopbackMarks(CHANNEL).close(Target("127.0.0.1", 1, "nobody", ""))
