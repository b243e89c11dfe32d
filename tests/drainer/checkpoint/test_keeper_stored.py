"""What the checkpoint keeper asks its store for: which checkpoint, where lanes go, what is tried again."""

from __future__ import annotations

import asyncio
import threading
from typing import Any, cast

import pytest

from drainer.checkpoint.keeper import HOLD_S, MAP_INTERVAL_S, PURGE_S, CheckpointKeeper, CheckpointUpkeep
from drainer.checkpoint.resume import Start
from drainer.checkpoint.safe_mode import SafeMode
from drainer.checkpoint.value import Checkpoint, Intent
from drainer.mysql.errors import ConnectionLost, StatementRefused
from drainer.mysql.rows.change import Position
from tests.waiting import settle
from tidb_binlog.clock import ManualClock
from tidb_binlog.errors import Conflict, DownstreamError, Unavailable

START = Start(
    7, Checkpoint(100, False, 3, ts_map={"old": 1}), (Position(150), Position(130, 5)), None, floor_ts=100
)
INTENT = Intent(250, 7, "ALTER TABLE t", {})


class Store:
    """It notes what it is asked for, and fails as it is told: `fails` by name, one error a call."""

    epoch = 7

    def __init__(self) -> None:
        self.said: list[tuple[Any, ...]] = []
        self.fails: dict[str, list[Exception]] = {}
        self.answers: dict[str, Any] = {}
        self.threads: set[str] = set()

    def __getattr__(self, name: str) -> Any:
        def asked(*of: Any, **more: Any) -> Any:
            self.said.append((name, *of, *more.items()))
            self.threads.add(threading.current_thread().name)
            if self.fails.get(name):
                raise self.fails[name].pop(0)
            return self.answers.get(name)

        self.__dict__[name] = asked  # as a method, it is the same one each time
        return asked


def opened(
    start: Start = START, *, always_safe: bool = False, maps: bool = False
) -> tuple[CheckpointKeeper, Store, ManualClock]:
    store, clock = Store(), ManualClock()
    failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    keeper = CheckpointKeeper(cast(Any, store), start, failure, clock, always_safe=always_safe, maps=maps)
    return keeper, store, clock


def at(commit_ts: int, version: int = 3, *, consistent: bool = False, **more: Any) -> Checkpoint:
    return Checkpoint(commit_ts, consistent, version, epoch=7, **{"ts_map": {"old": 1}, **more})


async def test_only_what_is_news_is_saved() -> None:
    keeper, store, _ = opened()
    assert keeper.stored_ts == 100, "lanes are further, the row is not"
    await keeper.save(100)
    assert store.said == []
    await keeper.save(101)
    assert (store.said, keeper.stored_ts) == ([("save", at(101))], 101)
    keeper.floor = lambda: (101, 3)
    await keeper.save(300)
    assert store.said == [("save", at(101))]
    await keeper.close()


async def test_lanes_stand_around_a_ddl_and_the_checkpoint_where_nothing_waits_before_it() -> None:
    keeper, store, _ = opened()
    work = object()
    await keeper.begin_ddl(INTENT)
    keeper.schema_version = 4
    await keeper.end_ddl(250)
    await keeper.together(cast(Any, work), lanes_at=260, upto_ts=260)
    keeper.floor = lambda: (255, 2)
    await keeper.together(cast(Any, work), lanes_at=270, upto_ts=270)
    assert store.said == [
        ("begin_ddl", INTENT, at(249)),
        ("end_ddl", at(250, 4), ("lanes_at", 250)),
        ("together", work, ("lanes_at", 260), ("checkpoint", at(260, 4))),
        ("together", work, ("lanes_at", 270), ("checkpoint", at(255, 2))),
    ]
    assert keeper.stored_ts == 255
    await keeper.close()


async def test_the_schema_version_is_of_the_lower_place() -> None:
    keeper, _, _ = opened()
    keeper.schema_version, keeper.floor = 4, lambda: (300, 2)
    assert keeper.checkpoint(299, consistent=True) == at(299, 4)
    assert keeper.checkpoint(300, consistent=True) == at(300, 2)
    keeper.floor = lambda: None
    assert keeper.checkpoint(300, consistent=True) == at(300, 4, consistent=True)
    await keeper.close()


@pytest.mark.parametrize(
    ("safe_mode", "highest_ts"), [(SafeMode(), 150), (SafeMode(140), 150), (SafeMode(200), 200)]
)
async def test_an_end_is_settled_from_where_the_foremost_lane_was_at_the_start(
    safe_mode: SafeMode, highest_ts: int
) -> None:
    """Before that, lanes would be put back, or the downstream is ahead of what the row says."""
    start = Start(7, START.checkpoint, START.positions, None, safe_mode, floor_ts=100)
    keeper, store, _ = opened(start)
    assert keeper.highest_ts == highest_ts
    safe = safe_mode.until_ts
    await keeper.settle(highest_ts - 1)
    await keeper.settle(highest_ts)
    assert store.said == [
        ("save", at(highest_ts - 1, safe_until=safe)),
        ("settle", at(highest_ts, consistent=True, safe_until=safe), ("lanes_at", highest_ts)),
    ]
    assert keeper.stored_ts == highest_ts
    await keeper.close()


async def test_a_cluster_that_is_new_begins_with_nothing() -> None:
    keeper, _, _ = opened(Start(1, None, (Position(5),), None, floor_ts=5), always_safe=True)
    assert keeper.checkpoint(9) == at(9, 0, ts_map=None)
    assert (keeper.schema_ts, keeper.highest_ts) == (0, 5)
    assert keeper.safe_mode == SafeMode(0, always=True)
    await keeper.close()


async def test_a_pair_of_equal_moments_is_asked_for_once_a_minute() -> None:
    keeper, store, clock = opened(maps=True)
    store.answers["downstream_position"] = 9000
    assert keeper.map_is_due
    await keeper.map_downstream(200)
    pair = {"old": 1, "primary-ts": 200, "secondary-ts": 9000}
    assert store.said == [("downstream_position",), ("save", at(200, ts_map=pair))]
    assert keeper.checkpoint(201) == at(201, ts_map=pair)
    assert keeper.stored_ts == 200
    clock.advance(MAP_INTERVAL_S - 1)
    assert not keeper.map_is_due
    clock.advance(1)
    assert keeper.map_is_due
    keeper.floor = lambda: (200, 3)
    await keeper.map_downstream(300)
    assert not keeper.map_is_due
    assert len(store.said) == 2, "the sides are not equal while something waits"
    await keeper.close()


async def test_where_the_downstream_says_no_position_there_is_no_pair() -> None:
    keeper, store, _ = opened(maps=True)
    store.answers["downstream_position"] = 0
    await keeper.map_downstream(200)
    assert (store.said, keeper.stored_ts) == ([("downstream_position",)], 100)
    plain, _, _ = opened()
    assert not plain.map_is_due
    await keeper.close()
    await plain.close()


async def test_what_passes_is_tried_again_with_the_same_and_nothing_overtakes_it() -> None:
    keeper, store, _ = opened()
    store.fails["save"] = [Unavailable("away"), ConnectionLost(2013, "Lost connection")]
    await asyncio.gather(keeper.save(240), keeper.end_ddl(250))
    assert store.said == [("save", at(240))] * 3 + [("end_ddl", at(250), ("lanes_at", 250))]
    assert {name.rpartition("_")[0] for name in store.threads} == {"checkpoint"}
    await keeper.close()


async def test_what_is_refused_is_looked_into_once() -> None:
    """A server that went back refuses for that reason; one that is whole is asked once."""
    keeper, store, _ = opened()
    refused = StatementRefused(1142, "UPDATE command denied")
    store.fails["save"] = [refused, refused]
    with pytest.raises(DownstreamError, match=r"storing the checkpoint.*UPDATE command denied"):
        await keeper.save(240)
    assert [said[0] for said in store.said] == ["save", "confirm"]
    store.fails["confirm"] = [Conflict("it went back in time")]
    with pytest.raises(Conflict, match="back in time"):
        await keeper.save(240)
    store.fails["confirm"] = [refused]
    with pytest.raises(DownstreamError, match="UPDATE command denied"):
        await keeper.call(keeper.store.confirm)
    assert [said[0] for said in store.said] == ["save", "confirm", "save", "confirm", "confirm"]
    assert keeper.stored_ts == 100
    await keeper.close()


async def test_who_waits_for_a_downstream_that_is_away_hears_that_a_lane_failed() -> None:
    keeper, store, _ = opened()
    store.fails["save"] = [Unavailable("away")] * 9
    keeper._failure.set_exception(DownstreamError("a lane"))
    with pytest.raises(DownstreamError, match="a lane"):
        await keeper.save(240)
    assert len(store.said) == 1
    await keeper.close()


async def test_the_store_is_asked_by_one_thread_alone() -> None:
    keeper, store, _ = opened()
    goes_on = threading.Event()

    def held() -> str:
        goes_on.wait()
        return threading.current_thread().name

    calls = [asyncio.create_task(keeper.call(held)) for _ in range(2)]
    last = asyncio.create_task(keeper.call(keeper.store.hold))
    await settle()
    assert store.said == []
    goes_on.set()
    first, second, _ = await asyncio.gather(*calls, last)
    assert (first, store.said) == (second, [("hold",)])
    await keeper.close()


async def test_its_end_closes_the_store_first_and_then_what_used_its_thread() -> None:
    keeper, store, _ = opened()
    store.fails["save"] = []
    await keeper.close(lambda: store.said.append(("other", threading.current_thread().name)))
    (first, second) = store.said
    assert first == ("close",)
    assert second[0] == "other"
    assert second[1].startswith("checkpoint")
    with pytest.raises(RuntimeError, match="after shutdown"):
        keeper.thread.submit(print)


async def test_the_downstream_is_looked_at_in_turns() -> None:
    keeper, store, clock = opened()
    upkeep = CheckpointUpkeep(keeper, lambda ts: store.said.append(("purge", ts)), clock)
    await upkeep.run_due()
    clock.advance(HOLD_S - 1)
    await upkeep.run_due()
    assert store.said == []
    clock.advance(1)
    await upkeep.run_due()
    await upkeep.run_due()
    assert store.said == [("hold",)]
    clock.advance(PURGE_S - HOLD_S)
    await upkeep.run_due()
    await upkeep.run_due()
    assert store.said[1:] == [("hold",), ("purge", 100)]
    await keeper.close()
