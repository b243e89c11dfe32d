"""A drainer dies while rows break a key; `tests.crash.refusal_kills` takes every command of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from drainer.mysql.connection import Target
from tests.crash.refusal_kills import CASES, RefusalSweep, sweep
from tests.drainer.support.apply_life import clean

pytestmark = pytest.mark.integration


@pytest.mark.parametrize("name", CASES)
async def test_death_before_and_behind_commands(server: Target, name: str) -> None:
    target = replace(server, socket="")  # kills listen to its port
    kills = RefusalSweep(target, CASES[name])
    try:
        assert await sweep(kills, every=41) >= 4  # a prime: no kind of command is passed over
    finally:
        kills.close()
        clean(target)
