"""What the downstream confirmed, held against what a server has: the rules, then real sessions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import pytest

from drainer.checkpoint.fencing import WentBack
from drainer.checkpoint.inspection import inspect
from drainer.checkpoint.lane_table import Committed
from drainer.checkpoint.store import CheckpointStore
from drainer.checkpoint.value import Checkpoint, Intent
from drainer.ddl.quarantine.entry import Entry, Floor
from drainer.ddl.quarantine.store import QuarantineTable, ReleaseTable
from drainer.mysql.connection import Target, connect
from drainer.mysql.rows.change import Position
from tidb_binlog.errors import Conflict

CLUSTER = 41
TABLES = ("checkpoint", "drainer_state", "lanes", "quarantine", "ddl_decisions")


# -- the rules ---------------------------------------------------------------------------------------------


def test_where_all_lanes_were_put_is_where_they_are() -> None:
    committed = Committed([Position(1), Position(2), Position(3)])
    committed.note(1, Position(9))
    assert committed.of(1) == Position(9)
    committed.note_write(4, [Position(10)] * 2)
    assert committed.positions() == {0: Position(10), 1: Position(10)}
    committed.note_write(5)
    assert (committed.writes, committed.of(0), committed.of(2)) == (5, Position(10), None)


# -- sessions ----------------------------------------------------------------------------------------------


class Server:
    """A real one that can be put back to where it was when `keep` was called."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.admin = connect(target)

    def run(self, statement: str) -> list[tuple[Any, ...]]:
        found = self.admin.rows(statement.encode())
        self.admin.commit()
        return found

    def there(self) -> list[str]:
        found = self.run("SELECT TABLE_NAME FROM information_schema.TABLES WHERE TABLE_SCHEMA='tidb_binlog'")
        return [name for (name,) in found if name in TABLES]

    def keep(self) -> None:
        self.run("DROP DATABASE IF EXISTS kept")
        self.run("CREATE DATABASE kept")
        for name in self.there():
            self.run(f"CREATE TABLE kept.{name} AS SELECT * FROM tidb_binlog.{name}")

    def put_back(self) -> None:
        kept = {name for (name,) in self.run("SHOW TABLES FROM kept")}
        for name in self.there():
            self.run(f"DELETE FROM tidb_binlog.{name}")
            if name in kept:
                self.run(f"INSERT INTO tidb_binlog.{name} SELECT * FROM kept.{name}")

    def stored(self) -> dict[str, Any]:
        return {
            name: sorted(map(repr, self.run(f"SELECT * FROM tidb_binlog.{name}"))) for name in self.there()
        }


@pytest.fixture
def server(target: Target) -> Iterator[Server]:
    server = Server(target)
    yield server
    server.run("DROP DATABASE IF EXISTS kept")
    server.admin.close()


NOW = count(900, 10)  # timestamps are drawn once


def began(server: Server, lanes: int = 2) -> CheckpointStore:
    store = CheckpointStore(server.target, CLUSTER)
    store.start(lanes, 100, next(NOW))
    return store


def saved(store: CheckpointStore, commit_ts: int) -> None:
    store.save(Checkpoint(commit_ts, False, 1, store.epoch))


def lane_commits(store: CheckpointStore, lane: int, position: Position) -> None:
    connection = connect(store.session.target)
    table = store.lane_table()
    table.claim(connection, lane)
    table.advance(connection, lane, position)
    connection.commit()
    table.committed.note(lane, position)
    connection.close()


WRITES: dict[str, Callable[[CheckpointStore], None]] = {
    "save": lambda store: saved(store, 300),
    "begin_ddl": lambda store: store.begin_ddl(
        Intent(301, 1, "x", {}), Checkpoint(300, False, 1, store.epoch)
    ),
    "end_ddl": lambda store: store.end_ddl(Checkpoint(300, False, 1, store.epoch)),
    "settle": lambda store: store.settle(Checkpoint(300, True, 1, store.epoch)),
    "resize": lambda store: store.resize(5, Position(300)),
    "together": lambda store: store.together(lambda connection: None, lanes_at=300),
}
LOST: dict[str, Callable[[CheckpointStore], None]] = {
    **WRITES,
    "a lane's commit": lambda store: lane_commits(store, 1, Position(300)),
    "a part of one": lambda store: lane_commits(store, 1, Position(300, 4)),
    "the start itself": lambda store: None,
}


@pytest.mark.integration
@pytest.mark.parametrize("same_session", [True, False])
@pytest.mark.parametrize("lost", LOST)
def test_whatever_was_lost_nothing_is_written_any_more(server: Server, lost: str, same_session: bool) -> None:
    first = began(server)
    saved(first, 200)
    if lost == "the start itself":
        server.keep()
        first.close()
        store = began(server)
    else:
        store = first
        server.keep()
    LOST[lost](store)
    lane = connect(server.target)
    lanes = store.lane_table()
    server.put_back()
    before = server.stored()
    if not same_session:
        store.close()
        with pytest.raises(WentBack):
            store.session.open()
    for name, write in WRITES.items():
        with pytest.raises(Conflict) as raised:
            write(store)
        assert isinstance(raised.value, WentBack), name
        assert server.stored() == before, name
    if lanes.committed.of(1) != Position(100) or lost == "the start itself":
        with pytest.raises(WentBack):
            lanes.advance(lane, 1, Position(400))
    with pytest.raises(WentBack):
        store.hold()  # on a quiet day, too
    ddl = connect(server.target)
    with pytest.raises(WentBack):
        store.guard_ddl(ddl)
    assert server.stored() == before
    lane.close()
    ddl.close()
    store.close()
    again = CheckpointStore(server.target, CLUSTER)
    assert again.start(2, 100, next(NOW)).floor_ts == 200, "a start goes on from what is stored"
    assert again.epoch > store.epoch
    again.close()


@pytest.mark.integration
def test_what_lanes_committed_elsewhere_is_in_no_checkpoint_here(server: Server) -> None:
    """The store's session is on the replica already, a lane still commits on the old server."""
    store = began(server)
    saved(store, 200)
    store.lane_table().committed.note(1, Position(250))  # its answer came, from the other server
    with pytest.raises(WentBack, match=r"lane 1 stands at 100, 250 was committed"):
        saved(store, 250)
    store.close()


@pytest.mark.integration
def test_a_commit_whose_answer_was_lost_is_no_alarm(server: Server) -> None:
    store = began(server)
    for name, write in WRITES.items():
        last = store._committed.positions(), store._committed.writes
        write(store)
        store._committed.note_write(last[1], last[0].values())  # as if nobody had told
        store.close()
        write(store)
        assert store._committed.writes == last[1] + 1, name
    store.close()


@pytest.mark.integration
def test_an_emptied_downstream_is_told_as_well(server: Server) -> None:
    store = began(server)
    connection = connect(server.target)
    server.run("DROP DATABASE tidb_binlog")
    with pytest.raises(WentBack, match="it has nothing of this cluster"):
        store.lane_table().claim(connection, 0)
    store.close()
    with pytest.raises(WentBack):
        saved(store, 200)
    assert inspect(server.target, "tidb_binlog", CLUSTER).is_empty
    connection.close()


def entry(job_id: int, position: Position) -> Entry:
    return Entry(
        job_id=job_id,
        commit_ts=200,
        floor=Floor(199, 1),
        tables={("d", f"t{job_id}"): 200},
        position=position,
        query="x",
        reason="y",
        since_ms=0,
        before={},
    )


@pytest.mark.integration
@pytest.mark.parametrize("lost", ["its first entry", "its second entry", "its own commit"])
def test_release_looks_at_every_entry_of_its_queue(server: Server, lost: str) -> None:
    store = began(server)
    table = QuarantineTable("tidb_binlog", CLUSTER, store.epoch)
    at = {1: Position(210), 2: Position(300, 7)}
    store.together(lambda connection: table.claim_entries(connection, foreign=False) and None)
    store.together(lambda connection: [table.put(connection, entry(job, at[job])) for job in at] and None)
    lanes = ReleaseTable(
        "tidb_binlog", CLUSTER, store.epoch, table, [(job, at[job]) for job in at], committed=Committed()
    )
    connection = connect(server.target)
    lanes.claim(connection, 1 << 16)
    if lost == "its own commit":
        lanes.advance(connection, 1 << 16, Position(250))
        connection.commit()
        lanes.committed.note(1 << 16, Position(250))
        lanes.check(connection, 1 << 16)
    job = 2 if lost == "its second entry" else 1
    server.run(f"UPDATE tidb_binlog.quarantine SET applied_ts=205, applied_rows=-1 WHERE job_id={job}")
    with pytest.raises(WentBack, match=f"waiting DDL job {job} stands at 205"):
        lanes.check(connection, 1 << 16)
    with pytest.raises(WentBack):
        lanes.advance(connection, 1 << 16, Position(400))
    connection.close()
    store.close()
