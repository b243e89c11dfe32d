"""Transport: the port through which one binlog goes to one pump, and its gRPC adapter.

Drives  nothing; `client` drives it
Owns    one lazy connection per address
Stops   `close` breaks off calls that are under way; `drop` does not: the connection is replaced at once
        and closed when the last call on it has ended, so that one caller's trouble does not abort others
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final, Protocol

from google.protobuf.message import DecodeError

from common import rpc
from common.errors import BinlogError, Unavailable
from common.tls import TlsConfig
from common.wire import pump_pb2
from pumpclient.write_policy import Failure

WRITE_BINLOG: Final = "/binlog.Pump/WriteBinlog"

# Status code of the answer -> what kind of failure it is. Success (0) is no failure.
FAILURE_OF_CODE: Final[dict[int, Failure]] = {
    1: Failure.UNREACHABLE,  # CANCELLED by the other side: the connection went away under the call
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
        """The next write to this address connects anew. Calls under way go on."""
        ...

    async def close(self) -> None:
        """End all connections."""
        ...


class RpcClient(Protocol):
    """What the adapter needs of `common.rpc.Client`."""

    async def unary(self, method_path: str, request: bytes, timeout_s: float) -> bytes: ...

    async def close(self) -> None: ...


@dataclass(slots=True, eq=False)
class _Connection:
    client: RpcClient
    calls: int = 0


class RpcTransport:
    """gRPC adapter. `dial` makes the client of an address; it must not block."""

    def __init__(
        self, *, tls: TlsConfig | None = None, dial: Callable[[str], RpcClient] | None = None
    ) -> None:
        self._dial: Callable[[str], RpcClient] = dial or (lambda address: rpc.Client(address, tls=tls))
        self._connections: dict[str, _Connection] = {}
        self._retired: set[_Connection] = set()

    async def write(self, address: str, cluster_id: int, payload: bytes, timeout_s: float) -> None:
        request = pump_pb2.WriteBinlogReq(clusterID=cluster_id, payload=payload).SerializeToString()
        async with self._connected(address) as client:
            reply = await client.unary(WRITE_BINLOG, request, timeout_s)
        try:
            errmsg = pump_pb2.WriteBinlogResp.FromString(reply).errmsg
        except DecodeError as error:
            raise TransportFailure(Failure.FAILED, f"reply of pump at {address}: {error}") from None
        if errmsg:
            raise TransportFailure(Failure.REFUSED, errmsg)

    async def drop(self, address: str) -> None:
        connection = self._connections.get(address)
        if connection is not None:
            self._retire(address, connection)
            await self._close_if_idle(connection)

    async def close(self) -> None:
        connections = [*self._connections.values(), *self._retired]
        self._connections.clear()
        self._retired.clear()
        for connection in connections:
            await connection.client.close()

    @asynccontextmanager
    async def _connected(self, address: str) -> AsyncIterator[RpcClient]:
        """The one place where foreign errors become `TransportFailure`."""
        try:
            connection = self._connections.get(address)
            if connection is None:
                connection = self._connections[address] = _Connection(self._dial(address))
        except (BinlogError, OSError, ValueError) as error:
            raise TransportFailure(Failure.UNREACHABLE, f"pump at {address}: {error}") from error
        connection.calls += 1
        try:
            yield connection.client
        except rpc.RpcStatus as error:
            failure = FAILURE_OF_CODE.get(error.code, Failure.FAILED)
            if failure is Failure.UNREACHABLE:
                self._retire(address, connection)
            raise TransportFailure(failure, f"pump at {address}: {error}") from error
        except Unavailable as error:
            self._retire(address, connection)
            raise TransportFailure(Failure.UNREACHABLE, f"pump at {address}: {error}") from error
        except BinlogError as error:
            raise TransportFailure(Failure.FAILED, f"pump at {address}: {error}") from error
        finally:
            connection.calls -= 1
            await self._close_if_idle(connection)

    def _retire(self, address: str, connection: _Connection) -> None:
        """No new call goes over this connection; a younger one to the same address is left alone."""
        if self._connections.get(address) is connection:
            del self._connections[address]
            self._retired.add(connection)

    async def _close_if_idle(self, connection: _Connection) -> None:
        if connection in self._retired and not connection.calls:
            self._retired.discard(connection)
            await connection.client.close()
