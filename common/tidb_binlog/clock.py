"""Clock port and the system clock: the only module that reads the time.

Wall time (seconds since 1970, may jump), monotonic time (seconds, never goes back) and timestamp-oracle
values (`tidb_binlog.tso`) are three different things and are never mixed.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    import asyncio


class Clock(Protocol):
    """Where a program reads the time; tests pass one that stands still."""

    def wall_s(self) -> float:
        """Seconds since 1970-01-01 UTC; may jump."""
        ...

    def monotonic_s(self) -> float:
        """Seconds on a clock that never goes back."""
        ...


class SystemClock:
    """The machine's clocks. The functions themselves: they are asked for every message."""

    wall_s = staticmethod(time.time)
    monotonic_s = staticmethod(time.monotonic)


class ManualClock:
    """A clock that is moved by hand; for tests of anything that waits."""

    def __init__(self, start_s: float = 1_700_000_000.0) -> None:
        self.now_s = start_s

    def wall_s(self) -> float:
        return self.now_s

    def monotonic_s(self) -> float:
        return self.now_s

    def advance(self, seconds: float) -> None:
        self.now_s += seconds


_LOOK_S: Final = 0.5
wall_s: Final = time.time
monotonic_ns: Final = time.monotonic_ns
"""On the clock that never goes back; for what is measured so often that it is counted in whole numbers."""
thread_ns: Final = time.thread_time_ns
"""CPU time of the thread that asks."""


def look_at(seconds: float) -> float:
    """About `seconds` from now on the running loop's clock, at a moment that all who look now and then share:
    a process at rest wakes for all of them at once. Off by a quarter of a second at most; of less than a
    half by nothing."""
    import asyncio  # programs that only read the time need no loop

    moment_s = asyncio.get_running_loop().time() + seconds
    return moment_s if seconds < _LOOK_S else round(moment_s / _LOOK_S) * _LOOK_S


async def look_later(seconds: float) -> None:
    """Sleep until `look_at`."""
    import asyncio

    loop = asyncio.get_running_loop()
    woken = loop.create_future()
    timer = loop.call_at(look_at(seconds), _wake, woken)
    try:
        await woken
    finally:
        timer.cancel()


def _wake(woken: asyncio.Future[None]) -> None:
    if not woken.done():
        woken.set_result(None)


def boot_s() -> float:
    """Seconds since this host was started, those in which it slept among them."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def use_utc() -> None:
    """Times of this process are UTC from here on; libraries that show times in the local zone follow."""
    os.environ["TZ"] = "UTC"
    time.tzset()
