"""Fake binlog: the stored time mark of an idle pump, for pullers that know no other.

Drainers of the old protocol learn of passing time only from records whose two timestamps are equal. One is
written every interval in which nothing was stored, while such a drainer is connected or nobody is at all.
The timestamp is drawn before the record is queued, so it is a valid watermark where it stands.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from common import binlog
from common.errors import BinlogError
from common.observe import log
from common.upstream_port import TimestampOracle
from pump.storage.storage import Storage

_logger = log.get("fake_binlog")


async def run(
    storage: Storage, oracle: TimestampOracle, needed: Callable[[], bool], interval_s: float
) -> None:
    """Write one whenever an interval passed without a stored record and `needed` says so."""
    seen = storage.stored_total
    while True:
        await asyncio.sleep(interval_s)
        if storage.stored_total == seen and needed() and storage.write_failure is None:
            try:
                await store(storage, oracle)
            except BinlogError as error:
                _logger.warning("no time mark written", error=error)
        seen = storage.stored_total


async def store(storage: Storage, oracle: TimestampOracle) -> int:
    """Draw a timestamp and return it when a time mark with it is durable. Raises what the oracle does,
    `WriteFailed`."""
    ts = await oracle.timestamp()
    await storage.write(binlog.fake(ts), binlog.Header(binlog.ROLLBACK, ts, ts))
    return ts
