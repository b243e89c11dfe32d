"""Quick loop: asyncio's loop without sockets, signals and other threads, in a third of its steps a callback.

Holds  callbacks and timers run in asyncio's order, each in its context. Time passes when nothing can happen
       now, to the next timer
Why    asyncio asks the operating system before each round, and compares timers in Python: half of what a
       world costs

Tests  tests/fakes/test_quick_loop.py
"""

from __future__ import annotations

import asyncio
import itertools
from contextvars import Context, copy_context
from heapq import heapify, heappop, heappush
from typing import Any, Final

from tests.fakes.virtual_time import VirtualLoop

_RESOLUTION_S: Final = 1e-9
_CANCELLED_MIN: Final = 100
"""Timers that were cancelled and not left out yet: less are no trouble."""


class _Handle(asyncio.Handle):
    """Its fields are set by who makes it."""

    __slots__ = ()

    def __init__(self, callback: Any, args: Any, loop: QuickLoop, context: Context | None) -> None:
        self._context = copy_context() if context is None else context
        self._loop = loop
        self._callback = callback
        self._args = args
        self._cancelled = False
        self._repr = self._source_traceback = None


class _TimerHandle(_Handle, asyncio.TimerHandle):
    __slots__ = ()

    def __init__(
        self, when: float, callback: Any, args: Any, loop: QuickLoop, context: Context | None
    ) -> None:
        _Handle.__init__(self, callback, args, loop, context)
        self._when = when
        self._scheduled = True


class QuickLoop(VirtualLoop):
    def __init__(self) -> None:
        super().__init__()
        self._now_s = 0.0
        self._timers: list[tuple[float, int, _TimerHandle]] = []
        self._order = itertools.count()
        self._cancelled_timers = 0

    def time(self) -> float:
        return self._now_s

    def call_soon(self, callback: Any, *args: Any, context: Context | None = None) -> asyncio.Handle:
        handle = _Handle(callback, args, self, context)
        self._ready.append(handle)  # type: ignore[attr-defined]
        return handle

    def call_at(
        self, when: float, callback: Any, *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        handle = _TimerHandle(when, callback, args, self, context)
        heappush(self._timers, (when, next(self._order), handle))
        return handle

    def call_later(
        self, delay: float, callback: Any, *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self._now_s + delay, callback, *args, context=context)

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        self._cancelled_timers += 1
        if self._cancelled_timers > max(_CANCELLED_MIN, len(self._timers) // 2):
            self._timers = [timer for timer in self._timers if not timer[2]._cancelled]
            heapify(self._timers)
            self._cancelled_timers = 0

    def _run_once(self) -> None:
        ready = self._ready  # type: ignore[attr-defined]
        timers = self._timers
        while timers and timers[0][2]._cancelled:
            heappop(timers)
        if not (ready or self._stopping):  # type: ignore[attr-defined]
            assert timers, "nothing will ever happen again"
            self._now_s += max(0.0, timers[0][0] - self._now_s)
        end_s = self._now_s + _RESOLUTION_S
        while timers and timers[0][0] < end_s:
            ready.append(heappop(timers)[2])
        for _ in range(len(ready)):
            handle = ready.popleft()
            if not handle._cancelled:
                try:
                    handle._context.run(handle._callback, *handle._args)
                except (SystemExit, KeyboardInterrupt):
                    raise
                except BaseException as error:
                    self.call_exception_handler(
                        {"message": f"in {handle!r}", "exception": error, "handle": handle}
                    )
