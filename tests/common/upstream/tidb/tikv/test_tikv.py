"""Requests find their store: dead ones, moved ones, regions that change under way, and one deadline."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from tests.fakes.cluster import FakeCluster
from tests.fakes.tikv import FakeTikv, Fault, LocalChannel, LocalPd
from tests.fakes.world import TikvWorld
from tidb_binlog.clock import ManualClock
from tidb_binlog.errors import Corruption, Rejected, Unavailable
from tidb_binlog.rpc import UNIMPLEMENTED, UNKNOWN, RpcStatus
from tidb_binlog.upstream.tidb.tikv.locks import LockResolver
from tidb_binlog.upstream.tidb.tikv.regions import Store, StoreState, name_of
from tidb_binlog.upstream.tidb.tikv.snapshot import Snapshot
from tidb_binlog.upstream.tidb.tikv.tikv import Deadline, TikvClient
from tidb_binlog.wire import errorpb_pb2
from tidb_binlog.wire import kvrpcpb_pb2 as kv


def stores_asked(world: TikvWorld) -> list[int]:
    return [call.store_id for call in world.tikv.calls]


async def test_the_context_says_whom_it_is_for() -> None:
    world = TikvWorld()
    world.cluster.split(b"f")
    await world.snapshot().get(b"k")
    context = world.tikv.calls[0].request.context
    region = world.cluster.region_of(b"k")
    assert (context.region_id, context.region_epoch.version, context.region_epoch.conf_ver) == (
        region.id,
        region.version,
        region.conf_ver,
    )
    assert (context.peer.id, context.peer.store_id) == (region.peers[0].id, 1)
    assert context.cluster_id == world.cluster.cluster_id
    assert context.api_version == kv.V1


@pytest.mark.parametrize("kind", ["refuse", "lose", "slow", "fails"])
async def test_a_store_that_does_not_answer_is_passed_over(kind: str) -> None:
    """Its leadership has gone to another store, of which PD has not heard yet."""
    world = TikvWorld()
    ts = world.cluster.put(b"k", b"v")
    await world.snapshot(ts).get(b"k")
    fault = Fault(store_id=1, times=10**6)
    if kind == "fails":
        fault.fails = RpcStatus(UNKNOWN, "raft store is gone")
    else:
        setattr(fault, kind, True)
    world.tikv.fault(fault)
    stale = world.cluster.region_of(b"k")
    world.cluster.move_leader(b"k", 3)
    world.pd.region_of = lambda key, **_: asyncio.sleep(0, stale)  # type: ignore[method-assign]
    assert await world.snapshot(ts).get(b"k") == b"v"
    assert stores_asked(world) == [1, 1, 2, 3]  # the second names the third


async def test_all_stores_away_for_a_while() -> None:
    world = TikvWorld()
    ts = world.cluster.put(b"k", b"v")
    world.tikv.down = {1, 2, 3}

    def come_back() -> None:
        if len(world.slept) == 5:
            world.tikv.down = set()

    world.on_sleep = come_back
    assert await world.snapshot(ts).get(b"k") == b"v"
    assert all(slept >= 0.05 for slept in world.slept)


async def test_the_deadline_holds_over_everything_and_the_error_tells_all() -> None:
    world = TikvWorld()
    world.tikv.down = {1, 2, 3}
    began_s = world.cluster.clock.now_s
    with pytest.raises(Unavailable) as caught:
        await world.snapshot().get(b"m")
    assert 15 < world.cluster.clock.now_s - began_s <= 20
    text = str(caught.value)
    assert "does not answer KvGet of a meta key within 20 s" in text
    assert "(no answer " in text
    assert "the last at tikv-" in text
    assert "connection refused" in text


async def test_a_slow_store_gets_no_more_than_what_is_left() -> None:
    world = TikvWorld()
    world.tikv.fault(Fault(times=10**6, slow=True))
    began_s = world.cluster.clock.now_s
    with pytest.raises(Unavailable):
        await world.snapshot(deadline_s=12.0).get(b"k")
    assert world.cluster.clock.now_s - began_s <= 12.0 + 1e-6
    assert len(world.tikv.calls) == 3


async def test_pd_away() -> None:
    world = TikvWorld()
    world.pd.away = True
    with pytest.raises(Unavailable, match="PD does not answer"):
        await world.snapshot().get(b"k")
    world.pd.away = False
    assert await world.snapshot().get(b"k") is None
    world.pd.away = True
    assert await world.snapshot().get(b"k") is None  # where it is known already


async def test_a_store_that_moved_is_found_again() -> None:
    world = TikvWorld()
    ts = world.cluster.put(b"k", b"v")
    await world.snapshot(ts).get(b"k")
    world.tikv.move(1, "tikv-1-new:20160")
    assert await world.snapshot(ts).get(b"k") == b"v"
    assert stores_asked(world) == [1, 2, 1]  # the second says that the first still leads


async def test_a_region_that_has_left_its_stores_is_found_again() -> None:
    """They are dead; PD knows where its peers are by now."""
    world = TikvWorld(stores=6)
    cluster = world.cluster
    whole = cluster.region_of(b"k")
    cluster.regions = [replace(whole, peers=whole.peers[:3])]
    ts = cluster.put(b"k", b"v")
    await world.snapshot(ts).get(b"k")
    world.tikv.down = {1, 2, 3}
    for store_id in (1, 2, 3):
        cluster.move_peer(b"k", store_id, store_id + 3)
    assert await world.snapshot(ts).get(b"k") == b"v"
    assert stores_asked(world) == [1, 4]


async def test_what_somebody_else_has_learned_meanwhile_is_kept() -> None:
    world = TikvWorld()
    cluster = world.cluster
    ts = cluster.put_all({b"a": b"1", b"k": b"2"})
    await world.snapshot(ts).get(b"k")
    late = errorpb_pb2.Error()
    late.region_not_found.region_id = cluster.region_of(b"k").id
    hold = asyncio.Event()
    world.tikv.fault(Fault(region_error=late, hold=hold))
    slow = asyncio.create_task(world.snapshot(ts).get(b"k"))
    while len(world.tikv.calls) < 2:
        await asyncio.sleep(0)
    cluster.split(b"f")
    assert await world.snapshot(ts).get(b"k") == b"2"
    asked = world.pd.asked
    hold.set()
    assert await slow == b"2"
    assert world.pd.asked == asked


async def test_another_store_at_the_address() -> None:
    world = TikvWorld()
    ts = world.cluster.put(b"k", b"v")
    await world.snapshot(ts).get(b"k")
    world.tikv.move(1, "tikv-1-new:20160", taken_by=2)
    assert await world.snapshot(ts).get(b"k") == b"v"
    assert stores_asked(world) == [1, 2, 1]  # store_not_match in between
    assert world.slept == []


@pytest.mark.parametrize("gone", [StoreState.TOMBSTONE, None])
async def test_a_store_that_is_gone_is_passed_over(gone: StoreState | None) -> None:
    world = TikvWorld()
    ts = world.cluster.put(b"k", b"v")
    store = world.cluster.stores.pop(1)
    if gone is not None:
        world.cluster.stores[1] = replace(store, state=gone)
    world.on_sleep = lambda: world.cluster.move_leader(b"k", 2)
    assert await world.snapshot(ts).get(b"k") == b"v"
    assert stores_asked(world) == [2]


async def test_a_region_without_a_leader_is_asked_at_any_voter() -> None:
    world = TikvWorld()
    ts = world.cluster.put(b"k", b"v")
    region = world.cluster.region_of(b"k")
    learner, *voters = region.peers
    world.cluster.regions = [
        replace(region, peers=(replace(learner, is_learner=True), *voters), leader=voters[1])
    ]
    unknown = replace(world.cluster.regions[0], leader=None)
    world.pd.region_of = lambda key, **_: asyncio.sleep(0, unknown)  # type: ignore[method-assign]
    assert await world.snapshot(ts).get(b"k") == b"v"
    assert stores_asked(world) == [2, 3]


async def test_a_region_with_learners_only_is_not_asked() -> None:
    world = TikvWorld()
    region = world.cluster.region_of(b"k")
    learners = tuple(replace(peer, is_learner=True) for peer in region.peers)
    world.cluster.regions = [replace(region, peers=learners, leader=None)]
    with pytest.raises(Unavailable, match="no voter"):
        await world.snapshot().get(b"k")
    assert world.tikv.calls == []


async def test_many_who_ask_for_the_same_region_ask_pd_a_few_times_only() -> None:
    world = TikvWorld()
    snapshot = world.snapshot()
    await asyncio.gather(*(snapshot.get(b"%d" % n) for n in range(100)))
    assert world.pd.asked <= 8 + 100  # the region, and the store by each who came before the first was back
    world.pd.asked = 0
    await asyncio.gather(*(snapshot.get(b"%d" % n) for n in range(100)))
    assert world.pd.asked == 0


async def test_what_tikv_does_not_know_is_not_asked_again() -> None:
    world = TikvWorld()
    world.tikv.fault(Fault(times=10, fails=RpcStatus(UNIMPLEMENTED, "unknown method")))
    with pytest.raises(Rejected, match="does not know KvGet"):
        await world.snapshot().get(b"k")
    assert len(world.tikv.calls) == 1


async def test_bytes_that_are_no_reply_are_corruption() -> None:
    class Garbled:
        async def unary(self, method_path: str, request: bytes, timeout_s: float) -> bytes:
            return b"\xff\xff\xff"

        async def close(self) -> None:
            pass

    world = TikvWorld()
    client = TikvClient(world.pd, clock=world.cluster.clock, dial=lambda address: Garbled())
    with pytest.raises(Corruption, match="no GetResponse"):
        await Snapshot(client, LockResolver(client, world.pd), 5).get(b"k")


async def test_a_key_of_a_keyspace_is_refused() -> None:
    world = TikvWorld()
    with pytest.raises(Rejected, match="keyspace 7"):
        await world.snapshot().get(b"x\0\0\7t")
    assert world.pd.asked == 0


async def test_regions_at_the_edges_of_keyspaces_are_nothing_special() -> None:
    """PD from v7.0 on splits at the edges of keyspace 0 in every cluster."""
    world = TikvWorld()
    ts = world.cluster.put(b"t1", b"v")
    world.cluster.split(b"r\0\0\0", b"r\0\0\1", b"x\0\0\0", b"x\0\0\1")
    assert await world.snapshot(ts).get(b"t1") == b"v"
    assert [page async for page in world.snapshot(ts).scan(b"", b"")] == [[(b"t1", b"v")]]


@pytest.mark.parametrize(
    ("key", "name"),
    [
        (b"t\x80\0\0\0\0\0\0\x2d_r\x80\0\0\0\0\0\0\1", "a key of table 45"),
        (b"t\x80\0\0\0\0\0\0\x2d_i\x80\0\0\0\0\0\0\1secret", "a key of table 45"),
        (b"mDDLJob", "a meta key"),
        (b"secret", "a key"),
        (b"", "a key"),
    ],
)
def test_a_key_is_named_without_its_values(key: bytes, name: str) -> None:
    assert name_of(key) == name


async def test_keys_of_many_regions_are_asked_region_by_region() -> None:
    world = TikvWorld()
    world.cluster.split(b"3", b"5", b"7")
    asked = [
        keys
        async for keys, _ in world.client.send_by_region(
            [b"9", b"1", b"4", b"1", b"3"],
            "KvBatchGet",
            lambda keys: kv.BatchGetRequest(keys=keys, version=1),
            kv.BatchGetResponse,
            timeout_s=1.0,
            deadline=Deadline(world.cluster.clock, 10.0),
        )
    ]
    assert asked == [[b"1"], [b"3", b"4"], [b"9"]]


class Dialled:
    """Which connections were made to a world's stores."""

    def __init__(self, world: TikvWorld) -> None:
        self.channels: list[tuple[str, LocalChannel]] = []
        self._tikv = world.tikv
        world.client = TikvClient(world.pd, clock=world.cluster.clock, dial=self._dial, sleep=world.sleep)
        world.locks = LockResolver(world.client, world.pd)

    def _dial(self, address: str) -> LocalChannel:
        channel = self._tikv.dial(address)
        self.channels.append((address, channel))
        return channel

    @property
    def closed(self) -> list[str]:
        return [address for address, channel in self.channels if channel.closed]


async def test_a_request_that_takes_too_long_ends_those_of_nobody_else() -> None:
    """They are on the same connection."""
    world = TikvWorld()
    dialled = Dialled(world)
    slow = world.tikv.fault(Fault(times=4, slow=True))
    assert await world.snapshot(deadline_s=60.0).get(b"k") is None
    assert slow.times == 0
    assert dialled.closed == []
    assert len({address for address, _ in dialled.channels}) == len(dialled.channels)


async def test_the_connection_to_where_a_store_was_ends() -> None:
    world = TikvWorld()
    dialled = Dialled(world)
    await world.snapshot().get(b"k")
    old = world.cluster.stores[1].address
    world.tikv.move(1, "tikv-1-new:20160")
    await world.snapshot().get(b"k")
    await asyncio.sleep(0)
    assert dialled.closed == [old]


async def test_no_connection_is_made_once_it_is_closed() -> None:
    world = TikvWorld()
    dialled = Dialled(world)

    async def store(store_id: int, **_: float) -> Store | None:
        await world.client.close()
        return world.cluster.stores.get(store_id)

    world.pd.store = store  # type: ignore[method-assign]
    with pytest.raises(Unavailable, match="are closed"):
        await world.snapshot().get(b"k")
    assert dialled.channels == []


async def test_closed_while_somebody_asks() -> None:
    world = TikvWorld()
    await world.snapshot().get(b"k")
    world.tikv.down = {1, 2, 3}
    closing: list[asyncio.Task[None]] = []
    world.on_sleep = lambda: closing.append(asyncio.ensure_future(world.client.close()))
    with pytest.raises(Unavailable, match="are closed"):
        await world.snapshot().get(b"k")
    await asyncio.gather(*closing)
    asked = len(world.tikv.calls)
    with pytest.raises(Unavailable, match="are closed"):
        await world.snapshot().get(b"k")
    assert len(world.tikv.calls) == asked


async def test_over_a_real_network() -> None:
    """Servers that die, come back elsewhere, and lose replies, on real connections."""
    cluster = FakeCluster(clock=ManualClock())
    tikv = FakeTikv(cluster)
    await tikv.serve()
    pd = LocalPd(cluster)
    client = TikvClient(pd)
    locks = LockResolver(client, pd)
    try:
        ts = cluster.put_all({b"%03d" % n: b"%d" % n for n in range(100)})
        cluster.split(b"030", b"060")
        pages = [page async for page in Snapshot(client, locks, ts).scan(b"", b"", page=30)]
        assert [len(page) for page in pages] == [30, 30, 30, 10]
        tikv.fault(Fault(lose=True))
        assert await Snapshot(client, locks, ts).get(b"001") == b"1"
        cluster.move_leader(b"001", 2)
        await tikv.stop(1)
        assert await Snapshot(client, locks, ts).get(b"001") == b"1"
        await tikv.serve(1)
        cluster.move_leader(b"001", 1)
        assert await Snapshot(client, locks, ts).get(b"001") == b"1"
        large = b"v" * (6 << 20)  # more than gRPC takes unasked
        assert await Snapshot(client, locks, cluster.put(b"large", large)).get(b"large") == large
    finally:
        await client.close()
        await client.close()
        await tikv.stop()
