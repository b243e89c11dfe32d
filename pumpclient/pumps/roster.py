"""Roster: who the pumps are, which of them is offered, and which is kept for ends still to come.

In     apply (a ClusterView), feed (facts about calls), begin and end of calls; `selector` and `affinity`
Out    effects of `health`, and ReplaceAddress(pump_id, old)
Holds  the selector always offers exactly the pumps that `health` calls usable; a pump that left the
       registry stays known while a prewrite it acknowledged awaits its end or a call to it is under way
Why    discovery, health and selection share one membership; kept in one place they cannot disagree
Never  sends anything; `client` drives it
Tests  tests/pumpclient/test_client.py
"""

from __future__ import annotations

from dataclasses import dataclass

from common.cluster.node import OFFLINE, ONLINE
from common.cluster.registry import ClusterView
from pumpclient.options import Options
from pumpclient.pumps import health
from pumpclient.pumps.selector import Affinity, Chosen, Selector


@dataclass(frozen=True, slots=True)
class ReplaceAddress:
    """The pump is announced elsewhere now: connections to `old` are of no use."""

    pump_id: str
    old: str


Effect = health.Effect | ReplaceAddress


@dataclass(frozen=True, slots=True)
class PumpView:
    """One pump as the client sees it. `state` is None for one that has left the registry."""

    pump_id: str
    address: str
    state: health.State | None
    in_flight: int


@dataclass(slots=True)
class _Member:
    address: str
    in_flight: int = 0
    gone: bool = False


class Roster:
    """All pumps the client knows."""

    def __init__(self, strategy: str, options: Options, *, offset: int = 0) -> None:
        self.selector = Selector(strategy, offset=offset)
        self.affinity = Affinity(options.affinity_entries_max, options.affinity_age_max_s)
        self.health = health.Health(options.errors_max, options.probe_interval_s)
        self.watermark = 0
        """What every registered pump that is not offline has passed; 0 while one has not said."""
        self.out_since_s: float | None = None
        """Since when no pump is usable; None while one is."""
        self._members: dict[str, _Member] = {}
        """Between `affinity.take` and `begin` nothing may run that prunes."""

    def address(self, pump_id: str) -> str:
        return self._members[pump_id].address

    def views(self) -> tuple[PumpView, ...]:
        return tuple(
            PumpView(pump_id, member.address, self.health.state(pump_id), member.in_flight)
            for pump_id, member in sorted(self._members.items())
        )

    def apply(self, view: ClusterView, now_s: float) -> list[Effect]:
        """Take over what the registry says now."""
        effects: list[Effect] = []
        for pump_id, entry in view.pumps.items():
            address = entry.status.host
            member = self._members.setdefault(pump_id, _Member(address))
            if member.address != address:
                effects.append(ReplaceAddress(pump_id, member.address))
                member.address = address
            member.gone = False
            seen = health.Seen(pump_id, entry.status.state == ONLINE, entry.alive)
            effects += self.health.feed(seen, now_s)
        for pump_id, member in self._members.items():
            if pump_id not in view.pumps and not member.gone:
                member.gone = True
                effects += self.health.feed(health.Gone(pump_id), now_s)
        statuses = [entry.status for entry in view.pumps.values()]
        passed = [status.max_commit_ts for status in statuses if status.state != OFFLINE]
        self.watermark = min(passed, default=0)
        self._offer(now_s)
        self._prune(now_s)
        return effects

    def feed(self, fact: health.Fact, now_s: float) -> list[Effect]:
        """Take in what a call said about its pump."""
        effects: list[Effect] = list(self.health.feed(fact, now_s))
        if effects:
            self._offer(now_s)
        return effects

    def tick(self, now_s: float) -> list[Effect]:
        """Probes that are due; also lets go of old affinities and of pumps kept for them."""
        self._prune(now_s)
        return list(self.health.tick(now_s))

    def begin(self, pump_id: str) -> None:
        """From here to `end` the pump stays known (a call, or a whole series of attempts)."""
        self._members[pump_id].in_flight += 1

    def end(self, pump_id: str, now_s: float) -> None:
        member = self._members[pump_id]
        member.in_flight -= 1
        if member.gone:
            self._prune(now_s)

    def _offer(self, now_s: float) -> None:
        usable = self.health.usable()
        self.selector.list(usable)
        if usable:
            self.out_since_s = None
        elif self.out_since_s is None:
            self.out_since_s = now_s

    def _prune(self, now_s: float) -> None:
        self.affinity.expire(now_s)
        for pump_id, member in list(self._members.items()):
            if member.gone and not member.in_flight and not self.affinity.holds(pump_id):
                del self._members[pump_id]

    def check(self) -> None:
        self.selector.check()
        self.affinity.check()
        self.health.check()
        usable = self.health.usable()
        assert not (usable and self.out_since_s is not None)
        choice = self.selector.choose(0, 0, frozenset(), 0.0)
        assert isinstance(choice, Chosen) == bool(usable)
        assert set(self.health.online()) <= set(self._members)
        for pump_id, member in self._members.items():
            assert member.gone == (self.health.state(pump_id) is None)
            assert member.in_flight >= 0
