"""Range cuts: timestamps that cut a range into pieces with about as many bytes each.

Out    cuts, ascending and inside the range; bytes of each piece, one more than there are cuts
Why    records are written nearly in the order of their timestamps, so places in the log tell how much is
       between two of them: a search asks the index some forty times a cut, and no record is read
Never  promises more than that: what was written late counts where it was written. Any cut is a right one
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from typing import Final

from pump.storage.storage import Storage
from tidb_binlog.tso import Ts

PIECES_MAX: Final = 1024
_NEIGHBOURS: Final = (
    8  # a prewrite of a long transaction is written long after its start_ts: its neighbours not
)


def cuts_of(
    after_ts: Ts, until_ts: Ts, pieces: int, bytes_before: Callable[[Ts], int], least_bytes: int = 1
) -> tuple[list[int], list[int]]:
    """Cut the range (after_ts, until_ts] into so many pieces at most, of about `least_bytes` at least."""
    at, end = bytes_before(after_ts), bytes_before(until_ts)
    begin, total, low = at, end - at, after_ts
    pieces = min(pieces, total // max(least_bytes, 1))
    cuts: list[int] = []
    sizes: list[int] = []
    for number in range(1, min(pieces, PIECES_MAX)):
        inside = range(low + 1, until_ts)
        index = bisect_left(inside, begin + total * number // pieces, key=bytes_before)
        if index >= len(inside):
            break
        low, reached = inside[index], bytes_before(inside[index])
        if reached > at:
            cuts.append(low)
            sizes.append(reached - at)
            at = reached
    return cuts, [*sizes, max(end - at, 0)]


def range_cuts(
    storage: Storage, after_ts: Ts, until_ts: Ts, pieces: int, least_bytes: int = 1
) -> tuple[list[int], list[int]]:
    """Cut what a storage has. Raises `PositionPurged`, `IndexDamaged`; blocks."""
    after_ts = max(after_ts, 0)
    storage.history().check_kept(after_ts)
    starts, end, index = storage.value_log.starts(), storage.value_log.size, storage.index

    def bytes_before(ts: Ts) -> int:
        places = index.places_after(ts, _NEIGHBOURS)
        return min([starts.get(place.fid, 0) + place.offset for place in places], default=end)

    return cuts_of(after_ts, max(until_ts, after_ts), pieces, bytes_before, least_bytes)
