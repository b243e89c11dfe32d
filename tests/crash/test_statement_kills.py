"""A drainer dies at commands spread over a small run; `tests.crash.statement_kills` takes all of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from deploy.playground.mariadb import MariaDbServer
from drainer.sink import mysql
from tests.crash.statement_kills import LifeSweep, ProcessSweep, sweep
from tests.drainer.apply_life import clean

pytestmark = pytest.mark.integration


@pytest.fixture
def target(mariadb: MariaDbServer) -> mysql.Target:
    target = mysql.Target(mariadb.host, mariadb.port, mariadb.user, mariadb.password)
    clean(target)
    return target


async def test_death_before_and_behind_commands_of_the_apply_side(target: mysql.Target) -> None:
    kills = LifeSweep(target)
    try:
        assert await sweep(kills, every=17) > 12  # a prime: no kind of command is passed over
        assert {"COMMIT", "UPDATE"} & set(kills.seen), kills.seen
    finally:
        kills.close()
        clean(target)


async def test_death_around_everything_that_is_created(target: mysql.Target) -> None:
    """Nothing of it is rolled back: the drainer's own tables and the upstream's are there in part."""
    kills = LifeSweep(target)
    try:
        assert await sweep(kills, every=1, word=b"CREATE") >= 20
    finally:
        kills.close()
        clean(target)


async def test_processes_killed_with_9(etcd_clean: str, target: mysql.Target, tmp_path: Path) -> None:
    """In the middle of a transaction, and behind its COMMIT."""
    kills = ProcessSweep(target, etcd_clean, tmp_path)
    try:
        await kills.begin()
        assert await kills.die_at(3, word=b"INSERT INTO `d`", passes=True)
        assert await kills.die_at(10, word=b"COMMIT", passes=True)
    finally:
        kills.close()
        clean(target)
