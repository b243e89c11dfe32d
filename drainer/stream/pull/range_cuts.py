"""Range cuts: how a range of several Pumps is shared out among tasks.

In     what each Pump says of the bytes it has in the range; where it does not know how to, only the time
Out    `Part`s that follow each other, each with about as many bytes, all Pumps taken together
Holds  the parts together are the range, whatever Pumps say: a wrong cut costs time, no row
Tests  tests/drainer/stream/pull/test_range_cuts.py
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from drainer.stream.pull.pump_source import OUT_OF_RANGE, BinlogsGone
from drainer.stream.pull.range_reader import PumpSet
from tidb_binlog import rpc, tso
from tidb_binlog.tso import Ts
from tidb_binlog.wire import pump_pb2

TASK_BYTES: Final = 16 << 20
_PIECES: Final = 256
_PIECES_A_PART: Final = 32
"""Of one Pump at most: finer ones would only cost it searches, of which a small batch needs none."""
_TIMEOUT_S: Final = 10.0
_CUT_RANGE: Final = "/binlog.PumpBatch/CutRange"
_UNKNOWN_S: Final = 60
"""A Pump that cannot say what it has is taken to have a task's worth in so much time."""


class Part(NamedTuple):
    """A stretch that one task reads: `after_ts` < commit_ts <= `until_ts`, about so many bytes."""

    after_ts: Ts
    until_ts: Ts
    size: int


class Piece(NamedTuple):
    """What one Pump has up to a timestamp, after the piece before."""

    until_ts: Ts
    size: int


def shared_out(after_ts: Ts, until_ts: Ts, pumps: Iterable[Iterable[Piece]], bytes_max: int) -> list[Part]:
    """Parts of the range; a part is larger where a single piece is."""
    parts: list[Part] = []
    begin, size = after_ts, 0
    for piece in heapq.merge(*pumps):
        size += piece.size
        if size >= bytes_max and begin < piece.until_ts < until_ts:
            parts.append(Part(begin, piece.until_ts, size))
            begin, size = piece.until_ts, 0
    return [*parts, Part(begin, until_ts, size)]


def unknown(after_ts: Ts, until_ts: Ts, bytes_max: int) -> list[Piece]:
    """For a Pump that cannot say it: all of the range, in longer pieces where it is long, so that a stream
    from the beginning of time comes to now."""
    span_ms = tso.physical_ms(until_ts) - tso.physical_ms(after_ts)
    step_ms = max(_UNKNOWN_S * 1000, span_ms // _PIECES)
    step = tso.compose(step_ms)
    return [Piece(after_ts + number * step, bytes_max) for number in range(1, span_ms // step_ms + 1)]


async def parts(pumps: PumpSet, after_ts: Ts, until_ts: Ts, bytes_max: int = TASK_BYTES) -> list[Part]:
    """Ask the Pumps, and share out. Raises `Unavailable`, and what a Pump refuses for good."""
    if after_ts >= until_ts:
        return []
    asked = (
        _pieces(pumps, entry.status.host, after_ts, until_ts, bytes_max) for entry in pumps.pumps.values()
    )
    return shared_out(after_ts, until_ts, await asyncio.gather(*asked), bytes_max)


async def _pieces(
    pumps: PumpSet, address: str, after_ts: Ts, until_ts: Ts, bytes_max: int
) -> Sequence[Piece]:
    request = pump_pb2.CutRangeReq(
        cluster_id=pumps.cluster_id,
        after_ts=after_ts,
        until_ts=until_ts,
        pieces=_PIECES,
        least_bytes=bytes_max // _PIECES_A_PART,
    )
    client = rpc.Client(address, tls=pumps.tls)
    try:
        reply = await client.unary(_CUT_RANGE, request.SerializeToString(), _TIMEOUT_S)
    except rpc.RpcStatus as error:
        if error.code == rpc.UNIMPLEMENTED:
            return unknown(after_ts, until_ts, bytes_max)
        if error.code == OUT_OF_RANGE:
            raise BinlogsGone(
                f"pump {address} has no longer what comes after {after_ts}: {error.message}",
                hint="load a newer backup downstream and begin at its position (initial-commit-ts)",
            ) from None
        raise
    finally:
        await client.close()
    cut = pump_pb2.CutRangeResp.FromString(reply)
    return [Piece(*pair) for pair in itertools.zip_longest(cut.cuts, cut.sizes, fillvalue=until_ts)]
