"""Late threads: what is handed to a thread begins late, so that a race shows in the first run and not in the
hundredth.

Use     `BINLOG_LATE_THREADS=7 pytest ...`: each test gets its own delays, drawn by 7 and its name, so what
        fails fails again; its report names the places that were late
Late    the begin of threads and of work for pools, what comes out of a `SimpleQueue` or a wait, calls into a
        loop from a thread, a loop's turn, fsync; in tests and in daemons that `tests.forked` starts
"""

from __future__ import annotations

import asyncio
import os
import queue
import random
import re
import threading
import time
from asyncio.base_events import BaseEventLoop
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, Final

import pytest

SEED: Final = "BINLOG_LATE_THREADS"
_ALL_S: Final = 1.0
"""As much as a place takes of one test."""
_NUMBERS: Final = re.compile(r"\d+")
_sleep: Final = time.sleep  # whatever a test makes of it


class Delays:
    """Of one test, by place: a third of them are late each time, the others seldom. Any thread may ask."""

    def __init__(self, draw: str, sleep: Callable[[float], None] = _sleep) -> None:
        self._draw = draw
        self._sleep = sleep
        self._rates: dict[str, tuple[random.Random, float]] = {}
        self.slept_s: dict[str, float] = {}

    def pause(self, kind: str, name: str | None = None) -> None:
        place = _NUMBERS.sub("", f"{kind} of {name or threading.current_thread().name}")
        if place not in self._rates:
            rate = random.Random(f"{self._draw} {place}")
            self._rates[place] = rate, rate.choice([0.0, 0.0, rate.uniform(0.01, 0.1)])
        rate, each_s = self._rates[place]
        seconds = each_s or rate.choices([0.0, 0.004, 0.2], [90, 9, 1])[0]
        if seconds and self.slept_s.get(place, 0.0) < _ALL_S:
            self.slept_s[place] = self.slept_s.get(place, 0.0) + seconds
            self._sleep(seconds)

    def __str__(self) -> str:
        return "\n".join(f"{seconds:6.3f} s: {place}" for place, seconds in sorted(self.slept_s.items()))


@contextmanager
def late(delays: Delays) -> Iterator[None]:
    """This process's threads are so late."""
    pause = delays.pause
    with pytest.MonkeyPatch.context() as patch:

        def before(owner: Any, name: str, kind: str) -> None:
            real = getattr(owner, name)

            def call(*given: Any, **named: Any) -> Any:
                # A call into a loop by its own thread is none into another thread.
                if kind != "call" or asyncio._get_running_loop() is None:
                    pause(kind)
                return real(*given, **named)

            patch.setattr(owner, name, call)

        start, submit, wait = threading.Thread.start, ThreadPoolExecutor.submit, threading.Condition.wait

        def begin(thread: threading.Thread) -> None:
            run = thread.run
            thread.run = lambda: (pause("begin"), run())[1]  # type: ignore[method-assign]
            start(thread)

        def handed(pool: Any, function: Callable[..., Any], /, *given: Any, **named: Any) -> Any:
            return submit(pool, lambda: (pause("work"), function(*given, **named))[1])

        def woken(condition: threading.Condition, timeout: float | None = None) -> bool:
            woke = wait(condition, timeout)
            pause("wait")
            return woke

        class LateQueue(queue.SimpleQueue[Any]):
            def get(self, block: bool = True, timeout: float | None = None) -> Any:
                item = super().get(block, timeout)
                pause("queue")
                return item

        patch.setattr(threading.Thread, "start", begin)
        patch.setattr(ThreadPoolExecutor, "submit", handed)
        patch.setattr(threading.Condition, "wait", woken)
        patch.setattr(queue, "SimpleQueue", LateQueue)
        before(BaseEventLoop, "call_soon_threadsafe", "call")
        before(BaseEventLoop, "_run_once", "turn")
        before(os, "fsync", "sync")
        before(os, "fdatasync", "sync")
        yield


class LateThreads:
    """For pytest: each test under its own delays."""

    def __init__(self, seed: str) -> None:
        self._seed = seed
        self._delays = Delays("")

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self._delays = Delays(f"{self._seed} {item.nodeid}")
        with late(self._delays):
            yield

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        yield
        item.add_report_section("call", f"{SEED}={self._seed}", str(self._delays))
