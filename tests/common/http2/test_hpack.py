"""HPACK: the RFC's examples, each rule by its section, hostile blocks, the hpack library as oracle.

H = RFC 7541, R = RFC 9113.
"""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import hpack as oracle
import pytest
from hpack.huffman import HuffmanEncoder
from hpack.huffman_constants import REQUEST_CODES, REQUEST_CODES_LENGTH
from hpack.huffman_table import decode_huffman
from hypothesis import given, settings
from hypothesis import strategies as st

from tidb_binlog.http2 import huffman
from tidb_binlog.http2.hpack import (
    STATIC,
    CompressionError,
    Decoder,
    ListTooLarge,
    indexed,
    insert,
    integer,
    literal,
    size_update,
)

Field = tuple[bytes, bytes]
_HUFFMAN = HuffmanEncoder(REQUEST_CODES, REQUEST_CODES_LENGTH)
coded: Callable[[bytes], bytes] = _HUFFMAN.encode


def literal_never(name: bytes, value: bytes) -> bytes:
    """A field that no table on the way may keep (H6.2.3)."""
    block = literal(name, value)
    return bytes((block[0] | 0x10,)) + block[1:]


def no_note(name: bytes, value: bytes) -> None:
    return None


def decoder(**limits: int) -> Decoder:
    return Decoder(no_note, **limits)


def fields(entries: list[tuple[bytes, bytes, Any]]) -> list[Field]:
    return [(name, value) for name, value, _ in entries]


def remembered(of: Decoder) -> list[Field]:
    """The dynamic table, newest first, as later blocks see it."""
    found: list[Field] = []
    while True:
        try:
            found += fields(of.decode(indexed(62 + len(found))))
        except CompressionError:
            return found


def size(table: list[Field]) -> int:
    return sum(len(name) + len(value) + 32 for name, value in table)


def bits(text: str) -> bytes:
    return bytes.fromhex(text)


# --- Appendix C


@pytest.mark.parametrize(
    ("value", "prefix", "first", "octets"),
    [(10, 5, 0, "0a"), (1337, 5, 0, "1f9a0a"), (42, 8, 0, "2a"), (31, 5, 32, "3f00"), (127, 7, 128, "ff00")],
)
def test_c1_integers(value: int, prefix: int, first: int, octets: str) -> None:
    assert integer(value, prefix, first) == bits(octets)


@pytest.mark.parametrize(
    ("block", "field", "kept"),
    [
        ("400a637573746f6d2d6b65790d637573746f6d2d686561646572", (b"custom-key", b"custom-header"), True),
        ("040c2f73616d706c652f70617468", (b":path", b"/sample/path"), False),
        ("100870617373776f726406736563726574", (b"password", b"secret"), False),
        ("82", (b":method", b"GET"), False),
    ],
)
def test_c2_fields(block: str, field: Field, kept: bool) -> None:
    decoding = decoder()
    assert fields(decoding.decode(bits(block))) == [field]
    assert remembered(decoding) == [field] * kept


GET = [(b":method", b"GET"), (b":scheme", b"http"), (b":path", b"/"), (b":authority", b"www.example.com")]
REQUESTS = [
    GET,
    [*GET, (b"cache-control", b"no-cache")],
    [
        (b":method", b"GET"),
        (b":scheme", b"https"),
        (b":path", b"/index.html"),
        (b":authority", b"www.example.com"),
        (b"custom-key", b"custom-value"),
    ],
]
DATE = (b"date", b"Mon, 21 Oct 2013 20:13:21 GMT")
LATER = (b"date", b"Mon, 21 Oct 2013 20:13:22 GMT")
PRIVATE = (b"cache-control", b"private")
LOCATION = (b"location", b"https://www.example.com")
GZIP = (b"content-encoding", b"gzip")
COOKIE = (b"set-cookie", b"foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1")
RESPONSES = [
    [(b":status", b"302"), PRIVATE, DATE, LOCATION],
    [(b":status", b"307"), PRIVATE, DATE, LOCATION],
    [(b":status", b"200"), PRIVATE, LATER, LOCATION, GZIP, COOKIE],
]
REQUEST_TABLES = [
    [(b":authority", b"www.example.com")],
    [(b"cache-control", b"no-cache"), (b":authority", b"www.example.com")],
    [
        (b"custom-key", b"custom-value"),
        (b"cache-control", b"no-cache"),
        (b":authority", b"www.example.com"),
    ],
]
RESPONSE_TABLES = [
    [LOCATION, DATE, PRIVATE, (b":status", b"302")],
    [(b":status", b"307"), LOCATION, DATE, PRIVATE],
    [COOKIE, GZIP, LATER],
]
C3 = (
    "828684410f7777772e6578616d706c652e636f6d",
    "828684be58086e6f2d6361636865",
    "828785bf400a637573746f6d2d6b65790c637573746f6d2d76616c7565",
)
C4 = (
    "828684418cf1e3c2e5f23a6ba0ab90f4ff",
    "828684be5886a8eb10649cbf",
    "828785bf408825a849e95ba97d7f8925a849e95bb8e8b4bf",
)
C5 = (
    "4803333032580770726976617465611d4d6f6e2c203231204f637420323031332032303a31333a323120474d54"
    "6e1768747470733a2f2f7777772e6578616d706c652e636f6d",
    "4803333037c1c0bf",
    "88c1611d4d6f6e2c203231204f637420323031332032303a31333a323220474d54c05a04677a69707738666f6f3d"
    "4153444a4b48514b425a584f5157454f50495541585157454f49553b206d61782d6167653d333630303b2076657273696f6e3d31",
)
C6 = (
    "488264025885aec3771a4b6196d07abe941054d444a8200595040b8166e082a62d1bff6e919d29ad171863c78f0b97c8e9ae82ae43d3",
    "4883640effc1c0bf",
    "88c16196d07abe941054d444a8200595040b8166e084a62d1bffc05a839bd9ab77ad94e7821dd7f2e6c7b335dfdfcd5b"
    "3960d5af27087f3672c1ab270fb5291f9587316065c003ed4ee5b1063d5007",
)


@pytest.mark.parametrize(
    ("blocks", "lists", "tables", "sizes", "table_bytes"),
    [
        pytest.param(C3, REQUESTS, REQUEST_TABLES, (57, 110, 164), 4096, id="C.3 requests"),
        pytest.param(C4, REQUESTS, REQUEST_TABLES, (57, 110, 164), 4096, id="C.4 requests, Huffman"),
        pytest.param(C5, RESPONSES, RESPONSE_TABLES, (222, 222, 215), 256, id="C.5 responses"),
        pytest.param(C6, RESPONSES, RESPONSE_TABLES, (222, 222, 215), 256, id="C.6 responses, Huffman"),
    ],
)
def test_c3_to_c6_sequences(
    blocks: tuple[str, ...],
    lists: list[list[Field]],
    tables: list[list[Field]],
    sizes: tuple[int, ...],
    table_bytes: int,
) -> None:
    decoding = decoder(table_bytes_max=table_bytes)
    for block, expected, table, bytes_held in zip(blocks, lists, tables, sizes, strict=True):
        assert fields(decoding.decode(bits(block))) == expected
        assert remembered(decoding) == table
        assert size(table) == bytes_held


# --- Rules by section


def test_static_table_is_the_oracle_s() -> None:
    """H appendix A."""
    assert len(STATIC) == 61
    for index, field in enumerate(STATIC, 1):
        assert fields(decoder().decode(indexed(index))) == [field]
        assert oracle.Decoder().decode(indexed(index), raw=True) == [field]


K = (b"k", b"v")
REFUSED = [
    ("H6.1 index 0", indexed(0), "index 0"),
    ("H2.3.3 index past the table", indexed(63), "past the table"),
    ("H2.3.3 index past the table, long", indexed(4000), "past the table"),
    ("H2.3.3 name index past the table", b"\x7f\x01\x01v", "past the table"),
    ("H2.3.3 name index past the table, not indexed", b"\x0f\x31\x01v", "past the table"),
    ("H5.1 value too large", b"\xff" + b"\xff" * 4 + b"\x7f", "integer too large"),
    ("H5.1 too many octets", b"\xff" + b"\x80" * 5 + b"\0", "integer too large"),
    ("H5.1 index is cut", b"\xff", "ends within an integer"),
    ("H5.1 index is cut later", b"\xff\x80", "ends within an integer"),
    ("H5.1 length is cut", b"\0\x7f", "ends within an integer"),
    ("H5.2 name is missing", b"\x40", "ends before a string"),
    ("H5.2 name is cut", b"\x40\x03ab", "ends within a string"),
    ("H5.2 value is missing", b"\x40\x01a", "ends before a string"),
    ("H5.2 value is cut", b"\x41\x03ab", "ends within a string"),
    ("H5.2 value of 4 GiB is cut", b"\x41" + integer(2**32, 7), "ends within a string"),
    ("H5.2 padding of 8 bits", b"\x41\x81\xff", "Huffman"),
    ("H5.2 padding of 8 bits after a symbol", b"\x41\x82\x1f\xff", "Huffman"),
    ("H5.2 padding of zeros", b"\x41\x81\x18", "Huffman"),
    ("H5.2 padding of ones and a zero", b"\x41\x81\x1e", "Huffman"),
    ("H5.2 EOS", b"\x41\x84\xff\xff\xff\xff", "Huffman"),
    ("H5.2 EOS before symbols", b"\x41\x85\xff\xff\xff\xfc\x7f", "Huffman"),
    ("H5.2 EOS in a name", b"\x40\x84\xff\xff\xff\xff\x01v", "Huffman"),
    ("H5.2 EOS in a value that nothing keeps", b"\x11\x84\xff\xff\xff\xff", "Huffman"),
    ("H6.3 above the setting", size_update(4097), "above 4096"),
    ("H4.2 after a field", indexed(2) + size_update(0), "not at the start"),
    ("H4.2 third", size_update(0) * 3, "not at the start"),
    ("H6.3 cut", b"\x3f", "ends within an integer"),
]


@pytest.mark.parametrize(("block", "reason"), [pytest.param(b, r, id=i) for i, b, r in REFUSED])
def test_refused(block: bytes, reason: str) -> None:
    prime = insert(*K)
    for before in (b"", indexed(2)):
        if before and block[0] & 0xE0 == 0x20:
            continue
        decoding = decoder()
        decoding.decode(prime)
        with pytest.raises(CompressionError, match=reason):
            decoding.decode(before + block)
        # the same after a list that is too large (R10.5.1)
        decoding = decoder(list_bytes_max=64)
        decoding.decode(prime)
        if block[0] & 0xE0 != 0x20:
            with pytest.raises(CompressionError, match=reason):
                decoding.decode(indexed(2) * 3 + block)


def test_h5_1_padded_integer_is_read() -> None:
    assert fields(decoder().decode(b"\x41\x7f\x80\x80\x80\x80\x00" + b"v" * 127)) == [
        (b":authority", b"v" * 127)
    ]


def test_h5_2_empty_strings() -> None:
    assert fields(decoder().decode(b"\0\0\0" + b"\0\x80\x80")) == [(b"", b"")] * 2
    assert decoder().decode(b"") == []


def test_h6_2_names_by_index() -> None:
    decoding = decoder()
    decoding.decode(insert(*K))
    block = b"\x7e\x01w" + b"\x0f\x30\x01x" + b"\x1f\x2f\x01y" + b"\x0f\x01\x01z"
    assert fields(decoding.decode(block)) == [
        (b"k", b"w"),
        (b"k", b"x"),
        (b"k", b"y"),
        (STATIC[15][0], b"z"),
    ]
    assert remembered(decoding) == [(b"k", b"w"), K]


def test_h4_1_entries_may_fill_the_table() -> None:
    decoding = decoder(table_bytes_max=64)
    decoding.decode(insert(b"n", b"v" * 31))
    assert len(remembered(decoding)) == 1
    decoding = decoder(table_bytes_max=2 * 34)
    decoding.decode(insert(*K) * 2)
    assert remembered(decoding) == [K, K]
    decoding.decode(insert(*K))
    assert remembered(decoding) == [K, K]


def test_h4_4_entry_larger_than_the_table_empties_it() -> None:
    decoding = decoder(table_bytes_max=64)
    decoding.decode(insert(*K))
    assert fields(decoding.decode(insert(b"n", b"v" * 32))) == [(b"n", b"v" * 32)]
    assert remembered(decoding) == []


def test_h4_4_name_of_the_entry_that_goes() -> None:
    decoding = decoder(table_bytes_max=64)
    decoding.decode(insert(b"name", b"old"))
    assert fields(decoding.decode(b"\x7e\x03new")) == [(b"name", b"new")]
    assert remembered(decoding) == [(b"name", b"new")]


def test_h4_3_size_updates_evict() -> None:
    decoding = decoder()
    for number in range(4):
        decoding.decode(insert(b"k", b"%d" % number))
    decoding.decode(size_update(70))
    assert remembered(decoding) == [(b"k", b"3"), (b"k", b"2")]
    decoding.decode(insert(b"k", b"4"))
    assert remembered(decoding) == [(b"k", b"4"), (b"k", b"3")]
    # H4.2: first the least, then the last size
    assert fields(decoding.decode(size_update(0) + size_update(4096) + insert(*K))) == [K]
    assert remembered(decoding) == [K]


def test_indices_of_more_than_one_octet() -> None:
    decoding = decoder()
    for number in range(100):
        decoding.decode(insert(b"", b"%03d" % number))
    assert remembered(decoding) == [(b"", b"%03d" % number) for number in reversed(range(100))]


def test_inserts_grows_with_each_change_of_the_table() -> None:
    decoding = decoder(table_bytes_max=100)
    assert decoding.inserts == 0

    def changes(block: bytes) -> int:
        before = decoding.inserts
        decoding.decode(block)
        return decoding.inserts - before

    assert changes(b"") == 0
    assert changes(indexed(2) + literal(*K) + literal_never(*K)) == 0
    assert changes(insert(b"n", b"v" * 100)) == 0  # empties an empty table
    assert changes(insert(*K)) == 1
    assert changes(indexed(62)) == 0
    assert changes(size_update(100)) == 0  # to what it is
    assert changes(insert(b"n", b"v" * 100)) == 1  # empties it
    assert changes(insert(*K)) == 1
    assert changes(size_update(90)) == 1  # holds all, but later inserts will not
    assert changes(size_update(0) + size_update(90)) == 2
    assert remembered(decoding) == []
    decoding.decode(insert(*K))
    before = decoding.inserts
    with pytest.raises(CompressionError):
        decoding.decode(insert(*K) + indexed(0))
    assert decoding.inserts > before


# --- Notes


def test_annotate_is_called_once_for_each_entry() -> None:
    made: list[Field] = []

    def annotate(name: bytes, value: bytes) -> int:
        made.append((name, value))
        return len(made)

    decoding = Decoder(annotate)
    Decoder(annotate)
    assert len(made) <= 62  # static entries, shared
    assert made[-61:] == list(STATIC)
    made.clear()
    assert decoding.decode(indexed(2) * 2 + insert(*K) + indexed(62) * 2)[2:] == [(*K, 1)] * 3
    assert made == [K]
    assert decoding.decode(indexed(62)) == [(*K, 1)]
    assert decoding.decode(literal(*K) + literal_never(*K)) == [(*K, 2), (*K, 3)]
    assert made == [K, K, K]
    assert decoding.decode(indexed(2))[0] is Decoder(annotate).decode(indexed(2))[0]


def test_annotate_s_own_index_error_is_not_the_peer_s_fault() -> None:
    def annotate(name: bytes, value: bytes) -> None:
        if name == b"k":
            raise IndexError

    with pytest.raises(IndexError):
        Decoder(annotate).decode(insert(*K))


# --- Lists above their limits (R10.5.1)


def test_list_limits_are_inclusive() -> None:
    block = literal(b"n", b"v" * 31) * 2
    assert len(decoder(list_bytes_max=128).decode(block)) == 2
    with pytest.raises(ListTooLarge) as caught:
        decoder(list_bytes_max=127).decode(block)
    assert caught.value.bytes_total == 128
    assert len(decoder(fields_max=3).decode(indexed(2) * 3)) == 3
    with pytest.raises(ListTooLarge) as caught:
        decoder(fields_max=3).decode(indexed(2) * 4)
    assert caught.value.bytes_total == 4 * 42


def test_fields_are_counted_behind_literals() -> None:
    block = literal(b"n", b"v" * 40) + indexed(2) * 2
    assert len(decoder(fields_max=3).decode(block)) == 3
    with pytest.raises(ListTooLarge):
        decoder(fields_max=2).decode(block)


def test_state_survives_a_list_that_is_too_large() -> None:
    block = insert(b"a", b"1") + indexed(2) * 9 + insert(b"b", b"2") + literal(b"c", b"3") + indexed(62)
    block += indexed(1)
    limited, free = decoder(fields_max=3), decoder()
    with pytest.raises(ListTooLarge) as caught:
        limited.decode(block)
    listed = fields(free.decode(block))
    assert caught.value.bytes_total == size(listed)
    assert remembered(limited) == remembered(free) == [(b"b", b"2"), (b"a", b"1")]
    assert limited.inserts == free.inserts


@pytest.mark.parametrize("before", [b"", indexed(2) * 2], ids=["list", "beyond the limit"])
def test_an_index_that_is_not_there_is_named(before: bytes) -> None:
    with pytest.raises(CompressionError, match=r"\b63\b"):
        decoder(fields_max=1).decode(before + indexed(63))


def test_literals_beyond_the_limit_get_no_note_unless_kept() -> None:
    made: list[Field] = []
    decoding = Decoder(lambda name, value: made.append((name, value)), fields_max=1)
    made.clear()
    with pytest.raises(ListTooLarge):
        decoding.decode(indexed(2) * 2 + literal(b"a", b"1") + insert(b"b", b"2"))
    assert made == [(b"b", b"2")]


@contextmanager
def cheap(peak_bytes: int, seconds: float = 1.0) -> Iterator[None]:
    """Seconds of CPU, and generous: what this is against costs many times as much."""
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        start_s = time.thread_time()
        yield
        assert time.thread_time() - start_s < seconds
        assert tracemalloc.get_traced_memory()[1] - before < peak_bytes
    finally:
        tracemalloc.stop()


def test_bomb_costs_no_memory() -> None:
    decoding = decoder()
    decoding.decode(insert(b"bomb", b"v" * 3900))
    block = indexed(62) * 16_000
    with cheap(8 << 10), pytest.raises(ListTooLarge) as caught:
        decoding.decode(block)
    assert caught.value.bytes_total == 16_000 * (4 + 3900 + 32)
    assert len(decoding.decode(indexed(62))) == 1


HOSTILE = {
    "shortest literals": b"\x11\0" * 16_000,
    "shortest inserts": b"\x40\0\0" * 10_000,
    "new literals": b"".join(insert(b"k%d" % number, b"v" * 10) for number in range(1900)),
    "one long string": literal(b"k", b"v" * 32_000),
    "one long Huffman string": b"\0\x01k\xff" + integer(32_000, 7)[1:] + b"\x1f" * 32_000,
    "Huffman names and values": (b"\x40" + b"\x85\x1f\x1f\x1f\x1f\x1f" * 2) * 2_400,
    "evictions": (insert(b"", b"") * 127 + insert(b"a", b"b" * 4000)) * 7,
    "size updates": size_update(0) + size_update(4096) + indexed(2) * 16_000,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_block_is_cheap(name: str) -> None:
    block = HOSTILE[name]
    huffman.decode(b"\x1f" * 100)
    with cheap(512 << 10), pytest.raises(ListTooLarge):
        decoder().decode(block)


def test_table_stays_within_its_size() -> None:
    decoding = decoder()
    for number in range(300):
        decoding.decode(insert(b"key%d" % number, b"v" * (number % 90)))
        if not number % 10:
            table = remembered(decoding)
            assert size(table) <= 4096
            assert number < 100 or size(table) > 4096 - 128


def test_idle_decoder_is_small() -> None:
    decoder()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        idle = [decoder() for _ in range(1000)]
        assert (tracemalloc.get_traced_memory()[0] - before) / len(idle) < 256
    finally:
        tracemalloc.stop()


# --- Huffman (H5.2, appendix B)


def test_huffman_every_octet() -> None:
    for octet in range(256):
        for text in (bytes((octet,)), bytes((octet,)) * 7, b"a" + bytes((octet, 255 - octet)) + b"0"):
            assert huffman.decode(coded(text)) == text
    everything = bytes(range(256)) + bytes(range(255, -1, -1))
    assert huffman.decode(coded(everything)) == everything
    assert huffman.decode(b"") == b""


@given(st.binary(max_size=60))
def test_huffman_round_trip(text: bytes) -> None:
    assert huffman.decode(coded(text)) == text


@given(
    st.one_of(st.binary(max_size=30), st.lists(st.sampled_from((0xFF, 0xFE, 0x1F, 0)), max_size=9).map(bytes))
)
def test_huffman_any_octets(octets: bytes) -> None:
    try:
        expected = decode_huffman(octets)
    except oracle.HPACKDecodingError:
        expected = None
    assert huffman.decode(octets) == expected


# --- The oracle

NAMES = st.sampled_from((b":path", b":status", b"te", b"content-type", b"grpc-timeout", b"x", b"y-bin", b""))
VALUES = st.one_of(
    st.sampled_from(
        (b"", b"/", b"200", b"trailers", b"application/grpc", b"v" * 60, b"w" * 130, b"x" * 4100)
    ),
    st.binary(max_size=20),
)
FIELDS = st.tuples(st.one_of(NAMES, st.binary(max_size=8)), VALUES, st.booleans())
SIZES = st.lists(st.sampled_from((0, 31, 33, 100, 300, 4095, 4096)), max_size=2, unique=True)
BLOCKS = st.tuples(st.lists(FIELDS, max_size=12), st.booleans(), SIZES)


def encode(encoder: oracle.Encoder, block: tuple[list[tuple[bytes, bytes, bool]], bool, list[int]]) -> bytes:
    listed, with_huffman, sizes = block
    for table_bytes in sizes:
        encoder.header_table_size = table_bytes
    return encoder.encode(listed, huffman=with_huffman)


@given(st.lists(BLOCKS, max_size=8))
def test_oracle_s_blocks_decode_equal(blocks: list[Any]) -> None:
    encoder, decoding = oracle.Encoder(), decoder(list_bytes_max=1 << 20)
    for block in blocks:
        listed = [(name, value) for name, value, _ in block[0]]
        assert fields(decoding.decode(encode(encoder, block))) == listed
    assert remembered(decoding) == [tuple(entry) for entry in encoder.header_table.dynamic_entries]


@given(st.lists(FIELDS, min_size=1, max_size=6), st.booleans())
@settings(max_examples=50)
def test_every_truncation(listed: list[tuple[bytes, bytes, bool]], with_huffman: bool) -> None:
    encoder = oracle.Encoder()
    prime = encoder.encode([(b"te", b"trailers"), (b"x", b"y")])
    pieces = [encoder.encode([field], huffman=with_huffman) for field in listed]
    block = b"".join(pieces)
    ends = [0]
    for piece in pieces:
        ends.append(ends[-1] + len(piece))
    # within a long string one cut is as good as another
    cuts = {cut for a, b in pairwise(ends) for cut in (*range(a, min(b, a + 40)), b - 1)} | {len(block)}
    for cut in cuts:
        decoding = decoder(list_bytes_max=1 << 20)
        decoding.decode(prime)
        if cut in ends:
            assert fields(decoding.decode(block[:cut])) == [
                (name, value) for name, value, _ in listed[: ends.index(cut)]
            ]
        else:
            with pytest.raises(CompressionError, match="block ends"):
                decoding.decode(block[:cut])


PIECES = st.one_of(
    st.binary(max_size=6),
    st.integers(60, 66).map(indexed),
    st.integers(0, 4100).map(indexed),
    st.sampled_from((0, 40, 100, 4096, 4097)).map(size_update),
    st.builds(lambda make, name, value: make(name, value), st.sampled_from((insert, literal)), NAMES, VALUES),
    st.builds(
        lambda octet, text: bytes((octet, len(text) | 128)) + text, st.integers(1, 127), st.binary(max_size=5)
    ),
    st.builds(
        lambda octet, text: bytes((octet, len(coded(text)) | 128)) + coded(text),
        st.integers(1, 127),
        st.binary(max_size=6),
    ),
)
ANY_BLOCKS = st.lists(
    st.one_of(st.lists(PIECES, max_size=8).map(b"".join), st.binary(max_size=80)), max_size=5
)
STRICTER = ("integer too large", "table size update not at the start of the block")  # than the oracle


def verdict(decoding: Decoder, block: bytes) -> list[Field] | CompressionError | ListTooLarge:
    try:
        return fields(decoding.decode(block))
    except (CompressionError, ListTooLarge) as error:
        return error


def oracle_verdict(decoding: oracle.Decoder, block: bytes) -> list[Field] | oracle.HPACKDecodingError:
    try:
        return [(name, value) for name, value in decoding.decode(block, raw=True)]
    except oracle.HPACKDecodingError as error:
        return error


@given(ANY_BLOCKS, st.sampled_from((200, 5000, 1 << 20)))
@settings(max_examples=300)
def test_any_octets(blocks: list[bytes], list_bytes_max: int) -> None:
    decoding = decoder(list_bytes_max=list_bytes_max, fields_max=1 << 20)
    second = oracle.Decoder(max_header_list_size=list_bytes_max)
    for block in blocks:
        ours, theirs = verdict(decoding, block), oracle_verdict(second, block)
        if isinstance(ours, ListTooLarge):
            assert isinstance(theirs, oracle.OversizedHeaderListError)
            assert ours.bytes_total > list_bytes_max
            return  # the oracle has lost its state
        if isinstance(ours, CompressionError):
            # The oracle stops at the limit, and so before some errors.
            assert isinstance(theirs, oracle.HPACKDecodingError) or str(ours) in STRICTER
            return
        assert ours == theirs
        assert size(remembered(decoding)) <= 4096


@given(st.lists(BLOCKS, min_size=1, max_size=4), st.data())
def test_damaged_blocks(blocks: list[Any], data: st.DataObject) -> None:
    encoder, decoding = oracle.Encoder(), decoder()
    for block in blocks:
        octets = bytearray(encode(encoder, block))
        if octets:
            octets[data.draw(st.integers(0, len(octets) - 1))] ^= data.draw(st.integers(1, 255))
        ours = verdict(decoding, bytes(octets))
        if isinstance(ours, CompressionError):
            assert 0 < len(str(ours)) < 80
            return
        assert not isinstance(ours, ListTooLarge) or ours.bytes_total > 16384
        assert size(remembered(decoding)) <= 4096


# --- Our encoders

MADE = st.one_of(
    st.builds(lambda name, value: (literal(name, value), (name, value), False), NAMES, VALUES),
    st.builds(lambda name, value: (literal_never(name, value), (name, value), False), NAMES, VALUES),
    st.builds(lambda name, value: (insert(name, value), (name, value), True), NAMES, VALUES),
    st.integers(1, 61).map(lambda index: (indexed(index), STATIC[index - 1], False)),
)


@given(st.lists(MADE, max_size=10), SIZES)
def test_our_blocks_decode_with_the_oracle(made: list[tuple[bytes, Field, bool]], sizes: list[int]) -> None:
    block = b"".join(map(size_update, sizes)) + b"".join(octets for octets, _, _ in made)
    expected = [field for _, field, _ in made]
    reading, decoding = oracle.Decoder(), decoder(list_bytes_max=1 << 20)
    assert reading.decode(block, raw=True) == expected
    assert fields(decoding.decode(block)) == expected
    assert remembered(decoding) == [tuple(entry) for entry in reading.header_table.dynamic_entries]


@given(st.integers(0, 2**32), st.integers(1, 8))
def test_integers_decode_with_the_oracle(value: int, prefix_bits: int) -> None:
    octets = integer(value, prefix_bits)
    assert oracle.hpack.decode_integer(octets, prefix_bits) == (value, len(octets))


def test_octets_of_our_encoders() -> None:
    assert literal(b":status", b"200") == b"\x08\x03200"
    assert literal(b"content-type", b"text/plain") == b"\x0f\x10\x0atext/plain"
    assert literal(b"grpc-status", b"0") == b"\x00\x0bgrpc-status\x010"
    assert literal_never(b"authorization", b"x") == b"\x1f\x08\x01x"
    assert insert(b"content-type", b"application/grpc") == b"\x5f\x10application/grpc"
    assert insert(b"grpc-status", b"0") == b"\x40\x0bgrpc-status\x010"
    assert indexed(8) == b"\x88"
    assert indexed(62) == b"\xbe"
    assert size_update(0) == b"\x20"
    assert size_update(4096) == b"\x3f\xe1\x1f"


@pytest.mark.parametrize("head", [b"\x0f\x2e", b"\x1f\x2e", b"\x7d"])
def test_the_last_static_name_is_that_of_a_literal(head: bytes) -> None:
    """However the field is to be kept; and where its list is too large, it counts by its own size."""
    decoding = decoder()
    decoding.decode(insert(b"x-new", b"1"))
    assert [entry[:2] for entry in decoding.decode(head + b"\x01v")] == [(b"www-authenticate", b"v")]


@pytest.mark.parametrize(("index", "size"), [(2, 42), (61, 48), (62, 38)])
def test_a_list_that_is_too_large_is_counted_to_its_end(index: int, size: int) -> None:
    decoding = decoder(list_bytes_max=39)
    decoding.decode(insert(b"x-new", b"1"))
    with pytest.raises(ListTooLarge) as caught:
        decoding.decode(indexed(2) + indexed(index))
    assert caught.value.bytes_total == 42 + size
