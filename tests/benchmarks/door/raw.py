"""A raw HTTP/2 client connection for the load clients: frames in one pass, nothing built that is not needed.

In     what the server sends; every reply is checked
Out    hooks: `ready`, `replied`, `received`, `window_opened`, `failed`, `lost`, `flush`
Holds  a header block is decoded by `hpack` until its bytes are known to leave the table; then bytes compare
Why    the client must cost less than what it measures
"""

from __future__ import annotations

import asyncio
import ssl
import struct
from dataclasses import dataclass
from typing import Final

from hpack import Decoder

from tests.attacks.frames import (
    ACK,
    END_HEADERS,
    GOAWAY,
    HEADERS,
    PING,
    PREFACE,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    frame,
    frame_head,
    u32,
)
from tidb_binlog.errors import Unavailable

WINDOW_MAX: Final = (1 << 31) - 1
_TOP_UP: Final = 1 << 29
_DEFAULT_WINDOW: Final = 65_535
_head = struct.Struct(">LBL").unpack_from
_INITIAL_WINDOW_SIZE: Final = 4
_MAX_FRAME_SIZE: Final = 5
_MAX_CONCURRENT_STREAMS: Final = 3


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """PEM files of a client: the authority, its certificate and key."""

    ca: str
    cert: str
    key: str

    def context(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.load_verify_locations(cafile=self.ca)
        context.load_cert_chain(self.cert, self.key)
        context.set_alpn_protocols(["h2"])
        return context


class RawConnection(asyncio.Protocol):
    """Says hello, tells `ready` when the server's SETTINGS are here. Derived classes send calls."""

    wants_content = False

    def __init__(self) -> None:
        self.transport: asyncio.Transport
        self.stream_window = _DEFAULT_WINDOW  # of a new stream, ours to send
        self.window = _DEFAULT_WINDOW  # of the connection, ours to send
        self.frame_bytes_max = 1 << 14
        self.streams_max = WINDOW_MAX
        self.next_id = 1
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._rest = b""
        self._is_ready = False
        self._unreported = 0
        self._decoder = Decoder()
        self._good_heads: set[bytes] = set()
        self._good_trailers: set[bytes] = set()
        self._to_send: list[bytes] = []

    # Hooks.

    def ready(self) -> None:
        """The server's SETTINGS have arrived."""

    def replied(self, stream: int) -> None:
        """A call ended with status 0."""
        raise NotImplementedError

    def received(self, stream: int, octets: int) -> None:
        """DATA of `octets` came."""

    def content(self, stream: int, data: bytes) -> None:
        """And what it holds, to those with `wants_content`."""

    def window_opened(self, stream: int, octets: int) -> None:
        """May be negative. Stream 0: the connection, whose `window` is already larger; -1: every open one."""

    def failed(self, why: str) -> None:
        """Anything that is not a good reply. The connection is of no use afterwards."""
        if not self.ended.done():
            self.ended.set_exception(Unavailable(why))
        self.transport.abort()

    def lost(self, why: str) -> None:
        if not self.ended.done():
            self.ended.set_exception(Unavailable(why))

    def flush(self) -> None:
        """After each read, when all its frames were looked at."""

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport) or hasattr(transport, "write")
        self.transport = transport  # type: ignore[assignment]
        chosen = transport.get_extra_info("ssl_object")
        if chosen is not None and chosen.selected_alpn_protocol() != "h2":
            self.failed(f"the server chose ALPN {chosen.selected_alpn_protocol()!r}")
            return
        settings = struct.pack(">HLHL", 2, 0, _INITIAL_WINDOW_SIZE, WINDOW_MAX)
        more = WINDOW_MAX - _DEFAULT_WINDOW
        self.transport.write(
            PREFACE + frame(SETTINGS, 0, 0, settings) + frame(WINDOW_UPDATE, 0, 0, u32(more))
        )

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost(f"the connection is lost: {exc or 'closed by the server'}")

    def data_received(self, data: bytes) -> None:
        if self._rest:
            data = self._rest + data
        good_heads, good_trailers = self._good_heads, self._good_trailers
        end = len(data)
        at = 0
        while end - at >= 9:
            length, flags, stream = _head(data, at)
            kind = length & 255
            after = at + 9 + (length >> 8)
            if after > end:
                break
            if kind == 0:
                self._unreported += length >> 8
                self.received(stream, length >> 8)
                if self.wants_content:
                    self.content(stream, data[at + 9 : after])
                if flags & 1:
                    self.failed(f"stream {stream} ended without trailers")
                    return
            elif kind == HEADERS:
                block = data[at + 9 : after]
                if flags == 5:  # END_HEADERS, END_STREAM
                    if block not in good_trailers and not self._is_good(block, good_trailers):
                        return
                    self.replied(stream)
                elif flags != 4 or (block not in good_heads and not self._is_good(block, good_heads)):
                    self.failed(f"HEADERS with flags {flags}: {block!r}")
                    return
            elif not self._control(kind, flags, stream, data[at + 9 : after]):
                return
            at = after
        self._rest = data[at:]
        if self._unreported > _TOP_UP:
            self._to_send.append(frame(WINDOW_UPDATE, 0, 0, u32(self._unreported)))
            self._unreported = 0
        if self._to_send:
            self.transport.write(b"".join(self._to_send))
            self._to_send.clear()
        self.flush()

    def _is_good(self, block: bytes, known: set[bytes]) -> bool:
        """Decode it. Only a block that leaves the table as it is means the same the next time."""
        table = self._decoder.header_table
        inserted_before = list(table.dynamic_entries)
        fields = {str(name): str(value) for name, value in self._decoder.decode(block)}
        if known is self._good_trailers:
            good = fields.get("grpc-status") == "0"
        else:
            good = fields.get(":status") == "200" and "grpc-status" not in fields
        if not good:
            self.failed(f"the server answers {fields}")
            return False
        if list(table.dynamic_entries) != inserted_before:
            self._good_heads.clear()
            self._good_trailers.clear()
        else:
            known.add(block)
        return True

    def _control(self, kind: int, flags: int, stream: int, payload: bytes) -> bool:
        """False when the connection is of no use any more."""
        if kind == WINDOW_UPDATE:
            octets = int.from_bytes(payload, "big")
            if stream == 0:
                self.window += octets
            self.window_opened(stream, octets)
        elif kind == SETTINGS and not flags & ACK:
            for name, value in struct.iter_unpack(">HL", payload):
                if name == _INITIAL_WINDOW_SIZE:
                    if self._is_ready:  # R6.9.2: the streams that are open get the difference
                        self.window_opened(-1, value - self.stream_window)
                    self.stream_window = value
                elif name == _MAX_FRAME_SIZE:
                    self.frame_bytes_max = value
                elif name == _MAX_CONCURRENT_STREAMS:
                    self.streams_max = value
            self.transport.write(frame(SETTINGS, ACK, 0))  # before anything that makes use of them
            if not self._is_ready:
                self._is_ready = True
                self.ready()
        elif kind == PING and not flags & ACK:
            self._to_send.append(frame(PING, ACK, 0, payload))
        elif kind == GOAWAY:
            code = int.from_bytes(payload[4:8], "big")
            self.failed(f"GOAWAY {code} {payload[8:].decode(errors='replace')}")
            return False
        elif kind == RST_STREAM:
            code = int.from_bytes(payload, "big")
            if code:  # 0 after a reply that did not wait for the end of the request
                self.failed(f"stream {stream} was reset, code {code}")
                return False
        return True


def headers_frame(stream: int, block: bytes, flags: int = END_HEADERS) -> bytes:
    return frame_head(len(block) << 8 | HEADERS, flags, stream) + block


async def connect(client: RawConnection, address: str, tls: TlsFiles | None) -> None:
    host, _, port = address.rpartition(":")
    context = tls.context() if tls is not None else None
    loop = asyncio.get_running_loop()
    await loop.create_connection(lambda: client, host, int(port), ssl=context)
