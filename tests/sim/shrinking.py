"""Shrinking: the smallest world near one that broke which still breaks in the same way.

In     a size that breaks, the kinds of what goes wrong in it, and what a world of a size and seed comes to
Out    `Size`, and as options of `python -m tests.sim`
Why    one source draws everything: a world of another size is another world, and shows the same fault only
       by chance. So each smaller size has some seeds

Tests  tests/sim/test_worlds.py
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

_NUMBERS: Final = re.compile(r"[\d\[\],. ]+")
_SHORTEST_S: Final = 5.0


@dataclass(frozen=True)
class Size:
    """Of a world. `pumps` are there at the start, `programs` write, `readers` are readers or Drainers; it is
    healed after `faults_s`, or after bursts that take so long and the rests of `hours`. `without`: what does
    not go wrong."""

    pumps: int = 2
    programs: int = 3
    readers: int = 2
    faults_s: float = 40.0
    hours: float = 0.0
    without: frozenset[str] = frozenset()

    def options(self) -> str:
        """Those that it takes, of the command."""
        said = {
            name: getattr(self, name)
            for name in ("pumps", "programs", "readers", "faults_s", "hours")
            if getattr(self, name) != getattr(Size, name)
        }
        if self.without:
            said["without"] = ",".join(sorted(self.without))
        return "".join(f" --{name.replace('_', '-')} {value}" for name, value in said.items())

    @classmethod
    def add_options(cls, parser: argparse.ArgumentParser) -> None:
        for name, what in (("pumps", "at the start"), ("programs", "that write"), ("readers", "or Drainers")):
            parser.add_argument(f"--{name}", type=int, default=getattr(cls, name), help=f"so many {what}")
        parser.add_argument(
            "--faults-s", type=float, default=cls.faults_s, help="seconds until all is healed"
        )
        parser.add_argument(
            "--hours", type=float, default=cls.hours, help="hours of rests between bursts of so many seconds"
        )
        parser.add_argument(
            "--without", default="", help="what does not go wrong: kinds, with commas between"
        )

    @classmethod
    def of(cls, given: argparse.Namespace) -> Size:
        without = frozenset(given.without.split(",")) - {""}
        return cls(given.pumps, given.programs, given.readers, given.faults_s, given.hours, without)

    def shorter(self) -> Size:
        faults_s = max(self.faults_s / 2, min(self.faults_s, _SHORTEST_S))
        return replace(self, faults_s=faults_s, hours=self.hours / 2)

    def fewer(self, name: str) -> Size:
        """One less of them."""
        return replace(self, **{name: max(getattr(self, name) - 1, 1)})


def way(broken: str) -> str:
    """In which a world broke, whichever numbers and names it was with; "" for one that holds."""
    promise = broken.split(" (at ")[0].split(":")[0]
    return _NUMBERS.sub(" ", promise)


def shrink(
    size: Size, kinds: Sequence[str], seeds: Sequence[int], broken: str, run: Callable[[Size, int], str]
) -> Iterator[tuple[Size, int]]:
    """Each smaller size that breaks as `broken` says, with its seed; the last is the smallest. `run`: how the
    world broke, "" where it holds."""
    wanted = way(broken)
    for step in _steps([kind for kind in kinds if kind not in size.without]):
        smaller = step(size)
        if smaller != size:
            seed = next((seed for seed in seeds if way(run(smaller, seed)) == wanted), None)
            if seed is not None:
                size = smaller
                yield size, seed


def _steps(kinds: Sequence[str]) -> Iterator[Callable[[Size], Size]]:
    """Those first that make the worlds that follow quick; kinds together, then by halves."""
    yield from [Size.shorter] * 3
    count = len(kinds)
    while count:
        for at in range(0, len(kinds), count):
            some = kinds[at : at + count]
            yield lambda size, some=some: replace(size, without=size.without.union(some))  # type: ignore[misc]
        count //= 2
    for name in ("readers", "programs", "pumps"):
        yield from [partial(Size.fewer, name=name)] * 2
