"""Scheduling: an event loop and threads of which one runs at a time, in virtual time, as a seed draws it.

Out    `SimLoop`; namespaces that stand in for `threading` and `queue` in modules that block
Holds  a thread of the world runs only while the loop, or another one of them, has handed it the baton, and
       gives it back where it would block: two runs of one seed are the same. Callbacks keep asyncio's order;
       what is drawn is when threads begin, wake up and answer, and the last millisecond of every timer
Why    a node that is killed in the middle of a call leaves its threads there: they end by `Killed`

Tests  tests/sim/test_scheduling.py
"""

from __future__ import annotations

import asyncio
import contextvars
import itertools
import random
import threading
from collections import deque
from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any, Final, Generic, TypeVar

from tests.fakes.quick_loop import QuickLoop
from tests.sim.life import LIFE, WORLD, Life

T = TypeVar("T")
JITTER_S: Final = 0.001
_WAKES_S: Final = 0.002
_WORKERS_MAX: Final = 32


class Killed(BaseException):
    """The node of this thread is dead."""


class _Carrier:
    """A thread of the operating system that carries threads of worlds, one after the other. It never ends:
    what an end frees, at a moment that nobody draws, would change the order of sets."""

    def __init__(self) -> None:
        self.go = threading.Lock()  # held while it may not run
        self.go.acquire()
        self.back = threading.Lock()  # held until it gives the baton back
        self.back.acquire()
        self.work: Callable[[], None]
        begun = threading.Lock()
        begun.acquire()
        threading.Thread(target=self._run, args=(begun,), name="carrier", daemon=True).start()
        begun.acquire()

    def _run(self, begun: threading.Lock) -> None:
        begun.release()
        while True:
            self.go.acquire()
            self.work()
            self.back.release()


_idle: list[_Carrier] = []


class SimThread:
    """As `threading.Thread`, of which it has what is used."""

    def __init__(
        self,
        target: Callable[..., object] | None = None,
        name: str = "",
        args: tuple[Any, ...] = (),
        *,
        daemon: bool = True,
    ) -> None:
        self.name = name
        self.is_over = False
        self.killed = False
        self.pauses = 0  # how often it went on; names the pause in which it is
        self._baton = _world().baton
        self._life = LIFE.get()
        self._runs, self._given = target or self.run, args
        self._context = contextvars.copy_context()
        self.carrier: _Carrier | None = None  # from the start to the end
        self._joining: list[SimThread] = []

    def start(self) -> None:
        self.carrier = _idle.pop() if _idle else _Carrier()
        self.carrier.work = self._run
        self._life.threads[self] = None
        self._baton.wake(self)

    def is_alive(self) -> bool:
        return self.carrier is not None and not self.is_over

    def run(self) -> None:
        """For who inherits from it."""

    def join(self, timeout: float | None = None) -> None:
        wait(self._joining, lambda: not self.is_alive(), timeout)

    def _run(self) -> None:
        try:
            if not self.killed:
                self._context.run(self._runs, *self._given)
        except Killed:
            pass
        finally:
            self.is_over = True
            self._life.threads.pop(self, None)
            _wake(self._joining)
            assert self.carrier is not None
            _idle.append(self.carrier)


class Baton:
    """Who runs. `running`: the thread that has it; None: the loop."""

    def __init__(self, loop: SimLoop) -> None:
        self.running: SimThread | None = None
        self._loop = loop

    def of_caller(self) -> SimThread:
        assert self.running is not None, "the loop would block here"
        return self.running

    def resume(self, thread: SimThread) -> None:
        """Let it run until it pauses or ends."""
        if thread.is_over:
            return
        thread.pauses += 1
        before, self.running = self.running, thread
        assert thread.carrier is not None
        carrier = thread.carrier
        carrier.go.release()
        carrier.back.acquire()
        self.running = before

    def pause(self) -> None:
        """On a thread: give the baton back until somebody resumes it. May be resumed for nothing."""
        thread = self.of_caller()
        if not thread.killed:
            assert thread.carrier is not None
            thread.carrier.back.release()
            thread.carrier.go.acquire()
        if thread.killed:
            raise Killed

    def wake(self, thread: SimThread, after_s: float | None = None) -> None:
        """Resume it soon, if it is still in this pause then."""
        delay_s = self._loop.rng.random() * _WAKES_S if after_s is None else after_s
        pauses = thread.pauses

        def resume() -> None:
            if thread.pauses == pauses:
                self.resume(thread)

        self._loop.call_later(delay_s, resume, context=contextvars.Context())

    def sleep(self, seconds: float) -> None:
        """On a thread; on the loop, whose calls must not block, no time passes."""
        if self.running is not None:
            self.wake(self.running, seconds)
            self.pause()

    def kill(self, thread: SimThread) -> None:
        thread.killed = True
        while not thread.is_over:
            self.resume(thread)


def wait(waiting: list[SimThread], is_so: Callable[[], bool], timeout: float | None = None) -> bool:
    """On a thread, until it is so; whoever makes it so wakes those who are `waiting`. Whether it is so."""
    world = _world()
    end_s = None if timeout is None else world.time() + timeout
    while not is_so():
        left_s = None if end_s is None else end_s - world.time()
        if left_s is not None:
            if left_s <= 0:
                return False
            world.baton.wake(world.baton.of_caller(), left_s)
        waiting.append(world.baton.of_caller())
        world.baton.pause()
    return True


def _wake(waiting: list[SimThread]) -> None:
    threads, waiting[:] = list(waiting), []
    for thread in threads:
        _world().baton.wake(thread)


class SimLock:
    """As `threading.Lock`. The loop, which cannot wait, lets its holder go on until it is free."""

    def __init__(self) -> None:
        self._holder: SimThread | None = None
        self._held = False
        self._waiting: list[SimThread] = []

    def acquire(self) -> bool:
        baton = _world().baton
        if baton.running is not None:
            wait(self._waiting, lambda: not self._held)
        while self._held:
            assert self._holder is not None
            baton.resume(self._holder)
        self._held, self._holder = True, baton.running
        return True

    def release(self) -> None:
        self._held, self._holder = False, None
        _wake(self._waiting)

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


class SimCondition(SimLock):
    """As `threading.Condition`; `notify` wakes all, who look again."""

    def __init__(self) -> None:
        super().__init__()
        self._notices = 0
        self._listening: list[SimThread] = []

    def wait(self, timeout: float | None = None) -> bool:
        notices = self._notices
        self.release()
        try:
            return wait(self._listening, lambda: self._notices > notices, timeout)
        finally:
            self.acquire()

    def wait_for(self, predicate: Callable[[], bool], timeout: float | None = None) -> bool:
        self.release()
        try:
            wait(self._listening, predicate, timeout)
        finally:
            self.acquire()
        return predicate()

    def notify(self) -> None:
        self._notices += 1
        _wake(self._listening)

    notify_all = notify


class SimEvent:
    """As `threading.Event`."""

    def __init__(self) -> None:
        self._is_set = False
        self._waiting: list[SimThread] = []

    def is_set(self) -> bool:
        return self._is_set

    def set(self) -> None:
        self._is_set = True
        _wake(self._waiting)

    def wait(self, timeout: float | None = None) -> bool:
        return wait(self._waiting, self.is_set, timeout)


class SimQueue(Generic[T]):
    """As `queue.SimpleQueue`."""

    def __init__(self) -> None:
        self._items: deque[T] = deque()
        self._waiting: list[SimThread] = []

    def put(self, item: T) -> None:
        self._items.append(item)
        _wake(self._waiting)

    def get(self) -> T:
        wait(self._waiting, lambda: bool(self._items))
        return self._items.popleft()

    def empty(self) -> bool:
        return not self._items


def wait_for(asked: Iterable[Any], timeout: float) -> SimpleNamespace:
    """As `concurrent.futures.wait`, which looks when the time is over."""
    wait([], lambda: False, timeout)
    return SimpleNamespace(done={future for future in asked if future.done()})


THREADING: Final = SimpleNamespace(Thread=SimThread, Lock=SimLock, Condition=SimCondition, Event=SimEvent)
QUEUE: Final = SimpleNamespace(SimpleQueue=SimQueue)


class _Workers:
    """Of one executor: so many jobs at a time, begun in their order."""

    def __init__(self, baton: Baton, most: int) -> None:
        self._baton = baton
        self._most = most
        self._jobs: deque[Callable[[], None]] = deque()
        self._busy = 0

    def submit(self, job: Callable[[], None]) -> None:
        self._jobs.append(job)
        self._begin()

    def _begin(self) -> None:
        while self._jobs and self._busy < self._most:
            self._busy += 1
            SimThread(self._work, "worker", (self._jobs.popleft(),)).start()

    def _work(self, job: Callable[[], None]) -> None:
        try:
            job()
        finally:
            self._busy -= 1
            self._begin()


def _number(thing: Any) -> int:
    """Hash of what has its address as one: sets of it would have another order in each run."""
    try:
        number: int = thing.number_of_world
    except AttributeError:
        number = thing.number_of_world = next(_world().numbers)
    return number


class _Task(asyncio.Task[Any]):
    __hash__ = _number  # type: ignore[assignment]


class _Future(asyncio.Future[Any]):
    __hash__ = _number  # type: ignore[assignment]


class SimLoop(QuickLoop):
    """Virtual time; `rng` draws."""

    def __init__(self, rng: random.Random) -> None:
        super().__init__()
        self.rng = rng
        self.numbers = itertools.count(1)
        self.baton = Baton(self)
        self._workers: dict[object, _Workers] = {}
        self.set_task_factory(_task_of_life)

    def call_at(self, when: float, callback: Any, *args: Any, context: Any = None) -> asyncio.TimerHandle:
        return super().call_at(when + self.rng.random() * JITTER_S, callback, *args, context=context)

    def create_future(self) -> asyncio.Future[Any]:
        return _Future(loop=self)

    def call_soon_threadsafe(self, callback: Any, *args: Any, context: Any = None) -> asyncio.Handle:
        return self.call_soon(callback, *args, context=context)

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> asyncio.Future[Any]:  # type: ignore[override]
        future: asyncio.Future[Any] = self.create_future()
        if not LIFE.get().alive:
            return future  # what waits for it is being cancelled
        context = contextvars.copy_context()

        def job() -> None:
            try:
                value, error = context.run(func, *args), None
            except Exception as failure:
                value, error = None, failure
            self.call_soon(_settle, future, value, error)

        key = (LIFE.get(), executor)
        if key not in self._workers:
            self._workers[key] = _Workers(self.baton, getattr(executor, "_max_workers", _WORKERS_MAX))
        self._workers[key].submit(job)
        return future


def _settle(future: asyncio.Future[Any], value: Any, error: Exception | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(value)
    else:
        future.set_exception(error)


def _task_of_life(loop: Any, coroutine: Any, context: Any = None) -> asyncio.Task[Any]:
    task: asyncio.Task[Any] = _Task(coroutine, loop=loop, context=context)
    life = LIFE.get() if context is None else context.get(LIFE, WORLD)
    life.tasks[task] = None
    task.add_done_callback(lambda _: life.tasks.pop(task, None))
    return task


async def end_all(life: Life, baton: Baton) -> None:
    """Threads and tasks of a life that is no more."""
    life.alive = False
    for thread in list(life.threads):
        baton.kill(thread)
    while life.tasks:
        for task in list(life.tasks):
            task.cancel()
        await asyncio.sleep(0)


_current: list[SimLoop] = []


def _world() -> SimLoop:
    return _current[-1]


def begin(loop: SimLoop) -> None:
    """The world of this process from here on."""
    asyncio.Event.__hash__ = _number  # type: ignore[assignment, method-assign]
    _current[:] = [loop]
