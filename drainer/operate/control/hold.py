"""Hold: lets others see the downstream as it is at one timestamp, by holding the stream still for a moment.

Drives  `hold_state`, which is a core: it decides, and this waits
Owns    the tokens, and who waits for the stream to come to a place
Holds   a stream that stands still goes on at the latest when its limit is over
Stops   when the stream ends every hold is over, and who waits is told
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Awaitable, Callable
from typing import Final

from drainer import metrics
from drainer.operate.control.hold_state import HoldPoint, HoldState, Released
from tidb_binlog.clock import Clock
from tidb_binlog.errors import Unavailable
from tidb_binlog.late_dataclass import dataclass
from tidb_binlog.observe import log
from tidb_binlog.tso import Ts

LIMIT_S: Final = 2.0
"""A hold ends by itself after so long."""
LIMIT_MAX_S: Final = 30.0
WAIT_S: Final = 10.0
"""How long the stream may take to the place, if the asker does not say it."""
WAIT_MAX_S: Final = 60.0

_logger = log.get("hold")


@dataclass(frozen=True, slots=True)
class Held:
    """The stream stands still."""

    token: str
    hold_point: HoldPoint
    held_s: float


class Hold:
    """`on_change` lets the stream look at `state.boundary_ts`; `place_ts` and `doing` say where it is,
    `reason` what it waits for there."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.state = HoldState()
        self._changed = asyncio.Event()
        self.on_change: Callable[[], None] = lambda: None
        self.place_ts: Callable[[], int] = lambda: 0
        self.doing: Callable[[], str] = lambda: ""
        self.reason: Callable[[], str] = lambda: ""

    # -- the stream ---------------------------------------------------------------------------------------

    async def keep(
        self,
        hold_point: Callable[[], Awaitable[HoldPoint]],
        until: Callable[[Callable[[], bool]], Awaitable[None]],
    ) -> None:
        """The stream is at the boundary. `hold_point` returns when all that was given is done, `until` when a
        condition is true; then it goes on."""
        state, clock = self.state, self._clock
        state.stand(clock.monotonic_s())
        state.arrive(await hold_point(), clock.monotonic_s())
        self._changed.set()
        while left_s := state.left_s(clock.monotonic_s()):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left_s):
                    await until(lambda: not state.is_held)
        self._changed.set()

    def end(self, why: str) -> None:
        """The stream ends."""
        self.state.close(why, self._clock.monotonic_s())
        self._changed.set()
        self.on_change()

    # -- the asker ----------------------------------------------------------------------------------------

    def arm(self, *, limit_s: float = LIMIT_S, wait_s: float = WAIT_S) -> str:
        """The stream stands still as soon as it can; a timestamp that is drawn from now on lies above where
        it will. The hold's token. Raises `Conflict` while another holds it, `Unavailable` where none runs."""
        token = secrets.token_hex(8)
        self.state.ask(token, limit_s, wait_s, self._clock.monotonic_s())
        self.on_change()
        return token

    async def ask(self, *, limit_s: float = LIMIT_S, wait_s: float = WAIT_S) -> Held:
        """Hold the stream at its next place between two transactions. Raises as `arm`, and `Unavailable`
        where it does not come to a place in time."""
        return await self._come(self.arm(limit_s=limit_s, wait_s=wait_s), wait_s)

    async def go_on(self, token: str, at_ts: Ts, *, wait_s: float = WAIT_S) -> Held:
        """Go on to exactly `at_ts` and hold there. Raises `Rejected`, `Unavailable`."""
        self.state.go_on(token, at_ts, self.place_ts(), wait_s, self._clock.monotonic_s())
        self.on_change()
        return await self._come(token, wait_s)

    def release(self, token: str) -> Released:
        """Let the stream go on. Raises `Rejected` for a hold that is not known."""
        released = self.state.release(token, self._clock.monotonic_s())
        metrics.HOLD_SECONDS.observe(released.held_s)
        self._changed.set()
        self.on_change()
        return released

    async def _come(self, token: str, wait_s: float) -> Held:
        why = "who asked for it is gone"
        try:
            async with asyncio.timeout(wait_s):
                while (hold_point := self.state.held(token)) is None:
                    self._changed.clear()
                    await self._changed.wait()
            why = ""
            return Held(token, hold_point, self.state.held_s(self._clock.monotonic_s()))
        except TimeoutError:
            doing = ", ".join(filter(None, (self.doing() or "waiting for binlogs", self.reason())))
            raise Unavailable(
                f"the stream came to no place to be held at within {wait_s:g} s: {doing}",
                hint="ask again; `/status` shows what it waits for",
            ) from None
        finally:
            if why:
                self.state.lose(token, why, self._clock.monotonic_s())
                self.on_change()
