"""When a pump may leave for good: the whole table; short and long histories against the rule."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable
from dataclasses import replace

import pytest

from pump.membership.close_conditions import (
    TABLE,
    CloseConditions,
    CloseSnapshot,
    DrawMark,
    Effect,
    Event,
    Leave,
    Reader,
    Stage,
    Step,
)
from tidb_binlog import tso
from tidb_binlog.cluster import node
from tidb_binlog.status.pump import LeavingStatus

HIGH = 10**6
OFFLINE = Reader(node.OFFLINE, None, HIGH)
DONE = Reader(node.ONLINE, True, HIGH)
BEHIND = Reader(node.ONLINE, True, 5)
DRAINERS: tuple[dict[str, Reader] | None, ...] = (
    None,
    {},
    {"a": OFFLINE},
    {"a": DONE, "b": BEHIND},
    {"a": DONE, "b": replace(OFFLINE, checkpoint=0)},
    {"a": replace(DONE, state=node.PAUSED, alive=False)},
)
LETTERS = [
    CloseSnapshot(0.0, watermark, open_count, open_count * 3, drainers)
    for watermark, open_count in ((0, 0), (HIGH, 0), (HIGH, 1))
    for drainers in (DRAINERS if watermark and not open_count else DRAINERS[-1:])
]


def may_leave(history: list[CloseSnapshot | int]) -> bool:
    """The rule: a mark was reached with nothing open, a second mark was drawn after that, since then nothing
    was open, the watermark has reached it, and so has every drainer that has not left, at least one."""
    now = history[-1]
    assert isinstance(now, CloseSnapshot)
    if now.drainers is None:
        return False
    readers = [reader for reader in now.drainers.values() if reader.state != node.OFFLINE]
    places = [place for place, event in enumerate(history) if isinstance(event, int)]
    for first, second in itertools.combinations(places, 2):
        mark, target = history[first], history[second]
        assert isinstance(mark, int)
        assert isinstance(target, int)
        observed = [(place, seen) for place, seen in enumerate(history) if isinstance(seen, CloseSnapshot)]
        settled = [
            place
            for place, seen in observed
            if first < place < second and not seen.open_count and seen.watermark >= mark
        ]
        if not settled or any(seen.open_count for place, seen in observed if place > settled[-1]):
            continue
        if now.watermark >= target and readers and all(one.checkpoint >= target for one in readers):
            return True
    return False


class World:
    """Close conditions with their history. Marks are drawn `delay` observations after they were asked for."""

    def __init__(self, delay: int) -> None:
        self.conditions = CloseConditions(0.0)
        self.history: list[CloseSnapshot | int] = []
        self._delay = delay
        self._due: int | None = None
        self._ts = 10

    def observe(self, seen: CloseSnapshot) -> list[Effect]:
        self.history.append(seen)
        effects = self.conditions.observe(seen)
        if DrawMark() in effects:
            assert self._due is None, "asked twice"
            self._due = self._delay
        if self._due == 0:
            self._due = None
            self._ts += 10
            self.history.append(self._ts)
            self.conditions.drawn(self._ts)
        elif self._due is not None:
            self._due -= 1
        return effects


def check(letters: Iterable[CloseSnapshot], delay: int) -> bool:
    world = World(delay)
    for seen in letters:
        if world.observe(seen) == [Leave()]:
            assert may_leave(world.history)
            assert world.conditions.waits_for == ""
            return True
        assert world.conditions.waits_for
        assert world.conditions.facts().stage != Stage.LEAVING
    return False


def test_the_table_lists_every_pair_or_it_cannot_be() -> None:
    missing = {pair for pair in itertools.product(Step, Event) if pair not in TABLE}
    drawing = {Step.FIRST_MARK, Step.SECOND_MARK}
    assert missing == {
        *((step, Event.DRAWN) for step in Step if step not in drawing),
        *((step, Event.REACHED) for step in (Step.BEGUN, Step.LEFT, *drawing)),
    }
    leaving = {pair for pair, (_, effects) in TABLE.items() if Leave() in effects}
    forced = {(step, Event.FORCED) for step in Step if step is not Step.LEFT}
    assert leaving == {(Step.READING, Event.REACHED), *forced}
    assert {step for (step, _), (after, _) in TABLE.items() if after is Step.LEFT} == set(Step)
    for (before, event), (after, effects) in TABLE.items():
        assert (DrawMark() in effects) == (after in drawing and before not in drawing)
        assert event is not Event.OPEN or after in (Step.FIRST_MARK, Step.SETTLING, Step.LEFT)


def test_every_short_history() -> None:
    left = 0
    for delay in (0, 1):
        for letters in itertools.product(LETTERS, repeat=4):
            left += check(letters, delay)
    assert left > 10


def test_long_histories_leave_only_by_the_rule_and_at_last_when_all_is_quiet() -> None:
    rng = random.Random(5)
    quiet = CloseSnapshot(0.0, HIGH, 0, 0, {"a": DONE})
    for _ in range(3000):
        world = World(rng.randrange(3))
        for seen in rng.choices(LETTERS, k=rng.randrange(15)):
            if world.observe(seen) == [Leave()]:
                assert may_leave(world.history)
                break
        else:
            for turn in range(12):
                if world.observe(quiet) == [Leave()]:
                    break
                assert turn < 11, "never leaves"
            assert may_leave(world.history)
            assert world.observe(quiet) == [], "said once"


@pytest.mark.parametrize("letter", LETTERS)
def test_forced_leaves_at_once_whatever_is_missing(letter: CloseSnapshot) -> None:
    for before in range(4):
        conditions = World(0)
        if any(conditions.observe(letter) == [Leave()] for _ in range(before)):
            continue
        conditions.conditions.force()
        assert conditions.observe(letter) == [Leave()]
        assert conditions.observe(letter) == []
        assert conditions.conditions.facts().forced


def at(seconds: float) -> int:
    return tso.compose(int(seconds * 1000))


def reading(target_s: float, drainers: dict[str, Reader], now_s: float = 0.0) -> CloseConditions:
    """A conditions whose marks are drawn."""
    conditions = CloseConditions(now_s)
    for _ in range(2):
        assert conditions.observe(CloseSnapshot(now_s, at(target_s), 0, 0, drainers)) == [DrawMark()]
        conditions.drawn(at(target_s))
    assert conditions.target_ts == at(target_s)
    return conditions


def test_what_is_waited_for_and_how_long_it_will_take() -> None:
    conditions = CloseConditions(0.0)
    conditions.observe(CloseSnapshot(0.0, 0, 2, 77, {"d1": DONE}))
    assert conditions.waits_for == "2 open prewrites, the oldest of start_ts 77"
    conditions.observe(CloseSnapshot(0.0, 0, 2, 77, {"d1": DONE}, "no space left"))
    assert conditions.waits_for == "a time mark that cannot be stored: no space left"

    # d1 applies two seconds of upstream time a second, d2 stands; d3 has everything.
    def drainers(now_s: float) -> dict[str, Reader]:
        return {
            "d1": Reader(node.ONLINE, True, at(1000 + 2 * now_s)),
            "d2": Reader(node.ONLINE, True, at(1090)),
            "d3": Reader(node.ONLINE, None, at(1100)),
        }

    conditions = reading(1100, drainers(0), 500.0)
    assert conditions.observe(CloseSnapshot(510.0, at(1100), 0, 0, drainers(10))) == []
    facts = conditions.facts()
    assert [one.node_id for one in facts.drainers] == ["d2", "d1"]
    assert facts.left_s is None, "nobody knows while one stands"
    assert conditions.waits_for == (
        "drainers: d2 is 10.0 s behind and does not move; d1 is 80.0 s behind, about 40 s left"
    )
    both = {**drainers(10), "d2": Reader(node.ONLINE, True, at(1095))}
    assert conditions.observe(CloseSnapshot(510.0, at(1100), 0, 0, both)) == []
    assert conditions.facts().left_s == 40.0
    assert conditions.facts().since_s == 10.0
    assert conditions.observe(CloseSnapshot(513.4567, at(1100), 0, 0, both)) == []
    facts = conditions.facts()
    assert (facts.since_s, facts.left_s) == (13.457, 53.8)
    assert [(one.node_id, one.left_s) for one in facts.drainers] == [("d1", 53.8), ("d2", 13.5)]


def test_what_is_shown_until_there_is_a_target_and_when_all_starts_over() -> None:
    conditions = CloseConditions(7.0)
    assert conditions.facts() == LeavingStatus(
        stage="settling",
        forced=False,
        since_s=0.0,
        target_ts=0,
        open_prewrites=0,
        waits_for="",
        left_s=None,
        drainers=[],
    )
    conditions.observe(CloseSnapshot(8.0, at(9), 0, 0, {"d": BEHIND}))
    assert conditions.waits_for == "the watermark, until everything stored is settled"
    conditions = reading(9, {"d": BEHIND})
    assert conditions.observe(CloseSnapshot(8.0, at(9), 3, 77, {"d": BEHIND})) == [DrawMark()]
    facts = conditions.facts()
    assert (facts.target_ts, facts.open_prewrites, facts.drainers) == (0, 3, [])


def test_paused_and_dead_drainers_hold_the_pump_and_are_named() -> None:
    drainers = {
        "paused": Reader(node.PAUSED, False, at(1)),
        "dead": Reader(node.ONLINE, False, at(2)),
        "old": Reader(node.PAUSED, None, at(3)),
    }
    conditions = reading(4, drainers)
    for _ in range(5):
        assert conditions.observe(CloseSnapshot(9.0, at(9), 0, 0, drainers)) == []
    assert conditions.waits_for == (
        "drainers: dead is 2.0 s behind, its process is gone; old is 1.0 s behind, it is paused; "
        "paused is 3.0 s behind, its process is gone"
    )
    # One that leaves for good needs nothing; when the last one has left, nobody will read any more.
    gone = {name: replace(reader, state=node.OFFLINE) for name, reader in drainers.items()}
    assert conditions.observe(CloseSnapshot(9.0, at(9), 0, 0, gone)) == []
    assert conditions.waits_for.startswith("a drainer: none is registered")
    assert conditions.observe(
        CloseSnapshot(9.0, at(9), 0, 0, {**gone, "new": Reader(node.ONLINE, True, at(4))})
    ) == [Leave()]


@pytest.mark.parametrize(("short", "left"), [(1, False), (0, True)])
def test_a_drainer_has_everything_at_the_target_and_not_below(short: int, left: bool) -> None:
    conditions = reading(4, {"d": BEHIND})
    readers = {"d": Reader(node.ONLINE, True, at(4) - short)}
    assert (conditions.observe(CloseSnapshot(9.0, at(4), 0, 0, readers)) == [Leave()]) is left


def test_a_registry_that_does_not_answer_ends_nothing() -> None:
    conditions = reading(4, {"d": Reader(node.ONLINE, True, at(9))})
    assert conditions.observe(CloseSnapshot(1.0, at(9), 0, 0, None)) == []
    assert conditions.waits_for == "the registry, which does not answer"
    assert conditions.observe(CloseSnapshot(2.0, at(9), 0, 0, {"d": Reader(node.ONLINE, True, at(9))})) == [
        Leave()
    ]


def test_a_drainer_that_has_just_come_says_nothing_about_pace() -> None:
    conditions = reading(100, {"d": Reader(node.ONLINE, True, 0)})
    assert conditions.waits_for == "drainers: d has said no checkpoint yet and does not move"
    conditions.observe(CloseSnapshot(5.0, at(100), 0, 0, {"d": Reader(node.ONLINE, True, at(90))}))
    assert conditions.facts().left_s is None


def test_memory_of_paces_is_bounded() -> None:
    conditions = reading(10**6, {"d": BEHIND})
    for second in range(1000):
        conditions.observe(CloseSnapshot(float(second), HIGH, 0, 0, {f"d{second}": BEHIND, "d": BEHIND}))
    assert len(conditions._paces) == 2
    assert len(conditions._paces["d"].samples) == 31
