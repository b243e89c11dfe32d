"""Session: what the calls of one connection share, and which call a request is.

Out    calls; refusals in gRPC's or HTTP's words
Holds  beyond a few MiB, a connection's large requests come one after the other: what a peer costs is one
       message, not one a stream. Memory of requests is counted for the connection, its address and all: over
       the first limit the call that asks is refused, over the others the largest unfinished one of the
       connection that holds most. A stream that is not read ends when another one waits for its memory
Tests  tests/common/door/calls/test_grpc_calls.py
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from tidb_binlog.door.calls.call_group import CallGroup
from tidb_binlog.door.calls.grpc_calls import NEVER, Call, CallPlan, Runner, UnaryCall
from tidb_binlog.door.calls.http_calls import HttpCall
from tidb_binlog.door.calls.methods import Method, MethodKind
from tidb_binlog.door.calls.stream_calls import StreamCall
from tidb_binlog.door.http2 import grpc_headers
from tidb_binlog.door.http2.connection import Connection
from tidb_binlog.door.http2.header_fields import Head
from tidb_binlog.door.http2.outbound import NO_TRAILERS
from tidb_binlog.door.http2.streams import Stream
from tidb_binlog.door.limits import CALL_BYTES, Budget, Limits
from tidb_binlog.http2 import frames
from tidb_binlog.net.permission import Permission
from tidb_binlog.rpc import service as codes
from tidb_binlog.rpc.service import RpcStatus

SLOWEST_BYTES_S: Final = 1 << 20
"""At which a transaction that is larger than any share is to leave while the next one waits."""

GROWING_BYTES: Final = 32 << 20
"""Of requests that one connection may hold before its large ones come one after the other."""

_ENCODINGS: Final = (b"", b"identity", b"gzip")


class Refusal:
    """A head that no call comes of: a gRPC status, or an HTTP status where gRPC does not apply."""

    __slots__ = ("block", "is_grpc")

    def __init__(self, block: bytes, *, is_grpc: bool) -> None:
        self.block = block
        self.is_grpc = is_grpc


class Session:
    """The layer above one HTTP/2 connection. `waiting`: streams whose services wait for room;
    `gathered`: calls that go to their service together."""

    __slots__ = (
        "_calls",
        "_methods",
        "_silent_body_s",
        "budget",
        "connection",
        "denied",
        "flush",
        "gathered",
        "grower",
        "limits",
        "now_s",
        "runner",
        "shares",
        "starved",
        "waiting",
        "whole_bytes_max",
    )

    def __init__(
        self,
        connection: Connection,
        methods: Mapping[bytes, Method],
        runner: Runner,
        budget: Budget,
        denied: Collection[Permission] = (),
    ) -> None:
        """`denied`: what the peer's certificate does not allow."""
        self.denied = denied
        self.connection = connection
        self.limits: Limits = connection.limits
        self.runner = runner
        self.budget = budget
        self.shares = connection.shares
        self._calls = 0  # how many were counted
        self.grower: Call | None = None  # the large request that grows whatever the connection holds
        self.starved: dict[Call, None] = {}  # those that wait for it, in order
        self.now_s = runner.now_s
        self.flush = runner.flush
        self.whole_bytes_max = min(connection.limits.message_bytes_max, CALL_BYTES // 2)
        self._silent_body_s = connection.limits.silent_body_s
        self.waiting: set[StreamCall] = set()
        self.gathered: CallGroup | None = None
        self._methods = methods

    # -- requests --------------------------------------------------------------------------------

    def on_request(self, stream: Stream, head: Head, end: bool) -> None:
        plan = head.plan
        if plan is None:
            plan = head.plan = self._plan(head)
        connection = self.connection
        if plan.__class__ is not CallPlan:
            self._other(stream, head, plan, end)
            return
        method = plan.method
        if self.denied and method.permission in self.denied:
            connection.abuse.refused(f"cert_{method.permission}_cn")
            text = f"the certificate's common name is not in security.cert-{method.permission}-cn"
            refusal = Refusal(grpc_headers.only_status(codes.PERMISSION_DENIED, text), is_grpc=True)
            self._other(stream, head, refusal, end)
            return
        method.started += 1
        streams = method.kind > MethodKind.UNARY
        call = StreamCall(self, stream, plan) if streams else UnaryCall(self, stream, plan)
        stream.call = call
        due_s = connection.now_s + self._silent_body_s
        if due_s < connection.next_tick_s:
            connection.next_tick_s = due_s
        if stream.timeout is not None and not self._set_deadline(call, stream.timeout.seconds):
            return
        if isinstance(call, StreamCall):
            self.runner.stream(call)
        if end:
            call.on_data(b"", 0, 0, True)

    def _set_deadline(self, call: Call, timeout_s: float | None) -> bool:
        """False if the call is over with it."""
        if timeout_s is None:
            call.refuse(codes.INTERNAL, "malformed grpc-timeout")
        elif timeout_s == 0.0:
            call.refuse(codes.DEADLINE_EXCEEDED, "the call's deadline has passed")
        else:
            connection = self.connection
            call.deadline_s = deadline_s = connection.now_s + timeout_s
            if deadline_s < connection.next_tick_s:
                connection.next_tick_s = deadline_s
            return True
        return False

    def _plan(self, head: Head) -> CallPlan | Refusal | bool:
        """What a request with this head is: a call, a refused one, or (True) not gRPC at all."""
        method = self._methods.get(head.path)
        if head.too_large:
            return Refusal(grpc_headers.http_status(431, {}), is_grpc=False)
        if not head.is_grpc:
            if method is None:
                return True
            status = 415 if head.method == b"POST" else 405
            return Refusal(grpc_headers.http_status(status, {}), is_grpc=False)
        if head.method != b"POST":
            return Refusal(grpc_headers.http_status(405, {b"allow": b"POST"}), is_grpc=False)
        if method is None:
            text = f"unknown method {head.path.decode(errors='replace')[:200]}"
            return Refusal(grpc_headers.only_status(codes.UNIMPLEMENTED, text), is_grpc=True)
        if head.encoding not in _ENCODINGS:
            text = f"grpc-encoding {head.encoding.decode(errors='replace')[:40]!r} is not supported"
            return Refusal(grpc_headers.only_status(codes.UNIMPLEMENTED, text, accepts=True), is_grpc=True)
        gzip = head.encoding == b"gzip"
        accepts = head.accept_encoding is None or b"gzip" in head.accept_encoding
        return CallPlan(method, gzip, gzip and accepts)

    def _other(self, stream: Stream, head: Head, plan: Refusal | bool, end: bool) -> None:
        """A request that is not a call: answered at once, or by the routes."""
        if isinstance(plan, Refusal):
            outbound = self.connection.outbound
            if head.too_large:
                self.connection.abuse.glitch(self.connection.now_s)  # reading 30 KiB of fields costs 0.5 ms
            if plan.is_grpc:
                outbound.only(stream, plan.block)
            else:
                outbound.head(stream, plan.block)
                outbound.end(stream, NO_TRAILERS)
            self.connection.finished(stream)
            return
        stream.call = call = HttpCall(self, stream, head)
        if end:
            call.on_data(b"", 0, 0, True)

    def gather(self, call: UnaryCall, message: bytes) -> None:
        group, method = self.gathered, call.plan.method
        if group is None or group.method is not method:
            self.hand_over()
            group = self.gathered = CallGroup(self, method)
        group.add(call, message)

    def hand_over(self) -> None:
        """After all that came is read: what was gathered of it goes to its service."""
        group, self.gathered = self.gathered, None
        if group is not None:
            self.runner.take(group)

    # -- memory ----------------------------------------------------------------------------------

    def hold(self, call: Call | HttpCall, size: int) -> None:
        """Raises `RpcStatus` when this call has to go: UNAVAILABLE, as another server, or this one later, has
        room. Clients of pumps take RESOURCE_EXHAUSTED for too large anywhere, and give up.
        """
        share = self.shares.requests
        share.add(size)
        full = share.full()
        if full is None:
            return
        if full is share:
            self.connection.abuse.refused("connection_receive_bytes")
            raise RpcStatus(codes.UNAVAILABLE, "the requests of this connection take too much memory")
        whole = full is self.budget.requests.whole
        self.connection.abuse.refused("receive_bytes" if whole else "address_receive_bytes")
        largest = self.budget.largest(full)
        if largest is None or largest is call:
            raise RpcStatus(codes.UNAVAILABLE, "requests take too much memory")
        largest.refuse(codes.UNAVAILABLE, "requests take too much memory, and this one most")

    @property
    def held(self) -> int:
        """Octets of this connection's requests."""
        return self.shares.requests.held

    def count_calls(self) -> None:
        """After what came and what was answered: calls are counted together."""
        running = len(self.connection.streams) + self.connection.lingering
        if running != self._calls:
            self.shares.calls.add(running - self._calls)
            self._calls = running

    def bound_calls(self) -> None:
        """Before anything that came is read: how many calls this connection may have."""
        connection, calls, most = self.connection, self.shares.calls, self.limits.streams_max
        connection.streams_max = min(most, self._calls + calls.room)

    def release(self, call: Call | HttpCall, size: int) -> None:
        """A call holds so much less; those that wait for that may continue."""
        self.shares.requests.add(-size)
        if call is self.grower and not call.held:
            self.grower = None
        if self.starved:
            starved, self.starved = self.starved, {}
            for other in starved:
                if not other.over:
                    other.grow(0)

    def may_grow(self, call: Call) -> bool:
        """Whether a large request may have more of its window back. One always may; the others as long as the
        connection's requests together are small, and when its turn has come."""
        if self.grower is None:
            self.grower = call
        if self.grower is call or self.held < GROWING_BYTES:
            return True
        self.starved[call] = None
        return False

    def largest(self) -> Call | None:
        """The unfinished request that holds most."""
        calls = [stream.call for stream in self.connection.streams.values() if isinstance(stream.call, Call)]
        return max((call for call in calls if call.unfinished), key=lambda call: call.held, default=None)

    def wake_waiting(self) -> None:
        """Something was sent: those that wait for room may have it now."""
        for call in [call for call in self.waiting if call.has_room]:
            self.waiting.discard(call)
            self.runner.wake(call)

    # -- time ------------------------------------------------------------------------------------

    def tick(self, now_s: float) -> None:
        """Deadlines, silent requests and stuck replies."""
        connection, limits = self.connection, self.limits
        next_s = NEVER
        for stream in list(connection.streams.values()):
            call = stream.call
            if call.deadline_s <= now_s and not call.over:
                call.refuse(codes.DEADLINE_EXCEEDED, "the call's deadline has passed")
                continue
            next_s = min(next_s, call.deadline_s if not call.over else NEVER)
            limit_s, limit = NEVER, ""
            if stream.remote_open and not isinstance(call, StreamCall):
                limit_s, limit = limits.silent_body_s, "silent_body"
            elif stream.trailers is not None:
                limit_s, limit = limits.stuck_reply_s, "stuck_reply"
            elif isinstance(call, StreamCall) and (stream.queued or call.alone):
                next_s = min(next_s, now_s + limits.stuck_reply_s / 4)
                limit_s, limit = self._stream_s(call), "stuck_stream"
            if now_s - call.since_s >= limit_s:
                connection.abuse.refused(limit)
                self._cut(stream)
            else:
                next_s = min(next_s, call.since_s + limit_s)
        if next_s < NEVER:
            connection.wake_at(next_s)

    def _stream_s(self, call: StreamCall) -> float:
        """How long this stream may stand still: without end, but while another one waits for the memory of
        its replies. What passes alone has its time from the beginning, and more for what has left: who reads
        an octet a minute is in the way as well."""
        replies, stuck_s = self.budget.replies, self.limits.stuck_reply_s
        if call.alone:
            moved_s = call.since_s - call.alone_s
            left_s = stuck_s + max(call.alone - call.stream.queued, 0) / SLOWEST_BYTES_S - moved_s
            return max(left_s, 0.0) if replies.one_waits_to_pass else NEVER
        is_waited_for = any(
            share.has_waiter for share in self.shares.replies.path() if share is not self.shares.replies
        )
        return stuck_s if is_waited_for else NEVER

    def is_queued(self, call: Call | HttpCall) -> None:
        """A reply is complete, but its peer's window holds it back: from now on it may be stuck."""
        call.since_s = self.runner.now_s()
        self.connection.wake_at(call.since_s + self.limits.stuck_reply_s)

    def _cut(self, stream: Stream) -> None:
        self.connection.reset(stream.id, frames.CANCEL)
        stream.call.on_cancel()

    def end(self) -> None:
        """The connection is gone: every call is over."""
        for stream in list(self.connection.streams.values()):
            self.connection.outbound.drop(stream)
            if stream.call is not None:
                stream.call.on_cancel()
        self.connection.streams.clear()
        self.shares.calls.add(-self._calls)
        self._calls = 0
        # What handlers that still run have of the requests is given back by each at its end.
