"""Range cuts: the core against a naive sum, and a real log."""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate, pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pump.pull.puller import OUT_OF_RANGE, PIECES_MAX, cuts_of, range_cuts
from pump.storage.opening import StorageLimits
from tests.pump.support.payloads import put_pair, wait_watermark
from tests.pump.support.services import CLUSTER, pump
from tidb_binlog import rpc
from tidb_binlog.wire import pump_pb2


@given(
    st.lists(st.tuples(st.integers(1, 50), st.integers(1, 1000)), max_size=60),
    st.integers(0, 400),
    st.integers(0, 400),
    st.integers(-1, 12),
)
def test_pieces_are_inside_the_range_and_none_is_larger_than_its_share_and_a_record(
    records: list[tuple[int, int]], after_ts: int, span: int, pieces: int
) -> None:
    stamps = list(accumulate(step for step, _ in records))
    ends = [0, *accumulate(size for _, size in records)]
    until_ts = after_ts + span

    def bytes_before(ts: int) -> int:
        return ends[bisect_right(stamps, ts)]

    cuts, sizes = cuts_of(after_ts, until_ts, pieces, bytes_before)
    bounds = [after_ts, *cuts, until_ts]
    assert len(cuts) < max(pieces, 1)
    assert all(low < high for low, high in pairwise(bounds)) or (not cuts and not span)
    assert sizes == [bytes_before(high) - bytes_before(low) for low, high in pairwise(bounds)]
    total, largest = sum(sizes), max((size for _, size in records), default=0)
    assert max(sizes) <= total / max(pieces, 1) + 2 * largest


def test_a_small_range_is_not_searched_for_pieces_that_nobody_reads_alone() -> None:
    asked = []

    def bytes_before(ts: int) -> int:
        asked.append(ts)
        return min(ts // 10, 2500)

    cuts, sizes = cuts_of(0, 30_000, 256, bytes_before, 1000)
    assert (len(cuts), sum(sizes)) == (1, 2500)
    assert min(sizes) >= 1000
    asked.clear()
    assert cuts_of(0, 30_000, 256, bytes_before, 4000) == ([], [2500])
    assert len(asked) == 2


def test_a_log_whose_places_do_not_rise_gives_ascending_cuts_and_no_negative_size() -> None:
    places = [0, 900, 100, 800, 200, 700, 300, 1000, 1000]
    cuts, sizes = cuts_of(0, 8, 4, lambda ts: places[ts])
    assert cuts == sorted(set(cuts))
    assert all(0 < cut < 8 for cut in cuts)
    assert min(sizes) >= 0
    assert len(sizes) == len(cuts) + 1


async def test_a_log_of_many_files_is_cut_into_about_equal_pieces(tmp_path: Path) -> None:
    async with pump(tmp_path, limits=StorageLimits(segment_bytes_max=20_000)) as one:
        for number in range(400):
            await put_pair(one.storage, 10 * number + 1, 10 * number + 5, bytes(100 + number % 50))
        await wait_watermark(one.storage, 3995)
        cuts, sizes = range_cuts(one.storage, 0, 3995, 8)
        assert len(cuts) == 7
        assert sum(sizes) == one.storage.value_log.size
        assert max(sizes) - min(sizes) < 1000
        half, other = range_cuts(one.storage, cuts[3], 3995, 1), range_cuts(one.storage, -5, cuts[3], 1)
        assert half == ([], [sum(sizes[4:])])
        assert other == ([], [sum(sizes[:4])])
        assert range_cuts(one.storage, 3995, 3995, 8) == ([], [0])
        assert len(range_cuts(one.storage, 0, 3995, 1 << 40)[0]) < PIECES_MAX


async def test_the_call_cuts_up_to_the_watermark_and_refuses_what_was_purged(tmp_path: Path) -> None:
    async with pump(tmp_path) as one:
        for number in range(20):
            await put_pair(one.storage, 10 * number + 1, 10 * number + 5, bytes(1000))
        await wait_watermark(one.storage, 195)
        request = pump_pb2.CutRangeReq(cluster_id=CLUSTER, after_ts=95, until_ts=1 << 60, pieces=2)
        reply = pump_pb2.CutRangeResp.FromString(await one.pullers.cut_range(request.SerializeToString()))
        assert len(reply.cuts) == 1
        assert abs(reply.cuts[0] - 145) <= 10
        request.least_bytes = 1 << 20
        reply = pump_pb2.CutRangeResp.FromString(await one.pullers.cut_range(request.SerializeToString()))
        assert not reply.cuts
        request.least_bytes = 0
        assert sum(reply.sizes) == pytest.approx(one.storage.value_log.size / 2, rel=0.1)
        one.storage.purged_to(100)
        with pytest.raises(rpc.RpcStatus, match="below the gc timestamp 100") as caught:
            await one.pullers.cut_range(request.SerializeToString())
        assert caught.value.code == OUT_OF_RANGE
        request.cluster_id = 5
        with pytest.raises(rpc.RpcStatus, match="cluster ID are mismatch"):
            await one.pullers.cut_range(request.SerializeToString())
