"""Synchronous face: the same behaviour from plain threads."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from concurrent.futures import CancelledError, ThreadPoolExecutor

import pytest

from pumpclient import ClientClosed, Failure, PumpClient, SyncPublisher, SyncPumpClient
from pumpclient.testing import MemoryCluster
from tests.interrupts import interrupted
from tests.waiting import PATIENCE_S
from tidb_binlog import binlog
from tidb_binlog.errors import Unavailable


def opened(cluster: MemoryCluster) -> SyncPumpClient:
    async def open_client() -> PumpClient:
        client = cluster.client()
        await client.start()
        return client

    return SyncPumpClient(open_client)


def test_writes_from_a_program_without_an_event_loop() -> None:
    cluster = MemoryCluster(["a", "b"])
    with opened(cluster) as client:
        client.write_prewrite(1, b"k", b"v")
        assert client.write_commit(1, 2, b"k")
        client.write_ddl_prewrite(3, b"k", "create database d", 9)
        assert client.write_rollback(3)
        assert client.write_binlog(binlog.prewrite(5, b"k", b"v"))
        assert client.write_commit_soon(5, 6).result(PATIENCE_S)
        assert not client.write_rollback_soon(5).result(PATIENCE_S)
        client.set_strategy("hash")
        assert [pump.pump_id for pump in client.pumps()] == ["a", "b"]
        assert client.counters.prewrites_stored == 3
    assert cluster.pumps["a"].payloads[1] == binlog.commit(1, 2, b"k")
    assert not [thread for thread in threading.enumerate() if thread.name == "pumpclient"]


def test_many_threads_share_one_client() -> None:
    cluster = MemoryCluster(["a", "b"])
    with opened(cluster) as client, ThreadPoolExecutor(16) as pool:

        def one(start_ts: int) -> bool:
            client.write_prewrite(start_ts, b"k", b"v")
            return client.write_commit(start_ts, start_ts + 1)

        assert all(pool.map(one, range(1, 400, 2)))
    for pump in cluster.pumps.values():
        kinds = [tp for tp, _, _ in pump.transactions()]
        assert kinds.count(binlog.PREWRITE) == kinds.count(binlog.COMMIT) == 100


def test_close_ends_the_thread_and_waiting_callers() -> None:
    cluster = MemoryCluster(["a"])
    client = opened(cluster)
    client.write_prewrite(1, b"k", b"v")
    cluster.pumps["a"].broken = Failure.FAILED
    waiting = client.write_commit_soon(1, 2)
    client.close(drain_s=0.0)
    client.close()
    try:
        assert waiting.result(PATIENCE_S) is False
    except CancelledError:
        pass
    with pytest.raises(ClientClosed):
        client.write_prewrite(3, b"k", b"v")


def test_close_waits_for_ends_sent_in_the_background() -> None:
    cluster = MemoryCluster(["a"])
    write = cluster.transport.write

    async def slow_write(address: str, cluster_id: int, payload: bytes, timeout_s: float) -> None:
        if binlog.parse(payload).tp == binlog.COMMIT:
            for _ in range(300):
                await asyncio.sleep(0)
        await write(address, cluster_id, payload, timeout_s)

    cluster.transport.write = slow_write  # type: ignore[method-assign]
    with opened(cluster) as client:
        for start_ts in range(1, 100, 2):
            client.write_prewrite(start_ts, b"k", b"v")
        sent = [client.write_commit_soon(start_ts, start_ts + 1) for start_ts in range(1, 100, 2)]
    assert all(future.result(0.0) for future in sent)


def test_a_client_that_cannot_be_opened_leaves_no_thread() -> None:
    async def refuse() -> PumpClient:
        raise Unavailable("etcd is away")

    with pytest.raises(Unavailable, match="etcd is away"):
        SyncPumpClient(refuse)
    assert not [thread for thread in threading.enumerate() if thread.name == "pumpclient"]


def test_an_interrupted_call_is_cancelled() -> None:
    """Ctrl-C: the wait raises, and the write does not go on behind the host's back."""
    cluster = MemoryCluster(["a"])
    cluster.pumps["a"].hanging = True

    def is_waited_for() -> None:
        while not cluster.time.sleeping():
            time.sleep(0)

    with opened(cluster) as client:
        with interrupted(is_waited_for):
            client.write_prewrite(1, b"k", b"v")
        cluster.pumps["a"].hanging = False
        client.write_prewrite(3, b"k", b"v")
        assert sum(pump.in_flight for pump in client.pumps()) == 0
    assert [entry[1] for entry in cluster.pumps["a"].transactions()] == [3]


def test_a_client_opened_before_a_fork_says_so_instead_of_hanging(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = MemoryCluster(["a"])
    with opened(cluster) as client:
        client.write_prewrite(1, b"k", b"v")
        cluster.pumps["a"].hanging = True
        client.write_commit_soon(1, 2)
        with monkeypatch.context() as child:
            child.setattr(os, "getpid", lambda: 1)
            for call in (lambda: client.write_prewrite(3, b"k", b"v"), client.pumps):
                with pytest.raises(ClientClosed, match="before this process was forked"):
                    call()
            client.close(drain_s=3600.0)  # at once: what is under way is the parent's
        cluster.pumps["a"].hanging = False
        client.write_prewrite(5, b"k", b"v")
        client.close(drain_s=0.0)


def test_a_publisher_closed_behind_a_commit_of_the_database_is_no_error() -> None:
    """The database has committed: whoever opens the next publisher reports it."""

    class Answers:
        def name(self) -> str:
            return "app"

        def committed(self, start_ts: int) -> bool:
            return True

        def purge(self, below_ts: int) -> None:
            pass

    cluster = MemoryCluster(["a"])
    publisher = SyncPublisher(lambda: cluster.publisher(Answers()))
    with publisher.transaction() as txn:
        txn.insert(5, b"row")
        prepared = txn.prepare()
        publisher.close(drain_s=0.0)
    assert txn.commit() == prepared
    with SyncPublisher(lambda: cluster.publisher(Answers())) as later:
        cluster.time.advance(10.0)
        assert later.settle().committed == (txn.start_ts,)
