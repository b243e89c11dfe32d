"""Faults that are planted in the rules, each in the smallest cluster that shows it."""

from __future__ import annotations

from typing import Final

from drainer.stream.pull.merger import Merger
from pump.index.sorter import Effect, Sorter
from pump.membership.close_conditions import Blocker
from tests.model.joining import NAMES, Bounds, Conditions, Left, Pump, State, View, World, changed
from tidb_binlog.cluster import node


class OneTooHigh(World):
    """A watermark is one above the timestamp that was drawn."""

    class sorter(Sorter):
        def mark(self, ts: int) -> list[Effect]:
            return super().mark(ts + 1)


class PassesOpen(World):
    """A drawn timestamp is the watermark although prewrites before it are open."""

    class sorter(Sorter):
        def mark(self, ts: int) -> list[Effect]:
            self.watermark = max(self.watermark, ts)
            return []


class PassesQueue(World):
    """The same although what is durable is not sorted yet."""

    def marked(self, pump: Pump, ts: int) -> Pump:
        return self.advanced(pump, ts)


class FastestIsEnough(World):
    """The merger waits for one Pump alone."""

    class merger(Merger):
        @property
        def reach(self) -> int:
            return max([self.floor(name) or 0 for name in self.source_ids], default=self.position)


class Unconfirmed(World):
    """A Pump takes prewrites before the Drainer knows it."""

    def may_go_online(self, s: State, pump: Pump) -> bool:
        return True


class LeaseBelieved(World):
    """The Drainer does not look for what it was not told while it had no lease."""

    def without_lease(self, s: State) -> State:
        return s._replace(alive=False)


class OldIsNews(World):
    """A view of the registry is believed although a younger one was seen."""

    def is_news(self, s: State, view: View) -> bool:
        return True


class JoinsTooHigh(World):
    """A Pump joins where the others are, and not where the merger is."""

    def joined(self, s: State, at: int) -> State:
        reach = self.mergers.fact(s.merger, "reach", lambda it: it.reach)
        merger, _ = self.mergers.step(s.merger, "high", lambda it: it.add_source(NAMES[at], reach), at)
        return changed(s._replace(merger=merger), at, stream=NAMES[at], position=reach)


class EndsWhatCloses(World):
    """The Drainer takes a Pump that is closing for one that has left."""

    def saw(self, s: State, view: View) -> State:
        ended = (node.OFFLINE if entry == node.CLOSING else entry for entry in view.entries)
        return super().saw(s, view._replace(entries=tuple(ended)))


class LeavesUnread(World):
    """A closed Pump does not wait for the Drainer."""

    class conditions(Conditions):
        @property
        def blockers(self) -> list[Blocker]:
            return []


class PagePromisesTooMuch(World):
    """A page that is full says that it reaches up to the watermark."""

    def pulled(self, s: State, at: int, stamps: tuple[int, ...], watermark: int) -> State:
        return super().pulled(s, at, stamps, self.watermark(s.pumps[at]))


class AdmitsWhileClosing(World):
    """A Pump that closes takes prewrites."""

    def admits(self, pump: Pump, start_ts: int) -> bool:
        return pump.state != node.OFFLINE


class PurgesUnstored(World):
    """What was given out is purged, though no checkpoint says that it is applied."""

    def applied(self, s: State) -> int:
        return s.announced


class ListsTooLate(World):
    """A reader that finds Pumps lets out what was known when its listing had come."""

    def saw(self, s: State, view: View) -> State:
        return super().saw(s, view._replace(reached_ts=self.reached(s)))


FAULTS: Final[dict[type[World], Bounds]] = {
    OneTooHigh: Bounds(1, 1, 0, Left(draws=1)),
    PassesOpen: Bounds(1, 1, 0, Left(draws=1)),
    PassesQueue: Bounds(1, 1, 0, Left(draws=1)),
    FastestIsEnough: Bounds(1, 2, 0, Left(draws=1)),
    Unconfirmed: Bounds(1, 1, 1, Left(draws=1)),
    LeaseBelieved: Bounds(1, 1, 1, Left(draws=1, leases=1)),
    OldIsNews: Bounds(1, 1, 1, Left(draws=1, slow=1, leases=1), again=True),
    JoinsTooHigh: Bounds(1, 1, 1, Left(draws=2, leases=1)),
    EndsWhatCloses: Bounds(1, 2, 0, Left(draws=1, closes=1)),
    LeavesUnread: Bounds(1, 1, 0, Left(draws=1, closes=1)),
    PagePromisesTooMuch: Bounds(2, 1, 0, Left(draws=1, pages=1)),
    AdmitsWhileClosing: Bounds(1, 1, 0, Left(draws=1, closes=1)),
    PurgesUnstored: Bounds(1, 1, 0, Left(draws=1, purges=1)),
    ListsTooLate: Bounds(1, 1, 1, Left(draws=1, slow=1), finds=True),
}
