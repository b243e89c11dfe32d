"""gRPC calls: calls on the streams of one connection, without a task or a clock.

Out    work for the `Runner` (start, cancel, wake), frames through `Outbound`
Holds  a call's status is sent once; a handler is notified once that its call is over; a stream whose handler
       still runs counts as open; what a peer's requests hold in memory is counted and bounded
Why    a unary request in one DATA frame is all that most peers ever send: it goes to its handler as one slice
Tests  tests/common/door/http2/test_connection_machine.py
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from tidb_binlog.door.calls.methods import Method
from tidb_binlog.door.http2 import grpc_headers
from tidb_binlog.door.http2.outbound import OK
from tidb_binlog.door.http2.streams import Stream
from tidb_binlog.rpc import service as codes
from tidb_binlog.rpc.message_framing import PREFIX, PREFIX_BYTES, Message, MessageReader, deflate
from tidb_binlog.rpc.service import RpcStatus

if TYPE_CHECKING:
    from tidb_binlog.door.calls.call_group import CallGroup
    from tidb_binlog.door.calls.http_calls import HttpCall
    from tidb_binlog.door.calls.session import Session
    from tidb_binlog.door.calls.stream_calls import StreamCall

NEVER: Final = float("inf")
GZIP_BYTES_MIN: Final = 1024
"""Smaller replies are sent as they are, which is legal in a gzip stream."""

_SMALL_BYTES: Final = 64
_GZIP_INLINE_BYTES_MAX: Final = 1 << 18
_READ_BYTES_S: Final = 4 << 10
"""A peer that takes a reply at less than that is as one that does not."""
_REPLY_FREE_BYTES: Final = 4096  # smaller replies are bounded by the number of streams


class Working(Protocol):
    """A request that a handler may be at work for."""

    work: object


class Runner(Protocol):
    """Runs handlers. Each ends with `succeed`, `complete`, `answer` or `fail` of its call, also after
    `cancel`."""

    def unary(self, call: UnaryCall, message: bytes | memoryview) -> None: ...

    def inflate(self, call: UnaryCall, packed: bytes | memoryview) -> None:
        """Unpack a gzip message, then run the handler with it."""

    def take(self, group: CallGroup) -> None:
        """Those that the service does not take go to the method's handler."""

    def fail_with(self, call: UnaryCall, error: BaseException) -> None: ...

    def stream(self, call: StreamCall) -> None: ...

    def wake(self, call: StreamCall) -> None:
        """Something can be taken or sent that could not before."""

    def plain(self, call: HttpCall) -> None:
        """Find the route and run it."""

    def cancel(self, call: Working) -> None: ...

    def flush(self) -> None:
        """There is something in `outbound`."""

    def now_s(self) -> float: ...


class CallPlan:
    """What the head of a gRPC request asks for; made once for all calls with the same head."""

    __slots__ = ("gzip", "gzip_reply", "method")

    def __init__(self, method: Method, gzip: bool, gzip_reply: bool) -> None:
        self.method = method
        self.gzip = gzip
        self.gzip_reply = gzip_reply


class Call:
    """What unary and streaming calls have in common. `work` is the runner's, while a handler runs."""

    __slots__ = (
        "_reader",
        "began_s",
        "deadline_s",
        "held",
        "over",
        "plan",
        "session",
        "since_s",
        "stream",
        "work",
    )

    ahead_bytes_max = 0

    def __init__(self, session: Session, stream: Stream, plan: CallPlan) -> None:
        self.session = session
        self.stream = stream
        self.plan = plan
        self.began_s = self.since_s = session.connection.now_s
        self.deadline_s = NEVER
        self.work: object = None
        self.held = 0  # octets of requests in memory beyond what one frame holds
        self.over = False
        self._reader: MessageReader | None = None

    # -- requests --------------------------------------------------------------------------------

    @property
    def unfinished(self) -> bool:
        """A request that may still be refused without wasting a handler's work."""
        return self.work is None and not self.over

    def _read(self, buffer: bytes, start: int, stop: int, end: bool) -> list[Message]:
        """Complete messages; raises `RpcStatus`."""
        connection, reader = self.session.connection, self._reader
        if reader is None:
            reader = self._reader = MessageReader(connection.limits.message_bytes_max)
        self.since_s = connection.now_s
        messages = reader.feed(buffer, start, stop)
        if not messages and not end and stop - start < _SMALL_BYTES:
            connection.abuse.glitch(connection.now_s)
        if end and reader.inside:
            raise RpcStatus(codes.INTERNAL, "the request ends inside a message")
        if any(flag for flag, _ in messages) and not self.plan.gzip:
            raise RpcStatus(codes.INTERNAL, "a compressed message without grpc-encoding")
        return messages

    def hold(self, size: int) -> None:
        """Count memory that this call's requests take. Raises `RpcStatus` when it is too much."""
        self.held += size
        self.session.hold(self, size)

    def release(self, size: int) -> None:
        self.held -= size
        self.session.release(self, size)

    def grow(self, size: int) -> None:
        """`size` octets of an unfinished request came: give the window back, if more of it may come now. The
        one message of a unary call comes in larger steps when it is known to be large."""
        assert self._reader is not None
        connection, stream, session = self.session.connection, self.stream, self.session
        left = self._reader.left
        if left > connection.limits.stream_window_bytes:
            if not session.may_grow(self):
                stream.owed += size
                return
            more = min(left, self.ahead_bytes_max) - stream.receive_window - stream.owed - size
            if session.grower is self and more > connection.limits.stream_window_bytes:
                size += more
        connection.credit(stream, size)

    # -- the end ---------------------------------------------------------------------------------

    def _leave(self, code: int) -> bool:
        """The call is over; False if it was already."""
        if self.over:
            return False
        self.over = True
        self.plan.method.ended(code, self.session.runner.now_s() - self.began_s)
        return True

    def _handler_ended(self) -> bool:
        """The handler is done; False if its answer is not waited for any more."""
        self.work = None
        if self.held:
            self.release(self.held)
        if self.over:
            self.session.connection.lingering -= 1
            return False
        return True

    def _abandon(self) -> None:
        """Tell the handler, which may need a while; the stream counts as open until it has ended."""
        if self.work is not None:
            self.session.connection.lingering += 1
            self.session.runner.cancel(self)
        elif self.held:
            self.release(self.held)

    def fail(self, code: int, text: str, details: bytes = b"") -> None:
        """The handler ended with an error."""
        if self._handler_ended():
            self._leave(code)
            self._send_status(code, text, details)

    def refuse(self, code: int, text: str) -> None:
        """End the call with a status that no handler gave."""
        if self._leave(code):
            self._abandon()
            self._send_status(code, text, b"")

    def _send_status(self, code: int, text: str, details: bytes) -> None:
        session, stream = self.session, self.stream
        accepts = code == codes.UNIMPLEMENTED
        session.connection.outbound.only(
            stream, grpc_headers.only_status(code, text, details, accepts=accepts)
        )
        session.connection.finished(stream)
        session.runner.flush()

    def on_cancel(self) -> None:
        """The stream was reset, or the connection is gone."""
        if self._leave(codes.CANCELLED):
            self._abandon()
        if self.session.waiting:
            self.session.wake_waiting()  # what was queued for this stream is room for others

    def on_room(self, sent: int) -> None:
        self.since_s = moved(self.since_s, sent, self.session.runner.now_s())
        if self.session.waiting:
            self.session.wake_waiting()


class UnaryCall(Call):
    """One message in, one out."""

    __slots__ = ("_message",)
    ahead_bytes_max = 4 << 20

    def __init__(self, session: Session, stream: Stream, plan: CallPlan) -> None:
        # Written out, not inherited: this is made for every call.
        self.session = session
        self.stream = stream
        self.plan = plan
        self.began_s = self.since_s = session.connection.now_s
        self.deadline_s = NEVER
        self.work = None
        self.held = 0
        self.over = False
        self._reader = None
        self._message: Message | None = None

    def on_data(self, buffer: bytes, start: int, stop: int, end: bool) -> None:
        if end and self._reader is None and stop - start >= PREFIX_BYTES:
            flag, size = PREFIX.unpack_from(buffer, start)
            if flag == 0 and size == stop - start - PREFIX_BYTES and size <= self.session.whole_bytes_max:
                # Small ones are bounded by the number of calls.
                message = buffer[start + PREFIX_BYTES : stop]
                if self.plan.method.take is None:
                    self.session.runner.unary(self, message)
                else:
                    self.session.gather(self, message)
                return
        if self.over:
            return
        try:
            self._collect(buffer, start, stop, end)
        except RpcStatus as status:
            self.refuse(status.code, status.message)

    def _collect(self, buffer: bytes, start: int, stop: int, end: bool) -> None:
        for message in self._read(buffer, start, stop, end):
            if self._message is not None:
                raise RpcStatus(codes.UNIMPLEMENTED, "a unary call with more than one message")
            self._message = message
        self.hold(stop - start)
        if not end:
            self.grow(stop - start)
            return
        if self._message is None:
            raise RpcStatus(codes.UNIMPLEMENTED, "a unary call without a message")
        (flag, body), self._message = self._message, None
        if flag:
            self.session.runner.inflate(self, body)
        else:
            self.session.runner.unary(self, body)

    def succeed(self, reply: bytes | memoryview) -> None:
        """The handler's answer."""
        # What `_handler_ended` and `_leave` do, written out: every call comes through here.
        self.work = None
        if self.held:
            self.release(self.held)
        session, stream = self.session, self.stream
        connection = session.connection
        if self.over:
            connection.lingering -= 1
            return
        outbound = connection.outbound
        if len(reply) > _REPLY_FREE_BYTES and not session.shares.takes(len(reply)):
            session.connection.abuse.refused("send_bytes")
            self._leave(codes.RESOURCE_EXHAUSTED)
            self._send_status(codes.RESOURCE_EXHAUSTED, "replies that nobody reads take too much memory", b"")
            return
        self.over = True
        plan = self.plan
        plan.method.succeed(session.now_s() - self.began_s)
        if plan.gzip_reply and GZIP_BYTES_MIN <= len(reply) <= _GZIP_INLINE_BYTES_MAX:
            outbound.head(stream, grpc_headers.HEAD_GZIP)
            outbound.message(stream, b"\x01", deflate(reply))
            sent = outbound.end(stream, OK)
        else:
            sent = outbound.reply(stream, reply)
        if sent:
            connection.finished(stream)
        else:
            session.is_queued(self)
        session.flush()


def moved(since_s: float, sent: int, now_s: float) -> float:
    """Since when a reply stands still, after `sent` octets of it have left: each buys its time, no more."""
    return min(since_s + sent / _READ_BYTES_S, now_s)
