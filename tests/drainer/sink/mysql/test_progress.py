"""Progress never passes uncommitted work, whatever order lanes finish in: all orders of small cases."""

from __future__ import annotations

import itertools

from drainer.sink.mysql.progress import Progress


def test_idle_lanes_do_not_hold_it() -> None:
    progress = Progress(3, 10)
    progress.dispatched(50)
    assert progress.resolved_ts == 50
    assert progress.idle


def test_every_order_of_commits_against_the_naive_answer() -> None:
    chunks = [(0, 1, 20), (1, 1, 21), (0, 2, 30), (2, 1, 40)]
    for order in itertools.permutations(range(len(chunks))):
        progress = Progress(3, 10)
        for lane, sequence, first_ts in chunks:
            progress.sent(lane, sequence, first_ts)
        progress.dispatched(60)
        done: set[int] = set()
        seen = [progress.resolved_ts]
        assert seen == [19], "the first that was sent is at 20"
        for index in order:
            lane, sequence, _ = chunks[index]
            progress.committed(lane, sequence)
            done |= {i for i, (other, number, _) in enumerate(chunks) if other == lane and number <= sequence}
            naive = min([60] + [ts - 1 for i, (_, _, ts) in enumerate(chunks) if i not in done])
            assert progress.resolved_ts == max(naive, seen[-1])
            left = {lane for i, (lane, _, _) in enumerate(chunks) if i not in done}
            assert (progress.working, progress.idle) == (len(left), not left)
            progress.check()
            seen.append(progress.resolved_ts)
        assert seen == sorted(seen)
        assert progress.resolved_ts == 60
        assert progress.idle
