"""An event loop whose time passes by itself: whenever nothing can happen now, it is the next timer's turn.

For what is about seconds and minutes: heartbeats, paces, deadlines. Nothing is waited for, and every run is
the same. Not for sockets or threads: what comes from outside is not waited for either.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine, Mapping
from typing import Any, TypeVar

T = TypeVar("T")


class _Selector(selectors.BaseSelector):
    """The loop's own, which never sleeps: `passed_s` grows instead."""

    def __init__(self) -> None:
        self._real = selectors.DefaultSelector()
        self.passed_s = 0.0

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return self._real.register(fileobj, events, data)

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._real.unregister(fileobj)

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        found = self._real.select(0)
        if not found:
            assert timeout is not None, "nothing will ever happen again"
            self.passed_s += timeout
        return found

    def close(self) -> None:
        self._real.close()

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return self._real.get_map()


class VirtualLoop(asyncio.SelectorEventLoop):
    """Its clock is also a `tidb_binlog.clock.Clock`: wall and monotonic time are the loop's."""

    def __init__(self) -> None:
        self._virtual = _Selector()
        super().__init__(self._virtual)

    def time(self) -> float:
        return self._virtual.passed_s


class LoopClock:
    """The running loop's time as both clocks; `wall_s` begins at `start_s`."""

    def __init__(self, start_s: float = 1_700_000_000.0) -> None:
        self._start_s = start_s

    def wall_s(self) -> float:
        return self._start_s + self.monotonic_s()

    def monotonic_s(self) -> float:
        return asyncio.get_running_loop().time()


async def passes(seconds: float) -> None:
    """So much of the loop's time goes by. Fails where that would be real time."""
    assert isinstance(asyncio.get_running_loop(), VirtualLoop)
    await asyncio.sleep(seconds)


def run(main: Coroutine[Any, Any, T]) -> T:
    """As `asyncio.run`, in no time."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main)
