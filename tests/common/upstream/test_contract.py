"""What pump and drainer count on, whichever upstream implements the ports: standalone in a real etcd, and
PD and TiKV spoken to over gRPC.

    python -m tests.common.upstream.test_contract 127.0.0.1:2379

asks a real cluster, for what can be asked without writing into it.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Callable
from typing import Protocol

import pytest

from tests.fakes.cluster import FakeCluster
from tests.fakes.pd import FakePd
from tests.fakes.tikv import FakeTikv
from tests.waiting import PATIENCE_S
from tidb_binlog import tso
from tidb_binlog.clock import ManualClock
from tidb_binlog.errors import ConfigError, Conflict, Rejected, Unavailable
from tidb_binlog.upstream import choice
from tidb_binlog.upstream.standalone import StandaloneUpstream
from tidb_binlog.upstream.tidb import TidbUpstream
from tidb_binlog.upstream.tidb.meta.meta_keys import job_key
from tidb_binlog.upstream_port import Committed, Outcome, RolledBack, Undecided, Upstream

pytestmark = pytest.mark.integration

LONG_S = 3600.0


class World(Protocol):
    """An upstream, and the database that writes into it."""

    endpoints: str
    upstream: Upstream

    async def begin(self, *, ttl_s: float = 3.0) -> tuple[int, bytes]:
        """A transaction that has prewritten; start_ts and key."""
        ...

    async def commit(self, start_ts: int, key: bytes) -> int: ...

    async def roll_back(self, start_ts: int, key: bytes) -> None: ...

    async def never_prewritten(self) -> tuple[int, bytes]:
        """A timestamp that was drawn, and no more."""
        ...

    async def is_open(self, start_ts: int, key: bytes) -> bool:
        """Whether it may still commit, as the store itself has it."""
        ...

    async def passes(self, seconds: float) -> None:
        """So much later."""
        ...

    async def add_job(self, job_id: int) -> None: ...


class StandaloneWorld:
    def __init__(self, endpoints: str, upstream: StandaloneUpstream, clock: ManualClock) -> None:
        self.endpoints = endpoints
        self.upstream: Upstream = upstream
        self._own = upstream
        self._clock = clock

    async def begin(self, *, ttl_s: float = 3.0) -> tuple[int, bytes]:
        return await self._own.transactions.begin(ttl_s), b"k"

    async def commit(self, start_ts: int, key: bytes) -> int:
        return await self._own.transactions.commit(start_ts)

    async def roll_back(self, start_ts: int, key: bytes) -> None:
        await self._own.transactions.roll_back(start_ts)

    async def never_prewritten(self) -> tuple[int, bytes]:
        return await self._own.oracle.timestamp(), b"k"

    async def is_open(self, start_ts: int, key: bytes) -> bool:
        try:
            await self._own.transactions.keep_alive(start_ts, LONG_S)
        except Conflict:
            return False
        return True

    async def passes(self, seconds: float) -> None:
        self._clock.advance(seconds)

    async def add_job(self, job_id: int) -> None:
        await self._own.history.add(json.dumps({"id": job_id, "binlog": {"SchemaVersion": job_id}}).encode())


class TidbWorld:
    def __init__(self, endpoints: str, upstream: TidbUpstream, cluster: FakeCluster) -> None:
        self.endpoints = endpoints
        self.upstream: Upstream = upstream
        self._cluster = cluster
        self._keys = 0

    async def begin(self, *, ttl_s: float = 3.0) -> tuple[int, bytes]:
        self._keys += 1
        key = b"t%08d" % self._keys
        return self._cluster.prewrite({key: b"v"}, ttl_ms=int(ttl_s * 1000)), key

    async def commit(self, start_ts: int, key: bytes) -> int:
        return self._cluster.commit(start_ts)

    async def roll_back(self, start_ts: int, key: bytes) -> None:
        self._cluster.roll_back(start_ts)

    async def never_prewritten(self) -> tuple[int, bytes]:
        return self._cluster.ts(), b"t-never"

    async def is_open(self, start_ts: int, key: bytes) -> bool:
        return key in self._cluster.locked(start_ts)

    async def passes(self, seconds: float) -> None:
        self._cluster.clock.advance(seconds)

    async def add_job(self, job_id: int) -> None:
        value = json.dumps({"id": job_id, "binlog": {"SchemaVersion": job_id}}).encode()
        self._cluster.put(job_key(job_id), value)


@pytest.fixture(params=["standalone", "tidb"])
async def world(request: pytest.FixtureRequest, etcd_clean: str) -> AsyncIterator[World]:
    clock = ManualClock()
    if request.param == "standalone":
        standalone = await StandaloneUpstream.connect(etcd_clean, clock=clock)
        yield StandaloneWorld(etcd_clean, standalone, clock)
        await standalone.close()
        return
    cluster = FakeCluster(clock=clock)
    pd, tikv = await FakePd.start(cluster), FakeTikv(cluster)
    await tikv.serve()
    upstream = await TidbUpstream.connect(pd.endpoints, clock=clock)
    cluster.split(b"t00000002", b"m")
    yield TidbWorld(pd.endpoints, upstream, cluster)
    await upstream.close()
    await tikv.stop()
    await pd.close()


async def outcome(world: World, start_ts: int, key: bytes) -> Outcome:
    return (await world.upstream.transactions.outcomes([(start_ts, key)]))[0]


# -- timestamps ------------------------------------------------------------------------------------


async def check_timestamps(upstream: Upstream) -> None:
    """Each is above everything that was known when it was asked for, also among many callers."""
    highest = 0

    async def draw(times: int) -> None:
        nonlocal highest
        for _ in range(times):
            known = highest
            drawn = await upstream.oracle.timestamp()
            assert drawn > known
            highest = max(highest, drawn)

    await asyncio.gather(*(draw(10) for _ in range(20)))
    found = await asyncio.gather(*(upstream.oracle.timestamp() for _ in range(200)))
    assert len(set(found)) == 200
    assert min(found) > highest


async def test_timestamps(world: World) -> None:
    await check_timestamps(world.upstream)
    before = await world.upstream.oracle.timestamp()
    await world.passes(7)
    after = await world.upstream.oracle.timestamp()
    assert 7 <= tso.physical_s(after) - tso.physical_s(before) < 60


async def test_a_caller_that_gives_up_harms_no_other(world: World) -> None:
    tasks = [asyncio.create_task(world.upstream.oracle.timestamp()) for _ in range(10)]
    await asyncio.sleep(0)
    for task in tasks[::2]:
        task.cancel()
    found = await asyncio.gather(*tasks, return_exceptions=True)
    kept = [one for one in found if isinstance(one, int)]
    assert len(set(kept)) == len(kept) >= 5


# -- what became of transactions -------------------------------------------------------------------


async def test_an_end_is_told_as_it_is(world: World) -> None:
    committed, rolled_back, alive = [await world.begin(ttl_s=LONG_S) for _ in range(3)]
    commit_ts = await world.commit(*committed)
    await world.roll_back(*rolled_back)
    found = await world.upstream.transactions.outcomes([committed, rolled_back, alive])
    assert found[:2] == [Committed(commit_ts), RolledBack()]
    assert isinstance(found[2], Undecided)
    assert await world.is_open(*alive)
    assert await world.upstream.transactions.outcomes([]) == []


async def test_a_live_transaction_is_never_rolled_back(world: World) -> None:
    alive = await world.begin(ttl_s=LONG_S)
    for _ in range(5):
        assert isinstance(await outcome(world, *alive), Undecided)
        await world.passes(200)
        assert await world.is_open(*alive)
    commit_ts = await world.commit(*alive)
    assert await outcome(world, *alive) == Committed(commit_ts)


async def test_a_dead_one_is_rolled_back_in_the_end_and_stays_so(world: World) -> None:
    dead = await world.begin(ttl_s=3.0)
    assert isinstance(await outcome(world, *dead), Undecided)
    async with asyncio.timeout(PATIENCE_S):
        while isinstance(await outcome(world, *dead), Undecided):
            await world.passes(100)
    assert await outcome(world, *dead) == RolledBack()
    assert not await world.is_open(*dead)


async def test_one_without_a_trace_is_given_time_and_then_rolled_back(world: World) -> None:
    """Its prewrite may be on its way to the store while its binlog is here already."""
    gone = await world.never_prewritten()
    assert isinstance(await outcome(world, *gone), Undecided)
    async with asyncio.timeout(PATIENCE_S):
        while isinstance(await outcome(world, *gone), Undecided):
            await world.passes(100)
    assert await outcome(world, *gone) == RolledBack()


async def test_many_questions_at_once(world: World) -> None:
    begun = [await world.begin(ttl_s=LONG_S) for _ in range(60)]
    expected: list[Outcome | None] = []
    for number, one in enumerate(begun):
        if number % 3 == 0:
            expected.append(Committed(await world.commit(*one)))
        elif number % 3 == 1:
            await world.roll_back(*one)
            expected.append(RolledBack())
        else:
            expected.append(None)
    found = await world.upstream.transactions.outcomes(begun)
    for answer, wanted in zip(found, expected, strict=True):
        assert isinstance(answer, Undecided) if wanted is None else answer == wanted


# -- history ---------------------------------------------------------------------------------------


async def check_history(upstream: Upstream) -> list[int]:
    """Ascending, each found alone too, and from the middle on the rest."""
    ids = [json.loads(job)["id"] async for page in upstream.history.pages() for job in page]
    assert ids == sorted(set(ids))
    if ids:
        middle = ids[len(ids) // 2]
        rest = [json.loads(job)["id"] async for page in upstream.history.pages(middle) for job in page]
        assert rest == [one for one in ids if one > middle]
        found = await upstream.history.job(middle)
        assert found is not None
        assert json.loads(found)["id"] == middle
    assert await upstream.history.job(1 << 40) is None
    return ids


async def test_history(world: World) -> None:
    assert await check_history(world.upstream) == []
    ids = [*range(1, 3000, 7), 1 << 33]
    for job_id in reversed(ids):
        await world.add_job(job_id)
    assert await check_history(world.upstream) == ids
    await world.add_job(1 << 35)
    assert await world.upstream.history.job(1 << 35)


async def test_garbage_is_held_from_now_on(world: World) -> None:
    now_ts = await world.upstream.oracle.timestamp()
    assert await world.upstream.garbage.hold("one", now_ts, 300) <= now_ts
    assert await world.upstream.garbage.hold("one", now_ts + 1, 300) <= now_ts + 1
    await world.upstream.garbage.hold("one", now_ts, 0)


async def test_closed_is_unavailable(world: World) -> None:
    started = await world.begin()
    await world.upstream.close()
    with pytest.raises(Unavailable):
        await world.upstream.oracle.timestamp()
    with pytest.raises(Unavailable):
        await world.upstream.transactions.outcomes([started])


# -- which one -------------------------------------------------------------------------------------


async def test_auto_finds_out_who_answers(world: World) -> None:
    other = "tidb" if isinstance(world, StandaloneWorld) else "standalone"
    found = await choice.connect("auto", world.endpoints)
    assert type(found) is type(world.upstream)
    assert found.cluster_id == world.upstream.cluster_id == await choice.cluster_id(world.endpoints)
    await found.close()
    with pytest.raises(Conflict):
        await choice.connect("auto", world.endpoints, cluster_id=5)
    with pytest.raises(Rejected):
        await choice.connect(choice.check_kind(other), world.endpoints, create=False)


async def test_a_pd_that_is_down_is_not_taken_for_an_etcd(free_port: Callable[[], int]) -> None:
    with pytest.raises(Unavailable):
        await choice.connect("auto", f"127.0.0.1:{free_port()}")


def test_unknown_kind() -> None:
    with pytest.raises(ConfigError):
        choice.check_kind("tikv")


async def check_real(endpoints: str) -> None:
    upstream = await choice.connect("auto", endpoints)
    try:
        assert isinstance(upstream, TidbUpstream)
        await check_timestamps(upstream)
        assert await check_history(upstream)
        now_ts = await upstream.oracle.timestamp()
        assert await upstream.garbage.hold("contract", now_ts, 60) <= now_ts
        schema = await upstream.history.schema_at(now_ts)
        assert schema is not None
        assert schema.version > 0
        tables = [table async for page in schema.pages for table in page.tables]
        assert tables
        await upstream.garbage.hold("contract", now_ts, 0)
    finally:
        await upstream.close()


if __name__ == "__main__":
    asyncio.run(check_real(sys.argv[1]))
    print("kept")
