"""A drainer dies at commands around what its lanes' positions belong to: tables met for the first time, a
unique key that comes downstream, a reload that sends a table elsewhere. Every row is somewhere, once."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from binlog_playground.cluster.mariadb import MariaDbServer
from drainer.mysql.connection import Target
from tests.crash.faults.statement_proxy import StatementProxy
from tests.drainer.support.apply_life import clean, run
from tests.drainer.support.basis_world import Running, Upstream, ids, keyed, keyless, routes

pytestmark = pytest.mark.integration
BEFORE, AFTER = routes(), routes(("d", "t", "shop", "t"))
PLACE = 1120
"""commit_ts of the last row before the reload."""
BASIS = b"`tidb_binlog`.`lane_basis`"
OLD, NEW = list(range(1, 13)), list(range(13, 19))


class Kills:
    """One run after the other on a downstream that is made anew."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self.proxy = StatementProxy(target.host, target.port)
        self._through = replace(target, port=self.proxy.port)
        self._asked = self._answered = False

    async def die_at(self, number: int, word: bytes, *, passes: bool) -> bool:
        """Whether there was such a command."""
        clean(self._target)
        run(self._target, "CREATE DATABASE shop", "CREATE TABLE shop.t (id INT PRIMARY KEY, v VARCHAR(64))")
        upstream = Upstream(keyed(7, "t"), keyless(8, "n"))
        upstream.rows("t", OLD)
        assert upstream.now_ts == PLACE
        upstream.rows("t", NEW)
        upstream.rows("n", [1, 2, 3])
        self._asked = self._answered = False
        self.proxy.arm(number, passes=passes, word=word)
        died = not await self._live(upstream)
        place = f"{'after' if passes else 'before'} command {number} {word!r} {self.proxy.at!r}"
        life = Running(upstream, self._target, AFTER if self._asked else BEFORE)
        life.give(PLACE)
        await life.until(lambda: life.runner.handed_over_ts >= PLACE)
        if not self._asked:
            await life.runner.rules.change(AFTER)
        life.give()
        await life.applied()
        await life.stop()
        there, here = ids(self._target, "d.t"), ids(self._target, "shop.t")
        assert there + here == OLD + NEW, place
        assert there == OLD or not self._answered, place
        assert ids(self._target, "d.n") == [1, 2, 3], place
        return died

    async def _live(self, upstream: Upstream) -> bool:
        """Whether it got to its end."""
        try:
            life = Running(upstream, self._through, BEFORE)
        except Exception:
            assert self.proxy.struck.is_set()
            return False
        story = asyncio.create_task(self._story(life))
        while not story.done() and not self.proxy.struck.is_set():
            await asyncio.wait([story], timeout=0.002)
        if self.proxy.struck.is_set():
            story.cancel()
            await life.kill()  # first: who asked for rules waits for what is being stored
            await asyncio.gather(story, return_exceptions=True)
            return False
        await story
        return True

    async def _story(self, life: Running) -> None:
        life.give(1060)
        await life.applied()
        run(self._target, "ALTER TABLE d.t ADD UNIQUE KEY extra (v)")
        life.sink.lanes.now.forget()
        life.give(PLACE)
        await life.until(lambda: life.runner.handed_over_ts >= PLACE)
        self._asked = True
        assert await life.runner.rules.change(AFTER) == PLACE
        self._answered = True
        life.give()
        await life.applied()
        await life.stop()


@pytest.mark.parametrize(
    ("word", "every", "at_least"),
    [
        (b"REPLACE INTO " + BASIS, 1, 8),
        (b"DELETE FROM " + BASIS, 1, 2),
        (b"CREATE TABLE IF NOT EXISTS " + BASIS, 1, 1),
        (b"", 41, 3),
    ],
)
async def test_death_before_and_after(mariadb: MariaDbServer, word: bytes, every: int, at_least: int) -> None:
    target = Target(mariadb.host, mariadb.port, mariadb.user, mariadb.password)
    kills = Kills(target)
    deaths, number = 0, 1
    try:
        while await kills.die_at(number, word, passes=False):
            deaths += 1 + await kills.die_at(number, word, passes=True)
            number += every
        assert deaths >= at_least
    finally:
        kills.proxy.close()
        clean(target)
