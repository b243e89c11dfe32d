"""Reads at a timestamp: pages over regions, locks in the way, and whatever happens to regions meanwhile."""

from __future__ import annotations

from typing import Any

import pytest

from tests.cases import case
from tests.fakes.mvcc import PESSIMISTIC, PUT, KeyFailure, MvccLock
from tests.fakes.tikv import Fault
from tests.fakes.world import TikvWorld, scanned
from tidb_binlog.errors import Rejected, Unavailable
from tidb_binlog.upstream.tidb.tikv.key_errors import Collected
from tidb_binlog.wire import kvrpcpb_pb2 as kv


async def test_get() -> None:
    world = TikvWorld()
    first = world.cluster.put_all({b"a": b"1", b"b": b"2", b"c": b"", b"d": b"4"})
    world.cluster.split(b"b")
    second = world.cluster.put_all({b"a": None, b"b": b"22"}, first + 10)
    assert await world.snapshot(first).get(b"a") == b"1"
    assert await world.snapshot(second - 1).get(b"a") == b"1"
    assert await world.snapshot(second).get(b"a") is None
    assert await world.snapshot(second).get(b"c") is None  # an empty value is none, as in TiDB


async def test_a_scan_over_regions_with_pages_that_end_exactly() -> None:
    for page in [1, 2, 3, 4, 5, 6, 7]:
        for splits in [(), (b"k3",), (b"k2", b"k4"), (b"a", b"k2", b"k21", b"k3", b"z")]:
            with case(page, splits):
                world = TikvWorld()
                values: dict[bytes, bytes | None] = {b"k%d" % n: b"v%d" % n for n in range(6)}
                ts = world.cluster.put_all(values)
                world.cluster.split(*splits)
                for start, end in (
                    (b"", b""),
                    (b"k1", b"k5"),
                    (b"k2", b"k4"),
                    (b"k4", b"k2"),
                    (b"k2", b"k2\0"),
                ):
                    expected = {
                        key: value for key, value in values.items() if start <= key and (not end or key < end)
                    }
                    if end and end <= start:
                        expected = {}
                    assert await scanned(world.snapshot(ts), start, end, page=page) == expected
                    keys = await scanned(world.snapshot(ts), start, end, page=page, key_only=True)
                    assert keys == dict.fromkeys(expected, b"")
                for call in world.tikv.called("KvScan"):  # nothing is asked about what is outside
                    assert not call.request.end_key or call.request.start_key < call.request.end_key


async def test_a_scan_survives_the_end_of_its_region_under_way() -> None:
    """A key of the last page's region is beyond it after a split, and in another one after a merge."""
    world = TikvWorld()
    values: dict[bytes, bytes | None] = {b"k%d" % n: b"v" for n in range(9)}
    ts = world.cluster.put_all(values)
    pages = world.snapshot(ts).scan(b"", b"", page=2)
    found = dict(await anext(pages))
    world.cluster.split(b"k2", b"k5")
    found |= dict(await anext(pages))
    world.cluster.merge(b"k2")
    world.cluster.move_leader(b"k7", 3)
    async for page in pages:
        found |= dict(page)
    assert found == values


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize(
    "ended", ["committed before", "committed after", "rolled back", "expired", "never prewritten"]
)
@pytest.mark.parametrize("size", [1, 20])
async def test_locks_of_transactions_that_are_over(named: bool, ended: str, size: int) -> None:
    """They are cleared away, and everybody's later read finds none."""
    world = TikvWorld()
    cluster = world.cluster
    world.tikv.names_locked_keys = named
    cluster.put_all({b"k%02d" % n: b"old" for n in range(30)})
    cluster.split(b"k05", b"k15")
    keys = [b"p", *(b"k%02d" % n for n in range(size))]
    values: dict[bytes, bytes | None] = dict.fromkeys(keys, b"new")
    values[b"k00"] = None
    start_ts = cluster.prewrite(values)
    read_ts = cluster.ts()
    if ended == "committed before":
        cluster.commit(start_ts, b"p")
        read_ts = cluster.ts()
    elif ended == "committed after":
        cluster.commit(start_ts, b"p")
    elif ended == "rolled back":
        cluster.roll_back(start_ts, b"p")
    elif ended == "never prewritten":
        cluster.mvcc.row(b"p").lock = None
        cluster.clock.advance(4)
    else:
        cluster.clock.advance(4)
    found = await scanned(world.snapshot(read_ts), b"k", b"l", page=7)
    assert cluster.locked(start_ts) == []
    assert found == {key: value for key, value in cluster.snapshot(read_ts).items() if key < b"l"}
    assert found.get(b"k00", b"") == (b"" if ended == "committed before" else b"old")
    assert await scanned(world.snapshot(read_ts), b"k", b"l", key_only=True) == dict.fromkeys(found, b"")
    for key in (b"k00", b"k03"):
        assert await world.snapshot(read_ts).get(key) == cluster.snapshot(read_ts).get(key)
    for call in world.tikv.called("KvResolveLock"):  # of a large one all that the region has
        assert bool(call.request.keys) == (size == 1)


async def test_a_scan_of_keys_that_meets_locks_has_no_values_either() -> None:
    world = TikvWorld()
    cluster = world.cluster
    cluster.put_all({b"a": b"1", b"b": b"1"})
    start_ts = cluster.prewrite({b"p": b"2", b"a": b"2", b"b": None, b"c": b"2"})
    cluster.commit(start_ts, b"p")
    assert await scanned(world.snapshot(), key_only=True) == dict.fromkeys([b"a", b"c", b"p"], b"")


async def test_a_transaction_that_is_over_is_asked_about_once() -> None:
    world = TikvWorld()
    cluster = world.cluster
    start_ts = cluster.prewrite({b"p": b"1", b"a": b"1", b"b": b"1"})
    cluster.commit(start_ts, b"p")
    for key in (b"a", b"b"):
        assert await world.snapshot().get(key) == b"1"
    assert len(world.tikv.called("KvCheckTxnStatus")) == 1
    assert cluster.locked(start_ts) == []


async def test_a_live_lock_whose_primary_is_on_its_way() -> None:
    """Nothing at the primary key proves nothing as long as this lock is alive."""
    world = TikvWorld()
    cluster = world.cluster
    start_ts = cluster.prewrite({b"k": b"new"}, primary=b"p", ttl_ms=60_000)
    before = cluster.mvcc.dump()
    with pytest.raises(Unavailable, match=f"locked by transaction {start_ts}"):
        await world.snapshot().get(b"k")
    assert cluster.mvcc.dump() == before
    cluster.clock.advance(60)
    assert await world.snapshot().get(b"k") is None
    with pytest.raises(KeyFailure, match="rolled back"):
        cluster.prewrite({b"p": b"new"}, start_ts=start_ts)


async def test_a_live_lock_is_waited_for() -> None:
    world = TikvWorld()
    cluster = world.cluster
    start_ts = cluster.prewrite({b"k": b"new"}, ttl_ms=20_000)
    read_ts = cluster.ts()

    def commit_at_last() -> None:
        if len(world.slept) == 6:
            cluster.commit(start_ts, commit_ts=read_ts + 1)

    world.on_sleep = commit_at_last
    assert await world.snapshot(read_ts).get(b"k") is None
    assert len(world.slept) == 6


async def test_a_lock_that_stays_alive_is_never_rolled_back() -> None:
    world = TikvWorld()
    start_ts = world.cluster.prewrite({b"k": b"new"}, ttl_ms=3_600_000)
    before = world.cluster.mvcc.dump()
    for read in (world.snapshot().get(b"k"), scanned(world.snapshot())):
        with pytest.raises(Unavailable, match=f"locked by transaction {start_ts}"):
            await read
    assert world.cluster.mvcc.dump() == before


async def test_a_lock_with_ttl_0_is_not_older_than_its_primary() -> None:
    """Such a lock is settled at once, but by the primary's own time: that one may be alive."""
    world = TikvWorld()
    cluster = world.cluster
    start_ts = cluster.prewrite({b"p": b"1"}, ttl_ms=3_600_000)
    cluster.mvcc.prewrite(b"k", MvccLock(PUT, start_ts, b"p", 0, b"1"))
    before = cluster.mvcc.dump()
    with pytest.raises(Unavailable, match="locked"):
        await world.snapshot().get(b"k")
    assert cluster.mvcc.dump() == before
    other = cluster.prewrite({b"q": b"1", b"r": b"1"}, ttl_ms=0)
    cluster.clock.advance(0.002)
    slept = len(world.slept)
    assert await world.snapshot().get(b"r") is None
    assert len(world.slept) == slept
    assert cluster.locked(other) == []


async def test_a_lock_that_is_pushed_is_read_past() -> None:
    """A large transaction: its commit_ts will be above ours, so it is in nobody's way, and stays."""
    world = TikvWorld()
    cluster = world.cluster
    cluster.put(b"k", b"old")
    start_ts = cluster.ts()
    cluster.prewrite({b"p": b"1", b"k": b"new"}, start_ts=start_ts, ttl_ms=60_000, min_commit_ts=start_ts + 1)
    snapshot = world.snapshot()
    assert await snapshot.get(b"k") == b"old"
    assert await scanned(snapshot) == {b"k": b"old"}
    assert world.slept == []
    assert len(world.tikv.called("KvCheckTxnStatus")) == 1  # the snapshot keeps it in mind, for p too
    assert set(cluster.locked(start_ts)) == {b"p", b"k"}
    with pytest.raises(Exception, match="CommitTsExpired"):
        cluster.commit(start_ts, commit_ts=snapshot.ts)
    cluster.commit(start_ts)
    assert await world.snapshot().get(b"k") == b"new"


@pytest.mark.parametrize("kind", ["pessimistic", "lock only", "of later"])
async def test_locks_that_block_nobody(kind: str) -> None:
    world = TikvWorld()
    cluster = world.cluster
    read_ts = cluster.put(b"k", b"old")
    start_ts = cluster.ts()
    if kind == "pessimistic":
        cluster.mvcc.prewrite(b"k", MvccLock(PESSIMISTIC, start_ts, b"k", 3000, for_update_ts=start_ts))
    elif kind == "lock only":
        cluster.lock_only(b"k")
    else:
        cluster.prewrite({b"k": b"new"}, start_ts=start_ts)
    assert await world.snapshot(read_ts if kind == "of later" else None).get(b"k") == b"old"
    assert len(world.tikv.calls) == 1


@pytest.mark.parametrize("alive", [True, False])
async def test_a_pessimistic_lock_that_tikv_reports_all_the_same(alive: bool) -> None:
    """An expired one is read past (its transaction may not be over), a live one is waited for."""
    world = TikvWorld()
    cluster = world.cluster
    start_ts = cluster.ts()
    lock = MvccLock(PESSIMISTIC, start_ts, b"p", 3_600_000 if alive else 100, for_update_ts=start_ts)
    cluster.mvcc.prewrite(b"p", lock)
    if not alive:
        cluster.clock.advance(1)

    def locked(reply: Any) -> None:
        reply.Clear()
        reply.error.locked.CopyFrom(lock.message(b"k"))

    world.tikv.fault(Fault(method="KvGet", times=3 if alive else 1, change=locked))
    world.cluster.put(b"k", b"v")
    assert await world.snapshot().get(b"k") == b"v"
    assert len(world.slept) == (3 if alive else 0)
    assert (cluster.mvcc.row(b"p").lock is not None) == alive
    assert cluster.mvcc.row(b"p").writes == []  # no record: the transaction may go on


@pytest.mark.parametrize(
    "async_state", ["all there", "one committed", "one missing", "one ordinary", "alive"]
)
async def test_async_commit_is_decided_by_all_its_locks(async_state: str) -> None:
    world = TikvWorld()
    cluster = world.cluster
    cluster.split(b"b", b"c")
    ttl_ms = 3_600_000 if async_state == "alive" else 3000
    start_ts = cluster.prewrite({b"a": b"1", b"b": b"2", b"c": b"3"}, async_commit=True, ttl_ms=ttl_ms)
    commit_ts = max(lock.min_commit_ts for key in (b"a", b"b", b"c") if (lock := cluster.mvcc.row(key).lock))
    cluster.clock.advance(4)
    committed = async_state in ("all there", "one committed")
    if async_state == "one committed":
        cluster.mvcc.commit(b"c", start_ts, commit_ts)
    elif async_state == "one missing":
        cluster.mvcc.row(b"c").lock = None
    elif async_state == "one ordinary":
        cluster.mvcc.row(b"c").lock = MvccLock(PUT, start_ts, b"a", 3000, b"3")
    before = cluster.mvcc.dump()
    if async_state == "alive":
        with pytest.raises(Unavailable, match="locked"):
            await world.snapshot().get(b"b")
        assert cluster.mvcc.dump() == before
        return
    read_ts = cluster.ts()
    assert await world.snapshot(read_ts).get(b"b") == (b"2" if committed else None)
    assert await scanned(world.snapshot(read_ts)) == (
        {b"a": b"1", b"b": b"2", b"c": b"3"} if committed else {}
    )
    assert cluster.locked(start_ts) == []
    if committed:
        ends = {write.commit_ts for key in (b"a", b"b", b"c") for write in cluster.mvcc.row(key).writes}
        assert ends == {commit_ts}


async def test_errors_of_keys_that_are_no_locks() -> None:
    world = TikvWorld()

    def fails(**error: Any) -> Any:
        def change(reply: Any) -> None:
            reply.Clear()
            if isinstance(reply, kv.GetResponse):
                reply.error.CopyFrom(kv.KeyError(**error))
            else:
                reply.pairs.add(error=kv.KeyError(**error))

        return change

    cases: list[tuple[dict[str, str], type[Exception], str]] = [
        ({"abort": "GC life time is shorter than transaction duration"}, Collected, "gc_life_time"),
        ({"abort": "ApiVersionNotMatched { storage: V2, req: V1 }"}, Rejected, "keyspaces"),
        ({"abort": "Error(Txn(InvalidReqRange))"}, Rejected, "InvalidReqRange"),
        ({}, Rejected, "not known"),
    ]
    for error, kind, text in cases:
        for read in (world.snapshot().get(b"k"), scanned(world.snapshot())):
            world.tikv.fault(Fault(change=fails(**error)))
            with pytest.raises(kind, match=text):
                await read
    world.tikv.fault(Fault(times=2, change=fails(retryable="later")))
    assert await world.snapshot().get(b"k") is None
    assert len(world.slept) == 2
    world.tikv.fault(Fault(times=10**6, change=fails(retryable="later")))
    with pytest.raises(Unavailable, match="later"):
        await world.snapshot().get(b"k")
