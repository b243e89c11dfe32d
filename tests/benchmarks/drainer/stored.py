"""A pump's data directory, filled without a pump process: by its own storage, in this process.

For benchmarks that are about what happens afterwards. The bytes are those that the process would store.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Final

from binlog_playground.scenario import Record
from pump.storage.data_dir import DataDir
from pump.storage.storage import Storage
from tidb_binlog import binlog
from tidb_binlog.clock import SystemClock

GROUP: Final = 512


async def fill(directory: Path, node_id: str, cluster_id: int, records: Iterable[Record]) -> int:
    """Store `records` in their order and close cleanly; the number of records."""
    data_dir = DataDir(str(directory))
    stored = 0
    try:
        data_dir.node_id(node_id, node_id)
        data_dir.adopt_cluster(cluster_id)
        storage = await Storage.open(data_dir, clock=SystemClock(), sync=False)
        indexing = asyncio.create_task(storage.run())
        try:
            waiting: Iterator[Record] = iter(records)
            while group := list(islice(waiting, GROUP)):
                await asyncio.gather(*(storage.write(one.payload, _header(one)) for one in group))
                stored += len(group)
        finally:
            indexing.cancel()
            await asyncio.gather(indexing, return_exceptions=True)
            await storage.close()
    finally:
        data_dir.close()
    return stored


def _header(record: Record) -> binlog.Header:
    return binlog.Header(record.tp, record.start_ts, record.commit_ts)
