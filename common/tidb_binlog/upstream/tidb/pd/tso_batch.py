"""Batch of timestamps: what one reply of PD's oracle stands for, and whether it can be true."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, cast

from tidb_binlog import tso
from tidb_binlog.errors import Corruption
from tidb_binlog.tso import Ts

_HINT: Final = "check PD's clock and how its data were restored: a timestamp given twice loses transactions"


def timestamps(physical_ms: int, logical: int, suffix_bits: int, count: int, after: int) -> Sequence[Ts]:
    """The `count` timestamps that PD means by its largest one, ascending.

    With Local TSO the lowest `suffix_bits` name the allocator, so values are 2**suffix_bits apart.
    Raises `Corruption` unless all of them are timestamps and larger than `after`.
    """
    assert count >= 1
    step = 1 << min(suffix_bits, tso.LOGICAL_BITS)
    lowest = logical - (count - 1) * step
    if (
        physical_ms <= 0
        or lowest < 0
        or logical > tso.LOGICAL_MAX
        or physical_ms > tso.physical_ms(tso.TS_MAX)
    ):
        raise Corruption(
            f"PD answered {count} timestamps, {step} apart, up to {physical_ms} ms, logical {logical}:"
            " there are no such",
            hint=_HINT,
        )
    first = tso.compose(physical_ms, lowest)
    if first <= after:
        raise Corruption(f"PD answered timestamp {first} after {after}: it must grow", hint=_HINT)
    return cast("Sequence[Ts]", range(first, tso.compose(physical_ms, logical) + 1, step))
