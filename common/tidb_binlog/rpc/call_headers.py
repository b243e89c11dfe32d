"""Call headers: what a client says of its call, and what a reply's header fields say of the outcome (P).

Holds  blocks are encoded in the order in which they are sent (H2.2). A field that may come again is put into
       the peer's table as long as there is room without evicting one: then its index is known by counting
Why    after the first calls a block is a few octets that are made once, and the peer may know it by sight

Tests  tests/common/rpc/test_call_headers.py
"""

from __future__ import annotations

import urllib.parse
from collections.abc import Mapping
from math import ceil
from typing import Final

from tidb_binlog.http2 import hpack
from tidb_binlog.rpc.service import (
    INTERNAL,
    OK,
    PERMISSION_DENIED,
    UNAUTHENTICATED,
    UNAVAILABLE,
    UNIMPLEMENTED,
    UNKNOWN,
)

Field = tuple[bytes, bytes]
Fields = tuple[Field, ...]

_BLOCKS_KEPT: Final = 256
_TIMEOUT_MS_MAX: Final = 99_999_999  # eight digits (P)
_POST: Final = hpack.indexed(3)
_SCHEMES: Final = {False: hpack.indexed(6), True: hpack.indexed(7)}
_GZIP: Final = (b"grpc-encoding", b"gzip")
_ALWAYS: Final = (
    (b"te", b"trailers"),
    (b"content-type", b"application/grpc"),
    (b"grpc-accept-encoding", b"identity,gzip"),
    (b"user-agent", b"grpc-python-tidb-binlog"),
)

# P, "HTTP2 Transport Mapping": of a peer, or of something in between, that does not speak gRPC.
_CODE_OF_HTTP: Final = {
    b"400": INTERNAL,
    b"401": UNAUTHENTICATED,
    b"403": PERMISSION_DENIED,
    b"404": UNIMPLEMENTED,
    b"429": UNAVAILABLE,
    b"502": UNAVAILABLE,
    b"503": UNAVAILABLE,
    b"504": UNAVAILABLE,
}


class RequestBlocks:
    """Encoder of one connection."""

    __slots__ = (
        "_authority",
        "_blocks",
        "_inserted",
        "_positions",
        "_start",
        "_table_bytes",
        "_top",
        "_update",
    )

    def __init__(self, authority: str, *, secure: bool) -> None:
        self._authority = (b":authority", authority.encode())
        self._start = _POST + _SCHEMES[secure]
        self._blocks: dict[tuple[object, ...], bytes] = {}  # that name the table by index alone
        self._positions: dict[Field, int] = {}  # in the order of insertion, from 0
        self._inserted = 0
        self._table_bytes = 0  # of what is inserted, as H4.1 counts
        self._top = hpack.TABLE_BYTES
        self._update = b""

    def resize(self, table_bytes: int) -> None:
        """The peer's SETTINGS_HEADER_TABLE_SIZE; ours is the smaller of it and the default."""
        top = min(table_bytes, hpack.TABLE_BYTES)
        if top == self._top:
            return
        # H4.2: the change is announced at the start of the next block; zero in between empties the table.
        self._update = hpack.size_update(0) + (hpack.size_update(top) if top else b"")
        self._top, self._table_bytes, self._inserted = top, 0, 0
        self._positions.clear()
        self._blocks.clear()

    def block(self, path: str, timeout_s: float | None, *, gzip: bool = False, more: Fields = ()) -> bytes:
        """Of one call to `/service/Method`."""
        timeout = None if timeout_s is None else _timeout(timeout_s)
        key = (path, timeout, gzip, more)
        block = self._blocks.get(key)
        if block is not None:
            return block
        fields = [(b":path", path.encode()), self._authority, *_ALWAYS, *more]
        if timeout is not None:
            fields.append((b"grpc-timeout", timeout))
        if gzip:
            fields.append(_GZIP)
        inserted, update, self._update = self._inserted, self._update, b""
        block = self._start + b"".join([self._field(field) for field in fields])
        if inserted == self._inserted:
            if len(self._blocks) >= _BLOCKS_KEPT:
                self._blocks.clear()
            self._blocks[key] = block
        return update + block

    def _field(self, field: Field) -> bytes:
        position = self._positions.get(field)
        if position is not None:
            return hpack.indexed(hpack.NEWEST + self._inserted - 1 - position)
        size = len(field[0]) + len(field[1]) + hpack.ENTRY_OVERHEAD
        if self._table_bytes + size > self._top:
            return hpack.literal(*field)
        self._table_bytes += size
        self._positions[field] = self._inserted
        self._inserted += 1
        self._blocks.clear()
        return hpack.insert(*field)


def _timeout(seconds: float) -> bytes:
    """grpc-timeout: never shorter than asked for, but where eight digits cannot say it."""
    milliseconds = max(1, ceil(seconds * 1000))
    if milliseconds <= _TIMEOUT_MS_MAX:
        return b"%dm" % milliseconds
    return b"%dS" % min(ceil(seconds), _TIMEOUT_MS_MAX)


def not_grpc(fields: Mapping[bytes, bytes]) -> tuple[int, str] | None:
    """Code and text where the head of a reply is none of gRPC's."""
    status, kind = fields.get(b":status", b""), fields.get(b"content-type", b"")
    if status == b"200" and kind.startswith(b"application/grpc"):
        return None
    code = UNKNOWN if status == b"200" else _CODE_OF_HTTP.get(status, UNKNOWN)
    return code, f"not gRPC: HTTP status {status.decode('latin-1')}, content-type {kind.decode('latin-1')!r}"


def outcome(fields: Mapping[bytes, bytes]) -> tuple[int, str]:
    """Code and text of the fields that end a call."""
    status = fields.get(b"grpc-status", b"")
    if not status.isdigit() or len(status) > 3:
        return UNKNOWN, f"ended without a status: grpc-status is {status.decode('latin-1')!r}"
    text = urllib.parse.unquote(fields.get(b"grpc-message", b"").decode("latin-1"), errors="replace")
    return (OK, "") if int(status) == OK else (int(status), text)
