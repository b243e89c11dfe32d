"""Synchronous face: the same stream for programs without an event loop.

    with drainer.subscribe_sync("127.0.0.1:2379", tables=["shop.*"]) as stream:
        for change in stream:
            ...
            stream.done(change)

Drives  `Subscription`, on an event loop in a thread of its own
Holds   what is made ahead of the program is bounded: one handful of changes, made while it waits for
        them. Rows of a large transaction are read in the program's own thread, while the other one rests
Stops   `close`, or the end of the `with`, wherever it is left: Ctrl-C loses no change and leaves no thread
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from types import TracebackType
from typing import Final, ParamSpec, Self

from common.process.loop_thread import LoopThread
from drainer.reading.errors import StreamEnded
from drainer.reading.subscribe.subscription import Change, Subscription, subscribe

P = ParamSpec("P")
AHEAD: Final = 256
"""Changes made at once: a thread is woken once for so many."""


class SyncSubscription:
    """What `subscribe_sync` gives: open it with `with`, read it with `for`. For one thread at a time."""

    def __init__(self, stream: Subscription) -> None:
        self._stream = stream
        self._thread: LoopThread | None = None
        self._ahead: deque[Change] = deque()
        self._coming: Future[list[Change]] | None = None
        self._given_ts = 0

    def __enter__(self) -> Self:
        self._thread = LoopThread("drainer.subscribe", "the stream", StreamEnded)
        self._thread.open(self._stream.__aenter__)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __iter__(self) -> Iterator[Change]:
        return self

    def __next__(self) -> Change:
        ahead = self._ahead
        if not ahead:
            if self._coming is None:
                self._given_ts = self._stream.position
                self._coming = self._running.submit(self._stream.take(AHEAD))
            found = self._coming.result()  # interrupted: the next call waits for the same changes
            self._coming = None
            ahead.extend(found)
        if not ahead:
            raise StopIteration
        return ahead.popleft()

    @property
    def position(self) -> int:
        """Everything at or below this commit timestamp was given, or is filtered."""
        if self._ahead:
            return self._ahead[0].commit_ts - 1
        if self._coming is not None:  # it was interrupted, or failed: what came of it was not given
            return self._given_ts
        return self._stream.position

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
            self._ahead.clear()
            with contextlib.suppress(StreamEnded):
                thread.close(self._stream.close())
            self._coming = None

    @property
    def _running(self) -> LoopThread:
        if self._thread is None:
            raise StreamEnded(
                "the stream is not open", hint="use it in a `with`: with drainer.subscribe_sync(...)"
            )
        return self._thread


def _sync(make: Callable[P, Subscription]) -> Callable[P, SyncSubscription]:
    def subscribe_sync(*arguments: P.args, **options: P.kwargs) -> SyncSubscription:
        """The blocking counterpart of `subscribe`, with the same arguments and errors."""
        return SyncSubscription(make(*arguments, **options))

    return subscribe_sync


subscribe_sync = _sync(subscribe)
