"""Where a stream begins, in every way to say it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from drainer.reading.subscribe.stream_start import Held, held, position_of
from tidb_binlog import tso
from tidb_binlog.cluster.node import NodeStatus
from tidb_binlog.cluster.registry import ClusterView, NodeEntry
from tidb_binlog.errors import ConfigError, Unavailable

NOW_S = 1_700_000_000.0
NOW_TS = tso.from_wall_s(NOW_S) + 77


def at(seconds: float) -> int:
    """The position before that time."""
    return tso.from_wall_s(seconds) - 1


@pytest.mark.parametrize(
    ("start", "position"),
    [
        (NOW_TS - 5, NOW_TS - 5),
        (str(NOW_TS - 5), NOW_TS - 5),
        ("now", NOW_TS),
        ("oldest", None),
        ("-10m", at(NOW_S - 600)),
        (timedelta(minutes=10), at(NOW_S - 600)),
        (timedelta(minutes=-10), at(NOW_S - 600)),
        (datetime.fromtimestamp(NOW_S - 60, UTC), at(NOW_S - 60)),
        ("2023-11-14T22:13:00Z", at(1_699_999_980)),
        ("@1699999980", at(1_699_999_980)),
    ],
)
def test_forms(start: Any, position: int | None) -> None:
    assert position_of(start, NOW_TS) == position


@pytest.mark.parametrize(
    ("start", "said"),
    [
        (True, "start is True"),
        (1.5, "start is 1.5"),
        (17, "17 is no timestamp"),
        ("yesterday", "'yesterday' is no time"),
        (datetime(2023, 1, 1), "has no time zone"),
        (NOW_TS + 1, "lies in the future"),
        (datetime.fromtimestamp(NOW_S + 60, UTC), "lies in the future"),
    ],
)
def test_what_is_no_start(start: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        position_of(start, NOW_TS)
    assert caught.value.hint


def test_a_stream_does_not_end_with_the_oldest_binlog() -> None:
    with pytest.raises(ConfigError, match="stop is 'oldest'"):
        position_of("oldest", NOW_TS, what="stop")


def test_an_end_may_lie_in_the_future() -> None:
    later = datetime.fromtimestamp(NOW_S + 60, UTC)
    assert position_of(later, NOW_TS, what="stop") == at(NOW_S + 60)


# -- what pumps hold ------------------------------------------------------------------------------------


def view(**pumps: tuple[str, int]) -> ClusterView:
    entries = {
        name: NodeEntry(NodeStatus(name, f"{name}:1", state, last_ts), 1, True)
        for name, (state, last_ts) in pumps.items()
    }
    return ClusterView(1, entries, {})


def purged(**stamps: int) -> object:
    async def ask(address: str) -> int:
        if (name := address.partition(":")[0]) not in stamps:
            raise Unavailable("nobody listens")
        return stamps[name]

    return ask


async def test_the_pump_that_has_purged_most_decides() -> None:
    found = await held(view(a=("online", 90), b=("paused", 90)), purged(a=10, b=20))  # type: ignore[arg-type]
    assert found == Held(20, "pump b has purged what is older", ())


async def test_a_pump_that_left_took_its_binlogs_along() -> None:
    found = await held(view(a=("online", 90), b=("offline", 50)), purged(a=10))  # type: ignore[arg-type]
    assert found == Held(50, "pump b has left the cluster with what is older", ())


async def test_one_that_does_not_answer_is_named() -> None:
    found = await held(view(a=("online", 90), b=("online", 90)), purged(a=0))  # type: ignore[arg-type]
    assert found == Held(0, "", ("b",))


async def test_no_pump_at_all() -> None:
    assert await held(view(), purged()) == Held(0, "", ())  # type: ignore[arg-type]
