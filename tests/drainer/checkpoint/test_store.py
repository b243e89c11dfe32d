"""The checkpoint tables on a real server: fencing, lanes, take-over from and by a Go drainer."""

from __future__ import annotations

import json
import queue
import threading
from typing import Any

import pytest

from drainer.checkpoint.fencing import WentBack
from drainer.checkpoint.resume import Start
from drainer.checkpoint.store import CheckpointStore
from drainer.checkpoint.value import Checkpoint, Intent
from drainer.mysql.connection import Target, connect
from drainer.mysql.errors import SessionError, TransientError
from drainer.mysql.rows.change import COMPLETE, Position
from tests.waiting import PATIENCE_S
from tidb_binlog.errors import Conflict

CLUSTER = 7710435644538274660  # larger than 2**62, as real ones are


def opened(target: Target) -> CheckpointStore:
    return CheckpointStore(target, CLUSTER)


def stored_row(target: Target) -> dict[str, Any]:
    connection = connect(target)
    try:
        ((text,),) = connection.rows(b"SELECT checkPoint FROM tidb_binlog.checkpoint")
        document: dict[str, Any] = json.loads(text)
        return document
    finally:
        connection.close()


@pytest.mark.integration
class TestStore:
    def test_first_start_begins_at_the_initial_ts(self, target: Target) -> None:
        store = opened(target)
        start = store.start(3, 100, 900)
        assert start.checkpoint is None
        assert start.positions == (Position(100),) * 3
        assert start.safe_mode.until_ts == 0
        assert start.drained
        assert stored_row(target) == {
            "consistent": False,
            "commitTS": 100,
            "ts-map": {},
            "schema-version": 0,
            "epoch": 900,
        }
        store.close()

    def test_consistent_is_cleared_before_anything_is_written(self, target: Target) -> None:
        store = opened(target)
        store.start(2, 100, 900)
        store.settle(Checkpoint(500, True, 4, store.epoch))
        store.close()
        assert stored_row(target)["consistent"] is True
        again = opened(target)
        start = again.start(2, 100, 900)
        assert start.checkpoint == Checkpoint(500, True, 4, 900)
        assert stored_row(target)["consistent"] is False
        assert start.positions == (Position(500),) * 2
        again.close()

    def test_lanes_go_on_from_their_own_positions(self, target: Target) -> None:
        store = opened(target)
        store.start(3, 100, 900)
        connection = connect(target)
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

    def test_an_older_drainer_is_fenced_off(self, target: Target) -> None:
        older = opened(target)
        older.start(2, 100, 900)
        newer = opened(target)
        newer.start(2, 100, 900)
        connection = connect(target)
        with pytest.raises(Conflict, match="another drainer took over"):
            older.lane_table().advance(connection, 0, Position(200))
        connection.rollback()
        with pytest.raises(TransientError):  # its session was ended; this is tried again
            older.save(Checkpoint(200, False, 1, older.epoch))
        with pytest.raises(Conflict):
            older.save(Checkpoint(200, False, 1, older.epoch))
        with pytest.raises(Conflict):
            older.begin_ddl(Intent(1, 1, "x", {}))
        newer.lane_table().advance(connection, 0, Position(200))
        connection.close()
        newer.close()
        older.close()

    def test_a_lane_is_moved_from_where_it_was_left_and_from_nowhere_else(self, target: Target) -> None:
        store = opened(target)
        store.start(1, 100, 900)
        connection = connect(target)
        lanes = store.lane_table()
        for position in (Position(200), Position(200), Position(300, 5)):
            lanes.advance(connection, 0, position)
            connection.commit()
            lanes.committed.note(0, position)
        connection.run(b"UPDATE tidb_binlog.lanes SET applied_ts=250 WHERE lane=0")
        connection.commit()
        with pytest.raises(WentBack, match="lane 0 stands at 250:5, 300:5 was committed"):
            lanes.advance(connection, 0, Position(400))
        connection.close()
        store.close()

    def test_a_go_drainers_row_means_safe_mode_up_to_now(self, target: Target) -> None:
        ours = opened(target)
        ours.start(2, 100, 900)
        connection = connect(target)
        ours.lane_table().advance(connection, 0, Position(9999))
        connection.run(
            b"REPLACE INTO tidb_binlog.checkpoint VALUES (%d, "
            b'\'{"consistent":false,"commitTS":5000,"ts-map":{},"schema-version":48}\')' % CLUSTER,
        )
        connection.commit()
        ours.close()
        again = opened(target)
        start = again.start(2, 100, 7000)
        assert start.positions == (Position(5000),) * 2, "our lane rows are older than the Go drainer's work"
        assert start.safe_mode.until_ts == 7000
        again.close()
        third = opened(target)
        start = third.start(2, 100, 8000)
        assert start.safe_mode.until_ts == 7000, "a crash inside safe mode stays in safe mode"
        third.save(Checkpoint(7500, False, 48, third.epoch, safe_until=7000))
        third.close()
        connection.close()
        assert "safe-until" not in stored_row(target)

    def test_intent_survives_and_end_clears_it(self, target: Target) -> None:
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

    def test_the_row_is_never_stored_without_the_rest(self, target: Target) -> None:
        """A row ahead of our state is another program's: lanes would count for nothing."""
        older = opened(target)
        older.start(2, 100, 900)
        with pytest.raises(SessionError):  # its connection is lost in the middle
            older.together(lambda _: older.close(), checkpoint=Checkpoint(200, False, 1, older.epoch))
        assert stored_row(target)["commitTS"] == 100
        start = opened(target).start(2, 100, 900)
        assert (start.foreign, start.floor_ts) == (False, 100)

    def test_a_commit_under_way_at_the_start_of_another_counts(self, target: Target) -> None:
        """The older one's session cannot be ended here: the newer one waits for it, however long it takes."""
        older, newer = opened(target), opened(target)
        older.start(2, 100, 900)
        under_way = connect(target)  # no session of a room: nobody ends it
        older.lane_table().advance(under_way, 1, Position(500, 7))
        late = connect(target)
        late.run(b"SELECT 1")
        started: queue.Queue[Start] = queue.Queue()
        threading.Thread(target=lambda: started.put(newer.start(2, 100, 900)), daemon=True).start()
        with pytest.raises(queue.Empty):
            started.get(timeout=0.3)
        under_way.commit()
        assert started.get(timeout=PATIENCE_S).positions == (Position(100), Position(500, 7))
        with pytest.raises(Conflict):  # and what comes after it is too late
            older.lane_table().advance(late, 1, Position(600))
        late.close()
        under_way.close()
        newer.close()
