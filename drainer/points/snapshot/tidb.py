"""Snapshot of a TiDB: every session reads at `tidb_snapshot = T`, as often as it is opened.

Drives  the hold on garbage: what stands at T is kept while it is read, and for `TTL_S` after a process that
        died, or left with `keep`, so that the next one goes on at the same T
Owns    its sessions; the task that renews the hold
Never   reads at a T that is collected already: `SnapshotTooOld`
"""

from __future__ import annotations

import asyncio
import contextlib
from contextlib import AbstractContextManager
from typing import Final

from drainer.mysql.connection import Connection, Target, connect
from drainer.mysql.errors import SessionError, StatementRefused, safe_text
from drainer.mysql.rows.dialect import Dialect
from drainer.points.snapshot.sessions import TOO_OLD, SnapshotSessions, SnapshotTooOld, prepare_reader
from tidb_binlog.clock import SystemClock
from tidb_binlog.errors import ConfigError, Rejected
from tidb_binlog.observe import log
from tidb_binlog.tso import Ts
from tidb_binlog.upstream.garbage_hold import Held, Hold
from tidb_binlog.upstream.upstream_time import UpstreamTime
from tidb_binlog.upstream_port import Upstream

logger = log.get("snapshot")

TTL_S: Final = 4 * 3600
RENEW_S: Final = 600.0
BACK_MAX_S: Final = 7 * 24 * 3600.0
_AGAIN: Final = "begin anew at a later timestamp; a longer tidb_gc_life_time keeps more"
_HELD: Final = Held(
    what="the upstream's snapshot",
    is_old="the snapshot is more than a week back, it is not held any more",
    is_late="the snapshot is collected already",
    hint=_AGAIN,
)


class TidbSnapshot:
    """Made by `open_tidb_snapshot`. `hold`: what keeps T readable; None where the upstream takes no holds."""

    reopens: Final = True

    def __init__(self, target: Target, ts: Ts, sessions: int, hold: Hold | None) -> None:
        self.ts = ts
        self._target = target
        self._hold = hold
        self._renewing = None if hold is None else asyncio.create_task(hold.run(), name="snapshot.hold")
        self._sessions = SnapshotSessions(
            what=f"TiDB at {ts}", reopen=self._open, count=sessions, again=_AGAIN
        )

    def session(self) -> AbstractContextManager[Connection]:
        return self._sessions.session()

    def cut(self) -> None:
        self._sessions.cut()

    def check(self) -> None:
        """Raises what a session of it would."""
        with self.session():
            pass

    async def close(self, *, keep: bool = False) -> None:
        await asyncio.to_thread(self._sessions.close)
        if self._renewing is not None and self._hold is not None:
            self._renewing.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._renewing
            if not keep:
                await self._hold.release()

    def _open(self) -> Connection:
        connection = connect(self._target)
        try:
            if connection.dialect is not Dialect.TIDB:
                raise ConfigError(
                    f"upstream {self._target!r} is no TiDB but {connection.server_version}",
                    hint="name the table of the programs that publish: [syncer.from] outcome-table",
                )
            connection.autocommit(True)  # each statement reads at T, none keeps a transaction open
            prepare_reader(connection)
            connection.run(b"SET SESSION tidb_snapshot = '%d'" % self.ts)
        except StatementRefused as error:
            connection.close()
            if error.number in TOO_OLD:
                raise SnapshotTooOld(
                    f"TiDB has collected what stood at {self.ts}: {safe_text(error)}", hint=_AGAIN
                ) from None
            raise Rejected(
                f"TiDB does not read at {self.ts}: {safe_text(error)}",
                hint="check the timestamp, and the rights of the user in [syncer.from]",
            ) from None
        except (SessionError, ConfigError):
            connection.close()
            raise
        return connection


async def open_tidb_snapshot(
    target: Target, upstream: Upstream, sessions: int, *, at_ts: Ts, hold_name: str
) -> TidbSnapshot:
    """At `at_ts`, or now where it is 0. Raises `SnapshotTooOld`, `Unavailable`, `ConfigError`."""
    time = UpstreamTime(upstream.oracle, SystemClock())
    now_ts = await time.draw()
    ts = at_ts or now_ts
    hold: Hold | None = Hold(
        upstream.garbage,
        hold_name,
        lambda: ts,
        time,
        _HELD,
        ttl_s=TTL_S,
        renew_s=RENEW_S,
        back_max_s=BACK_MAX_S,
    )
    assert hold is not None
    try:
        floor_ts = await hold.take(ts)
    except Rejected as error:
        logger.warning("the upstream takes no holds on garbage: TiDB may collect it", reason=str(error))
        floor_ts, hold = 0, None
    if hold is not None and floor_ts > ts:
        await hold.release()
        raise SnapshotTooOld(
            f"TiDB has collected what stood at {ts}: it keeps everything from {floor_ts} on", hint=_AGAIN
        )
    snapshot = TidbSnapshot(target, ts, sessions, hold)
    try:
        await asyncio.to_thread(snapshot.check)
    except BaseException:
        await snapshot.close(keep=bool(at_ts))
        raise
    return snapshot
