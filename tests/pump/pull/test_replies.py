"""Pull replies are what a serializer would have made of the same."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pump.log.delivery import Delivery
from pump.pull import replies as pull_replies
from pump.pull.replies import Packer
from tests.pump.support.payloads import put_pair, wait_watermark
from tests.pump.support.services import PartPuller, pump
from tidb_binlog import compression
from tidb_binlog.compression import GZIP, NAMES, ZSTD
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


NOISE = random.Random(1).randbytes(5000)


def unpacked(message: bytes) -> bytes:
    """What a puller makes of it."""
    found = pump_pb2.PullBatchesResp.FromString(message)
    if not found.HasField("compressed"):
        return message
    assert message == pump_pb2.PullBatchesResp(compressed=found.compressed).SerializeToString()
    frame = found.compressed
    return compression.decompress(frame.compression, frame.data, frame.size)


@pytest.mark.parametrize("name", NAMES)
async def test_a_message_is_what_it_was_and_never_larger(name: str) -> None:
    packer = Packer.of([name])
    assert packer is not None
    messages = [
        pump_pb2.PullBatchesResp(payloads=[payload] * count, watermark=7).SerializeToString()
        for payload in (b"", b"row" * 100, NOISE)
        for count in (1, 3, 400)
    ]
    for message in messages:
        made = await packer.packed(message)
        assert unpacked(made) == message
        assert len(made) <= len(message)
    assert await packer.packed(messages[0]) is messages[0], "too small to be worth it"
    noise = pump_pb2.PullBatchesResp(payloads=[NOISE]).SerializeToString()
    assert await packer.packed(noise) is noise
    assert 0 < packer.share < 1


def test_who_takes_none_of_ours_gets_messages_as_they_are() -> None:
    assert Packer.of([]) is None
    assert Packer.of(["lz4", "snappy"]) is None
    found = Packer.of(["lz4", ZSTD, GZIP])
    assert found is not None
    assert found.name == ZSTD


class PackedPuller(PartPuller):
    """And unpacks."""

    frames = 0

    async def message(self) -> pump_pb2.PullBatchesResp:
        reply = await super().message()
        if not reply.HasField("compressed"):
            return reply
        self.frames += 1
        return pump_pb2.PullBatchesResp.FromString(unpacked(reply.SerializeToString()))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("parts_above", [0, 100_000])
async def test_a_puller_gets_the_same_binlogs(tmp_path: Path, name: str, parts_above: int) -> None:
    """Small ones, one that is read by itself or in parts, and noise; its credit counts what comes out."""
    values = [b"small", b"value" * 1000, b"large" * 500_000, NOISE]
    async with pump(tmp_path) as one:
        written = [
            await put_pair(one.storage, 10 * at, 10 * at + 1, value) for at, value in enumerate(values, 1)
        ]
        await wait_watermark(one.storage, 41)
        puller = PackedPuller(one, credit=300_000, parts_above=parts_above, takes_compression=["lz4", name])
        assert await puller.payloads(len(written), 4_000_000) == written
        assert puller.frames
        (facts,) = one.pullers.facts()
        assert facts.compression == name
        assert isinstance(facts.compressed_share, float)
        assert 0 < facts.compressed_share < 0.5
        plain = PackedPuller(one, credit=1 << 30, parts_above=parts_above)
        assert await plain.payloads(len(written), 1) == written
        assert plain.frames == 0
        await puller.replies.aclose()  # type: ignore[attr-defined]
        await plain.replies.aclose()  # type: ignore[attr-defined]
