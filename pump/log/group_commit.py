"""Group commit: which queued writes share one fdatasync.

In     records and bytes of what waits, in the order of its arrival
Out    whether more of it fits the group; where a long list of records is cut
Why    everything that queued while the last sync ran costs one more sync together; the bound keeps a group
       (the most that a crash can tear) and the wait of its first member small
Never  waits: a group is what is there
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator


class GroupCommit:
    """A group is closed by the record that reaches `bytes_max`, or by `records_max` records."""

    def __init__(self, *, bytes_max: int, records_max: int) -> None:
        assert bytes_max > 0
        assert records_max > 0
        self.bytes_max = bytes_max
        self.records_max = records_max

    def has_room(self, records: int, size: int) -> bool:
        """Whether a group of more than one record may have so many, of so many bytes."""
        return size <= self.bytes_max and records <= self.records_max

    def take(self, sizes: Iterable[int]) -> int:
        """Number of records in the next group of one list; at least one if there is any."""
        count = total = 0
        for size in sizes:
            if count and not self.has_room(count + 1, total + size):
                break
            count += 1
            total += size
        return count

    def cut(self, sizes: list[int]) -> Iterator[tuple[int, int]]:
        """(first, after) of the parts of one list that each fit a group; no part is empty."""
        if len(sizes) <= self.records_max and sum(sizes) <= self.bytes_max:
            if sizes:
                yield 0, len(sizes)
            return
        first = 0
        while first < len(sizes):
            after = first + self.take(sizes[first : first + self.records_max])
            yield first, after
            first = after
