"""Worker pool: threads that each take the next job, for the rows of a load and of a dump.

Holds  jobs are made while others are worked on, few of them ahead. The first error ends all of it, and `run`
       raises it; what the workers have done by then counts
Stops  `stop`, from any thread; `run` raises `Ended` then
Tests  tests/drainer/points/load/test_copying.py, tests/drainer/points/dump/test_dump.py
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Final, Generic, TypeVar

from drainer.operate.control.rate_limit import Limits, RateLimit
from tidb_binlog.clock import Clock

J = TypeVar("J")
_POLL_S: Final = 0.1
_NO_MORE: Final = None


class Ended(Exception):
    """All of it is to end: what was begun is rolled back."""


class WorkerPool(Generic[J]):
    """Use once. `name`: how its threads begin to be called."""

    def __init__(self, name: str, workers: int) -> None:
        self.stop = threading.Event()  # set once: by an error, or from outside
        self._name = name
        self._jobs: queue.Queue[J | None] = queue.Queue(2 * workers)  # a None for each worker ends it
        self._errors: list[BaseException] = []  # in the order in which they came; never `Ended`

    def run(self, jobs: Iterable[J], works: Sequence[Callable[[J], None]]) -> None:
        """Blocks until all jobs are done: a thread for each of `works`. `jobs` are made on this thread.

        Raises the first error of any thread, `Ended`."""
        threads = [
            threading.Thread(target=self._work, args=(work,), name=f"{self._name}-{number}")
            for number, work in enumerate(works)
        ]
        for thread in threads:
            thread.start()
        try:
            for job in jobs:
                if not self._put(job):
                    break
        except BaseException as error:
            self._fail(error)
        finally:
            for _ in threads:
                self._put(_NO_MORE)
            for thread in threads:
                thread.join()
        if self._errors:
            raise self._errors[0]
        if self.stop.is_set():
            raise Ended

    def _work(self, work: Callable[[J], None]) -> None:
        try:
            while (job := self._take()) is not None:
                work(job)
        except BaseException as error:
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        if not isinstance(error, Ended):
            self._errors.append(error)
        self.stop.set()

    def _take(self) -> J | None:
        while not self.stop.is_set():
            try:
                return self._jobs.get(timeout=_POLL_S)
            except queue.Empty:
                continue
        return None

    def _put(self, job: J | None) -> bool:
        """False where all of it ends."""
        while not self.stop.is_set():
            try:
                self._jobs.put(job, timeout=_POLL_S)
                return True
            except queue.Full:
                continue
        return False


class Pace:
    """Rows a second, of all workers together."""

    def __init__(self, rows_a_second: int, stop: threading.Event, clock: Clock) -> None:
        self._limit = RateLimit(Limits(rows_a_second))
        self._lock = threading.Lock()  # over `_limit`
        self._stop = stop
        self._clock = clock

    def __call__(self, rows: int, size_bytes: int) -> None:
        """Wait until so much more may be written. Raises `Ended`."""
        if self._stop.is_set():
            raise Ended
        if self._limit.limits.unlimited:
            return
        with self._lock:
            now_s = self._clock.monotonic_s()
            wait_s = self._limit.wait_s(now_s)
            self._limit.take(rows, size_bytes, now_s)
        if self._stop.wait(wait_s):
            raise Ended
