"""Subscription, synchronous: the same stream for programs without an event loop.

    with drainer.subscribe_sync("127.0.0.1:2379", tables=["shop.*"]) as stream:
        for change in stream:
            ...
            stream.done(change)

Holds   what is made ahead of the program is bounded: one handful of changes, made while it waits for
        them. Rows of a large transaction are read in the program's own thread, while the other one rests
Stops   `close`, or the end of the `with`, wherever it is left: Ctrl-C loses no change and leaves no thread
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from types import TracebackType
from typing import Final, Generic, ParamSpec, Self

from drainer.changes.model import Ddl, R, Transaction
from drainer.reading.errors import StreamEnded
from drainer.reading.subscribe.subscription import Change, Subscription, subscribe
from tidb_binlog.process.loop_thread import LoopThread
from tidb_binlog.tso import Ts

P = ParamSpec("P")
AHEAD: Final = 256
"""Changes made at once: a thread is woken once for so many."""


class _Handful(Generic[R]):
    """Changes that are made at once, and what is left of them."""

    def __init__(self, before_ts: Ts) -> None:
        self.before_ts = before_ts
        self.left: list[Transaction[R] | Ddl] = []
        """What is to be given, the next one last. Filled when they were seen in the program's thread."""
        self._made: Future[list[Transaction[R] | Ddl]] = Future()
        self._making: asyncio.Task[None] | None = None

    def ask(self, running: LoopThread, stream: Subscription[R]) -> Future[list[Transaction[R] | Ddl]]:
        """What they will be. One whose wait is interrupted is asked again: the same changes come."""
        if not self._made.done():
            running.call_soon(lambda: self._make(stream))
        return self._made

    def _make(self, stream: Subscription[R]) -> None:
        if self._making is None:
            self._making = asyncio.ensure_future(self._take(stream))

    async def _take(self, stream: Subscription[R]) -> None:
        try:
            taken = await stream.take(AHEAD)
        except BaseException as error:
            self._made.set_exception(error)
        else:
            self._made.set_result(taken[::-1])

    @property
    def is_given(self) -> bool:
        """Nothing of it is left; what failed stays failed."""
        return self._made.done() and self._made.exception() is None and not self._made.result()

    @property
    def given_ts(self) -> Ts:
        """At or below it everything was given, while something is left."""
        if self._made.done() and self._made.exception() is None:
            following = self._made.result()[-1]
            in_snapshot = isinstance(following, Transaction) and following.snapshot
            return 0 if in_snapshot else following.commit_ts - 1
        return self.before_ts


class SyncSubscription(Generic[R]):
    """What `subscribe_sync` gives: open it with `with`, read it with `for`. For one thread at a time."""

    def __init__(self, stream: Subscription[R]) -> None:
        self._stream = stream
        self._thread: LoopThread | None = None
        self._handful = _Handful[R](0)

    def __enter__(self) -> Self:
        self._thread = LoopThread("drainer.subscribe", "the stream", StreamEnded)
        self._thread.open(self._stream.__aenter__)
        self._handful = _Handful[R](self._stream.position)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __iter__(self) -> Iterator[Transaction[R] | Ddl]:
        return self

    def __next__(self) -> Transaction[R] | Ddl:
        self._stream.check()  # what was made ahead is not this reader's any more
        # Ctrl-C may come behind each call: what it must not part is a step without one, and the rest lies in
        # the handful, with which the next call goes on.
        left = self._handful.left
        if not left:
            left = self._next_handful()
            if not left:
                raise StopIteration
        change = left[-1]
        del left[-1]
        return change

    def ready(self, wait_s: float) -> bool:
        """Whether `next` gives a change, ends or raises at once; waits so many seconds for that."""
        return bool(self._handful.left) or bool(wait([self._asked()], wait_s).done)

    def _next_handful(self) -> list[Transaction[R] | Ddl]:
        asked = self._asked()
        self._handful.left = asked.result()
        return self._handful.left

    def _asked(self) -> Future[list[Transaction[R] | Ddl]]:
        if self._handful.is_given:
            self._handful = _Handful[R](self._stream.position)
        return self._handful.ask(self._running, self._stream)

    @property
    def position(self) -> int:
        """Everything at or below this commit timestamp was given, or is filtered."""
        handful = self._handful
        return self._stream.position if handful.is_given else handful.given_ts

    @property
    def waits_for(self) -> str:
        """What the stream waits for, in words; "" while it flows."""
        return self._stream.waits_for

    def done(self, change: Change, *, stored: bool = False) -> None:
        """See `Subscription.done`."""
        self._running.call(self._stream.done(change, stored=stored))

    def close(self) -> None:
        """End the stream, the loop and the thread. Idempotent."""
        thread = self._thread
        if thread is not None:
            self._handful = _Handful[R](self.position)
            with contextlib.suppress(StreamEnded):
                thread.close(self._stream.close())

    @property
    def _running(self) -> LoopThread:
        if self._thread is None:
            raise StreamEnded(
                "the stream is not open", hint="use it in a `with`: with drainer.subscribe_sync(...)"
            )
        return self._thread


def _sync(make: Callable[P, Subscription[R]]) -> Callable[P, SyncSubscription[R]]:
    def subscribe_sync(*arguments: P.args, **options: P.kwargs) -> SyncSubscription[R]:
        """The blocking counterpart of `subscribe`: see there."""
        return SyncSubscription(make(*arguments, **options))

    return subscribe_sync


subscribe_sync = _sync(subscribe)
"""The blocking counterpart of `subscribe`, with the same arguments and errors."""
