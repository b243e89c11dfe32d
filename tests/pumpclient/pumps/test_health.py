"""Health: the whole table, the error count, leases, the probe schedule."""

from __future__ import annotations

import itertools

import pytest

from pumpclient.pumps.health import (
    TABLE,
    Alive,
    Event,
    Fact,
    Failed,
    Gone,
    Health,
    Moved,
    Probe,
    PumpState,
    Reconnect,
    Seen,
    Stored,
)
from tests.cases import case

ONLINE, PAUSED = Seen("a", True), Seen("a", False)
DEAD, LIVING = Seen("a", True, False), Seen("a", True, True)

# Facts that bring a new pump into a state, errors_max 1.
WAY_TO = {
    PumpState.AWAY: [PAUSED],
    PumpState.USABLE: [ONLINE],
    PumpState.SUSPECT: [ONLINE, Failed("a")],
    PumpState.OUT: [ONLINE, Failed("a"), Failed("a")],
    PumpState.PROBING: [ONLINE, Failed("a"), Failed("a"), "tick"],
}
FACT_OF = {
    Event.CAME: ONLINE,
    Event.LEFT: PAUSED,
    Event.LEASE_LOST: DEAD,
    Event.STORED: Stored("a"),
    Event.ALIVE: Alive("a"),
    Event.FAILED: Failed("a"),
}


def health_in(state: PumpState) -> Health:
    health = Health(errors_max=1, probe_interval_s=30.0)
    for step in WAY_TO[state]:
        if step == "tick":
            health.tick(30.0)
        else:
            assert isinstance(step, Fact)
            health.feed(step, 0.0)
    assert health.state("a") is state
    health.check()
    return health


def test_the_table_names_only_moves() -> None:
    assert all(before is not after for (before, _), after in TABLE.items())
    assert set(itertools.chain(TABLE.values(), (before for before, _ in TABLE))) == set(PumpState)
    assert {event for _, event in TABLE} == set(Event)


def test_every_pair_follows_the_table_or_has_no_effect() -> None:
    for state, event in itertools.product(PumpState, FACT_OF):
        with case(state, event):
            health = health_in(state)
            effective = Event.EXHAUSTED if event is Event.FAILED and state is PumpState.SUSPECT else event
            expected = TABLE.get((state, effective), state)
            if state is PumpState.AWAY and event is Event.LEASE_LOST:
                expected = PumpState.OUT  # the registry says online (it came) and dead at once
            effects = health.feed(FACT_OF[event], 40.0)
            health.check()
            assert health.state("a") is expected
            moves = [effect for effect in effects if isinstance(effect, Moved)]
            assert bool(moves) == (expected is not state)
            assert health.usable() == (("a",) if expected in (PumpState.USABLE, PumpState.SUSPECT) else ())
            assert health.online() == (("a",) if expected is not PumpState.AWAY else ())


def test_out_with_the_eleventh_error_in_a_row() -> None:
    health = Health(errors_max=10, probe_interval_s=30.0)
    health.feed(ONLINE, 0.0)
    for _ in range(10):
        health.feed(Failed("a"), 0.0)
        health.check()
    assert health.state("a") is PumpState.SUSPECT
    effects = health.feed(Failed("a"), 5.0)
    assert effects == [Moved("a", PumpState.SUSPECT, PumpState.OUT), Reconnect("a")]
    assert health.next_probe_s() == 35.0


@pytest.mark.parametrize("answer", [Stored("a"), Alive("a")])
def test_any_answer_ends_a_row_of_errors(answer: Fact) -> None:
    health = Health(errors_max=2, probe_interval_s=30.0)
    health.feed(ONLINE, 0.0)
    for _ in range(5):
        health.feed(Failed("a"), 0.0)
        health.feed(Failed("a"), 0.0)
        assert health.feed(answer, 0.0) == [Moved("a", PumpState.SUSPECT, PumpState.USABLE)]


def test_no_error_is_forgiven_with_errors_max_zero() -> None:
    health = Health(errors_max=0, probe_interval_s=30.0)
    health.feed(ONLINE, 0.0)
    health.feed(Failed("a"), 0.0)
    health.check()
    assert health.state("a") is PumpState.OUT


def test_probes_come_every_interval_until_one_succeeds() -> None:
    health = health_in(PumpState.OUT)
    assert health.tick(29.9) == []
    assert health.tick(30.0) == [Moved("a", PumpState.OUT, PumpState.PROBING), Probe("a")]
    assert health.tick(90.0) == []  # one is under way
    assert health.next_probe_s() is None
    health.feed(Failed("a"), 91.0)
    assert health.next_probe_s() == 121.0
    assert Probe("a") in health.tick(121.0)
    assert health.feed(Stored("a"), 121.5) == [Moved("a", PumpState.PROBING, PumpState.USABLE)]
    assert health.next_probe_s() is None


def test_a_pump_that_refuses_the_probe_in_words_stays_out() -> None:
    health = health_in(PumpState.PROBING)
    health.feed(Alive("a"), 31.0)
    assert health.state("a") is PumpState.OUT


def test_a_leaving_pump_is_not_probed() -> None:
    health = health_in(PumpState.OUT)
    health.feed(PAUSED, 1.0)
    assert health.tick(1000.0) == []
    assert health.feed(ONLINE, 1001.0) == [Moved("a", PumpState.AWAY, PumpState.USABLE), Reconnect("a")]


def test_a_lease_that_runs_out_takes_a_pump_out_and_its_return_brings_it_back() -> None:
    health = Health(errors_max=10, probe_interval_s=30.0)
    health.feed(LIVING, 0.0)
    assert health.feed(DEAD, 1.0) == [Moved("a", PumpState.USABLE, PumpState.OUT), Reconnect("a")]
    assert health.feed(DEAD, 2.0) == []
    assert health.feed(LIVING, 3.0) == [Moved("a", PumpState.OUT, PumpState.USABLE), Reconnect("a")]
    health.feed(DEAD, 4.0)
    health.feed(Stored("a"), 5.0)  # it answers: the registry was wrong
    assert health.feed(DEAD, 6.0) == []
    assert health.state("a") is PumpState.USABLE


def test_a_node_without_leases_may_take_over_a_dead_ones_place() -> None:
    health = Health(errors_max=10, probe_interval_s=30.0)
    health.feed(DEAD, 0.0)
    assert health.state("a") is PumpState.OUT
    health.feed(ONLINE, 1.0)
    assert health.state("a") is PumpState.USABLE


def test_gone_pumps_and_late_answers() -> None:
    health = health_in(PumpState.SUSPECT)
    assert health.feed(Gone("a"), 1.0) == [Moved("a", PumpState.SUSPECT, None)]
    for fact in (Stored("a"), Alive("a"), Failed("a"), Gone("a")):
        assert health.feed(fact, 2.0) == []
    assert health.state("a") is None
    assert health.usable() == health.online() == ()


def test_the_last_chance_asks_usable_pumps_first() -> None:
    health = Health(errors_max=0, probe_interval_s=30.0)
    for pump_id in "abc":
        health.feed(Seen(pump_id, pump_id != "b"), 0.0)
    health.feed(Failed("a"), 0.0)
    assert health.online() == ("c", "a")


def test_all_sequences_of_five_facts_keep_the_invariants() -> None:
    facts = [ONLINE, PAUSED, DEAD, LIVING, Gone("a"), Stored("a"), Alive("a"), Failed("a"), None]
    for sequence in itertools.product(facts, repeat=5):
        health = Health(errors_max=1, probe_interval_s=1.0)
        probing = 0
        for now_s, fact in enumerate(sequence):
            effects = health.tick(float(now_s)) if fact is None else health.feed(fact, float(now_s))
            health.check()
            probing += sum(isinstance(effect, Probe) for effect in effects)
            if health.state("a") is not PumpState.PROBING:
                probing = 0
            assert probing <= 1
