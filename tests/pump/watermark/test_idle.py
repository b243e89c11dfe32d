"""Idle watermark: whoever waits for what can be drawn is told, whatever others wait for or waited for.

A pump that nobody writes to, in virtual time: its oracle gives the time, and may be away or give nonsense.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from dataclasses import dataclass, field

import pytest

from pump.watermark.idle import IdleWatermark
from tests.fakes import virtual_time
from tests.fakes.virtual_time import LoopClock
from tidb_binlog import tso
from tidb_binlog.errors import BinlogError, Corruption, Unavailable
from tidb_binlog.tso import Ts

FAR = 1 << 62
TOLD_S = 0.06  # a pace, and the way


@dataclass
class TimeOracle:
    """The loop's time as timestamps; `error` is what it answers while it is set."""

    error: BinlogError | None = None
    draws: int = 0
    last: int = 0
    takes_s: float = 0.001

    async def timestamp(self) -> Ts:
        self.draws += 1
        await virtual_time.passes(self.takes_s)
        if self.error is not None:
            raise type(self.error)(self.error.message)
        self.last = max(self.last + 1, now_ts())
        return self.last


def now_ts() -> int:
    return tso.from_wall_s(LoopClock().wall_s())


@dataclass
class Pump:
    """A watermark that follows what is drawn, and who waits for it."""

    oracle: TimeOracle = field(default_factory=TimeOracle)
    watermark: int = 0
    risen: asyncio.Condition = field(default_factory=asyncio.Condition)

    def __post_init__(self) -> None:
        self.idle = IdleWatermark(self.oracle, lambda: self.watermark, self._mark)
        self._raised: set[asyncio.Event] = set()

    def _mark(self, ts: int) -> None:
        assert ts > self.watermark
        self.watermark = ts
        for event in self._raised:
            event.set()

    async def told(self, ts: int) -> None:
        """As a puller: waits anew whenever the watermark has risen."""
        event = asyncio.Event()
        self._raised.add(event)
        try:
            while self.watermark < ts:
                with self.idle.waiting(event, ts):
                    await event.wait()
                event.clear()
        finally:
            self._raised.discard(event)

    async def passing(self, ts: int, seconds: float) -> None:
        """Wait for it for a while, and leave."""
        try:
            async with asyncio.timeout(seconds):
                await self.told(ts)
        except TimeoutError:
            pass


def live(story: Callable[[Pump], Awaitable[None]]) -> None:
    async def main() -> None:
        pump = Pump()
        task = asyncio.create_task(pump.idle.run())
        try:
            await story(pump)
            assert not task.done()
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    virtual_time.run(main())


async def soon(pump: Pump) -> None:
    async with asyncio.timeout(TOLD_S):
        await pump.told(now_ts())


def test_a_wait_from_the_far_future_keeps_nobody_waiting_when_it_has_left() -> None:
    async def story(pump: Pump) -> None:
        await soon(pump)
        await pump.passing(FAR, 1.0)
        for _ in range(5):
            await virtual_time.passes(0.7)
            await soon(pump)

    live(story)


def test_nor_while_it_stays_and_it_costs_a_draw_a_second() -> None:
    async def story(pump: Pump) -> None:
        staying = asyncio.create_task(pump.told(FAR))
        await virtual_time.passes(60)
        assert pump.oracle.draws <= 62
        await soon(pump)
        staying.cancel()

    live(story)


def test_commits_for_which_nobody_waits_share_draws_and_who_begins_to_wait_is_told_at_once() -> None:
    async def story(pump: Pump) -> None:
        async def commits(seconds: float) -> int:
            before = pump.oracle.draws
            for _ in range(int(seconds * 1000)):
                pump.idle.given(now_ts())
                await virtual_time.passes(0.001)
            return pump.oracle.draws - before

        await soon(pump)
        assert 15 <= await commits(1.0) <= 25
        with pump.idle.waiting("a drainer", 0):
            assert 100 <= await commits(1.0) <= 200
        await virtual_time.passes(1)
        await commits(0.02)
        given = now_ts()
        pump.idle.given(given)
        with pump.idle.waiting("whatever comes", 0):
            await virtual_time.passes(0.01)
            assert pump.watermark > given

    live(story)


def test_what_others_say_was_drawn_is_drawn_for_at_once_and_never_believed() -> None:
    async def story(pump: Pump) -> None:
        await soon(pump)
        for error in (None, Unavailable("away"), None):
            await virtual_time.passes(1)
            before, draws, pump.oracle.error, given = pump.watermark, pump.oracle.draws, error, now_ts()
            pump.idle.given(given)
            pump.idle.given(given - 1)
            await virtual_time.passes(0.002)
            assert pump.oracle.draws == draws + 1, "nobody waits for it"
            assert pump.watermark == (pump.oracle.last if error is None else before)
            pump.oracle.error = None
            await virtual_time.passes(TOLD_S)
            assert pump.watermark == pump.oracle.last > given

    live(story)


@pytest.mark.parametrize(("who", "soon_s"), [(["a drainer"], 0.007), ([], 0.06)], ids=["awaited", "not"])
def test_one_ahead_of_its_time_is_reached_in_time_and_keeps_no_other_waiting(
    who: list[str], soon_s: float
) -> None:
    async def story(pump: Pump) -> None:
        await soon(pump)
        with ExitStack() as stack:
            for one in who:
                stack.enter_context(pump.idle.waiting(one, 0))
            for _ in range(50):
                pump.idle.given(ahead := now_ts() + tso.compose(3_000))
                await virtual_time.passes(0.02)
                pump.idle.given(given := now_ts())
                await virtual_time.passes(soon_s)
                assert given <= pump.watermark < now_ts()
        await virtual_time.passes(4.1)
        assert pump.watermark >= ahead
        draws = pump.oracle.draws
        await virtual_time.passes(10)
        assert pump.oracle.draws == draws

    live(story)


def test_a_commit_wakes_nobody_while_a_draw_is_due_for_the_one_before() -> None:
    async def story(pump: Pump) -> None:
        await soon(pump)
        woken = 0
        wake = pump.idle._wake.set

        def counted() -> None:
            nonlocal woken
            woken += 1
            wake()

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(pump.idle._wake, "set", counted)
            for _ in range(1000):
                pump.idle.given(last := now_ts() + 1)
                await virtual_time.passes(0.0005)
        await virtual_time.passes(TOLD_S)
        assert woken < 50  # of a thousand: draws are as far apart as a pace
        assert pump.watermark >= last

    live(story)


def test_many_commits_share_a_draw() -> None:
    async def story(pump: Pump) -> None:
        await soon(pump)
        draws, began_s = pump.oracle.draws, asyncio.get_running_loop().time()
        with pump.idle.waiting("a drainer", 0):
            for _ in range(1000):
                pump.idle.given(now_ts() + 1)
                await virtual_time.passes(0.0005)
        assert pump.oracle.draws - draws <= (asyncio.get_running_loop().time() - began_s) / 0.006 + 1

    live(story)


@pytest.mark.parametrize("error", [Unavailable("away"), Corruption("etcd key tso does not hold a number")])
def test_who_comes_back_with_the_same_wait_is_told_when_the_oracle_is_back(error: BinlogError) -> None:
    async def story(pump: Pump) -> None:
        await soon(pump)
        pump.oracle.error, wanted = error, now_ts() + 1
        await asyncio.gather(pump.passing(wanted, 1.0), pump.passing(wanted - 1000, 0.5))
        assert error.message in pump.idle.trouble
        await virtual_time.passes(5)
        again = asyncio.create_task(pump.told(wanted))
        await virtual_time.passes(5)
        pump.oracle.error = None
        async with asyncio.timeout(TOLD_S):
            await again
        assert not pump.idle.trouble

    live(story)


def test_a_draw_that_took_long_keeps_nobody_waiting_as_long_again() -> None:
    async def story(pump: Pump) -> None:
        pump.oracle.takes_s = 12.0  # PD elects
        await pump.told(now_ts() + 1)
        pump.oracle.takes_s = 0.001
        await virtual_time.passes(0.001)
        await soon(pump)

    live(story)


@pytest.mark.parametrize("seed", range(30))
def test_every_order_of_waits_and_outages(seed: int) -> None:
    """Whoever waits for what lies in the past is told within a pace of the oracle being there."""

    async def story(pump: Pump) -> None:
        rng = random.Random(seed)
        for _ in range(60):
            await virtual_time.passes(rng.choice((0.0, 0.001, 0.03, 0.4, 3.0)))
            match rng.randrange(5):
                case 0:
                    pump.oracle.error = rng.choice((None, Unavailable("away"), Corruption("no number")))
                case 1:
                    wait = pump.passing(
                        rng.choice((FAR, now_ts() + (10_000 << 18))), rng.choice((0.0, 0.2, 9))
                    )
                    passing.append(asyncio.create_task(wait))
                case 2:
                    passing.append(asyncio.create_task(pump.passing(rng.choice(seen), 0.2)))
                case _:
                    seen.append(now_ts())
                    if pump.oracle.error is None:
                        await soon(pump)
        pump.oracle.error = None
        await soon(pump)
        for task in passing:
            task.cancel()
        await asyncio.gather(*passing, return_exceptions=True)

    passing: list[asyncio.Task[None]] = []
    seen = [1]
    live(story)
