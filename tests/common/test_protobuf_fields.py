"""Field walk: what the parser reads is what the walk finds, wherever a window ends."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidb_binlog import protobuf_fields
from tidb_binlog.protobuf_fields import LENGTH, VARINT, MalformedMessage, field_head, fields, varint
from tidb_binlog.rowcodec.varint import put_uvarint
from tidb_binlog.wire import pump_pb2


@given(st.lists(st.binary(max_size=200), max_size=20), st.integers(0, (1 << 63) - 1), st.integers(32, 100))
def test_fields_across_windows(payloads: list[bytes], number: int, window: int) -> None:
    request = pump_pb2.WriteBinlogsReq(cluster_id=number, payloads=payloads).SerializeToString()

    def read(offset: int, size: int) -> bytes:
        return request[offset : offset + size]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(protobuf_fields, "WINDOW_BYTES", window)
        found = list(fields(read, 0, len(request)))
    assert [value for tag, value, _ in found if tag & 7 == VARINT] == [number] * bool(number)
    assert [read(at, size) for tag, size, at in found if tag & 7 == LENGTH] == payloads


@given(st.integers(0, (1 << 64) - 1), st.binary(max_size=3))
def test_numbers(number: int, before: bytes) -> None:
    octets = put_uvarint(number)
    assert varint(before + octets, len(before)) == (number, len(before) + len(octets))
    assert varint(memoryview(octets), 0) == (number, len(octets))
    with pytest.raises(MalformedMessage, match="ends early"):
        varint(octets[:-1], 0)


def test_a_number_of_more_than_64_bits_is_cut_as_the_parser_does() -> None:
    for octet in (b"\x01", b"\x02", b"\x05", b"\x7f"):
        number = b"\xff" * 9 + octet
        parsed = pump_pb2.WriteBinlogsReq.FromString(b"\x08" + number).cluster_id
        assert varint(number, 0) == (parsed, 10)


@pytest.mark.parametrize("data", [b"\x00\x00", b"\x0b", b"\x0d\x00", b"\xff" * 11, b""])
def test_what_is_no_field(data: bytes) -> None:
    with pytest.raises(MalformedMessage):
        field_head(data, 0)


def test_a_field_that_is_longer_than_its_message() -> None:
    with pytest.raises(MalformedMessage, match="ends early"):
        list(fields(lambda offset, size: b"\x0a\x05abc"[offset : offset + size], 0, 5))
