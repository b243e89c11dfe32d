"""gRPC's words: what its header fields say (P), and the blocks that say it back.

Tests  tests/common/door/calls/test_grpc_calls.py
"""

from __future__ import annotations

import base64
import re
from typing import Final

from tidb_binlog.door.http2.reply_headers import STATUS_200
from tidb_binlog.http2 import hpack

_TIMEOUT_DIGITS: Final = 8
_UNIT_S: Final = {b"H": 3600.0, b"M": 60.0, b"S": 1.0, b"m": 1e-3, b"u": 1e-6, b"n": 1e-9}
_ESCAPED = re.compile(rb"[^\x20-\x24\x26-\x7e]")
_MESSAGE_BYTES_MAX: Final = 4096

_CONTENT_TYPE: Final = hpack.literal(b"content-type", b"application/grpc")
_ACCEPTS: Final = hpack.literal(b"grpc-accept-encoding", b"identity,gzip")
HEAD_GZIP: Final = STATUS_200 + _CONTENT_TYPE + hpack.literal(b"grpc-encoding", b"gzip")


def timeout_s(value: bytes) -> float | None:
    """Seconds of a grpc-timeout; None if it is malformed."""
    digits = value[:-1]
    unit_s = _UNIT_S.get(value[-1:])
    if unit_s is None or not digits.isdigit() or len(digits) > _TIMEOUT_DIGITS:
        return None
    return int(digits) * unit_s


def percent_encoded(text: str) -> bytes:
    """grpc-message: UTF-8, all but printable ASCII as %XX; cut where a peer might refuse the header."""
    data = _ESCAPED.sub(lambda match: b"%%%02X" % match[0][0], text.encode(errors="replace"))
    if len(data) > _MESSAGE_BYTES_MAX:
        # Never inside an escape.
        data = re.sub(rb"%.?\Z", b"", data[: _MESSAGE_BYTES_MAX - 3]) + b"..."
    return data


def status_fields(code: int, text: str, details: bytes = b"") -> bytes:
    """The fields that end a call with an error; literals, in no table."""
    block = hpack.literal(b"grpc-status", b"%d" % code)
    if text:
        block += hpack.literal(b"grpc-message", percent_encoded(text))
    if details:
        encoded = base64.b64encode(details).rstrip(b"=")
        block += hpack.literal(b"grpc-status-details-bin", encoded)
    return block


def only_status(code: int, text: str, details: bytes = b"", *, accepts: bool = False) -> bytes:
    """A reply that is nothing but its status (P: Trailers-Only)."""
    block = STATUS_200 + _CONTENT_TYPE + status_fields(code, text, details)
    return block + _ACCEPTS if accepts else block


def http_status(status: int, fields: dict[bytes, bytes]) -> bytes:
    """Head of a reply that is not gRPC."""
    return hpack.literal(b":status", b"%d" % status) + b"".join(
        hpack.literal(name, value) for name, value in fields.items()
    )
