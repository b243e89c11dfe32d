from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from binlog_playground.cluster.etcd_server import EtcdServer
from tests.waiting import PATIENCE_S, until
from tidb_binlog.clock import ManualClock, SystemClock
from tidb_binlog.cluster import rival
from tidb_binlog.cluster.heartbeat import BEATS_PER_ENTRY, Heartbeat
from tidb_binlog.cluster.node import OFFLINE, ONLINE, PAUSED, NodeStatus
from tidb_binlog.cluster.registry import DRAINERS, PUMPS, alive_key, status_key
from tidb_binlog.errors import ConfigError, Conflict, Unavailable
from tidb_binlog.etcd import client as etcd_client
from tidb_binlog.etcd.client import EtcdClient
from tidb_binlog.etcd.registry import EtcdRegistry, connect_registry

pytestmark = pytest.mark.integration

WATCHES = "watching whether it beats"


class Node:
    """A node whose position moves."""

    def __init__(self, node_id: str = "p") -> None:
        self.node_id = node_id
        self.max_commit_ts = 1

    def status(self) -> NodeStatus:
        self.max_commit_ts += 1
        return NodeStatus(self.node_id, "h:1", OFFLINE, self.max_commit_ts, self.max_commit_ts * 10)


@pytest.fixture
async def registry(etcd_clean: str) -> AsyncIterator[EtcdRegistry]:
    registry = await connect_registry(etcd_clean)
    yield registry
    await registry.close()


def beat_of(registry: EtcdRegistry, node: Node, interval_s: float = 0.05) -> Heartbeat:
    return Heartbeat(registry, PUMPS, node.status, interval_s, SystemClock())


async def entry_of(registry: EtcdRegistry, node_id: str = "p") -> NodeStatus:
    return (await registry.view()).pumps[node_id].status


async def test_register_beat_leave(registry: EtcdRegistry) -> None:
    node = Node()
    heartbeat = beat_of(registry, node)
    await heartbeat.register(ONLINE)
    first = await entry_of(registry)
    assert first.state == ONLINE
    assert await heartbeat.beat()
    second = await entry_of(registry)
    assert second.max_commit_ts > first.max_commit_ts
    assert second.update_ts > first.update_ts
    await heartbeat.change_state(PAUSED)
    assert (await entry_of(registry)).state == PAUSED
    await heartbeat.leave(OFFLINE)
    view = await registry.view()
    assert (view.pumps["p"].status.state, view.pumps["p"].alive) == (OFFLINE, False)


@pytest.mark.parametrize("moves", [False, True], ids=["position stands", "position moves"])
async def test_an_entry_without_news_is_written_by_every_fifth_beat(
    registry: EtcdRegistry, moves: bool
) -> None:
    """All beats extend the lease; a state that changed is written at once."""
    node = Node()
    fixed = NodeStatus("p", "h:1", OFFLINE, 7)
    heartbeat = Heartbeat(
        registry,
        PUMPS,
        node.status if moves else lambda: replace(fixed, update_ts=node.status().update_ts),
        0.05,
        SystemClock(),
        position_is_news=not moves,
    )
    await heartbeat.register(ONLINE)
    told = [(await registry.view()).pumps["p"].mod_revision]
    for _ in range(2 * BEATS_PER_ENTRY):
        before = heartbeat.unbroken
        assert await heartbeat.beat()
        assert heartbeat.unbroken == before is not None
        told.append((await registry.view()).pumps["p"].mod_revision)
    assert [number for number in range(1, len(told)) if told[number] != told[number - 1]] == [5, 10]
    assert (await entry_of(registry)).update_ts > 20
    await heartbeat.change_state(PAUSED)
    assert (await entry_of(registry)).state == PAUSED
    await heartbeat.leave(OFFLINE)


async def test_a_checkpoint_that_moved_is_written_by_the_next_beat(registry: EtcdRegistry) -> None:
    heartbeat = Heartbeat(registry, DRAINERS, Node().status, 0.05, SystemClock())
    await heartbeat.register(ONLINE)
    for _ in range(3):
        before = (await registry.view()).drainers["p"].status.max_commit_ts
        assert await heartbeat.beat()
        assert (await registry.view()).drainers["p"].status.max_commit_ts > before
    await heartbeat.leave(OFFLINE)


async def test_after_an_outage_the_entry_is_written_at_once(
    registry: EtcdRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody knows what became of it meanwhile."""
    status = NodeStatus("p", "h:1", OFFLINE, 7)
    heartbeat = Heartbeat(registry, PUMPS, lambda: status, 0.05, SystemClock())
    await heartbeat.register(ONLINE)
    entry = (await registry.view()).pumps["p"]

    async def away(*_: object) -> int:
        raise Unavailable("away")

    with monkeypatch.context() as patched:
        patched.setattr(heartbeat._announcement, "keep_alive", away)
        assert not await heartbeat.beat()
    assert await heartbeat.beat()
    assert (await registry.view()).pumps["p"].mod_revision > entry.mod_revision
    await heartbeat.leave(OFFLINE)


async def test_start_wins_over_leftovers_and_knows_them_before(registry: EtcdRegistry) -> None:
    left, node = NodeStatus("p", "old:1", PAUSED, 99, 99), Node()
    await registry.put(PUMPS, left, None)

    def go_on(found: NodeStatus) -> None:
        assert found == left
        node.max_commit_ts = found.max_commit_ts

    heartbeat = Heartbeat(registry, PUMPS, node.status, 0.05, SystemClock(), on_left=go_on)
    await heartbeat.register(ONLINE)
    first = await entry_of(registry)
    assert (first.host, first.max_commit_ts) == ("h:1", 100), "no entry in between was lower"
    await heartbeat.leave(PAUSED)


async def test_run_beats_on_its_own(registry: EtcdRegistry) -> None:
    heartbeat = beat_of(registry, Node(), interval_s=0.02)
    await heartbeat.register(ONLINE)
    running = asyncio.create_task(heartbeat.run())
    async with asyncio.timeout(PATIENCE_S):
        while (await entry_of(registry)).max_commit_ts < 6:
            await asyncio.sleep(0.01)
    running.cancel()
    await asyncio.wait({running})
    await heartbeat.leave(PAUSED)


async def test_no_beat_follows_leave(registry: EtcdRegistry) -> None:
    heartbeat = beat_of(registry, Node(), interval_s=0.001)
    await heartbeat.register(ONLINE)
    running = asyncio.create_task(heartbeat.run())
    await asyncio.sleep(0.02)
    await heartbeat.leave(OFFLINE)
    left = await registry.view()
    await asyncio.sleep(0.02)
    assert (await registry.view()).pumps == left.pumps
    assert (left.pumps["p"].status.state, left.pumps["p"].alive) == (OFFLINE, False)
    running.cancel()
    await asyncio.wait({running})


async def test_a_running_node_writes_over_an_operators_edit(registry: EtcdRegistry, etcd_clean: str) -> None:
    heartbeat = beat_of(registry, Node())
    await heartbeat.register(ONLINE)
    operator = await connect_registry(etcd_clean)
    entry = (await operator.view()).pumps["p"]
    await operator.put(PUMPS, replace(entry.status, state=OFFLINE), entry.mod_revision)
    assert await heartbeat.beat()
    assert (await entry_of(registry)).state == ONLINE
    client = await EtcdClient.connect(etcd_clean)
    await client.txn([], [etcd_client.delete(status_key(PUMPS, "p"))])
    assert await heartbeat.beat()
    assert (await entry_of(registry)).state == ONLINE
    await client.close()
    await operator.close()


async def test_an_entry_that_cannot_be_read_is_written_over(registry: EtcdRegistry, etcd_clean: str) -> None:
    """At the start as while it runs: such an entry is not there for anybody."""
    client = await EtcdClient.connect(etcd_clean)
    heartbeat = beat_of(registry, Node())
    try:
        await client.put(status_key(PUMPS, "p"), b"{")
        await heartbeat.register(ONLINE)
        assert (await entry_of(registry)).state == ONLINE
        await client.put(status_key(PUMPS, "p"), b"what")
        assert await heartbeat.beat()
        assert (await entry_of(registry)).state == ONLINE
    finally:
        await heartbeat.leave(OFFLINE)
        await client.close()


async def test_a_beat_whose_answer_was_lost_is_not_taken_for_somebody_elses(
    registry: EtcdRegistry, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Nobody is to be searched for: the entry is our own last one."""
    heartbeat = beat_of(registry, Node())
    await heartbeat.register(ONLINE)
    with monkeypatch.context() as patch:
        stored = registry.put

        async def cut_off(*arguments: Any) -> int:
            await stored(*arguments)
            raise Unavailable("the answer is lost")

        patch.setattr(registry, "put", cut_off)
        assert not await heartbeat.beat()
    caplog.clear()
    await heartbeat.leave(PAUSED)
    assert (await entry_of(registry)).state == PAUSED
    assert not caplog.records


async def test_a_second_living_process_is_refused_and_changes_nothing(
    registry: EtcdRegistry, etcd_clean: str
) -> None:
    heartbeat = beat_of(registry, Node())
    await heartbeat.register(ONLINE)
    before = await entry_of(registry)
    other = await connect_registry(etcd_clean)
    with pytest.raises(Conflict, match="pump p is already running"):
        await beat_of(other, Node()).register(ONLINE)
    assert await entry_of(registry) == before
    await other.close()


async def test_an_id_that_was_lost_to_another_process_is_not_written_any_more(
    registry: EtcdRegistry, etcd_clean: str
) -> None:
    node = Node()
    heartbeat = beat_of(registry, node)
    await heartbeat.register(ONLINE)
    lost = registry.announcements[(PUMPS, "p")]
    client = await EtcdClient.connect(etcd_clean)
    await client.revoke(lost.lease)  # as after a pause longer than the lease
    other = await connect_registry(etcd_clean)
    successor = beat_of(other, Node())
    await successor.register(ONLINE)
    before = await entry_of(registry)
    with pytest.raises(Conflict, match="pump p is already running"):
        await heartbeat.run()
    with pytest.raises(Conflict):
        await heartbeat.beat()
    await heartbeat.change_state(PAUSED)
    await heartbeat.leave(OFFLINE)
    assert await entry_of(registry) == before
    assert await successor.beat()
    await client.close()
    await other.close()


async def test_who_slept_through_its_lease_leaves_its_successors_entry_alone(
    registry: EtcdRegistry, etcd_clean: str
) -> None:
    """It leaves for another reason, before any beat could tell."""
    heartbeat = beat_of(registry, Node())
    await heartbeat.register(ONLINE)
    client = await EtcdClient.connect(etcd_clean)
    await client.revoke(registry.announcements[(PUMPS, "p")].lease)
    other = await connect_registry(etcd_clean)
    successor = beat_of(other, Node())
    await successor.register(ONLINE)
    before = await registry.view()
    await heartbeat.leave(PAUSED)
    assert (await registry.view()).pumps == before.pumps
    assert await successor.beat()
    await client.close()
    await other.close()


async def test_unbroken_tells_every_time_in_which_the_lease_may_have_run_out(registry: EtcdRegistry) -> None:
    clock = ManualClock()
    heartbeat = Heartbeat(registry, PUMPS, Node().status, 1.0, clock, lease_s=10)
    assert heartbeat.unbroken is None
    await heartbeat.register(ONLINE)
    first = heartbeat.unbroken
    assert first is not None
    for _ in range(3):
        clock.advance(9.0)
        assert await heartbeat.beat()
        assert heartbeat.unbroken == first
    clock.advance(10.0)
    assert heartbeat.unbroken is None
    assert await heartbeat.beat()
    assert heartbeat.unbroken not in (None, first), "in between, others may have forgotten us"
    await heartbeat.leave(PAUSED)


async def test_is_held_as_long_as_a_process_may_live(registry: EtcdRegistry, etcd_clean: str) -> None:
    other = await connect_registry(etcd_clean)
    assert not await other.is_held(PUMPS, "p")
    heartbeat = beat_of(registry, Node())
    await heartbeat.register(ONLINE)
    assert await other.is_held(PUMPS, "p")
    await heartbeat.leave(PAUSED)
    assert not await other.is_held(PUMPS, "p")
    code = (
        "import asyncio, sys\n"
        "from tidb_binlog.etcd.registry import connect_registry\n"
        "async def main():\n"
        "    registry = await connect_registry(sys.argv[1])\n"
        "    await registry.announce('pumps', 'q', 60)\n"
        "    print('held', flush=True)\n"
        "    await asyncio.sleep(60)\n"
        "asyncio.run(main())\n"
    )
    child = subprocess.Popen([sys.executable, "-c", code, etcd_clean], stdout=subprocess.PIPE)
    try:
        assert child.stdout is not None
        assert await asyncio.to_thread(child.stdout.readline) == b"held\n"
        assert await other.is_held(PUMPS, "q")
    finally:
        child.kill()
        child.communicate()
    assert not await other.is_held(PUMPS, "q"), "its lease lasts, but the process is gone"
    await other.close()


async def test_a_lease_that_ran_out_is_announced_anew(registry: EtcdRegistry, etcd_clean: str) -> None:
    heartbeat = beat_of(registry, Node())
    await heartbeat.register(ONLINE)
    client = await EtcdClient.connect(etcd_clean)
    await client.revoke(registry.announcements[(PUMPS, "p")].lease)
    assert not (await registry.view()).pumps["p"].alive
    assert await heartbeat.beat()
    assert (await registry.view()).pumps["p"].alive
    await client.close()


async def test_a_node_without_a_lease_that_beats_keeps_its_name(
    registry: EtcdRegistry, etcd_clean: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Go nodes: only one whose port answers and that beats is alive; the others' places are free at once."""
    with socket.create_server(("127.0.0.1", 0)) as port:
        alive = NodeStatus("p", f"127.0.0.1:{port.getsockname()[1]}", ONLINE, 1, 1)
        go = await connect_registry(etcd_clean)
        revision = await go.put(PUMPS, alive, None)
        entry = (await registry.view()).pumps["p"]
        assert rival.may_live(entry, NodeStatus("p", "h:1", OFFLINE))
        assert not rival.may_live(entry, NodeStatus("p", alive.host, OFFLINE)), "we listen there"
        for state in (PAUSED, OFFLINE):
            assert not rival.may_live(replace(entry, status=alive.with_state(state)), Node().status())
        await rival.check_gone(registry, PUMPS, entry, watch_s=0.3)  # answers, does not beat
        caplog.clear()
        watching = asyncio.create_task(beat_of(registry, Node()).register(ONLINE))
        await until(lambda: WATCHES in caplog.text)
        await go.put(PUMPS, replace(alive, update_ts=2), revision)
        with pytest.raises(Conflict, match="beats under this name"):
            await watching
    view = await registry.view()
    assert view.pumps["p"].status.update_ts == 2
    caplog.clear()
    await beat_of(registry, Node()).register(ONLINE)
    assert WATCHES not in caplog.text, "nobody answers any more: no time is lost"
    await go.close()


async def test_an_impossible_id_announces_nothing(registry: EtcdRegistry, etcd_clean: str) -> None:
    with pytest.raises(ConfigError):
        await beat_of(registry, Node("a/b")).register(ONLINE)
    client = await EtcdClient.connect(etcd_clean)
    assert await client.get(alive_key(PUMPS, "a/b")) is None
    await client.close()


async def test_kinds_do_not_collide(registry: EtcdRegistry) -> None:
    await beat_of(registry, Node()).register(ONLINE)
    drainer = Heartbeat(registry, DRAINERS, Node().status, 1.0, SystemClock())
    await drainer.register(ONLINE)
    view = await registry.view()
    assert (set(view.pumps), set(view.drainers)) == ({"p"}, {"p"})


async def test_an_outage_is_survived_and_said_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "tidb_binlog")
    server = EtcdServer.start(tmp_path)
    registry = await connect_registry(server.endpoint, timeout_s=2.0)
    heartbeat = beat_of(registry, Node(), interval_s=0.02)
    try:
        await heartbeat.register(ONLINE)
        running = asyncio.create_task(heartbeat.run())
        server.kill()
        for _ in range(3):
            assert not await heartbeat.beat()
        with pytest.raises(Unavailable):
            await heartbeat.change_state(PAUSED)
        await asyncio.sleep(0.3)
        assert not running.done()
        server.restart()
        reader = await connect_registry(server.endpoint)
        async with asyncio.timeout(PATIENCE_S):
            # What could not be written is written now; what was may have gone with the server.
            while (entry := (await reader.view()).pumps.get("p")) is None or entry.status.state != PAUSED:
                await asyncio.sleep(0.02)
            while not any(record.message == "heartbeat works again" for record in caplog.records):
                await asyncio.sleep(0.02)
        running.cancel()
        await asyncio.wait({running})
        failed = [record for record in caplog.records if "send heartbeat failed" in record.message]
        assert len(failed) == 1
        await reader.close()
    finally:
        await registry.close()
        server.stop()
