"""Requests are read as the protobuf parser reads them, whatever their form."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from common.errors import Rejected
from common.wire import pump_pb2
from pump.write_request import WriteRequests

CLUSTER = 7_240_000_000_000_000_001


def encoded(cluster_id: int, payload: bytes) -> bytes:
    return pump_pb2.WriteBinlogReq(clusterID=cluster_id, payload=payload).SerializeToString()


@pytest.mark.parametrize("cluster_id", [0, 1, CLUSTER, 2**64 - 1])
@pytest.mark.parametrize("size", [0, 1, 127, 128, 16_383, 16_384, 3_000_000])
def test_usual_requests(cluster_id: int, size: int) -> None:
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
