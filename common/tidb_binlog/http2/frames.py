"""Frames: the octets of HTTP/2 (R4.1, R6) and the two ways in which a peer can be wrong (R5.4).

    +-----------------------------------------------+
    | length (24) | type (8) | flags (8) | R | stream id (31) |
    +-----------------------------------------------+
    | payload (length octets)                       |

R is RFC 9113, H is RFC 7541, P is gRPC's PROTOCOL-HTTP2 throughout this package.

Tests  tests/common/door/http2/test_connection_rules.py
"""

from __future__ import annotations

from struct import Struct
from typing import Final

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"  # R3.4

DATA: Final = 0
HEADERS: Final = 1
PRIORITY: Final = 2
RST_STREAM: Final = 3
SETTINGS: Final = 4
PUSH_PROMISE: Final = 5
PING: Final = 6
GOAWAY: Final = 7
WINDOW_UPDATE: Final = 8
CONTINUATION: Final = 9

END_STREAM: Final = 0x1
ACK: Final = 0x1
END_HEADERS: Final = 0x4
PADDED: Final = 0x8
HAS_PRIORITY: Final = 0x20

# R7
NO_ERROR: Final = 0
PROTOCOL_ERROR: Final = 1
INTERNAL_ERROR: Final = 2
FLOW_CONTROL_ERROR: Final = 3
SETTINGS_TIMEOUT: Final = 4
STREAM_CLOSED: Final = 5
FRAME_SIZE_ERROR: Final = 6
REFUSED_STREAM: Final = 7
CANCEL: Final = 8
COMPRESSION_ERROR: Final = 9
CONNECT_ERROR: Final = 10
ENHANCE_YOUR_CALM: Final = 11

# R6.5.2
HEADER_TABLE_SIZE: Final = 1
ENABLE_PUSH: Final = 2
MAX_CONCURRENT_STREAMS: Final = 3
INITIAL_WINDOW_SIZE: Final = 4
MAX_FRAME_SIZE: Final = 5
MAX_HEADER_LIST_SIZE: Final = 6

DEFAULT_WINDOW: Final = 65_535  # R6.9.2
DEFAULT_FRAME_BYTES: Final = 1 << 14  # R6.5.2
FRAME_BYTES_LIMIT: Final = (1 << 24) - 1
WINDOW_MAX: Final = (1 << 31) - 1  # R6.9.1
STREAM_ID_MAX: Final = (1 << 31) - 1

HEAD: Final = Struct(">LBL")  # length and type share the first word: length = word >> 8, type = word & 255
HEAD_BYTES: Final = 9
_SETTING = Struct(">HL")
_WORD = Struct(">L")
_TWO_WORDS = Struct(">LL")
_WINDOW_UPDATE = Struct(">5sLL")
_WINDOW_UPDATE_HEAD = b"\x00\x00\x04\x08\x00"
_RST_HEAD = b"\x00\x00\x04\x03\x00"


class ConnectionFault(Exception):
    """The connection cannot continue (R5.4.1): GOAWAY with `code` and `reason`, then close.

    `limit` names the limit that was reached, if it was one.
    """

    def __init__(self, code: int, reason: str, limit: str = "") -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason
        self.limit = limit


class StreamFault(Exception):
    """One stream cannot continue (R5.4.2): RST_STREAM with `code`."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason


def frame(kind: int, flags: int, stream_id: int, payload: bytes = b"") -> bytes:
    """One whole frame."""
    return HEAD.pack(len(payload) << 8 | kind, flags, stream_id) + payload


def window_update(stream_id: int, increment: int) -> bytes:
    return _WINDOW_UPDATE.pack(_WINDOW_UPDATE_HEAD, stream_id, increment)


def rst_stream(stream_id: int, code: int) -> bytes:
    return _WINDOW_UPDATE.pack(_RST_HEAD, stream_id, code)


def goaway(last_stream_id: int, code: int, debug: str = "") -> bytes:
    return frame(GOAWAY, 0, 0, _TWO_WORDS.pack(last_stream_id, code) + debug.encode())


def settings(pairs: dict[int, int]) -> bytes:
    return frame(SETTINGS, 0, 0, b"".join(_SETTING.pack(*pair) for pair in pairs.items()))


SETTINGS_ACK: Final = frame(SETTINGS, ACK, 0)


def read_settings(payload: bytes) -> list[tuple[int, int]]:
    """(identifier, value) in the order in which they take effect; the length is a multiple of six."""
    return list(_SETTING.iter_unpack(payload))


def read_word(buffer: bytes, at: int) -> int:
    word: int = _WORD.unpack_from(buffer, at)[0]
    return word


def unpad(data: bytes, start: int, stop: int, flags: int) -> tuple[int, int]:
    """R6.1, R6.2: where the payload lies inside its padding."""
    if not flags & PADDED:
        return start, stop
    if start == stop:
        raise ConnectionFault(FRAME_SIZE_ERROR, "no room for the pad length (R6.1)")
    padding = data[start]
    start += 1
    if padding > stop - start:
        raise ConnectionFault(PROTOCOL_ERROR, "padding longer than the payload (R6.1)")
    return start, stop - padding
