"""Explorer: every state that a `World` can reach, once; those that differ in names of Pumps alone are one.

What `World` calls broken is looked for in each state and step. And from each state the healed cluster goes on
by one step after the other, until nothing is left to do: then every transaction that was begun is applied,
all Pumps that were started are online, and all that are closed have left.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable
from itertools import permutations
from typing import Final

from tests.model.joining import COMMITTED, NAMES, NEW, Broken, Left, State, Step, World
from tidb_binlog.cluster import node

ORDER: Final = (
    *("starts", "lease again", "looks", "sees", "online", "sync", "file", "mark", "commit", "end", "pull"),
    *("emit", "checkpoint", "time mark", "drawn", "observe", "leave"),
)
"""What happens while it can, when nothing goes wrong any more; the earlier the sooner."""


class Found(Exception):
    """What is broken, and the steps to it."""


class Explorer:
    """`steps`: so many were taken in `run`."""

    def __init__(self, world: World) -> None:
        self._world = world
        online, new = world.bounds.online, world.bounds.new
        every = range(online + new)
        self._orders = [
            (*first, *last) for first in permutations(every[:online]) for last in permutations(every[online:])
        ]
        self._before: dict[Hashable, tuple[Hashable, str] | None] = {}
        self._healed: dict[Hashable, Hashable] = {}  # what comes next once all is well; None: the end
        self.steps = 0

    def run(self, states_max: int = 1 << 60) -> int:
        """The number of states. Raises `Found`."""
        first = self._world.first()
        self._before[self._key(first)] = None
        waiting = deque([first])
        while waiting and len(self._before) < states_max:
            state = waiting.popleft()
            key = self._key(state)
            try:
                self._world.check(state)
                steps = list(self._world.steps(state))
                for name, after in steps:
                    after_key = self._key(after)
                    if after_key not in self._before:
                        self._before[after_key] = key, name
                        waiting.append(after)
                self.steps += len(steps)
                healing = best(steps)
                self._healed[key] = self._key(healing) if healing else self._at_rest(state)
            except Broken as broken:
                raise Found(f"{broken}: {', '.join(self._trace(key))}") from None
        self._check_rest(waiting)
        return len(self._before)

    def _trace(self, key: Hashable) -> list[str]:
        """The steps to a state."""
        names: list[str] = []
        while (before := self._before[key]) is not None:
            key, name = before
            names.append(name)
        return names[::-1]

    def _key(self, s: State) -> Hashable:
        """Of a state and of those that are the same with other names."""
        if len(self._orders) == 1:
            return s
        return min([self._named(s, order) for order in self._orders])

    def _named(self, s: State, order: tuple[int, ...]) -> tuple[object, ...]:
        """`order`: the old number of each Pump."""
        merger = self._world.mergers
        if order == self._orders[0]:
            return (*s[:3], merger.renamed(s.merger, {}), *s[4:])
        new = {old: at for at, old in enumerate(order)}
        txns = tuple([txn if txn.phase == NEW else txn._replace(pump=new[txn.pump]) for txn in s.txns])
        names = {NAMES[old] * times: NAMES[at] * times for old, at in new.items() for times in (1, 2)}
        pumps = tuple([s.pumps[old]._replace(stream=names.get(s.pumps[old].stream, "")) for old in order])
        views = [
            (new.get(who, who), at, tuple(entries[old] for old in order), ts)
            for who, at, entries, ts in s.views
        ]
        return (s.ts, txns, pumps, merger.renamed(s.merger, names), *s[4:-1], tuple(sorted(views)))

    # -- once all is well ------------------------------------------------------------------------

    def _at_rest(self, s: State) -> Hashable:
        """What comes when nothing is left to do but to draw timestamps: None if none is wanted."""
        wanted = max([txn.commit_ts for txn in s.txns] + [self._target(s, at) for at in range(len(s.pumps))])
        for at, pump in enumerate(s.pumps):
            if pump.stream and self._world.watermark(pump) < wanted:
                drawing = dict(self._world.steps(s._replace(left=Left(draws=1))))
                return self._follow(drawing[f"draw {at}"])
        if not any(pump.purged_ts > s.checkpoint for pump in s.pumps):  # else the drainer was gone, and stops
            for txn in s.txns:
                if txn.phase != NEW and (txn.phase < COMMITTED or txn.commit_ts > s.checkpoint):
                    raise Broken(f"in the end {txn} is not applied, the checkpoint is {s.checkpoint}")
            for pump in s.pumps:
                if pump.entry not in ("", node.ONLINE, node.OFFLINE):
                    raise Broken(f"in the end a Pump is {pump.entry}")
        return None

    def _target(self, s: State, at: int) -> int:
        """What a Pump that is closed waits for."""
        closing = s.pumps[at].closing
        return 0 if closing < 0 else self._world.closings.fact(closing, "mark", lambda it: it.mark)

    def _follow(self, s: State) -> Hashable:
        """From a state that may be new."""
        first = key = self._key(s)
        while key not in self._healed:
            self._world.check(s)
            after = best(self._world.steps(s))
            self._healed[key] = self._key(after) if after else self._at_rest(s)
            if after is None:
                break
            s, key = after, self._key(after)
        return first

    def _check_rest(self, unknown: Iterable[State]) -> None:
        """Nothing goes round in circles."""
        good: set[Hashable] = {None, *map(self._key, unknown)}
        for start in self._before:
            path: dict[Hashable, None] = {}
            key = start
            while key not in good:
                if key in path:
                    raise Found(f"it never comes to rest: {', '.join(self._trace(start))}")
                path[key] = None
                key = self._healed[key]
            good.update(path)


def best(steps: Iterable[Step]) -> State | None:
    """The first of what happens when all is well."""
    found = {name: after for name, after in steps if not name.endswith("slowly")}
    return next((found[name] for verb in ORDER for name in found if name.startswith(verb)), None)
