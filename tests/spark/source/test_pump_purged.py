"""Pumps purge while they are read: the query or stream ends, says what is gone, and jumps over nothing."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from drainer.config.options import DrainerConfig
from drainer.spark.live.downstream import LiveSettings
from drainer.spark.live.stream import PumpStream
from drainer.spark.source.pump_source import PumpReader, PumpSource
from drainer.spark.source.pump_stream import PumpStreamReader
from drainer.spark.source.spark_types import struct_of
from drainer.stream.pull.pump_source import BinlogsGone
from tests.integration.support.subscribed_shop import shop, write
from tests.pump.conftest import pump as pump
from tests.pump.support.process import Start
from tests.waiting import until
from tidb_binlog.cluster import node
from tidb_binlog.cluster.registry import DRAINERS
from tidb_binlog.etcd.registry import connect_registry

pytestmark = pytest.mark.integration

GONE = "has no longer what comes after|has purged what is older|cannot serve binlogs after"
"""What, and of which Pump."""


def read(frame: Any, parts: Any) -> list[str]:
    return [row["after"] for part in parts for batch in frame.read(part) for row in batch.to_pylist()]


def follow(settings: LiveSettings) -> None:
    PumpStream(settings, None).wait()


async def forget(endpoint: str, name: str) -> None:
    """As `binlogctl forget`: Pumps keep nothing for it."""
    registry = await connect_registry(endpoint)
    entry = (await registry.view()).drainers[name]
    await registry.put(DRAINERS, entry.status.with_state(node.OFFLINE), entry.mod_revision)
    await registry.close()


async def test_it_is_said_what_is_gone(pump: Start, etcd_clean: str, tmp_path: Path) -> None:
    config = tmp_path / "pump.toml"
    config.write_text('[storage]\nsegment-size = "4 KiB"\n')
    process = pump("-node-id=p1", "-heartbeat-interval=200ms", f"-config={config}")
    await process.start_and_wait()
    publisher = await shop(etcd_clean)
    drainer = replace(
        DrainerConfig(), pd_urls=etcd_clean, data_dir=str(tmp_path), db_type="delta", initial_commit_ts=0
    )
    settings = LiveSettings(replace(drainer, warehouse=str(tmp_path / "lake")), "spark", once=True)
    await asyncio.to_thread(follow, settings)
    await forget(etcd_clean, "spark")
    for number in range(40):
        await write(publisher, *range(number * 10, number * 10 + 10))

    given = {"path": f"pumps://{etcd_clean}", "start": "1"}
    source = PumpSource(given)
    columns = struct_of(source.schema)
    frame = await asyncio.to_thread(PumpReader, source, columns)
    stream = PumpStreamReader(given | {"maxBytesPerTrigger": "500"}, columns)
    parts = await asyncio.to_thread(frame.partitions)
    at, rows, planned = await asyncio.to_thread(stream.initialOffset), list[str](), list[Any]()

    def next_batch() -> None:
        nonlocal at, planned
        end = stream.latestOffset(at, stream.getDefaultReadLimit())
        planned, at = list(stream.partitions(at, end)) if end != at else [], end

    while len(rows) < 20:
        await asyncio.to_thread(next_batch)
        rows += await asyncio.to_thread(read, stream, planned)
    await asyncio.to_thread(next_batch)

    config.write_text('[storage]\nsegment-size = "4 KiB"\nretention-bytes = "8 KiB"\n')
    process.hang_up()

    async def is_purged() -> bool:
        await asyncio.to_thread(process.http, "/debug/gc/trigger", "POST")
        return bool((await process.status())["pump"]["retention"]["purged_files"])

    await until(is_purged)
    assert await asyncio.to_thread(process.stop) == 0  # its memory has all of it
    await process.start_and_wait()
    planned_before = (lambda: read(frame, parts), lambda: read(stream, planned))
    for work in (*planned_before, next_batch, lambda: follow(settings)):
        with pytest.raises(BinlogsGone, match=GONE) as gone:
            await asyncio.to_thread(work)
        assert "start the drainer at a position above" in str(gone.value)
    await asyncio.to_thread(stream.stop)
    await publisher.close()
