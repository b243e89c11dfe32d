"""Against a real etcd and pumps behind real gRPC; the examples of the docstrings run here."""

from __future__ import annotations

import ast
import asyncio
import inspect
import itertools
import json
import threading
from collections.abc import AsyncIterator, Callable
from types import ModuleType
from typing import Any

import pytest

import pumpclient
from pumpclient import BinlogTooLarge, NoPumpRegistered, Options, WriteFailed, testing
from pumpclient import client_sync as sync
from pumpclient.publish import publisher
from pumpclient.pumps.health import PumpState
from tests.pumpclient.support.grpc_pump import GrpcPump
from tests.waiting import until
from tidb_binlog import binlog
from tidb_binlog.cluster.node import PAUSING
from tidb_binlog.errors import ConfigError, Rejected, Unavailable
from tidb_binlog.etcd.client import EtcdClient, delete
from tidb_binlog.etcd.registry import EtcdRegistry, connect_registry
from tidb_binlog.upstream.standalone import StandaloneUpstream
from tidb_binlog.upstream_port import Committed, RolledBack

pytestmark = pytest.mark.integration

CLUSTER = 4711
P, C, R = binlog.PREWRITE, binlog.COMMIT, binlog.ROLLBACK
QUICK = Options(write_timeout_s=3.0, retry_pause_s=0.01, finish_retry_pause_s=0.02, probe_interval_s=0.05)


@pytest.fixture
async def registry(etcd_clean: str) -> AsyncIterator[EtcdRegistry]:
    found = await connect_registry(etcd_clean)
    yield found
    await found.close()


@pytest.fixture
async def pumps(registry: EtcdRegistry) -> AsyncIterator[list[GrpcPump]]:
    started = [await GrpcPump.start(f"pump{number}", CLUSTER) for number in range(2)]
    for pump in started:
        await pump.register(registry)
    yield started
    for pump in started:
        await pump.stop()


def state_of(client: pumpclient.PumpClient, pump: GrpcPump) -> PumpState | None:
    return next(view.state for view in client.pumps() if view.pump_id == pump.node_id)


def example(module: ModuleType) -> str:
    """The first indented block of a module's docstring."""
    lines = (module.__doc__ or "").splitlines()
    block = itertools.takewhile(
        lambda line: not line or line.startswith("    "),
        itertools.dropwhile(
            lambda line: not line.startswith(("    async", "    with", "    publisher", "    from")), lines
        ),
    )
    return inspect.cleandoc("\n" + "\n".join(block))


async def run_example(module: ModuleType, endpoint: str, **names: Any) -> dict[str, Any]:
    source = example(module)
    assert source
    code = compile(
        source.replace("127.0.0.1:2379", endpoint), module.__name__, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    )
    scope: dict[str, Any] = {"pumpclient": pumpclient, **names}
    await eval(code, scope) if code.co_flags & inspect.CO_COROUTINE else eval(code, scope)
    return scope


async def test_writes_reach_real_pumps_and_ends_follow(etcd_clean: str, pumps: list[GrpcPump]) -> None:
    async with await pumpclient.connect(etcd_clean, cluster_id=CLUSTER, options=QUICK) as client:
        for start_ts in range(1, 41, 2):
            await client.write_prewrite(start_ts, b"k", b"v")
            assert await client.write_commit(start_ts, start_ts + 1, b"k")
    for pump in pumps:
        stored = pump.transactions()
        assert len(stored) == 20
        starts = [start_ts for tp, start_ts, _ in stored if tp == P]
        assert stored == [
            entry for start_ts in starts for entry in ((P, start_ts, 0), (C, start_ts, start_ts + 1))
        ]


async def test_four_of_five_calls_refused_and_one_pump_unreachable(
    etcd_clean: str, registry: EtcdRegistry
) -> None:
    flaky = await GrpcPump.start("flaky", CLUSTER, receive_bytes_max=1024)
    dead = await GrpcPump.start("dead", CLUSTER)
    flaky.refuse_every = 5
    await flaky.register(registry)
    await dead.register(registry)
    await dead.stop()
    async with await pumpclient.connect(etcd_clean, cluster_id=CLUSTER, options=QUICK) as client:
        for start_ts in range(1, 21):
            await client.write_prewrite(start_ts, b"k", b"v")
        assert len(flaky.payloads) == 20
        assert state_of(client, dead) in (PumpState.OUT, PumpState.PROBING)
        with pytest.raises(BinlogTooLarge):  # noqa: PT012
            for start_ts in range(100, 120):  # a refusal may come first
                await client.write_prewrite(start_ts, b"k", b"v" * 2048)
        await flaky.stop()
        with pytest.raises(WriteFailed):
            await client.write_prewrite(200, b"k", b"v")
    quick_end = Options(write_timeout_s=2.0, finish_retry_pause_s=0.02, finish_deadline_s=0.1)
    assert not await _commit_after_stop(etcd_clean, registry, quick_end)


async def _commit_after_stop(endpoint: str, registry: EtcdRegistry, options: Options) -> bool:
    pump = await GrpcPump.start("flaky", CLUSTER)
    await pump.register(registry)
    async with await pumpclient.connect(endpoint, cluster_id=CLUSTER, options=options) as client:
        await client.write_prewrite(1, b"k", b"v")
        await pump.stop()
        return await client.write_commit(1, 2)


async def test_a_killed_pump_is_avoided_probed_and_used_again(etcd_clean: str, pumps: list[GrpcPump]) -> None:
    first = pumps[0]
    async with await pumpclient.connect(etcd_clean, cluster_id=CLUSTER, options=QUICK) as client:
        start_ts = itertools.count(1)
        port = first.port
        await first.stop()
        while state_of(client, first) not in (PumpState.OUT, PumpState.PROBING):
            await client.write_prewrite(next(start_ts), b"k", b"v")
        await first.listen(port)
        await until(lambda: state_of(client, first) is PumpState.USABLE)
        assert first.probes >= 1
        stored = len(first.payloads)
        for _ in range(2):
            await client.write_prewrite(next(start_ts), b"k", b"v")
        assert len(first.payloads) == stored + 1


async def test_the_registry_is_followed_and_a_commit_reaches_a_deleted_pump(
    etcd_clean: str, registry: EtcdRegistry, pumps: list[GrpcPump]
) -> None:
    first, second = pumps
    async with await pumpclient.connect(etcd_clean, cluster_id=CLUSTER, strategy="hash") as client:
        await client.write_prewrite(10, b"k", b"v")  # 10 mod 2: the first
        await client.write_prewrite(12, b"k", b"v")
        await first.register(registry, PAUSING)
        await until(lambda: state_of(client, first) is PumpState.AWAY)
        assert await client.write_commit(10, 11)
        raw = await EtcdClient.connect(etcd_clean)
        await raw.txn([], [delete(b"/tidb-binlog/v1/pumps/pump0")])
        await raw.close()
        await until(lambda: state_of(client, first) is None)
        await client.write_prewrite(14, b"k", b"v")
        assert await client.write_commit(12, 13)
        assert [view.pump_id for view in client.pumps()] == ["pump1"]
    assert first.transactions() == [(P, 10, 0), (P, 12, 0), (C, 10, 11), (C, 12, 13)]
    assert second.transactions() == [(P, 14, 0)]


async def test_what_connect_refuses(etcd_clean: str, free_port: Callable[[], int]) -> None:
    with pytest.raises(ConfigError, match="range, hash, score"):
        await pumpclient.connect(etcd_clean, cluster_id=CLUSTER, strategy="zigzag")
    with pytest.raises(NoPumpRegistered, match="no pump found in pd"):
        await pumpclient.connect(etcd_clean, cluster_id=CLUSTER)
    with pytest.raises(Rejected, match="no standalone cluster"):
        await pumpclient.connect(etcd_clean)
    nobody = f"127.0.0.1:{free_port()}"
    with pytest.raises(Unavailable, match=nobody):
        await pumpclient.connect(nobody, cluster_id=CLUSTER, options=Options(registry_timeout_s=0.5))
    await (await StandaloneUpstream.connect(etcd_clean, cluster_id=CLUSTER)).close()
    with pytest.raises(NoPumpRegistered):
        await pumpclient.open_publisher(etcd_clean)


async def test_a_publisher_end_to_end(etcd_clean: str, pumps: list[GrpcPump]) -> None:
    upstream = await StandaloneUpstream.connect(etcd_clean, cluster_id=CLUSTER)
    job = json.dumps({"id": 9, "type": 3, "binlog": {"SchemaVersion": 4}}).encode()
    async with await pumpclient.open_publisher(etcd_clean) as stream:
        ddl_ts = await stream.ddl(job, "create table t (a int)")
        assert await upstream.history.job(9) == job
        async with stream.transaction() as committed:
            committed.insert(5, b"row")
        async with stream.transaction(ttl_s=0.3) as left:
            left.insert(5, b"left")
            await left.abandon()
        async with stream.transaction() as silent:
            silent.insert(5, b"silent")
            await silent.commit(deliver=False)
        questions = [(left.start_ts, b""), (silent.start_ts, b"")]
        await upstream.transactions.outcomes(questions)  # from here on the lease is watched
        async with stream.transaction(ttl_s=0.3) as long:
            await asyncio.sleep(1.0)
            long.insert(5, b"long")
        assert await stream.flush(5.0)
        outcomes = await upstream.transactions.outcomes(questions)
        assert outcomes == [RolledBack(), Committed(silent.commit_ts)]
    assert ddl_ts < committed.start_ts < committed.commit_ts < left.start_ts < silent.commit_ts
    stored = [entry for pump in pumps for entry in pump.transactions()]
    ends = {start_ts: commit_ts for tp, start_ts, commit_ts in stored if tp == C}
    assert ends.pop(committed.start_ts) == committed.commit_ts
    assert ends.pop(long.start_ts) == long.commit_ts
    assert list(ends.values()) == [ddl_ts]
    assert [tp for tp, _, _ in stored].count(P) == 5
    await upstream.close()


async def test_concurrent_sessions_publish_in_order(etcd_clean: str, pumps: list[GrpcPump]) -> None:
    """On every pump each commit_ts is above all start_ts whose prewrite was acknowledged before its draw."""
    await (await StandaloneUpstream.connect(etcd_clean, cluster_id=CLUSTER)).close()
    async with await pumpclient.open_publisher(etcd_clean) as stream:

        async def session(number: int) -> None:
            for count in range(10):
                async with stream.transaction() as txn:
                    txn.insert(number + 1, b"row %d" % count)

        await asyncio.gather(*(session(number) for number in range(8)))
        assert await stream.flush(10.0)
        assert stream.client.counters.finishes_delivered == 80
    for pump in pumps:
        open_now: set[int] = set()
        for tp, start_ts, commit_ts in pump.transactions():
            if tp == P:
                open_now.add(start_ts)
            else:
                open_now.remove(start_ts)
                assert commit_ts > start_ts
        assert not open_now


async def test_the_example_of_the_package(etcd_clean: str, pumps: list[GrpcPump]) -> None:
    upstream = await StandaloneUpstream.connect(etcd_clean, cluster_id=CLUSTER)
    scope = await run_example(pumpclient, etcd_clean, oracle=upstream.oracle, key=b"k", value=b"v")
    assert scope["delivered"] is True
    await upstream.close()


async def test_the_example_of_the_publisher(etcd_clean: str, pumps: list[GrpcPump]) -> None:
    await (await StandaloneUpstream.connect(etcd_clean, cluster_id=CLUSTER)).close()
    scope = await run_example(publisher, etcd_clean)
    txn = scope["txn"]
    written = sorted(entry for pump in pumps for entry in pump.transactions())
    assert [tp for tp, _, _ in written] == [P] * 3 + [C] * 3  # two schema changes and the rows
    assert {(P, txn.start_ts, 0), (C, txn.start_ts, txn.commit_ts)} <= {*written}


async def test_the_example_for_the_hosts_own_tests() -> None:
    scope = await run_example(testing, "")
    await scope["test_my_program"]()


async def test_the_example_of_the_synchronous_face(etcd_clean: str, pumps: list[GrpcPump]) -> None:
    """In a thread of its own, as in a program without an event loop."""
    await (await StandaloneUpstream.connect(etcd_clean, cluster_id=CLUSTER)).close()
    results: list[bool] = []

    def program() -> None:
        scope: dict[str, Any] = {
            "pumpclient": pumpclient,
            "start_ts": 1,
            "key": b"k",
            "value": b"v",
            "draw_timestamp": lambda: 2,
        }
        exec(example(sync).replace("127.0.0.1:2379", etcd_clean), scope)
        results.append(scope["delivered"].result())

    thread = threading.Thread(target=program)
    thread.start()
    await until(lambda: not thread.is_alive())
    thread.join()
    assert results == [True]
