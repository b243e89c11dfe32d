"""Age clock: nothing gets older than it is, whatever one clock says; and it does get older."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pump.retention.age_clock import SLACK_S, AgeClock, Anchor
from tidb_binlog import tso

DAY_S = 86_400.0
BEGAN_S = 1_700_000_000.0


class Host:
    """A pump's host: true time, its wall clock, its boots; and an upstream whose clock is its own."""

    def __init__(self) -> None:
        self.now_s = BEGAN_S
        self.boot, self.booted_s = 1, BEGAN_S - 1000
        self.wall_ahead_s = self.upstream_ahead_s = 0.0
        self.stored = ""
        self.restart()

    def restart(self) -> None:
        self.ages = AgeClock(self.stored, f"boot {self.boot}")

    def reboot(self) -> None:
        self.boot += 1
        self.booted_s = self.now_s
        self.restart()

    def reckon(self) -> float:
        """How much older than they are files seem, s; negative: younger."""
        drawn = tso.from_wall_s(self.now_s + self.upstream_ahead_s)
        aged = self.ages.reckon(drawn, self.now_s - self.booted_s, self.now_s + self.wall_ahead_s)
        self.stored = aged.anchor or self.stored
        assert aged.ts <= drawn
        assert aged.ahead_s == pytest.approx(tso.physical_s(drawn) - tso.physical_s(aged.ts))
        return tso.physical_s(aged.ts) - self.now_s


@settings(max_examples=300)
@given(
    wrong=st.sampled_from(("wall_ahead_s", "upstream_ahead_s")),
    events=st.lists(
        st.one_of(
            st.tuples(st.just("pass"), st.sampled_from((0.0, 1.0, 600.0, 5 * DAY_S))),
            st.tuples(st.just("jump"), st.sampled_from((0.0, 60.0, 8 * DAY_S, 3e9, -8 * DAY_S))),
            st.tuples(st.just("restart"), st.just(0.0)),
        ),
        max_size=30,
    ),
)
def test_one_wrong_clock_makes_nothing_older_than_it_is(wrong: str, events: list[tuple[str, float]]) -> None:
    host = Host()
    assert host.reckon() == pytest.approx(0, abs=0.01)
    for what, value in events:
        if what == "pass":
            host.now_s += value
        elif what == "jump":
            setattr(host, wrong, value)
        else:
            host.restart()
        drift_s = 0.001 * (host.now_s - BEGAN_S)
        assert host.reckon() <= SLACK_S + drift_s + 0.01


@settings(max_examples=100)
@given(st.lists(st.tuples(st.sampled_from(("restart", "reboot", "")), st.floats(0, 30 * DAY_S)), max_size=20))
def test_where_clocks_are_right_ages_are(events: list[tuple[str, float]]) -> None:
    host = Host()
    for what, passed_s in events:
        host.now_s += passed_s
        if what:
            getattr(host, what)()
        assert host.reckon() == pytest.approx(0, abs=0.01)


def test_after_a_boot_two_clocks_have_to_agree() -> None:
    host = Host()
    host.reckon()
    host.upstream_ahead_s = 8 * DAY_S
    host.reboot()
    assert host.reckon() <= SLACK_S + 0.01
    host.wall_ahead_s = 8 * DAY_S
    host.reckon()
    host.reboot()
    assert host.reckon() > 7 * DAY_S, "both say so"


@pytest.mark.parametrize(
    "text",
    [
        *("", "{}", "[1]", "7", '{"ts": 1e999, "boot": "", "boot_s": 0, "wall_s": 0}'),
        '{"ts": 1%s, "boot": "boot", "boot_s": 0, "wall_s": 0}' % ("0" * 400),
        '{"ts": -5, "boot": "boot", "boot_s": 0, "wall_s": 0}',
        '{"ts": 1, "boot": "boot", "boot_s": -Infinity, "wall_s": 0}',
        '{"ts": 1, "boot": "boot", "boot_s": NaN, "wall_s": 0}',
        '{"ts": 1, "boot": "boot", "boot_s": 0, "wall_s": NaN}',
        '{"ts": 1, "boot": "other", "boot_s": 0, "wall_s": -Infinity}',
    ],
)
def test_an_anchor_that_cannot_be_read_is_none(text: str) -> None:
    assert Anchor.read(text) is None
    assert AgeClock(text, "boot").reckon(5 << 18, 1.0, 2.0).anchor
