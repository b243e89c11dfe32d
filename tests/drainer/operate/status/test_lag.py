"""The lag by stage adds up, and the reason is the one that can be acted on."""

from __future__ import annotations

import itertools
import math

import pytest

from drainer.operate.status.lag import (
    IDLE_S,
    STAGES,
    WINDOW_S,
    Circumstances,
    Lag,
    OpenTransaction,
    Places,
    Progression,
    PumpPlace,
    Rates,
    reason,
    split,
    status,
)
from tidb_binlog.status.codec import plain

NOW_S = 1_700_000_000.0
OPEN = OpenTransaction(4242, 61.0, "table 7; it may still commit")


def at(applied: float, handed: float, arrived: float, **pump: object) -> Places:
    """Places as seconds before now."""
    place = PumpPlace("pump-1", NOW_S - arrived, **pump)  # type: ignore[arg-type]
    return Places(NOW_S, NOW_S - handed, NOW_S - applied, place)


def test_each_stage_is_what_lies_between_two_places() -> None:
    lag = split(at(100, 90, 70, published_s=NOW_S - 40, unfiled_s=15.0))
    assert lag.stages() == pytest.approx({"write": 15, "sort_wait": 25, "pull": 30, "queue": 20, "apply": 10})
    assert lag.total_s == pytest.approx(100)
    assert tuple(lag.stages()) == STAGES


def test_stages_are_never_negative_and_add_up_whatever_was_read_when() -> None:
    seconds, switches = (0.0, 1.0, 5.0, -2.0), (False, True)
    for applied, handed, arrived, published, unfiled in itertools.product(seconds, repeat=5):
        for known, flows, connected in itertools.product(switches, repeat=3):
            places = at(
                applied,
                handed,
                arrived,
                flows=flows,
                connected=connected,
                published_s=NOW_S - published if known else None,
                unfiled_s=max(0.0, unfiled) if known else None,
            )
            lag = split(places)
            assert min(lag.stages().values()) >= 0
            assert lag.total_s == pytest.approx(max(0.0, applied))


def test_what_has_arrived_was_published_whatever_the_pump_said_before() -> None:
    """Its word is some seconds old; an idle stream must not look like a stuck one."""
    lag = split(at(0.4, 0.4, 0.4, published_s=NOW_S - 60, unfiled_s=0.0))
    assert lag.sort_wait_s == pytest.approx(0.4)
    assert lag.total_s == pytest.approx(0.4)


@pytest.mark.parametrize(
    ("flows", "connected", "stage"),
    [(True, True, "pull"), (False, False, "pull"), (True, False, "pull"), (False, True, "sort_wait")],
)
def test_without_the_pumps_word_nothing_is_made_up(flows: bool, connected: bool, stage: str) -> None:
    lag = split(at(50, 50, 50, flows=flows, connected=connected))
    assert lag.stages()[stage] == pytest.approx(50)


def test_without_a_pump_all_of_it_is_pull_or_apply() -> None:
    lag = split(Places(NOW_S, NOW_S - 20, NOW_S - 30))
    assert (lag.pull_s, lag.apply_s, lag.total_s) == (20, 10, 30)


def test_rates_are_means_over_the_window() -> None:
    progression = Progression()
    assert progression.rates == Rates()
    for second in range(100):
        progression.note(second, NOW_S + 3 * second, 1000 * second, 10 * second)
    assert progression.rates == Rates(1000.0, 10.0, 3.0)
    for second in range(100, 100 + int(WINDOW_S) + 2):
        progression.note(second, NOW_S + 300, 99_000, 990)
    assert progression.rates == Rates(0.0, 0.0, 0.0)


def test_the_estimate_takes_into_account_that_the_upstream_goes_on() -> None:
    assert Rates(speed=3.0).eta_s(100.0) == pytest.approx(50.0)
    assert Rates(speed=1.0).eta_s(100.0) is None
    assert Rates(speed=0.0).eta_s(100.0) is None
    assert Rates(speed=0.0).eta_s(0.0) == 0.0
    # By simulation: 1 s of upstream time a second is added, `speed` is taken off.
    lag_s, passed_s = 100.0, 0.0
    while lag_s > 0:
        lag_s, passed_s = lag_s + 0.01 - 3.0 * 0.01, passed_s + 0.01
    assert passed_s == pytest.approx(Rates(speed=3.0).eta_s(100.0), rel=0.01)


def said(places: Places, facts: Circumstances, rates: Rates | None = None) -> str:
    return reason(split(places), places, facts, rates or Rates(1234.0, 10.0, 0.5))


BEHIND = at(100, 100, 100, published_s=NOW_S - 100, unfiled_s=0.0, oldest=OPEN)


def test_nothing_holds_a_stream_that_is_current() -> None:
    places = at(IDLE_S / 2, 0, 0)
    assert said(places, Circumstances(collector_waits_for="the watermark of pump pump-1")) == ""


def test_the_reason_is_the_nearest_to_the_downstream() -> None:
    """With everything wrong at once, each is told as soon as what is nearer is repaired."""
    wrong = {
        "paused": (True, "operator"),
        "sink_waits_for": ("lane 1: 2003: gone", "gone"),
        "ddl": ("running DDL job 9", "DDL job 9"),
        "rate_limited": (True, "rate limit"),
        "lanes_full": (2, "2 of 4 lanes are full, 1,234 rows/s"),
    }
    left = dict(wrong)
    for key, (_, word) in wrong.items():
        facts = Circumstances(lanes=4, **{name: value for name, (value, _) in left.items()})  # type: ignore[arg-type]
        assert word in said(BEHIND, facts), key
        del left[key]
    found = said(BEHIND, Circumstances(lanes=4))
    assert "start_ts 4242" in found
    assert "pump-1" in found
    assert "table 7" in found


@pytest.mark.parametrize(
    ("places", "words"),
    [
        (at(100, 100, 100, connected=False, error="refused"), ("pump-1", "not reachable", "refused")),
        (at(1, 1, 1, connected=False, error="refused"), ("pump-1", "not reachable", "refused")),
        (at(100, 100, 100, published_s=NOW_S, unfiled_s=90.0), ("pump-1", "90 s behind with filing")),
        (at(100, 100, 100, published_s=NOW_S - 99, unfiled_s=0.0), ("the watermark of pump pump-1",)),
        (at(100, 100, 100, published_s=NOW_S, unfiled_s=0.0, flows=True), ("catching up", "pump-1")),
        (at(100, 20, 10), ("speed of the downstream",)),
        (at(100, 90, 10), ("speed of the downstream",)),
    ],
)
def test_what_a_pump_or_the_downstream_holds_up(places: Places, words: tuple[str, ...]) -> None:
    found = said(places, Circumstances(lanes=4))
    for word in words:
        assert word in found


def test_the_collectors_own_words_are_kept_where_no_pump_is_known() -> None:
    places = Places(NOW_S, NOW_S - 50, NOW_S - 50)
    assert said(places, Circumstances(collector_waits_for="a pump: none is registered")) == (
        "a pump: none is registered"
    )


def test_the_document_names_pump_and_transaction_only_while_they_matter() -> None:
    lag = split(BEHIND)
    shown = plain(status(lag, BEHIND.pump, "why", Rates(10, 1, 2.0), caught_up_s=IDLE_S))
    assert (shown["pump"], shown["start_ts"], shown["eta_s"]) == ("pump-1", 4242, 100.0)
    assert shown["total_s"] == pytest.approx(math.fsum(shown[f"{stage}_s"] for stage in STAGES))
    current = plain(status(Lag(0, 0, 0, 0, 0.1), BEHIND.pump, "", Rates(), caught_up_s=IDLE_S))
    assert (current["pump"], current["start_ts"], current["eta_s"]) == (None, None, 0.0)
    stuck = plain(status(lag, BEHIND.pump, "why", Rates(speed=0.5), caught_up_s=IDLE_S))
    assert stuck["eta_s"] is None
