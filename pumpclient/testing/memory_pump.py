"""Memory pump: a pump in this process that keeps what it acknowledged, and a connection to it that carries
the real messages, single ones and batches. For `pumpclient.testing`.

Drives  nothing
Holds   what a pump holds: an answer after the binlog is kept, in the order of the stream
Tests   tests/pumpclient/test_client.py
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Final

from pumpclient.send.write_policy import Failure
from tidb_binlog import binlog, rpc
from tidb_binlog.errors import Unavailable
from tidb_binlog.late_dataclass import dataclass, field
from tidb_binlog.tso import Ts
from tidb_binlog.wire import pump_pb2

_REASON: Final = {
    Failure.FAILED: pump_pb2.WriteFailure.STATE,
    Failure.REFUSED: pump_pb2.WriteFailure.DISK,
    Failure.TOO_LARGE: pump_pb2.WriteFailure.SIZE,
}


# Waiters: tasks of any event loop that wait for what any thread may do.


class Waiters:
    """Threads come in where a program under test is synchronous: its library has a loop of its own."""

    def __init__(self) -> None:
        self._events: dict[asyncio.Event, asyncio.AbstractEventLoop] = {}

    @contextmanager
    def waiting(self) -> Iterator[asyncio.Event]:
        """An event that `wake` sets; who waits clears it."""
        event = asyncio.Event()
        self._events[event] = asyncio.get_running_loop()
        try:
            yield event
        finally:
            del self._events[event]

    def wake(self) -> None:
        """Set all of them."""
        try:
            here: asyncio.AbstractEventLoop | None = asyncio.get_running_loop()
        except RuntimeError:
            here = None
        for event, loop in list(self._events.items()):
            if loop is here:
                event.set()
            else:
                with contextlib.suppress(RuntimeError):  # that loop has ended
                    loop.call_soon_threadsafe(event.set)


@dataclass(slots=True)
class MemoryPump:
    """A pump that keeps what it acknowledged. Change `cluster_id`, `failures` and `hanging` at will."""

    address: str
    cluster_id: int
    payloads: list[bytes] = field(default_factory=list)
    attempts: int = 0
    probes: int = 0
    connections: int = 0
    """How many times a client has connected."""
    messages: int = 0
    """How many messages with many binlogs came."""
    takes_batches: bool = True
    """Off: it does not know the method, as Go pumps."""
    failures: deque[Failure] = field(default_factory=deque)
    """Answers to the next calls, one each; then it works again."""
    broken: Failure | None = None
    """Answer to every call while set."""
    hanging: bool = False
    """While set, calls are not answered; the deadline ends them."""
    purged_ts: Ts = 0
    """Readers that begin below are refused."""
    stored: Waiters = field(default_factory=Waiters)
    """Whoever waits for the next payload."""

    def transactions(self) -> list[tuple[int, int, int]]:
        """(tp, start_ts, commit_ts) of each stored payload."""
        headers = [binlog.header(binlog.parse(payload)) for payload in self.payloads]
        return [(header.tp, header.start_ts, header.commit_ts) for header in headers]

    def receive(self, cluster_id: int, payload: bytes) -> tuple[Failure, str] | None:
        """Keep a binlog and say None, or say why not."""
        failure = self.failures.popleft() if self.failures else self.broken
        if failure is not None:
            return failure, f"pump at {self.address}: {failure.value}"
        if cluster_id != self.cluster_id:
            return Failure.FAILED, f"cluster ID are mismatch, {cluster_id} vs {self.cluster_id}"
        if payload:
            self.payloads.append(payload)
            self.stored.wake()
        else:
            self.probes += 1
        return None


class MemoryRpc:
    """What `tidb_binlog.rpc.Client` is to a real pump. `pump` finds it; without one there is no answer."""

    def __init__(
        self, address: str, pump: Callable[[], MemoryPump | None], sleep: Callable[[float], Awaitable[None]]
    ) -> None:
        self._address = address
        self._pump = pump
        self._sleep = sleep
        self._connected: MemoryPump | None = None
        self._closed = asyncio.Event()

    async def unary(self, method_path: str, request: bytes, timeout_s: float) -> bytes:
        """`WriteBinlog`. Raises `Unavailable`, `RpcStatus`."""
        pump = await self._reach()
        if pump.hanging:
            await self._sleep(timeout_s)
            raise self._gone("did not answer in time")
        message = pump_pb2.WriteBinlogReq.FromString(request)
        pump.attempts += 1
        refused = pump.receive(message.clusterID, message.payload)
        if refused is None:
            return b""
        failure, text = refused
        if failure is Failure.REFUSED:
            return pump_pb2.WriteBinlogResp(errmsg=text).SerializeToString()
        if failure is Failure.UNREACHABLE:
            raise self._gone(text)
        code = rpc.RESOURCE_EXHAUSTED if failure is Failure.TOO_LARGE else rpc.UNKNOWN
        raise rpc.RpcStatus(code, text)

    async def bidi(self, path: str, requests: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
        """`WriteBinlogs`: an answer a message. Raises `Unavailable`, `RpcStatus`."""
        pump = await self._reach()
        if not pump.takes_batches:
            raise rpc.RpcStatus(rpc.UNIMPLEMENTED, f"unknown method {path}")
        count = 0
        async for data in requests:
            pump = await self._reach()
            if pump.hanging:
                await self._closed.wait()
            message = pump_pb2.WriteBinlogsReq.FromString(data)
            pump.messages += 1
            answer = pump_pb2.WriteBinlogsResp()
            for number, payload in enumerate(message.payloads, count + 1):
                pump.attempts += 1
                refused = pump.receive(message.cluster_id, payload)
                if refused is None:
                    continue
                failure, text = refused
                if failure is Failure.UNREACHABLE:
                    raise self._gone(text)
                answer.failures.add(number=number, reason=_REASON[failure], text=text)
            count += len(message.payloads)
            answer.answered = count
            yield answer.SerializeToString()

    async def close(self) -> None:
        """End the connection."""
        self._closed.set()

    async def _reach(self) -> MemoryPump:
        await asyncio.sleep(0)
        pump = self._pump()
        if pump is None or self._closed.is_set():
            raise self._gone("does not answer")
        if self._connected is not pump:
            self._connected = pump
            pump.connections += 1
        return pump

    def _gone(self, text: str) -> Unavailable:
        return Unavailable(f"pump at {self._address}: {text}")
