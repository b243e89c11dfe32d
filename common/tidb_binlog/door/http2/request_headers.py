"""Request headers: header blocks of requests, from their frames to what they say (R4.3, R6.10, R10.5.1).

Out    `Head`; `Malformed`; `ConnectionFault` when the decoder's state is lost or a limit is passed
Why    a block that changes no table means the same until one does: C-core's second and every later block is
       eight octets that are looked up, not decoded
Tests  tests/common/door/http2/test_connection_rules.py
"""

from __future__ import annotations

from typing import Final

from tidb_binlog.door.http2 import header_fields
from tidb_binlog.door.http2.abuse import Abuse
from tidb_binlog.door.http2.header_fields import Entry, Head, Timeout
from tidb_binlog.door.limits import Limits
from tidb_binlog.http2 import frames, hpack
from tidb_binlog.http2.frames import ConnectionFault, StreamFault

_BLOCKS_MAX: Final = 64
_HEADS_MAX: Final = 16
_BLOCK_BYTES_MAX: Final = 1024
_FAR_ABOVE: Final = 4
_GLITCHES_A_LARGE_LIST: Final = 8

_NO_HEAD: Final = Head(header_fields.TOO_LARGE)

Said = tuple[Head, "Timeout | None"]
"""What a block says: the head, and the timeout, which is no part of it."""


class RequestBlocks:
    """`open_on`: the stream whose block is not complete, or 0. `said`: what blocks said, as long as the
    decoder's table stays as it is."""

    __slots__ = (
        "_abuse",
        "_decoder",
        "_frames",
        "_heads",
        "_last_entries",
        "_last_head",
        "_limits",
        "_part",
        "ends_stream",
        "open_on",
        "said",
        "since_s",
    )

    def __init__(self, limits: Limits, abuse: Abuse) -> None:
        self.said: dict[bytes, Said] = {}
        self._heads: dict[tuple[Entry, ...], Head] = {}
        self._last_entries: list[Entry] | None = None
        self._last_head: Head = _NO_HEAD
        self.open_on = 0
        self.ends_stream = 0
        self.since_s = 0.0
        self._part = b""
        self._frames = 0
        self._limits = limits
        self._abuse = abuse
        self._decoder = hpack.Decoder(
            header_fields.annotate,
            table_bytes_max=max(limits.header_table_bytes, hpack.TABLE_BYTES),
            list_bytes_max=limits.header_list_bytes_max,
            fields_max=limits.header_fields_max,
        )

    def acknowledged(self) -> None:
        """The peer knows how large its table may be."""
        self._decoder.limit_table(self._limits.header_table_bytes)

    def begin(self, stream_id: int, part: bytes, ends_stream: int, now_s: float) -> None:
        """HEADERS without END_HEADERS."""
        self.open_on = stream_id
        self.ends_stream = ends_stream
        self.since_s = now_s
        self._part = b""
        self._frames = 0
        self._extend(part)

    def go_on(self, part: bytes, last: bool) -> bytes | None:
        """CONTINUATION; the whole block with the last one."""
        self._frames += 1
        if self._frames > self._limits.continuations_max or not (part or last):
            raise ConnectionFault(frames.ENHANCE_YOUR_CALM, "too many CONTINUATION frames", "continuations")
        self._extend(part)
        if not last:
            return None
        whole, self._part = self._part, b""
        self.open_on = 0
        return whole

    def _extend(self, part: bytes) -> None:
        self._part += part
        self._check_size(self._part)

    def _check_size(self, block: bytes) -> None:
        if len(block) > self._limits.header_block_bytes_max:
            raise ConnectionFault(frames.ENHANCE_YOUR_CALM, "header block too large", "header_block_bytes")

    def is_late(self, now_s: float) -> bool:
        """A block is open for too long."""
        return self.open_on != 0 and now_s - self.since_s >= self._limits.header_block_s

    def decode(self, block: bytes, now_s: float) -> Said:
        """What a block that is not in `said` says. Raises `Malformed`, `ConnectionFault`."""
        self._check_size(block)
        decoder = self._decoder
        before = decoder.inserts
        try:
            entries = decoder.decode(block)
            timeout = None
            if entries and entries[-1][2].__class__ is Timeout:
                # Kept apart: grpc-go sends another one with each call, and the other fields stay.
                timeout = entries.pop()[2]
            if entries == self._last_entries:  # the same objects: quicker than to hash them
                said = self._last_head, timeout
            else:
                said = self._read(entries, timeout, keep=len(block) <= _BLOCK_BYTES_MAX)
        except hpack.CompressionError as error:
            raise ConnectionFault(frames.COMPRESSION_ERROR, f"{error} (R4.3)") from None
        except hpack.ListTooLarge as error:
            self._abuse.refused("header_list_bytes")
            for _ in range(_GLITCHES_A_LARGE_LIST):  # it takes as long as so many frames
                self._abuse.glitch(now_s)
            if error.bytes_total > _FAR_ABOVE * self._limits.header_list_bytes_max:
                raise ConnectionFault(
                    frames.ENHANCE_YOUR_CALM, "header list far too large (R10.5.1)", "header_list_bytes"
                ) from None
            said = Head(header_fields.TOO_LARGE, too_large=True), None
        finally:
            if decoder.inserts != before:
                self.said.clear()
        if decoder.inserts == before and len(block) <= _BLOCK_BYTES_MAX:
            if len(self.said) >= _BLOCKS_MAX:
                self.said.clear()
            self.said[block] = said
        return said

    def _read(self, entries: list[Entry], timeout: Timeout | None, *, keep: bool) -> Said:
        """The head that these fields make, kept for the next request with the same ones if they are small. A
        timeout may stand anywhere after the pseudo-header fields."""
        self._last_entries = None
        if timeout is None:
            for at, entry in enumerate(entries):
                if entry[2].__class__ is Timeout:
                    if not any(name[:1] == b":" for name, _, _ in entries[at:]):
                        timeout = entries.pop(at)[2]
                    break
        if not keep:
            return header_fields.request_head(entries), timeout
        self._last_head = self._head(entries)
        self._last_entries = entries
        return self._last_head, timeout

    def _head(self, entries: list[Entry]) -> Head:
        key = tuple(entries)
        head = self._heads.get(key)
        if head is None:
            head = header_fields.request_head(entries)
            if len(self._heads) >= _HEADS_MAX:
                self._heads.clear()
            self._heads[key] = head
        return head

    def trailers(self, block: bytes) -> list[Entry]:
        """Raises `ConnectionFault`, `StreamFault`."""
        self._check_size(block)
        before = self._decoder.inserts
        try:
            return self._decoder.decode(block)
        except hpack.CompressionError as error:
            raise ConnectionFault(frames.COMPRESSION_ERROR, f"{error} (R4.3)") from None
        except hpack.ListTooLarge:
            raise StreamFault(frames.PROTOCOL_ERROR, "trailers too large (R10.5.1)") from None
        finally:
            if self._decoder.inserts != before:
                self.said.clear()
