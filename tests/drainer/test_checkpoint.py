"""The checkpoint tables on a real server: fencing, lanes, take-over from and by a Go drainer."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from common.errors import Conflict, Corruption
from deploy.playground.mariadb import MariaDbServer
from drainer.change import COMPLETE, Position
from drainer.checkpoint import Checkpoint, CheckpointStore, Intent
from drainer.sink import mysql

CLUSTER = 7710435644538274660  # larger than 2**62, as real ones are


def test_json_has_the_order_of_the_go_drainer() -> None:
    text = Checkpoint(414529105591271429, False, 57, ts_map={"primary-ts": 1, "secondary-ts": 2}).to_json()
    assert text == (
        '{"consistent":false,"commitTS":414529105591271429,'
        '"ts-map":{"primary-ts":1,"secondary-ts":2},"schema-version":57}'
    )


def test_old_rows_are_read_and_broken_ones_refused() -> None:
    old = Checkpoint.from_json('{"consistent":true,"commitTS":5,"positions":{}}')
    assert old == Checkpoint(5, True, 0)
    with pytest.raises(Corruption, match="checkpoint row cannot be read"):
        Checkpoint.from_json("{")


@pytest.fixture
def target(mariadb: MariaDbServer) -> Iterator[mysql.Target]:
    target = mysql.Target(mariadb.host, mariadb.port, mariadb.user, mariadb.password)
    yield target
    connection = mysql.connect(target)
    mysql.run(connection, b"DROP DATABASE IF EXISTS tidb_binlog")
    connection.close()


def opened(target: mysql.Target) -> CheckpointStore:
    return CheckpointStore(target, CLUSTER)


def stored_row(target: mysql.Target) -> dict[str, Any]:
    connection = mysql.connect(target)
    try:
        ((text,),) = mysql.rows(connection, b"SELECT checkPoint FROM tidb_binlog.checkpoint")
        document: dict[str, Any] = json.loads(text)
        return document
    finally:
        connection.close()


@pytest.mark.integration
class TestStore:
    def test_first_start_begins_at_the_initial_ts(self, target: mysql.Target) -> None:
        store = opened(target)
        start = store.start(3, 100, 900)
        assert start.checkpoint is None
        assert start.positions == (Position(100),) * 3
        assert start.safe_until == 0
        assert start.drained
        assert stored_row(target) == {
            "consistent": False,
            "commitTS": 100,
            "ts-map": {},
            "schema-version": 0,
            "epoch": 1,
        }
        store.close()

    def test_consistent_is_cleared_before_anything_is_written(self, target: mysql.Target) -> None:
        store = opened(target)
        store.start(2, 100, 900)
        store.settle(Checkpoint(500, True, 4, store.epoch))
        store.close()
        assert stored_row(target)["consistent"] is True
        again = opened(target)
        start = again.start(2, 100, 900)
        assert start.checkpoint == Checkpoint(500, True, 4, 1)
        assert stored_row(target)["consistent"] is False
        assert start.positions == (Position(500),) * 2
        again.close()

    def test_lanes_go_on_from_their_own_positions(self, target: mysql.Target) -> None:
        store = opened(target)
        store.start(3, 100, 900)
        connection = mysql.connect(target)
        lanes = store.lane_table()
        lanes.advance(connection, 1, Position(700, 40))
        lanes.advance(connection, 2, Position(650))
        connection.commit()
        store.save(Checkpoint(600, False, 9, store.epoch))
        store.close()
        again = opened(target)
        start = again.start(5, 100, 900)
        assert start.positions == (Position(600), Position(700, 40), Position(650)), "lane count is kept"
        assert not start.drained
        assert again.lane_table().position(connection, 1) == Position(700, 40)
        again.settle(Checkpoint(800, True, 9, again.epoch))
        again.close()
        third = opened(target)
        assert third.start(5, 100, 900).positions == (Position(800),) * 5, "drained: the new count counts"
        third.close()
        connection.close()

    def test_an_older_drainer_is_fenced_off(self, target: mysql.Target) -> None:
        older = opened(target)
        older.start(2, 100, 900)
        newer = opened(target)
        newer.start(2, 100, 900)
        connection = mysql.connect(target)
        with pytest.raises(Conflict, match="another drainer took over"):
            older.lane_table().advance(connection, 0, Position(200))
        connection.rollback()
        with pytest.raises(Conflict):
            older.save(Checkpoint(200, False, 1, older.epoch))
        with pytest.raises(Conflict):
            older.begin_ddl(Intent(1, 1, "x", {}))
        newer.lane_table().advance(connection, 0, Position(200))
        connection.close()
        newer.close()
        older.close()

    def test_the_same_position_again_is_no_false_alarm(self, target: mysql.Target) -> None:
        store = opened(target)
        store.start(1, 100, 900)
        connection = mysql.connect(target)
        for _ in range(2):
            store.lane_table().advance(connection, 0, Position(200))
            connection.commit()
        connection.close()
        store.close()

    def test_a_go_drainers_row_means_safe_mode_up_to_now(self, target: mysql.Target) -> None:
        ours = opened(target)
        ours.start(2, 100, 900)
        connection = mysql.connect(target)
        ours.lane_table().advance(connection, 0, Position(9999))
        mysql.run(
            connection,
            b"REPLACE INTO tidb_binlog.checkpoint VALUES (%d, "
            b'\'{"consistent":false,"commitTS":5000,"ts-map":{},"schema-version":48}\')' % CLUSTER,
        )
        connection.commit()
        ours.close()
        again = opened(target)
        start = again.start(2, 100, 7000)
        assert start.positions == (Position(5000),) * 2, "our lane rows are older than the Go drainer's work"
        assert start.safe_until == 7000
        again.close()
        third = opened(target)
        start = third.start(2, 100, 8000)
        assert start.safe_until == 7000, "a crash inside safe mode stays in safe mode"
        third.save(Checkpoint(7500, False, 48, third.epoch, safe_until=7000))
        third.close()
        connection.close()
        assert "safe-until" not in stored_row(target)

    def test_intent_survives_and_end_clears_it(self, target: mysql.Target) -> None:
        store = opened(target)
        store.start(2, 100, 900)
        intent = Intent(300, 7, "ALTER TABLE `日本` ADD a INT", {"d.t": "CREATE TABLE 't\\'", "d.u": None})
        store.begin_ddl(intent)
        store.close()
        again = opened(target)
        start = again.start(2, 100, 900)
        assert start.intent == intent
        again.end_ddl(Checkpoint(300, False, 8, again.epoch))
        again.close()
        third = opened(target)
        start = third.start(2, 100, 900)
        assert start.intent is None
        assert start.positions == (Position(300, COMPLETE),) * 2
        assert start.checkpoint is not None
        assert start.checkpoint.schema_version == 8
        third.close()
