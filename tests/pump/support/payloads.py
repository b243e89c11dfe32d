"""Payloads and small helpers for tests of storage."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from pump.index.index import Index
from pump.log.delivery import Delivery
from pump.log.record import ValuePointer
from pump.storage.data_dir import DataDir
from pump.storage.storage import Storage
from tests.waiting import PATIENCE_S
from tidb_binlog import binlog
from tidb_binlog.clock import SystemClock


def header(payload: bytes) -> binlog.Header:
    return binlog.header(binlog.parse(payload))


async def put(storage: Storage, *payloads: bytes) -> None:
    await asyncio.gather(*(storage.write(payload, header(payload)) for payload in payloads))


async def put_pair(storage: Storage, start_ts: int, commit_ts: int, value: bytes = b"value") -> bytes:
    """Write a transaction; returns the payload that a drainer gets."""
    first, second = binlog.prewrite(start_ts, b"key", value), binlog.commit(start_ts, commit_ts, b"key")
    await put(storage, first)
    await put(storage, second)
    return binlog.join(first, second)


@asynccontextmanager
async def opened(path: Path, **options: Any) -> AsyncIterator[Storage]:
    """A storage that runs and has sorted what was stored (with `replayed=False`: as soon as it is open);
    closed, or, with `abandon=True`, left as a killed process leaves it. Of an upstream whose oracle gives
    what was committed last, or with `draws=True` of one that is asked."""
    abandon = options.pop("abandon", False)
    replayed = options.pop("replayed", True)
    draws = options.pop("draws", False)
    data_dir = options.pop("data_dir", None) or DataDir(str(path))
    try:
        storage = await Storage.open(data_dir, clock=options.pop("clock", SystemClock()), **options)
        if not draws:
            storage.on_committed = lambda ts: oracle_gave(storage, ts)
        following = asyncio.create_task(storage.run())
        try:
            if replayed:
                await is_replayed(storage, following)
            yield storage
        finally:
            if abandon:
                following.cancel()
                with suppress(asyncio.CancelledError):
                    await following
                await storage.close(abandon=True)
            else:
                await storage.close()
                await following
    finally:
        data_dir.close()


def oracle_gave(storage: Storage, ts: int) -> None:
    """The upstream's oracle has given `ts` last. After a start with nothing new nobody has asked it."""
    if ts > storage.watermark + 1:
        storage.mark(ts)


async def is_replayed(storage: Storage, following: asyncio.Task[None]) -> None:
    """Wait until what was stored is sorted. Raises what ended `following`."""
    done = asyncio.create_task(storage.replayed.wait())
    await asyncio.wait({done, following}, return_when=asyncio.FIRST_COMPLETED)
    if not done.done():
        done.cancel()
        following.result()


async def wait_watermark(storage: Storage, ts: int) -> None:
    async with asyncio.timeout(PATIENCE_S):
        with storage.listener() as wake:
            while storage.watermark < ts:
                wake.clear()
                await wake.wait()


async def pull(storage: Storage, after: int = 0, *, from_disk: bool = False) -> list[Delivery]:
    """Everything up to the watermark."""
    history, position, found = storage.history(), after, []
    while position < storage.watermark:
        if from_disk:
            page = history.page(position, storage.watermark, bytes_max=1 << 20)
        else:
            page = await storage.page(history, position, 1 << 20)
        found += page.deliveries
        assert page.covered > position
        position = page.covered
    assert [delivery.commit_ts for delivery in found] == sorted({delivery.commit_ts for delivery in found})
    return found


def alter(index: Index, changes: Mapping[bytes, bytes | None]) -> None:
    """Put entries into an index behind its back; None takes one out, which must be there."""
    for key, value in changes.items():
        assert value is not None or index.store.get(key) is not None, "the index has not followed the log yet"
    with index.store.write_batch() as batch:
        for key, value in changes.items():
            batch.delete(key) if value is None else batch.put(key, value)


def filed(index: Index, after: int, upto: int) -> list[tuple[int, ValuePointer]]:
    """(timestamp, place) of every entry of the index with a timestamp in (after, upto], ascending."""
    runs = index.runs(after, upto)
    return [(ts, ValuePointer(*place)) for run in runs for ts, place in zip(*run, strict=True)]
