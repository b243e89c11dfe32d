"""What a frozen drainer left downstream is ended by its successor, and only that."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from drainer.checkpoint.store import CheckpointStore
from drainer.checkpoint.value import Checkpoint
from drainer.mysql import session_lock
from drainer.mysql.connection import Connection, Target, connect
from drainer.mysql.errors import SessionError
from drainer.mysql.rows.change import Position
from drainer.mysql.session_lock import Claims
from tests.waiting import PATIENCE_S, until_here
from tidb_binlog.errors import Conflict, Unavailable

pytestmark = pytest.mark.integration

CLUSTER = 77
NAME = Claims("tidb_binlog", CLUSTER).name("room")


def is_alive(connection: Connection) -> bool:
    try:
        connection.run(b"SELECT 1")
    except SessionError:
        return False
    return True


def test_names_fit_and_tell_clusters_schemas_and_rooms_apart() -> None:
    names = {
        Claims(schema, cluster).name(room)
        for schema in ("a", "b" * 64)
        for cluster in (1, (1 << 64) - 1)
        for room in (0, 255, session_lock.STORE, session_lock.DDL, session_lock.RELEASE)
    }
    assert len(names) == 20
    assert max(map(len, names)) <= 64


def test_a_name_is_one_sessions_until_it_ends(target: Target) -> None:
    first, second = connect(target), connect(target)
    assert session_lock.claim(first, NAME)
    assert not session_lock.claim(second, NAME)
    assert session_lock.end(first, [NAME]) == []  # its own
    assert session_lock.end(second, [NAME, "nobody-has-this"]) == [first.thread_id()]  # type: ignore[no-untyped-call]
    assert not is_alive(first)
    assert session_lock.claim(second, NAME, wait_s=int(PATIENCE_S)), "once the server has given it up"
    assert is_alive(second)
    second.close()


def test_a_statement_that_runs_is_waited_for_and_an_idle_session_ended(target: Target) -> None:
    older, newer, third = (connect(target) for _ in range(3))
    session_lock.claim(older, NAME)
    session_lock.claim(third, "the statement ends")
    running = threading.Thread(
        target=session_lock.claim, args=(older, "the statement ends"), kwargs={"wait_s": 600}
    )
    running.start()
    while not newer.rows(b"SELECT ID FROM information_schema.PROCESSLIST WHERE STATE='User lock'"):
        pass
    with pytest.raises(Unavailable, match="still runs"):
        session_lock.succeed(newer, NAME)
    third.run(b"DO RELEASE_ALL_LOCKS()")
    running.join()
    until_here(lambda: session_lock.end_if_idle(newer, NAME), "the server knows that the statement is over")
    session_lock.succeed(newer, NAME)
    assert not is_alive(older)
    assert not session_lock.claim(third, NAME), "the name is the successor's now"
    third.close()
    newer.close()


def test_a_transaction_that_was_left_open_holds_nobody_up(target: Target) -> None:
    """As a process leaves it that is frozen between its last statement and COMMIT."""
    older = CheckpointStore(target, CLUSTER)
    older.start(2, 100, 900)
    frozen = connect(target)
    older.lane_table().claim(frozen, 1)
    older.lane_table().advance(frozen, 1, Position(500))
    store = older.session.open()
    store.run(b"UPDATE tidb_binlog.drainer_state SET epoch=epoch WHERE cluster_id=%d" % CLUSTER)
    newer = CheckpointStore(target, CLUSTER)
    began = threading.Event()

    def start() -> None:
        newer.start(2, 100, 900)
        began.set()

    threading.Thread(target=start, daemon=True).start()
    assert began.wait(PATIENCE_S), "the successor waits for locks of the frozen one"
    assert newer.epoch == older.epoch + 1
    with pytest.raises(SessionError):
        frozen.commit()  # woken up: what it had not committed is gone
    connection = connect(target)
    assert newer.lane_table().position(connection, 1) == Position(100)
    again = connect(target)
    with pytest.raises(Conflict):
        older.lane_table().claim(again, 1)
    for each in (connection, again):
        each.close()
    newer.close()


def test_a_store_that_connected_again_can_be_ended_too(target: Target) -> None:
    """By a successor, and by its own next session: the row of the state is locked in the lost one."""
    older = CheckpointStore(target, CLUSTER)
    older.start(2, 100, 900)
    older.close()
    older.save(Checkpoint(200, False, 1, older.epoch))
    for _ in range(2):
        lost = older.session.open()
        lost.run(b"UPDATE tidb_binlog.drainer_state SET epoch=epoch WHERE cluster_id=%d" % CLUSTER)
        older.session.current = None
        within(PATIENCE_S, lambda: older.save(Checkpoint(300, False, 1, older.epoch)))
        assert not is_alive(lost)
    older.session.open().run(b"UPDATE tidb_binlog.drainer_state SET epoch=epoch")
    newer = CheckpointStore(target, CLUSTER)
    within(PATIENCE_S, lambda: newer.start(2, 100, 900))
    frozen = older.session.open()
    assert not is_alive(frozen)
    older.close()
    with pytest.raises(Conflict):
        older.save(Checkpoint(400, False, 1, older.epoch))
    newer.save(Checkpoint(400, False, 1, newer.epoch))
    assert is_alive(newer.session.open()), "who was fenced off ends nobody's session"
    newer.close()


def within(seconds: float, work: Callable[[], object]) -> None:
    done = threading.Event()
    threading.Thread(target=lambda: (work(), done.set()), daemon=True).start()
    assert done.wait(seconds), "it waits for locks of a lost session"


def test_a_woken_drainer_runs_no_ddl(target: Target) -> None:
    """Frozen after its intent was stored and before the statement was sent."""
    older = CheckpointStore(target, CLUSTER)
    older.start(1, 100, 900)
    idle = connect(target)
    older.guard_ddl(idle)
    newer = CheckpointStore(target, CLUSTER)
    newer.start(1, 100, 900)
    with pytest.raises(SessionError):
        idle.run(b"CREATE DATABASE woken")
    again = connect(target)
    with pytest.raises(Conflict):
        older.guard_ddl(again)
    newer.guard_ddl(again)
    assert not again.rows(b"SHOW DATABASES LIKE 'woken'")
    again.close()
    newer.close()
