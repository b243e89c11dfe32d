"""What pumps keep for a named reader, and that a forgotten one holds nothing."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from drainer.reading.subscribe.named_reader import NamedReader, open_reader
from pump.retention.policy import Policy
from pump.retention.purger import Purger
from pump.storage.opening import StorageLimits
from tests.deploy.binlogctl.conftest import Ctl
from tests.deploy.binlogctl.conftest import ctl as ctl
from tests.pump.conftest import pump as pump
from tests.pump.support.payloads import opened, put_pair, wait_watermark
from tests.pump.support.process import Start
from tests.waiting import PATIENCE_S
from tidb_binlog.clock import ManualClock, SystemClock
from tidb_binlog.cluster import node
from tidb_binlog.cluster.registry import DRAINERS
from tidb_binlog.etcd.registry import EtcdRegistry, connect_registry
from tidb_binlog.tso import Ts

pytestmark = pytest.mark.integration

MINUTE = 60_000 << 18
NOW_TS = Ts(600 * MINUTE)


class Oracle:
    async def timestamp(self) -> Ts:
        return NOW_TS


async def plenty() -> int:
    return 1 << 40


async def nothing() -> None:
    """A collector that knows every pump."""


async def reader_at(registry: EtcdRegistry, endpoint: str, ts: int, now_ts: int = NOW_TS) -> NamedReader:
    reader = await open_reader(
        "cache",
        registry,
        endpoint,
        now_ts=lambda: now_ts,
        clock=SystemClock(),
        doing=lambda: "reads shop.*",
    )
    reader.begin(reader.stored_ts or ts, nothing)
    assert await reader.store()
    return reader


async def test_a_named_reader_holds_retention_and_a_forgotten_one_does_not(
    tmp_path: Path, etcd_clean: str, ctl: Ctl
) -> None:
    registry = await connect_registry(etcd_clean)
    async with opened(tmp_path, limits=StorageLimits(segment_bytes_max=4000)) as storage:
        for minute in range(1, 60):
            await put_pair(storage, minute * MINUTE, minute * MINUTE + 1, bytes(500))
        await wait_watermark(storage, 59 * MINUTE + 1)
        purger = Purger(storage, Oracle(), registry, plenty, Policy(60.0), ManualClock())

        reader = await reader_at(registry, etcd_clean, 20 * MINUTE)
        await purger.work()
        assert 5 * MINUTE < storage.gc_ts <= 10 * MINUTE + 1, "ten minutes below its position"
        reader.given(30 * MINUTE + 1)
        reader.passed(31 * MINUTE)
        await purger.work()
        assert storage.gc_ts <= 10 * MINUTE + 1, "given is not done"
        reader.done(30 * MINUTE + 1)
        assert await reader.store()
        await purger.work()
        held_ts = storage.gc_ts
        assert 10 * MINUTE + 1 < held_ts <= 21 * MINUTE + 1

        refused = await ctl("forget", "cache", "-pd-urls", etcd_clean)
        assert (refused.code, "reader cache lives" in refused.err) == (4, True), refused.err
        await reader.close()
        await purger.work()
        assert storage.gc_ts == held_ts, "one that stopped a moment ago comes back"
        forgotten = await ctl("forget", "cache", "-pd-urls", etcd_clean)
        assert forgotten.code == 0, forgotten.err
        assert "reader cache is offline now" in forgotten.out
        assert "it had done everything up to" in forgotten.out
        assert "started again under this name it goes on from there" in forgotten.out
        await purger.work()
        assert storage.gc_ts > 40 * MINUTE
    await registry.close()


async def test_a_pump_that_closes_waits_for_a_named_reader(
    pump: Start, etcd_clean: str, free_port: Callable[[], int]
) -> None:
    process = pump("-node-id=p1", "-heartbeat-interval=200ms")
    await process.start_and_wait()
    registry = await connect_registry(etcd_clean)
    reader = await reader_at(registry, etcd_clean, 100)
    status, _ = await asyncio.to_thread(process.http, "/state/p1/close", "PUT")
    assert status == 200
    async with asyncio.timeout(PATIENCE_S):
        target = 0
        while not target:
            leaving = json.loads((await asyncio.to_thread(process.http, "/status"))[1])["pump"]["leaving"]
            target = leaving["target_ts"] if leaving["stage"] == "reading" else 0
            await asyncio.sleep(0.05)
    assert (await registry.view()).pumps["p1"].status.state == node.CLOSING
    reader.passed(target)
    assert await reader.store()
    assert await asyncio.to_thread(process.wait) == 0
    view = await registry.view()
    assert view.pumps["p1"].status.state == node.OFFLINE
    assert view.of(DRAINERS)["cache"].status.max_commit_ts == target
    await reader.close()
    await registry.close()


async def test_status_shows_where_a_reader_is_and_how_far_behind(etcd_clean: str, ctl: Ctl) -> None:
    registry = await connect_registry(etcd_clean)
    now_ts = Ts(int(SystemClock().wall_s() * 1000) << 18)
    reader = await reader_at(registry, etcd_clean, now_ts - 2 * MINUTE, now_ts)
    shown = await ctl("status", "-pd-urls", etcd_clean)
    assert "cache" in shown.out, (shown.out, shown.err)
    line = next(line for line in shown.out.splitlines() if "cache" in line)
    assert "(reader)" in line, shown.out
    assert "2 min" in line
    assert "reads shop.*" in line
    (found,) = json.loads((await ctl("status", "-pd-urls", etcd_clean, "-output", "json")).out)["nodes"]
    assert (found["node_id"], found["state"], found["position_ts"]) == (
        "cache",
        "online",
        now_ts - 2 * MINUTE,
    )
    assert 100 < found["behind_s"] < 300
    assert found["reader"] is True
    await reader.close()
    stopped = await ctl("status", "-pd-urls", etcd_clean)
    line = next(line for line in stopped.out.splitlines() if "cache" in line)
    assert "paused" in line
    assert "reader cache" not in stopped.out, "it ended in order: that is no error"
    await registry.close()
