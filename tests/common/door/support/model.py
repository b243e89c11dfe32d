"""Model: a door's cores without sockets or a loop, a runner that answers at will, octets of clients.

`Door` drives the cores as the shell does: receive, step, produce. Its handlers do as they are named:

    Echo    replies at once           Park    stays until the test answers      Fail    fails at once
    Up      counts what came          Chat    echoes each message               Down    sends as asked
    Hold    a stream that stays until the test answers
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import hpack as oracle

from tidb_binlog import rpc
from tidb_binlog.door.calls.grpc_calls import Call, UnaryCall
from tidb_binlog.door.calls.http_calls import HttpCall
from tidb_binlog.door.calls.methods import methods_of
from tidb_binlog.door.calls.session import Session
from tidb_binlog.door.calls.stream_calls import StreamCall
from tidb_binlog.door.http.routes import Response
from tidb_binlog.door.http2.connection import Connection
from tidb_binlog.door.http2.lifetime import Lifetime
from tidb_binlog.door.limits import Budget, Limits
from tidb_binlog.http2 import frames, hpack
from tidb_binlog.http2.frames import (
    ACK,
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    PING,
    PRIORITY,
    RST_STREAM,
    frame,
)
from tidb_binlog.rpc import service as codes
from tidb_binlog.rpc.message_framing import INFLATE_STEP_BYTES, Inflater
from tidb_binlog.rpc.service import RpcStatus

NOW_S = 1000.0
NEVER = float("inf")


def unused(_: Any) -> Any:
    """The fake runner knows what to do from a method's name."""


SERVICE = rpc.Service(
    name="test.Door",
    inline={"Echo": unused},
    unary={"Park": unused, "Fail": unused},
    server_streams={"Down": unused},
    client_streams={"Up": unused},
    bidi_streams={"Chat": unused, "Hold": unused},
)


# -- octets of a client ------------------------------------------------------------------------------

GRPC = ((b"content-type", b"application/grpc"), (b"te", b"trailers"))
HELLO = frames.settings({})
GREETING = HELLO + frames.SETTINGS_ACK


def block(fields: Iterable[tuple[bytes, bytes]]) -> bytes:
    return b"".join(hpack.literal(name, value) for name, value in fields)


def pseudo(path: bytes, method: bytes = b"POST") -> tuple[tuple[bytes, bytes], ...]:
    return ((b":method", method), (b":scheme", b"http"), (b":path", path), (b":authority", b"door"))


def call_block(method: str, *more: tuple[bytes, bytes]) -> bytes:
    return block((*pseudo(f"/test.Door/{method}".encode()), *GRPC, *more))


def headers(stream_id: int, encoded: bytes, flags: int = END_HEADERS) -> bytes:
    return frame(HEADERS, flags, stream_id, encoded)


def get(stream_id: int, *, end: bool = True) -> bytes:
    """A plain request, complete or not."""
    return headers(stream_id, block(pseudo(b"/", b"GET")), END_HEADERS | (END_STREAM if end else 0))


def opened(stream_id: int, method: str, *more: tuple[bytes, bytes]) -> bytes:
    """HEADERS of a call."""
    return headers(stream_id, call_block(method, *more))


def prefixed(message: bytes, flag: int = 0) -> bytes:
    return struct.pack(">BL", flag, len(message)) + message


def data(stream_id: int, payload: bytes = b"", *, end: bool = False) -> bytes:
    return frame(DATA, END_STREAM if end else 0, stream_id, payload)


def unary(stream_id: int, method: str, message: bytes, *more: tuple[bytes, bytes]) -> bytes:
    return opened(stream_id, method, *more) + data(stream_id, prefixed(message), end=True)


def rst(stream_id: int, code: int = frames.CANCEL) -> bytes:
    return frames.rst_stream(stream_id, code)


def ping(payload: bytes = b"12345678", flags: int = 0, stream_id: int = 0) -> bytes:
    return frame(PING, flags, stream_id, payload)


def priority(stream_id: int, depends: int = 0) -> bytes:
    return frame(PRIORITY, 0, stream_id, struct.pack(">LB", depends, 15))


def continuation(stream_id: int, part: bytes, *, last: bool = True) -> bytes:
    return frame(CONTINUATION, END_HEADERS if last else 0, stream_id, part)


# -- octets of the door ------------------------------------------------------------------------------


class Frame(NamedTuple):
    kind: int
    flags: int
    stream: int
    payload: bytes

    @property
    def word(self) -> int:
        return int.from_bytes(self.payload[:4], "big")


def frames_of(octets: bytes) -> list[Frame]:
    found = []
    at = 0
    while at < len(octets):
        first, flags, stream_id = frames.HEAD.unpack_from(octets, at)
        stop = at + 9 + (first >> 8)
        assert stop <= len(octets), "a frame that is cut"
        found.append(Frame(first & 0xFF, flags, stream_id, octets[at + 9 : stop]))
        at = stop
    return found


class Reply:
    """What a client makes of one stream."""

    def __init__(self) -> None:
        self.heads: list[dict[bytes, bytes]] = []
        self.body = b""
        self.ended = 0
        self.reset: int | None = None

    @property
    def status(self) -> int | None:
        """The gRPC status."""
        value = self.heads[-1].get(b"grpc-status") if self.heads else None
        return None if value is None else int(value)

    @property
    def text(self) -> str:
        return self.heads[-1].get(b"grpc-message", b"").decode()

    @property
    def http(self) -> int:
        return int(self.heads[0][b":status"])

    @property
    def messages(self) -> list[bytes]:
        found, at = [], 0
        while at < len(self.body):
            _, size = struct.unpack_from(">BL", self.body, at)
            found.append(self.body[at + 5 : at + 5 + size])
            assert len(found[-1]) == size, "a message that is cut"
            at += 5 + size
        return found


class Reader:
    """Reads what a door sent."""

    def __init__(self) -> None:
        self.decoder = oracle.Decoder()
        self.replies: dict[int, Reply] = {}
        self.goaways: list[tuple[int, int, bytes]] = []
        self.updates: dict[int, int] = {}
        self.pings: list[Frame] = []
        self.acks = 0
        self._block = b""

    def feed(self, octets: bytes) -> list[Frame]:
        found = frames_of(octets)
        for item in found:
            self._frame(item)
        return found

    def _frame(self, item: Frame) -> None:
        reply = self.replies.setdefault(item.stream, Reply()) if item.stream else Reply()
        if item.kind in (HEADERS, CONTINUATION):
            self._block += item.payload
            if item.flags & END_HEADERS:
                reply.heads.append(dict(self.decoder.decode(self._block, raw=True)))
                self._block = b""
        elif item.kind == DATA:
            reply.body += item.payload
        elif item.kind == RST_STREAM:
            reply.reset = item.word
        elif item.kind == frames.GOAWAY:
            code = int.from_bytes(item.payload[4:8], "big")
            self.goaways.append((item.word, code, item.payload[8:]))
        elif item.kind == frames.WINDOW_UPDATE:
            self.updates[item.stream] = self.updates.get(item.stream, 0) + item.word
        elif item.kind == PING:
            self.pings.append(item)
        elif item.kind == frames.SETTINGS and item.flags & ACK:
            self.acks += 1
        if item.kind in (HEADERS, DATA) and item.flags & END_STREAM:
            reply.ended += 1


# -- what is above -----------------------------------------------------------------------------------


class Exchanges:
    """`Above` and `Exchange` that write down what they are told."""

    def __init__(self) -> None:
        self.events: list[tuple[Any, ...]] = []
        self.streams: dict[int, Any] = {}

    def on_request(self, stream: Any, head: Any, end: bool) -> None:
        self.events.append(("request", stream.id, head.path, end))
        self.streams[stream.id] = stream
        stream.call = Exchange(self.events, stream.id)


class Exchange:
    def __init__(self, events: list[tuple[Any, ...]], stream_id: int) -> None:
        self._events = events
        self._id = stream_id

    def on_data(self, buffer: bytes, start: int, stop: int, end: bool) -> None:
        self._events.append(("data", self._id, bytes(buffer[start:stop]), end))

    def on_cancel(self) -> None:
        self._events.append(("cancel", self._id))

    def on_room(self, sent: int) -> None:
        self._events.append(("room", self._id))


class Handler:
    """A handler at work for a streaming call."""

    def __init__(self) -> None:
        self.taken: list[bytes] = []
        self.left = 0
        self.size = -1
        self.began = False


class FakeRunner:
    """Handlers act in `run` only, as tasks do; `Echo` and `Fail` act at once, as inline ones do."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock = clock
        self.parked: list[UnaryCall] = []
        self.held: list[StreamCall] = []
        self.cancelled: list[Any] = []
        self.seen: list[tuple[int, str, bytes]] = []
        self.stubborn = False  # handlers that do not heed that they are cancelled
        self.keeps = True  # what was seen
        self.echoed_bytes = 0
        self.ends = 0
        self._woken: dict[StreamCall, None] = {}
        self._plain: list[HttpCall] = []
        self._cancelling: list[Any] = []

    def now_s(self) -> float:
        return self.clock()

    def flush(self) -> None:
        pass

    def _name(self, call: Call) -> str:
        return call.plan.method.path.rpartition("/")[2]

    def unary(self, call: UnaryCall, message: bytes | memoryview) -> None:
        name = self._name(call)
        if self.keeps:
            self.seen.append((call.stream.id, name, bytes(message)))
        if name == "Echo":
            self.echoed_bytes += 5 + len(message)
            self.ends += 1
            call.succeed(message)
        elif name == "Fail":
            self.ends += 1
            call.fail(codes.FAILED_PRECONDITION, "not now: 100% busy \u00e9", b"\x01\x02")
        else:
            call.work = self
            self.parked.append(call)

    def inflate(self, call: UnaryCall, packed: bytes | memoryview) -> None:
        call.work = self
        limits = call.session.limits
        inflater = Inflater(packed, limits.message_bytes_max, limits.gzip_ratio_max)
        try:
            while not inflater.step():
                call.hold(INFLATE_STEP_BYTES)
        except RpcStatus as status:
            self.ends += 1
            call.fail(status.code, status.message)
            return
        if self.keeps:
            self.seen.append((call.stream.id, self._name(call), bytes(inflater.result())))
        self.parked.append(call)

    def stream(self, call: StreamCall) -> None:
        call.work = Handler()
        if self._name(call) == "Hold":
            self.held.append(call)
        self._woken[call] = None

    def wake(self, call: StreamCall) -> None:
        self._woken[call] = None

    def plain(self, call: HttpCall) -> None:
        call.work = self
        self._plain.append(call)

    def cancel(self, call: Any) -> None:
        assert call.work is not None
        self.cancelled.append(call)
        self._cancelling.append(call)

    def run(self) -> None:
        """What the loop would run now."""
        while self._woken or self._plain or (self._cancelling and not self.stubborn):
            if self._cancelling and not self.stubborn:
                cancelling, self._cancelling = self._cancelling, []
                for call in cancelling:
                    self._end_cancelled(call)
            woken, self._woken = self._woken, {}
            for stream_call in woken:
                if stream_call.work is not None:
                    self._go_on(stream_call, stream_call.work)
            plain, self._plain = self._plain, []
            for plain_call in plain:
                if plain_call.work is not None:
                    self.ends += 1
                    plain_call.answer(Response(200, b"hello\n"))

    def _end_cancelled(self, call: Any) -> None:
        if call.work is None:
            return
        self.ends += 1
        if isinstance(call, HttpCall):
            call.answer(Response(200, b""))
        else:
            call.fail(codes.CANCELLED, "the call was cancelled")
            if call in self.parked:
                self.parked.remove(call)
            if call in self.held:
                self.held.remove(call)

    def _go_on(self, call: StreamCall, handler: Any) -> None:
        name = self._name(call)
        if name == "Hold":
            return
        while handler.size < 0 and (message := call.take()) is not None:
            if self.keeps:
                self.seen.append((call.stream.id, name, bytes(message[1])))
            if name == "Chat":
                self.echoed_bytes += 5 + len(message[1])
                call.send(message[1])
            elif name == "Up":
                handler.taken.append(b"x")
            else:
                handler.left, handler.size = asked_for(bytes(message[1]))
        if name == "Down" and handler.size >= 0:
            while call.has_room or call.over or not handler.began:
                handler.began = True
                if not handler.left:
                    break
                handler.left -= 1
                self.echoed_bytes += 5 + handler.size
                call.send(bytes(handler.size))
            else:
                call.session.waiting.add(call)
                return
        if call.requests_ended and not (name == "Down" and handler.size < 0):
            self._finish(call, name, handler)
        elif call.requests_ended:
            self.ends += 1
            call.fail(codes.UNIMPLEMENTED, "a call without a message")

    def _finish(self, call: StreamCall, name: str, handler: Handler) -> None:
        self.ends += 1
        if name == "Up":
            call.send(b"%d" % len(handler.taken))
        call.complete()


def asking(count: int, size: int) -> bytes:
    """The request of `Down`."""
    return struct.pack(">LL", count, size)


def asked_for(message: bytes) -> tuple[int, int]:
    if len(message) != 8:
        return 0, 0
    count, size = struct.unpack(">LL", message)
    return min(count, 64), min(size, 1 << 17)


class Door:
    """One connection's cores."""

    def __init__(
        self,
        limits: Limits | None = None,
        *,
        budget: Budget | None = None,
        now_s: float = NOW_S,
        jitter: float = 1.0,
    ) -> None:
        self.limits = limits or Limits()
        self.budget = budget or Budget(self.limits)
        self.now_s = now_s
        self.methods = methods_of([SERVICE])
        self.runner = FakeRunner(lambda: self.now_s)
        self.session: Session = None  # type: ignore[assignment]
        self.connection = Connection(self._above, self.limits, self.budget, now_s)
        self.budget.holders.add(self.session)
        self.lifetime = Lifetime(self.connection, jitter)
        assert self.connection.next_tick_s > now_s
        self.reader = Reader()
        self.sent = bytearray()
        self.refusals: list[str] = []
        self.produces = True
        self.out()

    def _above(self, connection: Connection) -> Session:
        self.session = Session(connection, self.methods, self.runner, self.budget)
        return self.session

    def receive(self, *parts: bytes, hello: bool = False) -> list[Frame]:
        """What the door answers."""
        octets = b"".join(parts)
        self.connection.receive(GREETING + octets if hello else octets, self.now_s)
        return self.settle()

    def settle(self) -> list[Frame]:
        """As the shell does after each input."""
        if self.lifetime.draining:
            self.lifetime.step(self.connection.now_s)
        self.runner.run()
        outbound = self.connection.outbound
        while self.produces and outbound.can_produce:
            self.connection.produce(1 << 18)
            self.runner.run()
        if self.lifetime.draining:
            self.lifetime.step(self.connection.now_s)
        if self.connection.abuse.refusals:
            self.refusals += self.connection.abuse.refusals
            self.connection.abuse.refusals = None
        if self.connection.ended:
            self.session.end()
            self.runner.run()
        return self.reader.feed(self.out())

    def out(self) -> bytes:
        octets = b"".join(self.connection.outbound.out)
        self.connection.outbound.out.clear()
        self.sent += octets
        return octets

    def tick(self, now_s: float) -> list[Frame]:
        """As the shell does a few times a second."""
        self.now_s = now_s
        if now_s >= self.connection.next_tick_s:
            self.connection.next_tick_s = NEVER
            self.lifetime.tick(now_s)
            if not self.connection.ended:
                self.session.tick(now_s)
                assert self.connection.next_tick_s > now_s, "it would be asked again and again"
        return self.settle()

    def pass_time(self, until_s: float, step_s: float = 0.25) -> list[Frame]:
        found: list[Frame] = []
        while self.now_s < until_s:
            found += self.tick(min(until_s, self.now_s + step_s))
        return found

    def reply(self, stream_id: int) -> Reply:
        return self.reader.replies[stream_id]

    @property
    def fault(self) -> tuple[int, str] | None:
        """Code and limit of the GOAWAY that ended this connection."""
        fault = self.connection.fault
        return None if fault is None else (fault.code, fault.limit)

    def check_empty(self) -> None:
        """Nothing is left of any call."""
        assert not self.connection.streams
        assert self.connection.lingering == 0
        assert self.session.held == 0
        assert not self.session.waiting
        assert self.connection.outbound.queued == 0
        assert self.budget.receive_held == 0
        assert self.budget.send_queued == 0
        for method in self.methods.values():
            assert method.started == method.succeeded + sum(method.failed.values()), method.path
