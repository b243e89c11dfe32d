"""No trace of a transaction, beside a garbage collection: before the question, after it and in between."""

from __future__ import annotations

import asyncio

import pytest

from tests.fakes.mvcc import ROLLBACK
from tests.fakes.tikv import Fault
from tests.fakes.world import TikvWorld
from tidb_binlog import tso
from tidb_binlog.errors import Unavailable
from tidb_binlog.upstream.tidb.pd.safe_point import CollectedUpTo
from tidb_binlog.upstream.tidb.tikv.transactions import ABANDONED_WATCHED_S, TikvTransactions
from tidb_binlog.upstream_port import Committed, Outcome, RolledBack, Undecided, Unknown

KEY = b"t\x80primary"


async def _ask(asker: TikvTransactions, start_ts: int, *, given_up: bool = False) -> Outcome:
    [outcome] = await asker.outcomes([(start_ts, KEY)], {start_ts} if given_up else ())
    return outcome


def _committed_and_collected(world: TikvWorld) -> int:
    """Its primary key was written again, an hour passed, and garbage was collected."""
    cluster = world.cluster
    start_ts = cluster.prewrite({KEY: b"ours"})
    cluster.commit(start_ts)
    cluster.put(KEY, b"theirs")
    cluster.clock.advance(3600.0)
    cluster.collect(tso.from_wall_s(cluster.clock.wall_s() - 600.0))
    return start_ts


@pytest.mark.parametrize("given_up", [False, True])
async def test_below_the_safe_point_no_trace_is_unknown_and_stays_so(given_up: bool) -> None:
    world = TikvWorld()
    start_ts = _committed_and_collected(world)
    asker = world.transactions()
    for passed_s in (0.0, 5.0, 6.0, 700.0, 3600.0):
        world.cluster.clock.advance(passed_s)
        outcome = await _ask(asker, start_ts, given_up=given_up)
        assert isinstance(outcome, Undecided | Unknown)
    assert isinstance(outcome, Unknown)
    assert "no trace" in outcome.reason
    assert not any(write.kind == ROLLBACK for write in world.cluster.mvcc.row(KEY).writes)


@pytest.mark.parametrize("locked", [False, True])
async def test_it_is_said_as_soon_as_nothing_can_be_on_its_way(locked: bool) -> None:
    """An operator has to know, and not in ten minutes. `locked`: by another transaction."""
    world = TikvWorld()
    start_ts = _committed_and_collected(world)
    if locked:
        world.cluster.prewrite({KEY: b"another's"})
    asker = world.transactions()
    assert isinstance(await _ask(asker, start_ts), Undecided)
    world.cluster.clock.advance(ABANDONED_WATCHED_S)
    assert isinstance(await _ask(asker, start_ts), Unknown)


@pytest.mark.parametrize("given_up", [False, True])
async def test_a_collection_between_the_questions_is_noticed(given_up: bool) -> None:
    """The safe point passes when TiKV is asked to decide; the rollback that it then writes is believed by
    nobody here."""
    world = TikvWorld()
    cluster = world.cluster
    start_ts = cluster.ts()
    asker = world.transactions(watched_s=0.0)
    if not given_up:
        cluster.clock.advance(700.0)

    def pass_by() -> None:
        cluster.gc_safe_point = start_ts

    world.tikv.fault(Fault(method="KvCheckTxnStatus", before=pass_by))
    for _ in range(3):
        assert isinstance(await _ask(asker, start_ts, given_up=given_up), Unknown)


async def test_at_the_safe_point_itself_nobody_knows() -> None:
    """A rollback record there is collected."""
    for above, expected in ((0, Unknown), (1, RolledBack)):
        world = TikvWorld()
        start_ts = world.cluster.ts()
        world.cluster.gc_safe_point = start_ts - above
        world.cluster.clock.advance(700.0)
        assert isinstance(await _ask(world.transactions(watched_s=0.0), start_ts), expected)


async def test_without_the_safe_point_nothing_is_decided() -> None:
    world = TikvWorld()
    start_ts = world.cluster.ts()
    world.cluster.clock.advance(700.0)
    asker = world.transactions(watched_s=0.0)
    assert isinstance(await _ask(asker, world.cluster.prewrite({KEY: b"v"})), Undecided)  # finds the region
    world.pd.away = True
    with pytest.raises(Unavailable, match="PD does not answer"):
        await _ask(asker, start_ts)
    assert not any(write.kind == ROLLBACK for write in world.cluster.mvcc.row(KEY).writes)


@pytest.mark.parametrize("state", ["nothing", "rolled back", "expired", "committed", "alive"])
async def test_whose_client_has_given_up_is_decided_in_one_question(state: str) -> None:
    world = TikvWorld()
    cluster = world.cluster
    start_ts = cluster.ts()
    commit_ts = 0
    if state in ("expired", "committed", "alive"):
        cluster.prewrite({KEY: b"v"}, start_ts=start_ts, ttl_ms=60_000 if state == "alive" else 1)
    if state == "committed":
        commit_ts = cluster.commit(start_ts)
    if state == "rolled back":
        cluster.roll_back(start_ts, KEY)
    cluster.clock.advance(1.0)
    outcome = await _ask(world.transactions(), start_ts, given_up=True)
    if state == "alive":
        assert isinstance(outcome, Undecided)
    else:
        assert outcome == (Committed(commit_ts) if commit_ts else RolledBack())
    assert [call.method for call in world.tikv.calls] == ["KvCheckTxnStatus"]


class SlowPd:
    def __init__(self) -> None:
        self.asked = 0
        self.let = asyncio.Event()

    async def gc_safe_point(self) -> int:
        self.asked += 1
        number = self.asked
        await self.let.wait()
        return number


async def test_many_share_a_reading_that_begins_behind_their_question() -> None:
    pd = SlowPd()
    collected = CollectedUpTo(pd)  # type: ignore[arg-type]
    first = asyncio.create_task(collected.now())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    later = [asyncio.create_task(collected.now()) for _ in range(50)]
    await asyncio.sleep(0)
    pd.let.set()
    assert await first == 1  # under way when the others came: not theirs
    assert await asyncio.gather(*later) == [2] * 50
    assert await collected.now() == 3
    await collected.close()
