"""The clock in etcd follows no single wrong clock: a cluster's life, with processes that come, go and jump.

A naive cluster: true time, an etcd host with a clock, processes with a wall clock each and a monotonic one
that begins with their life. At most one clock is wrong, by as much as it likes and at any time.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidb_binlog import tso
from tidb_binlog.upstream.standalone.time_bound import ASK_AGAIN_S, SLACK_S, TimeBound

DAY_S = 86_400.0
ETCD = "etcd"
BEGAN_S = 1_700_000_000.0


@dataclass
class Process:
    """One life. Its stored value and the bound are all it has."""

    wall_ahead_s: float
    born_s: float
    bound: TimeBound = field(default_factory=TimeBound)
    last_ts: int = 0


class Cluster:
    def __init__(self, names: str = "ab") -> None:
        self.now_s = BEGAN_S
        self.stored = 0
        self.etcd_ahead_s = 0.0
        self.etcd_tells = True
        self.wrong: dict[str, float] = {}
        self.lives = {name: self.born(name) for name in names}

    def born(self, name: str) -> Process:
        return Process(self.wrong.get(name, 0.0), self.now_s - random.Random(name).random() * 1000)

    def restart(self, name: str) -> None:
        self.lives[name] = self.born(name)

    def set_clock(self, name: str, ahead_s: float) -> None:
        self.wrong[name] = ahead_s
        if name == ETCD:
            self.etcd_ahead_s = ahead_s
        else:
            self.lives[name].wall_ahead_s = ahead_s

    def draw(self, name: str) -> int:
        """As the oracle does it."""
        life = self.lives[name]
        now_s, wall_s = self.now_s - life.born_s, self.now_s + life.wall_ahead_s
        if life.bound.should_ask(wall_s, now_s):
            clock = float(int(self.now_s + self.etcd_ahead_s)) if self.etcd_tells else None
            life.bound.observe([None, clock], now_s)
        life.bound.stored(self.stored, now_s)
        first = max(self.stored + 1, tso.from_wall_s(life.bound.physical_s(wall_s, now_s)))
        assert first > self.stored
        self.stored = first
        life.bound.stored(first, now_s)
        return first

    def check(self) -> None:
        ahead_s = tso.physical_s(self.stored) - self.now_s
        assert ahead_s <= SLACK_S + 0.002, f"dragged {ahead_s} s ahead"


OFFSETS = (-30 * DAY_S, -3.0, 0.0, 3.0, 60.0, 8 * DAY_S, 3e10)


@settings(max_examples=400, deadline=None)
@given(
    wrong=st.sampled_from(("a", ETCD)),
    events=st.lists(
        st.one_of(
            st.tuples(st.just("draw"), st.sampled_from("ab")),
            st.tuples(st.just("restart"), st.sampled_from("ab")),
            st.tuples(st.just("jump"), st.sampled_from(OFFSETS)),
            st.tuples(st.just("pass"), st.sampled_from((0.0, 0.001, 1.0, 11.0, 3600.0, 5 * DAY_S))),
            st.tuples(st.just("etcd tells"), st.booleans()),
        ),
        max_size=40,
    ),
)
def test_one_wrong_clock_drags_nobody(wrong: str, events: list[tuple[str, object]]) -> None:
    cluster = Cluster()
    cluster.draw("b")  # founded while all is well
    for what, value in events:
        if what in ("draw", "restart"):
            getattr(cluster, what)(value)
        elif what == "jump":
            cluster.set_clock(wrong, float(value))  # type: ignore[arg-type]
        elif what == "pass":
            cluster.now_s += float(value)  # type: ignore[arg-type]
        else:
            cluster.etcd_tells = bool(value)
        cluster.check()


def test_a_thousand_lives_with_a_wrong_clock_gain_nothing() -> None:
    cluster = Cluster()
    cluster.draw("b")
    cluster.set_clock("a", 8 * DAY_S)
    for tells in (True, False):
        cluster.etcd_tells = tells
        for _ in range(1000):
            cluster.restart("a")
            cluster.draw("a")
            cluster.draw("b")
            cluster.check()


@pytest.mark.parametrize("off_s", [0.5, 3600.0, 5 * DAY_S, 400 * DAY_S])
def test_a_cluster_that_was_off_finds_back_to_the_time_by_itself(off_s: float) -> None:
    cluster = Cluster()
    cluster.draw("a")
    cluster.now_s += off_s
    for name in "ab":
        cluster.restart(name)
    drawn = cluster.draw("a")
    assert -1.1 <= tso.physical_s(drawn) - cluster.now_s <= 0.001


def test_a_process_that_slept_or_was_set_right_follows_again() -> None:
    cluster = Cluster()
    cluster.draw("a")
    cluster.now_s += 2 * DAY_S
    cluster.lives["a"].born_s += 2 * DAY_S  # its monotonic clock stood still
    cluster.draw("a")
    cluster.now_s += ASK_AGAIN_S
    assert abs(tso.physical_s(cluster.draw("a")) - cluster.now_s) <= 1.1


def test_a_running_cluster_goes_on_while_etcds_clock_is_behind_or_not_told() -> None:
    for set_up in (lambda one: one.set_clock(ETCD, -3600.0), lambda one: setattr(one, "etcd_tells", False)):
        cluster = Cluster()
        cluster.draw("a")
        cluster.draw("b")
        set_up(cluster)
        for second in range(200):
            cluster.now_s += 1.0
            drawn = cluster.draw("ab"[second % 2])
            assert abs(tso.physical_s(drawn) - cluster.now_s) < 0.1


def test_etcd_is_not_asked_all_the_time() -> None:
    bound = TimeBound()
    assert bound.should_ask(1000.0, 5.0)
    bound.observe([None], 5.0)
    assert bound.etcd_is_silent
    assert not bound.should_ask(1000.0, 5.0 + ASK_AGAIN_S - 0.1)
    assert bound.should_ask(1000.0, 5.0 + ASK_AGAIN_S)
    bound.observe([999.0], 15.0)
    assert not bound.should_ask(1000.0, 1e6), "within the slack"
