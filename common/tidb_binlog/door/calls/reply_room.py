"""Reply room: what the reply of one streaming call may take, for its service to wait for.

Holds   whatever ends the call, its tickets are closed by the service's own `finally`; one not granted
        yet is closed here
Tests   tests/pump/pull/test_peer_memory.py
"""

from __future__ import annotations

import asyncio

from tidb_binlog.budget import Ticket
from tidb_binlog.door.calls.stream_calls import StreamCall


class ReplyRoom:
    """The `tidb_binlog.rpc.Caller` of a call."""

    __slots__ = ("_call", "address", "connection")

    def __init__(self, call: StreamCall) -> None:
        self._call = call
        self.address = call.session.shares.address
        self.connection: object = call.session

    async def room(self, size: int) -> Ticket:
        granted: asyncio.Future[None] | None = None

        def notify() -> None:
            if granted is not None and not granted.done():
                granted.set_result(None)

        session = self._call.session
        ticket = session.budget.replies.ask(session.shares.replies, size, notify)
        if not ticket.granted:
            granted = asyncio.get_running_loop().create_future()
            try:
                await granted
            except BaseException:
                ticket.close()
                raise
        self._call.granted(ticket)
        return ticket

    def hold(self, size: int) -> None:
        self._call.hold_more(size)

    def give(self, size: int) -> None:
        self._call.hold_less(size)

    def done(self) -> None:
        self._call.done()
