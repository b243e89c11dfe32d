"""A drainer dies while rows break a key; `tests.crash.refusal_kills` takes every command of it."""

from __future__ import annotations

import pytest

from binlog_playground.cluster.mariadb import MariaDbServer
from drainer.mysql.connection import Target
from tests.crash.refusal_kills import CASES, RefusalSweep, sweep
from tests.drainer.support.apply_life import clean

pytestmark = pytest.mark.integration


@pytest.mark.parametrize("name", CASES)
async def test_death_before_and_behind_commands(mariadb: MariaDbServer, name: str) -> None:
    target = Target(mariadb.host, mariadb.port, mariadb.user, mariadb.password)
    kills = RefusalSweep(target, CASES[name])
    try:
        assert await sweep(kills, every=41) >= 4  # a prime: no kind of command is passed over
    finally:
        kills.close()
        clean(target)
