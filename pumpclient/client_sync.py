"""Synchronous face: the same client for programs without an event loop.

Owns    that thread
Stops   `close` lets background ends arrive for a while, then ends the client, the loop and the thread;
        an interrupted call (Ctrl-C) is cancelled
Never   touches signals or the host's event loop

    with pumpclient.connect_sync("127.0.0.1:2379") as client:
        client.write_prewrite(start_ts, key, value)
        delivered = client.write_commit_soon(start_ts, draw_timestamp(), key)  # a Future

May be used from any number of threads at once. A process that forks makes its client after the fork.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future, wait
from functools import wraps
from inspect import signature
from types import TracebackType
from typing import Any, ParamSpec, Self, TypeVar, get_type_hints

from pumpclient.client import PumpClient, connect
from pumpclient.errors import ClientClosed
from pumpclient.send.delivery import Counters
from pumpclient.send.skipping import ClientState
from tidb_binlog.process.loop_thread import BlockingFace, LoopThread, blocking, on_loop
from tidb_binlog.tso import Ts

P = ParamSpec("P")
T = TypeVar("T")
F = TypeVar("F")


def loop_thread() -> LoopThread:
    """The thread of a client or a publisher."""
    return LoopThread("pumpclient", "the pump client", ClientClosed)


def _counters(client: PumpClient) -> Counters:
    return client.counters


class SyncPumpClient(BlockingFace[PumpClient]):
    """`PumpClient` with blocking methods. Made by `connect_sync`; use it in a `with`.

    `open_client` runs on the loop thread; the client it returns must be started.
    """

    def __init__(self, open_client: Callable[[], Awaitable[PumpClient]]) -> None:
        thread = loop_thread()
        self._soon: set[Future[bool]] = set()
        super().__init__(thread, thread.open(open_client))

    write_prewrite = blocking(PumpClient.write_prewrite)
    write_ddl_prewrite = blocking(PumpClient.write_ddl_prewrite)
    write_commit = blocking(PumpClient.write_commit)
    write_rollback = blocking(PumpClient.write_rollback)
    write_binlog = blocking(PumpClient.write_binlog)
    recover = blocking(PumpClient.recover)
    set_strategy = on_loop(PumpClient.set_strategy)
    pumps = on_loop(PumpClient.pumps)

    def write_commit_soon(self, start_ts: Ts, commit_ts: Ts, key: bytes = b"") -> Future[bool]:
        """Send the commit in the background; the future says whether the pump has it."""
        return self._later(self._inner.write_commit(start_ts, commit_ts, key))

    def write_rollback_soon(self, start_ts: Ts, key: bytes = b"") -> Future[bool]:
        """Send the rollback in the background; the future says whether the pump has it."""
        return self._later(self._inner.write_rollback(start_ts, key))

    @property
    def state(self) -> ClientState:
        """See `PumpClient.state`."""
        return self._inner.state

    @property
    def strategy(self) -> str:
        """The name of the strategy by which pumps are chosen now."""
        return self._inner.strategy

    @property
    def counters(self) -> Counters:
        """A copy of the counters."""
        return self._copied()

    _copied = on_loop(_counters)

    def close(self, drain_s: float = 10.0) -> None:
        """Let what was sent with `_soon` arrive for `drain_s` seconds, then end everything. Idempotent."""
        if self._thread.is_here:
            wait(list(self._soon), timeout=drain_s)
        self._thread.close(self._inner.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _later(self, work: Coroutine[Any, Any, bool]) -> Future[bool]:
        future = self._thread.submit(work)
        self._soon.add(future)
        future.add_done_callback(self._soon.discard)
        return future


def opened_by(
    opener: Callable[P, Awaitable[T]], face: Callable[[Callable[[], Awaitable[T]]], F]
) -> Callable[P, F]:
    """The blocking counterpart of `opener`, with the same arguments and errors."""

    @wraps(opener)
    def open_sync(*arguments: P.args, **options: P.kwargs) -> F:
        return face(lambda: opener(*arguments, **options))

    open_sync.__module__ = face.__module__
    open_sync.__annotations__ = {**get_type_hints(opener), "return": face}
    open_sync.__signature__ = signature(opener).replace(return_annotation=face)  # type: ignore[attr-defined]
    open_sync.__name__ = open_sync.__qualname__ = f"{opener.__name__}_sync"
    open_sync.__doc__ = (
        f"The blocking counterpart of `{opener.__name__}`, with the same arguments and errors."
    )
    return open_sync


connect_sync = opened_by(connect, SyncPumpClient)
