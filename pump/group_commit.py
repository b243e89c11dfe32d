"""Group commit: which queued writes share one fdatasync.

In     sizes of the writes in the order of their arrival
Out    how many of them the next group takes
Why    everything that queued while the last sync ran costs one more sync together; the bound keeps a group
       (the most that a crash can tear) and the wait of its first member small
Never  waits: a group is what is there
"""

from __future__ import annotations

from collections.abc import Iterator


class GroupCommit:
    """A group is closed by the record that reaches `bytes_max`, or by `records_max` records."""

    def __init__(self, *, bytes_max: int, records_max: int) -> None:
        assert bytes_max > 0
        assert records_max > 0
        self.bytes_max = bytes_max
        self.records_max = records_max

    def take(self, sizes: Iterator[int]) -> int:
        """Number of writes in the next group; at least one if there is any."""
        count = total = 0
        for size in sizes:
            if count and (total + size > self.bytes_max or count == self.records_max):
                break
            count += 1
            total += size
        return count
