"""Equal sides are found equal while programs write and a stream brings it, and what is not is found."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from binlog_playground.cluster.mariadb import MariaDbServer
from drainer.compare.verify.live import sides_of
from drainer.compare.verify.result import Kind, State, Verification
from drainer.compare.verify.row_source import Sides
from drainer.compare.verify.table_work import Request
from drainer.compare.verify.verifying import Pace, Verifying
from drainer.mysql.connection import Target
from pumpclient.testing import MemoryCluster
from tests.drainer.points.snapshot.writers import WRITERS, World
from tests.drainer.support.apply_life import run
from tests.drainer.support.held_life import TABLES

pytestmark = pytest.mark.integration
RUNS = 5


async def verified(world: World, retries: int = 0) -> Verification:
    loop = asyncio.get_running_loop()

    def moment() -> Sides:
        opened = asyncio.run_coroutine_threadsafe(world.moment(), loop).result()
        return sides_of(world.settings, opened, loop)

    def listing(_: Sides) -> list[Request]:
        return [Request((("app", name),), ("d", name)) for name in TABLES]

    pace = Pace(workers=1, retries=retries, retry_pause_s=0.0, chunk_rows=10)
    return await asyncio.to_thread(Verifying(moment, listing, pace).run)


@pytest.fixture
async def both(mariadb: MariaDbServer, target: Target) -> World:
    world = World(mariadb, target, MemoryCluster(["pump"]))
    run(target, "ALTER TABLE app.t ADD b VARCHAR(20) INVISIBLE DEFAULT 'x'", "SELECT 1")
    run(target, "ALTER TABLE app.u ADD b VARCHAR(20) INVISIBLE DEFAULT 'x'", "SELECT 1")
    return world


async def test_only_what_is_different_differs(both: World, target: Target) -> None:
    async def written() -> None:
        had = len(both.committed)
        while len(both.committed) < had + WRITERS:
            await asyncio.sleep(0.001)

    async with both.running():
        rows = []
        for _ in range(RUNS):
            await written()
            found = await verified(both)
            assert found.state is State.EQUAL, found.tables
            assert found.held_ms > 0.0
            rows.append(found.rows)
        assert rows == sorted(set(rows)), "rows went on between them"

        def spoil() -> list[tuple[Any, ...]]:
            return run(
                target, "DELETE FROM d.t ORDER BY a LIMIT 1", "UPDATE d.u SET b='X' ORDER BY a LIMIT 1"
            )

        await asyncio.to_thread(spoil)
        found = await verified(both, retries=1)
        assert found.state is State.DIFFERS
        assert [(one.missing, one.extra, one.changed) for one in found.tables] == [(1, 0, 0), (0, 0, 1)]
        assert [one.kind for table in found.tables for one in table.differences] == [
            Kind.MISSING,
            Kind.CHANGED,
        ]
