"""A world that breaks is made smaller as long as it breaks in the same way."""

from __future__ import annotations

from tests.sim.shrinking import Size, shrink, way

KINDS = ("kill_pump", "cut", "reset", "slow_disk", "large_rows")
LOST = "reader-1 was given 17 without [12, 13], committed before it came (at 3.100 s)"


def test_what_a_fault_does_not_need_is_left_out() -> None:
    """It needs a kill, 10 seconds and two Pumps, and shows with each third seed."""

    def run(size: Size, seed: int) -> str:
        needed = "kill_pump" not in size.without and size.faults_s >= 10 and size.pumps == 2
        if not needed:
            return "p1 does not stop (at 3.000 s)"
        return LOST.replace("17", str(seed)) if seed % 3 == 0 else ""

    found = list(shrink(Size(), KINDS, range(7, 12), LOST, run))
    size, seed = found[-1]
    assert size == Size(2, 1, 1, 10.0, frozenset(KINDS[1:]))
    assert seed == 9
    assert all(way(run(*each)) == way(LOST) for each in found)
    said = " --programs 1 --readers 1 --faults-s 10.0 --without cut,large_rows,reset,slow_disk"
    assert size.options() == said


def test_what_cannot_be_smaller_stays() -> None:
    assert not list(shrink(Size(), KINDS, (1,), LOST, lambda size, seed: ""))


def test_a_way_is_the_promise_whatever_it_was_with() -> None:
    other = "reader-2 was given 9 without [1], committed before it came (at 70.000 s)"
    assert way(LOST) == way(other) != way("p1 does not stop (at 3.000 s)")
