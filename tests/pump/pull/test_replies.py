"""Pull replies are what a serializer would have made of the same."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pump.log.delivery import Delivery
from pump.pull import replies as pull_replies
from tidb_binlog.wire import pump_pb2

TS = st.one_of(st.just(0), st.integers(0, 300), st.integers(0, 2**63 - 1))
DELIVERIES = st.builds(Delivery, TS, TS, st.binary(max_size=300), st.binary(max_size=300))


@given(st.lists(DELIVERIES, max_size=5), TS, TS)
def test_a_batch(deliveries: list[Delivery], watermark: int, waits_for: int) -> None:
    expected = pump_pb2.PullBatchesResp(
        payloads=[one.payload for one in deliveries],
        watermark=watermark,
        waits_for_start_ts=waits_for,
        commit_ts=[one.commit_ts for one in deliveries],
    )
    assert pull_replies.batch(deliveries, watermark, waits_for) == expected.SerializeToString()


@given(DELIVERIES)
def test_an_entity(delivery: Delivery) -> None:
    meta = pump_pb2.Meta(startTs=delivery.start_ts, commitTs=delivery.commit_ts)
    entity = pump_pb2.Entity(pos=pump_pb2.Pos(), payload=delivery.payload, meta=meta)
    expected = pump_pb2.PullBinlogResp(entity=entity)
    assert pump_pb2.PullBinlogResp.FromString(pull_replies.entity(delivery)) == expected


def test_a_large_payload_is_a_view_until_it_is_sent() -> None:
    tail = memoryview(bytes(1 << 20))
    reply = pump_pb2.PullBatchesResp.FromString(pull_replies.batch([Delivery(2, 1, b"head", tail)], 2))
    assert reply.payloads == [b"head" + bytes(1 << 20)]
