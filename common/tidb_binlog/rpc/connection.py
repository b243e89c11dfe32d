"""Connection: an HTTP/2 connection as a gRPC client has it (RFC 9113), without a socket, a task or a clock.

In     octets (`receive`), calls and their messages (`begin`, `send`, `cancel`), what a reader took (`taken`)
Out    octets in `out`; `produce` moves queued messages there; each call's `Reply` hears what comes of it
Holds  a call ends once, by its status, a reset or the end of the connection. Never more DATA than the peer's
       windows allow; calls with queued messages take turns. What a reader leaves lying is at most a window
       and a message: only its own stream pushes back, so that none blocks the others
Level  what breaks a rule of R4 to R8 costs the connection, whose calls end as unanswered; a message that is
       none costs its call

Tests  tests/common/rpc/test_connection.py
"""

from __future__ import annotations

from collections import deque
from typing import Final, Protocol

from tidb_binlog.http2 import frames, hpack
from tidb_binlog.http2.frames import (
    ACK,
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HAS_PRIORITY,
    HEADERS,
    PADDED,
    PING,
    PUSH_PROMISE,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    ConnectionFault,
)
from tidb_binlog.rpc import call_headers
from tidb_binlog.rpc.call_headers import Fields, RequestBlocks
from tidb_binlog.rpc.message_framing import PREFIX, PREFIX_BYTES, Inflater, MessageReader
from tidb_binlog.rpc.service import (
    CANCELLED,
    INTERNAL,
    OK,
    PERMISSION_DENIED,
    RECEIVE_BYTES_MAX,
    RESOURCE_EXHAUSTED,
    UNAVAILABLE,
    RpcStatus,
)

STREAM_WINDOW_BYTES: Final = 2 << 20
"""A peer 100 ms away may send 20 MB/s in a stream."""
_CONNECTION_WINDOW_BYTES: Final = 64 << 20
_FRAME_BYTES: Final = 1 << 20
_HEADER_BYTES_MAX: Final = 64 << 10
_STREAMS_MAX: Final = 100  # until the peer's settings say more (R5.1.2)
_TURN_BYTES: Final = 1 << 16
_JOINED_BYTES_MAX: Final = 4096  # a copy of so little costs less than a second view
_PREFACE: Final = (
    frames.PREFACE
    + frames.settings(
        {
            frames.ENABLE_PUSH: 0,
            frames.INITIAL_WINDOW_SIZE: STREAM_WINDOW_BYTES,
            frames.MAX_FRAME_SIZE: _FRAME_BYTES,
            frames.MAX_HEADER_LIST_SIZE: _HEADER_BYTES_MAX,
        }
    )
    + frames.window_update(0, _CONNECTION_WINDOW_BYTES - frames.DEFAULT_WINDOW)
)
PING_FRAME: Final = frames.frame(PING, 0, 0, b"binlogrp")
# P: what a reset says; every other code is INTERNAL.
_CODE_OF_RESET: Final = {
    frames.REFUSED_STREAM: UNAVAILABLE,
    frames.CANCEL: CANCELLED,
    frames.ENHANCE_YOUR_CALM: RESOURCE_EXHAUSTED,
    12: PERMISSION_DENIED,  # INADEQUATE_SECURITY
}


class Reply(Protocol):
    """What one call hears."""

    def on_message(self, message: bytes, size: int) -> None:
        """`size`: octets to be given back by `Connection.taken`."""

    def on_sent(self) -> None:
        """Nothing of what was given is queued any more."""

    def on_end(self, code: int, text: str, is_processed: bool) -> None:
        """The call is over, with gRPC's code. Not processed: the peer did nothing and never will."""


class Call:
    """One stream. `queued`, `unread`: octets that wait to be sent, and that the reader has not taken."""

    __slots__ = (
        "closes",
        "id",
        "is_headed",
        "owed",
        "queue",
        "queued",
        "reader",
        "receive_window",
        "reply",
        "send_window",
        "unread",
    )

    def __init__(self, stream_id: int, reply: Reply, send_window: int) -> None:
        self.id = stream_id
        self.reply = reply
        self.reader = MessageReader(RECEIVE_BYTES_MAX)
        self.queue: deque[memoryview] = deque()
        self.queued = self.unread = 0
        self.closes = False  # END_STREAM follows the queue; `queue` stays empty once it was sent
        self.is_headed = False  # the reply's head has come: what follows is messages and trailers
        self.owed = 0  # octets taken in and not given back yet
        self.receive_window = STREAM_WINDOW_BYTES
        self.send_window = send_window  # negative after R6.9.2


class Connection:
    """`out`: octets for the peer. `fault`: why nothing is read or sent any more; "" while it is well."""

    __slots__ = (
        "_block",
        "_block_ends",
        "_block_on",
        "_blocks",
        "_decoder",
        "_frame_max",
        "_initial_window",
        "_last_id",
        "_owed",
        "_ready",
        "_send_window",
        "_tail",
        "calls",
        "fault",
        "is_greeted",
        "leaves",
        "out",
        "streams_max",
    )

    def __init__(self, authority: str, *, secure: bool) -> None:
        self.out: list[bytes | memoryview] = [_PREFACE]
        self.calls: dict[int, Call] = {}
        self.fault = ""
        self.leaves = False  # the peer takes no further calls (R6.8)
        self.is_greeted = False  # its SETTINGS have come (R3.4)
        self.streams_max = _STREAMS_MAX
        self._blocks = RequestBlocks(authority, secure=secure)
        self._decoder = hpack.Decoder(lambda name, value: None, list_bytes_max=_HEADER_BYTES_MAX)
        self._last_id = -1
        self._tail: bytes | bytearray = b""
        self._block: bytearray | None = None  # R4.3: nothing but its CONTINUATIONs may come
        self._block_on = self._block_ends = 0
        self._send_window = frames.DEFAULT_WINDOW
        self._initial_window = frames.DEFAULT_WINDOW
        self._frame_max = frames.DEFAULT_FRAME_BYTES
        self._owed = 0
        self._ready: deque[Call] = deque()  # have something queued, and a window as far as is known

    # -- calls -----------------------------------------------------------------------------------------

    @property
    def has_room(self) -> bool:
        return len(self.calls) < self.streams_max

    @property
    def takes_calls(self) -> bool:
        return not self.fault and not self.leaves and self._last_id < frames.STREAM_ID_MAX - 2

    def begin(
        self,
        reply: Reply,
        path: str,
        timeout_s: float | None,
        gzip: bool = False,
        more: Fields = (),
    ) -> Call:
        """Open a stream; there must be room and it must take calls."""
        self._last_id += 2
        call = self.calls[self._last_id] = Call(self._last_id, reply, self._initial_window)
        block, limit = self._blocks.block(path, timeout_s, gzip=gzip, more=more), self._frame_max
        for at in range(0, len(block), limit):
            kind, last = (CONTINUATION if at else HEADERS), at + limit >= len(block)
            self.out.append(frames.frame(kind, END_HEADERS if last else 0, call.id, block[at : at + limit]))
        return call

    def send(self, call: Call, message: bytes | memoryview, flag: int = 0) -> None:
        """Queue one message; `produce` sends it."""
        prefix = PREFIX.pack(flag, len(message))
        if not call.queue:
            self._ready.append(call)
        if len(message) <= _JOINED_BYTES_MAX:
            call.queue.append(memoryview(prefix + message))
        else:
            call.queue += (memoryview(prefix), memoryview(message))
        call.queued += len(message) + PREFIX_BYTES

    def end_requests(self, call: Call) -> None:
        """No further message of ours."""
        call.closes = True
        if not call.queue:
            self.out.append(frames.frame(DATA, END_STREAM, call.id))

    def cancel(self, call: Call) -> bool:
        """The caller has gone: nothing is told to it any more. False if the call was over."""
        if is_open := self._forget(call):
            self.out.append(frames.rst_stream(call.id, frames.CANCEL))
        return is_open

    def taken(self, call: Call, size: int) -> None:
        """The reader has so many octets of messages less to take."""
        call.unread -= size
        self._credit(call)

    def lose(self, fault: str) -> None:
        """The connection is of no use any more: all calls end."""
        if not self.fault:
            self.fault = fault
            for call in list(self.calls.values()):
                self._end(call, UNAVAILABLE, fault)

    def produce(self, bytes_max: int) -> None:
        """Move queued messages into `out`, about `bytes_max` octets of them."""
        ready = self._ready
        while ready and bytes_max > 0 and self._send_window > 0:
            call = ready.popleft()
            if not call.queue:  # given up
                continue
            bytes_max -= self._turn(call)
            if not call.queue:
                call.reply.on_sent()
            elif call.send_window > 0:
                ready.append(call)

    @property
    def can_produce(self) -> bool:
        return bool(self._ready) and self._send_window > 0

    def _turn(self, call: Call) -> int:
        """Send some of one call's messages; returns how much."""
        allowed = min(call.send_window, self._send_window, _TURN_BYTES, call.queued)
        sent = 0
        while sent < allowed:
            size = min(allowed - sent, self._frame_max)
            ends = END_STREAM if call.closes and size == call.queued else 0
            self.out.append(frames.HEAD.pack(size << 8 | DATA, ends, call.id))
            self._move(call.queue, size)
            sent += size
            call.queued -= size
        call.send_window -= sent
        self._send_window -= sent
        return max(sent, 0)

    def _move(self, queue: deque[memoryview], size: int) -> None:
        while size:
            view = queue[0]
            if len(view) <= size:
                self.out.append(queue.popleft())
                size -= len(view)
            else:
                self.out.append(view[:size])
                queue[0] = view[size:]
                return

    # -- octets in -------------------------------------------------------------------------------------

    def receive(self, data: bytes) -> None:
        """Take what the peer sent. What breaks the protocol ends all calls and leaves a GOAWAY in `out`."""
        if self.fault:
            return
        try:
            self._frames(self._joined(data))
        except ConnectionFault as fault:
            self.out.append(frames.goaway(0, fault.code, fault.reason))
            self.lose(f"the peer breaks HTTP/2: {fault.reason}")

    def _joined(self, data: bytes) -> bytes:
        """With what an earlier read left of a frame; empty while that is still cut."""
        tail = self._tail
        if not tail:
            return data
        if not isinstance(tail, bytearray):
            tail = self._tail = bytearray(tail)  # grows in place: a long frame comes in many pieces
        tail += data
        if len(tail) < frames.HEAD_BYTES:
            return b""
        length = self._length(frames.HEAD.unpack_from(tail)[0])
        if len(tail) < frames.HEAD_BYTES + length:
            return b""
        self._tail = b""
        return bytes(tail)

    @staticmethod
    def _length(first: int) -> int:
        if (length := first >> 8) > _FRAME_BYTES:
            raise ConnectionFault(frames.FRAME_SIZE_ERROR, "frame longer than SETTINGS_MAX_FRAME_SIZE (R4.2)")
        return length

    def _frames(self, data: bytes) -> None:
        """All whole frames; the rest becomes the tail."""
        at, size = 0, len(data)
        while size - at >= frames.HEAD_BYTES:
            first, flags, stream_id = frames.HEAD.unpack_from(data, at)
            start = at + frames.HEAD_BYTES
            stop = start + self._length(first)
            if stop > size:
                break
            at = stop
            kind, stream_id = first & 0xFF, stream_id & 0x7FFFFFFF
            if not self.is_greeted and (kind != SETTINGS or flags & ACK):
                raise ConnectionFault(frames.PROTOCOL_ERROR, "the first frame is not SETTINGS (R3.4)")
            if self._block is not None and (kind != CONTINUATION or stream_id != self._block_on):
                raise ConnectionFault(frames.PROTOCOL_ERROR, "another frame inside a header block (R4.3)")
            if kind == DATA:
                self._data(data, start, stop, flags, stream_id)
            elif kind == HEADERS:
                self._headers(data, start, stop, flags, stream_id)
            elif kind == CONTINUATION:
                self._continuation(data[start:stop], flags)
            else:
                self._control(kind, data[start:stop], flags, stream_id)
        if at < size:
            self._tail = data[at:]

    def _known(self, stream_id: int) -> Call | None:
        """The call that a frame is for, None if it is over; a stream that was never opened is a fault."""
        call = self.calls.get(stream_id)
        if call is None and (not stream_id & 1 or stream_id > self._last_id):
            raise ConnectionFault(frames.PROTOCOL_ERROR, f"a frame on idle stream {stream_id} (R5.1)")
        return call

    # -- HEADERS and CONTINUATION ----------------------------------------------------------------------

    def _headers(self, data: bytes, start: int, stop: int, flags: int, stream_id: int) -> None:
        start, stop = frames.unpad(data, start, stop, flags)
        if flags & HAS_PRIORITY:
            start += 5
            if start > stop:
                raise ConnectionFault(frames.FRAME_SIZE_ERROR, "HEADERS too short for priority (R6.2)")
        if flags & END_HEADERS:
            self._fields(stream_id, data[start:stop], flags & END_STREAM)
        else:
            self._block, self._block_on = bytearray(data[start:stop]), stream_id
            self._block_ends = flags & END_STREAM

    def _continuation(self, payload: bytes, flags: int) -> None:
        if self._block is None:
            raise ConnectionFault(frames.PROTOCOL_ERROR, "CONTINUATION without HEADERS (R6.10)")
        self._block += payload
        if len(self._block) > _HEADER_BYTES_MAX:
            raise ConnectionFault(frames.ENHANCE_YOUR_CALM, "a header block without end")
        if flags & END_HEADERS:
            block, self._block = bytes(self._block), None
            self._fields(self._block_on, block, self._block_ends)

    def _fields(self, stream_id: int, block: bytes, ends: int) -> None:
        """A whole block. It is decoded whatever follows: later ones build on it (R4.3)."""
        call = self._known(stream_id)
        try:
            fields = {name: value for name, value, _ in self._decoder.decode(block)}
        except hpack.CompressionError as error:
            raise ConnectionFault(frames.COMPRESSION_ERROR, str(error)) from None
        except hpack.ListTooLarge as error:
            if call is not None:
                self._refuse(call, RESOURCE_EXHAUSTED, str(error))
            return
        if call is None:
            return
        if not call.is_headed:
            if fields.get(b":status", b"").startswith(b"1") and not ends:
                return  # R8.1: an interim response
            call.is_headed = True
            if (refusal := call_headers.not_grpc(fields)) is not None:
                self._refuse(call, *refusal)
                return
        elif not ends:
            self._refuse(call, INTERNAL, "trailers without END_STREAM (R8.1)")
            return
        if ends:
            code, text = call_headers.outcome(fields)
            if code == OK and call.reader.inside:
                code, text = INTERNAL, "ended inside a message"
            self._end(call, code, text)

    # -- DATA ------------------------------------------------------------------------------------------

    def _data(self, data: bytes, start: int, stop: int, flags: int, stream_id: int) -> None:
        length = stop - start
        self._owed += length
        if self._owed >= _CONNECTION_WINDOW_BYTES // 2:
            self.out.append(frames.window_update(0, self._owed))
            self._owed = 0
        call = self._known(stream_id)
        if flags & PADDED:
            start, stop = frames.unpad(data, start, stop, flags)
        if call is None:
            return
        call.receive_window -= length
        if call.receive_window < 0:
            raise ConnectionFault(frames.FLOW_CONTROL_ERROR, "DATA beyond the stream window (R6.9.1)")
        if not call.is_headed:
            raise ConnectionFault(frames.PROTOCOL_ERROR, "DATA in front of HEADERS (R8.1)")
        call.owed += length
        try:
            for flag, message in call.reader.feed(data, start, stop):
                size = len(message) + PREFIX_BYTES
                whole = _unpacked(message) if flag else bytes(message)
                call.unread += size
                call.reply.on_message(whole, size)
        except RpcStatus as error:
            self._refuse(call, error.code, error.message)
            return
        if flags & END_STREAM:
            self._end(call, *call_headers.outcome({}))
        else:
            self._credit(call)

    def _credit(self, call: Call) -> None:
        """Let the peer send more, unless a window's worth lies unread."""
        if (
            call.owed >= STREAM_WINDOW_BYTES // 2
            and call.unread < STREAM_WINDOW_BYTES
            and call.id in self.calls
        ):
            self.out.append(frames.window_update(call.id, call.owed))
            call.receive_window += call.owed
            call.owed = 0

    # -- calls end -------------------------------------------------------------------------------------

    def _forget(self, call: Call) -> bool:
        """Whether it was there still."""
        call.queue.clear()
        call.queued = 0
        return self.calls.pop(call.id, None) is not None

    def _refuse(self, call: Call, code: int, text: str) -> None:
        """The peer's part of it is of no use."""
        if self._forget(call):
            self.out.append(frames.rst_stream(call.id, frames.CANCEL))
            call.reply.on_end(code, text, True)

    def _end(self, call: Call, code: int, text: str, *, is_processed: bool = True) -> None:
        is_half_open = not call.closes or bool(call.queue)
        if self._forget(call):
            if is_half_open and not self.fault:
                self.out.append(frames.rst_stream(call.id, frames.NO_ERROR))  # it does not wait for ours
            call.reply.on_end(code, text, is_processed)

    # -- frames that govern (R6.3 to R6.9) -------------------------------------------------------------

    def _control(self, kind: int, payload: bytes, flags: int, stream_id: int) -> None:
        if kind == WINDOW_UPDATE:
            self._window_update(payload, stream_id)
        elif kind == RST_STREAM:
            self._reset(payload, stream_id)
        elif kind == PUSH_PROMISE:
            raise ConnectionFault(frames.PROTOCOL_ERROR, "PUSH_PROMISE, which we do not allow (R6.6)")
        elif kind in (SETTINGS, PING, GOAWAY):
            if stream_id:
                raise ConnectionFault(frames.PROTOCOL_ERROR, "a frame of the connection on a stream")
            if kind == PING:
                if len(payload) != 8:
                    raise ConnectionFault(frames.FRAME_SIZE_ERROR, "PING of another length than 8 (R6.7)")
                if not flags & ACK:
                    self.out.append(frames.frame(PING, ACK, 0, payload))
            elif kind == GOAWAY:
                self._goaway(payload)
            elif not flags & ACK:
                self._settings(payload)

    def _window_update(self, payload: bytes, stream_id: int) -> None:
        if len(payload) != 4:
            raise ConnectionFault(frames.FRAME_SIZE_ERROR, "WINDOW_UPDATE of another length than 4 (R6.9)")
        increment = frames.read_word(payload, 0) & 0x7FFFFFFF
        if not stream_id:
            self._send_window += increment
            if self._send_window > frames.WINDOW_MAX:
                raise ConnectionFault(frames.FLOW_CONTROL_ERROR, "connection window above 2^31-1 (R6.9.1)")
        elif (call := self._known(stream_id)) is not None:
            self._widen(call, increment)

    def _widen(self, call: Call, increment: int) -> None:
        was_closed = call.send_window <= 0
        call.send_window += increment
        if call.send_window > frames.WINDOW_MAX:
            raise ConnectionFault(frames.FLOW_CONTROL_ERROR, "a stream window above 2^31-1 (R6.9.1)")
        if was_closed and call.send_window > 0 and call.queue and call not in self._ready:
            self._ready.append(call)

    def _reset(self, payload: bytes, stream_id: int) -> None:
        if len(payload) != 4:
            raise ConnectionFault(frames.FRAME_SIZE_ERROR, "RST_STREAM of another length than 4 (R6.4)")
        call = self._known(stream_id)
        if call is not None:
            reset = frames.read_word(payload, 0)
            self._forget(call)
            code = _CODE_OF_RESET.get(reset, INTERNAL)
            call.reply.on_end(code, f"stream reset with code {reset}", reset != frames.REFUSED_STREAM)

    def _goaway(self, payload: bytes) -> None:
        if len(payload) < 8:
            raise ConnectionFault(frames.FRAME_SIZE_ERROR, "GOAWAY shorter than 8 (R6.8)")
        self.leaves = True
        last = frames.read_word(payload, 0) & 0x7FFFFFFF
        code, said = frames.read_word(payload, 4), payload[8:200].decode(errors="replace")
        for call in [call for call in self.calls.values() if call.id > last]:
            self._forget(call)
            text = f"the peer leaves: code {code} {said}".rstrip()
            call.reply.on_end(UNAVAILABLE, text, False)

    def _settings(self, payload: bytes) -> None:
        """R6.5: in order, at once, then one acknowledgement."""
        if len(payload) % 6:
            raise ConnectionFault(frames.FRAME_SIZE_ERROR, "SETTINGS length no multiple of 6 (R6.5)")
        if not self.is_greeted:
            self.is_greeted, self.streams_max = True, frames.STREAM_ID_MAX  # R6.5.2: no limit unless said
        for identifier, value in frames.read_settings(payload):
            if identifier == frames.HEADER_TABLE_SIZE:
                self._blocks.resize(value)
            elif identifier == frames.MAX_CONCURRENT_STREAMS:
                self.streams_max = value
            elif identifier == frames.MAX_FRAME_SIZE:
                if not frames.DEFAULT_FRAME_BYTES <= value <= frames.FRAME_BYTES_LIMIT:
                    raise ConnectionFault(frames.PROTOCOL_ERROR, "SETTINGS_MAX_FRAME_SIZE (R6.5.2)")
                self._frame_max = value
            elif identifier == frames.INITIAL_WINDOW_SIZE:
                if value > frames.WINDOW_MAX:
                    raise ConnectionFault(frames.FLOW_CONTROL_ERROR, "SETTINGS_INITIAL_WINDOW_SIZE (R6.5.2)")
                difference, self._initial_window = value - self._initial_window, value
                for call in self.calls.values():
                    self._widen(call, difference)
        self.out.append(frames.SETTINGS_ACK)


def _unpacked(message: bytes | memoryview) -> bytes:
    """Of a peer that is trusted: what comes out has no other limit than a message. Raises `RpcStatus`."""
    inflater = Inflater(message, RECEIVE_BYTES_MAX, RECEIVE_BYTES_MAX)
    while not inflater.step():
        pass
    return bytes(inflater.result())
