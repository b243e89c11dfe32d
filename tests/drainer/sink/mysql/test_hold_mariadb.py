"""Snapshots that are opened while the stream is held see exactly the transactions up to its timestamp."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator

import pytest

from drainer.mysql.connection import Connection, Target, connect
from drainer.operate.control.hold_state import HoldPoint
from drainer.stream.pull.merged import MergedBatch
from tests.drainer.support.apply_life import Life, Recording
from tests.drainer.support.held_life import TwoTables
from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.integration
TRANSACTIONS, FIRST_TS, STEP = 300, 1000, 10


ROWS = range(FIRST_TS, FIRST_TS + TRANSACTIONS * STEP, STEP)


def recording() -> Recording:
    return TwoTables().recording(ROWS)


async def test_a_snapshot_has_all_up_to_the_hold_and_nothing_above_it(target: Target) -> None:
    life = Life(recording(), target, lanes=2, batch_rows=20)
    seen: list[tuple[int, list[int]]] = []

    held = asyncio.Event()

    async def batches() -> AsyncIterator[MergedBatch]:
        async for batch in life.batches(7):
            yield batch
            if life.runner.handed_over_ts > FIRST_TS:
                await held.wait()  # the first hold is in the middle of the stream

    run = asyncio.create_task(life.runner.run(batches()))
    hold = life.control.hold
    while life.runner.resolved_ts < FIRST_TS:
        await asyncio.sleep(0.001)
    first = await hold.ask()
    opened = [(first.hold_point, await asyncio.to_thread(snapshot, target))]
    held.set()
    onward = await hold.go_on(first.token, first.hold_point.ts + 5 * STEP + 3)
    opened.append((onward.hold_point, await asyncio.to_thread(snapshot, target)))
    assert hold.release(first.token).valid
    second = await hold.ask()
    opened.append((second.hold_point, await asyncio.to_thread(snapshot, target)))
    assert hold.release(second.token).valid
    await run
    assert await life.runner.stop(PATIENCE_S)
    for hold_point, session in opened:
        with contextlib.closing(session):
            seen.append((hold_point.ts, numbers(session, "t")))
            assert numbers(session, "t") == numbers(session, "u") == expected(hold_point.ts)
            assert hold_point.epoch == life.store.epoch
    assert seen[0][0] < seen[1][0] < FIRST_TS + TRANSACTIONS * STEP, "it was held in the middle of the stream"
    assert len(expected(1 << 62)) == TRANSACTIONS


async def test_lanes_that_stood_apart_are_not_held_before_all_are_at_the_highest(target: Target) -> None:
    recorded = recording()
    life = Life(recorded, target, lanes=2)
    assert await life.run(size=7)
    highest = FIRST_TS + 100 * STEP
    apart(target, life, [FIRST_TS, highest])
    again = Life(recorded, target, lanes=2)
    assert again.sink.equal_from_ts == highest
    held = asyncio.create_task(holding(again))
    assert await again.run(size=7)
    hold_point = await held
    assert hold_point.ts >= highest


def apart(target: Target, life: Life, places: list[int]) -> None:
    """As a crash leaves it: each lane with a position of its own."""
    with contextlib.closing(connect(target)) as connection:
        for lane, ts in enumerate(places):
            connection.run(b"UPDATE tidb_binlog.lanes SET applied_ts=%d WHERE lane=%d" % (ts, lane))
        low = min(places)
        for name in (b"checkpoint", b"drainer_state"):
            key = b"checkPoint" if name == b"checkpoint" else b"checkpoint"
            ((text,),) = connection.rows(b"SELECT %s FROM tidb_binlog.%s" % (key, name))
            document = json.loads(text) | {"commitTS": low, "consistent": False}
            connection.run(b"UPDATE tidb_binlog.%s SET %s='%s'" % (name, key, json.dumps(document).encode()))
        connection.run(b"DELETE FROM d.t WHERE a>%d" % low)
        connection.run(b"DELETE FROM d.u WHERE a>%d" % low)
        connection.commit()


async def holding(life: Life) -> HoldPoint:
    while life.runner.doing == "starting":
        await asyncio.sleep(0)
    held = await life.control.hold.ask()
    life.control.hold.release(held.token)
    return held.hold_point


def snapshot(target: Target) -> Connection:
    session = connect(target)
    session.run(b"SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
    session.run(b"START TRANSACTION WITH CONSISTENT SNAPSHOT")
    return session


def numbers(session: Connection, table: str) -> list[int]:
    return [int(a) for (a,) in session.rows(b"SELECT a FROM d.%s ORDER BY a" % table.encode())]


def expected(ts: int) -> list[int]:
    return [row for row in ROWS if row <= ts]
