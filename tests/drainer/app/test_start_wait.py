"""Who recovers, and when: every order of an upstream that comes and goes, another drainer, the relay log."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import product

import pytest

from drainer.app.recovery import check_alone, check_reach, end_of
from drainer.app.start_wait import AtWork, Summary, reach
from drainer.checkpoint.inspection import Inspection
from drainer.checkpoint.resume import DrainerState, StoredState
from drainer.checkpoint.value import Checkpoint, Intent
from drainer.mysql.rows.change import COMPLETE, Position
from tests.waiting import PATIENCE_S
from tidb_binlog.clock import SystemClock
from tidb_binlog.errors import Conflict, Unavailable
from tidb_binlog.serving.starting import Starting

DONE = Summary(from_ts=5, to_ts=9, records=1)
CONSISTENT = Summary("the downstream is consistent as of commit_ts 9")
UNKNOWN = Summary("no checkpoint is stored downstream", is_unknown=True)
FAILED = Conflict("the relay log ends too early")
AT_WORK = AtWork("a drainer is connected")
OUTCOMES = (DONE, CONSISTENT, UNKNOWN, FAILED, AT_WORK)


class Endless(Exception):
    """The script is over."""


@dataclass
class World:
    """What a start meets: whether the upstream answers each time, what each recovery comes to."""

    answers: list[bool]
    recoveries: list[Summary | Exception]
    asked: int = 0
    did: list[str] = field(default_factory=list)

    async def connect(self) -> str:
        self.did.append("ask")
        if self.asked == len(self.answers):
            raise Endless
        self.asked += 1
        if not self.answers[self.asked - 1]:
            raise Unavailable("etcd does not answer")
        return "upstream"

    async def recover(self) -> Summary:
        self.did.append("recover")
        outcome = self.recoveries.pop(0) if self.recoveries else AT_WORK
        if isinstance(outcome, Exception):
            raise outcome
        return outcome


async def begin(world: World, *, recovers: bool = True) -> str:
    """What becomes of the start."""

    async def sleep(seconds: float) -> None:
        assert seconds > 0

    starting = Starting(0.0, SystemClock(), lambda text: None)
    try:
        return await reach(world.connect, world.recover if recovers else None, starting, sleep=sleep)
    except Endless:
        return f"waits: {starting.reason}"
    except (Unavailable, Conflict) as error:
        return type(error).__name__


def worlds() -> Iterator[tuple[tuple[bool, ...], tuple[Summary | Exception, ...]]]:
    for length in range(1, 5):
        yield from product(product((False, True), repeat=length), product(OUTCOMES, repeat=2))


async def test_every_order() -> None:
    seen = set()
    for answers, recoveries in worlds():
        world = World(list(answers), list(recoveries))
        end = await begin(world)
        seen.add(end.partition(":")[0])
        recovered = [
            outcome
            for outcome, _ in zip(recoveries, [one for one in world.did if one == "recover"], strict=False)
        ]
        # Nothing is recovered before the upstream was asked in vain, and never again once it was done.
        assert world.did[0] == "ask"
        if answers[0]:
            assert (end, world.did) == ("upstream", ["ask"])
        assert all(outcome is AT_WORK for outcome in recovered[:-1])
        # It is asked again after every recovery: a drainer that recovered continues when it is back.
        if end == "upstream":
            assert answers[world.asked - 1]
        elif end.startswith("waits"):
            assert not any(answers)
            told = recovered[-1] if recovered else None
            if told in (DONE, CONSISTENT) and len(recovered) == len(recoveries):
                assert str(told) in end
        else:
            assert recovered[-1] in (UNKNOWN, FAILED)
            assert end == ("Unavailable" if recovered[-1] is UNKNOWN else "Conflict")
    assert seen == {"upstream", "waits", "Unavailable", "Conflict"}


@pytest.mark.parametrize("answers", [(False,), (True,)])
async def test_a_standby_recovers_nothing(answers: tuple[bool, ...]) -> None:
    world = World(list(answers), [DONE])
    assert await begin(world, recovers=False) == ("upstream" if answers[0] else "Unavailable")
    assert "recover" not in world.did


async def test_one_attempt_in_vain_is_not_enough() -> None:
    """The whole of `start-wait` comes first: a host's other services may only be on their way."""
    world = World([False, False, True], [DONE])
    starting = Starting(60.0, SystemClock(), lambda text: None)
    async with asyncio.timeout(PATIENCE_S):
        assert await reach(world.connect, world.recover, starting) == "upstream"
    assert world.did == ["ask", "ask", "ask"]


# -- whether another drainer is there ---------------------------------------------------------------------

OURS = Checkpoint(50, False, 1, 3)


def found(*positions: Position, intent: Intent | None = None, row: Checkpoint = OURS) -> StoredState:
    return StoredState(row, DrainerState(3, "a", OURS, intent), positions)


def refusal(check: Callable[[], None]) -> str:
    try:
        check()
    except (AtWork, Conflict) as error:
        return str(error)
    return ""


LOOKS = [Inspection(found(Position(60), Position(70)), sessions) for sessions in ((), (7,))] + [
    Inspection(found(Position(60), Position(71)))
]


def test_nobody_is_pushed_aside_who_shows_any_sign_of_life() -> None:
    for first, second in product(LOOKS, repeat=2):
        lives = bool(first.sessions or second.sessions or first.stored != second.stored)
        said = refusal(lambda a=first, b=second: check_alone(a, b))
        assert bool(said) is lives
        if first.sessions or second.sessions:
            assert "connection ids 7" in said
            assert "KILL" in said


PLACES = [Position(ts, rows) for ts in (60, 70, 80) for rows in (0, COMPLETE)]


def test_lanes_above_the_last_record_are_right_only_where_all_were_put_together() -> None:
    intents = (None, Intent(70, 1, "x", {}), Intent(71, 1, "x", {}), Intent(81, 1, "x", {}))
    for first, second, intent in product(PLACES, PLACES, intents):
        end_ts = end_of((first, second), intent, 70)
        highest_ts = max(first.commit_ts, second.commit_ts)
        if highest_ts <= 70:
            assert end_ts == 70
        elif first == second and first.rows == COMPLETE and (intent is None or intent.commit_ts <= 70):
            assert end_ts == 80, "drained there: by another number of lanes, a pause, a DDL that waits"
        else:
            assert end_ts == 0, "rows of somewhere above the relay log are in one lane and not in the other"
        said = refusal(lambda a=first, b=second, i=intent: check_reach(found(a, b, intent=i), 70, "/relay"))
        assert bool(said) is (end_ts == 0)


def test_behind_another_programs_row_lanes_say_nothing() -> None:
    check_reach(found(Position(80), Position(90), row=Checkpoint(55, False, 1)), 70, "/relay")
