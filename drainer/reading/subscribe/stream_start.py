"""Stream start: where a stream of changes begins, as programs say it.

    449213861234409473               after this commit timestamp
    datetime, "2026-11-22 09:00:00"  with the first transaction of that time; a datetime has a zone
    timedelta, "-10m", "-2h"         so long ago
    "now"                            with what is committed from here on
    "oldest"                         with the oldest binlog that pumps hold
    None                             now
    `snapshot` of a transaction      behind these rows, for a reader of a snapshot

A reader with a name begins there once. From then on it goes on where it was done: a program that is started
again with the same line skips nothing. A commit timestamp is a position that the program has kept with its
own data; it holds for a reader with a name, too.

Out    a position: everything at or below it is not wanted; None for "oldest", which pumps have to be asked
Never  takes a number that would be a time in 1970 for a timestamp, or a time without a zone for one in UTC
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Final

from drainer.points.rows.snapshot_position import PREFIX, SnapshotPosition
from drainer.reading.errors import BinlogsLost
from tidb_binlog import time_text, tso
from tidb_binlog.clock import SystemClock
from tidb_binlog.cluster import node
from tidb_binlog.cluster.registry import ClusterView
from tidb_binlog.errors import ConfigError, Unavailable
from tidb_binlog.late_dataclass import dataclass
from tidb_binlog.net.http_client import HttpClient
from tidb_binlog.net.tls import TlsConfig
from tidb_binlog.status import codec
from tidb_binlog.status.pump import PumpDocument
from tidb_binlog.tso import Ts

Start = int | str | datetime | timedelta | None
NOW: Final = "now"
OLDEST: Final = "oldest"
_FORMS: Final = 'a commit timestamp, a time, a duration ago ("-10m"), "now" or "oldest"'
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def position_of(start: int | str | datetime | timedelta, now_ts: Ts, *, what: str = "start") -> int | None:
    """The position before `start`; `now_ts` is the upstream's time. None: "oldest".

    Raises `ConfigError` for what is no start, and for one in the future.
    """
    if start == OLDEST:
        if what != "start":
            raise ConfigError(f"{what} is {start!r}", hint="give a timestamp, a time, a duration ago or now")
        return None
    if start == NOW:
        return now_ts
    position = _position(start, now_ts, what)
    if position > now_ts and what == "start":
        raise ConfigError(
            f"start {start} lies in the future: the upstream is at {now_ts} ({time_text.utc(now_ts)})",
            hint='give a start that was reached, or "now"',
        )
    return position


def snapshot_place(
    start: Start, stored: str, stored_ts: Ts, *, has_snapshot: bool
) -> SnapshotPosition | None:
    """Where a snapshot is to begin or to go on; None: only the stream is. `stored` and `stored_ts` are of a
    reader with a name. Raises `ConfigError`."""
    is_text = isinstance(start, str) and start.startswith(PREFIX)
    is_position = isinstance(start, int) or (isinstance(start, str) and tso.is_number(start))
    kept = str(start) if is_text else "" if is_position else stored
    if kept and not has_snapshot:
        raise ConfigError(
            f"this position lies in a snapshot: {kept[:40]}...",
            hint="say where the upstream is, as before: subscribe(..., snapshot={...})",
        )
    if kept:
        return SnapshotPosition.of(kept)
    if not has_snapshot or (is_position and int(str(start))) or (stored_ts and not is_position):
        return None
    if start is not None and not is_position:
        raise ConfigError(
            f"start is {start!r}, and the stream is to follow a snapshot",
            hint="leave one of them out; start=0 begins a snapshot anew",
        )
    return SnapshotPosition()


def _position(start: object, now_ts: Ts, what: str) -> int:
    if isinstance(start, bool) or not isinstance(start, int | str | datetime | timedelta):
        raise ConfigError(f"{what} is {start!r}", hint=f"give {_FORMS}")
    if isinstance(start, int) or tso.is_number(start if isinstance(start, str) else ""):
        return time_text.parse(str(start), 0.0)
    if isinstance(start, str):
        return time_text.parse(start, tso.physical_s(now_ts)) - 1
    if isinstance(start, timedelta):
        return _of_ms(tso.physical_ms(now_ts) - abs(start) // timedelta(milliseconds=1))
    if start.tzinfo is None:
        raise ConfigError(f"{what} {start} has no time zone", hint="use datetime.now(UTC), or .astimezone()")
    return _of_ms((start - _EPOCH) // timedelta(milliseconds=1))


def _of_ms(milliseconds: int) -> int:
    """A transaction of that very millisecond is wanted."""
    return max(tso.compose(max(milliseconds, 0)) - 1, 0)


ANSWER_S: Final = 3.0

Ask = Callable[[str], Awaitable[int]]
"""(address) -> up to where that pump has purged. Raises `Unavailable`."""


@dataclass(frozen=True, slots=True)
class Held:
    """`lowest`: a stream that begins after it misses nothing. `because`: whose doing that is."""

    lowest: int
    because: str
    unknown: tuple[str, ...]


async def held(view: ClusterView, ask: Ask) -> Held:
    """What the pumps of the registry have."""
    staying = {name: entry for name, entry in view.pumps.items() if entry.status.state != node.OFFLINE}
    answers = await asyncio.gather(*(_answer(ask, entry.status.host) for entry in staying.values()))
    bounds = [
        (purged, f"pump {name} has purged what is older")
        for name, purged in zip(staying, answers, strict=True)
        if purged is not None
    ]
    bounds += [
        (entry.status.max_commit_ts, f"pump {name} has left the cluster with what is older")
        for name, entry in view.pumps.items()
        if name not in staying
    ]
    lowest, because = max(bounds, default=(0, ""))
    unknown = tuple(name for name, purged in zip(staying, answers, strict=True) if purged is None)
    return Held(lowest, because if lowest else "", unknown)


async def first_position(view: ClusterView, ask: Ask, after_ts: Ts | None, oldest: str) -> Ts:
    """`after_ts`, or for None the oldest position, once pumps have all that follows. `oldest`: how
    that is asked for. Raises `BinlogsLost`, `Unavailable` where they do not say it."""
    holding = await held(view, ask)
    if after_ts is None:
        if holding.unknown:
            raise Unavailable(
                f"the oldest binlog is not known: pump {', '.join(holding.unknown)} does not say it",
                hint="`binlogctl -cmd pumps` shows its state; give a time as start meanwhile",
            )
        return holding.lowest
    if after_ts < holding.lowest:
        raise BinlogsLost(
            f"the stream cannot begin after {after_ts} ({time_text.utc(after_ts)}): {holding.because}",
            position=after_ts,
            lowest=holding.lowest,
            hint=f"the lowest start is {holding.lowest} ({time_text.utc(holding.lowest)}); "
            f"{oldest} takes it, read the tables anew first",
        )
    return after_ts


async def _answer(ask: Ask, address: str) -> int | None:
    try:
        return await ask(address)
    except Unavailable:
        return None


def asks_pumps(tls: TlsConfig | None) -> Ask:
    """Over HTTP, on the port on which they serve binlogs."""
    client = HttpClient(SystemClock(), tls, ANSWER_S)

    async def ask(address: str) -> int:
        page = await client.get(address, "/status")
        try:
            pump = codec.read(json.loads(page.body), PumpDocument).pump
        except ValueError:
            pump = None
        purged = pump.gc_ts if pump is not None else None
        if purged is None:  # a Go pump does not say it; it refuses a pull below
            raise Unavailable(f"{address} does not say up to where it has purged")
        return purged

    return ask
