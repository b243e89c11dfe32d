"""Streams: one exchange on a connection (R5.1), and the memory of how closed ones ended.

Our view of a stream, as the server:

    idle           an id above all seen; HEADERS open it, and lower idle ids close
    open           `remote_open`, and the reply has not ended
    half-closed    (remote): the request ended. (local): the reply ended first, which we follow with a reset
    closed         not in the connection's table any more; `Closed` knows why

Why    frames on a closed stream mean different things: they may cross our own reset (discard them), follow
       the peer's reset (an error of that stream) or follow a regular end (an error of the connection). Only
       resets and skipped ids are remembered: every other id below the last one ended regularly
"""

from __future__ import annotations

from collections import deque
from typing import Any, Final

from tidb_binlog.door.http2.header_fields import Timeout

RESET_BY_US: Final = 1
RESET_BY_PEER: Final = 2
ENDED: Final = 3
SKIPPED: Final = 4

_REMEMBERED_MAX: Final = 1000
_SKIPS_MAX: Final = 16


class Stream:
    """One exchange. `call` belongs to the layer above; windows and queue to the connection."""

    __slots__ = (
        "body_left",
        "call",
        "id",
        "opened_s",
        "owed",
        "queue",
        "queued",
        "receive_window",
        "remote_open",
        "send_window",
        "timeout",
        "trailers",
        "waits",
    )

    def __init__(
        self, stream_id: int, receive_window: int, send_window: int, remote_open: bool, now_s: float
    ) -> None:
        self.id = stream_id
        self.opened_s = now_s
        self.call: Any = None
        self.timeout: Timeout | None = None  # grpc-timeout, new with each request
        self.remote_open = remote_open
        self.receive_window = receive_window  # octets that the peer may still send
        self.owed = 0  # octets taken in and not given back yet
        self.send_window = send_window  # octets that we may still send; negative after R6.9.2
        self.queue: deque[memoryview] | None = None
        self.queued = 0
        self.trailers: bytes | None = None  # sent after the queue; b"" stands for a plain OK
        self.waits = False  # if something is queued: it has a place in the order of turns
        self.body_left: int | None = None  # of the announced content-length


class Closed:
    """How streams below the last id ended."""

    __slots__ = ("_forgotten", "_resets", "_skips")

    def __init__(self) -> None:
        self._resets: dict[int, int] = {}
        self._skips: deque[tuple[int, int]] | None = None
        self._forgotten = 0

    def remember(self, stream_id: int, how: int) -> None:
        resets = self._resets
        resets[stream_id] = how
        if len(resets) > _REMEMBERED_MAX:
            oldest = next(iter(resets))
            del resets[oldest]
            self._forgotten = max(self._forgotten, oldest)

    def skip(self, first: int, last: int) -> None:
        """Ids of a range were never used."""
        if self._skips is None:
            self._skips = deque(maxlen=_SKIPS_MAX)
        self._skips.append((first, last))

    def how(self, stream_id: int) -> int:
        """What is known of an id at or below the last one that is not open."""
        how = self._resets.get(stream_id)
        if how is not None:
            return how
        if self._skips and any(first <= stream_id <= last for first, last in self._skips):
            return SKIPPED
        return RESET_BY_US if stream_id <= self._forgotten else ENDED
