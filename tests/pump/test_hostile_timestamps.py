"""Readers and writers with timestamps of their own making beside honest ones, at a whole pump.

Whatever the others send, everything that is acknowledged arrives once, in order and in bounded time, and what
cannot be true for long is refused.
"""

from __future__ import annotations

import asyncio
import random
import time
from pathlib import Path

import pytest

from tests.pump.support.scripted import ScriptedOracle
from tests.pump.support.services import Puller, Pump, pump
from tests.waiting import PATIENCE_S, until
from tidb_binlog import binlog, rpc, tso
from tidb_binlog.tso import Ts
from tidb_binlog.upstream.upstream_time import AHEAD_MAX_S

pytestmark = pytest.mark.integration

NEAR_S = 0.4
DAY_S = 86_400


class TimeOracle(ScriptedOracle):
    """This host's time, each timestamp once, a moment's way off."""

    async def timestamp(self) -> Ts:
        await asyncio.sleep(0.0005)
        self.draws += 1
        self.last = max(self.last + 1, tso.from_wall_s(time.time()))
        return self.last


def ahead(seconds: float) -> int:
    """Never one that the oracle gives: a start_ts of two transactions would be one to the pump."""
    return tso.from_wall_s(time.time() + seconds) + (1 << tso.LOGICAL_BITS) - 1


class Crowd:
    """Who is at the pump. `stored`: commit timestamps that were acknowledged."""

    def __init__(self, one: Pump, seed: int) -> None:
        self.one, self.rng = one, random.Random(seed)
        self.stored: set[int] = set()
        self.seen: list[int] = []
        self.refused = 0
        self.told = 0

    async def honest(self, count: int) -> None:
        for _ in range(count):
            start_ts = await self.one.oracle.timestamp()
            await self.one.write(binlog.prewrite(start_ts, b"k", b"v"))
            await asyncio.sleep(self.rng.uniform(0, 0.01))
            commit_ts = await self.one.oracle.timestamp()
            await self.one.write(binlog.commit(start_ts, commit_ts, b"k"))
            self.stored.add(commit_ts)

    async def liar(self, count: int) -> None:
        """What it gets acknowledged arrives, too, if only when its time comes; its prewrites are ended."""
        for _ in range(count):
            seconds = self.rng.choice((NEAR_S, AHEAD_MAX_S + 1, 23 * 3600, 365 * DAY_S))
            far, start_ts = ahead(seconds), await self.one.oracle.timestamp()
            kind = self.rng.randrange(4)
            if kind == 0:
                await self.one.write(binlog.prewrite(start_ts, b"k", b"v"))
                if await self._takes(binlog.commit(start_ts, far, b"k"), seconds):
                    self.stored.add(far)
                else:
                    await self.one.write(binlog.rollback(start_ts, b"k"))
            elif kind == 1:
                await self._takes(binlog.fake(far), seconds)
            elif kind == 2:
                await self._takes(binlog.rollback(far, b"k"), seconds)
            elif await self._takes(binlog.prewrite(far, b"k", b"v"), seconds):
                await self.one.write(binlog.rollback(far, b"k"))
            await asyncio.sleep(self.rng.uniform(0, 0.02))

    async def _takes(self, payload: bytes, seconds: float) -> bool:
        """Whether a payload so far ahead is acknowledged; where it is not, that is said."""
        if seconds <= NEAR_S:
            await self.one.write(payload)
            return True
        with pytest.raises(rpc.RpcStatus, match="the upstream cannot have given a timestamp above"):
            await self.one.write(payload)
        self.refused += 1
        return False

    async def mere_reader(self) -> None:
        puller = Puller(self.one)
        puller.ask(credit=1 << 30)
        reading = asyncio.create_task(self._read_away(puller))
        try:
            while True:
                seconds = self.rng.choice((-0.01, 0.0, 0.09, 0.09, 0.5, DAY_S))
                puller.ask(given=ahead(seconds), wait=self.rng.choice((0, ahead(seconds))))
                await asyncio.sleep(0.01)
        finally:
            reading.cancel()
            await asyncio.wait({reading})

    @staticmethod
    async def _read_away(puller: Puller) -> None:
        while True:
            await puller.next()

    async def read(self) -> None:
        puller = Puller(self.one)
        while True:
            payloads, watermark = await puller.next()
            commits = [binlog.parse(payload).commit_ts for payload in payloads]
            assert commits == sorted(commits)
            assert not commits or self.told < commits[0] <= commits[-1] <= watermark
            assert watermark <= self.one.oracle.last, "only what was drawn is one"
            self.seen += commits
            self.told = watermark
            puller.ask(credit=sum(map(len, payloads)))


@pytest.mark.parametrize("seed", range(4))
async def test_everything_acknowledged_arrives_whatever_timestamps_others_send(
    seed: int, tmp_path: Path
) -> None:
    async with pump(tmp_path, oracle=TimeOracle()) as one:
        await one.time.draw()
        crowd = Crowd(one, seed)
        others = [asyncio.create_task(crowd.mere_reader()) for _ in range(2)]
        others.append(asyncio.create_task(crowd.read()))
        await asyncio.gather(*(crowd.honest(40) for _ in range(3)), crowd.liar(40))
        await until(lambda: crowd.stored <= set(crowd.seen), beside=others)
        assert crowd.refused > 5
        for task in others:
            task.cancel()
        await asyncio.wait(others)


async def test_a_reader_that_claims_what_was_not_drawn_hides_nothing_of_others(tmp_path: Path) -> None:
    """One prewrite long before its commit, a reader that says 90 ms more than it is."""
    async with pump(tmp_path, oracle=TimeOracle()) as one:
        await one.time.draw()
        puller, liar = Puller(one), Puller(one)
        reading = asyncio.create_task(Crowd._read_away(liar))
        start_ts = await one.oracle.timestamp()
        liar.ask(given=ahead(0.09))
        await asyncio.sleep(0.02)
        await one.write(binlog.prewrite(start_ts, b"k", b"v"))
        commit_ts = await one.oracle.timestamp()
        await one.write(binlog.commit(start_ts, commit_ts, b"k"))
        got: list[bytes] = []
        async with asyncio.timeout(PATIENCE_S):
            while not got:
                got, _ = await puller.next()
        assert binlog.parse(got[0]).commit_ts == commit_ts
        reading.cancel()
        await asyncio.wait({reading})


async def test_a_directory_that_holds_a_commit_of_tomorrow_delivers_the_others(tmp_path: Path) -> None:
    """An earlier version has taken it, and its watermark may have gone there."""
    oracle = TimeOracle()
    far = ahead(23 * 3600)
    async with pump(tmp_path, oracle=oracle) as one:
        await one.write(binlog.fake(far))
        one.storage.mark(far)
        await until(lambda: one.storage.watermark >= far)
    for _ in range(2):
        limit_ts = await oracle.timestamp() + tso.compose(5_000)
        async with pump(tmp_path, oracle=oracle, limit_ts=limit_ts) as one:
            await one.time.draw()
            crowd = Crowd(one, 1)
            reading = asyncio.create_task(crowd.read())
            await crowd.honest(3)
            await until(lambda: crowd.stored <= set(crowd.seen), beside=[reading])  # noqa: B023
            assert far > one.storage.watermark > max(crowd.stored)
            reading.cancel()
            await asyncio.wait({reading})
    assert len(list(tmp_path.glob("kv*future*"))) == 1, "built anew once"


async def test_what_was_stored_before_a_restart_arrives_without_another_write(tmp_path: Path) -> None:
    oracle = TimeOracle()
    async with pump(tmp_path, oracle=oracle, abandon=True) as one:
        crowd = Crowd(one, 1)
        await crowd.honest(5)
    async with pump(tmp_path, oracle=oracle, replayed=False) as one:
        again = Crowd(one, 1)
        reading = asyncio.create_task(again.read())
        await until(lambda: crowd.stored <= set(again.seen))
        reading.cancel()
        await asyncio.wait({reading})
