"""Large transactions in parts: from memory and from the log, under credit, verified before complete."""

from __future__ import annotations

import asyncio
import random
import shutil
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pump.log import segment
from pump.log.delivery import Delivery, LargeDelivery, Page
from pump.log.log_file import OsLogDirectory
from pump.log.segment import Segment
from pump.pull import replies as pull_replies
from pump.pull.session import Message, PartMessage, PullSession
from pump.storage.opening import StorageLimits
from tests.pump.support.payloads import opened, put, put_pair, wait_watermark
from tests.pump.support.services import PartPuller, pump
from tidb_binlog import binlog, rpc
from tidb_binlog.errors import Corruption
from tidb_binlog.record import encode_value
from tidb_binlog.wire import pump_pb2

BASE = 470_607_648_165_462_018
FROM_LOG = {"recent_bytes_max": 1}


# -- the core -------------------------------------------------------------------------------------------


def large(commit_ts: int, size: int) -> LargeDelivery:
    return LargeDelivery(commit_ts, b"head", bytes(size - 4), size)


def test_a_large_transaction_goes_out_in_parts_and_the_watermark_stays_below_it_until_the_last() -> None:
    session = PullSession(5)
    session.request(100, 50)
    found = session.page(Page([Delivery(7, 6, bytes(10))], 20, large(20, 120)))
    assert found is not None
    assert (found.watermark, session.position, session.credit) == (19, 19, 90)
    assert session.part_bytes(0, 4) == 90
    assert session.part(0, bytes(90)) == PartMessage(large_of(session), 0, bytes(90), 19)
    assert session.part_bytes(90, 4) == 0
    session.request(1000, 0)
    assert session.part_bytes(90, 4) == 970 + 30
    last = session.part(90, bytes(30))
    assert (last.watermark, session.position, session.large) == (20, 20, None)


def test_the_last_part_tells_what_is_waited_for_and_nothing_goes_without_credit() -> None:
    session = PullSession(5)
    session.request(0, 20, 40)
    assert session.page(Page([], 20, large(20, 120))) == Message([], 0, 19)
    assert session.part_bytes(0, 4) == 0
    session.request(200, 0)
    assert session.part(0, bytes(120)).watermark == 20
    assert (session.waits_for, session.reached()) == (0, None)


def large_of(session: PullSession) -> LargeDelivery:
    assert session.large is not None
    return session.large


def test_a_first_part_holds_the_fields_in_front_whatever_the_credit() -> None:
    session = PullSession(5)
    session.request(1, 0)
    session.page(Page([], 20, large(20, 120)))
    assert session.part_bytes(0, 50) == 51
    session.part(0, bytes(51))
    assert session.part_bytes(51, 50) == 0


def test_a_sign_of_life_tells_who_holds_an_awaited_watermark_only() -> None:
    session = PullSession(5)
    assert session.sign_of_life(3).waits_for_start_ts == 0
    session.request(0, 9)
    found = session.sign_of_life(3)
    assert (found.deliveries, found.watermark, found.waits_for_start_ts) == ([], 5, 3)
    assert session.waits_for == 9


@given(
    st.integers(0, 2**63 - 1), st.integers(0, 2**40), st.binary(min_size=1, max_size=300), st.integers(0, 9)
)
def test_a_part_is_what_a_serializer_makes(commit_ts: int, offset: int, data: bytes, watermark: int) -> None:
    message = PartMessage(large(commit_ts, 500), offset, data, watermark)
    part = pump_pb2.Part(commit_ts=commit_ts, size=500, offset=offset, data=data)
    expected = pump_pb2.PullBatchesResp(part=part, watermark=watermark)
    assert pump_pb2.PullBatchesResp.FromString(pull_replies.part(message)) == expected


# -- the service ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("from_log", [False, True])
@pytest.mark.parametrize("seed", range(4))
async def test_parts_are_the_same_stream(tmp_path: Path, seed: int, from_log: bool) -> None:
    """Of any size, with keys of any length, wherever records lie in the file, whatever the credit."""
    rng = random.Random(seed)
    options = FROM_LOG if from_log else {}
    sent: list[bytes] = []
    async with pump(tmp_path, **limits(**options)) as one:
        for number in range(30):
            start_ts = BASE + number * 10 if seed % 2 else 10 + number * 10
            key = rng.randbytes(rng.choice((5, 5, 200, 100_000)))
            value = rng.randbytes(rng.choice((10, 3000, 250_000, 262_100, 700_000)))
            first, second = (
                binlog.prewrite(start_ts, key, value),
                binlog.commit(start_ts, start_ts + 5, b"key"),
            )
            await put(one.storage, first)
            await put(one.storage, second)
            sent.append(binlog.join(first, second))
        await wait_watermark(one.storage, start_ts + 5)
        puller = PartPuller(one, credit=5000, parts_above=rng.choice((1000, 100_000, 300_000)))
        assert await puller.payloads(len(sent), credit=rng.choice((100_000, 3 << 20))) == sent
        assert puller.part_sizes
        await puller.replies.aclose()  # type: ignore[attr-defined]


def limits(**fields: int) -> dict[str, object]:
    return {"limits": StorageLimits(**fields)} if fields else {}


async def test_who_does_not_ask_for_parts_gets_none(tmp_path: Path) -> None:
    async with pump(tmp_path, **limits(**FROM_LOG)) as one:
        sent = await put_pair(one.storage, BASE, BASE + 1, bytes(3 << 20))
        await wait_watermark(one.storage, BASE + 1)
        puller = PartPuller(one, credit=1, parts_above=0)
        assert (await puller.message()).payloads == [sent]


async def test_a_damaged_large_payload_is_never_complete(tmp_path: Path) -> None:
    """Its last part is not sent: the stream ends with DATA_LOSS that names the file."""
    async with opened(tmp_path, **limits(**FROM_LOG)) as storage:
        await put_pair(storage, BASE, BASE + 1, bytes(100_000))
        await wait_watermark(storage, BASE + 1)
    path = tmp_path / "value" / "000000.vlog"
    data = bytearray(path.read_bytes())
    data[200] ^= 1
    path.write_bytes(data)
    async with pump(tmp_path, **limits(**FROM_LOG)) as one:
        puller = PartPuller(one, credit=30_000, parts_above=1000)
        got: list[pump_pb2.Part] = []

        async def read() -> None:
            while True:
                got.append((await puller.message()).part)
                puller.add(30_000)

        with pytest.raises(Corruption, match=r"000000\.vlog: offset 0: checksum mismatch") as caught:
            await read()
        assert rpc.status_of(caught.value)[0] == rpc.DATA_LOSS
        assert 0 < sum(len(part.data) for part in got) < got[0].size


async def test_serving_a_large_transaction_takes_a_part_of_it_in_memory(tmp_path: Path) -> None:
    size = 64 << 20
    async with opened(tmp_path, **limits(**FROM_LOG)) as storage:
        await put_pair(storage, BASE, BASE + 1, bytes(size))
        await wait_watermark(storage, BASE + 1)
    async with pump(tmp_path, **limits(**FROM_LOG)) as one:
        puller = PartPuller(one, credit=1 << 30, parts_above=8 << 20)
        got = 0
        tracemalloc.start()
        try:
            while got < size:
                got += len((await puller.message()).part.data)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert peak < 8 << 20


async def test_a_puller_that_wants_to_know_hears_who_holds_the_stream(tmp_path: Path) -> None:
    async with pump(tmp_path) as one:
        await put(one.storage, binlog.prewrite(10, b"key", b"value"))
        puller = PartPuller(one, credit=1, parts_above=0, silence_ms=20, wait_watermark=2_000_000)
        while (reply := await puller.message()).waits_for_start_ts != 10:
            assert not reply.waits_for_start_ts
        await put(one.storage, binlog.commit(10, 11, b"key"))
        while not reply.payloads:
            reply = await puller.message()
        assert reply.waits_for_start_ts == 0


async def test_a_puller_without_credit_hears_signs_of_life_while_the_watermark_rises(tmp_path: Path) -> None:
    async with pump(tmp_path) as one:
        puller = PartPuller(one, credit=0, parts_above=0, silence_ms=20)
        reply = asyncio.ensure_future(puller.message())
        ts = 2_000_000
        while not reply.done():
            ts += 1
            one.storage.mark(ts)
            await asyncio.sleep(0)
        assert not (await reply).payloads


async def test_a_stream_that_ends_within_a_large_transaction_begins_it_again(tmp_path: Path) -> None:
    async with pump(tmp_path, **limits(**FROM_LOG)) as one:
        sent = await put_pair(one.storage, BASE, BASE + 1, random.Random(1).randbytes(50_000))
        await wait_watermark(one.storage, BASE + 1)
        puller = PartPuller(one, credit=20_000, parts_above=1000)
        broken = await puller.message()
        assert broken.watermark == BASE
        await puller.replies.aclose()  # type: ignore[attr-defined]
        again = PartPuller(one, after=broken.watermark, credit=20_000, parts_above=1000)
        assert await again.payloads(1, 20_000) == [sent]


# -- a start ----------------------------------------------------------------------------------------------


def records_of(path: Path, size: int) -> list[object]:
    """What a scan of a log file says: its records, and where and why it ends."""
    file = OsLogDirectory(str(path.parent)).open(path.name)
    try:
        scans = list(Segment(0, file, end=size).scan(0, size))
    finally:
        file.close()
    found: list[object] = [record for scanned in scans for record in scanned.records]
    return [*found, scans[-1].after, str(scans[-1].error)]


def test_large_records_are_scanned_piece_by_piece_with_the_same_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whole, with a flipped bit anywhere, and cut anywhere."""
    rng = random.Random(1)
    payloads: list[bytes] = []
    for number in range(6):
        start_ts = (BASE if number % 2 else 10) + number * 10
        value = rng.randbytes(rng.choice((10, 300, 900)))
        payloads += [binlog.prewrite(start_ts, b"key", value), binlog.commit(start_ts, start_ts + 5, b"key")]
    data = b"".join(map(encode_value, payloads))
    path = tmp_path / "000000.vlog"
    variants = [data, *(data[:cut] for cut in range(1, len(data), 41))]
    for at in range(0, len(data), 31):
        flipped = bytearray(data)
        flipped[at] ^= 1 << rng.randrange(8)
        variants.append(bytes(flipped))
    for variant in variants:
        path.write_bytes(variant)
        expected = records_of(path, len(variant))
        with monkeypatch.context() as small:
            small.setattr(segment, "_CHUNK", 64)
            small.setattr(segment, "_LARGE", 100)
            assert records_of(path, len(variant)) == expected


async def test_a_start_with_a_large_transaction_takes_little_memory(tmp_path: Path) -> None:
    size = 64 << 20
    async with opened(tmp_path, abandon=True, **limits(**FROM_LOG)) as storage:
        await put_pair(storage, BASE, BASE + 1, bytes(size))
    shutil.rmtree(tmp_path / "kv")  # everything is read again
    tracemalloc.start()
    try:
        async with opened(tmp_path, **limits(**FROM_LOG)) as storage:
            await wait_watermark(storage, BASE + 1)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 16 << 20
