"""Framed records: the published vectors, every cut and every flipped bit."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tidb_binlog import record
from tidb_binlog.record import RecordError

Decode = Callable[[bytes], tuple[bytes, int]]
FORMS = [
    (record.encode_value, record.decode_value, 16),
    (record.encode_file, record.decode_file, 12),
]


def test_published_vectors() -> None:
    mark = bytes.fromhex("0802102a182a38004000")
    assert record.crc32c(b"123456789") == 0xE3069283
    assert record.encode_value(mark) == bytes.fromhex("e8563a82 0a00000000000000 25a66556") + mark
    assert record.value_header(mark) + mark == record.encode_value(mark)
    assert record.encode_file(b"payload") == bytes.fromhex(
        "04051b1c 0700000000000000 7061796c6f6164 7069e3f4"
    )
    assert record.encode_file(b"binlogtest").hex() == "04051b1c0a0000000000000062696e6c6f67746573741e0b0549"
    assert record.encode_value(b"") == bytes.fromhex("e8563a82") + bytes(12)


@pytest.mark.parametrize(("encode", "decode", "header"), FORMS)
def test_records_follow_each_other(encode: Callable[[bytes], bytes], decode: Decode, header: int) -> None:
    data = encode(b"first") + encode(b"") + encode(b"third" * 1000)
    offset, found = 0, []
    while offset < len(data):
        payload, offset = decode(data, offset)  # type: ignore[call-arg]
        found.append(payload)
    assert found == [b"first", b"", b"third" * 1000]


@pytest.mark.parametrize(("encode", "decode", "header"), FORMS)
def test_every_cut_is_torn(encode: Callable[[bytes], bytes], decode: Decode, header: int) -> None:
    data = encode(b"some payload")
    for length in range(len(data)):
        with pytest.raises(RecordError) as raised:
            decode(data[:length])
        assert raised.value.torn


@pytest.mark.parametrize(("encode", "decode", "header"), FORMS)
def test_every_flipped_bit_is_noticed(encode: Callable[[bytes], bytes], decode: Decode, header: int) -> None:
    data = encode(b"some payload")
    for bit in range(len(data) * 8):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        with pytest.raises(RecordError):
            decode(bytes(flipped))


def test_a_length_beyond_the_file_allocates_nothing() -> None:
    data = bytes.fromhex("e8563a82 ffffffffffffff7f 00000000")
    with pytest.raises(RecordError, match="offset 700: record of 9223372036854775807 bytes ends early"):
        record.decode_value(data, base=700)
