"""A shop whose history lies in two Pumps, with DDL in between and a transaction that both have; and the
archive that a Drainer writes of it."""

from __future__ import annotations

import asyncio
from pathlib import Path

from drainer.stream.pull.range_reader import PumpSet, merged_range
from pumpclient import Publisher, column
from tests.forked import Forked
from tests.integration.sinks.pump_scene import status
from tests.integration.support.subscribed_shop import write
from tests.pump.support.process import PumpClient, PumpProcess
from tests.waiting import PATIENCE_S, until_here
from tidb_binlog import binlog
from tidb_binlog.etcd.registry import connect_registry
from tidb_binlog.upstream.standalone import StandaloneUpstream


async def now_ts(endpoint: str) -> int:
    upstream = await StandaloneUpstream.connect(endpoint)
    stamp = await upstream.oracle.timestamp()
    await upstream.close()
    return int(stamp)


async def fill(publisher: Publisher, endpoint: str, pumps: list[PumpProcess]) -> int:
    """Write the history; a timestamp after it."""
    for number in range(12):
        await write(publisher, number, 100 + number)
    await publisher.add_column("shop.orders", column("note", "varchar(10)", default="new"))
    for number in range(12, 18):
        async with publisher.transaction() as txn:
            txn.insert("shop.orders", {"id": number, "item": "pen", "note": "late"})
            txn.insert("shop.items", {"id": number, "item": "nib"})
        async with publisher.transaction() as txn:
            old = {"id": number, "item": "nib"}
            txn.update("shop.items", old, {"id": number, "item": "cap"})
    async with publisher.transaction() as txn:
        txn.delete("shop.items", {"id": 12, "item": "cap"})
    await publisher.create_table("shop.more", [column("id", "int", nullable=False)], primary_key=["id"])
    async with publisher.transaction() as txn:
        txn.insert("shop.more", {"id": 1})
    await write_twice(endpoint, pumps)
    await publisher.drop_table("shop.more")
    await write(publisher, 900, table="items")
    return await now_ts(endpoint)


async def write_twice(endpoint: str, pumps: list[PumpProcess]) -> int:
    """A transaction that every Pump has, as after a write that timed out: the last one again."""
    registry, upstream = await connect_registry(endpoint), await StandaloneUpstream.connect(endpoint)
    view = await registry.view()
    known = PumpSet(upstream.cluster_id, view.pumps)
    until_ts = await upstream.oracle.timestamp()
    entries = await asyncio.to_thread(lambda: list(merged_range(known, 0, until_ts)))
    value = binlog.parse(entries[-1].payload).prewrite_value
    start_ts, commit_ts = await upstream.oracle.timestamp(), await upstream.oracle.timestamp()
    for payload in (binlog.prewrite(start_ts, b"key", value), binlog.commit(start_ts, commit_ts, b"key")):
        for pump in pumps:
            client = PumpClient(pump.address, upstream.cluster_id)
            await client.write(payload)
            await client.close()
    await upstream.close()
    await registry.close()
    return int(commit_ts)


def archived(endpoint: str, directory: Path, port: int, upto_ts: int) -> str:
    """The archive of everything up to there."""
    directory.mkdir()
    config, archive = directory / "drainer.toml", directory / "archive"
    config.write_text(f'initial-commit-ts = 0\n[syncer]\ndb-type = "pb"\n[syncer.to]\ndir = "{archive}"\n')
    address = f"127.0.0.1:{port}"
    argv = [
        f"-config={config}",
        f"-pd-urls={endpoint}",
        f"-addr={address}",
        f"-data-dir={directory / 'data'}",
    ]
    drainer = Forked("drainer", [*argv, "-node-id=archiver"], directory / "log")

    def reached() -> bool:
        document = status(f"http://{address}/status")
        return document is not None and int(document["LastTS"]) >= upto_ts

    try:
        until_here(reached)
        drainer.terminate()
        drainer.wait(PATIENCE_S)
    except BaseException:
        drainer.kill()
        raise
    return str(archive)
