"""Message framing: gRPC's (P), and what a bad one is answered with.

    flag (8): 1 if compressed | length (32, big-endian) | payload

Cut anywhere by DATA frames. Nothing is allocated from the length that a peer claims: a message grows as its
octets come, and one that would be too large is refused from its prefix alone.
"""

from __future__ import annotations

import zlib
from struct import Struct
from typing import Final

from tidb_binlog.rpc.service import INTERNAL, RESOURCE_EXHAUSTED, RpcStatus

PREFIX: Final = Struct(">BL")
PREFIX_BYTES: Final = 5
VIEW_BYTES: Final = 1 << 20
"""From this size on a message is handed on as a view of what was collected: a copy would double it."""

INFLATE_STEP_BYTES: Final = 1 << 20
RATIO_FREE_BYTES: Final = 4 << 20
_PACKED_PIECE_BYTES: Final = 1 << 16
_GZIP_WINDOW: Final = 31  # zlib: gzip framing, largest window

Message = tuple[int, "bytes | memoryview"]


class MessageReader:
    """Puts messages together. `held`: octets of the unfinished one."""

    __slots__ = ("_body", "_bytes_max", "_flag", "_left", "_prefix", "held")

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._prefix = b""
        self._body: bytearray | None = None
        self._flag = 0
        self._left = 0
        self.held = 0

    @property
    def inside(self) -> bool:
        """A message has begun and is not complete."""
        return self._body is not None or bool(self._prefix)

    @property
    def left(self) -> int:
        """Octets that the message under way still needs."""
        return self._left

    def feed(self, buffer: bytes, start: int, stop: int) -> list[Message]:
        """Messages that are complete with `buffer[start:stop]`. Raises `RpcStatus`."""
        messages: list[Message] = []
        while start < stop or (self._body is not None and not self._left):
            if self._body is not None:
                taken = min(self._left, stop - start)
                self._body += memoryview(buffer)[start : start + taken]
                start += taken
                self._left -= taken
                self.held += taken
                if not self._left:
                    messages.append(self._complete())
                continue
            missing = PREFIX_BYTES - len(self._prefix)
            if stop - start < missing:
                self._prefix += buffer[start:stop]
                break
            flag, size = PREFIX.unpack(self._prefix + buffer[start : start + missing])
            self._prefix = b""
            start += missing
            self._check(flag, size)
            if stop - start >= size:
                messages.append((flag, buffer[start : start + size]))
                start += size
            else:
                self._flag, self._left, self._body = flag, size, bytearray()
        return messages

    def _check(self, flag: int, size: int) -> None:
        if flag > 1:
            raise RpcStatus(INTERNAL, f"message flag {flag} is not known")
        if size > self._bytes_max:
            raise too_large(size, self._bytes_max)

    def _complete(self) -> Message:
        assert self._body is not None
        body, self._body = self._body, None
        self.held = 0
        return self._flag, memoryview(body) if len(body) >= VIEW_BYTES else bytes(body)


def too_large(size: int, bytes_max: int) -> RpcStatus:
    """Go's words: old clients match on them."""
    return RpcStatus(RESOURCE_EXHAUSTED, f"grpc: received message larger than max ({size} vs. {bytes_max})")


class Inflater:
    """Unpacks one gzip message in steps, never beyond its limits (a bomb of 1 MiB may hold 1 GiB)."""

    __slots__ = ("_bytes_max", "_packed", "_position", "_rest", "_unpacked", "_zlib")

    def __init__(self, data: bytes | memoryview, bytes_max: int, ratio_max: int) -> None:
        self._zlib = zlib.decompressobj(_GZIP_WINDOW)
        self._packed = memoryview(data)
        self._position = 0
        self._rest: bytes | memoryview = b""
        self._unpacked = bytearray()
        self._bytes_max = min(bytes_max, max(RATIO_FREE_BYTES, ratio_max * len(data)))

    def step(self) -> bool:
        """Unpack about `INFLATE_STEP_BYTES`; True when all is unpacked. Raises `RpcStatus`."""
        if not self._rest:
            # Piece by piece: zlib copies what it leaves over, which would be all the rest each time.
            self._rest = self._packed[self._position : self._position + _PACKED_PIECE_BYTES]
            self._position += len(self._rest)
        try:
            unpacked = self._zlib.decompress(self._rest, INFLATE_STEP_BYTES)
        except zlib.error as error:
            raise RpcStatus(INTERNAL, f"gzip message cannot be unpacked: {error}") from None
        self._unpacked += unpacked
        self._rest = self._zlib.unconsumed_tail
        all_given = not self._rest and self._position == len(self._packed)
        if len(self._unpacked) > self._bytes_max:
            raise too_large(len(self._unpacked), self._bytes_max)
        if self._zlib.eof:
            # As C-core: what follows must not be lost in silence.
            if self._zlib.unused_data or self._position < len(self._packed):
                raise RpcStatus(INTERNAL, "octets after the end of a gzip message")
            return True
        if all_given and len(unpacked) < INFLATE_STEP_BYTES:
            raise RpcStatus(INTERNAL, "gzip message ends early")
        return False

    def result(self) -> bytes | memoryview:
        unpacked = self._unpacked
        return memoryview(unpacked) if len(unpacked) >= VIEW_BYTES else bytes(unpacked)


def deflate(message: bytes | memoryview) -> bytes:
    """A gzip message, quick rather than small."""
    packer = zlib.compressobj(1, zlib.DEFLATED, _GZIP_WINDOW)
    return packer.compress(message) + packer.flush()
