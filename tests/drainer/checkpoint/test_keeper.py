"""What the checkpoint keeper stores, and when: on real servers, with a clock that is moved by hand."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from binlog_playground.cluster.mariadb import MariaDbServer
from drainer.checkpoint.fencing import WentBack
from drainer.checkpoint.keeper import MAP_INTERVAL_S, CheckpointKeeper
from drainer.checkpoint.safe_mode import SafeMode
from drainer.checkpoint.store import CheckpointStore
from drainer.checkpoint.value import Checkpoint, Intent
from drainer.mysql.connection import Target, connect
from tidb_binlog.clock import ManualClock
from tidb_binlog.errors import DownstreamError, Unavailable

CLUSTER = 7710435644538274664
NOW = 480_000_000_000_000_000

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def with_binlog(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """A server that has a position, which TiDB's is a timestamp."""
    server = MariaDbServer(durable=True)
    server.start(tmp_path_factory.mktemp("binlog-db"))
    try:
        yield Target(server.host, server.port, server.user, server.password)
    finally:
        server.stop()


def row(target: Target) -> dict[str, Any]:
    connection = connect(target)
    ((text,),) = connection.rows(b"SELECT checkPoint FROM tidb_binlog.checkpoint")
    connection.close()
    document: dict[str, Any] = json.loads(text)
    return document


def opened(
    target: Target, clock: ManualClock, *, maps: bool, always_safe: bool = False, safe_until: int = 0
) -> CheckpointKeeper:
    store = CheckpointStore(target, CLUSTER)
    start = store.start(2, 100, NOW)
    if safe_until:
        start = replace(start, safe_mode=SafeMode(safe_until))
    failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    return CheckpointKeeper(store, start, failure, clock, always_safe=always_safe, maps=maps)


async def test_equal_moments_of_both_sides_are_stored_once_a_minute(with_binlog: Target) -> None:
    clock = ManualClock()
    keeper = opened(with_binlog, clock, maps=True)
    assert keeper.map_is_due
    await keeper.map_downstream(300)
    stored = row(with_binlog)
    assert stored["commitTS"] == stored["ts-map"]["primary-ts"] == 300
    assert stored["ts-map"]["secondary-ts"] > 0
    assert not keeper.map_is_due
    await keeper.save(400)
    assert row(with_binlog)["ts-map"] == stored["ts-map"], "later checkpoints keep the pair"
    clock.advance(MAP_INTERVAL_S)
    assert keeper.map_is_due
    keeper.floor = lambda: (400, 0)
    await keeper.map_downstream(500)
    assert row(with_binlog)["ts-map"] == stored["ts-map"], "the sides are not equal while something waits"
    await keeper.close()


async def test_safe_mode_of_the_configuration_does_not_end_what_another_program_left(
    with_binlog: Target,
) -> None:
    """It may be taken back before the checkpoint is there."""
    keeper = opened(with_binlog, ManualClock(), maps=False, always_safe=True, safe_until=900)
    assert keeper.safe_mode.covers(10_000)
    await keeper.save(600)
    assert row(with_binlog)["safe-until"] == 900
    await keeper.close()


async def test_a_downstream_that_is_no_tidb_has_no_pair(with_binlog: Target) -> None:
    keeper = opened(with_binlog, ManualClock(), maps=False)
    assert not keeper.map_is_due
    await keeper.close()


async def test_a_server_without_a_position_is_passed_over(mariadb: MariaDbServer) -> None:
    target = Target(mariadb.host, mariadb.port, mariadb.user, mariadb.password)
    keeper = opened(target, ManualClock(), maps=True)
    await keeper.map_downstream(300)
    assert row(target)["ts-map"] == {}
    await keeper.close()
    connection = connect(target)
    connection.run(b"DROP DATABASE tidb_binlog")
    connection.close()


def lanes(target: Target) -> tuple[set[int], bool]:
    """(positions of the lanes, whether an intent is stored)."""
    connection = connect(target)
    places = connection.rows(b"SELECT applied_ts FROM tidb_binlog.lanes WHERE lane < 65536")
    intents = connection.rows(b"SELECT intent FROM tidb_binlog.drainer_state WHERE intent IS NOT NULL")
    connection.close()
    return {int(place) for (place,) in places}, bool(intents)


@pytest.mark.parametrize("held", [False, True])
async def test_lanes_and_checkpoint_stand_right_before_a_ddl_that_is_about_to_run(
    target: Target, held: bool
) -> None:
    """A crash behind the statement must not bring rows again that were written for the tables before it."""
    keeper = opened(target, ManualClock(), maps=False)
    if held:
        keeper.floor = lambda: (120, 0)
    await keeper.begin_ddl(Intent(250, 7, "ALTER TABLE t", {}))
    assert lanes(target) == ({249}, True)
    assert row(target)["commitTS"] == (120 if held else 249)
    await keeper.end_ddl(250)
    assert lanes(target) == ({250}, False)
    assert row(target)["commitTS"] == (120 if held else 250)
    await keeper.close()


async def test_what_is_stored_second_is_the_later_one(
    target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store that has to be tried again lets nothing pass it meanwhile."""
    keeper = opened(target, ManualClock(), maps=False)
    real, away = keeper.store.save, [Unavailable("the downstream is away")]

    def save(checkpoint: Checkpoint) -> None:
        if away:
            raise away.pop()
        real(checkpoint)

    monkeypatch.setattr(keeper.store, "save", save)
    await asyncio.gather(keeper.save(240), keeper.end_ddl(250))
    assert not away
    assert row(target)["commitTS"] == 250
    await keeper.close()


async def test_an_emptied_server_refuses_since_it_went_back(with_binlog: Target) -> None:
    """Whichever statement of an open session meets it first, and whichever of the tables that lacks."""
    for emptied in (
        b"DROP DATABASE tidb_binlog",
        b"DROP TABLE tidb_binlog.lanes",
        b"DROP TABLE tidb_binlog.checkpoint",
    ):
        keeper = opened(with_binlog, ManualClock(), maps=False)
        await keeper.save(keeper.stored_ts + 10)
        connection = connect(with_binlog)
        connection.run(emptied)
        connection.close()
        wanted = DownstreamError if b"TABLE tidb_binlog.checkpoint" in emptied else WentBack
        with pytest.raises(wanted):
            await keeper.save(keeper.stored_ts + 10)
        await keeper.close()
        connection = connect(with_binlog)
        connection.run(b"DROP DATABASE IF EXISTS tidb_binlog")
        connection.close()
