"""Group commit: which queued writes share a sync."""

from __future__ import annotations

import itertools

from pump.log.group_commit import GroupCommit


class TestGroupCommit:
    def test_cuts_a_list_as_groups_take_it(self) -> None:
        group_commit = GroupCommit(bytes_max=5, records_max=3)
        for sizes in (*itertools.product((0, 1, 2, 5, 9), repeat=5), (1,), (0, 5), (9,), (1, 1, 1)):
            left, parts = list(sizes), []
            while left:
                count = group_commit.take(left)
                parts.append(left[:count])
                del left[:count]
            assert [list(sizes[first:after]) for first, after in group_commit.cut(list(sizes))] == parts
        assert list(group_commit.cut([])) == []

    def test_takes_what_fits_and_at_least_one(self) -> None:
        for sizes in itertools.product((0, 1, 2, 5, 9), repeat=4):
            taken = GroupCommit(bytes_max=5, records_max=3).take(iter(sizes))
            allowed = [
                count for count in range(1, 5) if count == 1 or (sum(sizes[:count]) <= 5 and count <= 3)
            ]
            # Every shorter prefix fits as well, so the longest allowed one is right.
            assert taken == max(allowed)
        assert GroupCommit(bytes_max=5, records_max=3).take(iter(())) == 0
