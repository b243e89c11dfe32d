"""Ranges of real Pumps: cut anywhere, they are together what one pull has."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from random import Random

import pytest

from drainer.stream.pull.merged import Merged
from drainer.stream.pull.range_reader import PumpSet, merged_range
from tests.integration.support.subscribed_shop import shop, write
from tests.pump.conftest import pump as pump
from tests.pump.support.process import Start, start_two
from tidb_binlog import binlog
from tidb_binlog.etcd.registry import connect_registry
from tidb_binlog.upstream.standalone import StandaloneUpstream

pytestmark = pytest.mark.integration


async def pump_set(endpoint: str) -> tuple[PumpSet, int]:
    """The Pumps, and a timestamp up to which they will have everything."""
    registry = await connect_registry(endpoint)
    upstream = await StandaloneUpstream.connect(endpoint)
    try:
        view = await registry.view()
        return PumpSet(upstream.cluster_id, view.pumps), await upstream.oracle.timestamp()
    finally:
        await upstream.close()
        await registry.close()


async def read(pumps: PumpSet, after_ts: int, until_ts: int, tables: tuple[int, ...] = ()) -> list[Merged]:
    return await asyncio.to_thread(lambda: list(merged_range(pumps, after_ts, until_ts, tables)))


async def test_ranges_cut_anywhere_are_one_pull(pump: Start, etcd_clean: str) -> None:
    await start_two(pump)
    publisher = await shop(etcd_clean)
    stamps = [await write(publisher, number) for number in range(30)]
    pumps, until_ts = await pump_set(etcd_clean)
    whole = await read(pumps, 0, until_ts)
    assert [entry.commit_ts for entry in whole][-30:] == stamps
    pick = Random(3)
    for _ in range(3):
        cuts = sorted(pick.sample([*stamps, *(ts - 1 for ts in stamps)], 3))
        bounds = [0, *cuts, until_ts]
        parts = [await read(pumps, *pair) for pair in pairwise(bounds)]
        assert [entry for part in parts for entry in part] == whole
    assert await read(pumps, until_ts, until_ts) == []
    ddl_alone = await read(pumps, 0, until_ts, (binlog.NO_TABLE,))
    assert [entry.commit_ts for entry in ddl_alone] == [entry.commit_ts for entry in whole[:3]]
    await publisher.close()
