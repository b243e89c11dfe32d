"""Moments: times and lengths of time on a page.

In     timestamps of the upstream, seconds
Out    text, or markup with what programs take beside what people read
Tests  tests/common/page/test_sections.py
"""

from __future__ import annotations

from typing import Final

from tidb_binlog import time_text, tso
from tidb_binlog.page.markup import Markup, element, join
from tidb_binlog.quantities import span
from tidb_binlog.tso import Ts

NOTHING: Final = "-"


def place(ts: Ts) -> object:
    """A place of the stream: its time in UTC and the timestamp itself."""
    if not 0 < ts <= tso.TS_MAX:
        return NOTHING
    return join(time_text.utc(ts), " ", element("code", ts, class_="ts"))


def wall(time_s: float) -> str:
    """A time of this host, seconds since 1970."""
    ts = tso.from_wall_s(max(time_s, 0.0))
    return time_text.utc(ts) if 0 < ts <= tso.TS_MAX else NOTHING


def behind(now_ts: Ts, ts: Ts, *, least_s: float = 0.0) -> str:
    """How far a place is behind the upstream; less than `least_s` is said to be that."""
    if not 0 < ts <= tso.TS_MAX or not now_ts:
        return NOTHING
    behind_s = tso.physical_s(now_ts) - tso.physical_s(ts)
    return span(behind_s) if behind_s >= least_s else f"< {span(least_s)}"


def length(seconds: float | None) -> str:
    return NOTHING if seconds is None else span(seconds)


def command(line: str) -> Markup:
    """One to copy."""
    return element("code", line, class_="command")
