"""A lane without a server: in which order it does what, what it waits for, what it tells."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

import pytest

from drainer import metrics
from drainer.checkpoint.safe_mode import SafeMode
from drainer.mysql.connection import Target
from drainer.mysql.errors import ConnectionLost, TransientError
from drainer.mysql.mark import Mark
from drainer.mysql.rows.change import Position
from drainer.relay.relay_log import LogMark
from drainer.sink.mysql import lane as lane_module
from drainer.sink.mysql.lane import (
    PACKET_SLACK_BYTES,
    STATEMENT_BYTES_MAX,
    LaneSettings,
)
from tests.drainer.sink.mysql.lane_alone import (
    BATCH,
    KEYED,
    LOCKED,
    LOST,
    NUMBER,
    UNIQUE,
    Server,
    World,
    begun,
    made,
)
from tests.drainer.sink.mysql.lane_alone import server as server
from tests.waiting import PATIENCE_S
from tidb_binlog.clock import ManualClock
from tidb_binlog.errors import Unavailable
from tidb_binlog.status.drainer import LaneStatus

# -- batches ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "ends"),
    [
        ({}, [50]),
        ({"batch_rows": 4}, [40, 50]),
        ({"batch_rows": 3}, [30, 50]),
        ({"batch_rows": 1}, [10, 20, 30, 40, 50]),
        ({"batch_bytes": 300}, [30, 50]),
        ({"batch_bytes": 299}, [20, 40, 50]),
    ],
)
def test_what_is_queued_goes_together_up_to_a_bound(server: Server, settings: Any, ends: list[int]) -> None:
    """Each transaction has one row, of 100 bytes."""
    world = World(server, **settings)
    for number in range(5):
        world.offer(KEYED, number)
    assert [said[1] for said in world.run() if said[0] == "advance"] == ends
    assert [sequence for _, sequence, _ in world.told] == ends
    assert sum(rows for _, _, rows in world.told) == 5
    assert {number for number, _, _ in world.told} == {NUMBER}
    assert server.noted == [(NUMBER, Position(ts)) for ts in ends]


def test_a_batch_ends_before_what_the_relay_log_has_not(server: Server) -> None:
    """If it has the first of it; else nothing is there yet, and all are waited for together."""
    mark = LogMark()
    mark.reach(20)
    world = World(server, logged=mark)
    for _ in range(5):
        world.offer(KEYED, 1)
    server.before["COMMIT"] = lambda: mark.reach(50)
    assert [said[1] for said in world.run() if said[0] == "advance"] == [20, 50]
    other = World(server, logged=(late := LogMark()))
    server.said.clear()
    other.offer(KEYED, 1)
    other.offer(KEYED, 2)
    server.before = {"REPLACE": lambda: late.reach(20)}
    assert other.run() == begun("REPLACE", ("advance", 20), "COMMIT")


def test_what_it_has_not_committed_is_in_its_queue(server: Server) -> None:
    world = World(server, queue_bytes_max=200)
    lane = world.lane
    world.offer(KEYED, 1)
    assert lane.has_room
    world.offer(KEYED, 2)
    assert not lane.has_room
    assert (lane.queue_size(), lane.state().queued_bytes, lane.state().full) == (200, 200, True)
    sizes: list[int] = []
    server.before["COMMIT"] = lambda: sizes.append(lane.state().queued_bytes)
    lane.change_settings(LaneSettings(batch_rows=1, queue_bytes_max=200))
    world.run()
    assert (sizes, lane.state().queued_bytes, lane.has_room) == ([200, 100], 0, True)
    assert (lane.name, lane.daemon, lane.state().lane) == ("lane-3", True, 3)


def test_what_is_abandoned_is_not_begun(server: Server) -> None:
    world = World(server)
    world.offer(KEYED, 1)
    world.lane.abandon()
    world.lane.run()
    assert (server.said, world.told) == ([], [])


def test_a_lane_that_waits_for_work_ends_when_it_is_abandoned(server: Server) -> None:
    lane = World(server).lane
    lane.start()
    lane.abandon()
    lane.join(PATIENCE_S)
    assert not lane.is_alive()


def test_a_lane_that_waits_for_work_hears_of_it_and_of_its_end(server: Server) -> None:
    world = World(server)
    world.lane.start()
    world.offer(KEYED, 1)
    while not world.told:
        world.lane.join(0.001)
    world.lane.finish()
    world.lane.join()
    assert server.said == ["open", "claim", *BATCH, "close"]


# -- what passes by itself --------------------------------------------------------------------


def test_who_waits_for_a_lock_keeps_its_session(server: Server) -> None:
    world, lane = (world := World(server)), world.lane
    server.fails["REPLACE"] = [LOCKED, TransientError(1213, "Deadlock found")]
    states: list[LaneStatus] = []

    def look() -> None:
        world.clock.advance(2.04)
        states.append(lane.state())

    server.before["REPLACE"] = look
    world.offer(KEYED, 1)
    assert world.run() == begun("REPLACE", "ROLLBACK", "REPLACE", "ROLLBACK", *BATCH)
    assert [(state.trouble, state.waiting_s, state.tries) for state in states[1:]] == [
        ("deadlock or lock wait", 2.0, 1),
        ("deadlock or lock wait", 4.1, 2),
    ]
    assert states[0].waiting_for == lane.state().waiting_for == ""
    assert states[1].waiting_for == "1205: Lock wait timeout exceeded"
    assert states[2].waiting_for == "1213: Deadlock found"
    assert world.told == [(NUMBER, 10, 1)]


def test_another_trouble_is_told_with_its_own_time(server: Server) -> None:
    world = World(server)
    server.fails["REPLACE"] = [LOCKED, LOST]
    seen: list[Any] = []

    def look() -> None:
        world.clock.advance(2.04)
        seen.append(world.lane.state())

    server.before = {"REPLACE": look, "open": look}
    world.offer(KEYED, 1)
    world.run()
    assert [(state.trouble, state.waiting_s, state.tries) for state in seen[-2:]] == [
        ("connection lost", 2.0, 1),
        ("connection lost", 4.1, 1),
    ]


@pytest.mark.parametrize("committed", [True, False])
def test_after_a_lost_session_the_row_of_the_lane_says_what_came_of_it(
    server: Server, committed: bool
) -> None:
    world = World(server)
    server.fails["COMMIT"] = [LOST]
    server.position_is = Position(10 if committed else 0)
    world.offer(KEYED, 1)
    rest = ["position", "ROLLBACK"] if committed else ["position", *BATCH]
    assert world.run() == begun(*BATCH, "close", "open", *rest)
    assert server.noted == [(NUMBER, Position(10))]
    assert world.told == [(NUMBER, 10, 1)]


def test_a_session_that_cannot_be_rolled_back_is_not_used_again(server: Server) -> None:
    world = World(server)
    server.fails = {"REPLACE": [LOCKED], "ROLLBACK": [LOST]}
    world.offer(KEYED, 1)
    assert world.run() == begun("REPLACE", "ROLLBACK", "close", "open", "position", *BATCH)


@pytest.mark.parametrize(
    ("timeout_s", "then"),
    [
        (60.0, [60.0, 120.0, 240.0]),
        (1000.0, [1000.0, 2000.0, 3600.0]),
        (None, [None, 3600.0, 3600.0]),
    ],
)
def test_who_got_no_answer_waits_longer_the_next_time(
    server: Server, timeout_s: float | None, then: list[float | None]
) -> None:
    """It may only be slow. What comes after the batch has the time of the configuration again."""
    world = World(server, Target("h", 1, "u", "", read_timeout_s=timeout_s), batch_rows=1)
    slow = ConnectionLost(2013, "Lost connection during query")
    server.fails["REPLACE"] = [slow, slow]
    world.offer(KEYED, 1)
    world.offer(KEYED, 2)
    lost = iter((False, True))
    server.before["advance"] = lambda: next(lost) and server.fails.__setitem__("COMMIT", [LOST])
    world.run()
    assert server.timeouts == [*then, timeout_s]


def test_a_lock_is_tried_for_sooner_than_a_server_and_the_relay_log_is_waited_for_elsewhere(
    server: Server,
) -> None:
    class Noted(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            pauses.append(timeout)
            return self.is_set()

    world, pauses = World(server), list[float | None]()
    world.lane._abandoned = Noted()
    world.lane.change_settings(LaneSettings(logged=SlowMark(server, world.clock, False, True, True)))
    server.fails["REPLACE"] = [LOCKED, LOST]
    world.offer(KEYED, 1)
    world.run()
    assert pauses == [0.005 / 50, 0.05 / 50, 0]


def test_a_session_that_cannot_be_opened_is_waited_for(server: Server) -> None:
    world = World(server)
    server.fails["open"] = [Unavailable("away")]
    world.offer(KEYED, 1)
    assert world.run() == begun("open", "position", *BATCH)


def test_it_ends_while_it_waits_if_it_is_abandoned(server: Server) -> None:
    world = World(server)
    server.fails["REPLACE"] = [LOST] * 9
    server.before["REPLACE"] = world.lane.abandon
    world.offer(KEYED, 1)
    assert world.run() == begun("REPLACE")
    assert world.told == []
    assert world.lane.state().queued_bytes == 100


# -- the relay log ----------------------------------------------------------------------------


class SlowMark(LogMark):
    """`answers`: whether it is there, each time that it is waited for."""

    def __init__(self, server: Server, clock: ManualClock, *answers: bool) -> None:
        super().__init__()
        self.server, self.clock, self.answers = server, clock, list(answers)

    def wait(self, commit_ts: int, ended: threading.Event, timeout_s: float) -> bool:
        self.clock.advance(100.0)
        self.server.does("log", commit_ts)
        return self.answers.pop(0)


def test_rows_are_not_locked_while_the_relay_log_is_slow(server: Server) -> None:
    world = World(server)
    world.lane.change_settings(LaneSettings(logged=SlowMark(server, world.clock, False, False, True, True)))
    world.offer(KEYED, 1)
    wait = ("log", 10)
    assert world.run() == begun("REPLACE", wait, "ROLLBACK", wait, wait, "REPLACE", wait, *BATCH[1:])


def test_rows_that_cannot_be_taken_back_wait_for_it_first(server: Server) -> None:
    world = World(server)
    world.lane.change_settings(LaneSettings(logged=SlowMark(server, world.clock, False, True, True)))
    world.offer(KEYED, 1, into=replace(made(KEYED), repeats=True))
    wait = ("log", 10)
    assert world.run() == begun(wait, wait, "REPLACE", wait, *BATCH[1:])


def test_one_of_several_tables_may_be_such(server: Server) -> None:
    world = World(server)
    world.lane.change_settings(LaneSettings(logged=SlowMark(server, world.clock, True, True)))
    world.offer(KEYED, 1, into=replace(made(KEYED), repeats=True))
    world.offer(UNIQUE, 1, into=replace(made(UNIQUE), fold_id=99))
    assert world.run()[1] == ("log", 20)


def test_what_the_relay_log_takes_is_no_time_of_the_downstream(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, took_s = World(server), list[float]()
    monkeypatch.setattr(metrics.QUERY_SECONDS.labels("exec"), "observe", took_s.append)
    monkeypatch.setattr(metrics.EXECUTE_SECONDS, "observe", took_s.append)
    world.lane.change_settings(LaneSettings(logged=SlowMark(server, world.clock, False, False, True, True)))
    world.offer(KEYED, 1)
    world.run()
    assert took_s == [0.0, 0.0]


def test_an_abandoned_lane_does_not_wait_for_it(server: Server) -> None:
    world = World(server, logged=LogMark())
    server.before["REPLACE"] = world.lane.abandon
    world.offer(KEYED, 1)
    assert "COMMIT" not in world.run()
    assert world.told == []


# -- drift ------------------------------------------------------------------------------------


def test_what_was_not_as_it_should_be_is_counted_once_it_is_committed(server: Server) -> None:
    world = World(server)
    server.affects["DELETE"] = [0, 1]
    server.fails["COMMIT"] = [LOST]
    counted: list[dict[str, int]] = []
    server.before["COMMIT"] = lambda: counted.append(world.drift.rows())
    world.offer(KEYED, gone=(1, 2))
    world.run()
    assert counted == [{}, {}]
    assert world.drift.rows() == {"d.t": 1}, "of the attempt that was committed"


def test_a_strict_lane_stops_before_the_commit(server: Server) -> None:
    world = World(server, strict=True)
    server.affects["DELETE"] = [1]
    world.offer(KEYED, gone=(1, 2))
    assert "COMMIT" not in world.run()
    assert "table d.t is not as upstream's: 1 rows" in world.error.message
    assert world.drift.rows() == {}


def test_in_safe_mode_rows_may_be_there_already(server: Server) -> None:
    world = World(server, strict=True)
    world.lane.safe_mode = SafeMode(10)
    server.affects["DELETE"] = [0]
    world.offer(KEYED, gone=(1,))
    world.run()
    assert world.told == [(NUMBER, 10, 1)]


def test_a_text_that_the_column_cannot_hold_is_counted(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    made_ = lane_module.statements

    def with_text(*of: Any, **more: Any) -> Any:
        return [replace(one, foreign_text=(("v", 2),)) for one in made_(*of, **more)]

    monkeypatch.setattr(lane_module, "statements", with_text)
    world = World(server)
    world.offer(KEYED, 1)
    world.run()
    assert world.drift.texts() == {"d.t": {"v": 2}}


# -- sizes ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("packet", "most"), [(1 << 24, STATEMENT_BYTES_MAX), (10_000, 10_000 - PACKET_SLACK_BYTES)]
)
def test_statements_are_as_long_as_the_session_takes(
    server: Server, monkeypatch: pytest.MonkeyPatch, packet: int, most: int
) -> None:
    server.packet, sizes, cuts = packet, list[int](), list[Any]()
    made_ = lane_module.statements

    def noted(folds: Any, bytes_max: int, **how: bool) -> Any:
        sizes.append(bytes_max)
        cuts.append(how)
        return made_(folds, bytes_max, **how)

    monkeypatch.setattr(lane_module, "statements", noted)
    world = World(server)
    world.offer(KEYED, 1)
    world.run()
    assert (sizes, cuts) == ([most], [{"replaying": False, "cut": False, "removes_new": False}])


@pytest.mark.parametrize("more", [-1, 0, 1])
def test_what_is_too_long_for_the_session_is_not_sent(server: Server, more: int) -> None:
    sent: list[int] = []
    server.before["REPLACE"] = lambda: None
    world = World(server)
    world.offer(KEYED, 1)
    run = server.run
    server.run = lambda sql: (sent.append(len(sql)), run(sql))[1]  # type: ignore[method-assign]
    world.run()
    (size,) = sent
    other, server.packet = World(server), size + more
    server.packet_globally = size + more
    sent.clear()
    other.offer(KEYED, 1)
    other.run()
    assert bool(sent) is (more == 1)
    if more < 1:
        assert f"needs a statement of {size + 1} bytes, max_allowed_packet" in other.error.message
        assert f"is {size + more}" in other.error.message


def test_a_limit_that_was_raised_counts_from_the_next_session_on(server: Server) -> None:
    sent: list[int] = []
    run = server.run
    server.run = lambda sql: (sent.append(len(sql)), run(sql))[1]  # type: ignore[method-assign]
    (before := World(server)).offer(KEYED, 1)
    before.run()
    server.said.clear()
    server.timeouts.clear()
    server.packet, server.packet_globally = 10, sent[0] + 1
    world = World(server)
    states: list[Any] = []

    def raised() -> None:
        if len(server.timeouts) == 2:
            server.packet = 1 << 24
            states.append(world.lane.state())

    server.before["open"] = raised
    world.offer(KEYED, 1)
    assert world.run() == begun("close", "open", *BATCH)
    assert [(state.trouble, state.waiting_for) for state in states] == [
        ("connection lost", "max_allowed_packet was raised")
    ]


def test_a_lane_marks_its_transactions_as_its_own(server: Server) -> None:
    world = World(server, Target("h", 1, "u", "", mark=Mark(5)))
    world.offer(KEYED, 1)
    world.run()
    assert server.marks == [Mark(5, NUMBER)]
