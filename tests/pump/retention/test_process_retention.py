"""Retention of a running pump: what is older than `gc` goes, and a late drainer is told."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from pump.pull.puller import OUT_OF_RANGE
from tests.pump.support.process import PumpClient, PumpProcess, Start
from tests.waiting import PATIENCE_S
from tidb_binlog import binlog, rpc, tso
from tidb_binlog.upstream.standalone import StandaloneUpstream

pytestmark = pytest.mark.integration

HOUR_TS = tso.compose(3_600_000)


async def reloaded(process: PumpProcess) -> dict[str, Any]:
    """Sends SIGHUP; what `/status` shows of it."""
    before = (await process.status())["pump"]["configuration"]["time_s"]
    process.hang_up()
    async with asyncio.timeout(PATIENCE_S):
        while (found := (await process.status())["pump"]["configuration"])["time_s"] == before:
            await asyncio.sleep(0.02)
    shown: dict[str, Any] = found
    return shown


async def test_old_files_go_when_asked_for_and_a_late_drainer_is_told(
    pump: Start, upstream: StandaloneUpstream, tmp_path: Path
) -> None:
    settings = tmp_path / "pump.toml"
    settings.write_text('gc = 7\n[storage]\nsegment-size = "16 KiB"\n')
    process = pump(f"-config={settings}")
    client = PumpClient(process.address, upstream.cluster_id)
    try:
        now = await upstream.oracle.timestamp()
        await process.start_and_wait()
        recent: list[int] = []
        for age_ts in (2 * HOUR_TS, 0):
            for number in range(0, 200, 10):
                start_ts = now - age_ts + number
                await client.write(binlog.prewrite(start_ts, b"key", bytes(2000)))
                await client.write(binlog.commit(start_ts, start_ts + 1, b"key"))
                if not age_ts:
                    recent.append(start_ts + 1)
        before = len(list((tmp_path / "pump" / "value").iterdir()))
        settings.write_text('gc = "30m"\n[storage]\nsegment-size = "1 MiB"\nsync-log = 7\n')
        assert not (await reloaded(process))["ok"]
        settings.write_text('gc = "30m"\n[storage]\nsegment-size = "1 MiB"\n')
        taken = await reloaded(process)
        assert (taken["changed"], taken["needs_restart"]) == (["gc"], ["storage.segment-size"])
        assert "storage.segment-size: needs a restart" in process.log.read_text()
        async with asyncio.timeout(PATIENCE_S):
            while (await process.status())["pump"]["retention"]["purged_files"] == 0:
                assert (await asyncio.to_thread(process.http, "/debug/gc/trigger", "POST"))[0] == 200
                await asyncio.sleep(0.1)
        facts = (await process.status())["pump"]["retention"]
        assert now - 2 * HOUR_TS < facts["gc_ts"] < now - HOUR_TS
        left = len(list((tmp_path / "pump" / "value").iterdir()))
        assert 0 < left == before - facts["purged_files"]
        # Memory has it all still; after a restart there is only what lies in files.
        assert await asyncio.to_thread(process.stop) == 0
        await process.start_and_wait()
        text = f"position 0 is below the gc timestamp {facts['gc_ts']}"
        with pytest.raises(rpc.RpcStatus, match=text) as late:
            await anext(client.pull_binlogs(0))
        assert late.value.code == OUT_OF_RANGE
        found: list[int] = []
        async for _, commit_ts, _ in client.pull_binlogs(facts["gc_ts"]):
            found.append(commit_ts)
            if commit_ts == recent[-1]:
                break
        assert [ts for ts in found if ts >= now] == recent
    finally:
        await client.close()
