"""Selector and affinity: fairness, fallbacks, bounds; exhaustively on small inputs."""

from __future__ import annotations

import itertools
from collections import Counter

import pytest

from pumpclient.pumps.selector import STRATEGIES, Affinity, Chosen, NoPump, Selector, Standing
from tidb_binlog.errors import ConfigError

PUMPS = ("a", "b", "c")


def chosen(
    selector: Selector, start_ts: int = 1, attempt: int = 0, tried: str = "", now_s: float = 0.0
) -> str:
    choice = selector.choose(start_ts, attempt, frozenset(tried), now_s)
    assert isinstance(choice, Chosen)
    selector.check()
    return choice.pump_id


def subsets(items: tuple[str, ...]) -> list[tuple[str, ...]]:
    return [c for n in range(len(items) + 1) for c in itertools.combinations(items, n)]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_every_list_and_every_tried_set(strategy: str) -> None:
    """Nothing listed: no pump. Otherwise a listed one, and an untried one while there is one."""
    for listed, tried in itertools.product(subsets(PUMPS), subsets(PUMPS)):
        for start_ts, attempt, offset in itertools.product(range(4), range(4), range(4)):
            selector = Selector(strategy, offset=offset)
            selector.list(listed)
            choice = selector.choose(start_ts, attempt, frozenset(tried), 0.0)
            if not listed:
                assert choice == NoPump()
                continue
            assert isinstance(choice, Chosen)
            assert choice.pump_id in (set(listed) - set(tried) or set(listed))


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_every_rank_of_every_listed_pump_and_every_tried_set(strategy: str) -> None:
    """An untried pump of the best rank that has one; when all were tried, one of the best rank of all."""
    for ranks in itertools.product((None, 0, 1, 2), repeat=len(PUMPS)):
        standings = {
            pump: Standing(rank) for pump, rank in zip(PUMPS, ranks, strict=True) if rank is not None
        }
        for tried, start_ts, attempt in itertools.product(subsets(PUMPS), range(3), range(3)):
            selector = Selector(strategy, offset=start_ts)
            selector.list(standings, standings)
            selector.check()
            choice = selector.choose(start_ts, attempt, frozenset(tried), 0.0)
            if not standings:
                assert choice == NoPump()
                continue
            assert isinstance(choice, Chosen)
            left = set(standings) - set(tried) or set(standings)
            assert choice.pump_id in left
            assert standings[choice.pump_id].rank == min(standings[pump].rank for pump in left)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_while_the_preferred_pumps_refuse_the_others_share_fairly(strategy: str) -> None:
    """Every list of preferred and other pumps; each write is refused by all preferred ones first."""
    pumps = ("a", "b", "c", "d", "e")
    for split, offset in itertools.product(range(1, len(pumps)), range(3)):
        near, far = pumps[:split], pumps[split:]
        selector = Selector(strategy, offset=offset)
        selector.list(pumps, {pump: Standing(1) for pump in far})
        taken: Counter[str] = Counter()
        for start_ts in range(4 * len(far) * len(near)):
            tried: set[str] = set()
            while (pump := chosen(selector, start_ts, len(tried), "".join(sorted(tried)))) in near:
                tried.add(pump)
            assert tried == set(near)
            taken[pump] += 1
        assert dict(taken) == dict.fromkeys(far, 4 * len(near))


def test_turns_go_on_in_each_rank_when_pumps_change_ranks() -> None:
    selector = Selector("range")
    selector.list(PUMPS, {"c": Standing(1)})
    assert [chosen(selector) for _ in range(3)] == ["a", "b", "a"]
    selector.list(PUMPS, {"a": Standing(1), "b": Standing(1), "c": Standing(1)})
    assert [chosen(selector) for _ in range(2)] == ["a", "b"]
    selector.list(PUMPS, {"c": Standing(1)})
    assert [chosen(selector) for _ in range(2)] == ["b", "a"]


def test_score_weighs_what_pumps_say_and_takes_silence_for_the_best() -> None:
    """Go pumps say 0. With 25 a pump gets a quarter, also when all are equally quick."""
    selector = Selector("score")
    selector.list(PUMPS, {"a": Standing(0, 100), "b": Standing(0, 25), "c": Standing(0, 0)})
    picks: Counter[str] = Counter()
    for _ in range(9):
        pump_id = chosen(selector)
        selector.started(pump_id)
        picks[pump_id] += 1
    assert picks == {"a": 4, "b": 1, "c": 4}


def test_range_takes_turns() -> None:
    selector = Selector("range")
    selector.list(PUMPS)
    assert [chosen(selector) for _ in range(7)] == ["a", "b", "c", "a", "b", "c", "a"]


def test_range_goes_on_fairly_when_the_list_changes() -> None:
    selector = Selector("range", offset=1)
    selector.list(PUMPS)
    assert chosen(selector) == "b"
    selector.list(("a", "b", "c", "d"))
    assert [chosen(selector) for _ in range(4)] == ["c", "d", "a", "b"]
    selector.list(("a",))
    assert [chosen(selector) for _ in range(2)] == ["a", "a"]


@pytest.mark.parametrize("pumps", [1, 2, 3])
def test_hash_is_start_ts_plus_attempt_modulo_pumps(pumps: int) -> None:
    selector = Selector("hash")
    selector.list(PUMPS[:pumps])
    for start_ts, attempt in itertools.product(range(12), range(12)):
        assert chosen(selector, start_ts, attempt) == PUMPS[(start_ts + attempt) % pumps]


def test_score_does_not_take_more_than_the_best_for_better() -> None:
    """Whatever a foreign pump says of itself: one that fails gets less."""
    selector = Selector("score")
    selector.list(["bold", "plain"], {"bold": Standing(0, 1 << 62), "plain": Standing(0, 100)})
    for pump_id in ("bold", "plain"):
        selector.started(pump_id)
        selector.finished(pump_id, 0.0, 0.01, pump_id == "plain")
    selector.started("bold")
    selector.finished("bold", 0.0, 0.01, True)
    assert selector.choose(1, 0, frozenset(), 0.0) == Chosen("plain")


def test_score_prefers_the_quick_pump_but_not_without_limit() -> None:
    """Pumps of 2 and 8 ms: four calls in flight at the quick one weigh as much as one at the slow one."""
    selector = Selector("score")
    selector.list(("quick", "slow"))
    for pump_id, latency_s in (("quick", 0.002), ("slow", 0.008)):
        selector.started(pump_id)
        selector.finished(pump_id, 0.0, latency_s, True)
    picks = []
    for _ in range(10):
        pump_id = chosen(selector)
        selector.started(pump_id)
        picks.append(pump_id)
    assert Counter(picks) == {"quick": 8, "slow": 2}


def test_score_tries_every_pump_before_it_knows_any() -> None:
    selector = Selector("score")
    selector.list(PUMPS)
    assert {chosen(selector) for _ in range(3)} == set(PUMPS)


def test_score_avoids_a_failing_pump_and_comes_back_with_time() -> None:
    selector = Selector("score")
    selector.list(("a", "b"))
    for pump_id in ("a", "b"):
        selector.started(pump_id)
        selector.finished(pump_id, 0.0, 0.004, True)
    for _ in range(3):  # quick failures must not look like speed
        selector.started("a")
        selector.finished("a", 0.0, 0.0001, False)
    assert [chosen(selector) for _ in range(3)] == ["b", "b", "b"]
    assert "a" in {chosen(selector, now_s=120.0) for _ in range(2)}


def test_score_tries_a_once_slow_pump_again() -> None:
    selector = Selector("score")
    selector.list(("a", "b"))
    for pump_id, latency_s in (("a", 5.0), ("b", 0.005)):
        selector.started(pump_id)
        selector.finished(pump_id, 0.0, latency_s, True)
    picks = []
    for second in range(1, 200):
        pump_id = chosen(selector, now_s=float(second))
        picks.append(pump_id)
        if pump_id == "a":
            break
        selector.started("b")
        selector.finished("b", float(second), 0.005, True)
    assert 60 < len(picks) < 150  # 5 s halved every 10 s is below 5 ms after 100 s


def test_loads_of_absent_pumps_live_until_their_calls_end() -> None:
    selector = Selector("score")
    selector.list(("a",))
    selector.started("a")
    selector.started("a")
    selector.list(())
    selector.finished("a", 0.0, 0.001, True)
    selector.check()
    selector.cancelled("a")
    selector.check()
    selector.list(("a",))
    assert chosen(selector) == "a"


def test_switching_and_unknown_strategy() -> None:
    selector = Selector("hash")
    selector.list(PUMPS)
    selector.switch("range")
    assert selector.strategy == "range"
    assert [chosen(selector, 7) for _ in range(2)] == ["a", "b"]
    for name in ("", "zigzag", "unix"):
        with pytest.raises(ConfigError, match="is not support"):
            selector.switch(name)
        with pytest.raises(ConfigError):
            Selector(name)
    assert selector.strategy == "range"


def test_affinity_against_a_plain_model() -> None:
    """All sequences of five steps out of: remember 1, 2 or 3, take one of them, let time pass."""
    steps = [("put", 1), ("put", 2), ("put", 3), ("take", 1), ("take", 2), ("wait", 0)]
    for sequence in itertools.product(steps, repeat=5):
        affinity = Affinity(entries_max=2, age_max_s=10.0)
        model: list[tuple[int, str, float]] = []
        now_s = 0.0
        for count, (step, start_ts) in enumerate(sequence):
            if step == "put":
                pump_id = f"pump{count % 2}"
                affinity.remember(start_ts, pump_id, now_s)
                model = [entry for entry in model if entry[0] != start_ts]
                model.append((start_ts, pump_id, now_s))
                model = [entry for entry in model if entry[2] + 10.0 > now_s][-2:]
            elif step == "take":
                found = [entry[1] for entry in model if entry[0] == start_ts]
                assert affinity.take(start_ts) == (found[0] if found else None)
                model = [entry for entry in model if entry[0] != start_ts]
            else:
                now_s += 6.0
                affinity.expire(now_s)
                model = [entry for entry in model if entry[2] + 10.0 > now_s]
            affinity.check()
            assert len(affinity) == len(model)
            for pump_id in ("pump0", "pump1"):
                assert affinity.holds(pump_id) == any(entry[1] == pump_id for entry in model)
