"""Header fields: which header fields a peer may send (R8.2, R8.3), and what a request says with them.

Why    what a single field can do wrong is found once, when the decoder makes the entry (`annotate`); for a
       call only order and repetition are left to check
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from tidb_binlog.door.http2 import grpc_headers

Entry = tuple[bytes, bytes, Any]

PLAIN: Final = 0
METHOD: Final = 1
SCHEME: Final = 2
PATH: Final = 3
AUTHORITY: Final = 4
HOST: Final = 5
CONTENT_LENGTH: Final = 6
CONTENT_TYPE: Final = 7
TIMEOUT: Final = 8
ENCODING: Final = 9
ACCEPT_ENCODING: Final = 10
ORIGIN: Final = 11
ACCEPT: Final = 12
_KINDS: Final = 13

_KIND_OF: Final = {
    b":method": METHOD,
    b":scheme": SCHEME,
    b":path": PATH,
    b":authority": AUTHORITY,
    b"host": HOST,
    b"content-length": CONTENT_LENGTH,
    b"content-type": CONTENT_TYPE,
    b"grpc-timeout": TIMEOUT,
    b"grpc-encoding": ENCODING,
    b"grpc-accept-encoding": ACCEPT_ENCODING,
    b"origin": ORIGIN,
    b"accept": ACCEPT,
}
# R8.2.2
_CONNECTION_FIELDS: Final = frozenset(
    {b"connection", b"proxy-connection", b"keep-alive", b"transfer-encoding", b"upgrade"}
)
# R8.2.1
_NAME = re.compile(rb"[^\x00-\x20A-Z\x7f-\xff:]+")
_VALUE = re.compile(rb"(?:[^\x00\r\n \t](?:[^\x00\r\n]*[^\x00\r\n \t])?)?")
_LENGTH = re.compile(rb"[0-9]{1,18}")
_GRPC = re.compile(rb"application/grpc(?:[+;].*)?", re.DOTALL)


_BAD_VALUE: Final = "field value with an octet that it must not have"


class Timeout:
    """A grpc-timeout, read when its field was made. `seconds` is None if it is malformed."""

    __slots__ = ("seconds",)

    def __init__(self, seconds: float | None) -> None:
        self.seconds = seconds


class Malformed(Exception):
    """R8.1.1: a request that is an error of its stream."""


class Head:
    """What a request's fields say. `plan` is the reader's own: what it found out about heads like this."""

    __slots__ = (
        "accept",
        "accept_encoding",
        "authority",
        "content_length",
        "content_type",
        "encoding",
        "is_grpc",
        "method",
        "origin",
        "path",
        "plan",
        "too_large",
    )

    def __init__(self, values: Sequence[bytes | None], *, too_large: bool = False) -> None:
        length = values[CONTENT_LENGTH]
        content_type = values[CONTENT_TYPE]
        self.method = values[METHOD] or b""
        self.path = values[PATH] or b""
        self.authority = values[AUTHORITY] or values[HOST] or b""
        self.content_length = None if length is None else int(length)
        self.content_type = content_type or b""
        self.is_grpc = content_type is not None and _GRPC.fullmatch(content_type) is not None
        self.encoding = values[ENCODING] or b""
        self.accept_encoding = values[ACCEPT_ENCODING]
        self.origin = values[ORIGIN]
        self.accept = values[ACCEPT] or b""
        self.too_large = too_large
        self.plan: Any = None


TOO_LARGE: Final = [None] * _KINDS
"""Values of a head that was above the limit: it is not interpreted."""


def annotate(name: bytes, value: bytes) -> int | str | Timeout:
    """Kind of a field, or why it is malformed; of a timeout, how long it is."""
    kind = _KIND_OF.get(name)
    if kind == TIMEOUT:
        return Timeout(grpc_headers.timeout_s(value)) if _VALUE.fullmatch(value) else _BAD_VALUE
    if not _VALUE.fullmatch(value):
        return _BAD_VALUE
    if kind is None:
        if name[:1] == b":":
            return "unknown pseudo-header field"
        if not _NAME.fullmatch(name):
            return "field name with an octet that it must not have"
        if name in _CONNECTION_FIELDS:
            return "connection-specific field"
        if name == b"te" and value != b"trailers":
            return "te other than trailers"
        return PLAIN
    if kind == CONTENT_LENGTH and not _LENGTH.fullmatch(value):
        return "content-length that is no number"
    return kind


def request_head(entries: Sequence[Entry]) -> Head:
    """Raises `Malformed`."""
    values: list[bytes | None] = [None] * _KINDS
    regular = False
    for _, value, note in entries:
        if note == PLAIN:
            regular = True
        elif note.__class__ is str:
            raise Malformed(note)
        elif note.__class__ is Timeout:
            regular = True
        else:
            if note <= AUTHORITY:
                if regular:
                    raise Malformed("pseudo-header field after a regular one")
            else:
                regular = True
            earlier = values[note]
            if earlier is not None and (note <= HOST or (note == CONTENT_LENGTH and earlier != value)):
                raise Malformed("field that must not be repeated")
            values[note] = value
    _check_pseudo(values)
    return Head(values)


def _check_pseudo(values: Sequence[bytes | None]) -> None:
    """R8.3.1, R8.5."""
    if values[METHOD] == b"CONNECT":
        if values[SCHEME] is not None or values[PATH] is not None or not values[AUTHORITY]:
            raise Malformed("CONNECT with other pseudo-header fields than :authority")
    elif not values[METHOD] or not values[SCHEME] or not values[PATH]:
        raise Malformed("missing pseudo-header field")
    host, authority = values[HOST], values[AUTHORITY]
    if host is not None and authority is not None and host != authority:
        raise Malformed("host differs from :authority")


def check_trailers(entries: Sequence[Entry]) -> None:
    """R8.1: trailers carry no pseudo-header fields. Raises `Malformed`."""
    for _, _, note in entries:
        if note.__class__ is str:
            raise Malformed(note)
        if note.__class__ is not Timeout and METHOD <= note <= AUTHORITY:
            raise Malformed("pseudo-header field in trailers")
