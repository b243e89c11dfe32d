"""Where a stream begins, in every way to say it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from drainer.reading.subscribe.stream_start import position_of
from tidb_binlog import tso
from tidb_binlog.errors import ConfigError

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
