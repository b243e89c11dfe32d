"""Fenced moment: a transaction downstream that sees what is there at T, and that no Drainer can overtake.

Drives  the hold of the Drainer, a snapshot of the upstream at the same T
Order   1. the Drainer stands still at T: all up to T is applied
        2. the rows of all its lanes are locked, and looked at: none is above T, all have its epoch
        3. the Drainer goes on
        4. the upstream is read at T, the downstream in this transaction, and what is wrong is written
Why     no transaction of a lane commits without moving the lane's row, and no DDL begins without moving all
        of them. So from 2 until this transaction ends nothing is committed downstream that the upstream did
        after T, whichever process runs there and whether the hold lasted: what is written belongs to T, and
        what comes after T comes after it. A Drainer that takes over raises the epoch in these rows, and waits
        too. A TiDB does not lock, but refuses the commit if one of the rows was moved meanwhile
Stops   what passes by itself is tried again by the caller; nothing is written then
Tests   tests/drainer/compare/report/repair/test_repair_now.py
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Final

from drainer.checkpoint.store import SIDE_LANES
from drainer.config.downstream import target_of
from drainer.config.options import DrainerConfig
from drainer.mysql.connection import Connection, connect
from drainer.mysql.errors import StatementRefused, safe_text
from drainer.mysql.literal.quoting import qualified
from drainer.points.snapshot.downstream import PATIENT, Patience
from drainer.points.snapshot.drainer_hold import DrainerHold, HeldAt
from drainer.points.snapshot.moment import CATCH_UP_S, open_upstream_snapshot
from drainer.points.snapshot.sessions import UpstreamSnapshot
from tidb_binlog.errors import BinlogError, Rejected, Unavailable
from tidb_binlog.late_dataclass import dataclass
from tidb_binlog.tso import Ts
from tidb_binlog.upstream_port import Upstream

HOLD_NAME: Final = "binlogctl-repair"


@dataclass(frozen=True, slots=True)
class FencedMoment:
    """`connection` is in a transaction: who uses it commits, or it is rolled back. `waiting`: tables of the
    upstream that stand elsewhere."""

    ts: Ts
    upstream: UpstreamSnapshot
    connection: Connection
    waiting: tuple[str, ...]


@contextlib.asynccontextmanager
async def fenced_moment(
    settings: DrainerConfig, upstream: Upstream, drainer: DrainerHold, patience: Patience = PATIENT
) -> AsyncIterator[FencedMoment]:
    """Raises `Unavailable`, `SessionError` for what passes by itself; `Rejected`, `DownstreamError`."""
    async with contextlib.AsyncExitStack() as undo:
        connection = await asyncio.to_thread(connect, target_of(settings))
        undo.push_async_callback(asyncio.to_thread, connection.close)
        open_now = _of_publisher if settings.from_outcome_table else _of_tidb
        above, held = await open_now(settings, upstream, drainer, patience, connection)
        undo.push_async_callback(above.close)
        yield FencedMoment(held.ts, above, connection, held.waiting)


async def _of_tidb(
    settings: DrainerConfig,
    upstream: Upstream,
    drainer: DrainerHold,
    patience: Patience,
    connection: Connection,
) -> tuple[UpstreamSnapshot, HeldAt]:
    held = await drainer.hold(limit_s=patience.limit_s, wait_s=patience.wait_s)
    await _fence(drainer, connection, settings.checkpoint_schema, held)
    return await open_upstream_snapshot(settings, upstream, 1, at_ts=held.ts, hold_name=HOLD_NAME), held


async def _of_publisher(
    settings: DrainerConfig,
    upstream: Upstream,
    drainer: DrainerHold,
    patience: Patience,
    connection: Connection,
) -> tuple[UpstreamSnapshot, HeldAt]:
    tokens: list[str] = []

    async def arm() -> None:
        tokens.append(await drainer.arm(limit_s=patience.limit_s, wait_s=patience.wait_s))

    above: UpstreamSnapshot | None = None
    try:
        above = await open_upstream_snapshot(settings, upstream, 1, before_draw=arm)
        held = await drainer.go_on(tokens[-1], above.ts, wait_s=CATCH_UP_S)
    except BaseException:
        for token in tokens:
            with contextlib.suppress(BinlogError):  # it ends by itself where this fails
                await drainer.release(token)
        if above is not None:
            await above.close()
        raise
    try:
        await _fence(drainer, connection, settings.checkpoint_schema, held)
    except BaseException:
        await above.close()
        raise
    return above, held


async def _fence(drainer: DrainerHold, connection: Connection, schema: str, held: HeldAt) -> None:
    """While it is held; it goes on when this returns or raises."""
    try:
        await asyncio.to_thread(lock_lanes, connection, schema, held)
    finally:
        await drainer.release(held.token)


def lock_lanes(connection: Connection, schema: str, held: HeldAt) -> None:
    """Begin the transaction: the lanes of the Drainer that was held stay where they are, at `held.ts` or
    below. Raises `Unavailable`, `Rejected`."""
    mine = b" WHERE cluster_id=%d" % held.cluster_id
    try:
        connection.begin()
        lanes = connection.rows(
            b"SELECT applied_ts, epoch FROM %b%b AND lane<%d FOR UPDATE"
            % (qualified(schema, "lanes"), mine, SIDE_LANES)
        )
        epochs = connection.rows(b"SELECT epoch FROM " + qualified(schema, "drainer_state") + mine)
    except StatementRefused as error:
        raise Rejected(
            f"the drainer's tables in {schema} downstream cannot be locked: {safe_text(error)}",
            hint=f"GRANT SELECT, UPDATE ON {schema}.* to the user of [syncer.to]",
        ) from None
    if not lanes or {int(epoch) for (_, epoch) in lanes} | {int(epoch) for (epoch,) in epochs} != {
        held.epoch
    }:
        raise Unavailable("another drainer took over while its lanes were locked", hint="try again")
    if any(int(ts) > held.ts for (ts, _) in lanes):
        raise Unavailable(
            f"rows above {held.ts} were written before the drainer's lanes were locked", hint="try again"
        )
