"""Death at the calls that change the disk, twice in a row, by a kill, a power cut or a disk that fails.

    python -m tests.crash.deaths [--every N]

The first death strikes while a log is written, the second while the next life recovers and goes on. What is
left is opened, written to, opened again after one more power cut, and compared each time (see `lives`).
"""

from __future__ import annotations

import argparse
import errno
import sys
import time
from collections import Counter
from collections.abc import Iterator
from itertools import count

from tests.crash import lives
from tests.crash.faults import disk
from tests.crash.faults.disk import CUTS, ERROR, FREEZE, TEAR, Disk, Fault

FIRST, SECOND, LAST = lives.groups(5, 10), lives.groups(2, 100_000), lives.groups(1, 200_000)
DEATHS = (FREEZE, TEAR)
FAILURES = (ERROR,)


def leftovers(dead: Disk) -> Iterator[tuple[str, Disk]]:
    """What may be found after the process or the machine stopped."""
    yield "kill", dead.after_kill()
    for cut in CUTS:
        for entries_too in (False, True):
            yield f"power cut, {cut}", dead.after_power_cut(cut, entries_too=entries_too)


def calls_of(mount: lives.Mount, start: Disk, history: lives.History, made: list[list[bytes]]) -> list[str]:
    """What an undisturbed life calls."""
    whole = start.after_kill()
    history.copy().live(mount, whole, made)
    return whole.calls


def faults(calls: list[str], kinds: tuple[str, ...]) -> Iterator[dict[int, Fault]]:
    """One at a time, at every call where it makes a difference."""
    for at, call in enumerate(calls):
        for kind in kinds:
            if kind != TEAR or call.startswith("writev"):
                yield {at: Fault(kind, errno.EIO)}
    yield {len(calls): Fault(FREEZE)}


def run(mount: lives.Mount, kinds: tuple[str, ...], every: int) -> Counter[str]:
    """Every `every`-th of all combinations, and of each kind of end how many."""
    seen: Counter[str] = Counter()
    number = count()
    for first in faults(calls_of(mount, Disk(), lives.History(), FIRST), kinds):
        dead, history = Disk(first), lives.History()
        history.live(mount, dead, FIRST)
        for how, left in leftovers(dead):
            for second in faults(calls_of(mount, left, history, SECOND), kinds):
                if next(number) % every:
                    continue
                again, then = left.after_kill(second), history.copy()
                then.live(mount, again, SECOND)
                for end, last in leftovers(again):
                    final = then.copy()
                    final.live(mount, last, LAST)
                    final.live(mount, last.after_power_cut("nothing"), [])
                    seen[f"{how}, then {end}"] += 1
    return seen


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="tests.crash.deaths", allow_abbrev=False)
    parser.add_argument("--every", type=int, default=1)
    chosen = parser.parse_args(arguments)
    for name, kinds in (("deaths", DEATHS), ("failing calls", FAILURES)):
        began_s = time.monotonic()
        with disk.mounted() as mount:
            seen = run(mount, kinds, chosen.every)
        print(
            f"{name}: {seen.total()} ends of {len(seen)} kinds, {time.monotonic() - began_s:.0f} s",
            flush=True,
        )


if __name__ == "__main__":
    main(sys.argv[1:])
