"""Synchronous face: the same client for programs without an event loop.

Drives  PumpClient, on an event loop in a thread of its own
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

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future, wait
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from common.net.tls import TlsConfig
from common.table_info import SchemaState
from pumpclient.client import RECOVER_S, PumpClient, RecoverOp, connect
from pumpclient.errors import ClientClosed
from pumpclient.options import Options
from pumpclient.pumps.roster import PumpView
from pumpclient.send.delivery import Counters
from pumpclient.send.skipping import ClientState, SkipStatus

T = TypeVar("T")


class LoopThread:
    """An event loop running in a daemon thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="pumpclient", daemon=True)
        self._lock = threading.Lock()
        self._stopped = False
        self._process_id = os.getpid()
        self._thread.start()

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Run a coroutine there. Raises `ClientClosed` after `stop`, and in a process forked since."""
        if not self.is_here:
            work.close()
            raise ClientClosed(
                "the pump client was opened before this process was forked, its thread is not in here",
                hint="open one in each process, after the fork",
            )
        with self._lock:
            if self._stopped:
                work.close()
                raise ClientClosed("the pump client is closed")
            return asyncio.run_coroutine_threadsafe(work, self._loop)

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine there and wait for it; cancelled when the waiting is interrupted."""
        call = _Call(work)
        try:
            return self.submit(call.run()).result()
        except ClientClosed:
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

        async def made() -> T:
            return await make()

        try:
            return self.call(made())
        except BaseException:
            self.stop()
            raise

    def close(self, work: Coroutine[Any, Any, None]) -> None:
        """Run its last coroutine there, then `stop`. Idempotent."""
        try:
            self.call(work)
        except ClientClosed:
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
    await asyncio.get_running_loop().shutdown_asyncgens()


class SyncPumpClient:
    """`PumpClient` with blocking methods. Made by `connect_sync`; use it in a `with`.

    `open_client` runs on the loop thread; the client it returns must be started.
    """

    def __init__(self, open_client: Callable[[], Awaitable[PumpClient]]) -> None:
        self._thread = LoopThread()
        self._soon: set[Future[bool]] = set()
        self._client = self._thread.open(open_client)

    def write_prewrite(self, start_ts: int, key: bytes, value: bytes) -> bool:
        """See `PumpClient.write_prewrite`."""
        return self._thread.call(self._client.write_prewrite(start_ts, key, value))

    def write_ddl_prewrite(
        self,
        start_ts: int,
        key: bytes,
        query: str,
        job_id: int,
        schema_state: int = SchemaState.PUBLIC,
    ) -> bool:
        """See `PumpClient.write_ddl_prewrite`."""
        return self._thread.call(self._client.write_ddl_prewrite(start_ts, key, query, job_id, schema_state))

    def write_commit(self, start_ts: int, commit_ts: int, key: bytes = b"") -> bool:
        """See `PumpClient.write_commit`: blocks until the pump has it or time is up."""
        return self._thread.call(self._client.write_commit(start_ts, commit_ts, key))

    def write_rollback(self, start_ts: int, key: bytes = b"") -> bool:
        """See `PumpClient.write_rollback`: blocks until the pump has it or time is up."""
        return self._thread.call(self._client.write_rollback(start_ts, key))

    def write_commit_soon(self, start_ts: int, commit_ts: int, key: bytes = b"") -> Future[bool]:
        """Send the commit in the background; the future says whether the pump has it."""
        return self._later(self._client.write_commit(start_ts, commit_ts, key))

    def write_rollback_soon(self, start_ts: int, key: bytes = b"") -> Future[bool]:
        """Send the rollback in the background; the future says whether the pump has it."""
        return self._later(self._client.write_rollback(start_ts, key))

    def write_binlog(self, payload: bytes) -> bool:
        """See `PumpClient.write_binlog`."""
        return self._thread.call(self._client.write_binlog(payload))

    def set_strategy(self, strategy: str) -> None:
        """See `PumpClient.set_strategy`."""
        self._thread.call(self._run(lambda: self._client.set_strategy(strategy)))

    def pumps(self) -> tuple[PumpView, ...]:
        """All pumps the client knows, with their state, ascending id."""
        return self._thread.call(self._run(self._client.pumps))

    def recover(self, op: RecoverOp = "wait", seconds: float = RECOVER_S) -> SkipStatus:
        """See `PumpClient.recover`."""
        return self._thread.call(self._client.recover(op, seconds))

    @property
    def state(self) -> ClientState:
        """See `PumpClient.state`."""
        return self._client.state

    @property
    def strategy(self) -> str:
        """The name of the strategy by which pumps are chosen now."""
        return self._client.strategy

    @property
    def counters(self) -> Counters:
        """A copy of the counters."""
        return self._thread.call(self._run(lambda: self._client.counters))

    def close(self, drain_s: float = 10.0) -> None:
        """Let what was sent with `_soon` arrive for `drain_s` seconds, then end everything. Idempotent."""
        if self._thread.is_here:
            wait(list(self._soon), timeout=drain_s)
        self._thread.close(self._client.close())

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

    @staticmethod
    async def _run(read: Callable[[], T]) -> T:
        """The client's state belongs to the loop's thread: it is read there."""
        return read()


def connect_sync(
    endpoints: str,
    *,
    cluster_id: int | None = None,
    strategy: str = "range",
    socket: str = "",
    options: Options | None = None,
    tls: TlsConfig | None = None,
) -> SyncPumpClient:
    """The blocking counterpart of `connect`, with the same arguments and errors."""
    return SyncPumpClient(
        lambda: connect(
            endpoints, cluster_id=cluster_id, strategy=strategy, socket=socket, options=options, tls=tls
        )
    )
