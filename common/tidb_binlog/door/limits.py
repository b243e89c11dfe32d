"""Limits of one door: what a peer may cost, each with its unit, and the bucket that counts misbehaviour.

Holds  a hostile peer costs at most these limits, and never another peer's call. All doors of a process share
       one `Budget`: of each part of it an address may have three quarters, a connection what is said below
Why    the defaults allow what real clients do: one PING a call (grpc-go), two WINDOW_UPDATEs a call (C-core),
       messages as large as a transaction
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Final, Protocol

from tidb_binlog.budget import UNLIMITED, BudgetPart, Share
from tidb_binlog.config.declaring import check_limits, option
from tidb_binlog.late_dataclass import dataclass, fields

MESSAGE_BYTES_LIMIT: Final = (1 << 31) - 1
"""gRPC counts a message's length in 32 bits, and peers read it signed."""

CALL_BYTES: Final = 8 << 10
"""What a running call costs besides: its state, and a message that is too small to be counted by itself."""

CONNECTION_BYTES: Final = 64 << 10
"""What an open connection costs before it holds anything; over TLS four times as much."""

_ADDRESS_QUARTERS: Final = 3


_limit: Final = functools.partial(option, live=True, above=0)
"""A reload changes each of them, for connections that come then."""
_may_be_zero: Final = functools.partial(option, live=True, least=0)


@dataclass(frozen=True, slots=True)
class Limits:
    """Each is an option of the daemons, section `door`, and says what happens when it is reached."""

    table_notes: ClassVar[Mapping[str, str]] = {
        "door": "What peers may cost. The defaults do for nearly all; each key says what happens when its "
        "limit is reached. Of requests, send-queue and calls one address (of IPv6 one /64) may "
        "have three quarters, so that some is left for others; of calls, each of several addresses "
        "may have at most three times what is still free, and two in any case. What peers can make a node "
        "hold is the sum of requests, send-queue, calls x 8 KiB and connections x 64 KiB (TLS: 256 KiB). "
        "A pump adds storage.write-queue, index-queue, recent-commits x 3, 256 MiB for open prewrites "
        "(it takes 262,144), the index's buffer x 2, pull-streams x 2 MiB, and three times the largest "
        "message or transaction that really comes. MemoryHigh in the systemd units is set by it."
    }

    message_bytes_max: int = _limit(
        "1 GiB",
        key="door.message-size",
        flag="max-message-size",
        kind="size",
        help="size of one gRPC message, also when unpacked; at most 2 GiB - 1: RESOURCE_EXHAUSTED",
    )
    gzip_ratio_max: int = _limit(
        100,
        key="door.gzip-ratio",
        help="ratio of a packed message that unpacks to more than 4 MiB: RESOURCE_EXHAUSTED",
    )
    header_list_bytes_max: int = _limit(
        "16 KiB",
        key="door.header-list-size",
        kind="size",
        help="names and values of a request's headers, and 32 for each: 431",
    )
    header_fields_max: int = _limit(100, key="door.header-fields", help="header fields of a request: 431")
    header_block_bytes_max: int = _limit(
        "32 KiB", key="door.header-block-size", kind="size", help="packed header fields of a request: GOAWAY"
    )
    continuations_max: int = _may_be_zero(
        8, key="door.continuations", help="frames that continue one header block: GOAWAY"
    )
    header_table_bytes: int = _may_be_zero(
        "4 KiB", key="door.header-table-size", kind="size", help="memory of the header decoder", most=1 << 16
    )
    streams_max: int = _limit(
        1024,
        key="door.streams",
        help="running calls of a connection: REFUSED_STREAM, which clients try again",
        most=MESSAGE_BYTES_LIMIT,
    )
    calls_max: int = _limit(
        100_000,
        key="door.calls",
        help="running calls of all connections: REFUSED_STREAM",
        most=MESSAGE_BYTES_LIMIT,
    )
    frame_bytes_max: int = _limit(
        "16 KiB",
        key="door.frame-size",
        kind="size",
        help="payload of one frame, 16 KiB to 16 MiB - 1: GOAWAY",
        above=None,
        least=1 << 14,
        most=(1 << 24) - 1,
    )
    stream_window_bytes: int = _limit(
        "32 KiB",
        key="door.stream-window",
        kind="size",
        help="what a peer may send ahead in one call",
        above=None,
        least=1 << 14,
        most=MESSAGE_BYTES_LIMIT,
    )
    connection_window_bytes: int = _limit(
        "64 MiB",
        key="door.connection-window",
        kind="size",
        help="what a peer may send ahead in all calls of a connection",
        above=None,
        least=(1 << 16) - 1,
        most=MESSAGE_BYTES_LIMIT,
    )
    stream_send_bytes_max: int = _limit(
        "256 KiB",
        key="door.stream-send-queue",
        kind="size",
        help="replies queued for one call: its service waits",
    )
    connection_send_bytes_max: int = _limit(
        "16 MiB",
        key="door.connection-send-queue",
        kind="size",
        help="replies queued for one connection: its services wait",
    )
    send_bytes_max: int = _limit(
        "256 MiB",
        key="door.send-queue",
        kind="size",
        help="replies queued in all: connections that have some queued wait",
    )
    connection_receive_bytes_max: int = _limit(
        "1280 MiB",
        key="door.connection-requests",
        kind="size",
        help="requests of a connection in memory: UNAVAILABLE",
    )
    receive_bytes_max: int = _limit(
        "2 GiB",
        key="door.requests",
        kind="size",
        help="requests in memory in all: the largest unfinished one is refused",
    )
    control_bytes_max: int = _limit(
        "64 KiB",
        key="door.unsent-answers",
        kind="size",
        help="answers that a peer does not take: nothing more is read",
    )
    resets_burst: int = _limit(
        200,
        key="door.resets-burst",
        help="reset streams at once, beyond one for each call that ended well: GOAWAY",
    )
    resets_per_s: float = _limit(
        50.0, key="door.resets-per-second", help="reset streams a second in the long run: GOAWAY"
    )
    settings_burst: int = _limit(20, key="door.settings-burst", help="SETTINGS frames at once: GOAWAY")
    settings_per_s: float = _limit(
        1.0, key="door.settings-per-second", help="SETTINGS frames a second in the long run: GOAWAY"
    )
    ping_gap_s: float = _may_be_zero(
        "10s",
        key="door.ping-gap",
        kind="duration",
        help="PINGs closer than this, without a call between, are strikes",
    )
    ping_strikes_max: int = _limit(
        10, key="door.ping-strikes", help="strikes of a connection; one more ends it: GOAWAY too_many_pings"
    )
    glitches_burst: int = _limit(
        1000, key="door.glitches-burst", help="frames that do nothing, at once: GOAWAY"
    )
    glitches_per_s: float = _limit(
        100.0, key="door.glitches-per-second", help="frames that do nothing, a second in the long run: GOAWAY"
    )
    handshake_s: float = _limit(
        "10s",
        key="door.handshake-time",
        kind="duration",
        help="time for TLS and the first words of a connection",
    )
    header_block_s: float = _limit(
        "10s",
        key="door.header-time",
        kind="duration",
        help="time from the first to the last frame of a header block: GOAWAY",
    )
    silent_body_s: float = _limit(
        "1m", key="door.silent-request-time", kind="duration", help="silence inside a request: CANCEL"
    )
    stuck_reply_s: float = _limit(
        "1m",
        key="door.stuck-reply-time",
        kind="duration",
        help="a finished reply that the peer does not take: CANCEL",
    )
    keepalive_s: float = _limit(
        "1m", key="door.keepalive", kind="duration", help="silence after which the node sends a PING"
    )
    keepalive_answer_s: float = _limit(
        "20s", key="door.keepalive-answer", kind="duration", help="time that a peer has to answer that PING"
    )
    idle_s: float = _may_be_zero(
        0, key="door.idle-time", kind="duration", help="age of a connection without calls; 0: no limit"
    )
    age_s: float = _may_be_zero(
        0,
        key="door.age",
        kind="duration",
        help="age of a connection in all, a tenth more or less; 0: no limit",
    )
    files_reserved: int = _may_be_zero(
        256, key="door.files-reserved", help="files of the process that connections leave to the rest"
    )
    connections_max: int = _limit(10000, key="door.connections", help="connections at once", most=1_000_000)
    connections_per_address_max: int = _limit(
        1000, key="door.connections-per-address", help="connections of one address at once"
    )
    handshakes_max: int = _limit(
        100,
        key="door.handshakes",
        help="TLS handshakes at once: the oldest of the busiest address ends",
        most=1_000_000,
    )
    http_head_bytes_max: int = _limit(
        "16 KiB", key="door.http-head-size", kind="size", help="request line and headers of HTTP/1: 431"
    )
    http_body_bytes_max: int = _limit(
        "1 MiB", key="door.http-body-size", kind="size", help="body of a plain HTTP request: 413"
    )
    http_idle_s: float = _limit(
        "30s",
        key="door.http-idle-time",
        kind="duration",
        help="time between two requests on an HTTP/1 connection",
    )

    def check(self) -> None:
        """Raises `ConfigError`."""
        check_limits(self, Limits)

    def effective(self) -> Limits:
        """With what follows from the message size: no more than a length can say, and memory for one, and
        for others beside a connection that has its share."""
        message = min(self.message_bytes_max, MESSAGE_BYTES_LIMIT)
        connection = max(self.connection_receive_bytes_max, message + message // 4)
        values = {field.name: getattr(self, field.name) for field in fields(Limits)}
        return Limits(
            **values
            | {
                "message_bytes_max": message,
                "connection_receive_bytes_max": connection,
                "receive_bytes_max": max(self.receive_bytes_max, connection + connection // 3),
            }
        )


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

    shares: ConnectionShares

    @property
    def held(self) -> int: ...

    def largest(self) -> Any: ...


class ConnectionShares:
    """What one connection has of each part."""

    __slots__ = ("address", "calls", "replies", "requests")

    def __init__(self, address: str, requests: Share, replies: Share, calls: Share) -> None:
        self.address = address
        self.requests = requests
        self.replies = replies
        self.calls = calls

    def takes(self, size: int) -> bool:
        """Whether a reply of this size may wait for its peer; a large one may alone."""
        replies = self.replies
        full = replies.full(size)
        if full is not replies or replies.held or replies.above is None:
            return full is None
        return replies.above.full(size) is None


class Budget:
    """What peers make a process hold: requests and replies in octets, and running calls. `holders` are the
    open HTTP/2 connections."""

    __slots__ = ("calls", "holders", "replies", "requests")

    def __init__(self, limits: Limits | None = None) -> None:
        limits = limits or Limits()
        requests, replies, calls = _figures(limits)
        self.requests, self.replies = BudgetPart(*requests), BudgetPart(*replies)
        self.calls = BudgetPart(*calls, times_free=_ADDRESS_QUARTERS)
        self.holders: set[Holder] = set()

    def change(self, limits: Limits) -> None:
        """What all and each address may have from now on; connections that are there keep what each had."""
        for part, figures in zip((self.requests, self.replies, self.calls), _figures(limits), strict=True):
            part.change(*figures)

    @property
    def receive_held(self) -> int:
        """Octets of requests."""
        return self.requests.held

    @property
    def send_queued(self) -> int:
        """Octets of replies: queued, and asked for by services before they make them."""
        return self.replies.held

    def join(self, address: str) -> ConnectionShares:
        """A new connection. `address`: what counts as one peer; "" for this host's own."""
        parts = self.requests, self.replies, self.calls
        return ConnectionShares(address, *(part.join(address) for part in parts))

    def leave(self, shares: ConnectionShares) -> None:
        """Of a connection that is gone."""
        self.requests.leave(shares.requests, shares.address)
        self.replies.leave(shares.replies, shares.address)
        self.calls.leave(shares.calls, shares.address)

    def largest(self, full: Share) -> Any:
        """The largest unfinished request of the connection that holds most of this share of the requests;
        None if there is none."""
        holders = [holder for holder in self.holders if full in holder.shares.requests.path()]
        for holder in sorted(holders, key=lambda holder: holder.held, reverse=True):
            if (largest := holder.largest()) is not None:
                return largest
        return None


def _figures(limits: Limits) -> Iterator[tuple[int, int, int]]:
    """Of requests, replies and calls: the whole, an address, a connection."""
    for whole, connection in (
        (limits.receive_bytes_max, limits.connection_receive_bytes_max),
        (limits.send_bytes_max, limits.connection_send_bytes_max),
    ):
        yield whole, _address_share(whole, connection), connection
    yield limits.calls_max, _address_share(limits.calls_max, 0), UNLIMITED


def _address_share(whole: int, connection: int) -> int:
    """What one address may have; never less than one of its connections may."""
    return max(whole * _ADDRESS_QUARTERS // 4, min(connection, whole), 1)
