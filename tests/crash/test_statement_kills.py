"""A drainer dies at commands spread over a small run; `tests.crash.statement_kills` takes all of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from drainer.mysql.connection import Target
from tests.crash.statement_kills import FrozenSweep, LifeSweep, ProcessSweep, freezes, sweep
from tests.drainer.support.apply_life import clean

pytestmark = pytest.mark.integration


@pytest.fixture
def target(server: Target) -> Target:
    """Each downstream that is given; by its port, which kills listen to."""
    target = replace(server, socket="")
    clean(target)
    return target


async def test_death_before_and_behind_commands_of_the_apply_side(target: Target) -> None:
    kills = LifeSweep(target)
    try:
        assert await sweep(kills, every=29) > 8  # a prime: no kind of command is passed over
        assert {"COMMIT", "UPDATE"} & set(kills.seen), kills.seen
    finally:
        kills.close()
        clean(target)


async def test_death_around_everything_that_is_created(target: Target) -> None:
    """Nothing of it is rolled back: the drainer's own tables and the upstream's are there in part."""
    kills = LifeSweep(target)
    try:
        number = 1
        while await kills.die_at(number, passes=True, word=b"CREATE"):
            number += 1
        assert number > 10
    finally:
        kills.close()
        clean(target)


@pytest.mark.parametrize(("every", "word"), [(41, b""), (4, b"COMMIT")])
async def test_one_that_is_frozen_wakes_up_behind_its_successor(
    target: Target, every: int, word: bytes
) -> None:
    """A COMMIT that it had begun to send comes when the epoch is raised and all is applied."""
    frozen = FrozenSweep(target)
    try:
        assert await freezes(frozen, every, word) >= 4
        assert frozen.ends["fenced off"] >= 3, frozen.ends
    finally:
        frozen.close()
        clean(target)


async def test_a_process_killed_with_9(etcd_clean: str, target: Target, tmp_path: Path) -> None:
    """Behind a COMMIT whose answer it never gets."""
    kills = ProcessSweep(target, etcd_clean, tmp_path)
    try:
        await kills.begin()
        assert await kills.die_at(10, word=b"COMMIT", passes=True)
    finally:
        kills.close()
        clean(target)
