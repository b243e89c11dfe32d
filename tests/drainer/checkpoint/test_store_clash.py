"""Others at the same checkpoint, and a row on another server: on real servers."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from binlog_playground.cluster.mariadb import MariaDbServer
from drainer.checkpoint.store import SIDE_LANES, CheckpointStore
from drainer.checkpoint.value import Checkpoint, Intent
from drainer.ddl.quarantine.store import QuarantineTable
from drainer.mysql.connection import Target, connect
from drainer.mysql.errors import TransientError
from drainer.mysql.literal.quoting import qualified, quote_name, string_literal
from drainer.mysql.rows.change import Position
from tests.drainer.checkpoint.go_rows import GO_ROWS
from tests.drainer.support.apply_life import clean
from tidb_binlog.errors import BinlogError, Conflict, Corruption, DownstreamError, Unavailable

CLUSTER = 7710435644538274662
SCHEMA = "odd `name'"
TABLE = 'check"point`'
ROW = qualified(SCHEMA, TABLE)
NOW = 480_000_000_000_000_000

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def other_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MariaDbServer]:
    server = MariaDbServer(durable=True)
    server.start(tmp_path_factory.mktemp("other-db"))
    try:
        yield server
    finally:
        server.stop()


def target_of(server: MariaDbServer) -> Target:
    return Target(server.host, server.port, server.user, server.password)


def run(target: Target, statement: bytes) -> list[tuple[Any, ...]]:
    connection = connect(target)
    try:
        found = connection.rows(statement)
        connection.commit()
        return found
    finally:
        connection.close()


def opened(target: Target, *, owner: str = "", row_target: Target | None = None) -> CheckpointStore:
    return CheckpointStore(target, CLUSTER, schema=SCHEMA, table=TABLE, owner=owner, row_target=row_target)


def write_row(target: Target, text: str, cluster_id: int = CLUSTER) -> None:
    """As a Go drainer saves."""
    run(target, b"REPLACE INTO %s VALUES (%d, " % (ROW, cluster_id) + string_literal(text) + b")")


def make_go_tables(target: Target) -> None:
    run(target, b"CREATE DATABASE IF NOT EXISTS " + quote_name(SCHEMA))
    columns = b"(clusterID bigint unsigned primary key, checkPoint MEDIUMTEXT)"
    run(target, b"CREATE TABLE IF NOT EXISTS " + ROW + columns)


def row(target: Target) -> dict[str, Any]:
    ((text,),) = run(target, b"SELECT checkPoint FROM %s WHERE clusterID=%d" % (ROW, CLUSTER))
    document: dict[str, Any] = json.loads(text)
    return document


def at(store: CheckpointStore, commit_ts: int, *, consistent: bool = False) -> Checkpoint:
    return Checkpoint(commit_ts, consistent, 9, store.epoch)


class TestTakeOver:
    @pytest.mark.parametrize("form", GO_ROWS)
    def test_from_every_form_of_a_go_drainer_and_back(self, target: Target, form: str) -> None:
        text, meant = GO_ROWS[form]
        make_go_tables(target)
        write_row(target, text)
        store = opened(target)
        start = store.start(2, 100, NOW)
        floor = meant.commit_ts or 100
        assert (start.positions, start.safe_mode.until_ts, start.foreign) == (
            (Position(floor),) * 2,
            NOW,
            True,
        )
        store.settle(
            Checkpoint(floor + 7, True, 83, store.epoch, start.safe_mode.until_ts, ts_map=meant.ts_map)
        )
        store.close()
        ((back,),) = run(target, b"SELECT checkPoint FROM " + ROW)
        keys = list(json.loads(back))
        assert keys == ["consistent", "commitTS", "ts-map", "schema-version", "epoch", "safe-until"]
        assert json.loads(back)["commitTS"] == floor + 7
        assert json.loads(back)["ts-map"] == (meant.ts_map or {})

    def test_a_row_edited_by_hand_counts(self, target: Target) -> None:
        store = opened(target)
        store.start(2, 100, NOW)
        store.settle(at(store, 500, consistent=True))
        store.close()
        run(target, b"UPDATE %s SET checkPoint=REPLACE(checkPoint, '500', '300')" % ROW)
        store = opened(target)
        start = store.start(2, 100, 900)
        assert (start.floor_ts, start.positions, start.safe_mode.until_ts) == (300, (Position(300),) * 2, 900)
        store.close()

    def test_a_row_that_is_gone_is_made_up_from_the_lanes(self, target: Target) -> None:
        store = opened(target)
        store.start(2, 100, NOW)
        store.settle(at(store, 500, consistent=True))
        store.close()
        run(target, b"DELETE FROM " + ROW)
        store = opened(target)
        start = store.start(2, -1, NOW)
        assert (start.floor_ts, start.safe_mode.until_ts) == (500, 0)
        assert row(target)["commitTS"] == 500
        store.close()

    @pytest.mark.parametrize("text", ['{"commitTS":"5"}', "", "{"])
    def test_a_malformed_row_stops_the_start_and_stays(self, target: Target, text: str) -> None:
        make_go_tables(target)
        write_row(target, text)
        with pytest.raises(Corruption, match="checkpoint row cannot be read"):
            opened(target).start(2, 100, NOW)
        assert run(target, b"SELECT checkPoint FROM " + ROW) == [(text,)]

    def test_a_checkpoint_of_the_future_stops_the_start(self, target: Target) -> None:
        make_go_tables(target)
        write_row(target, f'{{"consistent":true,"commitTS":{NOW + 1}}}')
        with pytest.raises(Corruption, match="but the upstream is at"):
            opened(target).start(2, 100, NOW)
        assert row(target)["consistent"] is True, "nothing was changed"


class TestOthers:
    def test_a_living_drainer_of_another_id_is_left_alone(self, target: Target) -> None:
        first = opened(target, owner="drainer-a")
        first.start(2, 100, NOW)
        with pytest.raises(Conflict, match="drainer-a is running"):
            opened(target, owner="drainer-b").start(2, 100, NOW, living={"drainer-a", "drainer-b"})
        first.save(at(first, 200))
        second = opened(target, owner="drainer-b")
        assert second.start(2, 100, NOW, living={"drainer-b"}).floor_ts == 200
        with pytest.raises(TransientError):  # its session was ended
            first.save(at(first, 300))
        with pytest.raises(Conflict, match="another drainer took over"):
            first.save(at(first, 300))
        with pytest.raises(Conflict, match="drainer-b is running"):
            opened(target, owner="drainer-a").start(2, 100, NOW, living={"drainer-b"})
        for store in (first, second):
            store.close()

    def test_rows_of_another_cluster_alone_are_asked_about(self, target: Target) -> None:
        make_go_tables(target)
        write_row(target, '{"commitTS":5}', cluster_id=12)
        with pytest.raises(Conflict, match=f"nothing of cluster {CLUSTER}, but of cluster 12"):
            opened(target).start(2, 100, NOW, initial_is_given=False)
        store = opened(target)
        assert store.start(2, 100, NOW).floor_ts == 100
        store.close()
        store = opened(target)
        store.start(2, 100, NOW, initial_is_given=False)
        store.close()

    def test_a_go_drainer_that_saves_meanwhile_is_noticed_and_not_overwritten(self, target: Target) -> None:
        store = opened(target)
        store.start(2, 100, NOW)
        store.save(at(store, 200))
        theirs = '{"consistent":false,"commitTS":150,"ts-map":{},"schema-version":48}'
        write_row(target, theirs)
        with pytest.raises(Conflict, match="another program wrote the checkpoint of cluster"):
            store.save(at(store, 300))
        assert run(target, b"SELECT checkPoint FROM " + ROW) == [(theirs,)]
        store.close()
        store = opened(target)
        start = store.start(2, 100, NOW)
        assert (start.floor_ts, start.foreign) == (150, True), "what the other one says counts"
        store.close()

    def test_two_first_starts_at_once_get_two_epochs(self, target: Target) -> None:
        stores = [opened(target) for _ in range(6)]
        started: list[int] = []
        failed: list[BaseException] = []

        def start(store: CheckpointStore) -> None:
            try:
                store.start(2, 100, NOW)
            except BaseException as error:  # another one has ended its session, in the middle of it too
                failed.append(error)
            else:
                started.append(store.epoch)

        threads = [threading.Thread(target=start, args=[store]) for store in stores]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert all(isinstance(error, TransientError) for error in failed), "deadlock at worst"
        assert started
        assert len(set(started)) == len(started)
        for store in stores:
            store.close()


class TestFirstStart:
    def test_one_that_was_killed_while_it_made_its_tables_is_no_hindrance(self, target: Target) -> None:
        """Tables are made one after the other; whatever is missing of them, the next start makes."""
        tables = ("lanes", "schema_snapshot", "drainer_state")
        store = opened(target)
        store.start(2, 100, NOW)
        store.close()
        for made in range(len(tables)):
            for table in tables[made:]:
                run(target, b"DROP TABLE " + qualified(SCHEMA, table))
            run(target, b"DROP TABLE IF EXISTS " + ROW)
            store = opened(target)
            assert store.start(2, 100, NOW).positions == (Position(100),) * 2
            store.close()


class TestRunning:
    def test_the_checkpoint_never_goes_back(self, target: Target) -> None:
        store = opened(target)
        store.start(2, 100, NOW)
        store.save(at(store, 300))
        for store_lower in (store.save, store.settle, store.end_ddl):
            with pytest.raises(BinlogError, match="checkpoint 299 is below the stored one, 300"):
                store_lower(at(store, 299))
            assert row(target)["commitTS"] == 300
        store.save(at(store, 300))
        store.close()

    def test_a_row_deleted_meanwhile_is_written_again(self, target: Target) -> None:
        store = opened(target)
        store.start(2, 100, NOW)
        run(target, b"DELETE FROM " + ROW)
        store.save(at(store, 300))
        assert row(target)["commitTS"] == 300
        store.close()

    def test_another_number_of_lanes_at_a_drained_point(self, target: Target) -> None:
        store = opened(target)
        store.start(2, 100, NOW)
        connection = connect(target)
        store.resize(5, Position(250))
        assert store.lane_count == 5
        for lane in range(5):
            assert store.lane_table().position(connection, lane) == Position(250)
        connection.rollback()
        store.resize(3, Position(260))
        with pytest.raises(Conflict):
            store.lane_table().position(connection, 3)
        connection.close()
        store.close()
        store = opened(target)
        assert store.start(4, 100, NOW).positions == (Position(260),) * 4
        store.close()

    def test_a_side_lane_is_fenced_and_otherwise_left_alone(self, target: Target) -> None:
        store = opened(target)
        store.start(2, 100, NOW)
        lanes = qualified(SCHEMA, "lanes")
        run(target, b"INSERT INTO %s VALUES (%d, %d, 1, 7, 3)" % (lanes, CLUSTER, SIDE_LANES))
        store.end_ddl(at(store, 200))
        store.resize(4, Position(250))
        store.settle(at(store, 300))
        store.close()
        store = opened(target)
        assert store.start(2, 100, NOW).positions == (Position(300),) * 2
        connection = connect(target)
        assert store.lane_table().position(connection, SIDE_LANES) == Position(7, 3)
        connection.close()
        store.close()

    def test_a_server_without_a_binary_log_has_no_position(
        self, target: Target, other_server: MariaDbServer
    ) -> None:
        for server, has_one in ((target, False), (target_of(other_server), True)):
            store = CheckpointStore(server, CLUSTER, schema="elsewhere")
            store.start(1, 100, NOW)
            assert (store.downstream_position() > 0) == has_one
            store.close()
            run(server, b"DROP DATABASE elsewhere")


class TestElsewhere:
    """The row has a server of its own."""

    @pytest.fixture
    def rows(self, other_server: MariaDbServer) -> Iterator[Target]:
        target = target_of(other_server)
        yield target
        clean(target)

    def test_the_row_is_there_and_the_lanes_are_here(self, target: Target, rows: Target) -> None:
        store = opened(target, row_target=rows)
        store.start(2, 100, NOW)
        store.begin_ddl(Intent(250, 1, "x", {}))
        store.end_ddl(at(store, 250))
        store.settle(at(store, 300, consistent=True))
        store.close()
        assert (row(rows)["commitTS"], row(rows)["consistent"]) == (300, True)
        tables = run(
            target,
            b"SELECT table_name FROM information_schema.tables WHERE table_schema=" + string_literal(SCHEMA),
        )
        assert sorted(tables) == [("drainer_state",), ("lane_basis",), ("lanes",), ("schema_snapshot",)]
        store = opened(target, row_target=rows)
        assert store.start(2, 100, NOW).positions == (Position(300),) * 2
        assert row(rows)["consistent"] is False, "durable before the start returns"
        store.close()

    def test_the_row_is_behind_the_lanes_when_its_server_fails(self, target: Target, rows: Target) -> None:
        store = opened(target, row_target=rows)
        store.start(2, 100, NOW)
        store.save(at(store, 200))
        blocker = connect(rows)
        blocker.rows(b"SELECT * FROM %s FOR UPDATE" % ROW)
        run(rows, b"SET GLOBAL innodb_lock_wait_timeout=1")
        with pytest.raises(TransientError):
            _reconnected(store).end_ddl(at(store, 250))
        blocker.rollback()
        assert row(rows)["commitTS"] == 200
        other = opened(target, row_target=rows)
        start = other.start(2, 100, NOW)
        assert (start.floor_ts, start.positions, start.foreign) == (250, (Position(250),) * 2, False)
        assert row(rows)["commitTS"] == 250
        other.close()
        blocker.close()
        store.close()

    def test_the_rows_server_goes_back_in_time_alone(self, target: Target, rows: Target) -> None:
        """Nothing depends on it: an older row of ours is written over, another program's is not."""
        store = opened(target, row_target=rows)
        store.start(2, 100, NOW)
        store.save(at(store, 200))
        older = json.dumps(row(rows))
        store.save(at(store, 250))
        write_row(rows, older)
        store.save(at(store, 300))
        assert row(rows)["commitTS"] == 300
        write_row(rows, '{"commitTS":250}')
        with pytest.raises(Conflict, match="another program"):
            store.save(at(store, 350))
        store.close()

    def test_a_row_ahead_of_a_downstream_that_went_back_is_not_believed(
        self, target: Target, rows: Target
    ) -> None:
        store = opened(target, row_target=rows)
        store.start(2, 100, NOW)
        store.save(at(store, 200))
        store.close()
        document = {**row(rows), "commitTS": 900}
        write_row(rows, json.dumps(document))  # saved before the downstream was put back to 200
        again = opened(target, row_target=rows)
        start = again.start(2, 100, NOW)
        assert (start.floor_ts, start.foreign) == (200, False), "rows up to 900 are not there"
        assert row(rows)["commitTS"] == 200
        again.close()

    def test_a_failed_save_is_tried_again_and_a_later_one_too(self, target: Target, rows: Target) -> None:
        store = opened(target, row_target=rows)
        store.start(2, 100, NOW)
        run(rows, b"SET GLOBAL innodb_lock_wait_timeout=1")
        for retried in (200, 201):
            blocker = connect(rows)
            blocker.rows(b"SELECT * FROM %s FOR UPDATE" % ROW)
            with pytest.raises(TransientError):
                _reconnected(store).save(at(store, 200))
            blocker.close()
            store.save(at(store, retried))
            assert row(rows)["commitTS"] == retried
        store.close()

    def test_a_go_drainers_row_there_counts(self, target: Target, rows: Target) -> None:
        make_go_tables(rows)
        write_row(rows, '{"consistent":true,"commitTS":700,"schema-version":3}')
        store = opened(target, row_target=rows)
        start = store.start(2, 100, 900)
        assert (start.positions, start.safe_mode.until_ts) == ((Position(700),) * 2, 900)
        store.close()

    def test_a_server_that_is_away_is_named(self, target: Target) -> None:
        nobody = Target("127.0.0.1", 1, "root", "")
        with pytest.raises(Unavailable, match=r"root@127\.0\.0\.1:1 cannot be reached"):
            opened(target, row_target=nobody).start(2, 100, NOW)


def _reconnected(store: CheckpointStore) -> CheckpointStore:
    """On sessions that have the lock wait timeout of now."""
    store.close()
    return store


@pytest.mark.integration
@pytest.mark.parametrize("name", ["checkpoint", "lanes", "drainer_state", "quarantine"])
def test_a_table_of_the_checkpoint_that_cannot_roll_back_is_refused(target: Target, name: str) -> None:
    """A server's default engine, or a Go drainer's table on such a server."""
    store = CheckpointStore(target, CLUSTER)
    store.start(2, 100, NOW)
    store.together(lambda connection: take_over_quarantine(connection, store.epoch))
    store.close()
    run(target, f"ALTER TABLE tidb_binlog.{name} ENGINE=MyISAM".encode())
    before = run(target, b"SELECT epoch FROM tidb_binlog.drainer_state")
    again = CheckpointStore(target, CLUSTER)
    with pytest.raises(DownstreamError, match=f"tidb_binlog.{name} is a table of MyISAM") as raised:
        again.start(2, 100, NOW)
    assert f"ALTER TABLE `tidb_binlog`.`{name}` ENGINE=InnoDB" in raised.value.hint
    assert run(target, b"SELECT epoch FROM tidb_binlog.drainer_state") == before
    run(target, f"ALTER TABLE tidb_binlog.{name} ENGINE=InnoDB".encode())
    again.start(2, 100, NOW)
    again.close()


def take_over_quarantine(connection: Any, epoch: int) -> None:
    QuarantineTable("tidb_binlog", CLUSTER, epoch).claim_entries(connection, foreign=False)
