from __future__ import annotations

import pytest

from tidb_binlog import tso
from tidb_binlog.errors import Corruption
from tidb_binlog.upstream.tidb.pd.tso_batch import timestamps


def naive(physical: int, logical: int, suffix_bits: int, count: int) -> list[int]:
    """One after the other, as the protocol has it: `logical` is the largest of the batch."""
    return [(physical << 18) + logical - behind * 2**suffix_bits for behind in range(count - 1, -1, -1)]


def test_every_small_batch() -> None:
    for physical in (1, 2, 1_700_000_000_000):
        for suffix_bits in range(4):
            for count in range(1, 6):
                for logical in [*range(40), tso.LOGICAL_MAX]:
                    if logical - (count - 1) * 2**suffix_bits < 0:
                        with pytest.raises(Corruption):
                            timestamps(physical, logical, suffix_bits, count, 0)
                        continue
                    expected = naive(physical, logical, suffix_bits, count)
                    batch = timestamps(physical, logical, suffix_bits, count, expected[0] - 1)
                    assert list(batch) == expected
                    assert all(tso.physical_ms(ts) == physical for ts in batch)
                    for after in (expected[0], expected[-1], expected[-1] + 1):
                        with pytest.raises(Corruption, match=f"timestamp {expected[0]} after {after}"):
                            timestamps(physical, logical, suffix_bits, count, after)


@pytest.mark.parametrize(
    ("physical", "logical", "suffix_bits"),
    [(0, 1, 0), (-1, 1, 0), (1, -1, 0), (1, 1 << 18, 0), (1 << 46, 1, 0), (1, 1, 4_000_000_000)],
)
def test_what_is_no_timestamp(physical: int, logical: int, suffix_bits: int) -> None:
    with pytest.raises(Corruption, match="there are no such"):
        timestamps(physical, logical, suffix_bits, 2, 0)
