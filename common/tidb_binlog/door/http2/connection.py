"""Connection: an HTTP/2 connection as the server sees it (RFC 9113), without a socket.

In     octets (`receive`), time (`tick`), replies from the layer above (`outbound`, `reset`, `credit`)
Out    octets in `outbound.out`; calls of the layers above: `Above` and `Exchange`
Holds  R5.1's states, R6.9's windows, every rule of R4 to R8 with its level: `StreamFault` costs one stream,
       `ConnectionFault` the connection. After the latter nothing more is read
Why    one pass over each read. What a peer sends in the ordinary course touches a dict and a few integers;
       everything else is found in the module named after it: `header_fields`, `hpack`, `limits`, `streams`
Never  answers more octets than it was sent, beyond replies
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from tidb_binlog.door.http2 import control_frames, header_fields
from tidb_binlog.door.http2.abuse import Abuse
from tidb_binlog.door.http2.header_fields import Head, Malformed
from tidb_binlog.door.http2.outbound import Outbound
from tidb_binlog.door.http2.request_headers import RequestBlocks
from tidb_binlog.door.http2.streams import ENDED, RESET_BY_PEER, RESET_BY_US, SKIPPED, Closed, Stream
from tidb_binlog.door.limits import Budget, ConnectionShares, Limits
from tidb_binlog.http2 import frames
from tidb_binlog.http2.frames import (
    ACK,
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    HAS_PRIORITY,
    HEADERS,
    PADDED,
    SETTINGS,
    ConnectionFault,
    StreamFault,
)

_UNUSUAL_HEADERS: Final = END_HEADERS | PADDED | HAS_PRIORITY
_NO_LAST: Final = frames.STREAM_ID_MAX
_LATE_BYTES_FREE: Final = 1024


class Above(Protocol):
    """The layer that knows what requests are for: one a connection."""

    def on_request(self, stream: Stream, head: Head, end: bool) -> None:
        """A request began; sets `stream.call`, an `Exchange`, or ends the stream."""


class Exchange(Protocol):
    """What a stream is for, in `Stream.call`."""

    def on_data(self, buffer: bytes, start: int, stop: int, end: bool) -> None:
        """A piece of the body, `buffer[start:stop]`; `end`: the request is complete."""

    def on_cancel(self) -> None:
        """The stream is gone: nothing arrives on it and nothing can be sent."""

    def on_room(self, sent: int) -> None:
        """Something of the reply was sent."""


class Connection:
    """One connection from the end of the preface on. `ended`: nothing is read any more."""

    __slots__ = (
        "_credit_at",
        "_strict",
        "_tail",
        "_window",
        "above",
        "abuse",
        "accepting_to",
        "began_s",
        "blocks",
        "called_s",
        "closed",
        "ended",
        "fault",
        "last_id",
        "limits",
        "lingering",
        "next_tick_s",
        "now_s",
        "outbound",
        "peer_leaves",
        "ping_answered",
        "settings_acked",
        "settings_seen",
        "shares",
        "streams",
        "streams_max",
    )

    def __init__(
        self,
        above: Callable[[Connection], Above],
        limits: Limits,
        budget: Budget,
        now_s: float,
        shares: ConnectionShares | None = None,
    ) -> None:
        self.limits = limits
        self.shares = shares or budget.join("")
        self.streams_max = limits.streams_max  # less while all calls together are near their limit
        self.now_s = now_s
        self.began_s = now_s
        self.called_s = now_s
        self.next_tick_s = now_s + limits.handshake_s
        self.streams: dict[int, Stream] = {}
        self.lingering = 0  # streams that are gone while their handlers still run: they count as open
        self.last_id = 0
        self.accepting_to = _NO_LAST  # last stream id that a GOAWAY left open
        self.fault: ConnectionFault | None = None
        self.ended = False
        self.peer_leaves = False
        self.settings_seen = False
        self.settings_acked = False
        self.ping_answered: bytes | None = None
        self.abuse = Abuse(limits, now_s)
        self.outbound = Outbound(budget.replies, self.shares.replies)
        self._strict = True  # the next frame is not free to be any: R3.4, R4.3
        self._tail: bytes | bytearray = b""
        self.closed = Closed()
        self._window = limits.connection_window_bytes
        self._credit_at = limits.connection_window_bytes // 2
        self.blocks = RequestBlocks(limits, self.abuse)
        self.above = above(self)
        self.outbound.out.append(control_frames.greeting(limits))

    # -- octets in -------------------------------------------------------------------------------

    def receive(self, data: bytes, now_s: float) -> None:
        """Take what the peer sent. A fault leaves its GOAWAY in `outbound.out` and sets `ended`."""
        if self.ended:
            return
        self.now_s = now_s
        try:
            if self._tail:
                at = self._split_frame(data)
                if at < 0:
                    return
            else:
                at = 0
            self._frames(data, at)
        except ConnectionFault as fault:
            self.end(fault)

    def _split_frame(self, data: bytes) -> int:
        """Complete the frame that an earlier read cut; returns where the next one begins, -1 if not yet."""
        tail = self._tail
        missing = frames.HEAD_BYTES - len(tail)
        if missing > 0:
            if len(data) < missing:
                self._tail = tail + data
                return -1
            tail += data[:missing]
        else:
            missing = 0
        length: int = frames.HEAD.unpack_from(tail, 0)[0] >> 8
        if length > self.limits.frame_bytes_max:
            raise ConnectionFault(frames.FRAME_SIZE_ERROR, "frame longer than SETTINGS_MAX_FRAME_SIZE (R4.2)")
        stop: int = missing + length - (len(tail) - frames.HEAD_BYTES)
        if len(data) < stop:
            if not isinstance(tail, bytearray):
                tail = bytearray(tail)  # grows in place: a long frame may come in a thousand pieces
            tail += data[missing:]
            self._tail = tail
            return -1
        self._frames(b"".join((tail, data[missing:stop])), 0)
        return stop

    def _frames(self, data: bytes, at: int) -> None:
        """All whole frames of `data` from `at` on; the rest becomes the tail."""
        size = len(data)
        unpack = frames.HEAD.unpack_from
        frame_max = self.limits.frame_bytes_max
        while size - at >= 9:
            first, flags, stream_id = unpack(data, at)
            at += 9
            stop = at + (first >> 8)
            kind = first & 0xFF
            if stop - at > frame_max:
                raise ConnectionFault(frames.FRAME_SIZE_ERROR, "frame longer than MAX_FRAME_SIZE (R4.2)")
            if stop > size:
                at -= 9
                break
            if self._strict:
                self._check_order(kind, flags, stream_id & 0x7FFFFFFF)
            if kind == DATA:
                self._data(data, at, stop, flags, stream_id & 0x7FFFFFFF)
            elif kind == HEADERS:
                stream_id &= 0x7FFFFFFF
                if flags & _UNUSUAL_HEADERS == END_HEADERS and stream_id:
                    try:
                        self._header_block(stream_id, data[at:stop], flags & END_STREAM)
                    except StreamFault as fault:
                        self._stream_fault(stream_id, fault)
                else:
                    self._headers(data, at, stop, flags, stream_id)
            else:
                try:
                    if kind == CONTINUATION:
                        self._continuation(data[at:stop], flags, stream_id & 0x7FFFFFFF)
                    elif kind < CONTINUATION:
                        control_frames.HANDLERS[kind](self, data[at:stop], flags, stream_id & 0x7FFFFFFF)
                    else:
                        self.abuse.glitch(self.now_s)  # R5.5: unknown types are ignored
                except StreamFault as fault:
                    self._stream_fault(stream_id & 0x7FFFFFFF, fault)
            at = stop
        self._tail = data[at:]

    def _check_order(self, kind: int, flags: int, stream_id: int) -> None:
        if self.fault is not None:  # a limit was passed while a frame before this one was answered
            raise self.fault
        if not self.settings_seen:
            if kind != SETTINGS or flags & ACK:
                raise ConnectionFault(frames.PROTOCOL_ERROR, "the first frame is not SETTINGS (R3.4)")
            self.settings_seen = True
            self._strict = False
        elif kind != CONTINUATION or stream_id != self.blocks.open_on:
            raise ConnectionFault(frames.PROTOCOL_ERROR, "another frame inside a header block (R4.3)")

    # -- HEADERS and CONTINUATION (R6.2, R6.10) --------------------------------------------------

    def _headers(self, data: bytes, start: int, stop: int, flags: int, stream_id: int) -> None:
        if stream_id == 0:
            raise ConnectionFault(frames.PROTOCOL_ERROR, "HEADERS on stream 0 (R6.2)")
        depends = 0
        if flags & (PADDED | HAS_PRIORITY):
            start, stop = frames.unpad(data, start, stop, flags)
            if flags & HAS_PRIORITY:
                if stop - start < 5:
                    raise ConnectionFault(frames.FRAME_SIZE_ERROR, "HEADERS too short for priority (R6.2)")
                depends = frames.read_word(data, start) & 0x7FFFFFFF
                start += 5
        if flags & END_HEADERS:
            try:
                self._header_block(stream_id, data[start:stop], flags & END_STREAM)
                if depends == stream_id:  # RFC 7540 5.3.1; RFC 9113 leaves it to us
                    raise StreamFault(frames.PROTOCOL_ERROR, "stream depends on itself")
            except StreamFault as fault:
                self._stream_fault(stream_id, fault)
            return
        self._strict = True
        self.wake_at(self.now_s + self.limits.header_block_s)
        self.blocks.begin(stream_id, data[start:stop], flags & END_STREAM, self.now_s)

    def _continuation(self, payload: bytes, flags: int, stream_id: int) -> None:
        blocks = self.blocks
        if blocks.open_on == 0:
            raise ConnectionFault(frames.PROTOCOL_ERROR, "CONTINUATION without HEADERS (R6.10)")
        whole = blocks.go_on(payload, bool(flags & END_HEADERS))
        if whole is not None:
            self._strict = False
            self._header_block(stream_id, whole, blocks.ends_stream)

    def _header_block(self, stream_id: int, block: bytes, end: int) -> None:
        """A whole block: opens a stream, or ends one with trailers. It is decoded whatever follows."""
        stream = self.streams.get(stream_id)
        if stream is not None:
            self._trailers(stream, block, end)
            return
        malformed = None
        try:
            head, timeout = self.blocks.said.get(block) or self.blocks.decode(block, self.now_s)
        except Malformed as error:
            malformed, head, timeout = error, header_fields.Head(header_fields.TOO_LARGE), None
        if stream_id <= self.last_id or not stream_id & 1:
            self._late_headers(stream_id)
            return
        if stream_id > self.accepting_to:
            return  # R6.8: sent after our GOAWAY, ignored
        if stream_id > self.last_id + 2:
            self.closed.skip(self.last_id + 2 if self.last_id else 1, stream_id - 2)
        self.last_id = stream_id
        if malformed is not None:
            raise StreamFault(frames.PROTOCOL_ERROR, str(malformed))
        if len(self.streams) + self.lingering >= self.streams_max:
            self.abuse.refused("streams" if self.streams_max == self.limits.streams_max else "calls")
            raise StreamFault(frames.REFUSED_STREAM, "too many streams (R5.1.2)")
        window = self.limits.stream_window_bytes
        if not self.settings_acked:
            window = max(window, frames.DEFAULT_WINDOW)
        stream = Stream(stream_id, window, self.outbound.initial_window, not end, self.now_s)
        stream.timeout = timeout
        if head.content_length is not None:
            stream.body_left = head.content_length
            if end and head.content_length:
                raise StreamFault(frames.PROTOCOL_ERROR, "content-length without a body (R8.1.1)")
        self.streams[stream_id] = stream
        self.above.on_request(stream, head, bool(end))

    def _late_headers(self, stream_id: int) -> None:
        how = SKIPPED if not stream_id & 1 else self.closed.how(stream_id)
        if how == SKIPPED:
            raise ConnectionFault(frames.PROTOCOL_ERROR, "stream id not above the last (R5.1.1)")
        self._stray(how, "HEADERS")

    def _stray(self, how: int, what: str, size: int = 0) -> None:
        """A frame on a closed stream (R5.1). The rest of a large message that we refused is fine."""
        if how in (ENDED, SKIPPED):
            raise ConnectionFault(frames.STREAM_CLOSED, f"{what} on a closed stream (R5.1)")
        if how == RESET_BY_PEER or size < _LATE_BYTES_FREE:
            self.abuse.glitch(self.now_s)
        if how == RESET_BY_PEER:
            raise StreamFault(frames.STREAM_CLOSED, f"{what} after RST_STREAM (R5.1)")

    def _trailers(self, stream: Stream, block: bytes, end: int) -> None:
        entries = self.blocks.trailers(block)
        if not stream.remote_open:
            raise StreamFault(frames.STREAM_CLOSED, "HEADERS after END_STREAM (R5.1)")
        try:
            header_fields.check_trailers(entries)
        except Malformed as error:
            raise StreamFault(frames.PROTOCOL_ERROR, str(error)) from None
        if not end:
            raise StreamFault(frames.PROTOCOL_ERROR, "trailers without END_STREAM (R8.1)")
        if stream.body_left:
            raise StreamFault(frames.PROTOCOL_ERROR, "body shorter than content-length (R8.1.1)")
        stream.remote_open = False
        stream.call.on_data(b"", 0, 0, True)

    # -- DATA (R6.1) -----------------------------------------------------------------------------

    def _data(self, data: bytes, start: int, stop: int, flags: int, stream_id: int) -> None:
        length = stop - start
        window = self._window - length
        if window < self._credit_at:
            if window < 0:
                raise ConnectionFault(frames.FLOW_CONTROL_ERROR, "DATA beyond the connection window (R6.9.1)")
            # Given back on receipt: only a stream's own window pushes back, so that none blocks the others.
            full = self.limits.connection_window_bytes
            self.outbound.out.append(frames.window_update(0, full - window))
            window = full
        self._window = window
        stream = self.streams.get(stream_id)
        try:
            if stream is None or not stream.remote_open:
                if flags & PADDED:
                    frames.unpad(data, start, stop, flags)
                self._stray_data(stream_id, stream, length)
                return
            stream.receive_window -= length
            if stream.receive_window < 0:
                raise StreamFault(frames.FLOW_CONTROL_ERROR, "DATA beyond the stream window (R6.9.1)")
            if flags & PADDED:
                start, stop = frames.unpad(data, start, stop, flags)
                self.credit(stream, length - (stop - start))
            if stream.body_left is not None:
                self._count_body(stream, stop - start, flags & END_STREAM)
            self.outbound.data_frames += 1
            if flags & END_STREAM:
                stream.remote_open = False
                stream.call.on_data(data, start, stop, True)
            else:
                if start == stop:
                    self.abuse.glitch(self.now_s)
                stream.call.on_data(data, start, stop, False)
        except StreamFault as fault:
            self._stream_fault(stream_id, fault)

    def _stray_data(self, stream_id: int, stream: Stream | None, size: int) -> None:
        if stream is not None:
            raise StreamFault(frames.STREAM_CLOSED, "DATA after END_STREAM (R5.1)")
        if stream_id == 0 or stream_id > self.last_id:
            if stream_id > self.accepting_to:
                return
            raise ConnectionFault(frames.PROTOCOL_ERROR, "DATA on an idle stream (R5.1)")
        self._stray(self.closed.how(stream_id), "DATA", size)

    def _count_body(self, stream: Stream, size: int, end: int) -> None:
        assert stream.body_left is not None
        stream.body_left -= size
        if stream.body_left < 0 or (end and stream.body_left):
            raise StreamFault(frames.PROTOCOL_ERROR, "body differs from content-length (R8.1.1)")

    def credit(self, stream: Stream, size: int, at: int = 0) -> None:
        """`size` octets of this stream are taken in: the peer may send as many more, announced from `at` on
        (default: half a window)."""
        stream.owed += size
        if stream.remote_open and stream.owed >= (at or self.limits.stream_window_bytes // 2):
            self.outbound.out.append(frames.window_update(stream.id, stream.owed))
            stream.receive_window += stream.owed
            stream.owed = 0

    def acknowledged(self) -> None:
        """The peer goes by our settings from now on. Until it knew them a stream's window was the default
        (R6.9.2). What it takes off that (R6.9.3) is given back: what a call waits for was counted by it."""
        self.settings_acked = True
        self.blocks.acknowledged()
        less = frames.DEFAULT_WINDOW - self.limits.stream_window_bytes
        if less > 0:
            for stream in self.streams.values():
                stream.receive_window -= less
                self.credit(stream, less, 1)

    # -- streams end -----------------------------------------------------------------------------

    def _stream_fault(self, stream_id: int, fault: StreamFault) -> None:
        """R5.4.2: the stream ends, and the layer above hears of it."""
        stream = self.streams.get(stream_id)
        self.reset(stream_id, fault.code)
        if stream is not None and stream.call is not None:
            stream.call.on_cancel()

    def reset(self, stream_id: int, code: int) -> None:
        """End a stream with RST_STREAM. Ours count like the peer's: it may have provoked them."""
        stream = self.streams.get(stream_id)
        if stream is not None:
            self.forget(stream, RESET_BY_US)
        else:
            self.closed.remember(stream_id, RESET_BY_US)
        self.outbound.out.append(frames.rst_stream(stream_id, code))
        try:
            self.abuse.reset(self.now_s)
        except ConnectionFault as fault:
            self.end(fault)  # not raised: handlers, deadlines and other connections reset streams too

    def forget(self, stream: Stream, how: int) -> None:
        del self.streams[stream.id]
        self.called_s = self.now_s
        stream.remote_open = False
        self.outbound.drop(stream)
        self.closed.remember(stream.id, how)

    def produce(self, bytes_max: int) -> None:
        """Put up to about `bytes_max` of queued DATA into `outbound.out`."""
        for stream in self.outbound.produce(bytes_max):
            self.finished(stream)

    def finished(self, stream: Stream) -> None:
        """The reply is sent to its end. A request that was not complete is cut off (P)."""
        if stream.remote_open:
            self.reset(stream.id, frames.NO_ERROR)
        else:
            self.streams.pop(stream.id, None)
        stream.call = None  # the two refer to each other: only the garbage collector would find them
        self.abuse.calls_finished += 1

    # -- time ------------------------------------------------------------------------------------

    def wake_at(self, moment_s: float) -> None:
        """`tick` has something to do then."""
        if moment_s < self.next_tick_s:
            self.next_tick_s = moment_s

    def end(self, fault: ConnectionFault) -> None:
        """R5.4.1: read nothing more. Whatever runs is cancelled by the shell, which closes."""
        if not self.ended:
            self.fault = fault
            self.ended = True
            self._strict = True
            self.outbound.out.append(frames.goaway(self.last_id, fault.code, fault.reason))
