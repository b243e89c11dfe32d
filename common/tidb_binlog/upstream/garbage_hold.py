"""Garbage hold: what a process still needs of the upstream stays readable while it runs.

Order   each `renew_s` anew, for `ttl_s`: who dies lets go so, who restarts in time still finds it held
Holds   never more than a day back, if not said otherwise: what is held is not collected in all of the cluster
Stops   by cancellation; `release` lets go at once, for who will not come back
Tests   tests/drainer/stream/schema/test_gc_safe_point.py
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Final

from tidb_binlog import tso
from tidb_binlog.backoff import Backoff
from tidb_binlog.errors import Rejected, Unavailable
from tidb_binlog.late_dataclass import dataclass
from tidb_binlog.observe import log
from tidb_binlog.tso import Ts
from tidb_binlog.upstream.upstream_time import UpstreamTime
from tidb_binlog.upstream_port import GarbageHold

logger = log.get("garbage_hold")

BACK_MAX_S: Final = 24 * 3600.0


@dataclass(frozen=True, slots=True)
class Held:
    """What is held, in words. `is_old` and `is_late`: it is not held any more, or was collected already."""

    what: str
    is_old: str
    is_late: str
    hint: str


class Hold:
    """One holder's. `position`: from where on; `name`: under which PD knows it. Ages are by `time`: this
    host's clock may stand elsewhere."""

    def __init__(
        self,
        garbage: GarbageHold,
        name: str,
        position: Callable[[], int],
        time: UpstreamTime,
        held: Held,
        *,
        ttl_s: int,
        renew_s: float,
        back_max_s: float = BACK_MAX_S,
    ) -> None:
        self._garbage = garbage
        self._name = name
        self._position = position
        self._time = time
        self._held = held
        self._ttl_s = ttl_s
        self._renew_s = renew_s
        self._back_max_s = back_max_s
        self._backoff = Backoff(1.0, 30.0)
        self._held_ts = 0
        self._trouble = ""

    async def run(self) -> None:
        """Hold until cancelled, or until the upstream says that it takes no holds."""
        while True:
            pause_s = await self.renew()
            if pause_s is None:
                return
            await asyncio.sleep(pause_s)

    async def renew(self) -> float | None:
        """Hold once; seconds until the next time, None: never."""
        ts = self._position()
        if ts <= 0:
            return self._renew_s
        behind_s = tso.age_s(ts, self._time.now_s())
        if behind_s > self._back_max_s:
            self._say(self._held.is_old, ts=ts)
            await self.release()
            return self._renew_s
        try:
            floor_ts = await self.take(ts)
        except Unavailable as error:
            logger.warning(f"{self._held.what} cannot be held for now", reason=str(error))
            return self._backoff.next_s()
        except Rejected as error:
            self._say("the upstream takes no holds on garbage", reason=str(error))
            return None
        self._backoff.reset()
        left_out_ts = self._left_out_ts()
        if floor_ts > ts:
            self._say(self._held.is_late, ts=ts, kept_from=floor_ts)
        elif left_out_ts:
            self._say(self._held.is_old, ts=left_out_ts)
        else:
            self._trouble = ""
        return self._renew_s

    async def take(self, ts: Ts) -> int:
        """Hold from `ts` on, once; from where on everything is there. Raises `Unavailable`, `Rejected`."""
        floor_ts = await self._garbage.hold(self._name, ts, self._ttl_s)
        self._held_ts = ts
        return floor_ts

    def _left_out_ts(self) -> Ts:
        """The oldest of what is needed and not held, so that the rest can be; 0: nothing."""
        return 0

    async def release(self) -> None:
        """Let go; without an answer the hold ends by itself."""
        if self._held_ts:
            ts, self._held_ts = self._held_ts, 0
            with contextlib.suppress(Unavailable, Rejected):
                await self._garbage.hold(self._name, ts, 0)

    def _say(self, trouble: str, **values: object) -> None:
        """Loudly, but not each time."""
        if trouble != self._trouble:
            logger.error(trouble, hint=self._held.hint, **values)
        self._trouble = trouble
