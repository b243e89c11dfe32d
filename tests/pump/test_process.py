"""The pump as a process: real etcd, real gRPC, real signals and kills."""

from __future__ import annotations

import asyncio
import json
import random
import re
import shutil
import socket
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from binlog_playground.cluster.etcd_server import EtcdServer
from pump.index.index import Index, key_of
from tests.common.page.support.reading import read
from tests.fakes import grpcio_server
from tests.pump.support import corpus
from tests.pump.support.payloads import alter
from tests.pump.support.process import PumpClient, PumpProcess, Start
from tests.waiting import PATIENCE_S, until
from tidb_binlog import binlog, rpc
from tidb_binlog.cluster import node
from tidb_binlog.cluster.node import NodeStatus
from tidb_binlog.cluster.registry import DRAINERS, PUMPS
from tidb_binlog.errors import BinlogError, Rejected, Unavailable
from tidb_binlog.etcd.registry import EtcdRegistry, connect_registry
from tidb_binlog.upstream.standalone import StandaloneUpstream

pytestmark = pytest.mark.integration


async def entry_of(endpoint: str, node_id: str) -> NodeStatus:
    registry = await connect_registry(endpoint)
    try:
        return (await registry.view()).of(PUMPS)[node_id].status
    finally:
        await registry.close()


async def test_writes_come_back_over_both_protocols_and_status_tells(
    pump: Start, upstream: StandaloneUpstream, etcd_clean: str
) -> None:
    process = pump("-node-id=p1")
    await process.start_and_wait()
    client = PumpClient(process.address, upstream.cluster_id)
    start_ts = await upstream.transactions.begin()
    await client.write(binlog.prewrite(start_ts, b"k", b"v"))
    commit_ts = await upstream.transactions.commit(start_ts)
    await client.write(binlog.commit(start_ts, commit_ts, b"k"))
    expected = binlog.join(binlog.prewrite(start_ts, b"k", b"v"), binlog.commit(start_ts, commit_ts, b"k"))
    async with asyncio.timeout(PATIENCE_S):
        async for _, payloads, watermark in client.pull_batches(0):
            assert payloads == [expected]
            assert watermark >= commit_ts
            break
        async for entity in client.pull_binlogs(0):
            assert entity == (start_ts, commit_ts, expected)
            break
        awaited = await upstream.oracle.timestamp()
        async for _, payloads, watermark in client.pull_batches(commit_ts, wait=awaited):
            assert payloads == []
            assert watermark >= awaited
            break

    for path in process.directory.rglob("*"):
        assert path.stat().st_mode & 0o077 == 0, f"{path} is for the node's user alone"

    document = await process.status()
    assert document["Checkpoint"] == {}
    assert document["ErrMsg"] == ""
    assert document["CommitTS"] > commit_ts
    assert document["status"]["p1"]["state"] == "online"
    assert document["status"]["p1"]["host"] == process.address
    own = document["pump"]
    assert own["state"] == "online"
    assert own["writer"] == "ok"
    assert own["watermark"] >= commit_ts
    assert own["oldest_open"] is None

    stuck = await upstream.transactions.begin(ttl_s=PATIENCE_S)
    await client.write(binlog.prewrite(stuck, b"k", b"v"))
    async with asyncio.timeout(PATIENCE_S):
        while (own := (await process.status())["pump"])["oldest_open"] is None:
            await asyncio.sleep(0.02)
    assert own["open_prewrites"] == 1
    assert own["oldest_open"]["start_ts"] == stuck
    assert own["oldest_open"]["age_s"] >= 0
    metrics = process.http("/metrics")[1]
    assert "binlog_pump_sorter_open_prewrites_count 1.0" in metrics
    (line,) = (line for line in metrics.splitlines() if line.startswith("binlog_pump_sorter_oldest_open_st"))
    assert float(line.split()[1]) == stuck >> 18
    assert 'binlog_pump_rpc_duration_seconds_count{label="succ",method="WriteBinlog"} 3.0' in metrics

    assert process.http("/nothing")[0] == 404
    assert process.http("/status", "PUT") == (405, "")
    page = read(process.http("/")[1])
    assert page.named("h1")[0].text == "pump p1"
    assert f"{stuck}" in page.text
    assert "pump is up" in page.part("events").text
    while "Disk free" not in page.text:  # it asks the file system on a thread
        page = read(process.http("/")[1])
    assert process.http("/", "PUT") == (405, "")
    code, text = process.http("/cluster")
    (card,) = read(text).part("pumps").named("article")
    assert (code, "1 open prewrites" in card.text) == (200, True)
    assert process.http("/drainers") == (200, "null\n")
    assert process.http("/debug/binlog/x") == (400, "invalid parameter ts: x\n")
    assert process.http("/debug/binlog/1")[0] == 404
    assert f"commit_ts: {commit_ts}" in process.http(f"/debug/binlog/{commit_ts}")[1]
    code, text = process.http("/state/p2/pause", "PUT")
    assert code == 404
    assert json.loads(text) == {
        "message": "invalide nodeID p2, this pump's nodeID is p1",
        "code": 3,
        "data": None,
    }
    code, text = process.http("/state/p1/stop", "PUT")
    assert (code, json.loads(text)["message"]) == (400, "invalide action stop")
    await client.close()
    assert process.stop() == 0
    assert (await entry_of(etcd_clean, "p1")).state == node.PAUSED
    assert (await entry_of(etcd_clean, "p1")).max_commit_ts >= commit_ts


async def test_stop_during_writes_and_pulls_is_graceful(pump: Start, upstream: StandaloneUpstream) -> None:
    process = pump("-node-id=p1")
    await process.start_and_wait()
    client = PumpClient(process.address, upstream.cluster_id)
    acknowledged: set[int] = set()

    async def session() -> None:
        with suppress(BinlogError):
            while True:
                start_ts = await upstream.transactions.begin()
                await client.write(binlog.prewrite(start_ts, b"k", b"v"))
                commit_ts = await upstream.transactions.commit(start_ts)
                await client.write(binlog.commit(start_ts, commit_ts, b"k"))
                acknowledged.add(commit_ts)

    async def puller() -> None:
        async for _ in client.pull_batches(0):
            pass

    sessions = [asyncio.create_task(session()) for _ in range(8)]
    pulling = asyncio.create_task(puller())
    await until(lambda: len(acknowledged) > 10)
    assert await asyncio.to_thread(process.stop) == 0
    await asyncio.gather(*sessions)
    with suppress(BinlogError):
        await pulling
    await client.close()
    # Everything acknowledged is there at the next start.
    await process.start_and_wait()
    client = PumpClient(process.address, upstream.cluster_id)
    async with asyncio.timeout(PATIENCE_S):
        found: set[int] = set()
        awaited = await upstream.oracle.timestamp()
        async for headers, _, watermark in client.pull_batches(0, wait=awaited):
            found |= {header.commit_ts for header in headers}
            if watermark >= awaited:
                break
    assert acknowledged <= found
    await client.close()


async def test_killed_again_and_again_under_load_nothing_acknowledged_is_lost(
    pump: Start, upstream: StandaloneUpstream
) -> None:
    process = pump("-node-id=p1", "-heartbeat-interval=1")
    await process.start_and_wait()
    rng = random.Random(11)
    acknowledged: dict[int, int] = {}
    committed: dict[int, int] = {}
    seen: list[int] = []
    told = 0
    done = False

    async def session() -> None:
        client = PumpClient(process.address, upstream.cluster_id)
        while not done:
            try:
                start_ts = await upstream.transactions.begin(ttl_s=2)
                await client.write(binlog.prewrite(start_ts, b"k", start_ts.to_bytes(8, "big")))
                if rng.random() < 0.05:
                    continue  # never finished
                commit_ts = await upstream.transactions.commit(start_ts)
                committed[commit_ts] = start_ts
                await client.write(binlog.commit(start_ts, commit_ts, b"k"))
                acknowledged[commit_ts] = start_ts
            except BinlogError:
                await asyncio.sleep(0.02)
        await client.close()

    async def puller() -> None:
        nonlocal told
        client = PumpClient(process.address, upstream.cluster_id)
        while not done or told < last:
            with suppress(BinlogError):
                awaited = await upstream.oracle.timestamp()
                async for headers, payloads, watermark in client.pull_batches(told, wait=awaited):
                    for header, payload in zip(headers, payloads, strict=True):
                        assert header.commit_ts > told, "a commit behind a watermark that covered it"
                        assert header.commit_ts <= watermark
                        value = binlog.parse(payload).prewrite_value
                        assert int.from_bytes(value, "big") == header.start_ts
                        seen.append(header.commit_ts)
                        told = header.commit_ts
                    assert watermark >= told
                    told = watermark
                    if done:
                        break
            await asyncio.sleep(0.02)
        await client.close()

    last = 1 << 62
    sessions = [asyncio.create_task(session()) for _ in range(16)]
    pulling = asyncio.create_task(puller())
    for life in range(1, 5):
        await until(lambda: len(acknowledged) > 25 * life, beside=sessions)  # noqa: B023
        await asyncio.sleep(rng.uniform(0, 0.4))
        process.kill()
        await process.start_and_wait()
    done = True
    async with asyncio.timeout(PATIENCE_S):
        await asyncio.gather(*sessions)
        last = await upstream.oracle.timestamp()
        await pulling
    assert seen == sorted(set(seen))
    assert set(acknowledged) <= set(seen)
    assert set(seen) <= set(committed), "nothing that was not committed"
    assert process.stop() == 0


async def test_recorded_directory_is_taken_over_by_the_process(
    pump: Start, upstream: StandaloneUpstream, tmp_path: Path
) -> None:
    (recording,) = (found for found in corpus.recordings(killed=False) if found.scenario == "basic")
    recording.unpack(tmp_path / "unpacked").rename(tmp_path / "pump")
    process = pump("-node-id=old")
    await process.start_and_wait()
    client = PumpClient(process.address, upstream.cluster_id)
    expected = [entry.payload for entry in corpus.entries(recording.pulled)]
    found: list[bytes] = []
    async with asyncio.timeout(PATIENCE_S):
        async for _, payloads, _ in client.pull_batches(0):
            found += payloads
            if len(found) >= len(expected):
                break
    assert found == expected
    await client.close()


async def test_pause_and_close_over_http(pump: Start, upstream: StandaloneUpstream, etcd_clean: str) -> None:
    for action, query, state in (("pause", "", node.PAUSED), ("close", "?force=true", node.OFFLINE)):
        process = pump("-node-id=p1")
        await process.start_and_wait()
        reply = json.loads(process.http(f"/state/p1/{action}{query}", "PUT")[1])
        assert reply == {"message": f"apply action {action} success!", "code": 200, "data": None}
        assert process.wait() == 0
        assert (await entry_of(etcd_clean, "p1")).state == state


def drainer_entry(node_id: str, host: str) -> NodeStatus:
    return NodeStatus(node_id, host, node.ONLINE)


async def test_new_pump_tells_living_drainers_first(
    pump: Start, upstream: StandaloneUpstream, etcd_clean: str, free_port: Callable[[], int]
) -> None:
    called: list[bytes] = []

    async def notify(data: bytes) -> bytes:
        called.append(data)
        return b""

    server = await grpcio_server.serve(
        [rpc.Service("binlog.Cistern", unary={"Notify": notify})], "127.0.0.1", 0
    )
    registry = await connect_registry(etcd_clean)
    await registry.put(DRAINERS, drainer_entry("d1", f"127.0.0.1:{server.port}"), None)
    await registry.put(DRAINERS, NodeStatus("gone", "127.0.0.1:1", node.OFFLINE), None)
    # Dead: it had a lease, and the lease is gone.
    await registry.put(DRAINERS, drainer_entry("dead", "127.0.0.1:1"), None)
    announcement = await registry.announce(DRAINERS, "dead", 10)
    await registry.put(DRAINERS, drainer_entry("dead", "127.0.0.1:1"), await revision(registry, "dead"))
    await announcement.withdraw()
    process = pump("-node-id=p1")
    await process.start_and_wait()
    assert called == [b""]
    assert process.stop() == 0
    await registry.close()
    await server.stop(0)


async def revision(registry: EtcdRegistry, node_id: str) -> int:
    return (await registry.view()).drainers[node_id].mod_revision


async def test_drainers_that_do_not_confirm_stop_a_new_pump_but_not_a_known_one(
    pump: Start, upstream: StandaloneUpstream, etcd_clean: str
) -> None:
    """One refuses, which ends the new one; one is silent. The known pump waits longer than a
    lease lasts, and beats meanwhile."""
    gate = asyncio.Event()

    async def refuse(_: bytes) -> bytes:
        raise Rejected("not now")

    async def be_silent(_: bytes) -> bytes:
        await gate.wait()
        return b""

    process = pump("-node-id=p1", "-heartbeat-interval=400ms")
    await process.start_and_wait()
    assert process.stop() == 0
    registry = await connect_registry(etcd_clean)
    servers = []
    for name, notify in (("d1", refuse), ("d2", be_silent)):
        service = rpc.Service("binlog.Cistern", unary={"Notify": notify})
        servers.append(await grpcio_server.serve([service], "127.0.0.1", 0))
        await registry.put(DRAINERS, drainer_entry(name, f"127.0.0.1:{servers[-1].port}"), None)
    new = pump("-node-id=p2", directory="new")
    new.start()
    process.start()
    assert await asyncio.to_thread(new.wait) == 2
    text = new.log.read_text()
    assert "fail to notify all living drainer: notify drainer d1" in text
    assert "update-drainer -node-id d1 -state offline" in text
    assert (await registry.view()).pumps["p2"].status.state == node.OFFLINE
    await process.until_up()
    seen = {(await registry.view()).pumps["p1"].mod_revision}
    async with asyncio.timeout(PATIENCE_S):
        while len(seen) < 3:  # its next beats
            await asyncio.sleep(0.02)
            seen.add((await registry.view()).pumps["p1"].mod_revision)
    log = process.log.read_text()
    assert re.findall(r"drainer not notified\W+node_id=(d\d)", log) == ["d1", "d2"]
    assert "lease had run out" not in log
    gate.set()
    await registry.close()
    for server in servers:
        await server.stop(0)


# -- refusals: one line, an exit code, nothing harmed ----------------------------------------------


def last_line(process: PumpProcess) -> str:
    lines = [line for line in process.log.read_text().splitlines() if line.startswith("pump: error: ")]
    assert len(lines) == 1, process.log.read_text()
    return lines[0]


def test_unknown_key(pump: Start, tmp_path: Path) -> None:
    (tmp_path / "pump.toml").write_text("gcc = 3\n")
    process = pump(f"-config={tmp_path / 'pump.toml'}")
    process.start()
    assert process.wait() == 1
    assert "contained unknown configuration options: gcc (line 1) (did you mean gc?)" in last_line(process)


def test_port_taken(pump: Start) -> None:
    process = pump()
    host, port = process.address.split(":")
    with socket.create_server((host, int(port))):
        process.start()
        code = process.wait()
    assert code != 0
    assert f"cannot listen on {process.address}: the port is taken" in last_line(process)
    assert not process.directory.exists()


def test_etcd_not_there(pump: Start, free_port: Callable[[], int]) -> None:
    endpoint = f"http://127.0.0.1:{free_port()}"
    process = pump("-start-wait=0", endpoint=endpoint)
    process.start()
    assert process.wait() == 3
    assert endpoint.removeprefix("http://") in last_line(process)


async def test_locked_directory_and_duplicate_node_id(pump: Start, upstream: StandaloneUpstream) -> None:
    first = pump("-node-id=p1")
    await first.start_and_wait()
    second = pump("-node-id=p2")
    second.start()
    assert await asyncio.to_thread(second.wait) == 9
    assert "is locked: file already locked" in second.log.read_text()
    third = pump("-node-id=p1", directory="other")
    third.start()
    assert await asyncio.to_thread(third.wait) == 5
    assert "p1" in last_line(third)
    assert (await first.status())["pump"]["state"] == "online"


async def test_a_pump_that_drainers_wait_for_does_not_begin_in_a_new_directory(
    pump: Start, upstream: StandaloneUpstream, etcd_clean: str
) -> None:
    """Its disk is not mounted: with or without a name that it was given, and however often it is started."""
    process = pump("-node-id=p1")
    await process.start_and_wait()
    assert process.stop() == 0
    mounted, hidden = process.directory, process.directory.with_name("disk")
    mounted.rename(hidden)
    for _ in range(2):
        process.start()
        assert await asyncio.to_thread(process.wait) == 1
        assert "is new, and pump p1 is registered as paused" in process.log.read_text().splitlines()[-1]
    shutil.rmtree(mounted)
    hidden.rename(mounted)
    await process.start_and_wait()
    process.kill()
    shutil.rmtree(mounted)
    registry = await connect_registry(etcd_clean)
    entry = (await registry.view()).pumps["p1"]
    await registry.put(PUMPS, replace(entry.status, state=node.OFFLINE), entry.mod_revision)  # forgotten
    await registry.close()
    await process.start_and_wait()
    assert process.stop() == 0


async def test_directory_of_another_cluster(pump: Start, upstream: StandaloneUpstream) -> None:
    process = pump()
    process.directory.mkdir()
    (process.directory / ".cluster").write_text("1")
    process.start()
    assert await asyncio.to_thread(process.wait) == 10
    assert f"belongs to cluster 1, but the upstream is cluster {upstream.cluster_id}" in last_line(process)


async def test_altered_log_names_file_and_offset_and_can_be_given_up(
    pump: Start, upstream: StandaloneUpstream
) -> None:
    process = pump("-node-id=p1")
    await process.start_and_wait()
    client = PumpClient(process.address, upstream.cluster_id)
    for ts in (10, 20, 30):
        await client.write(binlog.prewrite(ts, b"k", b"v"))
        await client.write(binlog.commit(ts, ts + 1))
    await client.close()
    assert process.stop() == 0
    path = process.directory / "value" / "000000.vlog"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    process.start()
    assert await asyncio.to_thread(process.wait) == 6
    line = last_line(process)
    assert "value/000000.vlog: offset " in line
    place = line.split("--accept-loss ")[1].split("`")[0]
    await process.start_and_wait(f"--accept-loss={place}")
    assert process.stop() == 0


async def test_a_puller_that_finds_the_index_damaged_ends_the_pump_and_gets_all_from_the_next_life(
    pump: Start, upstream: StandaloneUpstream
) -> None:
    process = pump("-node-id=p1")
    await process.start_and_wait()
    client = PumpClient(process.address, upstream.cluster_id)
    for ts in (10, 20, 30):
        await client.write(binlog.prewrite(ts, b"k", b"v"))
        await client.write(binlog.commit(ts, ts + 1))
    assert process.stop() == 0
    index = Index.open(str(process.directory / "kv"))
    alter(index, {key_of(20): None})
    index.close()
    await process.start_and_wait()
    with pytest.raises(Unavailable, match="does not know the prewrite 20 of commit 21"):
        await commits_up_to(client, 31)
    assert await asyncio.to_thread(process.wait) == 2  # at which a supervisor starts it again
    await process.start_and_wait()
    assert await commits_up_to(client, 31) == [11, 21, 31]
    await client.close()
    assert process.stop() == 0


async def commits_up_to(client: PumpClient, last: int) -> list[int]:
    found: list[int] = []
    async with asyncio.timeout(PATIENCE_S):
        async for headers, _, _ in client.pull_batches(0):
            found += [header.commit_ts for header in headers if not header.is_fake]
            if found[-1:] == [last]:
                break
    return found


async def test_a_pump_whose_etcd_goes_away_keeps_serving(
    free_port: Callable[[], int], tmp_path: Path
) -> None:
    server = EtcdServer.start(tmp_path / "etcd")
    upstream = await StandaloneUpstream.connect(server.endpoint)
    process = PumpProcess(tmp_path / "pump", server.endpoint, free_port, "-node-id=p1")
    try:
        await process.start_and_wait()
        client = PumpClient(process.address, upstream.cluster_id)
        await upstream.close()
        server.stop()
        await client.write(binlog.prewrite(10, b"k", b"v"))
        await client.write(binlog.commit(10, 11))
        async with asyncio.timeout(PATIENCE_S):
            # Below a watermark that was drawn before, a puller may pass over what is not filed yet.
            while (await process.status())["pump"]["stages"]["indexed"]["lag_bytes"]:
                await asyncio.sleep(0.01)
            async for headers, _, _ in client.pull_batches(0):
                assert [header.commit_ts for header in headers] == [11]
                break
        document = await process.status()
        assert document["status"] is None
        assert document["ErrMsg"]
        assert document["pump"]["watermark"] > 11, "drawn while etcd was there"
        await client.close()
        await asyncio.to_thread(process.stop)
    finally:
        process.end()
        server.stop()
