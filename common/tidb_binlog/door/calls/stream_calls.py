"""Stream calls: gRPC calls with a stream of messages in at least one direction.

Holds  a request counts until its service has done with it: it says so, asks for the next one, or ends
Tests  tests/common/door/calls/test_grpc_calls.py, tests/common/door/http2/test_connection_machine.py
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from tidb_binlog.budget import Ticket
from tidb_binlog.door.calls.grpc_calls import Call, CallPlan
from tidb_binlog.door.http2 import grpc_headers
from tidb_binlog.door.http2.outbound import OK
from tidb_binlog.door.http2.streams import Stream
from tidb_binlog.rpc import service as codes
from tidb_binlog.rpc.message_framing import PREFIX_BYTES, Message
from tidb_binlog.rpc.service import RpcStatus

if TYPE_CHECKING:
    from tidb_binlog.door.calls.session import Session

_MESSAGE_BYTES: Final = 64
"""What a message costs beyond its octets while it waits: 3,276 empty ones fit a frame."""


class StreamCall(Call):
    """Its handler runs as a task of the runner."""

    __slots__ = ("_alone", "_inbox", "_inbox_bytes", "_kept", "_opened", "alone_s", "requests_ended")
    ahead_bytes_max = 1 << 20

    def __init__(self, session: Session, stream: Stream, plan: CallPlan) -> None:
        super().__init__(session, stream, plan)
        self._inbox: deque[Message] = deque()
        self._inbox_bytes = 0
        self._kept = 0  # octets that the service keeps because of its requests
        self._opened = False
        self._alone: Ticket | None = None
        self.alone_s = 0.0  # since when
        self.requests_ended = False

    def on_data(self, buffer: bytes, start: int, stop: int, end: bool) -> None:
        if self.over:
            return
        try:
            messages = self._read(buffer, start, stop, end)
            self.hold(stop - start + _MESSAGE_BYTES * len(messages))
        except RpcStatus as status:
            self.refuse(status.code, status.message)
            return
        if messages:
            self._inbox.extend(messages)
            self._inbox_bytes += sum([_cost(message) for message in messages])
        self.requests_ended = end
        if self._inbox or end:
            self.session.runner.wake(self)
        if not self._inbox:
            self._give_back()

    @property
    def unfinished(self) -> bool:
        """Within a request that is not complete: its service has not seen it."""
        return not self.over and self._reader is not None and self._reader.inside

    def take(self) -> Message | None:
        """The next request; None if there is none now. The service has done with the one before it."""
        if not self._inbox:
            self.done()
            return None
        message = self._inbox.popleft()
        size = _cost(message)
        self._inbox_bytes -= size
        self.done(keep=size)
        if not self._inbox:
            self._give_back()
            self.session.runner.flush()
        return message

    def done(self, keep: int = 0) -> None:
        """The service has nothing of the requests that it took, but for `keep` octets."""
        reader = self._reader
        keep += self._inbox_bytes + self._kept + (reader.held if reader else 0)
        if self.held > keep:
            self.release(self.held - keep)

    def hold_more(self, size: int) -> None:
        """What the service makes of a request. Raises `RpcStatus` when it is too much."""
        self._kept += size
        self.hold(size)

    def hold_less(self, size: int) -> None:
        if self.work is not None:  # else everything was given back
            self._kept -= size
            self.release(size)

    def _give_back(self) -> None:
        """Nothing waits for the service: the peer may send as much again."""
        if not self.over and self._reader is not None:
            self.grow()

    def grow(self, size: int = 0) -> None:
        """Give the window back, whatever came: up to its usual size, or at once to what is left of a large
        message whose turn has come. Behind that message the window is the usual one again."""
        assert self._reader is not None
        connection, stream, session = self.session.connection, self.stream, self.session
        window, left = connection.limits.stream_window_bytes, self._reader.left
        if left > window:
            if not session.may_grow(self):
                return
            if session.grower is self:
                window = max(window, min(left, self.ahead_bytes_max))
        size = window - stream.receive_window - stream.owed
        if size > 0:
            connection.credit(stream, size)

    def granted(self, ticket: Ticket) -> None:
        """The service reads what is to be sent."""
        if ticket.alone:
            self._alone, self.alone_s = ticket, self.session.now_s()
            self.session.connection.wake_at(self.alone_s + self.session.limits.stuck_reply_s)

    @property
    def alone(self) -> int:
        """Octets of what is sent that is larger than any share, and passes alone; 0: none is."""
        return self._alone.alone if self._alone is not None else 0

    @property
    def has_room(self) -> bool:
        """Whether the service may send one message more. A connection that has nothing queued may, whatever
        the others have: what is large was asked for before it was made."""
        session = self.session
        if self.stream.queued >= session.limits.stream_send_bytes_max:
            return False
        share = session.shares.replies
        full = share.full(1)
        return full is None or (full is not share and session.connection.outbound.queued == 0)

    def send(self, message: bytes | memoryview, *, packed: bool = False) -> None:
        """One message of the reply."""
        if self.over:
            return
        outbound = self.session.connection.outbound
        self._open()
        outbound.message(self.stream, b"\x01" if packed else b"\x00", message)
        self.since_s = self.session.runner.now_s()
        self.session.connection.wake_at(self.since_s + self.session.limits.stuck_reply_s)
        self.session.runner.flush()

    def _open(self) -> None:
        if not self._opened:
            self._opened = True
            block = grpc_headers.HEAD_GZIP if self.plan.gzip_reply else None
            self.session.connection.outbound.head(self.stream, block)

    def complete(self) -> None:
        """The handler ended well."""
        if not self._handler_ended():
            return
        self._leave(codes.OK)
        self._open()
        self._end(OK)

    def _send_status(self, code: int, text: str, details: bytes) -> None:
        if self._opened:
            self._end(grpc_headers.status_fields(code, text, details))
        else:
            super()._send_status(code, text, details)

    def _end(self, block: bytes) -> None:
        session = self.session
        session.waiting.discard(self)
        if session.connection.outbound.end(self.stream, block):
            session.connection.finished(self.stream)
        else:
            session.is_queued(self)
        session.runner.flush()

    def on_cancel(self) -> None:
        self.session.waiting.discard(self)
        super().on_cancel()


def _cost(message: Message) -> int:
    """What a request that waits for its service, or is with it, counts."""
    return len(message[1]) + PREFIX_BYTES + _MESSAGE_BYTES
