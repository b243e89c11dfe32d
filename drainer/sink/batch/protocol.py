"""Batch sink: what a program writes so that a Drainer brings the stream to its own store.

    class Prices:
        def __init__(self, options): ...            # checks [syncer.to.options]; connects to nothing
        def open(self): ...                         # connects; the stored position, 0, or None
        def write(self, items, position): ...       # everything in `items` is durable when it returns
        def close(self): ...

Only `write` is needed. Methods may be coroutine functions; they are called one at a time, on a thread that is
the sink's alone.

Promises of the Drainer
    order       items come in the order of their commit_ts; a DDL comes in a batch of its own
    position    with `position` everything at or below it has been given: a sink that stores it in the
                transaction of its items, and returns it from `open`, has each change exactly once. Without,
                the Drainer's savepoint counts, and what was written last may come twice after a crash
    snapshot    rows that stood in the tables (`--load`) come first, with `snapshot`. The position is then how
                many there are so far, and their commit_ts with the last ones: it rises, as later
    failure     after an exception from `write`, `close` and `open` are called, and then the same items come
                again, unless `open` says that they are there

Tests  tests/drainer/sink/batch/test_batched_sink.py, tests/contract/test_batch_sink.py
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from typing import Any, Final, Protocol

from drainer.changes.model import Ddl, Transaction

BATCH_ROWS: Final = 1000
BATCH_BYTES: Final = 4 << 20


class BatchSink(Protocol):
    """See the module; a class need not derive from it.

    `batch_rows` and `batch_bytes` (encoded) bound a batch; no transaction is cut. `batch_interval_s` is from
    the end of a write to the next one, unless that batch can grow no more. After exceptions that are
    `retriable` the Drainer tries again by itself.
    """

    batch_rows: int = BATCH_ROWS
    batch_bytes: int = BATCH_BYTES
    batch_interval_s: float = 0.0
    retriable: tuple[type[BaseException], ...] = ()

    def __init__(self, options: Mapping[str, Any]) -> None:
        """Check the options; raises `drainer.ConfigError`, which names the key."""
        return

    def open(self) -> int | Awaitable[int | None] | None:
        """Connect. The stored position, 0 if there is none yet, None for a sink that stores none."""
        return None

    def write(self, items: Sequence[Transaction | Ddl], position: int) -> Awaitable[None] | None:
        """Write, in this order. Without items only the position has moved: for sinks that store it."""
        ...

    def close(self) -> Awaitable[None] | None:
        """Let go of everything; also after errors."""
        return None


class Retry(Exception):
    """Raised by a sink: what it tried did not work now. `after`: seconds until the next attempt; without it
    pauses grow."""

    def __init__(self, message: str, *, after: float | None = None) -> None:
        super().__init__(message)
        self.after = after


class SinkEnded(Exception):
    """Raised by a sink that will take no more: the Drainer stops as if it were asked to."""
