"""Requests are read as the protobuf parser reads them, whatever their form."""

from __future__ import annotations

import pytest
from google.protobuf.message import DecodeError
from hypothesis import example, given
from hypothesis import strategies as st

from pump.write import write_request
from pump.write.write_request import WriteRequests
from tests.cases import case
from tidb_binlog import binlog
from tidb_binlog.errors import Rejected
from tidb_binlog.wire import pump_pb2

CLUSTER = 7_240_000_000_000_000_001


def encoded(cluster_id: int, payload: bytes) -> bytes:
    return pump_pb2.WriteBinlogReq(clusterID=cluster_id, payload=payload).SerializeToString()


def test_usual_requests() -> None:
    for cluster_id in [0, 1, CLUSTER, 2**64 - 1]:
        for size in [0, 1, 127, 128, 16_383, 16_384, 3_000_000]:
            with case(cluster_id, size):
                payload = bytes(range(256)) * (size // 256) + bytes(size % 256)
                data = encoded(cluster_id, payload)
                assert WriteRequests(cluster_id).read(data) == (cluster_id, payload)
                assert WriteRequests(cluster_id).read(memoryview(bytearray(data))) == (cluster_id, payload)
                assert WriteRequests(5).read(data) == (cluster_id, payload)


def test_unusual_order_is_read_too() -> None:
    data = b"\x12\x02ab\x08\x07"
    assert WriteRequests(7).read(data) == (7, b"ab")
    assert WriteRequests(7).read(encoded(7, b"ab") + b"\x18\x01") == (7, b"ab")


@given(st.binary(max_size=40))
@example(b"\x08\x07\x12\x05ab")
@example(b"\x08\x07\x12\xff\xff\xff\xff\xff\x7f")
@example(b"\x08\x07\x12")
def test_any_octets_mean_what_the_parser_says(tail: bytes) -> None:
    reader = WriteRequests(7)
    for data in (tail, b"\x08\x07\x12" + tail):
        try:
            request = pump_pb2.WriteBinlogReq.FromString(data)
        except Exception:
            with pytest.raises(Rejected, match="cannot be decoded"):
                reader.read(data)
        else:
            assert reader.read(data) == (request.clusterID, request.payload)


# -- many payloads -------------------------------------------------------------------------------


def many(cluster_id: int, *payloads: bytes) -> bytes:
    return pump_pb2.WriteBinlogsReq(cluster_id=cluster_id, payloads=payloads).SerializeToString()


_FIELDS = st.lists(
    st.sampled_from(
        (
            *(b"\x08\x07", b"\x08\x80\x80\x80\x80\x80\x80\x80\x80\x80\x7f", b"\x12\x02ab", b"\x12\x00"),
            *(b"\x12\x81\x00c", b"\x18\x05", b"\x1a\x01x", b"\x25abcd", b"\x29abcdefgh", b"\x00\x01"),
            *(b"\x0b", b"\x12\x05ab", b"\xff"),
        )
    ),
    max_size=5,
).map(b"".join)


@pytest.mark.parametrize("view", [bytes, memoryview])
@given(data=_FIELDS | st.binary(max_size=30))
def test_large_requests_are_walked_as_the_parser_reads_them(
    view: type[bytes | memoryview], data: bytes
) -> None:
    try:
        expected = pump_pb2.WriteBinlogsReq.FromString(data)
    except DecodeError:
        for read in (write_request.read_many, walk):
            with pytest.raises(Rejected, match="cannot be decoded"):
                read(view(data))
        return
    assert write_request.read_many(view(data)) == (expected.cluster_id, list(expected.payloads))
    try:
        walked: tuple[int, list[bytes]] | str = walk(view(data))
    except Rejected as error:
        walked = error.message
    # A group, which no writer has ever sent, is refused.
    known = (expected.cluster_id, list(expected.payloads)), "request cannot be decoded: wire type 3"
    assert walked in known


def walk(data: bytes | memoryview) -> tuple[int, list[bytes]]:
    return write_request._walk(memoryview(data))


def test_a_megabyte_is_walked_and_payloads_are_counted() -> None:
    payloads = [bytes((number % 256,)) * 100_000 for number in range(30)]
    assert write_request.read_many(memoryview(many(CLUSTER, *payloads))) == (CLUSTER, payloads)
    for payload in (b"", bytes(100)):
        allowed = [payload] * write_request.PAYLOADS_MAX
        assert write_request.read_many(many(1, *allowed)) == (1, allowed)
        with pytest.raises(Rejected, match="more than 16384 payloads"):
            write_request.read_many(many(1, *allowed, payload))


USUAL = [binlog.prewrite(1 << 60, b"key", b"value"), binlog.commit(1 << 60, (1 << 60) + 1), binlog.fake(7)]


def test_heads_come_at_once_only_where_every_payload_is_in_its_stored_form() -> None:
    data = many(CLUSTER, *USUAL)
    heads = write_request.heads_if_all_stored(data, 3)
    assert heads == [binlog.header(binlog.parse(payload)) for payload in USUAL]
    unusual = [
        b"",  # a probe
        binlog.prewrite(0, b"", b""),
        b"\x10\x0a",  # fields missing
        USUAL[0][2:] + USUAL[0][:2],  # another order
        USUAL[2] + b"\x38\x01",  # a field twice
        b"\x08\x02\x10\x87\x00\x18\x07\x38\x00\x40\x00",  # a number longer than it must be
        b"\x08\x09" + USUAL[2][2:],  # an unknown type
        b"\xff",
        binlog.prewrite(1, b"", b"\x10\x00\x18\x00"),  # might be a probe
    ]
    for payload in unusual:
        assert write_request.heads_if_all_stored(many(CLUSTER, *USUAL, payload), 4) is None
    later = USUAL[2] + b"\x48\x01"  # a field of a later version, kept as it is
    assert write_request.heads_if_all_stored(many(CLUSTER, later), 1) == [(2, 7, 7)]
    assert write_request.stored_form(later) == (later, (2, 7, 7))


def test_no_client_says_that_a_pump_has_asked() -> None:
    """Believed, such a rollback would settle a transaction that the store has committed."""
    claimed = binlog.settled_rollback(7)
    stored, head = write_request.stored_form(claimed)
    assert (stored, head) == (binlog.rollback(7), (binlog.ROLLBACK, 7, 0))
    assert write_request.heads_if_all_stored(many(CLUSTER, USUAL[0], claimed), 2) is None
    for odd in (claimed + binlog.SETTLED, claimed[:-1] + b"\x02", claimed + b"\x48\x01"):
        assert not binlog.parse(write_request.stored_form(odd)[0]).settled


@given(st.binary(max_size=30))
def test_the_stored_form_is_the_one_of_the_full_parser(payload: bytes) -> None:
    for one in (payload, USUAL[0][:-1] + payload, USUAL[2] + payload, b"\x08\x00" + payload):
        try:
            message = binlog.parse(one)
        except Rejected:
            with pytest.raises(Rejected, match="is not a Binlog"):
                write_request.stored_form(one)
            continue
        expected = binlog.header(message), binlog.canonical(message)
        stored, head = write_request.stored_form(one)
        assert (head, stored) == expected
        heads = write_request.heads_if_all_stored(many(1, one), 1)
        assert heads is None or (heads, stored) == ([head], one)


def test_a_large_payload_is_looked_at_without_a_copy() -> None:
    payload = binlog.prewrite(5, b"key", bytes(1 << 20))
    stored, head = write_request.stored_form(payload)
    assert stored is payload
    assert head == (0, 5, 0)
