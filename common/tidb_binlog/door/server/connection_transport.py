"""Connection transport: one TCP connection, from its first octet to its last.

Drives  `detect`, then `connection` with `session` and `lifetime` (HTTP/2), or `http1`
Owns    the transport. What is to be sent is joined: one write for a read, or for all that one turn of the
        event loop answers, which is how the replies of one fsync share a segment
Holds   what the peer does not take is counted, in whatever queue it is; no more is read of who does not take
        his answers, and who never does is ended
Stops   a fault sends its GOAWAY, half-closes and lingers: closing with unread input makes TCP send a reset,
        and a reset eats what was not read yet (R5.4.1)
Tests   tests/common/door/server/test_listener.py, tests/common/door/test_limits_budget.py
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any, Final, Protocol, cast

from tidb_binlog.clock import Clock
from tidb_binlog.door import protocol_detection
from tidb_binlog.door.calls.methods import Method
from tidb_binlog.door.calls.session import Session
from tidb_binlog.door.http.http1 import Ask, Closed, Event, Http1, Refuse
from tidb_binlog.door.http.routes import Guard, Peer, Request, Response, Routes
from tidb_binlog.door.http2.connection import Connection
from tidb_binlog.door.http2.lifetime import Lifetime
from tidb_binlog.door.limits import Budget, ConnectionShares, Limits
from tidb_binlog.door.server.fair_share import FairShare
from tidb_binlog.door.server.handler_runner import Runner
from tidb_binlog.door.server.stats import STATS
from tidb_binlog.http2.frames import PREFACE

_PRODUCE_BYTES: Final = 1 << 18
_TURN_BYTES: Final = 1 << 20
_WRITE_HIGH_BYTES: Final = 1 << 16
_UNSENT_BYTES_MAX: Final = 1 << 20  # beyond the limit: what one read may make of answers
_LINGER_S: Final = 1.0


class Door(Protocol):
    """What a connection needs of its door."""

    limits: Limits
    clock: Clock
    budget: Budget
    methods: dict[bytes, Method]
    routes: Routes
    guard: Guard
    tasks: set[asyncio.Task[None]]
    fair_share: FairShare
    stopping: bool
    next_tick_s: float

    def tick_at(self, moment_s: float, now_s: float) -> None: ...

    def opened(self, wire: ConnectionTransport) -> None: ...

    def closed(self, wire: ConnectionTransport) -> None: ...

    def log_refused(self, peer: Peer, limit: str, why: str) -> None:
        """A limit ended something of this peer."""

    def jitter(self) -> float: ...


class ConnectionTransport(asyncio.Protocol):
    """`connection`, `session` and `lifetime` exist on HTTP/2, `http1` on HTTP/1."""

    def __init__(self, door: Door, peer: Peer, address: str = "") -> None:
        """`address`: what counts as one peer."""
        self.peer = peer
        self.address = address
        self.since_s = door.clock.monotonic_s()
        self.connection: Connection | None = None
        self._door = door
        self._session: Session | None = None
        self._lifetime: Lifetime | None = None
        self._http1: Http1 | None = None
        self._answering: asyncio.Task[None] | None = None
        self._transport: asyncio.Transport | None = None
        self._head = b""
        self._receiving = False
        self._flush_due = False
        self._writable = True
        self.reading = True
        self._closing = False
        self._shares: ConnectionShares = door.budget.join(address)
        self._unsent = 0  # octets that were written, or held back, and that the peer does not take
        self._kept = 0  # octets of requests of HTTP/1
        self._left = False

    # -- the transport ---------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(_WRITE_HIGH_BYTES)
        STATS.connections["new"] += 1
        self._door.opened(self)

    def connection_lost(self, error: Exception | None) -> None:
        self._closing = True
        STATS.connections[self.protocol] -= 1
        if self._session is not None:
            self._session.end()
            self._door.budget.holders.discard(self._session)
        if self._answering is not None:
            self._answering.cancel()
        self._count_unsent(0)
        self._count_kept(0)
        self.leave()
        self._door.closed(self)

    def leave(self) -> None:
        """The connection is over, or never came to be."""
        if not self._left:
            self._left = True
            self._door.budget.leave(self._shares)

    def data_received(self, data: bytes) -> None:
        STATS.received_bytes += len(data)
        connection = self.connection
        if self._closing:
            return
        if connection is not None:
            self._receiving = True
            assert self._session is not None
            self._session.bound_calls()
            connection.receive(data, self._door.clock.monotonic_s())
            self._session.hand_over()
            self._receiving = False
            self._after_input()
        elif self._http1 is not None:
            # The clock is not set back: an octet now and then is no request either.
            self._handle(self._http1, self._http1.receive(data))
        else:
            self._detect(data)

    def eof_received(self) -> bool:
        if self._http1 is not None and not self._closing:
            self._handle(self._http1, self._http1.end())
        # On HTTP/2 the peer cannot answer a PING any more: the connection is over. TLS has no half-close, and
        # the loop logs who asks for one.
        assert self._transport is not None
        return self._http1 is not None and not self._closing and self._transport.can_write_eof()

    def pause_writing(self) -> None:
        self._writable = False
        assert self._transport is not None
        self._count_unsent(self._transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        self._writable = True
        self._count_unsent(0)
        if self._http1 is not None:
            self._next_request(self._http1)
        else:
            self._resume_reading()
            self.flush()

    def _count_unsent(self, size: int) -> None:
        more, self._unsent = size - self._unsent, size
        if more > 0:
            self._shares.replies.add(more)
        elif more:
            self._door.budget.replies.give(self._shares.replies, -more)

    def _count_kept(self, size: int) -> None:
        self._shares.requests.add(size - self._kept)
        self._kept = size

    # -- what is spoken --------------------------------------------------------------------------

    @property
    def protocol(self) -> str:
        return "http2" if self.connection else "http1" if self._http1 else "new"

    def _detect(self, data: bytes) -> None:
        self._head += data
        verdict = protocol_detection.detect(self._head)
        if verdict is protocol_detection.WireProtocol.NEED_MORE:
            return
        if verdict is protocol_detection.WireProtocol.TLS:
            verdict = protocol_detection.TLS_ON_PLAIN_PORT
        if isinstance(verdict, protocol_detection.Reject):
            self._door.log_refused(self.peer, "sniff", verdict.reason)
            self.abort()
            return
        head, self._head = self._head, b""
        STATS.connections["new"] -= 1
        if verdict is protocol_detection.WireProtocol.HTTP1:
            self._http1 = Http1(self._door.limits)
            STATS.connections["http1"] += 1
            self.since_s = self._door.clock.monotonic_s()
            self._handle(self._http1, self._http1.receive(head))
            return
        self._speak_http2()
        STATS.connections["http2"] += 1
        rest = head[len(PREFACE) :]
        STATS.received_bytes -= len(rest)
        self.data_received(rest)

    def _speak_http2(self) -> None:
        door = self._door
        runner = Runner(
            self.flush, door.clock, door.tasks, door.fair_share, door.routes, door.guard, self.peer
        )

        def above(connection: Connection) -> Session:
            self._session = Session(connection, door.methods, runner, door.budget, self.peer.denied)
            return self._session

        now_s = door.clock.monotonic_s()
        self.connection = Connection(above, door.limits, door.budget, now_s, self._shares)
        self._lifetime = Lifetime(self.connection, door.jitter())
        assert self._session is not None
        door.budget.holders.add(self._session)
        if door.stopping:
            self._lifetime.drain(now_s)

    # -- HTTP/2 ----------------------------------------------------------------------------------

    def _after_input(self) -> None:
        connection, lifetime = self.connection, self._lifetime
        assert connection is not None
        assert lifetime is not None
        assert self._session is not None
        if lifetime.draining:
            lifetime.step(connection.now_s)
        self._flush()
        self._session.count_calls()
        if connection.next_tick_s < self._door.next_tick_s:
            self._door.tick_at(connection.next_tick_s, self._door.clock.monotonic_s())
        if connection.abuse.refusals:
            for limit in connection.abuse.refusals:
                self._door.log_refused(self.peer, limit, "one of its requests was refused")
            connection.abuse.refusals = None
        if connection.ended:
            self._end_faulty()
        elif lifetime.over:
            self._close()

    def flush(self) -> None:
        """There may be something to send: now if this turn is ours, else once at its end."""
        if not self._receiving and not self._flush_due and not self._closing:
            self._flush_due = True
            asyncio.get_running_loop().call_soon(self._flush_late)

    def _flush_late(self) -> None:
        self._flush_due = False
        if not self._closing and self.connection is not None:
            self._after_input()

    def _flush(self) -> None:
        """Write what there is, as long as the peer takes it."""
        connection, transport = self.connection, self._transport
        assert connection is not None
        assert transport is not None
        outbound = connection.outbound
        out = outbound.out
        written = 0
        while True:
            if self._writable and outbound.can_produce:
                connection.produce(_PRODUCE_BYTES)
            if not out:
                return
            if not self._writable:
                self._hold_back()
                return
            data = b"".join(out)
            out.clear()
            written += len(data)
            STATS.sent_bytes += len(data)
            transport.write(data)
            if not outbound.can_produce:
                return
            if written >= _TURN_BYTES:
                self.flush()  # others have a turn first
                return

    def _hold_back(self) -> None:
        """The peer does not take our answers: read no more of what makes us give them. One read may have made
        more of them than there is memory for."""
        assert self.connection is not None
        assert self._transport is not None
        limit = self._door.limits.control_bytes_max
        size = sum(map(len, self.connection.outbound.out))
        self._count_unsent(self._transport.get_write_buffer_size() + size)
        if size <= limit:
            return
        full = self._shares.replies.full()
        if size > limit + _UNSENT_BYTES_MAX or (full is not None and full is not self._shares.replies):
            self._door.log_refused(
                self.peer, "unsent_answers", "it takes no answers, and its connection was ended"
            )
            self.abort()
        elif self.reading:
            self.reading = False
            self._transport.pause_reading()

    def _resume_reading(self) -> None:
        if not self.reading and not self._closing:
            self.reading = True
            assert self._transport is not None
            self._transport.resume_reading()

    def _end_faulty(self) -> None:
        assert self.connection is not None
        fault = self.connection.fault
        assert fault is not None
        self._door.log_refused(self.peer, fault.limit or "protocol", fault.reason)
        assert self._session is not None
        self._session.end()
        self._close()

    # -- HTTP/1 ----------------------------------------------------------------------------------

    def _handle(self, http1: Http1, events: list[Event]) -> None:
        assert self._transport is not None
        output = http1.take_output()
        if output:
            self._write(output)
        for event in events:
            if isinstance(event, Closed):
                self._close()
            elif isinstance(event, Refuse):
                self._write(http1.answer(event.method, event.response))
                self._close()
            else:
                STATS.plain_requests += 1
                self._answering = asyncio.get_running_loop().create_task(self._answer(http1, event))
                self._door.tasks.add(self._answering)
                self._answering.add_done_callback(self._door.tasks.discard)
        if self._closing:
            return
        asked = sum([len(event.body or b"") for event in events if isinstance(event, Ask)])
        self._count_kept(http1.held + asked)
        if self._kept > self._door.limits.http_head_bytes_max and self._shares.requests.full() is not None:
            self._door.log_refused(self.peer, "receive_bytes", "requests take too much memory")
            self.abort()
        elif http1.paused and self.reading:
            self.reading = False
            self._transport.pause_reading()

    async def _answer(self, http1: Http1, ask: Ask) -> None:
        request = Request(ask.method, ask.target, ask.host, ask.origin, self.peer, ask.body, ask.accept)
        response = Response(503)
        if self._shares.takes(1):
            response = await self._door.routes.answer(request, self._door.guard)
            if response.body and not self._shares.takes(len(response.body)):
                response = Response(503)
        self._answering = None
        if self._closing:
            return
        self._write(http1.answer(ask.method, response))
        self.since_s = self._door.clock.monotonic_s()
        if http1.closing or self._door.stopping:
            self._close()
        elif self._writable:
            self._next_request(http1)

    def _next_request(self, http1: Http1) -> None:
        """The peer took the answer before."""
        if self._answering is None and not self._closing:
            self._resume_reading()
            self._handle(http1, http1.resume())

    def _write(self, data: bytes) -> None:
        assert self._transport is not None
        STATS.sent_bytes += len(data)
        self._transport.write(data)

    # -- time and the end ------------------------------------------------------------------------

    def tick(self, now_s: float) -> None:
        """Called twice a second, and when the connection wants it."""
        connection, limits = self.connection, self._door.limits
        if connection is not None:
            if now_s >= connection.next_tick_s and not self._closing:
                self._tick(connection, now_s)
        elif self._http1 is None:
            if now_s - self.since_s >= limits.handshake_s:
                self._door.log_refused(self.peer, "handshake", "it did not say which protocol it speaks")
                self.abort()
        elif not self._writable:
            self._look_at_unsent(now_s)
        elif self._answering is None and now_s - self.since_s >= limits.http_idle_s:
            self._close()

    def _look_at_unsent(self, now_s: float) -> None:
        """An answer of HTTP/1 is on its way for as long as the peer takes something of it."""
        assert self._transport is not None
        size = self._transport.get_write_buffer_size()
        if size < self._unsent:
            self.since_s = now_s
            self._count_unsent(size)
        elif now_s - self.since_s >= self._door.limits.stuck_reply_s:
            self._door.log_refused(self.peer, "stuck_reply", "it does not take its answer")
            self.abort()

    def _tick(self, connection: Connection, now_s: float) -> None:
        assert self._lifetime is not None
        assert self._session is not None
        connection.next_tick_s = float("inf")
        self._lifetime.tick(now_s)
        if not connection.ended:
            self._session.tick(now_s)
        self._after_input()

    def drain(self) -> None:
        """End in good order; calls that run are not cancelled."""
        if self._lifetime is not None:
            self._lifetime.drain(self._door.clock.monotonic_s())
            self.flush()
        elif self._answering is None:
            self._close()

    def _close(self) -> None:
        """Send what was written, then close; what still comes is read and dropped for a short time."""
        if self._closing:
            return
        self._closing = True
        transport = self._transport
        assert transport is not None
        self._resume_for_linger(transport)
        if transport.can_write_eof():
            with suppress(OSError):  # the peer was quicker
                transport.write_eof()
            asyncio.get_running_loop().call_later(_LINGER_S, transport.abort)
        else:
            transport.close()  # TLS says goodbye by itself
            asyncio.get_running_loop().call_later(_LINGER_S, transport.abort)

    def _resume_for_linger(self, transport: asyncio.Transport) -> None:
        if not self.reading:
            self.reading = True
            transport.resume_reading()

    def abort(self) -> None:
        """Close at once."""
        self._closing = True
        if self._transport is not None:
            self._transport.abort()

    def certificate(self) -> Any:
        """The peer's certificate as a dict; None without TLS."""
        assert self._transport is not None
        return self._transport.get_extra_info("peercert")
