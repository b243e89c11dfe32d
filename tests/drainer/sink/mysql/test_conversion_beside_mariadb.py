"""A conversion of a large table runs beside the stream: its rows wait, other tables go on."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from drainer.ddl.convert import columns
from drainer.mysql.connection import Target
from drainer.sink.findings import Findings
from tests.crash.small_run import SCHEMA, Statement
from tests.drainer.support.apply_life import Life, Recording, clean, run
from tests.drainer.support.made_recording import inserts, recording
from tests.drainer.support.waiting_life import live
from tests.waiting import PATIENCE_S
from tidb_binlog.clock import SystemClock
from tidb_binlog.table_info import (
    DOUBLE,
    FLAG_NOT_NULL,
    FLAG_PRIMARY,
    FLAG_UNSIGNED,
    LONG,
    VARCHAR,
    Column,
    FieldType,
    TableInfo,
)

pytestmark = pytest.mark.integration

ID = Column(1, "id", 0, FieldType(LONG, FLAG_NOT_NULL | FLAG_PRIMARY, 11))
TEXT = FieldType(VARCHAR, 0, 20, charset="utf8mb4", collate="utf8mb4_bin")
WAS = TableInfo(1, "t", (ID, Column(2, "v", 1, FieldType(DOUBLE))), (), pk_is_handle=True)
IS = TableInfo(1, "t", (ID, Column(3, "v", 1, TEXT)), (), pk_is_handle=True)
OTHER = TableInfo(2, "u", (ID,), (), pk_is_handle=True)
ROWS = [(1, "10000000000000000"), (2, "0.5"), (3, "x")]


def made(value: float = 0.5, after: TableInfo = IS) -> Recording:
    return recording(
        Statement(1, f"CREATE DATABASE `{SCHEMA}`", None),
        Statement(3, "CREATE TABLE t ..", WAS),
        Statement(3, "CREATE TABLE u ..", OTHER),
        inserts(WAS, (1, 1e16), (2, value)),
        Statement(12, "ALTER TABLE t MODIFY v ..", after),
        inserts(after, (3, "x" if after is IS else 3)),
        inserts(OTHER, (7,)),
    )


@pytest.fixture
def target(server_not_tidb: Target) -> Iterator[Target]:
    clean(server_not_tidb)
    yield server_not_tidb
    clean(server_not_tidb)


def rows(target: Target) -> list[tuple[Any, ...]]:
    return run(target, f"SELECT id, v FROM {SCHEMA}.t ORDER BY id")


async def test_other_tables_go_on(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, go_on, fill = threading.Event(), threading.Event(), columns.fill

    def slowly(*arguments: Any) -> list[str]:
        begun.set()
        assert go_on.wait(PATIENCE_S)
        return fill(*arguments)

    monkeypatch.setattr(columns, "fill", slowly)
    life = Life(made(), target, beside_rows=0)
    running = asyncio.create_task(life.run(at_end=lambda sink: sink.finish_waiting()))
    try:
        async with asyncio.timeout(PATIENCE_S):
            assert await asyncio.to_thread(begun.wait, PATIENCE_S)
            while run(target, f"SELECT id FROM {SCHEMA}.u") != [(7,)]:
                await asyncio.sleep(0.02)
        (waiting,) = life.sink.quarantine.documents()
        assert waiting["decision"] == "retry"
        assert waiting["reason"] == "runs beside the stream: column v from double to varchar(20)"
        assert len(rows(target)) == 2
    finally:
        go_on.set()
    assert await running
    assert rows(target) == ROWS
    assert life.sink.quarantine.documents() == []
    (decided,) = run(target, "SELECT asked_from, outcome FROM tidb_binlog.ddl_decisions")
    assert decided[0] == "drainer"
    assert str(decided[1]).startswith("ran: ALTER TABLE")


async def test_a_death_in_the_middle(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next life begins the column anew, beside the stream as well."""

    def dies(*_: Any) -> list[str]:
        raise OSError("gone")

    with monkeypatch.context() as patch:
        patch.setattr(columns, "fill", dies)
        with pytest.raises(OSError, match="gone"):
            await Life(made(), target, beside_rows=0).run(at_end=lambda sink: sink.finish_waiting())
    assert len(run(target, f"SHOW COLUMNS FROM {SCHEMA}.t")) == 3
    assert len(rows(target)) == 2
    assert await live(made(), target, beside_rows=0) == []
    assert rows(target) == ROWS
    assert run(target, f"SELECT id FROM {SCHEMA}.u") == [(7,)]


async def test_what_cannot_be_converted_waits_for_an_operator(
    target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(*_: Any) -> list[str]:
        raise columns.NotDerivable("no cast")

    with monkeypatch.context() as patch:
        patch.setattr(columns, "fill", refuses)
        (waiting,) = await live(made(), target, beside_rows=0)
    assert (waiting["decision"], waiting["state"]) == ("", "waiting for a decision")
    assert "no cast" in waiting["reason"]
    assert run(target, f"SELECT id FROM {SCHEMA}.u") == [(7,)]


async def test_a_small_table_is_converted_at_once(target: Target) -> None:
    assert await Life(made(), target).run()
    assert rows(target) == ROWS
    assert run(target, "SELECT COUNT(*) FROM tidb_binlog.ddl_decisions") == [(0,)]


async def test_the_status_says_what_the_downstream_cannot_have(target: Target) -> None:
    """TiDB makes 2^64-1 of it."""
    number = TableInfo(1, "t", (ID, Column(3, "v", 1, FieldType(LONG, FLAG_UNSIGNED))), (), pk_is_handle=True)
    findings = Findings(SystemClock())
    life = Life(made(1e30, number), target, beside_rows=0, findings=findings)
    assert await life.run(at_end=lambda sink: sink.finish_waiting())
    ((line,),) = [found["missing"] for found in life.runner.facts()["DDL"]["missing"]]
    assert line == "column v from double to int unsigned: 2 values that the downstream cannot have"
    later = Life(made(1e30, number), target, beside_rows=0, findings=findings)
    assert await later.run()
    assert later.runner.facts()["DDL"]["missing"] == life.runner.facts()["DDL"]["missing"]
    assert rows(target) == [(1, 2**32 - 1), (2, 2**32 - 1), (3, 3)]
