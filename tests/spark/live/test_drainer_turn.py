"""A stream comes to a DDL that waits: it is a Drainer until none does, and others may take over anywhere."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from pyspark.sql import SparkSession

from drainer.mysql.connection import Connection, Target
from drainer.spark.live.downstream import LiveSettings
from drainer.spark.live.stream import PumpStream
from pumpclient import column
from tests.crash.small_run import publish
from tests.drainer.ddl.quarantine.shards import BEGIN, MERGES, T1, T2, statement
from tests.drainer.support.apply_life import column as column_of
from tests.drainer.support.made_recording import inserts
from tests.integration.support.subscribed_shop import shop, write
from tests.pump.conftest import pump as pump
from tests.pump.support.process import Start, start_two
from tests.rig.cluster import http_put
from tests.spark.support.live_stream import life, live_settings
from tests.waiting import PATIENCE_S, until
from tidb_binlog.ddl_job import ActionType
from tidb_binlog.table_info import LONG

pytestmark = pytest.mark.integration

NUMBER = replace(column_of(9, "c", LONG), offset=2)
X1, X2 = (replace(one, columns=(*one.columns[:2], NUMBER)) for one in (T1, T2))
MODIFIES = tuple(
    statement(ActionType.MODIFY_COLUMN, f"ALTER TABLE `{one.name}` MODIFY `c` INT", one) for one in (X1, X2)
)
LOSSY = (
    [MODIFIES[0], [*inserts(X1, (3, 3, 30)), *inserts(T2, (4, 4, "5"))],
     [(T2, (2, 2, "b"), (2, 2, "7"))], MODIFIES[1], inserts(X2, (5, 5, 50))],
    [(2, 2, 7), (3, 3, 30), (4, 4, 5), (5, 5, 50)],
)  # fmt: skip
OF_MYSQL = "utf8mb4_0900_ai_ci"
FIRST_GOES = [(T1, (1, 1, "a"), None)]


@pytest.fixture
def settings(
    etcd_clean: str, target: Target, connection: Connection, tmp_path: Path
) -> Iterator[LiveSettings]:
    route = {"source": {"schema": "d", "table": "t*"}, "target": {"schema": "d", "table": "all"}}
    shards: dict[str, Any] = {"disjoint_shards": True, "table_migrate_rule": (route,)}
    with live_settings("d", etcd_clean, target, connection, tmp_path, **shards) as settings:
        yield settings


def merged(connection: Connection) -> list[tuple[Any, ...]]:
    return list(connection.rows(b"SELECT * FROM d.`all` ORDER BY id"))


def waiting(connection: Connection) -> int:
    return len(connection.rows_if_there(b"SELECT 1 FROM tidb_binlog.quarantine")[0])


def owner(connection: Connection) -> str:
    ((name,),) = connection.rows(b"SELECT owner FROM tidb_binlog.drainer_state")
    return str(name)


@pytest.mark.parametrize("by_tasks", [False, True])
@pytest.mark.parametrize(
    ("before", "steps", "expected"),
    [
        ([], *MERGES["drop column"]),
        ([], *MERGES["add column, not null"]),
        ([FIRST_GOES], *LOSSY),
    ],
    ids=["drop column", "add column", "lossy modify"],
)
async def test_shards_change_in_turn(
    before: list[Any],
    steps: list[Any],
    expected: list[tuple[Any, ...]],
    by_tasks: bool,
    pump: Start,
    etcd_clean: str,
    settings: LiveSettings,
    connection: Connection,
    spark: SparkSession,
) -> None:
    await start_two(pump)
    await publish(etcd_clean, [*BEGIN, *before, *steps])
    if by_tasks:
        settings = replace(settings, small_bytes=0)
    batches = await life(settings, spark)
    assert merged(connection) == expected
    assert (waiting(connection), owner(connection)) == (0, "")
    for batch, following in itertools.pairwise(batches):
        assert following.start_ts == batch.stop_ts + 1
    assert sum(batch.ddl for batch in batches) == 5


async def test_what_waits_is_left_for_the_next_one(
    pump: Start, etcd_clean: str, settings: LiveSettings, connection: Connection
) -> None:
    await start_two(pump)
    steps, expected = MERGES["drop column"]
    await publish(etcd_clean, [*BEGIN, *steps[:3]])
    for _ in range(2):
        await life(settings)
        assert (waiting(connection), owner(connection)) == (1, "")
    await publish(etcd_clean, steps[3:], first=len(BEGIN) + 4)
    await life(settings)
    assert merged(connection) == expected
    assert waiting(connection) == 0


async def test_a_ddl_that_is_refused_waits_for_a_decision_and_others_go_on(
    pump: Start,
    etcd_clean: str,
    settings: LiveSettings,
    connection: Connection,
    free_port: Callable[[], int],
) -> None:
    await start_two(pump)
    publisher = await shop(etcd_clean)
    await write(publisher, 1, 2)
    await life(settings)
    connection.run(b"UPDATE shop.orders SET item='the same'")
    connection.commit()
    address = f"127.0.0.1:{free_port()}"
    stream = PumpStream(replace(settings, once=False, listen=address), None)
    running = asyncio.create_task(asyncio.to_thread(stream.wait))
    try:
        await publisher.add_index("shop.orders", "once", ["item"], unique=True)
        await publisher.add_column("shop.items", column("by_drainer", f"text COLLATE {OF_MYSQL}"))
        await write(publisher, 3)
        await write(publisher, 3, table="items")
        await until(lambda: waiting(connection) == 1 and count(connection, "items") == 1)
        assert count(connection, "orders") == 2
        await asyncio.to_thread(http_put, f"http://{address}/ddl/{job_of(connection)}/skip", 10.0)
        await until(lambda: count(connection, "orders") == 3 and not waiting(connection))
        await write(publisher, 4)
        await until(lambda: count(connection, "orders") == 4)
        await until(lambda: asyncio.to_thread(is_by_itself, address))
        await publisher.add_column("shop.items", column("by_stream", f"text COLLATE {OF_MYSQL}"))
        await write(publisher, 5)
        await until(lambda: count(connection, "orders") == 5)
        lacks = await asyncio.to_thread(lacking, address)
    finally:
        stream.stop()
        await running
    assert owner(connection) == ""
    assert [lack["tables"] for lack in lacks] == [["shop.items"]] * 2
    for lack, name in zip(lacks, ("by_drainer", "by_stream"), strict=True):
        assert [line for line in lack["missing"] if line.endswith(OF_MYSQL) and name in line]
    await publisher.close()
    connection.run(b"DROP DATABASE shop")


def lacking(address: str) -> Any:
    with urlopen(f"http://{address}/status", timeout=PATIENCE_S) as reply:
        return json.load(reply)["DDL"]["missing"]


def is_by_itself(address: str) -> bool:
    """Whether the stream says that nothing waits, as no Drainer works for it."""
    try:
        urlopen(f"http://{address}/ddl", timeout=PATIENCE_S).close()
    except HTTPError as error:
        with error:
            return error.code == 503
    return False


def count(connection: Connection, table: str) -> int:
    ((rows,),) = connection.rows(f"SELECT COUNT(*) FROM shop.{table}".encode())
    return int(rows)


def job_of(connection: Connection) -> int:
    ((number,),) = connection.rows(b"SELECT job_id FROM tidb_binlog.quarantine")
    return int(number)
