"""Caller: who called a service, and what its reply may take.

A transport that counts memory sets it for each streaming call; a service that makes large replies asks for
their octets before it reads or makes them, and says when it has done with a request. Without such a transport
everything is granted at once.

Tests  tests/pump/pull/test_peer_memory.py
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Final, Protocol

from tidb_binlog.budget import UNLIMITED, BudgetPart, Ticket


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
