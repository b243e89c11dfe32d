"""Selection and retry over all small schedules of failures and registry changes.

A prewrite and its commit go through the real client; what each attempt meets is scripted, and during an
attempt the registry may change. The clock moves only when the client pauses. What is demanded is written down
here once more, in terms of what the pumps saw:

    a prewrite that returned is acknowledged by the pump that gets its commit; one that raised, by none
    it raises only after every pump that was online to the end was asked, or when one said "too large"
    prewrites go to pumps that are online; a round asks each usable pump once
    a commit goes to the pump that acknowledged the prewrite and to no other, and never raises
    attempts are bounded
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

import pytest

from pumpclient import BinlogTooLarge, Options, PumpClient, WriteFailed
from pumpclient.send.transport import TransportFailure
from pumpclient.send.write_policy import Failure
from pumpclient.testing import MemoryRegistry
from tidb_binlog import binlog
from tidb_binlog.clock import ManualClock
from tidb_binlog.cluster import node
from tidb_binlog.cluster.registry import ClusterView, NodeEntry

STORED, LOST_REPLY = "stored", "unreachable but stored"
FAILURES: Final = {
    "refused": Failure.REFUSED,
    "failed": Failure.FAILED,
    "unreachable": Failure.UNREACHABLE,
    LOST_REPLY: Failure.UNREACHABLE,
    "too large": Failure.TOO_LARGE,
}
OUTCOMES: Final = (STORED, *FAILURES)
WRITE_TIMEOUT_S, PAUSE_S, FINISH_S = 2.0, 1.0, 2.0
START_TS, COMMIT_TS = 5, 9
ONLINE, AWAY, REMOVED = node.ONLINE, node.PAUSING, ""

# The registry from now on: a state for each pump, for those it names.
Change = dict[str, str]
CHANGES: Final[tuple[Change, ...]] = (
    {"a": AWAY},
    {"b": AWAY},
    {"a": REMOVED},
    {"a": AWAY, "b": AWAY, "c": AWAY},
    {"a": REMOVED, "b": AWAY, "c": REMOVED},
)


@dataclass(frozen=True, slots=True)
class Schedule:
    """What the attempts meet; after the last one, always `then`. During attempt `at` the registry changes."""

    pumps: str
    script: tuple[str, ...]
    then: str
    errors_max: int = 10
    change: Change = field(default_factory=dict)
    at: int = -1


@dataclass(frozen=True, slots=True)
class Attempt:
    tp: int
    pump_id: str
    outcome: str
    online: frozenset[str]


class Scripted:
    """The transport. `attempts` is what the pumps saw."""

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule
        self.attempts: list[Attempt] = []
        self.states: dict[str, str] = dict.fromkeys(schedule.pumps, ONLINE)
        self.client: PumpClient | None = None

    async def write(self, address: str, cluster_id: int, payload: bytes, timeout_s: float) -> None:
        number, schedule = len(self.attempts), self.schedule
        online = frozenset(pump for pump, state in self.states.items() if state == ONLINE)
        outcome = schedule.script[number] if number < len(schedule.script) else schedule.then
        self.attempts.append(Attempt(binlog.parse(payload).tp, address, outcome, online))
        if number == schedule.at:
            await self.change(schedule.change)
        if outcome != STORED:
            raise TransportFailure(FAILURES[outcome], outcome)

    async def change(self, states: Change) -> None:
        """As the watch would tell it while the attempt is under way."""
        assert self.client is not None
        self.states |= {pump: state for pump, state in states.items() if pump in self.schedule.pumps}
        view = view_of(self.states)
        await self.client._delivery.carry_out(self.client._roster.apply(view, 0.0))
        self.client._roster.check()

    async def drop(self, address: str) -> None:
        pass

    async def close(self) -> None:
        pass


def view_of(states: dict[str, str]) -> ClusterView:
    pumps = {
        pump: NodeEntry(node.NodeStatus(pump, pump, state), 1, None)
        for pump, state in states.items()
        if state != REMOVED
    }
    return ClusterView(1, MappingProxyType(pumps), MappingProxyType({}))


async def play(schedule: Schedule) -> tuple[list[Attempt], Exception | None, bool]:
    """The attempts, what the prewrite raised, what the commit returned."""
    clock = ManualClock(0.0)

    async def sleep(seconds: float) -> None:
        clock.advance(seconds)

    transport = Scripted(schedule)
    client = PumpClient(
        MemoryRegistry(),
        transport,
        cluster_id=1,
        options=Options(
            write_timeout_s=WRITE_TIMEOUT_S,
            retry_pause_s=PAUSE_S,
            finish_retry_pause_s=PAUSE_S,
            finish_deadline_s=FINISH_S,
            errors_max=schedule.errors_max,
        ),
        clock=clock,
        sleep=sleep,
    )
    transport.client, client._started = client, True  # no watch and no probes: changes come from the script
    client._roster.apply(view_of(transport.states), 0.0)
    raised: Exception | None = None
    try:
        assert await client.write_prewrite(START_TS, b"", b"")
    except (WriteFailed, BinlogTooLarge) as error:
        raised = error
    committed = await client.write_commit(START_TS, COMMIT_TS)
    client._roster.check()
    assert not any(view.in_flight for view in client.pumps())
    return transport.attempts, raised, committed


def check(schedule: Schedule, attempts: Sequence[Attempt], raised: Exception | None, committed: bool) -> None:
    prewrites = [attempt for attempt in attempts if attempt.tp == binlog.PREWRITE]
    commits = [attempt for attempt in attempts if attempt.tp == binlog.COMMIT]
    assert attempts == [*prewrites, *commits]
    acknowledged = [attempt for attempt in prewrites if attempt.outcome == STORED]
    pumps = len(schedule.pumps)
    rounds = WRITE_TIMEOUT_S / PAUSE_S + 2
    assert len(prewrites) <= (rounds + 1) * pumps
    assert all(attempt.pump_id in attempt.online for attempt in prewrites)
    if raised is None:
        assert acknowledged == prewrites[-1:]
        assert {attempt.pump_id for attempt in commits} == {prewrites[-1].pump_id}
        assert committed == (commits[-1].outcome == STORED)
        assert all(attempt.outcome != STORED for attempt in commits[:-1])
        assert len(commits) <= FINISH_S / PAUSE_S + 2
        if not committed:
            assert len(commits) > FINISH_S / PAUSE_S
        return
    assert not acknowledged
    assert not commits
    assert not committed
    assert isinstance(raised, BinlogTooLarge) == (bool(prewrites) and prewrites[-1].outcome == "too large")
    assert all(attempt.outcome != "too large" for attempt in prewrites[:-1])
    if isinstance(raised, WriteFailed):
        stayed = set(schedule.pumps) - (set(schedule.change) if schedule.at < len(attempts) else set())
        assert stayed <= {attempt.pump_id for attempt in prewrites}
    if not schedule.change and schedule.errors_max:
        first = [attempt.pump_id for attempt in prewrites[:pumps]]
        assert len(set(first)) == len(first)


def scripts(length: int) -> Iterator[tuple[str, ...]]:
    return itertools.product(OUTCOMES, repeat=length)


async def play_all(schedules: Iterator[Schedule]) -> int:
    count = 0
    for schedule in schedules:
        played = await play(schedule)
        try:
            check(schedule, *played)
        except AssertionError:
            raise AssertionError(f"{schedule}: {played}") from None
        count += 1
    return count


@pytest.mark.parametrize("pumps", ["ab", "abc"])
async def test_every_script_of_four_attempts(pumps: str) -> None:
    schedules = (
        Schedule(pumps, script, then)
        for script in scripts(4)
        for then in (STORED, "unreachable")
        # What comes after the commit's last answer is met by nobody.
        if then == STORED or STORED not in script[:3]
    )
    assert await play_all(schedules) > 2000 - 400


@pytest.mark.parametrize("errors_max", [0, 10])
async def test_every_change_of_the_registry_during_every_attempt(errors_max: int) -> None:
    schedules = (
        Schedule("ab" if errors_max else "abc", script, then, errors_max, change, at)
        for script in scripts(2)
        for then in (STORED, "unreachable")
        for change in CHANGES
        for at in range(4)
    )
    assert await play_all(schedules) == 36 * 2 * len(CHANGES) * 4


async def test_pumps_that_are_out_after_one_error_are_asked_until_the_write_timeout_has_passed() -> None:
    for then in ("unreachable", "failed"):
        attempts, raised, _ = await play(Schedule("ab", (), then, errors_max=0))
        assert isinstance(raised, WriteFailed)
        assert [attempt.pump_id for attempt in attempts] == ["a", "b"] * 4  # at 0, 0, 1 and 2 s


async def test_the_checks_see_a_commit_that_goes_astray_and_a_prewrite_that_is_lost() -> None:
    schedule = Schedule("ab", ("failed", STORED, STORED), STORED)
    attempts, raised, committed = await play(schedule)
    check(schedule, attempts, raised, committed)
    online = frozenset("ab")
    astray = [*attempts[:-1], Attempt(binlog.COMMIT, "a", STORED, online)]
    lost = [Attempt(attempt.tp, attempt.pump_id, LOST_REPLY, online) for attempt in attempts[:-1]]
    for wrong in (astray, lost):
        with pytest.raises(AssertionError):
            check(schedule, wrong, None, True)
    with pytest.raises(AssertionError):
        check(schedule, attempts, WriteFailed("x"), False)
    await asyncio.sleep(0)
