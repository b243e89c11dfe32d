"""What a snapshot of TiDB keeps from being collected, and for how long."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from drainer.mysql.connection import Target
from drainer.points.snapshot.sessions import SnapshotTooOld
from drainer.points.snapshot.tidb import TTL_S, TidbSnapshot, open_tidb_snapshot
from tidb_binlog import tso
from tidb_binlog.errors import Rejected, Unavailable
from tidb_binlog.upstream_port import Upstream

NOBODY = Target("127.0.0.1", 1, "root", "", side="upstream")
NOW_TS = tso.from_wall_s(1_700_000_000.0)


class Garbage:
    """`floor_ts`: from where on everything is there."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, int, int]] = []
        self.floor_ts = 0
        self.takes_holds = True

    async def hold(self, name: str, ts: int, ttl_s: int) -> int:
        if not self.takes_holds:
            raise Rejected("this PD is too old")
        self.calls.append((name, ts, ttl_s))
        return self.floor_ts


@pytest.fixture
def garbage() -> Garbage:
    return Garbage()


def upstream_of(garbage: Garbage, ts: int = NOW_TS) -> Upstream:
    async def timestamp() -> int:
        return ts

    oracle: Any = SimpleNamespace(timestamp=timestamp)
    return SimpleNamespace(oracle=oracle, garbage=garbage)  # type: ignore[return-value]


async def open_one(garbage: Garbage, at_ts: int = 0) -> TidbSnapshot:
    return await open_tidb_snapshot(NOBODY, upstream_of(garbage), 1, at_ts=at_ts, hold_name="load")


async def test_a_t_that_was_collected_is_refused_and_not_held(garbage: Garbage) -> None:
    garbage.floor_ts = NOW_TS - 5
    with pytest.raises(SnapshotTooOld, match=f"keeps everything from {NOW_TS - 5} on") as raised:
        await open_one(garbage, NOW_TS - 10)
    assert "tidb_gc_life_time" in raised.value.hint
    assert garbage.calls == [("load", NOW_TS - 10, TTL_S), ("load", NOW_TS - 10, 0)]


async def test_a_new_t_that_could_not_be_read_is_let_go(garbage: Garbage) -> None:
    with pytest.raises(Unavailable, match="upstream root@"):
        await open_one(garbage)
    assert garbage.calls[0] == ("load", NOW_TS, TTL_S)
    assert garbage.calls[-1] == ("load", NOW_TS, 0)


async def test_the_t_of_one_that_was_interrupted_stays_held(garbage: Garbage) -> None:
    with pytest.raises(Unavailable):
        await open_one(garbage, NOW_TS - 10)
    assert {ttl_s for _, _, ttl_s in garbage.calls} == {TTL_S}


async def test_an_upstream_that_takes_no_holds_is_read_all_the_same(
    garbage: Garbage, caplog: pytest.LogCaptureFixture
) -> None:
    garbage.takes_holds = False
    with pytest.raises(Unavailable, match="upstream root@"):
        await open_one(garbage)
    assert "takes no holds" in caplog.text
