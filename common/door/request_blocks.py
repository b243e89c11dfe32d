"""Request blocks: header blocks of requests, from their frames to what they say (R4.3, R6.10, R10.5.1).

In     HEADERS and CONTINUATION payloads
Out    `Head`; `Malformed`; `ConnectionFault` when the decoder's state is lost or a limit is passed
Why    a block that changes no table means the same until one does: C-core's second and every later block is
       eight octets that are looked up, not decoded
"""

from __future__ import annotations

from typing import Final

from common.door import fields, frames, hpack
from common.door.abuse import Abuse
from common.door.fields import Entry, Head
from common.door.frames import ConnectionFault, StreamFault
from common.door.limits import Limits

_HEADS_MAX: Final = 64
_BLOCK_BYTES_MAX: Final = 1024
_FAR_ABOVE: Final = 4


class RequestBlocks:
    """`open_on`: the stream whose block is not complete, or 0. `heads`: what known blocks say."""

    __slots__ = (
        "_abuse",
        "_decoder",
        "_frames",
        "_limits",
        "_part",
        "ends_stream",
        "heads",
        "open_on",
        "since_s",
    )

    def __init__(self, limits: Limits, abuse: Abuse) -> None:
        self.heads: dict[bytes, Head] = {}
        self.open_on = 0
        self.ends_stream = 0
        self.since_s = 0.0
        self._part = b""
        self._frames = 0
        self._limits = limits
        self._abuse = abuse
        self._decoder = hpack.Decoder(
            fields.annotate,
            table_bytes_max=limits.header_table_bytes,
            list_bytes_max=limits.header_list_bytes_max,
            fields_max=limits.header_fields_max,
        )

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

    def decode(self, block: bytes, now_s: float) -> Head:
        """What a block that is not in `heads` says. Raises `Malformed`, `ConnectionFault`."""
        self._check_size(block)
        decoder = self._decoder
        before = decoder.inserts
        try:
            head = fields.request_head(decoder.decode(block))
        except hpack.CompressionError as error:
            raise ConnectionFault(frames.COMPRESSION_ERROR, f"{error} (R4.3)") from None
        except hpack.ListTooLarge as error:
            self._abuse.refused("header_list_bytes")
            self._abuse.glitch(now_s)
            if error.bytes_total > _FAR_ABOVE * self._limits.header_list_bytes_max:
                raise ConnectionFault(
                    frames.ENHANCE_YOUR_CALM, "header list far too large (R10.5.1)", "header_list_bytes"
                ) from None
            head = Head(fields.TOO_LARGE, too_large=True)
        finally:
            if decoder.inserts != before:
                self.heads.clear()
        if decoder.inserts == before and len(block) <= _BLOCK_BYTES_MAX:
            if len(self.heads) >= _HEADS_MAX:
                self.heads.clear()
            self.heads[block] = head
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
                self.heads.clear()
