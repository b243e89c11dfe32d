from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import AsyncIterator, Awaitable
from typing import Any

import pytest

from tests.fakes.cluster import FakeCluster
from tests.fakes.pd import TSO_FAILED, Changed, End, Fail, FakePd, Late, Lost
from tests.waiting import PATIENCE_S, settle, until
from tidb_binlog import rpc, tso
from tidb_binlog.clock import ManualClock
from tidb_binlog.errors import BinlogError, Conflict, Corruption, Unavailable
from tidb_binlog.upstream.tidb.pd import oracle as oracle_module
from tidb_binlog.upstream.tidb.pd import pd_servers
from tidb_binlog.upstream.tidb.pd.oracle import PdOracle
from tidb_binlog.upstream.tidb.pd.pd import PdClient
from tidb_binlog.wire import pdpb_pb2


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pd_servers, "TRY_S", 60.0)  # what the tests give is shorter
    monkeypatch.setattr(pd_servers, "PAUSE_FIRST_S", 0.01)
    monkeypatch.setattr(pd_servers, "PAUSE_MAX_S", 0.05)


@pytest.fixture
def cluster() -> FakeCluster:
    return FakeCluster()


async def connected(endpoints: str, try_s: float) -> PdClient | None:
    """None if it took longer, as on a busy machine."""
    with contextlib.suppress(Unavailable):
        return await PdClient.connect(endpoints, timeout_s=try_s)
    return None


@contextlib.asynccontextmanager
async def opened(
    cluster: FakeCluster, members: int = 1, try_s: float = 5.0, clock: ManualClock | None = None
) -> AsyncIterator[tuple[FakePd, PdOracle]]:
    pd = await FakePd.start(cluster, members=members)
    client = await until(lambda: connected(pd.endpoints, try_s))
    oracle = PdOracle(client, clock)
    try:
        yield pd, oracle
    finally:
        await oracle.close()
        await client.close()
        await pd.close()


async def says(error: type[BinlogError], call: Awaitable[object]) -> str:
    with pytest.raises(error) as caught:
        await call
    assert type(caught.value) is error
    return str(caught.value)


async def test_timestamps_rise_over_one_stream(cluster: FakeCluster) -> None:
    async with opened(cluster) as (pd, oracle):
        drawn = [await oracle.timestamp() for _ in range(50)]
        assert drawn == sorted(set(drawn))
        assert tso.physical_s(drawn[0]) == cluster.clock.wall_s()
        assert pd.members[0].streams == 1
        assert pd.members[0].counts == [1] * 50


@pytest.mark.parametrize("suffix_bits", [0, 2])
async def test_callers_of_one_moment_share_a_request(cluster: FakeCluster, suffix_bits: int) -> None:
    cluster.suffix_bits = suffix_bits
    async with opened(cluster) as (pd, oracle):
        drawn = await asyncio.gather(*(oracle.timestamp() for _ in range(1000)))
        assert pd.members[0].counts == [1000]
        assert drawn == list(range(drawn[0], drawn[0] + 1000 * 2**suffix_bits, 2**suffix_bits))
        assert await oracle.timestamp() > drawn[-1]


async def test_a_batch_has_a_limit(cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(oracle_module, "BATCH_MAX", 4)
    async with opened(cluster) as (pd, oracle):
        drawn = await asyncio.gather(*(oracle.timestamp() for _ in range(10)))
        assert pd.members[0].counts == [4, 4, 2]
        assert drawn == sorted(set(drawn))


async def test_who_comes_during_a_request_waits_for_the_next(cluster: FakeCluster) -> None:
    """Another client draws after the first reply was made: the late caller's must be larger."""
    async with opened(cluster) as (pd, oracle):
        late = Late()
        pd.members[0].faults["Tso"].append(late)
        early = asyncio.ensure_future(oracle.timestamp())
        await late.reached.wait()
        drawn_elsewhere = cluster.ts()
        later = asyncio.ensure_future(oracle.timestamp())
        late.event.set()
        assert await early < drawn_elsewhere < await later
        assert pd.members[0].counts == [1, 1]


async def test_larger_than_every_timestamp_before_the_call_whoever_drew_it(cluster: FakeCluster) -> None:
    async with opened(cluster, 2) as (pd, oracle):
        other_client = await PdClient.connect(pd.endpoints)
        other = PdOracle(other_client)
        rng = random.Random(3)
        answered = 0

        async def draw() -> None:
            nonlocal answered
            for _ in range(15):
                floor = answered
                ts = await rng.choice((oracle, other)).timestamp()
                assert ts > floor
                answered = max(answered, ts)
                for _ in range(rng.randrange(3)):
                    await asyncio.sleep(0)

        async def disturb() -> None:
            for turn in range(20):
                pd.elect(pd.members[turn % 2])
                await settle(20)

        await asyncio.gather(disturb(), *(draw() for _ in range(20)))
        await other.close()
        await other_client.close()


async def test_cancelled_callers_harm_no_others(cluster: FakeCluster) -> None:
    async with opened(cluster) as (pd, oracle):
        late = Late()
        pd.members[0].faults["Tso"].append(late)
        sent = [asyncio.ensure_future(oracle.timestamp()) for _ in range(4)]
        await late.reached.wait()
        waiting = [asyncio.ensure_future(oracle.timestamp()) for _ in range(4)]
        await asyncio.sleep(0)
        for call in (sent[0], sent[2], waiting[0], waiting[3]):
            call.cancel()
        late.event.set()
        left = [await call for call in (sent[1], sent[3], waiting[1], waiting[2])]
        assert left == sorted(set(left))
        assert pd.members[0].counts == [4, 2]
        alone = asyncio.ensure_future(oracle.timestamp())
        await asyncio.sleep(0)
        alone.cancel()
        assert await oracle.timestamp() > left[-1]


TEXTS = (
    "[PD:tso:ErrGenerateTimestamp]generate timestamp failed, requested pd is not leader of cluster",
    "[PD:tso:ErrTSOMicroserviceNotServed]requested tso is not served by this host",
    f"{TSO_FAILED}, not the pd or local tso allocator leader anymore",
    f"{TSO_FAILED}, timestamp in memory isn't initialized",
    f"{TSO_FAILED}, maximum number of retries exceeded",
)


@pytest.mark.parametrize(
    "fault",
    [
        *(Fail(rpc.UNKNOWN, text) for text in TEXTS),
        Fail(rpc.UNAVAILABLE, "not leader"),
        Fail(rpc.RESOURCE_EXHAUSTED, "rate limit exceeded"),
        Fail(rpc.CANCELLED, "RST_STREAM"),
        End(),
        Lost(),
        Changed(lambda reply: setattr(reply, "count", 7)),
        Changed(lambda reply: reply.ClearField("timestamp")),
        Changed(lambda reply: setattr(reply.header.error, "type", pdpb_pb2.UNKNOWN)),
    ],
    ids=lambda fault: getattr(fault, "text", type(fault).__name__),
)
@pytest.mark.parametrize("answered_before", [False, True], ids=["new", "standing"])
async def test_failures_that_pass(cluster: FakeCluster, fault: Any, answered_before: bool) -> None:
    async with opened(cluster, try_s=0.15) as (pd, oracle):
        before = await oracle.timestamp() if answered_before else 0
        pd.members[0].faults["Tso"] += [fault, fault]
        drawn = await asyncio.gather(*(oracle.timestamp() for _ in range(3)))
        assert before < drawn[0] < drawn[1] < drawn[2]
        assert not pd.members[0].faults["Tso"]


async def test_a_stream_that_ended_while_it_stood_idle_costs_no_pause(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pd_servers, "PAUSE_FIRST_S", 8 * PATIENCE_S)
    monkeypatch.setattr(pd_servers, "PAUSE_MAX_S", 8 * PATIENCE_S)
    async with opened(cluster) as (pd, oracle):
        await oracle.timestamp()
        pd.members[0].faults["Tso"].append(Fail(rpc.UNAVAILABLE, "keepalive watchdog"))
        async with asyncio.timeout(PATIENCE_S):
            await oracle.timestamp()


async def test_the_leader_changes(cluster: FakeCluster) -> None:
    async with opened(cluster, 3) as (pd, oracle):
        last = 0
        for turn in range(6):
            pd.elect(pd.members[turn % 3])
            ts = await oracle.timestamp()
            assert ts > last
            last = ts
            assert pd.members[turn % 3].counts
            pd.members[turn % 3].counts.clear()


async def test_all_members_stop_and_come_back(cluster: FakeCluster) -> None:
    async with opened(cluster, 2) as (pd, oracle):
        first = await oracle.timestamp()
        for member in pd.members:
            await member.stop()
        calls = [asyncio.ensure_future(oracle.timestamp()) for _ in range(3)]
        await settle()
        assert not any(call.done() for call in calls)
        pd.elect(pd.members[1])
        await pd.members[1].start()
        drawn = await asyncio.gather(*calls)
        assert first < drawn[0] < drawn[1] < drawn[2]


async def test_waiting_is_bounded_and_who_came_later_waits_as_long(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(oracle_module, "DEADLINE_S", 0.5)
    async with opened(cluster) as (pd, oracle):
        await oracle.timestamp()
        pd.members[0].faults["Tso"] += [Fail(rpc.UNKNOWN, TEXTS[3])] * 10_000
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        early = [asyncio.ensure_future(oracle.timestamp()) for _ in range(2)]
        await until(lambda: loop.time() - began_s > 0.25)
        later = asyncio.ensure_future(oracle.timestamp())
        for call in early:
            said = await says(Unavailable, call)
            assert "does not answer Tso within 0.5 s" in said
            assert "timestamp in memory isn't initialized" in said
        assert not later.done()
        pd.members[0].faults["Tso"].clear()
        assert await later


async def test_no_leader_is_told(cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    async with opened(cluster) as (pd, oracle):
        pd.elect(None)
        for deadline_s in (0.2, 2.0, 20.0):  # a busy machine may not get as far as to ask for the leader
            monkeypatch.setattr(oracle_module, "DEADLINE_S", deadline_s)
            said = await says(Unavailable, oracle.timestamp())
            if "no leader is elected" in said:
                return
        pytest.fail(said)


async def test_who_was_cancelled_is_not_in_the_repeated_request(cluster: FakeCluster) -> None:
    async with opened(cluster, try_s=0.3) as (pd, oracle):
        pd.members[0].faults["Tso"].append(Lost())
        calls = [asyncio.ensure_future(oracle.timestamp()) for _ in range(2)]
        await until(lambda: pd.members[0].counts)
        calls[0].cancel()
        assert await calls[1]
        assert pd.members[0].counts == [2, 1]


async def test_the_stream_goes_where_calls_go(cluster: FakeCluster) -> None:
    """The leader advertises one name and is configured by another."""
    async with opened(cluster) as (pd, oracle):
        cluster.members[0].client_urls = (f"http://localhost:{pd.members[0].port}",)
        await oracle._pd.members()
        first = await oracle.timestamp()
        assert pd.members[0].streams == 1
        asked: list[str] = []

        async def attempt(client: rpc.Client, _timeout_s: float) -> None:
            asked.append(client.address)
            if len(asked) == 1:
                raise Unavailable("not here")

        await oracle._pd.at_leader("a call", attempt)
        assert asked == [f"localhost:{pd.members[0].port}", pd.members[0].address]
        assert await oracle.timestamp() > first
        assert pd.members[0].streams == 2
        await oracle._pd.at_leader("a call", attempt)
        assert asked[2:] == [pd.members[0].address]


async def test_a_leader_that_hangs_is_left_when_there_is_another(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pd_servers, "DOUBT_S", 0.02)
    async with opened(cluster, 2, 8 * PATIENCE_S) as (pd, oracle):
        await oracle.timestamp()
        pd.members[0].hangs = True
        calls = [asyncio.ensure_future(oracle.timestamp()) for _ in range(2)]
        await until(lambda: pd.members[1].calls["GetMembers"] > 2)
        pd.elect(pd.members[1])
        async with asyncio.timeout(PATIENCE_S):
            assert await calls[0] < await calls[1]
        assert pd.members[1].counts == [2]


async def test_a_leader_that_hangs_alone_is_given_up(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(oracle_module, "DEADLINE_S", 0.3)
    async with opened(cluster, try_s=0.1) as (pd, oracle):
        pd.members[0].hangs = True
        assert "does not answer Tso" in await says(Unavailable, oracle.timestamp())
        pd.members[0].hangs = False
        monkeypatch.setattr(oracle_module, "DEADLINE_S", 5.0)
        assert await oracle.timestamp()


@pytest.mark.parametrize("change", [-1, 0], ids=["smaller", "equal"])
async def test_timestamps_that_do_not_grow_are_never_handed_out(
    cluster: FakeCluster, change: int, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened(cluster) as (pd, oracle):
        last = (await asyncio.gather(*(oracle.timestamp() for _ in range(3))))[-1] + change

        def repeat(reply: Any) -> None:
            reply.timestamp.physical = tso.physical_ms(last)
            reply.timestamp.logical = last & tso.LOGICAL_MAX

        pd.members[0].faults["Tso"].append(Changed(repeat))
        calls = [asyncio.ensure_future(oracle.timestamp()) for _ in range(2)]
        for call in calls:
            assert "it must grow" in await says(Corruption, call)
        errors = [record for record in caplog.records if record.levelno == logging.ERROR]
        assert len(errors) == 1, "and perhaps that PD is slow"
        assert await oracle.timestamp() > last


async def test_a_cluster_that_was_rebuilt_is_a_conflict(cluster: FakeCluster) -> None:
    async with opened(cluster) as (_, oracle):
        await oracle.timestamp()
        cluster.cluster_id = 99
        assert "99" in await says(Conflict, oracle.timestamp())


async def test_a_recent_timestamp_is_asked_for_every_two_seconds(cluster: FakeCluster) -> None:
    clock = ManualClock()
    async with opened(cluster, clock=clock) as (pd, oracle):
        first = await oracle.recent()
        clock.advance(2.0)
        assert await oracle.recent() == first
        assert await oracle.recent(1.0) > first
        second = await oracle.timestamp()
        clock.advance(1.9)
        assert await oracle.recent() == second
        clock.advance(0.2)
        assert await oracle.recent() > second
        assert len(pd.members[0].counts) == 4


async def test_slow_timestamps_are_told_once_in_a_while(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    clock = ManualClock()
    async with opened(cluster, clock=clock) as (pd, oracle):
        for took_s, pause_s in ((0.031, 0), (0.5, 0), (0.029, 60), (0.031, 0), (0.5, 0)):
            late = Late()
            pd.members[0].faults["Tso"].append(late)
            call = asyncio.ensure_future(oracle.timestamp())
            await late.reached.wait()
            clock.advance(took_s)
            late.event.set()
            await call
            clock.advance(pause_s)
    told = [record.fields["took_ms"] for record in caplog.records]  # type: ignore[attr-defined]
    assert told == [31, 31]


async def test_close_fails_whoever_waits(cluster: FakeCluster) -> None:
    async with opened(cluster) as (pd, oracle):
        late = Late()
        pd.members[0].faults["Tso"].append(late)
        sent = asyncio.ensure_future(oracle.timestamp())
        await late.reached.wait()
        waiting = asyncio.ensure_future(oracle.timestamp())
        await asyncio.sleep(0)
        await oracle.close()
        for call in (sent, waiting, oracle.timestamp()):
            assert "closed" in await says(Unavailable, call)
        await oracle.close()
        late.event.set()
