"""Control frames: the frames that govern a connection and its streams, and carry nothing (R6.3 to R6.9).

Tests  tests/common/door/http2/test_connection_rules.py
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from tidb_binlog.door.http2.streams import RESET_BY_PEER
from tidb_binlog.door.limits import Limits
from tidb_binlog.http2 import frames
from tidb_binlog.http2.frames import ACK, ConnectionFault, StreamFault

if TYPE_CHECKING:
    from tidb_binlog.door.http2.connection import Connection


_RAPID_S: Final = 1.0
"""To give up a call later than this is what deadlines do, to all calls of a peer when a disk stalls. Resets
of what was just opened have no end; those of waiting calls come no more often than open streams allow."""

_SETTINGS_BYTES: Final = 6 * 32  # a frame with more settings counts as several: each is work


def greeting(limits: Limits) -> bytes:
    """Our half of the preface (R3.4): SETTINGS, and the connection's window (R6.9.2)."""
    settings = frames.settings(
        {
            frames.HEADER_TABLE_SIZE: limits.header_table_bytes,
            frames.MAX_CONCURRENT_STREAMS: limits.streams_max,
            frames.INITIAL_WINDOW_SIZE: limits.stream_window_bytes,
            frames.MAX_FRAME_SIZE: limits.frame_bytes_max,
            frames.MAX_HEADER_LIST_SIZE: limits.header_list_bytes_max,
        }
    )
    if limits.connection_window_bytes > frames.DEFAULT_WINDOW:
        settings += frames.window_update(0, limits.connection_window_bytes - frames.DEFAULT_WINDOW)
    return settings


def _priority(connection: Connection, payload: bytes, flags: int, stream_id: int) -> None:
    """R6.3: checked and ignored."""
    if stream_id == 0:
        raise ConnectionFault(frames.PROTOCOL_ERROR, "PRIORITY on stream 0 (R6.3)")
    connection.abuse.glitch(connection.now_s)
    # An idle stream cannot be reset (R6.4): there it costs the connection.
    fault = ConnectionFault if stream_id > connection.last_id else StreamFault
    if len(payload) != 5:
        raise fault(frames.FRAME_SIZE_ERROR, "PRIORITY of another length than 5 (R6.3)")
    if frames.read_word(payload, 0) & 0x7FFFFFFF == stream_id:
        raise fault(frames.PROTOCOL_ERROR, "stream depends on itself")


def _rst_stream(connection: Connection, payload: bytes, flags: int, stream_id: int) -> None:
    """R6.4."""
    if len(payload) != 4:
        raise ConnectionFault(frames.FRAME_SIZE_ERROR, "RST_STREAM of another length than 4 (R6.4)")
    if stream_id == 0 or connection.last_id < stream_id <= connection.accepting_to:
        raise ConnectionFault(frames.PROTOCOL_ERROR, "RST_STREAM on an idle stream (R6.4)")
    stream = connection.streams.get(stream_id)
    if stream is None or connection.now_s - stream.opened_s < _RAPID_S:
        connection.abuse.reset(connection.now_s)
    if stream is not None:
        connection.forget(stream, RESET_BY_PEER)
        stream.call.on_cancel()


def _settings(connection: Connection, payload: bytes, flags: int, stream_id: int) -> None:
    """R6.5: in order, at once, then one acknowledgement."""
    if stream_id != 0:
        raise ConnectionFault(frames.PROTOCOL_ERROR, "SETTINGS on a stream (R6.5)")
    if flags & ACK:
        if payload:
            raise ConnectionFault(frames.FRAME_SIZE_ERROR, "SETTINGS acknowledgement with payload (R6.5)")
        if connection.settings_acked:
            connection.abuse.glitch(connection.now_s)
        else:
            connection.acknowledged()
        return
    if len(payload) % 6:
        raise ConnectionFault(frames.FRAME_SIZE_ERROR, "SETTINGS length no multiple of 6 (R6.5)")
    for _ in range(0, len(payload) + 1, _SETTINGS_BYTES):
        connection.abuse.settings(connection.now_s)
    for identifier, value in frames.read_settings(payload):
        _setting(connection, identifier, value)
    connection.outbound.out.append(frames.SETTINGS_ACK)


def _setting(connection: Connection, identifier: int, value: int) -> None:
    """R6.5.2."""
    if identifier == frames.HEADER_TABLE_SIZE:
        connection.outbound.blocks.resize(value)
    elif identifier == frames.ENABLE_PUSH and value > 1:
        raise ConnectionFault(frames.PROTOCOL_ERROR, "SETTINGS_ENABLE_PUSH above 1 (R6.5.2)")
    elif identifier == frames.INITIAL_WINDOW_SIZE:
        if value > frames.WINDOW_MAX:
            raise ConnectionFault(frames.FLOW_CONTROL_ERROR, "SETTINGS_INITIAL_WINDOW_SIZE (R6.5.2)")
        difference = connection.outbound.set_initial_window(value)
        for stream in connection.streams.values():
            if not connection.outbound.widen(stream, difference):
                raise ConnectionFault(frames.FLOW_CONTROL_ERROR, "a stream window above 2^31-1 (R6.9.2)")
    elif identifier == frames.MAX_FRAME_SIZE:
        if not frames.DEFAULT_FRAME_BYTES <= value <= frames.FRAME_BYTES_LIMIT:
            raise ConnectionFault(frames.PROTOCOL_ERROR, "SETTINGS_MAX_FRAME_SIZE (R6.5.2)")
        connection.outbound.set_frame_max(value)


def _push_promise(connection: Connection, payload: bytes, flags: int, stream_id: int) -> None:
    raise ConnectionFault(frames.PROTOCOL_ERROR, "PUSH_PROMISE from a client (R8.4)")


def _ping(connection: Connection, payload: bytes, flags: int, stream_id: int) -> None:
    """R6.7."""
    if stream_id != 0:
        raise ConnectionFault(frames.PROTOCOL_ERROR, "PING on a stream (R6.7)")
    if len(payload) != 8:
        raise ConnectionFault(frames.FRAME_SIZE_ERROR, "PING of another length than 8 (R6.7)")
    if flags & ACK:
        connection.abuse.glitch(connection.now_s)
        connection.ping_answered = payload
        return
    connection.abuse.ping(connection.now_s, connection.outbound.data_frames)
    connection.outbound.out.append(frames.frame(frames.PING, ACK, 0, payload))


def _goaway(connection: Connection, payload: bytes, flags: int, stream_id: int) -> None:
    """R6.8: the peer opens no more streams; those that are open continue."""
    if stream_id != 0:
        raise ConnectionFault(frames.PROTOCOL_ERROR, "GOAWAY on a stream (R6.8)")
    if len(payload) < 8:
        raise ConnectionFault(frames.FRAME_SIZE_ERROR, "GOAWAY shorter than 8 (R6.8)")
    if connection.peer_leaves:
        connection.abuse.glitch(connection.now_s)
    connection.peer_leaves = True


def _window_update(connection: Connection, payload: bytes, flags: int, stream_id: int) -> None:
    """R6.9."""
    if len(payload) != 4:
        raise ConnectionFault(frames.FRAME_SIZE_ERROR, "WINDOW_UPDATE of another length than 4 (R6.9)")
    increment = frames.read_word(payload, 0) & 0x7FFFFFFF
    connection.abuse.window_update(connection.now_s, connection.outbound.data_frames)
    if stream_id == 0:
        if increment == 0:
            raise ConnectionFault(frames.PROTOCOL_ERROR, "WINDOW_UPDATE of 0 (R6.9)")
        if not connection.outbound.widen_connection(increment):
            raise ConnectionFault(frames.FLOW_CONTROL_ERROR, "connection window above 2^31-1 (R6.9.1)")
        return
    stream = connection.streams.get(stream_id)
    if stream is None:
        if stream_id > connection.last_id and stream_id <= connection.accepting_to:
            raise ConnectionFault(frames.PROTOCOL_ERROR, "WINDOW_UPDATE on an idle stream (R5.1)")
        if connection.closed.how(stream_id) == RESET_BY_PEER:
            raise StreamFault(frames.STREAM_CLOSED, "WINDOW_UPDATE after RST_STREAM (R5.1)")
        return
    if increment == 0:
        raise StreamFault(frames.PROTOCOL_ERROR, "WINDOW_UPDATE of 0 (R6.9)")
    if not connection.outbound.widen(stream, increment):
        raise StreamFault(frames.FLOW_CONTROL_ERROR, "stream window above 2^31-1 (R6.9.1)")


FrameHandler = Callable[["Connection", bytes, int, int], None]

HANDLERS: Final[dict[int, FrameHandler]] = {
    frames.PRIORITY: _priority,
    frames.RST_STREAM: _rst_stream,
    frames.SETTINGS: _settings,
    frames.PUSH_PROMISE: _push_promise,
    frames.PING: _ping,
    frames.GOAWAY: _goaway,
    frames.WINDOW_UPDATE: _window_update,
}
"""By frame type; each takes the connection, payload, flags and stream id."""
