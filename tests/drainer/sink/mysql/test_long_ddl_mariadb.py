"""A DDL that takes long runs beside the stream: its tables wait, rows and DDL of all others go on."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from drainer.ddl.quarantine import controller
from drainer.ddl.run import progress
from drainer.mysql.connection import Target, connect
from drainer.sink.mysql.mysql_sink import MysqlSink
from tests.crash.faults.statement_proxy import StatementProxy
from tests.crash.small_run import KEYED, SCHEMA, Statement
from tests.drainer.support.apply_life import Life, Recording, clean, column, run
from tests.drainer.support.made_recording import inserts, recording
from tests.drainer.support.waiting_life import live
from tests.waiting import PATIENCE_S
from tidb_binlog.ddl_job import ActionType
from tidb_binlog.table_info import LONG, Index, IndexColumn, TableInfo

pytestmark = pytest.mark.integration


def table(number: int, name: str, *more: str, key: str = "") -> TableInfo:
    columns = (*KEYED.columns, *(column(3 + at, called, LONG) for at, called in enumerate(more)))
    keys = (Index(1, key, (IndexColumn("v", 1),), unique=False, primary=False),) if key else ()
    return TableInfo(number, name, columns, keys, pk_is_handle=True)


T, U, W = table(1, "t"), table(2, "u"), table(3, "w")
BEGIN = (
    Statement(1, f"CREATE DATABASE `{SCHEMA}`", None),
    *(Statement(3, f"CREATE TABLE {one.name} ..", one) for one in (T, U, W)),
    [*inserts(T, (1, 1)), *inserts(U, (1, 1)), *inserts(W, (1, 1))],
)
KEYED_T, KEYED_U = table(1, "t", key="k"), table(2, "u", key="k")
WIDE_T, WIDE_U, WIDE_W = table(1, "t", "x", key="k"), table(2, "u", "x"), table(3, "w", "x")
KEY_OF_T = Statement(ActionType.ADD_INDEX, "ALTER TABLE t ADD INDEX k (v)", KEYED_T)
KEY_OF_U = Statement(ActionType.ADD_INDEX, "ALTER TABLE u ADD INDEX k (v)", KEYED_U)


def widened(info: TableInfo) -> Statement:
    return Statement(ActionType.ADD_COLUMN, f"ALTER TABLE {info.name} ADD COLUMN x INT", info)


@pytest.fixture
def target(server_not_tidb: Target) -> Iterator[Target]:
    clean(server_not_tidb)
    yield server_not_tidb
    clean(server_not_tidb)


@pytest.fixture
async def held(target: Target) -> AsyncIterator[Callable[[], None]]:
    """Every ALTER of t and u takes until it is called. Who reads them meanwhile waits behind it. What the
    recordings begin with is applied before: MySQL's CREATE DATABASE waits for readers of its tables."""
    assert await live(recording(*BEGIN), target) == []
    holder = connect(target)
    holder.rows(f"SELECT * FROM {SCHEMA}.t, {SCHEMA}.u".encode())
    yield holder.close
    with contextlib.suppress(Exception):
        holder.close()


def rows(target: Target, name: str) -> list[tuple[Any, ...]]:
    return run(target, f"SELECT * FROM {SCHEMA}.{name} ORDER BY id")


def consistent(target: Target) -> bool:
    ((text,),) = run(target, "SELECT checkPoint FROM tidb_binlog.checkpoint")
    return bool(json.loads(text)["consistent"])


def alters(target: Target) -> int:
    ((_, count),) = run(target, "SHOW GLOBAL STATUS LIKE 'Com_alter_table'")
    return int(count)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not await asyncio.to_thread(condition):
            await asyncio.sleep(0.02)


@contextlib.asynccontextmanager
async def running(found: Recording, target: Target) -> AsyncIterator[tuple[Life, asyncio.Task[bool]]]:
    """A life for which every table is large, with release beside it as in a daemon; what waited is done at
    its end."""
    life = Life(found, target, beside_rows=0)
    tasks = [
        asyncio.create_task(life.run(size=1, at_end=MysqlSink.finish_waiting)),
        asyncio.create_task(life.sink.quarantine.run()),
    ]
    try:
        yield life, tasks[0]
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def test_other_tables_go_on_with_their_ddl(
    target: Target, held: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "PROGRESS_S", 0.01)
    found = recording(
        *BEGIN, KEY_OF_T, [*inserts(KEYED_T, (2, 2)), *inserts(W, (2, 2))], widened(WIDE_T), widened(WIDE_W),
        [*inserts(WIDE_T, (3, 3, 3)), *inserts(WIDE_W, (3, 3, 3))],
    )  # fmt: skip
    async with running(found, target) as (life, task):
        await until(lambda: rows(target, "w") == [(1, 1, None), (2, 2, None), (3, 3, 3)])
        await until(lambda: "metadata lock" in life.sink.quarantine.documents()[0]["state"])
        (waiting,) = life.sink.quarantine.documents()
        assert waiting["state"].startswith(f"running DDL job {waiting['job_id']}, which waited: Waiting for")
        assert waiting["reason"].startswith("runs beside the stream: add index, d.t has about")
        assert waiting["decision"] == "retry"
        assert waiting["tables"] == ["d.t"]
        held()
        assert await task
    assert rows(target, "t") == [(1, 1, None), (2, 2, None), (3, 3, 3)]
    assert life.sink.quarantine.documents() == []
    assert consistent(target)


async def test_a_ddl_of_another_table_does_not_wait_for_two(target: Target, held: Callable[[], None]) -> None:
    """Two queues might become one by it: only one that touches both has to wait for release."""
    found = recording(
        *BEGIN, KEY_OF_T, KEY_OF_U, widened(WIDE_W), inserts(WIDE_W, (2, 2, 2)), inserts(KEYED_U, (2, 2))
    )
    async with running(found, target) as (life, task):
        await until(lambda: rows(target, "w") == [(1, 1, None), (2, 2, 2)])
        assert len(life.sink.quarantine.documents()) == 2
        held()
        assert await task
    assert rows(target, "u") == [(1, 1), (2, 2)]
    assert run(target, f"SHOW INDEX FROM {SCHEMA}.u WHERE Key_name='k'")
    assert consistent(target)


async def test_a_ddl_of_both_waits_for_both(target: Target, held: Callable[[], None]) -> None:
    drop = Statement(ActionType.DROP_SCHEMA, f"DROP DATABASE {SCHEMA}", None)
    found = recording(*BEGIN, KEY_OF_T, KEY_OF_U, drop, Statement(1, f"CREATE DATABASE {SCHEMA}", None))
    async with running(found, target) as (life, task):
        await until(lambda: len(life.sink.quarantine.documents()) == 2)
        held()
        assert await task
    assert run(target, f"SHOW TABLES FROM {SCHEMA}") == []
    assert consistent(target)


async def test_what_an_earlier_life_began_is_waited_for_and_not_run_again(
    target: Target, held: Callable[[], None]
) -> None:
    """The server goes on with a statement whose client is dead."""
    found = recording(*BEGIN, KEY_OF_T, [*inserts(KEYED_T, (2, 2)), *inserts(U, (2, 2))])
    target = replace(target, socket="")  # by its port, where the proxy listens
    before, proxy = alters(target), StatementProxy(target.host, target.port)
    try:
        proxy.arm(1, passes=True, hides=True, word=b"ALTER TABLE `d`.`t`")
        async with running(found, replace(target, port=proxy.port)) as (life, _):
            await until(proxy.struck.is_set)
            life.sink.stop()
        async with running(found, target) as (life, task):
            await until(lambda: rows(target, "u") == [(1, 1), (2, 2)])
            await until(lambda: life.sink.quarantine.documents()[0]["state"].startswith("running DDL job"))
            held()
            assert await task
    finally:
        proxy.close()
    assert rows(target, "t") == [(1, 1), (2, 2)]
    assert alters(target) - before == 1 + 1  # of the spare table, and of this one
    assert run(target, "SELECT outcome FROM tidb_binlog.ddl_decisions") == [("had run before the last stop",)]
    assert consistent(target)


async def test_a_stop_leaves_it_to_the_next_life(
    target: Target, held: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(controller, "CLOSE_S", 0.1)
    found = recording(*BEGIN, KEY_OF_T, [*inserts(KEYED_T, (2, 2)), *inserts(U, (2, 2))])
    life = Life(found, target, beside_rows=0)
    assert await life.run()
    assert rows(target, "u") == [(1, 1), (2, 2)]
    assert not consistent(target)
    held()
    assert await live(found, target, beside_rows=0) == []
    assert rows(target, "t") == [(1, 1), (2, 2)]
    assert consistent(target)


@pytest.mark.parametrize("beside_rows", [-1, 10_000])
async def test_it_is_a_matter_of_the_configuration(target: Target, beside_rows: int) -> None:
    found = recording(*BEGIN, KEY_OF_T, inserts(KEYED_T, (2, 2)))
    assert await Life(found, target, beside_rows=beside_rows).run()
    assert rows(target, "t") == [(1, 1), (2, 2)]
    assert run(target, "SELECT COUNT(*) FROM tidb_binlog.ddl_decisions") == [(0,)]
