"""Shares: what one task reads is as much for each core, whole stretches, in order."""

from __future__ import annotations

import pytest

from drainer.reading.archive.decode.pump_range import PumpSlice, StreamState
from drainer.reading.archive.files.payload import PB
from drainer.reading.archive.files.segments import Slice
from drainer.spark.replay.outline import size_of
from drainer.spark.replay.plan import shares
from drainer.stream.pull.range_reader import PumpSet

MIB = 1 << 20
FILES = 5


def stretches() -> tuple[Slice, ...]:
    """Five files of 32 MiB in stretches of 2 MiB, the newest may be torn."""
    return tuple(
        Slice(f"f{number}", number, PB, at * MIB, at * MIB + 2 * MIB, last=(number, at) == (FILES - 1, 30))
        for number in range(FILES)
        for at in range(0, 32, 2)
    )


@pytest.mark.parametrize("cores", [1, 2, 3, 7, 1000])
def test_every_byte_is_in_one_share_and_shares_are_alike(cores: int) -> None:
    given = stretches()
    found = shares(given, cores)
    assert len(found) <= cores
    covered = [
        (part.name, at, at + 2 * MIB)
        for parts in found
        for part in parts
        for at in range(part.start, part.stop, 2 * MIB)
    ]
    assert covered == [(part.name, part.start, part.stop) for part in given]
    sizes = [size_of(parts) for parts in found]
    assert max(sizes) - min(sizes[:-1], default=max(sizes)) <= 2 * MIB
    assert [part.last for parts in found for part in parts].count(True) == 1
    assert found[-1][-1].last
    for parts in found:  # a file is opened once for what lies together
        assert len({part.name for part in parts}) == len(parts)


def test_a_share_is_not_larger_than_a_task_may_be() -> None:
    many = tuple(Slice(f"f{n}", n, PB, 0, 128 * MIB) for n in range(20))
    assert [size_of(parts) // MIB for parts in shares(many, 2)] == [256] * 10
    assert shares((), 2) == ()


def test_ranges_of_pumps_that_follow_each_other_are_one_for_a_task() -> None:
    state = StreamState(PumpSet(1, {}), b"")
    given = tuple(PumpSlice.of(state, ts, ts + 10, 16 * MIB) for ts in range(0, 80, 10))
    found = shares(given, 2)
    assert [
        [(part.after_ts, part.until_ts, part.size) for part in parts if isinstance(part, PumpSlice)]
        for parts in found
    ] == [
        [(0, 40, 64 * MIB)],
        [(40, 80, 64 * MIB)],
    ]
