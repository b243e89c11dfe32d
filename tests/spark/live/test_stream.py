"""A stream from real Pumps into a real MariaDB, in this process and in Spark's tasks, over several lives."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from drainer.checkpoint import savepoint
from drainer.checkpoint.fencing import WentBack
from drainer.checkpoint.resume import AheadOfUpstream
from drainer.checkpoint.value import Checkpoint
from drainer.ddl.run import downstream_schema
from drainer.mysql.connection import Connection, Target, connect
from drainer.spark.live.database import Database
from drainer.spark.live.downstream import LiveSettings
from drainer.spark.live.stream import PumpStream
from drainer.spark.replay.stream_jobs import Batch
from drainer.stream.pull import range_cuts
from drainer.stream.translate import translator
from drainer.stream.translate.translator import EARLY_ROWS
from pumpclient import Publisher, column, open_publisher
from tests.integration.support.subscribed_shop import publish_job, shop, write
from tests.pump.conftest import pump as pump
from tests.pump.support.process import Start, start_two
from tests.spark.support.live_stream import life, live_settings
from tests.waiting import PATIENCE_S, until
from tidb_binlog.ddl_job import ActionType
from tidb_binlog.errors import Conflict, Unavailable

pytestmark = pytest.mark.integration


@pytest.fixture
async def publisher(pump: Start, etcd_clean: str) -> Publisher:
    await start_two(pump)
    return await shop(etcd_clean)


@pytest.fixture
def settings(
    etcd_clean: str, target: Target, connection: Connection, tmp_path: Path
) -> Iterator[LiveSettings]:
    with live_settings("shop", etcd_clean, target, connection, tmp_path) as settings:
        yield settings


def orders(connection: Connection) -> list[tuple[object, ...]]:
    return list(connection.rows(b"SELECT id, item FROM shop.orders ORDER BY id"))


async def test_rows_and_ddl_arrive_once_over_several_lives(
    publisher: Publisher, settings: LiveSettings, connection: Connection
) -> None:
    for number in range(20):
        await write(publisher, number)
    first = await life(settings)
    assert orders(connection) == [(number, f"pen {number}") for number in range(20)]
    assert sum(batch.ddl for batch in first) == 3
    await publisher.add_column("shop.orders", column("note", "varchar(10)", default="new"))
    await write(publisher, 20, 21)
    second = await life(settings)
    assert second[0].start_ts == first[-1].stop_ts + 1
    assert connection.rows(b"SELECT id, note FROM shop.orders WHERE id > 18 ORDER BY id") == [
        (19, "new"),
        (20, "new"),
        (21, "new"),
    ]
    await publisher.close()


async def test_rows_that_may_lack_values_of_a_new_column_are_told(
    publisher: Publisher,
    settings: LiveSettings,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Which rows were early only tasks could see: it is said of each statement that may have had some."""
    monkeypatch.setattr(translator, "early_version", lambda job, _: int(job["type"] == ActionType.ADD_COLUMN))
    await publisher.add_column("shop.orders", column("note", "varchar(10)", default="new"))
    await life(settings)
    (told,) = (record for record in caplog.records if EARLY_ROWS in record.getMessage())
    assert "shop.orders" in str(vars(told))
    await publisher.close()


async def test_the_next_life_knows_which_tables_lost_a_partition(
    publisher: Publisher, settings: LiveSettings, etcd_clean: str, connection: Connection
) -> None:
    """Rows of a transaction that began before that may come after it, and what was told stays told."""
    query = "ALTER TABLE shop.orders COMMENT = 'TRUNCATE PARTITION p0'"  # the server's has no partitions
    async with publisher.transaction() as txn:
        txn.insert("shop.orders", {"id": 1, "item": "x"})
        await publish_job(publisher, etcd_clean, ActionType.TRUNCATE_TABLE_PARTITION, query, "orders")
        await life(settings)
    for _ in range(2):
        stream = PumpStream(settings, None)
        await asyncio.to_thread(stream.wait)
        assert [told.tables for told in stream.findings.early_rows.told] == [["shop.orders"]]
    connection.run(b"UPDATE tidb_binlog.spark_streams SET findings = '[oh'")
    await life(settings)
    await publisher.close()


@pytest.mark.parametrize("as_drainer", [False, True])
async def test_texts_and_rows_that_are_not_as_upstream_are_in_the_status(
    publisher: Publisher,
    settings: LiveSettings,
    connection: Connection,
    caplog: pytest.LogCaptureFixture,
    *,
    as_drainer: bool,
) -> None:
    await write(publisher, 1)
    await life(settings)
    if as_drainer:  # a Drainer was killed, whose lanes are ahead
        connection.run(b"UPDATE tidb_binlog.lanes SET applied_ts=applied_ts+1 LIMIT 1")
    connection.run(b"ALTER TABLE shop.orders MODIFY item VARCHAR(40) CHARACTER SET latin1")
    connection.run(b"DELETE FROM shop.orders")
    async with publisher.transaction() as txn:
        txn.update("shop.orders", {"id": 1, "item": "pen 1"}, {"id": 1, "item": "\u65e5"})
        txn.delete("shop.orders", {"id": 2, "item": "pen 2"})
    stream = PumpStream(settings, None)
    await asyncio.to_thread(stream.wait)
    assert ("works as a drainer does" in caplog.text) == as_drainer
    drift = stream._facts()["Drift"]
    assert (drift["Rows"], drift["Texts"]) == ({"shop.orders": 1}, {"shop.orders": {"item": 1}})
    await publisher.close()


async def test_a_stream_that_ended_before_its_first_batch_begins_where_it_was(
    publisher: Publisher, settings: LiveSettings, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    from_now = replace(settings, drainer=replace(settings.drainer, initial_commit_ts=-1))
    with monkeypatch.context() as patch:
        patch.setattr("drainer.spark.live.stream._Life.begun", lambda _: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            await life(from_now)
    connection.run(b"CREATE DATABASE shop")
    connection.run(b"CREATE TABLE shop.orders (id INT NOT NULL PRIMARY KEY, item VARCHAR(40))")
    await write(publisher, 1)
    await life(from_now)
    assert orders(connection) == [(1, "pen 1")]
    await publisher.close()


async def test_a_stream_whose_checkpoint_is_gone_does_not_begin_now(
    publisher: Publisher, settings: LiveSettings, connection: Connection
) -> None:
    """What came in between would be nowhere. Where it is to begin can be said."""
    from_now = replace(settings, drainer=replace(settings.drainer, initial_commit_ts=-1))
    await life(settings)
    await life(from_now)
    for table in ("checkpoint", "drainer_state", "lanes"):
        connection.run(f"DELETE FROM tidb_binlog.{table}".encode())
    await write(publisher, 1)
    for _ in range(2):
        with pytest.raises(Conflict, match=r"has no checkpoint of cluster .* a stream was there before"):
            await life(from_now)
    connection.run(b"DROP DATABASE shop")
    await life(settings)
    assert orders(connection) == [(1, "pen 1")]
    await publisher.close()


PUT_BACK = ("checkpoint", "lanes", "drainer_state", "spark_jobs", "spark_progress")


async def test_a_server_that_went_back_between_two_batches_takes_no_rows_of_the_next_one(
    publisher: Publisher,
    settings: LiveSettings,
    target: Target,
    connection: Connection,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Those of the batch that is gone come again, and would be written over what follows them."""
    await life(settings)
    reach, went_back = Database.reach, asyncio.Event()

    async def goes_back(self: Database, commit_ts: int) -> None:
        with contextlib.closing(connect(target)) as beside:
            is_there = not went_back.is_set() and orders(beside) == [(1, "pen 1")]
            for table in PUT_BACK if is_there else ():
                beside.run(f"CREATE TABLE m.{table} AS SELECT * FROM tidb_binlog.{table}".encode())
            await reach(self, commit_ts)
            for table in PUT_BACK if is_there else ():
                beside.run(f"DELETE FROM tidb_binlog.{table}".encode())
                if not table.startswith("spark"):  # the batch had not begun
                    beside.run(f"INSERT INTO tidb_binlog.{table} SELECT * FROM m.{table}".encode())
            if is_there:
                beside.run(b"DELETE FROM shop.orders")
                beside.commit()
                went_back.set()

    monkeypatch.setattr(Database, "reach", goes_back)
    await write(publisher, 1)
    stream = PumpStream(replace(settings, once=False), None)
    running = asyncio.create_task(asyncio.to_thread(stream.wait))
    await until(went_back.is_set, beside=[running])
    await write(publisher, 2)
    with pytest.raises(WentBack):
        await running
    assert orders(connection) == []
    await life(settings)
    assert orders(connection) == [(1, "pen 1"), (2, "pen 2")]
    await publisher.close()


async def test_a_server_that_went_back_into_a_batch_is_not_taken_for_one_that_has_it(
    publisher: Publisher,
    settings: LiveSettings,
    target: Target,
    connection: Connection,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    await life(settings)
    await write(publisher, 1)
    reach = Database.reach

    async def goes_back(self: Database, commit_ts: int) -> None:
        with contextlib.closing(connect(target)) as beside:
            if orders(beside):
                beside.run(b"UPDATE tidb_binlog.spark_jobs SET step=0, done=0")
                beside.run(b"UPDATE tidb_binlog.spark_progress SET next_chunk=0")
                beside.run(b"DELETE FROM shop.orders")
                beside.commit()
        await reach(self, commit_ts)

    monkeypatch.setattr(Database, "reach", goes_back)
    with pytest.raises(WentBack, match="has not all of job"):
        await life(settings)
    monkeypatch.undo()
    await life(settings)
    assert orders(connection) == [(1, "pen 1")]
    await publisher.close()


async def test_the_server_is_looked_at_once_however_many_ddl_there_are(
    publisher: Publisher, settings: LiveSettings, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its collations alone are more than a thousand rows, which each DDL had read."""
    looks = []

    def server_of(connection: Connection) -> downstream_schema.Server:
        looks.append(connection)
        return server(connection)

    server = downstream_schema.server_of
    monkeypatch.setattr(downstream_schema, "server_of", server_of)
    assert sum(batch.ddl for batch in await life(settings)) == 3
    assert len(looks) == 1
    await publisher.close()


async def test_tasks_of_spark_read_the_pumps(
    publisher: Publisher, settings: LiveSettings, connection: Connection, spark: SparkSession
) -> None:
    """A step of any size goes to Spark: each of its tasks reads a part of the range from both Pumps."""
    await publisher.create_table(
        "shop.log", [column("line", "varchar(40)")], primary_key=[], if_not_exists=True
    )
    for number in range(60):
        async with publisher.transaction() as txn:
            txn.insert("shop.orders", {"id": number, "item": "x"})
            txn.insert("shop.log", {"line": "the same"}, rowid=number + 1)
        if number % 3 == 0:
            async with publisher.transaction() as txn:
                txn.update("shop.orders", {"id": number, "item": "x"}, {"id": number, "item": "y"})
    await life(replace(settings, small_bytes=0, chunk_rows=7), spark)
    expected = [(number, "y" if number % 3 == 0 else "x") for number in range(60)]
    assert orders(connection) == expected
    assert connection.rows(b"SELECT line, COUNT(*) FROM shop.log GROUP BY line") == [("the same", 60)]
    await publisher.close()


async def test_a_batch_that_was_cut_is_finished_by_its_own_stream(
    publisher: Publisher, settings: LiveSettings, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed around its checkpoint: rows are downstream, and whoever comes next must know which."""
    await life(settings)
    for number in range(30):
        async with publisher.transaction() as txn:
            txn.insert("shop.items", {"id": number, "item": "x"})

    class Killed(Exception):
        pass

    async def dies(self: object, commit_ts: int) -> None:
        raise Killed

    monkeypatch.setattr("drainer.spark.live.stream._Life._reach", dies)
    with pytest.raises(Killed):
        await life(settings)
    monkeypatch.undo()
    with pytest.raises(Conflict, match="binlog-spark stream spark works on the checkpoint"):
        await life(replace(settings, name="another"))
    async with publisher.transaction() as txn:
        txn.delete("shop.items", {"id": 0, "item": "x"})
    await life(settings)
    assert connection.rows(b"SELECT COUNT(*), MIN(id) FROM shop.items") == [(29, 1)]
    await life(replace(settings, name="another"))
    await publisher.close()


@pytest.mark.parametrize("form", ["mysql", "delta"])
async def test_a_downstream_that_is_ahead_of_the_upstream_is_refused(
    form: str, publisher: Publisher, settings: LiveSettings, connection: Connection, tmp_path: Path
) -> None:
    """As after a restore of the upstream: what comes next would be taken for applied."""
    drainer = replace(settings.drainer, db_type=form, warehouse=str(tmp_path / "lake"))
    settings = replace(settings, drainer=drainer)
    await life(settings)
    ahead = 1 << 62
    if form == "mysql":
        connection.run(f"UPDATE tidb_binlog.checkpoint SET checkPoint = '{{\"commitTS\":{ahead}}}'".encode())
    else:
        (position,) = (tmp_path / "lake" / "_tidb-binlog").glob("*.changelog")
        position.write_bytes(savepoint.render(Checkpoint(ahead, True, 0)).encode())
    with pytest.raises(AheadOfUpstream, match=f"is at {ahead}, but the upstream is at"):
        await life(settings)
    await publisher.close()


async def test_a_pump_that_joins_between_two_batches_is_read(
    pump: Start, etcd_clean: str, publisher: Publisher, settings: LiveSettings, connection: Connection
) -> None:
    """Without a DDL in between: of the schema nothing is new, of the Pumps one."""
    batches: list[Batch] = []
    stream = PumpStream(replace(settings, once=False), None, on_batch=batches.append)
    running = asyncio.create_task(asyncio.to_thread(stream.wait))
    written = 0

    async def write_until(enough: Callable[[], bool]) -> None:
        nonlocal written
        async with asyncio.timeout(PATIENCE_S):
            while not enough():
                await write(publisher, written)
                written += 1

    await write_until(lambda: any(batch.rows for batch in batches))
    await pump("-node-id=p3", "-heartbeat-interval=200ms", directory="p3").start_and_wait()
    other = await open_publisher(etcd_clean)  # its writes go round all three
    at = len(batches)
    for number in range(1000, 1030):
        await write(other, number)
    await write_until(lambda: sum(batch.rows for batch in batches[at:]) > 0)
    stream.stop()
    await running
    await life(settings)
    assert [number for number, _ in orders(connection)] == [*range(written), *range(1000, 1030)]
    await other.close()
    await publisher.close()


def is_consistent(connection: Connection) -> bool:
    ((checkpoint,),) = connection.rows(b"SELECT checkPoint FROM tidb_binlog.checkpoint")
    return bool(json.loads(checkpoint)["consistent"])


async def stop_while_pumps_are_away(settings: LiveSettings) -> None:
    asked: list[object] = []

    async def away(*of: object) -> None:
        asked.append(of)
        raise Unavailable("pump p1 is away")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(range_cuts, "parts", away)
        stream = PumpStream(replace(settings, once=False), None)
        running = asyncio.create_task(asyncio.to_thread(stream.wait))
        await until(lambda: asked, "the stream to ask", beside=[running])
        stream.stop()
        await asyncio.wait_for(running, PATIENCE_S)


async def test_it_stops_while_it_waits_for_a_pump(
    publisher: Publisher, settings: LiveSettings, connection: Connection
) -> None:
    await life(settings)
    await write(publisher, 0)
    await stop_while_pumps_are_away(settings)
    assert is_consistent(connection), "whoever comes next goes on from there"
    await life(settings)
    assert orders(connection) == [(0, "pen 0")]
    await publisher.close()


async def test_what_an_earlier_life_began_is_not_given_back_by_one_that_stops_at_once(
    publisher: Publisher, settings: LiveSettings, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A Drainer would take the checkpoint for all that is there, and write keyless rows twice."""
    await life(settings)
    await write(publisher, 0)

    async def dies(self: object, commit_ts: int) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("drainer.spark.live.stream._Life._reach", dies)
    with pytest.raises(ZeroDivisionError):
        await life(settings)
    monkeypatch.undo()
    await stop_while_pumps_are_away(settings)
    assert not is_consistent(connection)
    await life(settings)
    assert orders(connection) == [(0, "pen 0")]
    assert is_consistent(connection)
    await publisher.close()
