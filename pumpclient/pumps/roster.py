"""Roster: who the pumps are, which of them is offered, and which is kept for ends still to come.

In     apply (a ClusterView), feed (facts about calls), begin and end of calls; `selector` and `affinity`
Out    effects of `health`, ReplaceAddress(pump_id, old), and LabelServed(served)
Holds  the selector always offers exactly the pumps that `health` calls usable, those that have the client's
       label before others, and those that say they take nothing (a score below 0) last of all; a pump that
       left the registry stays known while a prewrite it acknowledged awaits its end or a call is under way
Why    discovery, health and selection share one membership; kept in one place they cannot disagree
Never  sends anything; `client` drives it
Tests  tests/pumpclient/test_client.py
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from pumpclient.options import Options
from pumpclient.pumps import health
from pumpclient.pumps.selector import Affinity, Chosen, Selector, Standing
from tidb_binlog.cluster.node import OFFLINE, ONLINE, NodeStatus
from tidb_binlog.cluster.registry import ClusterView
from tidb_binlog.errors import ConfigError
from tidb_binlog.late_dataclass import dataclass, field


@dataclass(frozen=True, slots=True)
class ReplaceAddress:
    """The pump is announced elsewhere now: connections to `old` are of no use."""

    pump_id: str
    old: str


@dataclass(frozen=True, slots=True)
class LabelServed:
    """Whether a usable pump with the client's label takes prewrites, from now on; else others get them."""

    served: bool


Effect = health.Effect | ReplaceAddress | LabelServed


@dataclass(frozen=True, slots=True)
class PumpView:
    """One pump as the client sees it. `state` is None for one that has left the registry; `labels` and
    `score` are what the pump says of itself there (0: nothing, below 0: it takes no prewrites)."""

    pump_id: str
    address: str
    state: health.PumpState | None
    in_flight: int
    labels: Mapping[str, str] = field(default_factory=dict, hash=False)
    score: int = 0


@dataclass(slots=True)
class _Member:
    status: NodeStatus
    in_flight: int = 0
    gone: bool = False

    @property
    def address(self) -> str:
        return self.status.host


def checked_label(label: Mapping[str, str] | None) -> dict[str, str]:
    """A client's label. Raises `ConfigError` unless it maps texts to texts."""
    labels = dict(label or {})
    for name, value in labels.items():
        if not (isinstance(name, str) and name and isinstance(value, str) and value):
            raise ConfigError(
                f"label {name!r}: {value!r} is not a name with its value",
                hint='give texts, as in label={"zone": "a"}',
            )
    return labels


class Roster:
    """All pumps the client knows."""

    def __init__(
        self,
        strategy: str,
        options: Options,
        *,
        offset: int = 0,
        label: Mapping[str, str] | None = None,
    ) -> None:
        """`label`: pumps that have all of it come before others."""
        self.label = checked_label(label)
        self._label_served = True
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
            PumpView(
                pump_id,
                member.address,
                self.health.state(pump_id),
                member.in_flight,
                MappingProxyType(member.status.labels),
                member.status.score,
            )
            for pump_id, member in sorted(self._members.items())
        )

    def apply(self, view: ClusterView, now_s: float) -> list[Effect]:
        """Take over what the registry says now."""
        effects: list[Effect] = []
        for pump_id, entry in view.pumps.items():
            member = self._members.setdefault(pump_id, _Member(entry.status))
            if member.address != entry.status.host:
                effects.append(ReplaceAddress(pump_id, member.address))
            member.status, member.gone = entry.status, False
            seen = health.Seen(pump_id, entry.status.state == ONLINE, entry.alive)
            effects += self.health.feed(seen, now_s)
        for pump_id, member in self._members.items():
            if pump_id not in view.pumps and not member.gone:
                member.gone = True
                effects += self.health.feed(health.Gone(pump_id), now_s)
        statuses = [entry.status for entry in view.pumps.values()]
        passed = [status.max_commit_ts for status in statuses if status.state != OFFLINE]
        self.watermark = min(passed, default=0)
        effects += self._offer(now_s)
        self._prune(now_s)
        return effects

    def feed(self, fact: health.Fact, now_s: float) -> list[Effect]:
        """Take in what a call said about its pump."""
        effects: list[Effect] = list(self.health.feed(fact, now_s))
        if effects:
            effects += self._offer(now_s)
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

    def _offer(self, now_s: float) -> list[Effect]:
        usable = self.health.usable()
        standings = {pump_id: self._standing(self._members[pump_id].status) for pump_id in usable}
        self.selector.list(usable, standings)
        if usable:
            self.out_since_s = None
        elif self.out_since_s is None:
            self.out_since_s = now_s
        served = any(standing.rank == 0 for standing in standings.values())
        if not self.label or served == self._label_served:
            return []
        self._label_served = served
        return [LabelServed(served)]

    def _standing(self, status: NodeStatus) -> Standing:
        """Of four ranks: with the client's label, others, and the same two of pumps that take nothing."""
        is_other = not self.label.items() <= status.labels.items()
        return Standing(is_other + 2 * (status.score < 0), status.score)

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
        if isinstance(choice, Chosen):
            ranks = {pump_id: self._standing(self._members[pump_id].status).rank for pump_id in usable}
            assert ranks[choice.pump_id] == min(ranks.values())
        assert set(self.health.online()) <= set(self._members)
        for pump_id, member in self._members.items():
            assert member.gone == (self.health.state(pump_id) is None)
            assert member.in_flight >= 0
