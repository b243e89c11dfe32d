from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable
from pathlib import Path
from typing import Any

import pytest

from tests.fakes import grpcio_server
from tests.fakes.cluster import FakeCluster, Member
from tests.fakes.pd import GC_WORKER, Changed, Fail, FakePd, Late, Lost
from tests.waiting import PATIENCE_S, until
from tidb_binlog import rpc
from tidb_binlog.errors import BinlogError, ConfigError, Conflict, Corruption, Rejected, Unavailable
from tidb_binlog.net.port import free_ports
from tidb_binlog.net.tls import TlsConfig
from tidb_binlog.upstream.tidb.pd import pd_servers
from tidb_binlog.upstream.tidb.pd.pd import NotPd, PdClient
from tidb_binlog.upstream.tidb.pd.safe_point import CollectedUpTo, ServiceSafePoint
from tidb_binlog.upstream.tidb.tikv.regions import StoreState
from tidb_binlog.wire import pdpb_pb2

TLS = Path(__file__).parents[4] / "golden" / "tls"
NODE = TlsConfig(str(TLS / "ca.pem"), str(TLS / "node.pem"), str(TLS / "node.key"))
ROW = bytes.fromhex("7480000000000000015f728000000000000001")


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pd_servers, "PAUSE_FIRST_S", 0.01)
    monkeypatch.setattr(pd_servers, "PAUSE_MAX_S", 0.05)
    # Members that are alive answer, however busy the machine is.
    monkeypatch.setattr(pd_servers, "GRACE_S", 5.0)
    monkeypatch.setattr(pd_servers, "LEADERLESS_GRACE_S", 5.0)


@pytest.fixture
def cluster() -> FakeCluster:
    return FakeCluster()


@contextlib.asynccontextmanager
async def serving(
    cluster: FakeCluster, members: int = 1, tls: TlsConfig | None = None
) -> AsyncIterator[FakePd]:
    pd = await FakePd.start(cluster, members=members, tls=tls)
    try:
        yield pd
    finally:
        await pd.close()


@contextlib.asynccontextmanager
async def connected(endpoints: str, *, try_s: float = 5.0, **options: Any) -> AsyncIterator[PdClient]:
    client = await PdClient.connect(endpoints, **options)
    client._servers._try_s = try_s
    try:
        yield client
    finally:
        await client.close()


async def says(error: type[BinlogError], call: Awaitable[object]) -> str:
    with pytest.raises(error) as caught:
        await call
    assert type(caught.value) is error
    return str(caught.value)


# Connecting.


async def test_the_members_and_the_id(cluster: FakeCluster) -> None:
    async with serving(cluster, 3) as pd, connected(pd.endpoints) as client:
        assert client.cluster_id == cluster.cluster_id
        members = await client.members()
        assert [one.name for one in members] == ["pd-1", "pd-2", "pd-3"]
        assert [one.is_leader for one in members] == [True, False, False]
        assert [one.addresses for one in members] == [(one.address,) for one in pd.members]
        assert {one.version for one in members} == {"7.0.0"}


@pytest.mark.parametrize("form", ["{0}", "http://{0}", " http://{0} ,{0},"])
async def test_forms_of_endpoints(cluster: FakeCluster, form: str) -> None:
    async with serving(cluster) as pd, connected(form.format(pd.members[0].address)) as client:
        assert (await client.region_of(b"a")).id == cluster.regions[0].id
        assert list(client._servers._clients) == [pd.members[0].address]


@pytest.mark.parametrize("endpoints", ["", "ftp://pd:1", "http://pd:2379/path", "pd"])
async def test_endpoints_that_are_none(endpoints: str) -> None:
    await says(ConfigError, PdClient.connect(endpoints))


async def test_tls(cluster: FakeCluster) -> None:
    async with serving(cluster, tls=NODE) as pd:
        assert pd.endpoints.startswith("https://")
        async with connected(pd.endpoints, tls=NODE) as client:
            assert (await client.store(1)) == cluster.stores[1]
        assert "https without TLS files" in await says(ConfigError, PdClient.connect(pd.endpoints))
        plain = pd.endpoints.replace("https", "http")
        await says(Unavailable, PdClient.connect(plain))


async def test_nobody_there_names_every_address_and_what_it_said(cluster: FakeCluster) -> None:
    nobody = f"127.0.0.1:{free_ports(1)[0]}"
    async with serving(cluster, 2) as pd:
        unstarted, hanging = pd.members
        unstarted.is_started = False
        hanging.hangs = True
        said = await says(Unavailable, PdClient.connect(f"{pd.endpoints},{nobody}", timeout_s=2.0))
    assert f"{unstarted.address} cannot tell the members: UNKNOWN: [PD:server:ErrServerNotStarted]" in said
    assert f"{hanging.address} " in said
    assert f"{nobody} does not answer" in said


async def test_one_that_answers_is_enough_and_none_is_waited_for(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pd_servers, "GRACE_S", 0.05)
    async with serving(cluster, 3) as pd:
        await pd.members[0].stop()
        pd.elect(pd.members[1])
        pd.members[2].hangs = True
        async with asyncio.timeout(PATIENCE_S), connected(pd.endpoints, timeout_s=8 * PATIENCE_S) as client:
            assert (await client.region_of(b"")).id == cluster.regions[0].id


async def test_a_header_error_or_no_id_is_no_answer(cluster: FakeCluster) -> None:
    def fails(reply: Any) -> None:
        reply.header.error.type = pdpb_pb2.UNKNOWN
        reply.header.error.message = "etcd is slow"

    def forgets(reply: Any) -> None:
        reply.header.cluster_id = 0

    async with serving(cluster, 2) as pd:
        pd.members[0].faults["GetMembers"] += [Changed(fails), Changed(fails)]
        pd.members[1].faults["GetMembers"].append(Changed(forgets))
        said = await says(Unavailable, PdClient.connect(pd.endpoints))
        assert "UNKNOWN: etcd is slow" in said
        assert "does not know its cluster id yet" in said
        async with connected(pd.endpoints) as client:
            assert client.cluster_id == cluster.cluster_id


async def test_a_plain_etcd_is_no_pd(etcd: str) -> None:
    said = await says(NotPd, PdClient.connect(etcd))
    assert "does not know GetMembers" in said
    nobody = f"127.0.0.1:{free_ports(1)[0]}"
    await says(NotPd, PdClient.connect(f"{nobody},{etcd}"))


async def test_addresses_of_two_kinds(cluster: FakeCluster, etcd: str) -> None:
    async with serving(cluster) as pd:
        said = await says(Conflict, PdClient.connect(f"{pd.endpoints},{etcd}"))
        assert etcd.removeprefix("http://") in said


async def test_addresses_of_two_clusters(cluster: FakeCluster) -> None:
    async with serving(cluster, 2) as pd:
        pd.members[1].cluster_id = 5
        said = await says(Conflict, PdClient.connect(pd.endpoints))
        assert f"{pd.members[0].address} {cluster.cluster_id}, {pd.members[1].address} 5" in said


# Calls and the leader.


async def test_a_call_follows_the_leader(cluster: FakeCluster) -> None:
    async with serving(cluster, 3) as pd, connected(pd.endpoints) as client:
        for leader in (pd.members[1], pd.members[2], pd.members[0]):
            pd.elect(leader)
            assert (await client.store(2)) == cluster.stores[2]
            assert sum(one.calls["GetStore"] for one in pd.members) == 2
            assert leader.calls["GetStore"] == 1
            for one in pd.members:
                one.calls.clear()


async def test_a_call_waits_for_an_election(cluster: FakeCluster) -> None:
    async with serving(cluster, 2) as pd, connected(pd.endpoints) as client:
        pd.elect(None)
        call = asyncio.ensure_future(client.store(1))
        await until(lambda: pd.members[0].calls["GetMembers"] >= 3)
        assert not call.done()
        pd.elect(pd.members[1])
        assert await call == cluster.stores[1]


async def test_no_leader_within_the_deadline(cluster: FakeCluster) -> None:
    async with serving(cluster, 2) as pd:
        pd.elect(None)
        async with connected(pd.endpoints) as client:
            said = await says(Unavailable, client.store(1, deadline_s=0.5))
            assert "does not answer GetStore within 0.5 s" in said
            assert "no leader is elected" in said


async def test_an_old_leader_cut_off_from_the_others_is_not_believed(cluster: FakeCluster) -> None:
    async with serving(cluster, 3) as pd, connected(pd.endpoints) as client:
        old = pd.members[0]
        old.believes = old.member
        old.faults["GetStore"] += [Fail(rpc.UNKNOWN, "etcd leader changed")] * 9
        pd.elect(pd.members[2])
        assert await client.store(1) == cluster.stores[1]
        assert old.calls["GetStore"] == 1


async def test_leaders_url_cannot_be_reached_but_a_configured_one_leads_to_it(cluster: FakeCluster) -> None:
    async with serving(cluster, 3) as pd:
        for member in cluster.members:
            member.client_urls = (f"http://127.0.0.1:{free_ports(1)[0]}",)
        async with connected(pd.endpoints) as client:
            for leader in (pd.members[2], pd.members[0]):
                pd.elect(leader)
                assert await client.store(1) == cluster.stores[1]
                before = sum(one.calls["GetMembers"] for one in pd.members)
                assert await client.store(1) == cluster.stores[1]  # known now: nothing is asked again
                assert sum(one.calls["GetMembers"] for one in pd.members) == before


async def test_members_that_were_not_configured_are_used(cluster: FakeCluster) -> None:
    async with serving(cluster, 3) as pd, connected(pd.members[0].address) as client:
        pd.elect(pd.members[1])
        await pd.members[0].stop()
        assert await client.store(1) == cluster.stores[1]


async def test_all_of_them_away_and_back_elsewhere(cluster: FakeCluster) -> None:
    async with serving(cluster, 2) as pd, connected(pd.members[0].address) as client:
        for member in pd.members:
            await member.stop()
        said = await says(Unavailable, client.store(1, deadline_s=0.5))
        assert pd.members[0].address in said
        joined = Member("pd-3", 13)
        cluster.members = [pd.members[0].member, joined]
        third = await pd.add(joined)
        pd.elect(third)
        await pd.members[0].start()
        assert await client.store(1) == cluster.stores[1]
        assert [one.name for one in await client.members()] == ["pd-1", "pd-3"]


@pytest.mark.parametrize(
    "fault",
    [
        Fail(rpc.UNAVAILABLE, "not leader"),
        Fail(rpc.UNAVAILABLE, "server not started"),
        Fail(rpc.RESOURCE_EXHAUSTED, "rate limit exceeded"),
        Fail(rpc.UNKNOWN, "etcdserver: leader changed"),
        Fail(rpc.INTERNAL, "stream terminated by RST_STREAM"),
        Fail(rpc.DEADLINE_EXCEEDED, "send heartbeat timeout"),
        Lost(),
        Changed(lambda reply: setattr(reply.header.error, "type", pdpb_pb2.NOT_BOOTSTRAPPED)),
    ],
    ids=lambda fault: getattr(fault, "text", type(fault).__name__),
)
async def test_failures_that_pass(cluster: FakeCluster, fault: Any) -> None:
    async with serving(cluster) as pd, connected(pd.endpoints, try_s=0.15) as client:
        pd.members[0].faults["GetStore"] += [fault, fault]
        asked = pd.members[0].calls["GetMembers"]
        assert await client.store(1) == cluster.stores[1]
        assert pd.members[0].calls["GetMembers"] > asked  # at once after a failure


async def test_failures_that_stay_are_told_at_the_deadline(cluster: FakeCluster) -> None:
    async with serving(cluster) as pd, connected(pd.endpoints) as client:
        pd.members[0].faults["GetStore"] += [Fail(rpc.RESOURCE_EXHAUSTED, "rate limit exceeded")] * 1000
        said = await says(Unavailable, client.store(1, deadline_s=0.5))
        assert f"{pd.members[0].address} refuses GetStore: rate limit exceeded" in said


async def test_a_cluster_that_was_rebuilt_is_a_conflict(cluster: FakeCluster) -> None:
    async with serving(cluster) as pd, connected(pd.endpoints) as client:
        old, cluster.cluster_id = cluster.cluster_id, 99
        said = await says(Conflict, client.store(1))
        assert str(old) in said
        assert "99" in said


async def test_a_strangers_server_under_the_leaders_name_is_passed_by(cluster: FakeCluster) -> None:
    """Names like pd-0 mean another cluster on this host."""
    stranger_cluster = FakeCluster()
    stranger_cluster.cluster_id = 5
    async with serving(cluster) as pd, serving(stranger_cluster) as stranger:
        cluster.members[0].client_urls = (f"http://{stranger.members[0].address}",)
        async with connected(pd.endpoints) as client:
            assert await client.store(1) == cluster.stores[1]
            stranger.members[0].calls.clear()
            assert await client.store(2) == cluster.stores[2]
            assert stranger.members[0].calls["GetStore"] == 0


async def test_a_leader_that_hangs_is_left_when_there_is_another(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pd_servers, "DOUBT_S", 0.02)
    monkeypatch.setattr(pd_servers, "GRACE_S", 0.02)
    async with serving(cluster, 3) as pd, connected(pd.endpoints, try_s=8 * PATIENCE_S) as client:
        pd.members[0].hangs = True
        call = asyncio.ensure_future(client.store(1, deadline_s=8 * PATIENCE_S))
        await until(lambda: pd.members[1].calls["GetMembers"] >= 4)
        assert not call.done()
        pd.elect(pd.members[1])
        async with asyncio.timeout(PATIENCE_S):
            assert await call == cluster.stores[1]


async def test_a_call_that_hangs_holds_nobody_up(cluster: FakeCluster) -> None:
    async with serving(cluster) as pd, connected(pd.endpoints) as client:
        late = Late()
        pd.members[0].faults["GetStore"].append(late)
        slow = asyncio.ensure_future(client.store(1))
        await late.reached.wait()
        for _ in range(20):
            assert await client.store(2) == cluster.stores[2]
        assert not slow.done()
        late.event.set()
        assert await slow == cluster.stores[1]


async def test_a_cancelled_call_leaves_the_shared_refresh_to_the_others(cluster: FakeCluster) -> None:
    async with serving(cluster) as pd, connected(pd.endpoints) as client:
        late = Late()
        pd.members[0].faults["GetMembers"].append(late)
        pd.members[0].faults["GetStore"] += [Fail(rpc.UNAVAILABLE, "not leader")] * 2
        first, second = (asyncio.ensure_future(client.store(n)) for n in (1, 2))
        await late.reached.wait()
        first.cancel()
        late.event.set()
        assert await second == cluster.stores[2]
        assert first.cancelled()


async def test_members_are_asked_every_minute(cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pd_servers, "REFRESH_S", 0.01)
    async with serving(cluster) as pd, connected(pd.endpoints) as client:
        joined = Member("pd-2", 12)
        cluster.members.append(joined)
        second = await pd.add(joined)
        await until(lambda: second.calls["GetMembers"] >= 2)
        await pd.members[0].stop()
        pd.elect(second)
        assert await client.store(1) == cluster.stores[1]


async def test_close_ends_calls_and_none_begins_afterwards(cluster: FakeCluster) -> None:
    async with serving(cluster) as pd:
        client = await PdClient.connect(pd.endpoints)
        late = Late()
        pd.members[0].faults["GetStore"].append(late)
        call = asyncio.ensure_future(client.store(1))
        await late.reached.wait()
        await client.close()
        assert "closed" in await says(Unavailable, call)
        assert "closed" in await says(Unavailable, client.store(1))
        await client.close()
        late.event.set()


async def test_no_connection_is_made_after_close(cluster: FakeCluster) -> None:
    """Members are known by then that were never asked."""
    async with serving(cluster, members=3) as pd:
        client = await PdClient.connect(pd.members[0].address)
        await client.close()
        assert "closed" in await says(Unavailable, client.members())
        assert not any(member.calls["GetMembers"] for member in pd.members[1:])


async def test_a_leader_change_is_logged(cluster: FakeCluster, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        async with serving(cluster, 2) as pd, connected(pd.endpoints) as client:
            pd.elect(pd.members[1])
            await client.store(1)
            await client.store(2)
    changes = [record for record in caplog.records if record.getMessage() == "PD has another leader"]
    assert len(changes) == 1
    assert changes[0].fields["leader"] == "pd-2"  # type: ignore[attr-defined]


# Regions and stores.


async def test_a_region_by_raw_key(cluster: FakeCluster) -> None:
    cluster.split(b"b", ROW)
    async with serving(cluster) as pd, connected(pd.endpoints) as client:
        for key in (b"", b"a", b"b", b"c", ROW[:-1], ROW, ROW + b"\0", b"\xff" * 9):
            assert await client.region_of(key) == cluster.region_of(key)


async def test_a_region_that_is_not_known_yet_is_waited_for(cluster: FakeCluster) -> None:
    regions, cluster.regions = cluster.regions, []
    async with serving(cluster) as pd, connected(pd.endpoints) as client:
        said = await says(Unavailable, client.region_of(ROW, deadline_s=0.5))
        assert "the region of a key of table 1: it knows none" in said
        assert ROW.hex() not in said
        call = asyncio.ensure_future(client.region_of(b"k"))
        asked = pd.members[0].calls["GetRegion"]
        await until(lambda: pd.members[0].calls["GetRegion"] >= asked + 2)
        cluster.regions = regions
        assert await call == regions[0]


async def test_a_region_that_does_not_hold_the_key_is_not_believed(cluster: FakeCluster) -> None:
    cluster.split(b"m")
    wrong = cluster.region_of(b"z")

    def swap(reply: Any) -> None:
        reply.region.start_key = reply.region.end_key
        reply.region.end_key = b""

    async with serving(cluster) as pd, connected(pd.endpoints) as client:
        pd.members[0].faults["GetRegion"].append(Changed(swap))
        assert await client.region_of(b"a") == cluster.region_of(b"a") != wrong


async def test_a_region_without_a_leader_and_with_a_peer_that_is_down(cluster: FakeCluster) -> None:
    async with serving(cluster) as pd, connected(pd.endpoints) as client:
        cluster.move_leader(b"", None)
        region = cluster.regions[0]
        pd.down_peers = {region.peers[1].id}
        found = await client.region_of(b"")
        assert found.leader is None
        assert found.peers == (region.peers[0], region.peers[2])
        pd.down_peers = {peer.id for peer in region.peers}
        assert (await client.region_of(b"")).peers == region.peers


async def test_a_boundary_that_is_no_key_is_told(cluster: FakeCluster) -> None:
    async with serving(cluster) as pd, connected(pd.endpoints) as client:
        pd.members[0].faults["GetRegion"].append(
            Changed(lambda reply: setattr(reply.region, "end_key", b"r"))
        )
        assert "a region boundary of 1 bytes is no" in await says(Corruption, client.region_of(b""))


async def test_a_reply_that_cannot_be_read(cluster: FakeCluster) -> None:
    async def garbage(request: bytes) -> bytes:
        return b"\xff\xff"

    server = await grpcio_server.serve([rpc.Service("pdpb.PD", {"GetMembers": garbage})], "127.0.0.1", 0)
    said = await says(Unavailable, PdClient.connect(f"127.0.0.1:{server.port}"))
    assert "what is no GetMembersResponse" in said
    await server.stop(None)


async def test_stores(cluster: FakeCluster) -> None:
    async with serving(cluster) as pd, connected(pd.endpoints) as client:
        assert await client.stores() == list(cluster.stores.values())
        cluster.move_store(2, "elsewhere:1")
        found = await client.store(2)
        assert found is not None
        assert found.address == "elsewhere:1"
        assert await client.store(77) is None
        cluster.stores[3] = type(cluster.stores[3])(3, "gone:1", StoreState.TOMBSTONE)
        assert await client.store(3) is None
        assert [store.id for store in await client.stores()] == [1, 2]


async def test_an_error_that_is_not_about_the_store_does_not_make_it_unknown(cluster: FakeCluster) -> None:
    def busy(reply: Any) -> None:
        reply.header.error.type = pdpb_pb2.UNKNOWN
        reply.header.error.message = "rate limit exceeded"
        reply.ClearField("store")

    async with serving(cluster) as pd, connected(pd.endpoints) as client:
        pd.members[0].faults["GetStore"].append(Changed(busy))
        assert await client.store(1) == cluster.stores[1]


# Safe points.


async def test_garbage_is_held_and_let_go(cluster: FakeCluster) -> None:
    async with serving(cluster) as pd, connected(pd.endpoints) as client:
        garbage = ServiceSafePoint(client)
        assert await garbage.hold("drainer_1", 100, 300) == 0
        assert cluster.service_safe_points["drainer_1"] == (100, int(cluster.clock.wall_s()) + 300)
        cluster.service_safe_points[GC_WORKER] = (200, float("inf"))
        assert await garbage.hold("drainer_1", 100, 300) == 100  # renewed
        assert await garbage.hold("drainer_2", 50, 300) == 100  # too late: the smallest is above
        assert "drainer_2" not in cluster.service_safe_points
        assert await garbage.hold("drainer_2", 150, 300) == 100
        assert await garbage.hold("drainer_1", 100, 0) == 150
        cluster.clock.advance(301)
        assert await garbage.hold("drainer_3", 150, 300) == 200  # nobody held it any more
        assert set(cluster.service_safe_points) == {GC_WORKER}


async def test_up_to_where_garbage_is_collected(cluster: FakeCluster) -> None:
    cluster.gc_safe_point = 4711
    async with serving(cluster) as pd, connected(pd.endpoints) as client:
        collected = CollectedUpTo(client)
        assert await collected.now() == 4711
        cluster.gc_safe_point += 1
        assert await asyncio.gather(collected.now(), collected.now()) == [4712, 4712]
        assert pd.members[0].calls["GetGCSafePoint"] <= 3
        await collected.close()


async def test_a_pd_that_has_no_such_call_any_more(cluster: FakeCluster) -> None:
    async with serving(cluster) as pd, connected(pd.endpoints) as client:
        pd.members[0].faults["UpdateServiceGCSafePoint"].append(Fail(rpc.UNIMPLEMENTED, "unknown method"))
        with pytest.raises(Rejected, match="does not know UpdateServiceGCSafePoint"):
            await client.update_safe_point("drainer_1", 300, 1)
        pd.members[0].faults["UpdateServiceGCSafePoint"] += [
            Fail(rpc.UNKNOWN, "block service safe point")
        ] * 99
        said = await says(Unavailable, client.update_safe_point("drainer_1", 300, 1, deadline_s=0.5))
        assert "block service safe point" in said
