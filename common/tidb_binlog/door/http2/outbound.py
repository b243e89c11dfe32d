"""Outbound: what a connection sends, in order, within the windows that the peer gives (R6.9).

Out    octets in `out`; `produce` moves queued DATA there, as much as the transport wants
Holds  never more DATA than the stream's and the connection's window; never a frame longer than the peer's
       SETTINGS_MAX_FRAME_SIZE; streams with queued DATA take turns
Why    a whole reply that fits the windows is three frames in one piece of memory; only what does not fit is
       queued. Queues hold views of the services' own bytes
Tests  tests/common/door/http2/test_connection_windows.py
"""

from __future__ import annotations

from collections import deque
from struct import Struct
from typing import Final

from tidb_binlog.budget import BudgetPart, Share
from tidb_binlog.door.http2 import reply_headers
from tidb_binlog.door.http2.reply_headers import ReplyBlocks
from tidb_binlog.door.http2.streams import Stream
from tidb_binlog.http2 import frames
from tidb_binlog.http2.frames import DATA, END_HEADERS, END_STREAM, HEADERS

TURN_BYTES: Final = 1 << 16
"""How much of one stream is sent before the next one has its turn."""

BACKLOG_BYTES: Final = 1 << 16
TINY_WINDOW_BYTES: Final = 1024
"""With a backlog queued, a smaller window is left to grow: frames of an octet each cost us most."""

OK: Final = b""
NO_TRAILERS: Final = b"no trailers"
"""Ends of a reply that are not literal blocks: gRPC's good one, and none at all (plain HTTP)."""

_HEADERS_HEAD = frames.HEAD.pack(2 << 8 | HEADERS, END_HEADERS, 0)[:5]
_DATA_EMPTY_HEAD = frames.HEAD.pack(5 << 8 | DATA, 0, 0)[:5]
_TRAILERS_HEAD = frames.HEAD.pack(1 << 8 | HEADERS, END_HEADERS | END_STREAM, 0)[:5]
_EMPTY_REPLY = Struct(">5sL7sL10sLc")
_EMPTY_MIDDLE = reply_headers.HEAD + _DATA_EMPTY_HEAD
_EMPTY_END = bytes(5) + _TRAILERS_HEAD
_REPLY = Struct(">5sL2sLBLBL")
_END = Struct(">5sLc")
_WHOLE_MAX = 4096
_JOINED_MAX = 4096  # a copy of so little costs less than a second view


class Outbound:
    """`queued`: octets of DATA that wait for windows or for the transport."""

    __slots__ = (
        "_frame_max",
        "_initial_window",
        "_part",
        "_ready",
        "_share",
        "_window",
        "blocks",
        "data_frames",
        "out",
        "queued",
    )

    def __init__(self, part: BudgetPart, share: Share) -> None:
        self.out: list[bytes | memoryview] = []
        self.blocks = ReplyBlocks()
        self.queued = 0
        self.data_frames = 0
        self._part = part
        self._share = share
        self._window = frames.DEFAULT_WINDOW
        self._initial_window = frames.DEFAULT_WINDOW
        self._frame_max = frames.DEFAULT_FRAME_BYTES
        self._ready: deque[Stream] | None = None

    # -- what the peer allows --------------------------------------------------------------------

    @property
    def initial_window(self) -> int:
        return self._initial_window

    def set_frame_max(self, size: int) -> None:
        self._frame_max = size

    def set_initial_window(self, size: int) -> int:
        """Returns the difference, which every open stream's window takes (R6.9.2)."""
        difference = size - self._initial_window
        self._initial_window = size
        return difference

    def widen_connection(self, increment: int) -> bool:
        """False beyond 2^31-1 (R6.9.1)."""
        self._window += increment
        return self._window <= frames.WINDOW_MAX

    def widen(self, stream: Stream, increment: int) -> bool:
        stream.send_window += increment
        if stream.queue and not stream.waits:
            self._wake(stream)
        return stream.send_window <= frames.WINDOW_MAX

    # -- replies ---------------------------------------------------------------------------------

    def reply(self, stream: Stream, message: bytes | memoryview) -> bool:
        """A whole good unary reply. True: it is sent."""
        size = len(message) + 5
        if size > stream.send_window or size > self._window or size > _WHOLE_MAX or not self.blocks.constant:
            self.head(stream, None)
            self.message(stream, b"\x00", message)
            return self.end(stream, OK)
        self._window -= size
        self.data_frames += 1
        stream_id = stream.id
        if size == 5:
            self.out.append(
                _EMPTY_REPLY.pack(
                    _HEADERS_HEAD,
                    stream_id,
                    _EMPTY_MIDDLE,
                    stream_id,
                    _EMPTY_END,
                    stream_id,
                    reply_headers.END,
                )
            )
        else:
            self.out.append(
                _REPLY.pack(
                    _HEADERS_HEAD, stream_id, reply_headers.HEAD, size << 8, 0, stream_id, 0, size - 5
                )
                + message
                + _END.pack(_TRAILERS_HEAD, stream_id, reply_headers.END)
            )
        return True

    def head(self, stream: Stream, literals: bytes | None) -> None:
        """Open a reply: with these fields, or as a good gRPC reply."""
        block = self.blocks.head() if literals is None else self.blocks.other(literals)
        self._headers(stream.id, block, 0)

    def message(self, stream: Stream, flag: bytes, message: bytes | memoryview) -> None:
        """One gRPC message; queued as far as the windows are closed."""
        prefix = flag + len(message).to_bytes(4, "big")
        if len(message) <= _JOINED_MAX:
            self.data(stream, prefix + message)
        else:
            self.data(stream, prefix)
            self.data(stream, message)

    def data(self, stream: Stream, data: bytes | memoryview) -> None:
        """Octets of the reply's body, queued for `produce`."""
        if not data:
            return
        if stream.queue is None:
            stream.queue = deque()
        if not stream.queue:
            self._wake(stream)
        stream.queue.append(memoryview(data))
        stream.queued += len(data)
        self.queued += len(data)
        self._share.add(len(data))

    def end(self, stream: Stream, literals: bytes) -> bool:
        """End the reply: `OK`, `NO_TRAILERS` or a block. True when it is sent, False when it waits."""
        if stream.queue:
            stream.trailers = literals
            return False
        self._end(stream, literals)
        return True

    def _end(self, stream: Stream, literals: bytes) -> None:
        if literals is NO_TRAILERS:
            self.out.append(frames.frame(DATA, END_STREAM, stream.id))
        else:
            block = self.blocks.other(literals) if literals else self.blocks.end()
            self._headers(stream.id, block, END_STREAM)

    def only(self, stream: Stream, literals: bytes) -> None:
        """A reply that is nothing but one header block (P: trailers-only)."""
        self._headers(stream.id, self.blocks.other(literals), END_STREAM)

    def _headers(self, stream_id: int, block: bytes, flags: int) -> None:
        """HEADERS, and CONTINUATIONs where the peer's frames are too short for the block (R4.3)."""
        limit = self._frame_max
        if len(block) <= limit:
            self.out.append(frames.frame(HEADERS, flags | END_HEADERS, stream_id, block))
            return
        self.out.append(frames.frame(HEADERS, flags, stream_id, block[:limit]))
        for at in range(limit, len(block), limit):
            last = END_HEADERS if at + limit >= len(block) else 0
            self.out.append(frames.frame(frames.CONTINUATION, last, stream_id, block[at : at + limit]))

    # -- queued data -----------------------------------------------------------------------------

    def _wake(self, stream: Stream) -> None:
        if self._ready is None:
            self._ready = deque()
        stream.waits = True
        self._ready.append(stream)

    @property
    def can_produce(self) -> bool:
        """Whether `produce` would have something to send."""
        return bool(self._ready) and self._window > 0

    def drop(self, stream: Stream) -> None:
        """Nothing more of this stream is sent."""
        self.queued -= stream.queued
        stream.queue = None
        if stream.queued:
            size, stream.queued = stream.queued, 0
            self._part.give(self._share, size)

    def produce(self, bytes_max: int) -> list[Stream]:
        """Move queued DATA into `out`, about `bytes_max` of it; returns the streams that ended with it."""
        ended: list[Stream] = []
        ready = self._ready
        while ready and bytes_max > 0 and self._window > 0:
            stream = ready.popleft()
            if not stream.queue:  # dropped
                continue
            sent = self._turn(stream)
            bytes_max -= sent
            if not stream.queue:
                if stream.trailers is not None:
                    self._end(stream, stream.trailers)
                    ended.append(stream)
            elif sent:
                ready.append(stream)
            else:
                stream.waits = False  # until its window grows
            if sent:
                stream.call.on_room(sent)
        return ended

    def _turn(self, stream: Stream) -> int:
        """Send up to `TURN_BYTES` of one stream; returns how much went."""
        queue = stream.queue
        assert queue is not None
        allowed = min(stream.send_window, self._window, TURN_BYTES)
        if stream.send_window < TINY_WINDOW_BYTES and stream.queued > BACKLOG_BYTES:
            return 0
        sent = 0
        while queue and sent < allowed:
            size = min(allowed - sent, self._frame_max, stream.queued - sent)
            self.out.append(frames.HEAD.pack(size << 8 | DATA, 0, stream.id))
            self.data_frames += 1
            self._take(queue, size)
            sent += size
        stream.send_window -= sent
        self._window -= sent
        stream.queued -= sent
        self.queued -= sent
        if sent:
            self._part.give(self._share, sent)
        return sent

    def _take(self, queue: deque[memoryview], size: int) -> None:
        """Move `size` octets from the front of the queue into `out`."""
        while size:
            view = queue[0]
            if len(view) <= size:
                queue.popleft()
                self.out.append(view)
                size -= len(view)
            else:
                self.out.append(view[:size])
                queue[0] = view[size:]
                return
