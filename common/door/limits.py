"""Limits of one door: what a peer may cost, each with its unit, and the bucket that counts misbehaviour.

Holds  a hostile peer costs at most these limits, and never another peer's call
Why    the defaults allow what real clients do: one PING a call (grpc-go), two WINDOW_UPDATEs a call (C-core),
       messages as large as a transaction
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

_KIB = 1 << 10
_MIB = 1 << 20
_GIB = 1 << 30


@dataclass(frozen=True, slots=True)
class Limits:
    """Bytes, seconds and counts; seconds of 0 mean never where so noted."""

    message_bytes_max: int = _GIB  # of one gRPC message, also after decompression: RESOURCE_EXHAUSTED
    gzip_ratio_max: int = 200  # of a compressed message above 4 MiB: RESOURCE_EXHAUSTED
    header_list_bytes_max: int = 16 * _KIB  # R6.5.2, names and values and 32 each: 431
    header_fields_max: int = 100  # of one header list: 431
    header_block_bytes_max: int = 32 * _KIB  # encoded, over all its frames: GOAWAY
    continuations_max: int = 8  # CONTINUATION frames of one block: GOAWAY
    header_table_bytes: int = 4096  # H4.2, our decoder's table
    streams_max: int = 1024  # open calls of a connection: REFUSED_STREAM
    frame_bytes_max: int = 16 * _KIB  # payload of one frame: GOAWAY
    stream_window_bytes: int = 256 * _KIB  # what a peer may send ahead on one stream
    connection_window_bytes: int = 64 * _MIB  # and on all its streams; restored as it arrives
    stream_send_bytes_max: int = 4 * _MIB  # queued for one stream: its service waits
    connection_send_bytes_max: int = 16 * _MIB  # queued for one connection: its services wait
    send_bytes_max: int = 256 * _MIB  # queued in all: services wait that have anything queued
    connection_receive_bytes_max: int = _GIB + _GIB // 4  # requests held: RESOURCE_EXHAUSTED
    receive_bytes_max: int = 2 * _GIB  # requests held in all: the largest unfinished one is refused
    control_bytes_max: int = 64 * _KIB  # unsent answers to control frames: reading pauses
    resets_burst: int = 200  # streams reset by either side, beyond those that calls finished: GOAWAY
    resets_per_s: float = 50.0
    settings_burst: int = 20  # SETTINGS frames: GOAWAY
    settings_per_s: float = 1.0
    ping_gap_s: float = 10.0  # PINGs closer than this, without a call between, are strikes
    ping_strikes_max: int = 10  # and so many end the connection: GOAWAY too_many_pings
    glitches_burst: int = 1000  # frames that do nothing: GOAWAY
    glitches_per_s: float = 100.0
    handshake_s: float = 10.0  # TLS, sniffing and preface
    header_block_s: float = 10.0  # from HEADERS to END_HEADERS
    silent_body_s: float = 60.0  # a request that is not finished and sends nothing
    stuck_reply_s: float = 60.0  # a finished reply that the peer's window holds back
    keepalive_s: float = 60.0  # silence after which we PING
    keepalive_answer_s: float = 20.0  # and what the peer has to answer
    idle_s: float = 0.0  # connection without calls (0: never ends)
    age_s: float = 0.0  # connection in all (0: never ends)
    files_reserved: int = 256  # of the process's files: connections leave them to the rest
    connections_max: int = 10_000
    connections_per_address_max: int = 1_000
    handshakes_max: int = 100  # TLS handshakes at once
    http_head_bytes_max: int = 16 * _KIB  # HTTP/1 request line and headers: 431
    http_body_bytes_max: int = _MIB  # body of a plain HTTP request: 413
    http_idle_s: float = 30.0  # silence of an HTTP/1 connection


class Bucket:
    """Tokens that refill with time: misbehaviour that a peer may afford."""

    __slots__ = ("_burst", "_filled_s", "_per_s", "_tokens")

    def __init__(self, burst: float, per_s: float, now_s: float) -> None:
        self._burst = burst
        self._per_s = per_s
        self._tokens = float(burst)
        self._filled_s = now_s

    def take(self, now_s: float, returned: float = 0.0) -> bool:
        """Take one token, after `returned` earned ones came back; False when none is left."""
        tokens = self._tokens + returned + (now_s - self._filled_s) * self._per_s
        self._filled_s = now_s
        self._tokens = min(tokens, self._burst) - 1.0
        if self._tokens >= 0.0:
            return True
        self._tokens = 0.0
        return False


class Holder(Protocol):
    """Somebody whose requests take memory: a connection."""

    @property
    def held(self) -> int: ...

    def largest(self) -> Any: ...


class Budget:
    """What all connections of a door hold together, in octets. `holders` are the open ones."""

    __slots__ = ("holders", "receive_held", "send_queued")

    def __init__(self) -> None:
        self.receive_held = 0
        self.send_queued = 0
        self.holders: set[Holder] = set()

    def largest(self) -> Any:
        """The largest unfinished request of the connection that holds most; None if there is none."""
        holder = max(self.holders, key=lambda holder: holder.held, default=None)
        return None if holder is None else holder.largest()
