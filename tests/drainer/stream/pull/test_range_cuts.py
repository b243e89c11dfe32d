"""Parts of a range: they follow each other from its beginning to its end, whatever Pumps say."""

from __future__ import annotations

from itertools import accumulate, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drainer.stream.pull.range_cuts import Part, Piece, parts, shared_out, unknown
from drainer.stream.pull.range_reader import PumpSet
from tidb_binlog import rpc, tso
from tidb_binlog.cluster.node import NodeStatus
from tidb_binlog.cluster.registry import NodeEntry
from tidb_binlog.wire import pump_pb2

AFTER, UNTIL = 1000, 1060
PUMP = st.lists(st.tuples(st.integers(1, 59), st.integers(0, 30)), max_size=8).map(
    lambda pairs: [Piece(AFTER + at, size) for at, size in sorted(dict(pairs).items())]
)


@given(st.lists(PUMP, max_size=4), st.integers(1, 40))
def test_parts_are_the_range_and_nearly_of_one_size(pumps: list[list[Piece]], bytes_max: int) -> None:
    parts = shared_out(AFTER, UNTIL, pumps, bytes_max)
    assert parts[0].after_ts == AFTER
    assert parts[-1].until_ts == UNTIL
    assert all(one.until_ts == following.after_ts for one, following in pairwise(parts))
    assert all(part.after_ts < part.until_ts for part in parts)
    pieces = [piece for pump in pumps for piece in pump]
    assert sum(part.size for part in parts) == sum(piece.size for piece in pieces)
    assert all(part.size >= bytes_max for part in parts[:-1])
    largest = max((piece.size for piece in pieces), default=0)
    assert all(part.size < bytes_max + largest * len(pumps) + 1 for part in parts)


def test_two_pumps_are_cut_at_one_place() -> None:
    pumps = [
        [Piece(AFTER + at, 10) for at in accumulate([10] * 5)],
        [Piece(AFTER + at, 5) for at in accumulate([20] * 2)],
    ]
    assert shared_out(AFTER, UNTIL, pumps, 25) == [
        Part(AFTER, AFTER + 20, 25),
        Part(AFTER + 20, AFTER + 40, 25),
        Part(AFTER + 40, UNTIL, 10),
    ]


def test_a_pump_that_cannot_say_what_it_has_is_cut_by_time() -> None:
    after = tso.compose(0)
    assert unknown(after, tso.compose(59_000), 7) == []
    assert unknown(after, tso.compose(180_000), 7) == [
        Piece(tso.compose(60_000 * number), 7) for number in (1, 2, 3)
    ]


def test_a_long_range_of_a_pump_that_cannot_say_it_is_cut_whole() -> None:
    """By minutes from its beginning, a stream from the beginning of time came nowhere."""
    now_ms = 1_700_000_000_000
    pieces = unknown(1, tso.compose(now_ms), 7)
    assert len(pieces) in (256, 257)
    assert tso.physical_ms(pieces[0].until_ts) >= now_ms // 257
    assert tso.physical_ms(pieces[-1].until_ts) >= now_ms * 255 // 256


async def test_a_pump_is_not_asked_for_pieces_much_smaller_than_a_task(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of a batch of a few rows it would search its index for half a second."""

    async def unary(self: rpc.Client, method: str, request: bytes, timeout_s: float) -> bytes:
        assert pump_pb2.CutRangeReq.FromString(request).least_bytes == 1 << 15
        return pump_pb2.CutRangeResp(sizes=[7]).SerializeToString()

    monkeypatch.setattr(rpc.Client, "unary", unary)
    pumps = PumpSet(1, {"p1": NodeEntry(NodeStatus("p1", "127.0.0.1:1", "online"), 1, True)}, None)
    assert await parts(pumps, AFTER, UNTIL, 1 << 20) == [Part(AFTER, UNTIL, 7)]
