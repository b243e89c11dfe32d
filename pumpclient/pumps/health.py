"""Health: which pumps may be given a prewrite, and when a pump that may not is asked again.

In     Seen, Gone (registry), Stored, Alive, Failed (replies), tick(now_s)
Out    Moved(pump_id, before, after), Reconnect(pump_id), Probe(pump_id)
Holds  only USABLE and SUSPECT pumps are offered; at most one probe of a pump is under way; a pump is out
       with its (errors_max + 1)th consecutive error, not before
Why    a pump that does not answer costs every prewrite a failed attempt; one that is left out for ever
       is capacity lost
Never  sends anything; `client` drives it

    AWAY      the registry says pausing, paused, closing or offline. Prewrites would be refused, so it is
              not probed either; only the registry brings it back. Commits still go there.
    USABLE    online, no error since its last reply.
    SUSPECT   online, one to errors_max consecutive errors. Still offered: one error is no verdict, and
              the retry goes to another pump anyway.
    OUT       online, but too many errors, or its lease in the registry has run out (the process died).
              Not offered. It is probed every probe_interval_s; a prewrite that finds no usable pump
              tries it too.
    PROBING   out, and a probe is under way.

A reply that carries an error text is proof of life (it ends a row of errors) but nothing was stored: it
does not bring a pump back. Nor does an acknowledged commit, which a full or leaving pump gives as well.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from tidb_binlog.late_dataclass import dataclass


class PumpState(Enum):
    """Whether a pump is written to."""

    AWAY = "away"
    USABLE = "usable"
    SUSPECT = "suspect"
    OUT = "out"
    PROBING = "probing"


class Event(Enum):
    CAME = "came online"
    LEFT = "left"
    LEASE_LOST = "lease lost"
    LEASE_BACK = "lease back"
    STORED = "stored"
    ALIVE = "alive"
    FAILED = "failed"
    EXHAUSTED = "failed too often"
    PROBE_SENT = "probe sent"


# Anything not listed leaves the state as it is.
TABLE: Final[dict[tuple[PumpState, Event], PumpState]] = {
    (PumpState.AWAY, Event.CAME): PumpState.USABLE,
    (PumpState.USABLE, Event.LEFT): PumpState.AWAY,
    (PumpState.USABLE, Event.LEASE_LOST): PumpState.OUT,
    (PumpState.USABLE, Event.FAILED): PumpState.SUSPECT,
    (PumpState.USABLE, Event.EXHAUSTED): PumpState.OUT,
    (PumpState.SUSPECT, Event.LEFT): PumpState.AWAY,
    (PumpState.SUSPECT, Event.LEASE_LOST): PumpState.OUT,
    (PumpState.SUSPECT, Event.LEASE_BACK): PumpState.USABLE,
    (PumpState.SUSPECT, Event.STORED): PumpState.USABLE,
    (PumpState.SUSPECT, Event.ALIVE): PumpState.USABLE,
    (PumpState.SUSPECT, Event.EXHAUSTED): PumpState.OUT,
    (PumpState.OUT, Event.LEFT): PumpState.AWAY,
    (PumpState.OUT, Event.LEASE_BACK): PumpState.USABLE,
    (PumpState.OUT, Event.STORED): PumpState.USABLE,
    (PumpState.OUT, Event.PROBE_SENT): PumpState.PROBING,
    (PumpState.PROBING, Event.LEFT): PumpState.AWAY,
    (PumpState.PROBING, Event.LEASE_BACK): PumpState.USABLE,
    (PumpState.PROBING, Event.STORED): PumpState.USABLE,
    (PumpState.PROBING, Event.ALIVE): PumpState.OUT,
    (PumpState.PROBING, Event.FAILED): PumpState.OUT,
    (PumpState.PROBING, Event.EXHAUSTED): PumpState.OUT,
}


@dataclass(frozen=True, slots=True)
class Seen:
    """The registry lists the pump. `alive` is False when its lease is gone, None when it never had one."""

    pump_id: str
    online: bool
    alive: bool | None = None


@dataclass(frozen=True, slots=True)
class Gone:
    """The registry no longer lists the pump."""

    pump_id: str


@dataclass(frozen=True, slots=True)
class Stored:
    """It acknowledged a prewrite or a probe."""

    pump_id: str


@dataclass(frozen=True, slots=True)
class Alive:
    """It answered, but not with an acknowledged prewrite: an error text, or an acknowledged commit."""

    pump_id: str


@dataclass(frozen=True, slots=True)
class Failed:
    """The call failed."""

    pump_id: str


Fact = Seen | Gone | Stored | Alive | Failed


@dataclass(frozen=True, slots=True)
class Moved:
    """The pump changed state; None is "not known"."""

    pump_id: str
    before: PumpState | None
    after: PumpState | None


@dataclass(frozen=True, slots=True)
class Reconnect:
    """Whatever connection to it is open is not to be used again."""

    pump_id: str


@dataclass(frozen=True, slots=True)
class Probe:
    """Ask it with an empty binlog whether it takes prewrites."""

    pump_id: str


Effect = Moved | Reconnect | Probe


@dataclass(slots=True)
class _Entry:
    state: PumpState
    lease_lost: bool
    errors: int = 0
    probe_at_s: float = 0.0


class Health:
    """PumpState of every registered pump. `errors_max` consecutive errors are forgiven."""

    def __init__(self, errors_max: int, probe_interval_s: float) -> None:
        self._errors_max = errors_max
        self._probe_interval_s = probe_interval_s
        self._entries: dict[str, _Entry] = {}

    def state(self, pump_id: str) -> PumpState | None:
        """None for a pump the registry does not list."""
        entry = self._entries.get(pump_id)
        return entry.state if entry else None

    def is_settled(self, pump_id: str) -> bool:
        """Whether Stored and Alive say nothing new of the pump, as usual: `feed` may be left out."""
        entry = self._entries.get(pump_id)
        return entry is not None and entry.state is PumpState.USABLE

    def usable(self) -> tuple[str, ...]:
        """Pumps that may be offered a prewrite."""
        return tuple(
            pump_id
            for pump_id, entry in self._entries.items()
            if entry.state in (PumpState.USABLE, PumpState.SUSPECT)
        )

    def online(self) -> tuple[str, ...]:
        """Pumps that the registry calls online: the last chance of a prewrite. Usable ones first."""
        listed = [pump_id for pump_id, entry in self._entries.items() if entry.state is not PumpState.AWAY]
        rank = {PumpState.USABLE: 0, PumpState.SUSPECT: 1}
        return tuple(sorted(listed, key=lambda pump_id: rank.get(self._entries[pump_id].state, 2)))

    def feed(self, fact: Fact, now_s: float) -> list[Effect]:
        """Take one fact in; what follows from it."""
        if isinstance(fact, Seen):
            return self._seen(fact, now_s)
        entry = self._entries.get(fact.pump_id)
        if entry is None:
            return []  # a late reply of a pump that has left the registry
        if isinstance(fact, Gone):
            del self._entries[fact.pump_id]
            return [Moved(fact.pump_id, entry.state, None)]
        if isinstance(fact, Stored):
            return self._apply(fact.pump_id, Event.STORED, now_s)
        if isinstance(fact, Alive):
            return self._apply(fact.pump_id, Event.ALIVE, now_s)
        last = entry.errors >= self._errors_max
        return self._apply(fact.pump_id, Event.EXHAUSTED if last else Event.FAILED, now_s)

    def tick(self, now_s: float) -> list[Effect]:
        """Probes that are due."""
        effects: list[Effect] = []
        for pump_id, entry in self._entries.items():
            if entry.state is PumpState.OUT and entry.probe_at_s <= now_s:
                effects += self._apply(pump_id, Event.PROBE_SENT, now_s)
                effects.append(Probe(pump_id))
        return effects

    def next_probe_s(self) -> float | None:
        """When `tick` has something to do next; None while no pump is out."""
        return min(
            (entry.probe_at_s for entry in self._entries.values() if entry.state is PumpState.OUT),
            default=None,
        )

    def _seen(self, seen: Seen, now_s: float) -> list[Effect]:
        lost = seen.alive is False
        entry = self._entries.get(seen.pump_id)
        if entry is None:
            state = PumpState.AWAY if not seen.online else PumpState.OUT if lost else PumpState.USABLE
            self._entries[seen.pump_id] = _Entry(state, lost, probe_at_s=now_s + self._probe_interval_s)
            return [Moved(seen.pump_id, None, state)]
        was_lost, entry.lease_lost = entry.lease_lost, lost
        if not seen.online:
            return self._apply(seen.pump_id, Event.LEFT, now_s)
        effects = self._apply(seen.pump_id, Event.CAME, now_s)
        if lost and (effects or not was_lost):
            effects += self._apply(seen.pump_id, Event.LEASE_LOST, now_s)
        elif was_lost and not lost:
            effects += self._apply(seen.pump_id, Event.LEASE_BACK, now_s)
        return effects

    def _apply(self, pump_id: str, event: Event, now_s: float) -> list[Effect]:
        entry = self._entries[pump_id]
        before = entry.state
        after = TABLE.get((before, event), before)
        if after is not PumpState.SUSPECT:
            entry.errors = 0
        elif event is Event.FAILED:
            entry.errors += 1
        if after is before:
            return []
        entry.state = after
        if after is PumpState.OUT:
            entry.probe_at_s = now_s + self._probe_interval_s
        effects: list[Effect] = [Moved(pump_id, before, after)]
        came_back = after is PumpState.USABLE and before in (PumpState.AWAY, PumpState.OUT)
        went_out = after is PumpState.OUT and before is not PumpState.PROBING
        if went_out or came_back:
            effects.append(Reconnect(pump_id))
        return effects

    def check(self) -> None:
        for pump_id, entry in self._entries.items():
            if entry.state is PumpState.SUSPECT:
                assert 1 <= entry.errors <= self._errors_max, pump_id
            else:
                assert entry.errors == 0, (pump_id, entry)
