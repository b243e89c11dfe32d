"""Selector: which pump takes this prewrite, and which pump took that one.

In     list (the usable pumps, and which are preferred), choose, started and finished (calls, while `score`
       chooses), remember and take
Out    Chosen(pump_id) or NoPump()
Holds  a write never gets a pump again that has failed it in this round while an untried one is usable, and
       no pump while an untried one of a better rank is usable; a commit gets exactly the pump that
       acknowledged its prewrite, whatever became of it since; the affinity map is bounded in entries and age
Why    a pump keeps a prewrite open until its end arrives there: an end sent elsewhere is an end without
       a beginning
Never  reads a clock or sends anything; `client` drives it

Strategies, each among the pumps of the best rank that has an untried one
    range   round robin over the usable pumps in order of their ids
    hash    index (start_ts + attempt) modulo the number of usable pumps, then onward: the same start_ts
            goes to the same pump as long as the list does not change
    score   the smallest expected wait:
                max(latency, 1 ms) x (calls in flight + 1) x (1 + 4 x errors) x 100 / score
            score is what the pump says of itself in the registry, 1 to 100; one that says nothing (0, as Go
            pumps do) counts as 100. latency is a moving average of successful calls (weight 0.2 for the
            newest) that halves for every 10 s without one, so that a pump once slow is tried again; errors is
            the count of failed calls, halving every 10 s and forgotten below 0.1. Equal: the one chosen
            longest ago.
    local unix
            the one pump that listens on a socket of this host; more than one would take turns
Tests  tests/pumpclient/pumps/test_selector.py, tests/pumpclient/test_client.py
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from types import MappingProxyType
from typing import Final, Literal, NamedTuple, get_args

from tidb_binlog.errors import ConfigError
from tidb_binlog.late_dataclass import dataclass
from tidb_binlog.tso import Ts

Strategy = Literal["range", "hash", "score", "local unix"]
STRATEGIES: Final[tuple[str, ...]] = get_args(Strategy)
LOCAL_UNIX: Final = "local unix"

LATENCY_FLOOR_S: Final = 0.001
LATENCY_WEIGHT: Final = 0.2
ERROR_WEIGHT: Final = 4.0
ERRORS_FORGOTTEN: Final = 0.1
HALF_LIFE_S: Final = 10.0
BEST_SCORE: Final = 100


class Standing(NamedTuple):
    """How much a pump is wanted. `rank`: the least comes first; `score`: what it says of itself, or 0."""

    rank: int = 0
    score: int = 0


_ALIKE: Final = Standing()
_NO_STANDINGS: Final[Mapping[str, Standing]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Chosen:
    """Send it to this pump."""

    pump_id: str


@dataclass(frozen=True, slots=True)
class NoPump:
    """No pump is usable."""


Choice = Chosen | NoPump


@dataclass(slots=True)
class Load:
    """What `score` knows of one pump."""

    latency_s: float = 0.0
    errors: float = 0.0
    updated_s: float = 0.0
    in_flight: int = 0
    chosen_at: int = 0
    score: int = 0

    def decay(self, now_s: float) -> None:
        """Bring averages forward to `now_s`."""
        factor = math.exp2(-max(now_s - self.updated_s, 0.0) / HALF_LIFE_S)
        self.latency_s *= factor
        self.errors *= factor
        self.updated_s = max(now_s, self.updated_s)

    def cost_s(self, now_s: float) -> float:
        """Expected wait in seconds; smaller is better."""
        factor = math.exp2(-max(now_s - self.updated_s, 0.0) / HALF_LIFE_S)
        latency_s = max(self.latency_s * factor, LATENCY_FLOOR_S)
        errors = self.errors * factor
        if errors < ERRORS_FORGOTTEN:
            errors = 0.0
        # A foreign pump may say any number: more than the best is no reason to wait longer for it.
        penalty = max(BEST_SCORE / self.score, 1.0) if self.score > 0 else 1.0
        return latency_s * (self.in_flight + 1) * (1 + ERROR_WEIGHT * errors) * penalty


class _Tier:
    """The usable pumps of one rank, in order of their ids, and whose turn it is."""

    __slots__ = ("members", "offset", "pumps", "turns")

    def __init__(self, offset: int) -> None:
        self.offset = offset
        self.fill(())

    def fill(self, pumps: Iterable[str]) -> None:
        self.pumps = tuple(pumps)
        self.members = frozenset(self.pumps)
        self.turns = tuple(map(Chosen, self.pumps))  # the same, as choices

    def next(self) -> Chosen:
        at = self.offset % len(self.turns)
        self.offset = at + 1
        return self.turns[at]

    def next_of(self, fresh: tuple[str, ...]) -> Chosen:
        chosen = self.onward(self.offset, fresh)
        self.offset = self.turns.index(chosen) + 1
        return chosen

    def onward(self, at: int, fresh: tuple[str, ...]) -> Chosen:
        """The first pump of `fresh` at or after position `at`, wrapping."""
        for step in range(len(self.turns)):
            choice = self.turns[(at + step) % len(self.turns)]
            if choice.pump_id in fresh:
                return choice
        raise AssertionError("fresh is a non-empty part of the tier")


def strategy_of(name: str) -> Strategy:
    """Check a strategy's name; `ConfigError` for an unknown one."""
    for strategy in STRATEGIES:
        if name == strategy:
            return strategy  # type: ignore[return-value]
    raise ConfigError(f"strategy {name} is not supported", hint=f"use one of {', '.join(STRATEGIES)}")


class Selector:
    """Chooses a pump for each attempt of a prewrite. `offset` is where round robin begins."""

    def __init__(self, strategy: str = "range", *, offset: int = 0) -> None:
        self._strategy = strategy_of(strategy)
        self._offset = offset
        self._listed: tuple[str, ...] = ()
        self._by_rank: dict[int, _Tier] = {}
        self._tiers: tuple[_Tier, ...] = ()  # those that have pumps, the best first
        self._loads: dict[str, Load] = {}
        self._choices = 0

    @property
    def strategy(self) -> Strategy:
        return self._strategy

    @property
    def counts_loads(self) -> bool:
        """Whether `started` is to be called for calls that begin now."""
        return self._strategy == "score"

    @property
    def size(self) -> int:
        """How many pumps are listed."""
        return len(self._listed)

    def switch(self, strategy: str) -> None:
        """Use another strategy from the next choice on; raises `ConfigError` for an unknown one."""
        self._strategy = strategy_of(strategy)

    def list(self, pump_ids: Iterable[str], standings: Mapping[str, Standing] = _NO_STANDINGS) -> None:
        """Replace the usable pumps; without a standing all are wanted alike. Loads of the others are kept
        while they have calls in flight."""
        self._listed = tuple(sorted(set(pump_ids)))
        ranked: dict[int, list[str]] = {rank: [] for rank in self._by_rank}
        for pump_id in self._listed:
            ranked.setdefault(standings.get(pump_id, _ALIKE).rank, []).append(pump_id)
        for rank, pumps in ranked.items():
            self._by_rank.setdefault(rank, _Tier(self._offset)).fill(pumps)
        self._tiers = tuple(self._by_rank[rank] for rank in sorted(ranked) if ranked[rank])
        self._loads = {
            pump_id: load
            for pump_id, load in self._loads.items()
            if pump_id in self._listed or load.in_flight
        }
        for pump_id in self._listed:
            self._loads.setdefault(pump_id, Load()).score = standings.get(pump_id, _ALIKE).score

    def choose(self, start_ts: Ts, attempt: int, tried: AbstractSet[str], now_s: float) -> Choice:
        """The pump for attempt number `attempt` (from 0), other than those in `tried` if there is one."""
        tiers = self._tiers
        if not tiers:
            return NoPump()
        takes_turns = self._strategy in ("range", LOCAL_UNIX)
        if takes_turns and not tried:
            return tiers[0].next()
        tier = next((candidate for candidate in tiers if not tried >= candidate.members), tiers[0])
        fresh = tuple(pump for pump in tier.pumps if pump not in tried) or tier.pumps
        if takes_turns:
            return tier.next_of(fresh)
        if self._strategy == "hash":
            return tier.onward(start_ts + attempt, fresh)
        chosen = min(fresh, key=lambda pump: (self._loads[pump].cost_s(now_s), self._loads[pump].chosen_at))
        self._choices += 1
        self._loads[chosen].chosen_at = self._choices
        return Chosen(chosen)

    def started(self, pump_id: str) -> None:
        """A call to the pump begins."""
        self._loads.setdefault(pump_id, Load()).in_flight += 1

    def finished(self, pump_id: str, now_s: float, latency_s: float, stored: bool) -> None:
        """A call ended. A failed one counts as an error only: a quick refusal must not attract more."""
        load = self._loads[pump_id]
        load.in_flight -= 1
        load.decay(now_s)
        if stored:
            first = load.latency_s == 0.0
            load.latency_s = (
                latency_s if first else (load.latency_s + LATENCY_WEIGHT * (latency_s - load.latency_s))
            )
        else:
            load.errors += 1
        if not load.in_flight and pump_id not in self._listed:
            del self._loads[pump_id]

    def cancelled(self, pump_id: str) -> None:
        """A call was given up by its caller: it says nothing about the pump."""
        load = self._loads[pump_id]
        load.in_flight -= 1
        if not load.in_flight and pump_id not in self._listed:
            del self._loads[pump_id]

    def check(self) -> None:
        assert list(self._listed) == sorted(set(self._listed))
        assert sorted(pump for tier in self._tiers for pump in tier.pumps) == list(self._listed)
        assert set(self._listed) <= set(self._loads)
        for pump_id, load in self._loads.items():
            assert load.in_flight >= 0, pump_id
            assert pump_id in self._listed or load.in_flight, pump_id


class Affinity:
    """start_ts of a prewrite to the pump that acknowledged it, until its end is sent.

    At `entries_max` entries the oldest is dropped; one older than `age_max_s` seconds as well. A dropped
    one costs a delay: the pump asks the upstream what became of the transaction.
    """

    def __init__(self, entries_max: int, age_max_s: float) -> None:
        self._entries_max = entries_max
        self._age_max_s = age_max_s
        # In order of time: dropped from the front, which a plain dict would search for.
        self._entries: OrderedDict[int, tuple[str, float]] = OrderedDict()
        self._expires_s = math.inf  # nothing is too old before
        self._counts: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def remember(self, start_ts: Ts, pump_id: str, now_s: float) -> None:
        """The pump has acknowledged this prewrite."""
        entries, counts = self._entries, self._counts
        if start_ts in entries:
            self._drop(start_ts)
        if not entries:
            self._expires_s = now_s + self._age_max_s
        entries[start_ts] = (pump_id, now_s)
        counts[pump_id] = counts.get(pump_id, 0) + 1
        if now_s >= self._expires_s or len(entries) > self._entries_max:
            self.expire(now_s)

    def take(self, start_ts: Ts) -> str | None:
        """The pump of this prewrite, None where none is known; the entry is used up."""
        return self._drop(start_ts)

    def expire(self, now_s: float) -> None:
        """Drop what is too old or too much."""
        while self._entries:
            oldest = next(iter(self._entries))
            self._expires_s = self._entries[oldest][1] + self._age_max_s
            if now_s < self._expires_s and len(self._entries) <= self._entries_max:
                return
            self._drop(oldest)

    def clear(self) -> None:
        """Forget all of them."""
        self._entries.clear()
        self._counts.clear()

    def holds(self, pump_id: str) -> bool:
        """Whether an end may still have to go to this pump."""
        return pump_id in self._counts

    def _drop(self, start_ts: Ts) -> str | None:
        entry = self._entries.pop(start_ts, None)
        if entry is None:
            return None
        pump_id = entry[0]
        self._counts[pump_id] -= 1
        if not self._counts[pump_id]:
            del self._counts[pump_id]
        return pump_id

    def check(self) -> None:
        counts: dict[str, int] = {}
        last_s = float("-inf")
        for pump_id, at_s in self._entries.values():
            counts[pump_id] = counts.get(pump_id, 0) + 1
            assert at_s >= last_s
            last_s = at_s
        assert counts == self._counts
        assert len(self._entries) <= self._entries_max
