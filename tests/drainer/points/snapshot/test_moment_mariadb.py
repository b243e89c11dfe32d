"""Upstream and downstream at one timestamp, with programs that write and a stream that goes on."""

from __future__ import annotations

import asyncio

import pytest

from binlog_playground.cluster.mariadb import MariaDbServer
from drainer.mysql.connection import Connection, Target
from pumpclient.testing import MemoryCluster
from tests.drainer.points.snapshot.writers import MOMENTS, WRITERS, World
from tests.drainer.support.held_life import TABLES
from tests.waiting import PATIENCE_S
from tidb_binlog.errors import Unavailable

pytestmark = pytest.mark.integration


@pytest.fixture
async def world(mariadb: MariaDbServer, target: Target) -> World:
    return World(mariadb, target, MemoryCluster(["pump"]))


def rows(session: Connection, database: str) -> list[int]:
    found = [
        [int(a) for (a,) in session.rows(f"SELECT a FROM {database}.{name} ORDER BY a".encode())]
        for name in TABLES
    ]
    assert found[0] == found[1], "half of a transaction"
    return found[0]


async def test_both_sides_have_the_same_rows_at_every_moment(world: World) -> None:
    counts = []
    async with world.running():
        for _ in range(MOMENTS):
            moment = await world.moment()
            with moment.upstream.session() as above, moment.downstream.session() as below:
                upstream, downstream = rows(above, "app"), rows(below, "d")
            assert upstream == downstream
            counts.append((moment.ts, upstream))
            await moment.close()
            had = len(world.committed)
            while len(world.committed) < had + WRITERS:
                await asyncio.sleep(0.001)
    for ts, upstream in counts:
        assert upstream == sorted(row for row, commit_ts in world.committed.items() if commit_ts <= ts)
    assert len({len(upstream) for _, upstream in counts}) == MOMENTS, "rows went on between them"


async def test_a_drainer_that_another_one_holds_lets_the_program_write_on(world: World) -> None:
    async with world.running():
        token = world.life.control.hold.arm(limit_s=30.0, wait_s=30.0)
        with pytest.raises(Unavailable, match="another one holds the stream"):
            await world.moment(all_s=0.0)
        had = len(world.committed)
        async with asyncio.timeout(PATIENCE_S):
            while len(world.committed) < had + WRITERS:
                await asyncio.sleep(0.001)
        world.life.control.hold.release(token)
        await (await world.moment()).close()
