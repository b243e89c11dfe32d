"""Exhaustive models: every state that a world can come to is checked, and every end of it."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Protocol, Self


class Model(Protocol):
    """A world in one state. `budget`: what may still be done to it from outside (kills, DDL, refusals)."""

    @property
    def budget(self) -> Hashable: ...

    def key(self) -> Hashable: ...

    def copy(self) -> Self: ...

    def following(self) -> Iterator[Self]: ...

    def check(self) -> None: ...

    def check_end(self) -> None: ...


def explore(first: Model) -> tuple[int, int]:
    """Walk all states; how many there are, and how many of them are ends: nothing follows by itself."""
    seen = {first.key()}
    open_worlds = [first]
    ends = 0
    while open_worlds:
        world = open_worlds.pop()
        goes_on = False
        for following in world.following():
            goes_on = goes_on or following.budget == world.budget
            key = following.key()
            if key not in seen:
                seen.add(key)
                following.check()
                open_worlds.append(following.copy())
        if not goes_on:
            world.check_end()
            ends += 1
    return len(seen), ends
