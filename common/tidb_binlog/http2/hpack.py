"""HPACK: blocks of header fields to entries and back (RFC 7541, cited as H; RFC 9113 as R).

Out    entries (name, value, note), blocks for the peer
Holds  the entries that the peer had us remember: at most `table_bytes_max` as H4.1 counts. A list above its
       limits is decoded to the end, since later blocks build on it, but nothing of it is kept
Why    a note is made when an entry is made, so that a field seen in every call is judged once. One loop
       without calls for fields that are one octet, as nearly all fields of a known client are
Never  continues after CompressionError: what the peer's encoder believes is unknown from there on (R4.3)
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NoReturn

from tidb_binlog.http2 import huffman

Entry = tuple[bytes, bytes, Any]  # name, value, note
Annotate = Callable[[bytes, bytes], Any]  # called once for each entry made; its result is the note

_Sized = tuple[Entry, int]  # an entry and its size: name and value and 32 (H4.1)

ENTRY_OVERHEAD = 32
TABLE_BYTES = 4096
"""How large a table is until a peer's settings say otherwise (R6.5.2)."""
_INTEGER_MAX = 1 << 32  # no length, index or size comes near (H5.1: limits are ours to set)
_CONTINUATIONS_MAX = 5  # octets after an integer's first, enough for 2^32

# H appendix A: indices 1 to 61.
STATIC: tuple[tuple[bytes, bytes], ...] = (
    (b":authority", b""),
    (b":method", b"GET"),
    (b":method", b"POST"),
    (b":path", b"/"),
    (b":path", b"/index.html"),
    (b":scheme", b"http"),
    (b":scheme", b"https"),
    *((b":status", code) for code in b"200 204 206 304 400 404 500".split()),
    (b"accept-charset", b""),
    (b"accept-encoding", b"gzip, deflate"),
    *(
        (name, b"")
        for name in (
            b"accept-language accept-ranges accept access-control-allow-origin age allow authorization"
            b" cache-control content-disposition content-encoding content-language content-length"
            b" content-location content-range content-type cookie date etag expect expires from host if-match"
            b" if-modified-since if-none-match if-range if-unmodified-since last-modified link location"
            b" max-forwards proxy-authenticate proxy-authorization range referer refresh retry-after server"
            b" set-cookie strict-transport-security transfer-encoding user-agent vary via www-authenticate"
        ).split()
    ),
)
_LAST_STATIC = 61
NEWEST = _LAST_STATIC + 1
"""Index of the entry that was inserted last (H2.3.3)."""
_NAME_INDEX = {name: index for index, (name, _) in reversed(list(enumerate(STATIC, 1)))}


class CompressionError(Exception):
    """The block cannot be decoded and the connection's state is lost: COMPRESSION_ERROR (R4.3)."""


class ListTooLarge(Exception):
    """The list is above a limit. Its block was decoded to the end: the connection may continue (R10.5.1)."""

    def __init__(self, bytes_total: int) -> None:
        super().__init__(f"header list of {bytes_total} bytes")
        self.bytes_total = bytes_total


@lru_cache(maxsize=8)
def _static_entries(annotate: Annotate) -> tuple[_Sized, ...]:
    """Static entries by index, shared by all connections with this `annotate`; index 0 is never read."""
    return tuple(
        ((name, value, annotate(name, value)), len(name) + len(value) + ENTRY_OVERHEAD)
        for name, value in ((b"", b""), *STATIC)
    )


class Decoder:
    """One connection's decoder. `inserts` grows whenever its table changes: while it stands, equal blocks
    decode to equal lists."""

    __slots__ = (
        "_annotate",
        "_dynamic",
        "_fields_max",
        "_list_bytes_max",
        "_static",
        "_table_bytes",
        "_table_bytes_max",
        "_table_bytes_top",
        "inserts",
    )

    def __init__(
        self,
        annotate: Annotate,
        *,
        table_bytes_max: int = TABLE_BYTES,
        list_bytes_max: int = 16384,
        fields_max: int = 100,
    ) -> None:
        self._annotate = annotate
        self._static = _static_entries(annotate)
        self._dynamic: list[_Sized] = []  # newest last: index 62 is [-1] (H2.3.3)
        self._table_bytes = 0
        self._table_bytes_max = table_bytes_max  # as the peer's encoder last set it (H4.2)
        self._table_bytes_top = table_bytes_max  # and as our settings let it
        self._list_bytes_max = list_bytes_max
        self._fields_max = fields_max
        self.inserts = 0

    def limit_table(self, size: int) -> None:
        """The peer has read this setting: its next update is held to it (H4.2). Without one it keeps what it
        has, which no encoder does and which costs no more than the default."""
        self._table_bytes_top = size

    def decode(self, block: bytes) -> list[Entry]:
        """The fields of a whole block, in order."""
        static = self._static
        dynamic = self._dynamic
        bytes_max = self._list_bytes_max
        fields_max = self._fields_max
        fields: list[Entry] = []
        append = fields.append
        end = len(block)
        total = 0
        pos = self._updates(block) if end and 31 < block[0] < 64 else 0
        while pos < end:
            octet = block[pos]
            pos += 1
            if 128 < octet < 255:  # an index within one octet (H6.1)
                if octet < 190:
                    entry, size = static[octet - 128]
                else:
                    try:
                        entry, size = dynamic[189 - octet]
                    except IndexError:
                        raise _past_table(octet - 128) from None
            else:
                entry, size, pos = self._field(block, pos, octet)
            total += size
            # There are no more fields than octets, so that short blocks need no check of the count.
            if total > bytes_max or (pos > fields_max and len(fields) >= fields_max):
                fields.clear()
                self._skim(block, pos, total)
            append(entry)
        return fields

    def _skim(self, block: bytes, pos: int, total: int) -> NoReturn:
        """Decode the rest of a block whose list is too large: for the table, and to find errors."""
        static = self._static
        dynamic = self._dynamic
        end = len(block)
        while pos < end:
            octet = block[pos]
            pos += 1
            if 128 < octet < 190:
                total += static[octet - 128][1]
            elif 189 < octet < 255:
                try:
                    total += dynamic[189 - octet][1]
                except IndexError:
                    raise _past_table(octet - 128) from None
            else:
                _, size, pos = self._field(block, pos, octet, kept=False)
                total += size
        raise ListTooLarge(total)

    def _field(self, block: bytes, pos: int, octet: int, kept: bool = True) -> tuple[Entry, int, int]:
        """The field that starts with `octet`, its size and the position after it. One that is not `kept` for
        its list gets a note only if it goes into the table."""
        if octet == 128:
            raise CompressionError("index 0")  # H6.1
        if octet == 255:  # an index beyond one octet is of the table
            index, pos = _integer(block, pos, 127)
            try:
                return *self._dynamic[_LAST_STATIC - index], pos
            except IndexError:
                raise _past_table(index) from None
        if octet >= 64:  # with indexing (H6.2.1)
            prefix = 63
        elif octet < 32:  # without, never (H6.2.2, H6.2.3)
            prefix = 15
        else:
            raise CompressionError("table size update not at the start of the block")  # H4.2
        index = octet & prefix
        if index == prefix:
            index, pos = _integer(block, pos, prefix)
        if index > _LAST_STATIC:
            try:
                name = self._dynamic[_LAST_STATIC - index][0][0]
            except IndexError:
                raise _past_table(index) from None
        elif index:
            name = STATIC[index - 1][0]
        else:
            name, pos = _string(block, pos)
        value, pos = _string(block, pos)
        size = len(name) + len(value) + ENTRY_OVERHEAD
        entry = (name, value, self._annotate(name, value) if kept or octet >= 64 else None)
        if octet >= 64:
            self._insert(entry, size)
        return entry, size, pos

    def _insert(self, entry: Entry, size: int) -> None:
        """H4.4: what has to go goes first; an entry larger than the table leaves it empty."""
        dynamic = self._dynamic
        held = self._table_bytes
        room = self._table_bytes_max - size
        while held > room and dynamic:
            held -= dynamic.pop(0)[1]
            self.inserts += 1
        if room >= 0:
            dynamic.append((entry, size))
            held += size
            self.inserts += 1
        self._table_bytes = held

    def _updates(self, block: bytes) -> int:
        """Table size updates at the block's start (H6.3): at most two, the least size and the last (H4.2)."""
        pos = 0
        for _ in range(2):
            if pos == len(block) or not 31 < block[pos] < 64:
                break
            size = block[pos] & 31
            pos += 1
            if size == 31:
                size, pos = _integer(block, pos, 31)
            if size > self._table_bytes_top:
                raise CompressionError(f"table size update to {size}, above {self._table_bytes_top}")
            if size != self._table_bytes_max:
                self._table_bytes_max = size
                while self._table_bytes > size:
                    self._table_bytes -= self._dynamic.pop(0)[1]
                self.inserts += 1
        return pos


def _past_table(index: int) -> CompressionError:
    return CompressionError(f"index {index} is past the table")  # H2.3.3


def _integer(block: bytes, pos: int, value: int) -> tuple[int, int]:
    """An integer whose prefix was all ones, `value`, and the position after it (H5.1)."""
    for shift in range(0, 7 * _CONTINUATIONS_MAX, 7):
        if pos == len(block):
            raise CompressionError("block ends within an integer")
        octet = block[pos]
        pos += 1
        value += (octet & 127) << shift
        if octet < 128:
            if value > _INTEGER_MAX:
                break
            return value, pos
    raise CompressionError("integer too large")


def _string(block: bytes, pos: int) -> tuple[bytes, int]:
    """A string literal and the position after it (H5.2)."""
    if pos == len(block):
        raise CompressionError("block ends before a string")
    head = block[pos]
    pos += 1
    length = head & 127
    if length == 127:
        length, pos = _integer(block, pos, 127)
    end = pos + length
    text = block[pos:end]
    if len(text) != length:
        raise CompressionError("block ends within a string")
    if head < 128:
        return text, end
    decoded = huffman.decode(text)
    if decoded is None:
        raise CompressionError("bad Huffman code")
    return decoded, end


def integer(value: int, prefix_bits: int, first: int = 0) -> bytes:
    """H5.1; `first` holds the bits in front of the prefix."""
    prefix = (1 << prefix_bits) - 1
    if value < prefix:
        return bytes((first | value,))
    octets = bytearray((first | prefix,))
    value -= prefix
    while value > 127:
        octets.append(value & 127 | 128)
        value >>= 7
    octets.append(value)
    return bytes(octets)


def _encoded(name: bytes, value: bytes, prefix_bits: int, first: int) -> bytes:
    index = _NAME_INDEX.get(name, 0)
    head = integer(index, prefix_bits, first)
    if not index:
        head += integer(len(name), 7) + name
    return head + integer(len(value), 7) + value


def literal(name: bytes, value: bytes) -> bytes:
    """A field that no table keeps (H6.2.2)."""
    return _encoded(name, value, 4, 0)


def insert(name: bytes, value: bytes) -> bytes:
    """A field that becomes the newest of the peer's table, index 62 (H6.2.1)."""
    return _encoded(name, value, 6, 64)


def indexed(index: int) -> bytes:
    """A field of the peer's table (H6.1)."""
    return integer(index, 7, 128)


def size_update(size: int) -> bytes:
    """A new size of the peer's table, at the start of a block (H6.3)."""
    return integer(size, 5, 32)
