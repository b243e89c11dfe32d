"""Loop thread: an event loop in a thread of its own, for programs that have none.

Owns    that thread and its loop
Stops   `stop` cancels what runs there, and leaves no thread; an interrupted call (Ctrl-C) is cancelled
Never   touches signals or the host's event loop

May be used from any number of threads at once. A process that forks makes its own after the fork.

A class whose methods live on such a loop gets a blocking face by a line for each of them:

    class SyncClient(BlockingFace[Client]):
        write = blocking(Client.write)

Tests  tests/pumpclient/test_client_sync.py
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future
from functools import wraps
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

from tidb_binlog.errors import BinlogError

T = TypeVar("T")
R = TypeVar("R")
P = ParamSpec("P")


class LoopThread:
    """An event loop running in a daemon thread. `what` lives there, in words; `closed` is raised after it."""

    def __init__(self, name: str, what: str, closed: type[BinlogError]) -> None:
        self._what = what
        self._closed = closed
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)
        self._lock = threading.Lock()
        self._stopped = False
        self._process_id = os.getpid()
        self._thread.start()

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Run a coroutine there. Raises `closed` after `stop`, and in a process forked since."""
        try:
            with self._lock:
                self._check()
                return asyncio.run_coroutine_threadsafe(work, self._loop)
        except self._closed:
            work.close()
            raise

    def call_soon(self, function: Callable[[], object]) -> None:
        """Call it there. Raises as `submit` does."""
        with self._lock:
            self._check()
            self._loop.call_soon_threadsafe(function)

    def _check(self) -> None:
        if not self.is_here:
            raise self._closed(
                f"{self._what} was opened before this process was forked, its thread is not in here",
                hint="open one in each process, after the fork",
            )
        if self._stopped:
            raise self._closed(f"{self._what} is closed")

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine there and wait for it; cancelled when the waiting is interrupted."""
        call = _Call(work)
        try:
            return self.submit(call.run()).result()
        except self._closed:
            work.close()  # no effect if it ran
            raise
        except BaseException:
            # An interrupt may come before there is a future to cancel; there is always a call.
            with self._lock:
                if not self._stopped:
                    self._loop.call_soon_threadsafe(call.cancel)
            raise

    def open(self, make: Callable[[], Awaitable[T]]) -> T:
        """Make what lives there; the thread ends when that fails."""

        async def create() -> T:
            return await make()

        try:
            return self.call(create())
        except BaseException:
            self.stop()
            raise

    def close(self, work: Coroutine[Any, Any, None]) -> None:
        """Run its last coroutine there, then `stop`. Idempotent."""
        try:
            self.call(work)
        except self._closed:
            return
        finally:
            self.stop()

    def stop(self) -> None:
        """Cancel what is running, end the thread. Idempotent; nothing in a process forked since."""
        if not self.is_here:
            return
        with self._lock:
            if self._stopped:
                return
            self._stopped = True
        asyncio.run_coroutine_threadsafe(_cancel_others(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    @property
    def is_here(self) -> bool:
        """False in a process forked since: a fork takes no threads along."""
        return os.getpid() == self._process_id


def require_loop(
    loop: asyncio.AbstractEventLoop | None, what: str, closed: type[BinlogError], counterpart: str
) -> None:
    """Raise `closed` on another event loop than that of `what`: what is awaited there never comes."""
    if loop is not None and asyncio.get_running_loop() is not loop:
        raise closed(
            f"{what} was opened on another event loop",
            hint=f"open it in the asyncio.run that uses it, or use {counterpart}, which any thread may call",
        )


class BlockingFace(Generic[T]):
    """The methods of `inner`, which lives on the loop of `thread`, for threads that may wait."""

    def __init__(self, thread: LoopThread, inner: T) -> None:
        self._thread = thread
        self._inner = inner


def blocking(
    method: Callable[Concatenate[T, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[BlockingFace[T], P], R]:
    """The method, waited for."""

    @wraps(method)
    def call(face: BlockingFace[T], /, *arguments: P.args, **options: P.kwargs) -> R:
        return face._thread.call(method(face._inner, *arguments, **options))

    return call


def on_loop(method: Callable[Concatenate[T, P], R]) -> Callable[Concatenate[BlockingFace[T], P], R]:
    """A method that does not wait, run on the loop, whose state it reads or changes."""

    @wraps(method)
    def call(face: BlockingFace[T], /, *arguments: P.args, **options: P.kwargs) -> R:
        async def run() -> R:
            return method(face._inner, *arguments, **options)

        return face._thread.call(run())

    return call


def direct(method: Callable[Concatenate[T, P], R]) -> Callable[Concatenate[BlockingFace[T], P], R]:
    """A method that needs nothing of the loop, run by the caller."""

    @wraps(method)
    def call(face: BlockingFace[T], /, *arguments: P.args, **options: P.kwargs) -> R:
        return method(face._inner, *arguments, **options)

    return call


class _Call(Generic[T]):
    """A coroutine that can be cancelled before, while and after it runs. Used on the loop's thread."""

    def __init__(self, work: Coroutine[Any, Any, T]) -> None:
        self._work = work
        self._task: asyncio.Task[Any] | None = None
        self._cancelled = False

    async def run(self) -> T:
        self._task = asyncio.current_task()
        if self._cancelled:
            self._work.close()
            raise asyncio.CancelledError
        return await self._work

    def cancel(self) -> None:
        self._cancelled = True
        if self._task is not None:
            self._task.cancel()


async def _cancel_others() -> None:
    await asyncio.sleep(0)  # what was submitted last begins, and so can be cancelled
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    loop = asyncio.get_running_loop()
    await loop.shutdown_asyncgens()
    await loop.shutdown_default_executor()
