"""HTTP/2 frames and header fields (RFC 9113, RFC 7541), right ones and wrong ones. Pure."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final

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
UNKNOWN: Final = 0xBE

END_STREAM: Final = 1
ACK: Final = 1
END_HEADERS: Final = 4
PADDED: Final = 8

HEADER_TABLE_SIZE: Final = 1
MAX_CONCURRENT_STREAMS: Final = 3
INITIAL_WINDOW_SIZE: Final = 4
MAX_FRAME_SIZE: Final = 5

NO_ERROR: Final = 0
CANCEL: Final = 8
ENHANCE_YOUR_CALM: Final = 11
CODE_NAMES: Final = (
    "NO_ERROR",
    "PROTOCOL_ERROR",
    "INTERNAL_ERROR",
    "FLOW_CONTROL_ERROR",
    "SETTINGS_TIMEOUT",
    "STREAM_CLOSED",
    "FRAME_SIZE_ERROR",
    "REFUSED_STREAM",
    "CANCEL",
    "COMPRESSION_ERROR",
    "CONNECT_ERROR",
    "ENHANCE_YOUR_CALM",
    "INADEQUATE_SECURITY",
    "HTTP_1_1_REQUIRED",
)

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
FRAME_BYTES_MAX: Final = 1 << 14
WINDOW_MAX: Final = (1 << 31) - 1

frame_head = struct.Struct(">LBL").pack
u32 = struct.Struct(">L").pack
_STATIC_NAMES: Final = {
    ":authority": 1,
    ":path": 4,
    "content-length": 28,
    "content-type": 31,
    "user-agent": 58,
}
POST: Final = b"\x83"
SCHEME: Final = {"http": b"\x86", "https": b"\x87"}


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return frame_head(len(payload) << 8 | kind, flags, stream) + payload


def settings(values: Iterable[tuple[int, int]] = ()) -> bytes:
    return frame(SETTINGS, 0, 0, b"".join(struct.pack(">HL", *value) for value in values))


def window_update(stream: int, octets: int) -> bytes:
    return frame(WINDOW_UPDATE, 0, stream, u32(octets))


def rst_stream(stream: int, code: int = CANCEL) -> bytes:
    return frame(RST_STREAM, 0, stream, u32(code))


def message(payload: bytes) -> bytes:
    """A whole gRPC message, not compressed."""
    return b"\0" + u32(len(payload)) + payload


def integer(value: int, prefix_bits: int, pattern: int) -> bytes:
    """H5.1, with `pattern` in the bits above the prefix."""
    most = (1 << prefix_bits) - 1
    if value < most:
        return bytes((pattern | value,))
    out = bytearray((pattern | most,))
    value -= most
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def text(value: str) -> bytes:
    """A string literal without Huffman coding (H5.2)."""
    return integer(len(value), 7, 0) + value.encode()


def literal(name: str, value: str) -> bytes:
    """With incremental indexing (H6.2.1)."""
    index = _STATIC_NAMES.get(name, 0)
    return integer(index, 6, 0x40) + (b"" if index else text(name)) + text(value)


def unindexed(name: str, value: str) -> bytes:
    """Without indexing (H6.2.2): the table stays as it is."""
    index = _STATIC_NAMES.get(name, 0)
    return integer(index, 4, 0) + (b"" if index else text(name)) + text(value)


def indexed(index: int) -> bytes:
    return integer(index, 7, 0x80)


def request_block(path: str, scheme: str = "http", *more: tuple[str, str]) -> bytes:
    """A gRPC request's header fields, none of them indexed."""
    return (
        POST
        + SCHEME[scheme]
        + unindexed(":path", path)
        + unindexed(":authority", "localhost")
        + unindexed("content-type", "application/grpc")
        + unindexed("te", "trailers")
        + b"".join(unindexed(*field) for field in more)
    )
