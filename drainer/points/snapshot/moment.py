"""Moment: upstream and downstream as they were at one timestamp T of the stream, while both are written to.

Order   a TiDB shows its past: the downstream is opened first, where the stream is, and the upstream at
        that T. A publisher's database does not: with it locked, the Drainer is armed, then T is drawn and the
        lock given back; the stream goes on to exactly T and is held there until the downstream is open
Why     T lies above where an armed stream stands, so it has not passed T; a lock that waits for a transaction
        of the application holds no rows up
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable

from drainer.config.database_options import UpstreamOptions
from drainer.config.downstream import upstream_target_of
from drainer.config.options import DrainerConfig
from drainer.points.snapshot.downstream import (
    PATIENT,
    DownstreamSnapshot,
    Patience,
    open_where_it_is,
    opening,
    persistently,
)
from drainer.points.snapshot.drainer_hold import DrainerHold
from drainer.points.snapshot.publisher_database import open_publisher_snapshot
from drainer.points.snapshot.sessions import SnapshotLost, UpstreamSnapshot
from drainer.points.snapshot.tidb import open_tidb_snapshot
from tidb_binlog.errors import BinlogError
from tidb_binlog.late_dataclass import dataclass
from tidb_binlog.tso import Ts
from tidb_binlog.upstream_port import Upstream


async def open_upstream_snapshot(
    settings: UpstreamOptions,
    upstream: Upstream,
    sessions: int,
    *,
    at_ts: Ts = 0,
    hold_name: str = "binlogctl",
    before_draw: Callable[[], Awaitable[None]] | None = None,
) -> UpstreamSnapshot:
    """`at_ts`: that moment again (where `reopens`); 0: now. `hold_name`: under which garbage is held.
    `before_draw`: of a publisher's database, awaited while no transaction can mark, before T is drawn.

    Raises `SnapshotTooOld`, `SnapshotLost`, `Unavailable`, `Rejected`, `ConfigError`.
    """
    assert sessions > 0
    target = upstream_target_of(settings)
    if not settings.from_outcome_table:
        return await open_tidb_snapshot(target, upstream, sessions, at_ts=at_ts, hold_name=hold_name)
    if at_ts:
        raise SnapshotLost(
            f"upstream {target!r} does not show {at_ts} again: it is no TiDB", hint="begin at a new timestamp"
        )
    return await open_publisher_snapshot(
        target, settings.from_outcome_table, upstream.oracle, sessions, before_draw=before_draw
    )


CATCH_UP_S = 60.0
"""How far a stream may be behind the timestamp at which it is to be held."""


@dataclass(frozen=True, slots=True)
class Moment:
    """Both sides at `ts`."""

    upstream: UpstreamSnapshot
    downstream: DownstreamSnapshot

    @property
    def ts(self) -> Ts:
        return self.downstream.ts

    async def close(self) -> None:
        try:
            await self.downstream.close()
        finally:
            await self.upstream.close()


async def open_moment(
    settings: DrainerConfig,
    upstream: Upstream,
    drainer: DrainerHold,
    sessions: int,
    *,
    hold_name: str = "binlogctl-verify",
    patience: Patience = PATIENT,
) -> Moment:
    """`sessions` on each side. `hold_name`: under which garbage of a TiDB is held. What passes by itself is
    tried again. Raises `Unavailable`, `Rejected`, `DownstreamError`, `ConfigError`."""

    async def of_tidb() -> Moment:
        below = await open_where_it_is(settings, drainer, sessions, patience)
        try:
            above = await open_upstream_snapshot(
                settings, upstream, sessions, at_ts=below.ts, hold_name=hold_name
            )
        except BaseException:
            await below.close()
            raise
        return Moment(above, below)

    async def of_publisher() -> Moment:
        async with opening(settings, sessions) as readers, contextlib.AsyncExitStack() as undo:

            async def arm() -> None:
                token = await drainer.arm(limit_s=patience.limit_s, wait_s=patience.wait_s)
                undo.push_async_callback(_let_go, drainer, token)
                tokens.append(token)

            tokens: list[str] = []
            above = await open_upstream_snapshot(settings, upstream, sessions, before_draw=arm)
            undo.push_async_callback(above.close)
            held = await drainer.go_on(tokens[-1], above.ts, wait_s=CATCH_UP_S)
            below = await readers.begin(drainer, held)
            undo.pop_all()
        return Moment(above, below)

    once = of_publisher if settings.from_outcome_table else of_tidb
    return await persistently(once, patience.all_s, "both sides could not be seen at one moment")


async def _let_go(drainer: DrainerHold, token: str) -> None:
    """Of a hold that came to nothing: it ends by itself where this fails."""
    with contextlib.suppress(BinlogError):
        await drainer.release(token)
