"""Sessions of a snapshot: who dies, who waits, and when T is gone."""

from __future__ import annotations

import threading

import pytest

from drainer.mysql.errors import ConnectionLost, StatementRefused
from drainer.points.snapshot.sessions import SnapshotLost, SnapshotSessions, SnapshotTooOld
from tests.waiting import PATIENCE_S

MARKED = [b"SAVEPOINT binlog_block", b"ROLLBACK TO SAVEPOINT binlog_block"]


class Session:
    def __init__(self) -> None:
        self.open = True
        self.said: list[bytes] = []
        self.dead = False

    def run(self, statement: bytes) -> int:
        if self.dead:
            raise ConnectionLost(2013, "lost")
        self.said.append(statement)
        return 0

    def close(self) -> None:
        self.open = False

    def cut(self) -> None:
        self.dead = True


def fixed(*sessions: Session) -> SnapshotSessions:
    return SnapshotSessions(sessions, what="the past")  # type: ignore[arg-type]


def test_no_definition_is_locked_between_two_blocks() -> None:
    one = Session()
    pool = fixed(one)
    for _ in range(2):
        with pool.session() as got:
            assert got is one
            assert one.said[-1] == MARKED[0]
    assert one.said == MARKED * 2


def test_the_others_go_on_without_one_that_died_and_with_the_last_one_t_is_gone() -> None:
    first, last = Session(), Session()
    pool = fixed(first, last)
    for one in (last, first):
        with pytest.raises(ConnectionLost), pool.session():
            raise ConnectionLost(2013, "server went away")
        assert not one.open
    lost = pytest.raises(SnapshotLost, match="the past cannot be read any more: 2013: server went away")
    with lost, pool.session():
        pytest.fail("nothing is left")


def test_one_that_died_unnoticed_is_given_up_when_it_is_given_back() -> None:
    one, other = Session(), Session()
    pool = fixed(other, one)
    with pool.session() as got:
        assert got is one
        one.dead = True
    assert not one.open
    with pool.session() as got:
        assert got is other


def test_an_error_of_the_block_costs_no_session() -> None:
    pool = fixed(Session())
    for error in (ValueError("mine"), StatementRefused(1054, "Unknown column"), KeyError("k")):
        with pytest.raises(type(error)), pool.session():
            raise error
    with pool.session() as got:
        assert got.open


def test_a_block_that_is_left_half_read_costs_its_session() -> None:
    one = Session()
    pool = fixed(one)
    with pytest.raises(KeyboardInterrupt), pool.session():
        raise KeyboardInterrupt
    assert not one.open


def test_a_table_that_was_altered_cannot_be_read_at_t_any_more() -> None:
    lost = pytest.raises(SnapshotLost, match="a table was altered after that moment: 1412")
    with lost as raised, fixed(Session()).session():
        raise StatementRefused(1412, "Table definition has changed")
    assert "same command" in raised.value.hint


@pytest.mark.parametrize("number", [8055, 9006])
def test_what_was_collected_is_said(number: int) -> None:
    with pytest.raises(SnapshotTooOld, match="the past is collected"), fixed(Session()).session():
        raise StatementRefused(number, "GC life time is shorter than transaction duration")


def test_sessions_are_opened_again_where_that_is_possible() -> None:
    made: list[Session] = []

    def reopen() -> Session:
        made.append(Session())
        return made[-1]

    pool = SnapshotSessions(what="the past", reopen=reopen, count=1)  # type: ignore[arg-type]
    assert made == []
    with pytest.raises(ConnectionLost), pool.session():
        raise ConnectionLost(2013, "lost")
    with pool.session() as got:
        assert got is made[1]
        assert got.said == []  # it has a past, so definitions are not held
    with pool.session() as got:
        assert got is made[1]
    assert not made[0].open


def test_one_that_cannot_be_opened_again_now_is_tried_the_next_time() -> None:
    ways = [ConnectionLost(2003, "away"), None]

    def reopen() -> Session:
        if (error := ways.pop(0)) is not None:
            raise error
        return Session()

    pool = SnapshotSessions(what="the past", reopen=reopen, count=1)  # type: ignore[arg-type]
    with pytest.raises(ConnectionLost), pool.session():
        pass
    with pool.session() as got:
        assert got.open


def test_who_finds_none_free_waits_for_one() -> None:
    one = Session()
    pool = fixed(one)
    seen: list[Session] = []

    def wait() -> None:
        with pool.session() as got:
            seen.append(got)  # type: ignore[arg-type]

    waiting = threading.Thread(target=wait)
    with pool.session():
        waiting.start()
        assert seen == []
    waiting.join(PATIENCE_S)
    assert seen == [one]


def test_closing_ends_idle_sessions_now_and_others_after_their_block() -> None:
    busy, idle = Session(), Session()
    pool = fixed(idle, busy)
    with pool.session() as got:
        assert got is busy
        pool.close()
        assert (busy.open, idle.open) == (True, False)
    assert not busy.open
    with pytest.raises(SnapshotLost, match="closed"), pool.session():
        pytest.fail("it is closed")


def test_cutting_tells_who_waits_for_an_answer_and_gives_out_no_more() -> None:
    one, two = Session(), Session()
    pool = fixed(one, two)
    waits = pool.session()
    waits.__enter__()
    pool.cut()
    with pytest.raises(ConnectionLost):
        two.run(b"SELECT 1")
    waits.__exit__(None, None, None)
    assert [one.open, two.open] == [False, False]
    with pytest.raises(SnapshotLost), pool.session():
        pass


def test_one_that_is_opened_while_all_are_cut_is_cut_too() -> None:
    made = Session()

    def reopen() -> Session:
        pool.cut()
        return made

    pool = SnapshotSessions(what="the past", reopen=reopen, count=1)  # type: ignore[arg-type]
    with pytest.raises(ConnectionLost), pool.session() as waits:
        waits.run(b"SELECT 1")
    assert not made.open
