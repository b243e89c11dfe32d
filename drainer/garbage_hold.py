"""Garbage hold: the schema at the checkpoint stays readable upstream while a drainer runs.

Drives  the upstream's hold on garbage
In      where the checkpoint is
Order   each 150 s anew, for 300 s: a drainer that dies lets go soon, one that restarts still finds it held
Holds   never more than a day back. What is held is not collected in all of the cluster, and a start has the
        schema that is stored with the checkpoint; the upstream's is for a start that cannot use that
Stops   by cancellation; `release` lets go at once, for a drainer that will not come back
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Final

from common import log, tso
from common.backoff import Backoff
from common.clock import Clock
from common.errors import Rejected, Unavailable
from common.upstream import GarbageHold

logger = log.get(__name__)

TTL_S: Final = 300
RENEW_S: Final = 150.0
BACK_MAX_S: Final = 24 * 3600.0


class CheckpointHold:
    """`position` is the commit_ts of the stored checkpoint, 0 while there is none."""

    def __init__(self, garbage: GarbageHold, position: Callable[[], int], clock: Clock) -> None:
        self._garbage = garbage
        self._position = position
        self._clock = clock
        self._name = f"drainer_{int(clock.wall_s() * 1e9)}"
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
            return RENEW_S
        behind_s = tso.age_s(ts, self._clock.wall_s())
        if behind_s > BACK_MAX_S:
            self._say("the checkpoint is more than a day back, its schema is not held any more", ts=ts)
            await self.release()
            return RENEW_S
        try:
            floor_ts = await self._garbage.hold(self._name, ts, TTL_S)
        except Unavailable as error:
            logger.warning("the schema at the checkpoint cannot be held for now", reason=str(error))
            return self._backoff.next_s()
        except Rejected as error:
            self._say("the upstream takes no holds on garbage", reason=str(error))
            return None
        self._backoff.reset()
        self._held_ts = ts
        if floor_ts > ts:
            self._say("the schema at the checkpoint is collected already", ts=ts, kept_from=floor_ts)
        else:
            self._trouble = ""
        return RENEW_S

    async def release(self) -> None:
        """Let go; without an answer the hold ends by itself."""
        if self._held_ts:
            ts, self._held_ts = self._held_ts, 0
            with contextlib.suppress(Unavailable, Rejected):
                await self._garbage.hold(self._name, ts, 0)

    def _say(self, trouble: str, **values: object) -> None:
        """Loudly, but not each time."""
        if trouble != self._trouble:
            hint = "a start that cannot use the schema stored with the checkpoint reads the whole DDL history"
            logger.error(trouble, hint=hint, **values)
        self._trouble = trouble
