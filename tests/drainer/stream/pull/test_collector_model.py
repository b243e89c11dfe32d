"""The collector in every short life of a cluster: pumps join, leave, pause, move, lose their connection.

Two pumps keep logs; what is written, told, cut, moved or unregistered is a schedule of events. After each one
everything that can happen happens, and what came out is compared with the logs.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence

import pytest

from tests.drainer.stream.pull.pump_model import EVENTS, life


async def lived(schedule: Sequence[str]) -> None:
    async with life() as found:
        for name in schedule:
            EVENTS[name](found)
            await found.happen()
            found.check()
        await found.end()


@pytest.mark.parametrize("first", EVENTS)
async def test_every_short_schedule(first: str) -> None:
    for second in EVENTS:
        schedule = (first, "a write", second, "b write")
        try:
            await lived(schedule)
        except AssertionError as error:
            raise AssertionError(f"{schedule}: {error}") from error


@pytest.mark.parametrize("seed", range(20))
async def test_long_schedules(seed: int) -> None:
    rng = random.Random(seed)
    schedule = [rng.choice(list(EVENTS)) for _ in range(25)]
    try:
        await lived(schedule)
    except AssertionError as error:
        raise AssertionError(f"{schedule}: {error}") from error


async def test_events_that_come_at_once() -> None:
    """Pairs of events between which the collector has no turn."""
    changes = [name for name in EVENTS if name.startswith("b")]
    for first, second in itertools.product(changes, repeat=2):
        async with life() as found:
            try:
                for name in ("a write", first, second, "b write"):
                    EVENTS[name](found)
                await found.happen()
                found.check()
                await found.end()
            except AssertionError as error:
                raise AssertionError(f"{first}, {second}: {error}") from error
