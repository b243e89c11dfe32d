"""Transport: the port through which one binlog goes to one pump, and its gRPC adapter.

Owns    one lazy connection per address, and on it one stream for many binlogs a message
Stops   `close` breaks off calls that are under way; `drop` does not: the connection is replaced at once
        and closed when the last call on it has ended, so that one caller's trouble does not abort others
Falls   back to a call a binlog on a connection whose pump does not know the stream (Go pumps); a new
        connection asks again
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import Final, NoReturn, Protocol, runtime_checkable

from google.protobuf.message import DecodeError

from pumpclient.send.batch_stream import BatchStream, Outcome
from pumpclient.send.batching import LARGE_BYTES
from pumpclient.send.write_policy import Failure
from pumpclient.tasks import Sleep
from tidb_binlog import rpc
from tidb_binlog.clock import Clock, SystemClock
from tidb_binlog.errors import BinlogError, Unavailable
from tidb_binlog.late_dataclass import dataclass
from tidb_binlog.net.tls import TlsConfig
from tidb_binlog.wire import pump_pb2

WRITE_BINLOG: Final = "/binlog.Pump/WriteBinlog"

# Status code of the answer -> what kind of failure it is. Success (0) is no failure.
FAILURE_OF_CODE: Final[dict[int, Failure]] = {
    1: Failure.UNREACHABLE,  # CANCELLED by the other side: the connection ended under the call
    2: Failure.FAILED,  # UNKNOWN: how pumps report their own errors
    3: Failure.FAILED,  # INVALID_ARGUMENT
    4: Failure.UNREACHABLE,  # DEADLINE_EXCEEDED
    5: Failure.FAILED,  # NOT_FOUND
    6: Failure.FAILED,  # ALREADY_EXISTS
    7: Failure.FAILED,  # PERMISSION_DENIED
    8: Failure.TOO_LARGE,  # RESOURCE_EXHAUSTED
    9: Failure.FAILED,  # FAILED_PRECONDITION
    10: Failure.FAILED,  # ABORTED
    11: Failure.FAILED,  # OUT_OF_RANGE
    12: Failure.FAILED,  # UNIMPLEMENTED
    13: Failure.FAILED,  # INTERNAL
    14: Failure.UNREACHABLE,  # UNAVAILABLE
    15: Failure.FAILED,  # DATA_LOSS
    16: Failure.FAILED,  # UNAUTHENTICATED
}


class TransportFailure(Exception):
    """The binlog was not acknowledged. With UNREACHABLE it may have been stored all the same."""

    def __init__(self, failure: Failure, message: str) -> None:
        super().__init__(message)
        self.failure = failure
        self.message = message


class PumpTransport(Protocol):
    """Carries binlogs to pumps by address (`host:port`)."""

    async def write(self, address: str, cluster_id: int, payload: bytes, timeout_s: float) -> None:
        """Return when the pump has acknowledged the payload. Raises `TransportFailure`, nothing else.

        A failure of kind UNREACHABLE also drops the connection the call went over.
        """
        ...

    async def drop(self, address: str) -> None:
        """The next write to this address connects anew. Calls under way continue."""
        ...

    async def close(self) -> None:
        """End all connections."""
        ...


@runtime_checkable
class QueueingTransport(Protocol):
    """A transport on which a write need not be a coroutine of its own."""

    def submit(
        self, address: str, cluster_id: int, payload: bytes, timeout_s: float
    ) -> asyncio.Future[Outcome] | None:
        """As `write`, where that only means to queue it: what became of it. None: it takes a `write`."""
        ...


class RpcClient(Protocol):
    """What the adapter needs of `tidb_binlog.rpc.Client`."""

    async def unary(self, method_path: str, request: bytes, timeout_s: float) -> bytes: ...

    def bidi(self, path: str, requests: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]: ...

    async def close(self) -> None: ...


@dataclass(slots=True, eq=False)
class _Connection:
    client: RpcClient
    batches: bool
    calls: int = 0
    stream: BatchStream | None = None

    async def close(self) -> None:
        if self.stream is not None:
            await self.stream.close()
        await self.client.close()


class RpcTransport:
    """gRPC adapter. `dial` makes the client of an address; it must not block. `batches`: many binlogs a
    message where the pump takes them."""

    def __init__(
        self,
        *,
        tls: TlsConfig | None = None,
        dial: Callable[[str], RpcClient] | None = None,
        batches: bool = True,
        clock: Clock | None = None,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        self._dial: Callable[[str], RpcClient] = dial or (lambda address: rpc.Client(address, tls=tls))
        self._batches = batches
        self._clock = clock or SystemClock()
        self._now_s = self._clock.monotonic_s
        self._sleep = sleep
        self._connections: dict[str, _Connection] = {}
        self._retired: dict[_Connection, None] = {}  # in their order
        self._closing: set[asyncio.Task[None]] = set()

    def submit(
        self, address: str, cluster_id: int, payload: bytes, timeout_s: float
    ) -> asyncio.Future[Outcome] | None:
        connection = self._connections.get(address)
        if connection is None or len(payload) >= LARGE_BYTES:
            return None
        stream = connection.stream
        if stream is None or stream.cluster_id != cluster_id:
            return None
        return stream.submit(payload, self._now_s() + timeout_s)

    async def write(self, address: str, cluster_id: int, payload: bytes, timeout_s: float) -> None:
        connection = self._connections.get(address)
        if connection is None:
            connection = self._connect(address)
        if connection.batches and connection.stream is None and len(payload) < LARGE_BYTES:
            self._open_stream(address, connection, cluster_id)
        answer = self.submit(address, cluster_id, payload, timeout_s)
        if answer is not None:
            outcome = await answer
            if outcome is None:
                return
            failure, text = outcome
            if failure is not None:
                raise TransportFailure(failure, f"pump at {address}: {text}")
        await self._alone(address, connection, cluster_id, payload, timeout_s)

    async def drop(self, address: str) -> None:
        connection = self._connections.get(address)
        if connection is not None:
            self._retire(address, connection)

    async def close(self) -> None:
        connections = [*self._connections.values(), *self._retired]
        self._connections.clear()
        self._retired.clear()
        for connection in connections:
            await connection.close()
        if self._closing:
            await asyncio.wait(self._closing)

    def _connect(self, address: str) -> _Connection:
        try:
            client = self._dial(address)
        except (BinlogError, OSError, ValueError) as error:
            raise TransportFailure(Failure.UNREACHABLE, f"pump at {address}: {error}") from error
        connection = self._connections[address] = _Connection(client, self._batches)
        return connection

    def _open_stream(self, address: str, connection: _Connection, cluster_id: int) -> None:
        def ended(failure: Failure | None, code: int | None) -> None:
            connection.stream = None
            if code == rpc.UNIMPLEMENTED:
                connection.batches = False
            elif failure is Failure.UNREACHABLE:
                self._retire(address, connection)
            self._close_if_idle(connection)

        connection.stream = BatchStream(
            connection.client, cluster_id, clock=self._clock, sleep=self._sleep, ended=ended
        )

    async def _alone(
        self, address: str, connection: _Connection, cluster_id: int, payload: bytes, timeout_s: float
    ) -> None:
        """One call for one binlog."""
        request = pump_pb2.WriteBinlogReq(clusterID=cluster_id, payload=payload).SerializeToString()
        connection.calls += 1
        try:
            reply = await connection.client.unary(WRITE_BINLOG, request, timeout_s)
            errmsg = pump_pb2.WriteBinlogResp.FromString(reply).errmsg
        except rpc.RpcStatus as error:
            self._fail(address, connection, FAILURE_OF_CODE.get(error.code, Failure.FAILED), str(error))
        except Unavailable as error:
            self._fail(address, connection, Failure.UNREACHABLE, str(error))
        except (BinlogError, DecodeError) as error:
            self._fail(address, connection, Failure.FAILED, str(error))
        finally:
            connection.calls -= 1
            self._close_if_idle(connection)
        if errmsg:
            raise TransportFailure(Failure.REFUSED, errmsg)

    def _fail(self, address: str, connection: _Connection, failure: Failure, text: str) -> NoReturn:
        if failure is Failure.UNREACHABLE:
            self._retire(address, connection)
        raise TransportFailure(failure, f"pump at {address}: {text}") from None

    def _retire(self, address: str, connection: _Connection) -> None:
        """No new call goes over this connection; a younger one to the same address is left alone."""
        if self._connections.get(address) is connection:
            del self._connections[address]
            self._retired[connection] = None
            if connection.stream is not None:
                connection.stream.drain(lambda: self._close_if_idle(connection))
            self._close_if_idle(connection)

    def _close_if_idle(self, connection: _Connection) -> None:
        """In the background: no write waits for it."""
        if connection not in self._retired or connection.calls:
            return
        if connection.stream is not None and len(connection.stream):
            return
        self._retired.pop(connection, None)
        task = asyncio.get_running_loop().create_task(connection.close(), name="pumpclient close")
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)
