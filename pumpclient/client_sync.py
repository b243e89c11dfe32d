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

from collections.abc import Awaitable, Callable, Coroutine, Mapping
from concurrent.futures import Future, wait
from types import TracebackType
from typing import Any, Self, TypeVar

from pumpclient.client import RECOVER_S, PumpClient, RecoverOp, connect
from pumpclient.errors import ClientClosed
from pumpclient.options import Options
from pumpclient.pumps.roster import PumpView
from pumpclient.send.delivery import Counters
from pumpclient.send.skipping import ClientState, SkipStatus
from tidb_binlog.net.tls import TlsConfig
from tidb_binlog.process.loop_thread import LoopThread
from tidb_binlog.table_info import SchemaState
from tidb_binlog.tso import Ts

T = TypeVar("T")


def loop_thread() -> LoopThread:
    """The thread of a client or a publisher."""
    return LoopThread("pumpclient", "the pump client", ClientClosed)


class SyncPumpClient:
    """`PumpClient` with blocking methods. Made by `connect_sync`; use it in a `with`.

    `open_client` runs on the loop thread; the client it returns must be started.
    """

    def __init__(self, open_client: Callable[[], Awaitable[PumpClient]]) -> None:
        self._thread = loop_thread()
        self._soon: set[Future[bool]] = set()
        self._client = self._thread.open(open_client)

    def write_prewrite(self, start_ts: Ts, key: bytes, value: bytes) -> bool:
        """See `PumpClient.write_prewrite`."""
        return self._thread.call(self._client.write_prewrite(start_ts, key, value))

    def write_ddl_prewrite(
        self,
        start_ts: Ts,
        key: bytes,
        query: str,
        job_id: int,
        schema_state: int = SchemaState.PUBLIC,
    ) -> bool:
        """See `PumpClient.write_ddl_prewrite`."""
        return self._thread.call(self._client.write_ddl_prewrite(start_ts, key, query, job_id, schema_state))

    def write_commit(self, start_ts: Ts, commit_ts: Ts, key: bytes = b"") -> bool:
        """See `PumpClient.write_commit`: blocks until the pump has it or time is up."""
        return self._thread.call(self._client.write_commit(start_ts, commit_ts, key))

    def write_rollback(self, start_ts: Ts, key: bytes = b"") -> bool:
        """See `PumpClient.write_rollback`: blocks until the pump has it or time is up."""
        return self._thread.call(self._client.write_rollback(start_ts, key))

    def write_commit_soon(self, start_ts: Ts, commit_ts: Ts, key: bytes = b"") -> Future[bool]:
        """Send the commit in the background; the future says whether the pump has it."""
        return self._later(self._client.write_commit(start_ts, commit_ts, key))

    def write_rollback_soon(self, start_ts: Ts, key: bytes = b"") -> Future[bool]:
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
    label: Mapping[str, str] | None = None,
) -> SyncPumpClient:
    """The blocking counterpart of `connect`, with the same arguments and errors."""
    return SyncPumpClient(
        lambda: connect(
            endpoints,
            cluster_id=cluster_id,
            strategy=strategy,
            socket=socket,
            options=options,
            tls=tls,
            label=label,
        )
    )
