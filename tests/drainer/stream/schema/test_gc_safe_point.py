"""The hold on the schema at the checkpoint."""

from __future__ import annotations

import logging

import pytest

from drainer.stream.schema.upstream_schema import BACK_MAX_S, RENEW_S, TTL_S, CheckpointHold
from tests.pump.support.scripted import ScriptedOracle
from tidb_binlog import tso
from tidb_binlog.clock import ManualClock
from tidb_binlog.errors import Rejected, Unavailable
from tidb_binlog.upstream.upstream_time import UpstreamTime


class Garbage:
    def __init__(self) -> None:
        self.calls: list[tuple[str, int, int]] = []
        self.floor_ts = 0
        self.error: Exception | None = None

    async def hold(self, name: str, ts: int, ttl_s: int) -> int:
        if self.error is not None:
            raise self.error
        self.calls.append((name, ts, ttl_s))
        return self.floor_ts


class World:
    def __init__(self) -> None:
        self.clock = ManualClock(1_700_000_000.0)
        self.time = UpstreamTime(ScriptedOracle(), self.clock)
        self.garbage = Garbage()
        self.position = tso.from_wall_s(self.clock.wall_s())
        self.hold = CheckpointHold(self.garbage, lambda: self.position, self.time)


@pytest.fixture
def w() -> World:
    return World()


async def test_it_follows_the_checkpoint_under_one_name(w: World) -> None:
    first = w.position
    assert await w.hold.renew() == RENEW_S < TTL_S / 1.9
    w.position += 100
    await w.hold.renew()
    assert w.garbage.calls == [
        ("drainer_1700000000000000000", first, TTL_S),
        ("drainer_1700000000000000000", first + 100, TTL_S),
    ]


async def test_nothing_is_held_before_there_is_a_checkpoint(w: World) -> None:
    w.position = 0
    assert await w.hold.renew() == RENEW_S
    await w.hold.release()
    assert w.garbage.calls == []


async def test_it_says_once_that_it_came_too_late(w: World, caplog: pytest.LogCaptureFixture) -> None:
    w.garbage.floor_ts = w.position + 1
    with caplog.at_level(logging.ERROR):
        await w.hold.renew()
        await w.hold.renew()
        assert caplog.text.count("is collected already") == 1
        w.garbage.floor_ts = 0
        await w.hold.renew()
        w.garbage.floor_ts = w.position + 1
        await w.hold.renew()
        assert caplog.text.count("is collected already") == 2


async def test_an_upstream_that_is_away_is_asked_again_soon(w: World) -> None:
    w.garbage.error = Unavailable("away")
    pauses = [await w.hold.renew() for _ in range(8)]
    assert all(pause is not None and 0 < pause <= 30 for pause in pauses)
    w.garbage.error = None
    assert await w.hold.renew() == RENEW_S


async def test_an_upstream_that_takes_no_holds_is_not_asked_again(w: World) -> None:
    w.garbage.error = Rejected("blocked")
    assert await w.hold.renew() is None
    await w.hold.run()


async def test_a_drainer_far_behind_lets_go(w: World) -> None:
    await w.hold.renew()
    w.clock.advance(BACK_MAX_S + 1)
    assert await w.hold.renew() == RENEW_S
    assert [ttl_s for _, _, ttl_s in w.garbage.calls] == [TTL_S, 0]
    await w.hold.renew()
    assert len(w.garbage.calls) == 2
    w.position = tso.from_wall_s(w.clock.wall_s())
    await w.hold.renew()
    assert w.garbage.calls[-1][1:] == (w.position, TTL_S)


async def test_release_lets_go_once(w: World) -> None:
    await w.hold.renew()
    await w.hold.release()
    await w.hold.release()
    assert [ttl_s for _, _, ttl_s in w.garbage.calls] == [TTL_S, 0]
