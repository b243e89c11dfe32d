"""A lane against a real MariaDB: what passes by itself is waited for, the rest is refused with names."""

from __future__ import annotations

import logging
import queue
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from binlog_playground.cluster.mariadb import MariaDbServer
from drainer.checkpoint.lane_table import LaneTable
from drainer.checkpoint.store import CheckpointStore
from drainer.mysql import session_lock
from drainer.mysql.connection import Connection, Target, connect
from drainer.mysql.errors import ConnectionLost, SessionError, StatementRefused
from drainer.mysql.refusal import RowsRefused
from drainer.mysql.rows.change import Position, TableTarget
from drainer.mysql.rows.column_match import PARTIAL
from drainer.mysql.rows.table_target import target_of
from drainer.mysql.table_reader import read_table
from drainer.relay.relay_log import LogMark
from drainer.sink.mysql import lane
from drainer.sink.mysql.dispatcher import Dispatcher
from drainer.sink.mysql.lane import Lane, LaneSettings
from drainer.sink.row_mismatch import Drift
from drainer.txn import DELETE, INSERT, UPDATE, TableEvents, TableVersion, Transaction
from tests.common.rowcodec.tables import index, key, kind, table
from tests.waiting import PATIENCE_S, until_here
from tidb_binlog.clock import Clock, SystemClock
from tidb_binlog.errors import BinlogError, DownstreamError
from tidb_binlog.rowcodec.encoder import RowEncoder
from tidb_binlog.status.codec import plain
from tidb_binlog.table_info import TableInfo

pytestmark = pytest.mark.integration

CLUSTER = 99
SCHEMA = "lane_test"
INT_KEY = table(("id", key("int")), ("v", kind("int")), ("s", kind("varchar", flen=20)))
UNIQUE = replace(INT_KEY, indexes=(index(2, ("v", 1)),))
KEYLESS = table(("v", kind("int")), ("s", kind("varchar", flen=20)), handle="rowid")


@dataclass
class World:
    """A lane with its tables; events go in as transactions, what becomes of them comes out of a queue."""

    target: Target
    admin: Connection
    lane_table: LaneTable
    drift: Drift = field(default_factory=lambda: Drift(SystemClock()))
    results: queue.Queue[Any] = field(default_factory=queue.Queue)
    lane: Lane | None = None
    ts: int = 1000

    def run(self, statement: str) -> Any:
        found = self.admin.rows(statement.encode())
        self.admin.commit()
        return found

    def start(self, target: Target | None = None, *, clock: Clock | None = None, **settings: Any) -> Lane:
        self.lane = Lane(
            0,
            target or self.target,
            self.lane_table,
            LaneSettings(drift=self.drift, **settings),
            clock or SystemClock(),
            lambda lane, sequence, rows: self.results.put(sequence),
            lambda lane, error: self.results.put(error),
        )
        self.lane.start()
        return self.lane

    def offer(self, target: TableTarget, *events: tuple[int, bytes]) -> None:
        assert self.lane is not None
        self.ts += 10
        lanes = Dispatcher([Position(0)])
        lanes.learn(target)
        kinds, rows = [kind for kind, _ in events], [row for _, row in events]
        tables = (TableEvents(target.version, kinds, rows, 0),)
        lanes.dispatch(Transaction(self.ts - 1, self.ts, tables, 1))
        for _, chunk in lanes.take():
            self.lane.offer(replace(chunk, sequence=self.ts))

    def committed(self) -> None:
        found = self.results.get(timeout=PATIENCE_S)
        assert found == self.ts, found

    def refused(self) -> BinlogError:
        found = self.results.get(timeout=PATIENCE_S)
        assert isinstance(found, BinlogError), found
        return found

    def executed(self, name: str) -> None:
        """Until the table has a row that is not committed."""
        self.run("SET SESSION TRANSACTION ISOLATION LEVEL READ UNCOMMITTED")
        until_here(lambda: self.rows(name))
        self.run("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
        assert not self.rows(name)

    def waits(self, trouble: str) -> dict[str, Any]:
        """Until the lane says so."""
        assert self.lane is not None
        lane = self.lane

        def troubled() -> dict[str, Any]:
            assert self.results.empty(), self.results.get()
            state = plain(lane.state())
            return state if state.get("trouble") == trouble else {}

        return until_here(troubled, f"the lane meets {trouble!r}")

    def made(self, info: TableInfo, name: str, ddl: str, **settings: Any) -> TableTarget:
        self.run(f"CREATE TABLE {SCHEMA}.{name} ({ddl})")
        return self.seen(info, name, **settings)

    def seen(self, info: TableInfo, name: str, **settings: Any) -> TableTarget:
        found = read_table(self.admin, SCHEMA, name)
        return target_of(TableVersion(info, SCHEMA, name, 1), 1, found, **settings)

    def rows(self, name: str) -> list[tuple[Any, ...]]:
        return sorted(self.run(f"SELECT * FROM {SCHEMA}.{name}"))


@pytest.fixture
def world(mariadb: MariaDbServer) -> Iterator[World]:
    target = Target(mariadb.host, mariadb.port, mariadb.user, mariadb.password)
    admin = connect(target)
    admin.run(f"DROP DATABASE IF EXISTS {SCHEMA}".encode())
    admin.run(f"CREATE DATABASE {SCHEMA}".encode())
    store = CheckpointStore(target, CLUSTER, schema=SCHEMA)
    store.start(1, 1, 1)
    made = World(target, admin, store.lane_table())
    yield made
    if made.lane is not None:
        made.lane.abandon()
        made.lane.join(PATIENCE_S)
    store.close()
    admin.run(f"DROP DATABASE {SCHEMA}".encode())
    admin.close()


def insert(info: TableInfo, *values: Any, rowid: int = 1) -> tuple[int, bytes]:
    return INSERT, RowEncoder(info).insert(values, rowid=rowid)


def update(info: TableInfo, old: tuple[Any, ...], new: tuple[Any, ...]) -> tuple[int, bytes]:
    return UPDATE, RowEncoder(info).update(old, new, rowid=1)


def delete(info: TableInfo, *values: Any) -> tuple[int, bytes]:
    return DELETE, RowEncoder(info).delete(values, rowid=1)


INT_DDL = "id INT PRIMARY KEY, v INT, s VARCHAR(20)"


@pytest.mark.parametrize("unique", [False, True])
def test_a_batch_that_an_engine_without_transactions_kept_a_part_of_comes_again(
    world: World, unique: bool
) -> None:
    info = UNIQUE if unique else INT_KEY
    world.made(info, "t", INT_DDL + (", UNIQUE KEY uv(v)" if unique else ""))
    world.run(f"ALTER TABLE {SCHEMA}.t ENGINE=Aria")
    target = world.seen(info, "t")
    world.run(f"INSERT INTO {SCHEMA}.t VALUES (9, 9, 'old'), (8, 8, 'gone')")
    events = [
        insert(info, 1, 10, "a"),
        insert(info, 2, 20, "b"),
        update(info, (9, 9, "old"), (9, 90, "new")),
        delete(info, 8, 8, "gone"),
    ]
    # A crash left these there: the position was rolled back, the rows were not.
    world.run(f"DELETE FROM {SCHEMA}.t WHERE id = 8")
    world.run(f"INSERT INTO {SCHEMA}.t VALUES (1, 10, 'a')")
    world.run(f"UPDATE {SCHEMA}.t SET v=90, s='new' WHERE id = 9")
    world.start(strict=True)
    world.offer(target, *events)
    world.committed()
    assert world.rows("t") == [(1, 10, "a"), (2, 20, "b"), (9, 90, "new")]


def test_a_column_dropped_behind_our_back_is_left_out_in_partial_mode(world: World) -> None:
    target = world.made(INT_KEY, "t", INT_DDL)
    world.start(sync_mode=PARTIAL)
    world.offer(target, insert(INT_KEY, 1, 2, "a"))
    world.committed()
    world.run(f"ALTER TABLE {SCHEMA}.t DROP COLUMN v")
    world.offer(target, insert(INT_KEY, 2, 3, "b"))
    world.committed()
    world.offer(target, insert(INT_KEY, 3, 4, "c"))
    world.committed()
    assert world.rows("t") == [(1, "a"), (2, "b"), (3, "c")]


def test_and_refused_with_its_name_in_full_mode(world: World) -> None:
    target = world.made(INT_KEY, "t", INT_DDL)
    world.run(f"ALTER TABLE {SCHEMA}.t DROP COLUMN v")
    world.start()
    world.offer(target, insert(INT_KEY, 1, 2, "a"))
    text = str(world.refused())
    assert f"commit_ts {world.ts}: table lane_test.t has no column v downstream" in text


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ("ADD COLUMN x INT NOT NULL", (1, 2, "a", 0)),
        ("DROP COLUMN v, ADD COLUMN v INT AS (id + 5) STORED", (1, "a", 6)),
    ],
)
def test_a_column_that_needs_a_value_or_computes_it_is_learnt_of(
    world: World, change: str, expected: tuple[Any, ...]
) -> None:
    target = world.made(INT_KEY, "t", INT_DDL)
    world.run(f"ALTER TABLE {SCHEMA}.t {change}")
    world.start(sync_mode=PARTIAL)
    world.offer(target, insert(INT_KEY, 1, 2, "a"))
    world.committed()
    assert world.rows("t") == [expected]


def test_a_table_that_is_gone_is_named(world: World) -> None:
    target = world.made(INT_KEY, "t", INT_DDL)
    world.run(f"DROP TABLE {SCHEMA}.t")
    world.start()
    world.offer(target, insert(INT_KEY, 1, 2, "a"))
    error = world.refused()
    assert f"commit_ts {world.ts}: table lane_test.t does not exist downstream" in str(error)
    assert error.exit_code == 7


def test_a_duplicate_names_transactions_table_and_key_but_no_value(world: World) -> None:
    target = world.made(UNIQUE, "t", INT_DDL + ", UNIQUE KEY uv(v)")
    world.run(f"INSERT INTO {SCHEMA}.t VALUES (7, 424242, 'mine')")
    world.start()
    world.offer(target, insert(UNIQUE, 1, 424242, "a"))
    text = str(world.refused())
    assert f"transaction with commit_ts {world.ts} to lane_test.t (key id)" in text
    assert "1062: Duplicate entry '...' for key 'uv'" in text
    assert "424242" not in text
    world.start(log_values=True)
    world.offer(target, insert(UNIQUE, 1, 424242, "a"))
    assert "424242" in str(world.refused())
    assert world.rows("t") == [(7, 424242, "mine")]


def test_a_value_that_does_not_fit_is_refused_and_nothing_of_its_batch_stays(world: World) -> None:
    target = world.made(INT_KEY, "t", "id INT PRIMARY KEY, v TINYINT, s VARCHAR(20)")
    world.start()
    world.offer(target, insert(INT_KEY, 1, 5, "a"), insert(INT_KEY, 2, 1000, "b"))
    assert "1264" in str(world.refused())
    assert world.rows("t") == []


def test_drift_is_counted_and_told_once_a_minute(world: World, caplog: pytest.LogCaptureFixture) -> None:
    target = world.made(INT_KEY, "t", INT_DDL)
    world.start()
    with caplog.at_level(logging.WARNING):
        for number in range(3):
            world.offer(target, delete(INT_KEY, number, 0, "a"))
            world.committed()
        world.run(f"INSERT INTO {SCHEMA}.t VALUES (9, 0, 'mine')")
        world.offer(target, insert(INT_KEY, 9, 1, "a"))
        world.committed()
    assert world.drift.rows() == {"lane_test.t": 4}
    assert world.rows("t") == [(9, 1, "a")]
    assert sum("not as expected" in record.message for record in caplog.records) == 1


def test_a_row_that_was_there_goes_with_one_that_came_and_went(world: World) -> None:
    """TiDB says INSERT of a row that LOAD DATA ... REPLACE leaves as it is."""
    target = world.made(INT_KEY, "t", INT_DDL)
    world.run(f"INSERT INTO {SCHEMA}.t VALUES (9, 0, 'a')")
    world.start()
    world.offer(target, insert(INT_KEY, 9, 0, "a"), delete(INT_KEY, 9, 0, "a"))
    world.committed()
    assert world.rows("t") == []


def test_a_row_that_was_there_is_written_again_beside_another_unique_key(world: World) -> None:
    """The same INSERT alone; a row that has the value of the other key is in the way as before."""
    target = world.made(UNIQUE, "t", INT_DDL + ", UNIQUE KEY uv(v)")
    world.run(f"INSERT INTO {SCHEMA}.t VALUES (9, 3, 'a'), (7, 5, 'mine')")
    world.start()
    world.offer(target, insert(UNIQUE, 8, 2, "b"), insert(UNIQUE, 9, 3, "a"))
    world.committed()
    assert world.rows("t") == [(7, 5, "mine"), (8, 2, "b"), (9, 3, "a")]
    assert world.drift.rows() == {"lane_test.t": 1}
    world.offer(target, insert(UNIQUE, 9, 5, "c"))
    assert "key 'uv'" in str(world.refused())
    assert world.rows("t") == [(7, 5, "mine"), (8, 2, "b"), (9, 3, "a")]


@pytest.mark.parametrize("in_one_batch", [False, True])
def test_an_image_without_a_column_that_a_ddl_takes_away_meets_its_row(
    world: World, *, in_one_batch: bool
) -> None:
    """While a DROP COLUMN is under way TiDB writes old rows without it; the DDL comes later in the stream."""
    target = world.made(KEYLESS, "k", "v INT, s VARCHAR(20)")
    later = replace(KEYLESS, columns=KEYLESS.columns[1:])
    born = [
        insert(KEYLESS, 7, "it's"),
        insert(KEYLESS, None, "it's"),
        insert(KEYLESS, 8, "x"),
        insert(KEYLESS, 9, ""),
    ]
    gone = [
        update(later, ("it's",), ("b WHERE",)),
        update(later, ("it's",), ("b WHERE",)),
        delete(later, "x"),
    ]
    if in_one_batch:
        world.start()
        world.offer(target, *born, *gone)
    else:
        world.start(strict=True)
        world.offer(target, *born)
        world.committed()
        world.offer(target, *gone)
    world.committed()
    assert [s for _, s in world.run(f"SELECT v, s FROM {SCHEMA}.k ORDER BY s")] == ["", "b WHERE", "b WHERE"]
    assert world.drift.rows() == {}
    world.offer(target, delete(KEYLESS, 5, ""))
    if in_one_batch:
        world.committed()
        assert world.run(f"SELECT v FROM {SCHEMA}.k WHERE s = ''") == [(9,)]
    else:
        assert "not as upstream's" in str(world.refused())


def test_strict_stops_at_drift_before_the_commit(world: World) -> None:
    target = world.made(INT_KEY, "t", INT_DDL)
    world.run(f"INSERT INTO {SCHEMA}.t VALUES (2, 0, 'b')")
    world.start(strict=True)
    world.offer(target, delete(INT_KEY, 1, 0, "a"), delete(INT_KEY, 2, 0, "b"))
    text = str(world.refused())
    assert f"commit_ts {world.ts}: table lane_test.t is not as upstream's: 1 rows" in text
    assert world.rows("t") == [(2, 0, "b")]
    assert world.drift.rows() == {}


def test_a_row_larger_than_the_packet_is_refused_before_it_is_sent(world: World) -> None:
    target = world.made(INT_KEY, "t", "id INT PRIMARY KEY, v INT, s LONGTEXT")
    ((limit,),) = world.run("SELECT @@global.max_allowed_packet")
    world.run("SET GLOBAL max_allowed_packet=1048576")
    try:
        world.start()
        world.offer(target, insert(INT_KEY, 1, 2, "x" * 2_000_000))
        error = world.refused()
        assert "max_allowed_packet of the downstream is 1048576" in str(error)
        assert f"SET GLOBAL max_allowed_packet = {2 << 20}" in error.hint
        lane = world.start()
        world.offer(target, insert(INT_KEY, 2, 2, "small"))
        world.committed()
        world.run("SET GLOBAL max_allowed_packet=4194304")
        world.offer(target, insert(INT_KEY, 1, 2, "x" * 2_000_000))
        world.committed()  # the limit was raised: a new session has it
        assert lane.state().waiting_for == ""
    finally:
        world.run(f"SET GLOBAL max_allowed_packet={limit}")
    assert [len(row[2]) for row in world.rows("t")] == [2_000_000, 5]


def test_a_locked_row_is_waited_for(world: World) -> None:
    target = world.made(INT_KEY, "t", INT_DDL)
    world.run(f"INSERT INTO {SCHEMA}.t VALUES (1, 0, 'a')")
    other = connect(world.target)
    other.run(f"UPDATE {SCHEMA}.t SET v=5 WHERE id=1".encode())
    waiting = replace(world.target, variables=(("innodb_lock_wait_timeout", "1"),))
    lane = world.start(waiting)
    world.offer(target, update(INT_KEY, (1, 0, "a"), (1, 9, "b")))
    state = world.waits("deadlock or lock wait")
    assert state["tries"] >= 1
    assert "1205" in state["waiting_for"]
    other.commit()
    other.close()
    world.committed()
    assert "trouble" not in plain(lane.state())
    assert world.rows("t") == [(1, 9, "b")]


def test_nothing_is_committed_before_the_relay_log_has_it(world: World) -> None:
    target, mark = world.made(INT_KEY, "t", INT_DDL), LogMark()
    world.start(logged=mark)
    world.offer(target, insert(INT_KEY, 1, 10, "a"))
    world.executed("t")
    mark.reach(world.ts - 1)
    assert world.results.empty()
    assert world.rows("t") == []
    mark.reach(world.ts)
    world.committed()
    assert world.rows("t") == [(1, 10, "a")]


def test_a_relay_log_that_takes_long_keeps_no_row_locked(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lane, "LOGGED_MAX_S", 0.05)
    target, mark = world.made(INT_KEY, "t", INT_DDL), LogMark()
    world.run(f"INSERT INTO {SCHEMA}.t VALUES (1, 0, 'a')")
    running = world.start(logged=mark)
    world.offer(target, update(INT_KEY, (1, 0, "a"), (1, 9, "b")))
    world.waits("relay log is slow")
    world.run("SET innodb_lock_wait_timeout = 20")
    world.run(f"UPDATE {SCHEMA}.t SET s = 'other' WHERE id = 1")
    mark.reach(world.ts)
    world.committed()
    assert "trouble" not in plain(running.state())
    assert world.rows("t") == [(1, 9, "b")]


def test_what_the_relay_log_has_does_not_wait_for_what_follows(world: World) -> None:
    """On a full disk there is room again only when what is there is committed, and its files go."""
    target, mark = world.made(INT_KEY, "t", INT_DDL), LogMark()
    running = world.start(logged=mark)
    world.run(f"LOCK TABLES {SCHEMA}.t WRITE")
    world.offer(target, insert(INT_KEY, 1, 10, "a"))
    until_here(lambda: not running._queue)
    world.offer(target, insert(INT_KEY, 2, 20, "b"))
    there_ts = world.ts
    world.offer(target, insert(INT_KEY, 3, 30, "c"))
    mark.reach(there_ts)
    world.run("UNLOCK TABLES")
    assert [world.results.get(timeout=PATIENCE_S) for _ in range(2)] == [there_ts - 10, there_ts]
    assert world.rows("t") == [(1, 10, "a"), (2, 20, "b")]
    mark.reach(world.ts)
    world.committed()


def test_rows_that_cannot_be_taken_back_wait_for_the_relay_log(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lane, "LOGGED_MAX_S", 0.05)
    world.made(INT_KEY, "t", INT_DDL)
    world.run(f"ALTER TABLE {SCHEMA}.t ENGINE=Aria")
    target, mark = world.seen(INT_KEY, "t"), LogMark()
    world.start(logged=mark)
    world.offer(target, insert(INT_KEY, 1, 10, "a"))
    world.waits("relay log is slow")
    assert world.rows("t") == []
    mark.reach(world.ts)
    world.committed()
    assert world.rows("t") == [(1, 10, "a")]


def test_a_lane_that_waits_for_the_relay_log_ends_at_once(world: World) -> None:
    target = world.made(INT_KEY, "t", INT_DDL)
    running = world.start(logged=LogMark())
    world.offer(target, insert(INT_KEY, 1, 10, "a"))
    world.executed("t")
    running.abandon()
    running.join(PATIENCE_S)
    assert not running.is_alive()
    assert world.rows("t") == []


def test_a_read_only_server_is_waited_for(world: World) -> None:
    target = world.made(INT_KEY, "t", INT_DDL)
    world.run("CREATE OR REPLACE USER writer@'%' IDENTIFIED BY 'w'")
    world.run(f"GRANT SELECT, INSERT, UPDATE, DELETE ON {SCHEMA}.* TO writer@'%'")
    world.run("SET GLOBAL read_only=1")
    try:
        world.start(replace(world.target, user="writer", password="w"))
        world.offer(target, insert(INT_KEY, 1, 2, "a"))
        assert "1290" in world.waits("server is read-only")["waiting_for"]
    finally:
        world.run("SET GLOBAL read_only=0")
    world.committed()
    world.run("DROP USER writer@'%'")
    assert world.rows("t") == [(1, 2, "a")]


def test_a_commit_whose_answer_is_lost_is_not_repeated(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    target = world.made(KEYLESS, "t", "v INT, s VARCHAR(20)")
    lane = world.start()
    world.offer(target, insert(KEYLESS, 1, "a"))
    world.committed()
    connection = lane.session.current
    assert connection is not None
    commit: Callable[[], None] = connection.commit

    def loses_the_answer() -> None:
        commit()
        raise ConnectionLost(2013, "Lost connection to MySQL server during query")

    monkeypatch.setattr(connection, "commit", loses_the_answer)
    world.offer(target, insert(KEYLESS, 2, "b"))
    world.committed()
    world.offer(target, insert(KEYLESS, 3, "c"))
    world.committed()
    assert world.rows("t") == [(1, "a"), (2, "b"), (3, "c")]


def test_what_commit_refuses_is_said_by_its_statement_the_next_time(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A TiDB looks at keys when an optimistic transaction commits, and the error then names no table."""
    target = world.made(UNIQUE, "t", INT_DDL)
    lane = world.start(rows_may_wait=True)
    world.offer(target, insert(UNIQUE, 1, 2, "a"))
    world.committed()
    connection = lane.session.current
    assert connection is not None
    asked: list[str] = []

    def refuses() -> None:
        connection.rollback()
        raise StatementRefused(1062, "Duplicate entry '2' for key 't.uv'")

    def learns(session: Connection, name: str, value: str) -> None:
        asked.append(f"{name}={value}")
        session.rows(f"ALTER TABLE {SCHEMA}.t ADD UNIQUE KEY uv (v)".encode())

    monkeypatch.setattr(connection, "commit", refuses)
    monkeypatch.setattr("drainer.sink.mysql.lane.set_if_known", learns)
    world.offer(target, insert(UNIQUE, 3, 2, "b"))
    error = world.refused()
    assert isinstance(error, RowsRefused)
    assert error.refusal.table.label == target.label
    assert "to lane_test.t (key id)" in str(error)
    assert asked == ["tidb_constraint_check_in_place=1"]


def test_a_killed_connection_loses_and_doubles_nothing(world: World) -> None:
    target = world.made(KEYLESS, "t", "v INT, s VARCHAR(20)")
    lane = world.start()
    for number in range(10):
        world.offer(target, insert(KEYLESS, number, "a"))
        world.committed()
        assert lane.session.current is not None
        world.run(f"KILL {lane.session.current.session_id}")
    assert world.rows("t") == [(number, "a") for number in range(10)]


def test_a_lost_session_that_holds_the_lane_is_ended(world: World) -> None:
    """What a network that swallows packets leaves: the server still has our session, in a transaction."""
    target = world.made(KEYLESS, "t", "v INT, s VARCHAR(20)")
    lost = connect(world.target)
    assert session_lock.claim(lost, session_lock.Claims(SCHEMA, CLUSTER).name(0))
    lost.run(f"UPDATE {SCHEMA}.lanes SET applied_rows=-1 WHERE lane=0".encode())
    world.start(replace(world.target, variables=(("innodb_lock_wait_timeout", "20"),)))
    world.offer(target, insert(KEYLESS, 1, "a"))
    world.committed()
    with pytest.raises(SessionError):
        lost.run(b"SELECT 1")
    assert world.rows("t") == [(1, "a")]


def test_text_that_latin1_lacks_keeps_its_bytes_and_is_counted(world: World) -> None:
    info = table(
        ("k", kind("varchar", charset="latin1", collate="latin1_bin", flen=20, not_null=True)),
        ("w", kind("varchar", charset="latin1", collate="latin1_bin", flen=20)),
        handle="rowid",
        indexes=(index(1, ("k", 0), primary=True),),
    )
    world.made(info, "t", "k VARCHAR(20) PRIMARY KEY, w VARCHAR(4)")
    world.run(f"ALTER TABLE {SCHEMA}.t CONVERT TO CHARACTER SET latin1 COLLATE latin1_bin")
    target = world.seen(info, "t")
    world.start()
    for row in (("日本", "日本"), ("中文", "é"), ("é", b"\xe9t\xe9"), ("plain", "plai")):
        world.offer(target, insert(info, *row))
        world.committed()
    world.offer(target, delete(info, "中文", "é"))
    world.committed()
    found = dict(world.run(f"SELECT HEX(k), HEX(w) FROM {SCHEMA}.t"))
    assert found == {
        "日本".encode().hex().upper(): b"??".hex().upper(),  # six bytes do not fit into four characters
        "E9": "E974E9",
        b"plain".hex().upper(): b"plai".hex().upper(),
    }
    assert world.drift.texts() == {"lane_test.t": {"k": 2, "w": 1}}
    assert world.drift.rows() == {}


def test_a_damaged_row_names_its_transaction(world: World) -> None:
    target = world.made(INT_KEY, "t", INT_DDL)
    world.start()
    kind_, row = insert(INT_KEY, 1, 2, "abc")
    world.offer(target, (kind_, row[:-1]))
    error = world.refused()
    assert f"transaction with commit_ts {world.ts}: " in str(error)
    assert error.exit_code == 6


def test_columns_that_must_have_a_value_get_their_zero(world: World) -> None:
    extra = ", x INT NOT NULL, d DATE NOT NULL, e ENUM('p','q') NOT NULL, j JSON NOT NULL, b BLOB NOT NULL"
    target = world.made(INT_KEY, "t", INT_DDL + extra, sync_mode=PARTIAL)
    world.start(sync_mode=PARTIAL)
    world.offer(target, insert(INT_KEY, 1, 2, "a"))
    world.committed()
    world.run(f"UPDATE {SCHEMA}.t SET x=5")
    world.offer(target, update(INT_KEY, (1, 2, "a"), (1, 3, "b")))
    world.committed()
    ((v, s, x, d, e, j, b),) = world.run(f"SELECT v, s, x, CAST(d AS CHAR), e, j, b FROM {SCHEMA}.t")
    assert (v, s, x, d, e, j, b) == (3, "b", 5, "0000-00-00", "p", "null", b"")


def test_modes_and_variables_of_the_user_reach_the_session(world: World) -> None:
    with pytest.raises(DownstreamError, match="does not take no_such_variable"):
        connect(replace(world.target, variables=(("no_such_variable", "1"),)))
    connection = connect(replace(world.target, variables=(("lock_wait_timeout", "77"),)))
    assert connection.rows(b"SELECT @@lock_wait_timeout, @@time_zone") == [(77, "+00:00")]
    connection.close()
