"""Rows that the downstream refuses for good: their tables wait as in a Drainer, whatever kind they are and
however much of the batch was written before; all others go on; nothing is lost or doubled."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from drainer.mysql import errors
from drainer.mysql.connection import Connection, Target
from drainer.spark.live.downstream import LiveSettings
from drainer.spark.live.stream import PumpStream
from drainer.spark.replay.run import ReplayRun
from pumpclient import Publisher, column
from tests.integration.support.subscribed_shop import shop
from tests.pump.conftest import pump as pump
from tests.pump.support.process import Start, start_two
from tests.spark.support.live_stream import life, live_settings
from tests.waiting import until
from tidb_binlog.errors import DownstreamError

pytestmark = pytest.mark.integration

REFUSED = {
    "orders": b"ALTER TABLE shop.orders ADD CONSTRAINT refuses CHECK (id < 0 OR item <> 'wrong')",
    "seats": b"ALTER TABLE shop.seats ADD CONSTRAINT refuses CHECK (seat <> 50)",
    "log": b"ALTER TABLE shop.log ADD CONSTRAINT refuses CHECK (line <> 'wrong')",
}
ROWS = 40


@pytest.fixture
def settings(
    etcd_clean: str, target: Target, connection: Connection, tmp_path: Path
) -> Iterator[LiveSettings]:
    with live_settings("shop", etcd_clean, target, connection, tmp_path) as settings:
        yield replace(settings, chunk_rows=5)


@pytest.fixture
async def publisher(pump: Start, etcd_clean: str, settings: LiveSettings) -> Publisher:
    """Of a shop with rows that are downstream: orders with a key, seats with another one, a log without."""
    await start_two(pump)
    publisher = await shop(etcd_clean)
    seats = [column("id", "int", nullable=False), column("seat", "int", nullable=False)]
    await publisher.create_table("shop.seats", seats, primary_key=["id"], unique=[["seat"]])
    await publisher.create_table("shop.log", [column("line", "varchar(40)")], primary_key=[])
    for number in range(ROWS):
        async with publisher.transaction() as txn:
            txn.insert("shop.seats", {"id": number, "seat": number + 10})
            txn.insert("shop.orders", {"id": number, "item": "old"})
            txn.insert("shop.log", {"line": f"line {number % 4}"}, rowid=number + 1)
    await life(settings)
    return publisher


async def change(publisher: Publisher) -> None:
    """Every row, in chunks before and after those that are refused: the seats move on by one."""
    for number in reversed(range(ROWS)):
        async with publisher.transaction() as txn:
            txn.insert("shop.items", {"id": number, "item": "new"})
            order = {"id": number, "item": "wrong" if number == 17 else "new"}
            txn.update("shop.orders", {"id": number, "item": "old"}, order)
            txn.update("shop.seats", {"id": number, "seat": number + 10}, {"id": number, "seat": number + 11})
            txn.delete("shop.log", {"line": f"line {number % 4}"}, rowid=number + 1)
            txn.insert(
                "shop.log", {"line": "wrong" if number == 17 else f"line {number % 5}"}, rowid=number + 100
            )


ORDERS = [(number, "wrong" if number == 17 else "new") for number in range(ROWS)]
SEATS = [(number, number + 11) for number in range(ROWS)]
LOG = sorted("wrong" if number == 17 else f"line {number % 5}" for number in range(ROWS))


def table(connection: Connection, name: str) -> list[tuple[object, ...]]:
    return list(connection.rows(f"SELECT * FROM shop.{name} ORDER BY 1".encode()))


def log(connection: Connection) -> list[object]:
    return [line for (line,) in table(connection, "log")]


def waiting(connection: Connection) -> list[str]:
    """The tables, each of an entry."""
    (rows,) = connection.rows_if_there(b"SELECT `tables` FROM tidb_binlog.quarantine")
    return sorted(str(names).split('"')[3] for (names,) in rows)


def correct(connection: Connection, *tables: str) -> None:
    for name in tables:
        connection.run(f"ALTER TABLE shop.{name} DROP CONSTRAINT refuses".encode())


@pytest.mark.parametrize("by_tasks", [False, True])
async def test_their_tables_wait_and_others_go_on(
    by_tasks: bool,
    publisher: Publisher,
    settings: LiveSettings,
    connection: Connection,
    spark: SparkSession,
) -> None:
    if by_tasks:
        settings = replace(settings, small_bytes=0)
    for statement in REFUSED.values():
        connection.run(statement)
    await change(publisher)
    await life(settings, spark)
    assert len(table(connection, "items")) == ROWS
    assert waiting(connection) == sorted(REFUSED)
    await life(settings, spark)  # they are tried at each start
    assert waiting(connection) == sorted(REFUSED)
    correct(connection, "log", "seats")
    await publisher.add_column("shop.items", column("note", "int"))
    await life(settings, spark)
    assert waiting(connection) == ["orders"]
    assert (table(connection, "seats"), log(connection)) == (SEATS, LOG)
    correct(connection, "orders")
    await life(settings, spark)
    assert (waiting(connection), table(connection, "orders")) == ([], ORDERS)
    assert connection.rows(b"SELECT owner FROM tidb_binlog.drainer_state") == [("",)]
    await publisher.close()


@pytest.mark.parametrize("after", ["_rows", "_let_wait"])
async def test_a_life_that_ends_on_the_way_is_gone_on_with(
    after: str,
    publisher: Publisher,
    settings: LiveSettings,
    connection: Connection,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Once all is written but for what was refused; once it is stored that this waits."""
    from drainer.spark.live.database import Database

    class Killed(Exception):
        pass

    def then_dies(function: object) -> object:
        def dies(*arguments: object) -> None:
            try:
                function(*arguments)  # type: ignore[operator]
            finally:
                raise Killed

        return dies

    for statement in REFUSED.values():
        connection.run(statement)
    await change(publisher)
    place = ReplayRun if after == "_rows" else Database
    monkeypatch.setattr(place, after, then_dies(getattr(place, after)))
    with pytest.raises(Killed):
        await life(settings)
    monkeypatch.undo()
    await life(settings)
    assert waiting(connection) == sorted(REFUSED)
    correct(connection, *REFUSED)
    await life(settings)
    assert (waiting(connection), log(connection)) == ([], LOG)
    assert (table(connection, "seats"), table(connection, "orders")) == (SEATS, ORDERS)
    await publisher.close()


async def test_rows_that_are_refused_while_another_table_waits_let_theirs_wait(
    publisher: Publisher, settings: LiveSettings, connection: Connection
) -> None:
    """The stream is a Drainer then, which begins anew as a Drainer does."""
    connection.run(REFUSED["orders"])
    await change(publisher)
    stream = PumpStream(replace(settings, once=False), None)
    running = asyncio.create_task(asyncio.to_thread(stream.wait))
    try:
        await until(lambda: waiting(connection) == ["orders"])
        connection.run(b"ALTER TABLE shop.seats ADD CONSTRAINT refuses CHECK (seat < 1000)")
        async with publisher.transaction() as txn:
            txn.insert("shop.seats", {"id": 1000, "seat": 1000})
            txn.insert("shop.items", {"id": 1000, "item": "after"})
        await until(lambda: waiting(connection) == ["orders", "seats"])
        await until(lambda: len(table(connection, "items")) == ROWS + 1)
    finally:
        stream.stop()
        await running
    correct(connection, "orders", "seats")
    await life(settings)
    assert (waiting(connection), table(connection, "orders")) == ([], ORDERS)
    assert table(connection, "seats") == [*SEATS, (1000, 1000)]
    await publisher.close()


async def test_rows_that_only_commit_refuses_let_the_table_wait_of_the_statement_that_is_found(
    publisher: Publisher, settings: LiveSettings, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A TiDB looks at keys when an optimistic transaction commits, and the error then names no table."""
    asked: list[str] = []

    def refuses(session: Connection) -> None:
        if not asked and session.rows(b"SELECT 1 FROM shop.log WHERE line='wrong'"):
            session.rollback()
            raise errors.StatementRefused(1062, "Duplicate entry 'wrong' for key 'log.PRIMARY'")
        session.commit()

    def learns(session: Connection, name: str, value: str) -> None:
        if not asked:
            session.run(REFUSED["log"])
        asked.append(f"{name}={value}")

    monkeypatch.setattr("drainer.spark.replay.writer.commit", refuses)
    monkeypatch.setattr("drainer.spark.replay.writer.set_if_known", learns)
    await change(publisher)
    await life(settings)
    assert waiting(connection) == ["log"]
    assert set(asked) == {"tidb_constraint_check_in_place=1"}
    assert (table(connection, "seats"), table(connection, "orders")) == (SEATS, ORDERS)
    monkeypatch.undo()
    correct(connection, "log")
    await life(settings)
    assert (waiting(connection), log(connection)) == ([], LOG)
    await publisher.close()


@pytest.mark.parametrize("by_tasks", [False, True])
async def test_a_column_that_is_missing_is_left_out_where_the_sync_mode_says_so(
    by_tasks: bool,
    publisher: Publisher,
    settings: LiveSettings,
    connection: Connection,
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By the Drainer's configuration: 2. Without it the table takes no rows."""
    connection.run(b"ALTER TABLE shop.orders DROP COLUMN item")
    await change(publisher)
    if by_tasks:
        settings = replace(settings, small_bytes=0)
    partial = replace(settings, drainer=replace(settings.drainer, to_sync_mode=2))
    async with publisher.transaction() as txn:
        txn.insert("shop.orders", {"id": ROWS, "item": "new"})
    with monkeypatch.context() as patch:
        patch.setattr("drainer.spark.live.stream.take_turn", lambda *_: pytest.fail("it is a Drainer's turn"))
        await life(partial, spark)
    assert table(connection, "orders") == [(number,) for number in range(ROWS + 1)]
    async with publisher.transaction() as txn:
        txn.insert("shop.orders", {"id": ROWS + 1, "item": "new"})
    await life(settings, spark)
    assert waiting(connection) == ["orders"]
    await publisher.close()


@pytest.mark.parametrize("strict", [False, True])
async def test_a_row_that_is_not_there_ends_a_strict_stream(
    strict: bool, publisher: Publisher, settings: LiveSettings, connection: Connection
) -> None:
    settings = replace(settings, drainer=replace(settings.drainer, strict=strict))
    connection.run(b"DELETE FROM shop.seats WHERE id=17")
    connection.commit()
    async with publisher.transaction() as txn:
        txn.delete("shop.seats", {"id": 17, "seat": 27})
    if strict:
        with pytest.raises(DownstreamError, match=r"shop\.seats is not as upstream's: 1 rows"):
            await life(settings)
        connection.run(b"INSERT INTO shop.seats VALUES (17, 27)")
        connection.commit()
    drift = sum(batch.drift for batch in await life(settings))
    assert (drift, len(table(connection, "seats"))) == (int(not strict), ROWS - 1)
    await publisher.close()


@pytest.mark.parametrize("by_tasks", [False, True])
async def test_where_no_table_may_wait_the_stream_ends_and_says_which_one_it_is(
    by_tasks: bool,
    publisher: Publisher,
    settings: LiveSettings,
    connection: Connection,
    spark: SparkSession,
) -> None:
    """Corrected, it goes on where it was."""
    drainer = replace(settings.drainer, quarantine_bytes=0)
    settings = replace(settings, drainer=drainer, small_bytes=0 if by_tasks else settings.small_bytes)
    connection.run(REFUSED["log"])
    await change(publisher)
    with pytest.raises(DownstreamError, match=r"writing rows of shop\.log: downstream says 4025") as ended:
        await life(settings, spark)
    assert "run the same command again" in str(ended.value) + ended.value.hint
    correct(connection, "log")
    await life(settings, spark)
    assert (log(connection), table(connection, "seats")) == (LOG, SEATS)
    await publisher.close()
