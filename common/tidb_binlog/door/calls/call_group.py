"""Call group: unary calls that came in one read, for a service that takes them together.

Out    good replies through `Outbound`, errors through the `Runner`
Holds  each call is ended once: one that was cancelled, or whose time is up, has left its group, and what the
       group is ended with passes it over
Why    a write waits for nothing but for the sync that it shares with others: a coroutine, a future and a
       callback for each would cost more than the write
Tests  tests/common/door/server/test_taken_calls.py
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidb_binlog.door.calls.grpc_calls import GZIP_BYTES_MIN, UnaryCall
from tidb_binlog.door.calls.methods import Method

if TYPE_CHECKING:
    from tidb_binlog.door.calls.session import Session

CANCELLED: Final = object()
"""The `work` of a call that has left its group: its stream counts as open until the next turn."""


class CallGroup:
    """A `tidb_binlog.rpc.TakenCalls`. While a call is in it, the group is the call's `work`."""

    __slots__ = ("calls", "method", "requests", "session")

    def __init__(self, session: Session, method: Method) -> None:
        self.session = session
        self.method = method
        self.calls: list[UnaryCall] = []
        self.requests: list[bytes] = []

    def add(self, call: UnaryCall, request: bytes) -> None:
        call.work = self
        self.calls.append(call)
        self.requests.append(request)

    def succeed(self, reply: bytes) -> int:
        calls, self.calls = self.calls, []
        waiting = [call for call in calls if call.work is self]
        if len(reply) >= GZIP_BYTES_MIN:
            for call in waiting:
                call.succeed(reply)
        elif waiting:
            self._succeed(waiting, reply)
        return len(waiting)

    def _succeed(self, calls: list[UnaryCall], reply: bytes) -> None:
        """What `UnaryCall.succeed` does for each, with what they share done once."""
        session, method = self.session, self.method
        connection, now_s = session.connection, session.now_s()
        send, finished = connection.outbound.reply, connection.finished
        began_s, same = calls[0].began_s, 0
        for call in calls:
            call.work = None
            call.over = True
            if call.began_s != began_s:  # its head came in an earlier read
                method.succeed(now_s - began_s, same)
                began_s, same = call.began_s, 0
            same += 1
            if send(call.stream, reply):
                finished(call.stream)
            else:
                session.is_queued(call)
        method.succeed(now_s - began_s, same)
        session.flush()

    def fail(self, error: BaseException) -> int:
        calls, self.calls = self.calls, []
        waiting = [call for call in calls if call.work is self]
        for call in waiting:
            self.session.runner.fail_with(call, error)
        return len(waiting)
