"""Sink writer: a batch goes into somebody's sink, however often that takes.

Owns    whether the sink is open, what failed last, and when it is tried again
Order   write; after an exception close and then open, which says where the sink is; then what is missing
Holds   what the sink calls retriable is tried again after pauses that grow, or the one it asks for; after any
        other exception the batch is held until an operator resumes or the Drainer starts again
Stops   `stop` ends every wait between two attempts: `GaveUp`; what runs on the thread is cancelled, if it can
        be, by `end`

Tests  tests/drainer/sink/batch/test_batched_sink.py
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import threading
from collections.abc import Callable, Sequence
from typing import Any, Final

from drainer import metrics
from drainer.sink.background import Background
from drainer.sink.batch.batching import Batch, Item, rest_of
from drainer.sink.batch.protocol import Retry, SinkEnded
from tidb_binlog.backoff import Backoff
from tidb_binlog.clock import Clock
from tidb_binlog.errors import BinlogError, ConfigError, Conflict, Corruption
from tidb_binlog.late_dataclass import dataclass
from tidb_binlog.observe import log
from tidb_binlog.observe.printable import one_line
from tidb_binlog.tso import Ts

logger = log.get("drainer.sink")

PAUSE_S: Final = 0.2
PAUSE_MAX_S: Final = 30.0
CLOSE_LIMIT_S: Final = 3.0
FATAL: Final = (Conflict, Corruption)
"""Whatever raises them, no attempt and no operator of this process can help."""
SLOW_S: Final = 5.0
"""A call of the sink that takes longer is shown."""


class GaveUp(Exception):
    """The stream stops before the batch is there."""


@dataclass(frozen=True, slots=True)
class Trouble:
    """`held`: until somebody says so; otherwise `retry_s` are between two attempts."""

    text: str
    held: bool
    attempts: int
    retry_s: float = 0.0


def words_of(error: BaseException) -> str:
    """One line for an exception of a sink."""
    if isinstance(error, Retry | SinkEnded | BinlogError):
        return one_line(str(error)) or type(error).__name__
    return one_line(f"{type(error).__name__}: {error}".removesuffix(": "))


def is_retriable(sink: Any, error: BaseException) -> bool:
    return isinstance(error, (Retry, *getattr(sink, "retriable", ())))


class SinkWriter:
    """`convert` makes of items what the sink is given, on its thread; what it raises is no exception of the
    sink. `ended` is called when the sink will take no more. The first `open` is the caller's. `stands_at`:
    the position that the sink said last, or was given; 0 for none."""

    def __init__(
        self,
        sink: Any,
        name: str,
        convert: Callable[[Sequence[Item]], Sequence[Any]],
        clock: Clock,
        *,
        ended: Callable[[], None] = lambda: None,
        pause_s: float = PAUSE_S,
    ) -> None:
        self.sink = sink
        self.name = name
        self.thread = SinkThread(name)
        self.trouble: Trouble | None = None
        self._background = Background()
        self._convert = convert
        self._clock = clock
        self._ended = ended
        self._backoff = Backoff(pause_s, PAUSE_MAX_S)
        self._is_open = False
        self.stands_at = 0
        self._again = self._stopping = False
        self._since_s: float | None = None

    @property
    def busy_s(self) -> float:
        """For how long a call of the sink has been running."""
        return 0.0 if self._since_s is None else self._clock.monotonic_s() - self._since_s

    @property
    def held_up(self) -> str:
        """What an operator should know; "" for nothing."""
        trouble = self.trouble
        if trouble is None:
            return f"waiting for the sink for {self.busy_s:.0f} s" if self.busy_s > SLOW_S else ""
        if trouble.held:
            return f"held by the sink: {trouble.text} (PUT /apply/resume tries again)"
        return f"the sink is tried again in {trouble.retry_s:.1f} s: {trouble.text}"

    def try_again(self) -> None:
        """Now, whatever the pause."""
        self._again = True
        self._background.wake()

    def stop(self) -> None:
        """No attempt after the one that runs."""
        self._stopping = True
        self._background.wake()

    async def open(self) -> int | None:
        """The position of the sink. Raises `Raised`, `ConfigError`."""
        method = getattr(self.sink, "open", None)
        position = await self._call(method) if method is not None else None
        if position is not None and (not isinstance(position, int) or position < 0):
            raise ConfigError(
                f"open() of the sink {self.name} returned {position!r}",
                hint="return the stored position, 0 if there is none yet, None if the sink stores none",
            )
        self._is_open = True
        self.stands_at = position or 0
        return position

    async def write(self, batch: Batch, written_ts: Ts | None) -> None:
        """Returns when the batch is there. `written_ts`: the position before it, None for a sink that stores
        none. Raises `GaveUp`, what is `FATAL`, and what `convert` raises."""
        rest: Batch | None = batch
        while True:
            try:
                if not self._is_open:
                    rest = await self._reopened(batch, written_ts)
                if rest is not None:
                    await self._write(rest)
                break
            except Raised as raised:
                await self.close()
                await self._after(raised.error, batch)
        if self.trouble is not None:
            logger.info("the sink writes again", sink=self.name, attempts=self.trouble.attempts)
            metrics.SINK_HELD.set(0)
            self.trouble = None
        self._backoff.reset()

    async def _write(self, batch: Batch) -> None:
        given = await self.thread.call(self._converted, batch.items)
        if isinstance(given, BaseException):
            raise given
        await self._call(self.sink.write, given, batch.position)
        self.stands_at = batch.position

    def _converted(self, items: Sequence[Item]) -> Sequence[Any] | BaseException:
        try:
            return self._convert(items)
        except Exception as error:
            return error

    async def _reopened(self, batch: Batch, written_ts: Ts | None) -> Batch | None:
        before = self.stands_at
        position = await self.open()
        if written_ts is None or position is None:
            return batch
        return rest_of(batch, position, min(written_ts, before))

    async def _call(self, method: Callable[..., Any], *arguments: Any) -> Any:
        self._since_s = self._clock.monotonic_s()
        try:
            return await self.thread.call(method, *arguments)
        finally:
            self._since_s = None

    async def _after(self, error: BaseException, batch: Batch) -> None:
        """Until it is to be tried again. Raises `GaveUp`."""
        attempts = self.trouble.attempts + 1 if self.trouble else 1
        if isinstance(error, FATAL):
            raise error
        where = {"sink": self.name, "position": batch.position, "attempts": attempts}
        self._again = False
        if isinstance(error, SinkEnded):
            logger.warning("the sink takes no more: the drainer stops", reason=words_of(error), **where)
            self._ended()
            raise GaveUp
        if self._stopping:
            logger.warning("the sink failed at the end", reason=words_of(error), **where)
            raise GaveUp
        retries = is_retriable(self.sink, error)
        metrics.SINK_ERRORS.labels("retry" if retries else "hold").inc()
        retry_s = None
        if retries:
            after_s = error.after if isinstance(error, Retry) else None
            retry_s = self._backoff.next_s() if after_s is None else after_s
            logger.warning("the sink is tried again", reason=words_of(error), after_s=retry_s, **where)
        else:
            logger.failure("the sink holds the drainer until PUT /apply/resume", error, **where)
        metrics.SINK_HELD.set(0 if retries else 1)
        self.trouble = Trouble(words_of(error), not retries, attempts, retry_s or 0.0)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(retry_s):
                await self._background.until(lambda: self._again or self._stopping)
        if self._stopping:
            raise GaveUp

    async def close(self) -> None:
        """The sink lets go; what it raises is logged."""
        method = getattr(self.sink, "close", None)
        self._is_open = False
        if method is None:
            return
        try:
            await self._call(method)
        except Raised as raised:
            logger.warning("the sink did not close well", sink=self.name, reason=words_of(raised.error))

    async def end(self) -> None:
        """Close within a limit of time, and end the thread; a call that hangs is left behind."""
        if self._since_s is None and self._is_open:
            try:
                async with asyncio.timeout(CLOSE_LIMIT_S):
                    await self.close()
            except TimeoutError:
                logger.warning("the sink does not close, left behind", sink=self.name)
        self.thread.end()


# Sink thread: the methods of somebody's sink, on a thread and an event loop of their own.
# Why     what blocks there, or never returns, holds neither the event loop of the Drainer nor its heartbeat
# Order   calls run one after the other
# Holds   whatever a method raises comes back as `Raised`; nothing of it ends the thread
# Stops   `end` waits for nothing: a method that hangs is left behind, and cannot keep the process


class Raised(Exception):
    """A method of a sink raised `error`."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(str(error))
        self.error = error


class SinkThread:
    """Begins at once."""

    def __init__(self, name: str) -> None:
        self._loop: asyncio.AbstractEventLoop
        self._begun = threading.Event()
        self._ended = False
        self._thread = threading.Thread(target=self._run, name=f"sink-{name}", daemon=True)
        self._thread.start()
        self._begun.wait()

    def _run(self) -> None:
        with asyncio.Runner() as runner:
            self._loop = runner.get_loop()
            self._begun.set()
            self._loop.run_forever()

    async def call(self, method: Callable[..., Any], *arguments: Any) -> Any:
        """What it returns, or what it returns is awaited to. Raises `Raised`; after `end` who calls is
        cancelled."""
        if self._ended:
            raise asyncio.CancelledError
        future = asyncio.run_coroutine_threadsafe(_called(method, arguments), self._loop)
        return await asyncio.wrap_future(future)

    def end(self) -> None:
        """No call from now on; one that runs may go on for as long as the process."""
        if not self._ended:
            self._ended = True
            self._loop.call_soon_threadsafe(self._loop.stop)

    def join(self) -> None:
        """After `end`: until the last call is over."""
        self._thread.join()


async def _called(method: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    try:
        result = method(*arguments)
        return await result if inspect.isawaitable(result) else result
    except asyncio.CancelledError as error:
        if (task := asyncio.current_task()) is not None and task.cancelling():
            raise
        raise Raised(error) from error
    except BaseException as error:
        raise Raised(error) from error
