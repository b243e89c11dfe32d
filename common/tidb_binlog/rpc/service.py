"""Service: what a server offers, as plain async functions from bytes to bytes, and how errors cross the wire.

Transports (`tidb_binlog.door`, grpcio's server) carry services; a service knows nothing of them and runs
without them in tests. `Unavailable` goes as UNAVAILABLE, `Corruption` as DATA_LOSS, an `RpcStatus` as
what it says, every other `BinlogError` as UNKNOWN, which is what Go peers expect of a failed handler. What is
not a `BinlogError` is our mistake: logged with its traceback, INTERNAL to the peer.

Tests  tests/common/rpc/test_rpc.py
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextvars import ContextVar
from typing import Final, Protocol

from tidb_binlog.budget import UNLIMITED, BudgetPart, Ticket
from tidb_binlog.errors import BinlogError, Corruption, Unavailable
from tidb_binlog.late_dataclass import dataclass, field
from tidb_binlog.net.permission import Permission

Unary = Callable[[bytes], Awaitable[bytes]]
ServerStream = Callable[[bytes], AsyncIterator[bytes]]
ClientStream = Callable[[AsyncIterator[bytes]], Awaitable[bytes]]
BidiStream = Callable[[AsyncIterator[bytes]], AsyncIterator[bytes]]


class TakenCalls(Protocol):
    """Unary calls that a service has taken together, and ends together or one by one, once each."""

    def succeed(self, reply: bytes) -> int:
        """Answer all that still wait; returns how many did: others were cancelled, or their time was up."""

    def fail(self, error: BaseException) -> int:
        """The same with what a handler would have raised."""


Take = Callable[[Sequence[bytes], TakenCalls], bool]
"""Takes requests that came together, and ends them later, never before it returns. False if one of them has
to wait or to be refused: then all go to the method's handler."""

OK: Final = 0
CANCELLED: Final = 1
UNKNOWN: Final = 2
INVALID_ARGUMENT: Final = 3
DEADLINE_EXCEEDED: Final = 4
NOT_FOUND: Final = 5
PERMISSION_DENIED: Final = 7
RESOURCE_EXHAUSTED: Final = 8
FAILED_PRECONDITION: Final = 9
ABORTED: Final = 10
OUT_OF_RANGE: Final = 11
UNIMPLEMENTED: Final = 12
INTERNAL: Final = 13
UNAVAILABLE: Final = 14
DATA_LOSS: Final = 15
UNAUTHENTICATED: Final = 16

RECEIVE_BYTES_MAX: Final = 2**31 - 1


class RpcStatus(BinlogError):
    """An answer with a precise gRPC status: raised by handlers to send one, by clients that got one."""

    def __init__(self, code: int, message: str, *, hint: str = "", details: bytes = b"") -> None:
        """`details`: a serialized google.rpc.Status with the same code, sent as grpc-status-details-bin."""
        super().__init__(message, hint=hint)
        self.code = code
        self.details = details


class NoAnswer(Unavailable):
    """A call that nobody answered: the peer may or may not have done it. `code` and `text` are gRPC's."""

    def __init__(self, address: str, path: str, code: int, text: str) -> None:
        super().__init__(f"{address} does not answer {path}: {text}", hint=f"check that {address} is up")
        self.code = code
        self.text = text


@dataclass(frozen=True)
class Service:
    """One gRPC service: full name (`binlog.Pump`) and its methods by name.

    A request is `bytes`, or from the door a `memoryview` where a message is too large to be copied.
    `inline` are unary methods that the door steps without a Task, which is most of the cost of a short
    call: they may await futures, but must not use what asks for the current task (`asyncio.timeout`,
    `TaskGroup`). `taken` are other ways of some of them for short requests: without a coroutine a call, for a
    service that has nothing to do but to wait for something that many calls share. A transport may use them,
    or the handlers alone. `permissions` of the methods: one that is not named is for who administers.
    """

    name: str
    unary: Mapping[str, Unary] = field(default_factory=dict)
    server_streams: Mapping[str, ServerStream] = field(default_factory=dict)
    bidi_streams: Mapping[str, BidiStream] = field(default_factory=dict)
    client_streams: Mapping[str, ClientStream] = field(default_factory=dict)
    inline: Mapping[str, Unary] = field(default_factory=dict)
    taken: Mapping[str, Take] = field(default_factory=dict)
    permissions: Mapping[str, Permission] = field(default_factory=dict)


def status_of(error: BaseException) -> tuple[int, str]:
    """gRPC code and text under which an error crosses the wire."""
    if isinstance(error, RpcStatus):
        return error.code, str(error)
    if isinstance(error, Unavailable):
        return UNAVAILABLE, str(error)
    if isinstance(error, Corruption):
        return DATA_LOSS, str(error)
    if isinstance(error, BinlogError):
        return UNKNOWN, str(error)
    return INTERNAL, "internal error, see the server's log"


# Caller: who called a service, and what its reply may take. A transport that counts memory sets it for each
# streaming call; a service that makes large replies asks for their octets before it reads or makes them, and
# says when it has done with a request. Without such a transport everything is granted at once.


class Caller(Protocol):
    """`address`: what counts as one peer, "" if unknown; `connection`: the same object for all its calls."""

    @property
    def address(self) -> str: ...

    @property
    def connection(self) -> object: ...

    async def room(self, size: int) -> Ticket:
        """So many octets for a reply, waited for; to be closed when it has gone to the transport."""

    def hold(self, size: int) -> None:
        """The service keeps so much more because of the requests. Raises `RpcStatus` when it is too much."""

    def give(self, size: int) -> None:
        """And so much less."""

    def done(self) -> None:
        """What the service took of its requests is in memory no more, or counted elsewhere."""


class Uncounted:
    """Whoever calls by a transport that does not count."""

    address = ""

    def __init__(self) -> None:
        self.connection = self
        self._part = BudgetPart(UNLIMITED)
        self._share = self._part.join("")

    async def room(self, size: int) -> Ticket:
        return self._part.ask(self._share, size, lambda: None)

    def hold(self, size: int) -> None:
        pass

    def give(self, size: int) -> None:
        pass

    def done(self) -> None:
        pass


CALLER: Final[ContextVar[Caller]] = ContextVar("caller")


def caller() -> Caller:
    """Of the call that runs now."""
    current = CALLER.get(None)
    return Uncounted() if current is None else current
