"""Trace hold: the trace of how an open prewrite ended is not collected upstream, even while its pump is down.

Why     a commit whose primary key was overwritten since, and a rollback, leave a trace for as long as garbage
        is kept and no longer. A pump that is down for longer finds none, and only a person can decide then
Holds   from before the oldest start_ts that is open, and never later than the watermark: a prewrite that
        comes before the next renewal began about then. For an hour after the last renewal: a host may be
        down for that long. Nothing before all that an earlier life left is read: it may need the hold. What
        has been open for longer than may be held is reported, and left out: all others would go with it
Stops   `release` lets go where nothing is open; otherwise the hold ends by itself
Tests   tests/pump/write/test_hints.py
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidb_binlog import tso
from tidb_binlog.tso import Ts
from tidb_binlog.upstream.garbage_hold import BACK_MAX_S, Held, Hold
from tidb_binlog.upstream.upstream_time import UpstreamTime
from tidb_binlog.upstream_port import GarbageHold

if TYPE_CHECKING:
    from pump.storage.storage import Storage


TTL_S: Final = 3600
RENEW_S: Final = 60.0
TRANSACTION_S: Final = 3600.0
"""TiDB keeps a transaction alive for so long at most (`max-txn-ttl`)."""
_HELD_S: Final = BACK_MAX_S - 1.0
_TRACE: Final = Held(
    what="the trace of how open prewrites ended",
    is_old="a prewrite has been open for more than a day, its trace is not held any more",
    is_late="the trace of how an open prewrite ended may be collected already",
    hint="see `oldest` in /status: what the upstream says of it, and what to do",
)


class TraceHold(Hold):
    """One pump's."""

    def __init__(self, garbage: GarbageHold, node_id: str, storage: Storage, time: UpstreamTime) -> None:
        super().__init__(garbage, f"pump_{node_id}", self._needed, time, _TRACE, ttl_s=TTL_S, renew_s=RENEW_S)
        self._storage = storage
        self._upstream_time = time

    async def run(self) -> None:
        """See `Hold.run`."""
        await self._storage.replayed.wait()
        await super().run()

    def _needed(self) -> int:
        first_ts = self._ago_ts(_HELD_S)
        held = [entry.start_ts for entry in self._storage.open_prewrites() if entry.start_ts >= first_ts]
        # What is left out keeps the watermark below it, and says nothing of what is to come.
        oldest = min([*held, max(self._storage.watermark, self._ago_ts(TRANSACTION_S))])
        # A rollback stands at its start_ts, and is collected up to the safe point, itself included.
        return max(oldest - 1, 0)

    async def take(self, ts: Ts) -> Ts:
        """PD takes no hold that comes too late, as that of a pump that has no watermark yet: it is from where
        one can be had then, for what is younger. Late is what is open and older."""
        floor_ts = await super().take(ts)
        if floor_ts <= ts:
            return floor_ts
        await super().take(floor_ts)
        first_ts = self._ago_ts(_HELD_S)
        late = any(first_ts <= entry.start_ts < floor_ts for entry in self._storage.open_prewrites())
        return floor_ts if late else ts

    def _left_out_ts(self) -> Ts:
        first_ts = self._ago_ts(_HELD_S)
        times = (entry.start_ts for entry in self._storage.open_prewrites() if entry.start_ts < first_ts)
        return min(times, default=0)

    def _ago_ts(self, seconds: float) -> Ts:
        return tso.from_wall_s(self._upstream_time.now_s() - seconds)

    async def leave(self) -> None:
        """The pump stops: let go if nothing needs the hold."""
        if not any(True for _ in self._storage.open_prewrites()):
            await self.release()
