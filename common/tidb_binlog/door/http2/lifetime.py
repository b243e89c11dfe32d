"""Lifetime: how long a connection may be silent, idle and old, and how it ends in good order (R6.8, A8, A9).

In     the connection, now and then (`tick`)
Out    PING, GOAWAY; `over` when nothing is left to do on a drained connection
Holds  two steps: GOAWAY with the largest id and a PING; at its answer, or after five seconds, GOAWAY with the
       last id that we took. Between them a call that crossed the first GOAWAY is still served
"""

from __future__ import annotations

from typing import Final

from tidb_binlog.door.http2.connection import Connection
from tidb_binlog.http2 import frames
from tidb_binlog.http2.frames import ConnectionFault

_SECOND_STEP_S: Final = 5.0
_DRAIN_PING: Final = b"drain\x00\x00\x00"
_KEEPALIVE_PING: Final = b"alive\x00\x00\x00"
_NEVER: Final = float("inf")


class Lifetime:
    """Watches one connection. `jitter` (0.9 to 1.1) spreads the ends of old connections."""

    __slots__ = (
        "_age_s",
        "_asked_s",
        "_connection",
        "_drained_s",
        "_finished",
        "_idle_since_s",
        "_second_step",
        "over",
    )

    def __init__(self, connection: Connection, jitter: float) -> None:
        limits = connection.limits
        self._connection = connection
        self._age_s = connection.now_s + limits.age_s * jitter if limits.age_s else _NEVER
        self._asked_s = 0.0  # when our keepalive PING left; 0: none is out
        self._idle_since_s = connection.now_s
        self._finished = 0
        self._drained_s = 0.0
        self._second_step = False
        self.over = False
        connection.wake_at(min(self._age_s, connection.now_s + (limits.idle_s or _NEVER)))
        connection.wake_at(connection.now_s + limits.keepalive_s)

    @property
    def draining(self) -> bool:
        return self._drained_s > 0.0

    def drain(self, now_s: float) -> None:
        """Ask the peer to open no more streams."""
        connection = self._connection
        if self._drained_s or connection.ended:
            return
        self._drained_s = now_s
        connection.ping_answered = None
        connection.outbound.out.append(frames.goaway(frames.STREAM_ID_MAX, frames.NO_ERROR))
        connection.outbound.out.append(frames.frame(frames.PING, 0, 0, _DRAIN_PING))
        connection.wake_at(now_s + _SECOND_STEP_S)

    def step(self, now_s: float) -> None:
        """After something arrived or was sent on a connection that drains."""
        connection = self._connection
        if not self._second_step and (
            connection.ping_answered == _DRAIN_PING or now_s - self._drained_s >= _SECOND_STEP_S
        ):
            self._second_step = True
            connection.accepting_to = connection.last_id
            connection.outbound.out.append(frames.goaway(connection.last_id, frames.NO_ERROR))
        if self._second_step and not connection.streams and not connection.lingering:
            self.over = True

    def tick(self, now_s: float) -> None:
        """Look at every limit of time that concerns the connection as a whole."""
        connection, limits = self._connection, self._connection.limits
        if connection.ended:
            return
        if not connection.settings_acked:
            began_s = connection.began_s
            if not connection.settings_seen and now_s - began_s >= limits.handshake_s:
                connection.end(ConnectionFault(frames.PROTOCOL_ERROR, "no SETTINGS came", "handshake"))
                return
            if now_s - began_s >= 2 * limits.handshake_s:
                fault = ConnectionFault(frames.SETTINGS_TIMEOUT, "SETTINGS not acknowledged", "handshake")
                connection.end(fault)
                return
            connection.wake_at(began_s + limits.handshake_s * (2 if connection.settings_seen else 1))
        if connection.blocks.is_late(now_s):
            fault = ConnectionFault(frames.ENHANCE_YOUR_CALM, "header block takes too long", "header_block")
            connection.end(fault)
            return
        if connection.blocks.open_on:
            connection.wake_at(connection.blocks.since_s + limits.header_block_s)
        self._keepalive(now_s)
        self._idle(now_s)
        if now_s >= self._age_s:
            self.drain(now_s)
        else:
            connection.wake_at(self._age_s)
        if self._drained_s:
            self.step(now_s)
            # Then for handlers and replies that end without a word.
            connection.wake_at((now_s if self._second_step else self._drained_s) + _SECOND_STEP_S)

    def _keepalive(self, now_s: float) -> None:
        connection, limits = self._connection, self._connection.limits
        heard_s = connection.now_s
        if self._asked_s and heard_s > self._asked_s:
            self._asked_s = 0.0
        if self._asked_s:
            if now_s - self._asked_s >= limits.keepalive_answer_s:
                fault = ConnectionFault(frames.NO_ERROR, "keepalive PING not answered", "keepalive_answer")
                connection.end(fault)
                return
            connection.wake_at(self._asked_s + limits.keepalive_answer_s)
        elif now_s - heard_s >= limits.keepalive_s:
            self._asked_s = now_s
            connection.outbound.out.append(frames.frame(frames.PING, 0, 0, _KEEPALIVE_PING))
            connection.wake_at(now_s + limits.keepalive_answer_s)
        else:
            connection.wake_at(heard_s + limits.keepalive_s)

    def _idle(self, now_s: float) -> None:
        connection, limits = self._connection, self._connection.limits
        if not limits.idle_s or self._drained_s:
            return
        finished = connection.abuse.calls_finished
        if connection.streams or connection.lingering or finished != self._finished:
            self._finished = finished  # a call ended since the last tick: at the latest now
            self._idle_since_s = now_s
        else:
            self._idle_since_s = max(self._idle_since_s, connection.called_s)
            if now_s - self._idle_since_s >= limits.idle_s:
                self.drain(now_s)
                return
        connection.wake_at(self._idle_since_s + limits.idle_s)
