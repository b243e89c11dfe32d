"""Independent compare-and-sets, many in one etcd transaction.

Each is decided on its own (nested transactions) but they share a round trip and a disk write: everything
that waits while one transaction is under way goes into the next.

Tests  tests/common/upstream/standalone/test_transactions.py
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any, Final

from tidb_binlog.errors import BinlogError, Unavailable
from tidb_binlog.etcd import client as etcd
from tidb_binlog.etcd.client import EtcdClient, KeyValue
from tidb_binlog.late_dataclass import dataclass

# Each counts with its put and its get against etcd's limit of 128 operations.
GROUP_MAX: Final = 60


@dataclass(frozen=True, slots=True)
class Swap:
    """Put `value` if the key's revision is `expected` (0: it must not exist)."""

    key: bytes
    expected: int
    value: bytes


@dataclass(frozen=True, slots=True)
class Swapped:
    """`actual` is the entry as it is now: ours if `won`, else what stood in the way (None: nothing)."""

    won: bool
    actual: KeyValue | None


class CompareAndSet:
    """Groups swaps and deletions. One event loop."""

    def __init__(self, client: EtcdClient) -> None:
        self._client = client
        self._waiting: deque[tuple[Swap, asyncio.Future[Swapped]]] = deque()
        self._worker: asyncio.Task[None] | None = None
        self._closed = False

    async def swap(self, swap: Swap) -> Swapped:
        """Raises `Unavailable`: it may or may not have taken place."""
        if self._closed:
            raise Unavailable("the transaction store is closed")
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Swapped] = loop.create_future()
        self._waiting.append((swap, future))
        if self._worker is None or self._worker.done():
            self._worker = loop.create_task(self._work(), name="transactions.swap")
        return await future

    async def close(self) -> None:
        self._closed = True
        if self._worker is not None:
            self._worker.cancel()
            await asyncio.wait({self._worker})
        _fail(list(self._waiting), Unavailable("the transaction store is closed"))
        self._waiting.clear()

    async def _work(self) -> None:
        await asyncio.sleep(0)
        while self._waiting:
            group: list[tuple[Swap, asyncio.Future[Swapped]]] = []
            later: list[tuple[Swap, asyncio.Future[Swapped]]] = []
            keys: set[bytes] = set()
            while self._waiting and len(group) < GROUP_MAX:
                entry = self._waiting.popleft()
                # etcd refuses two puts of one key in a transaction.
                if entry[0].key in keys:
                    later.append(entry)
                    continue
                keys.add(entry[0].key)
                group.append(entry)
            self._waiting.extendleft(reversed(later))
            try:
                await self._run(group)
            except BinlogError as error:
                _fail(group, error)
            except BaseException:
                _fail(group, Unavailable("the transaction store is closed"))
                raise

    async def _run(self, group: list[tuple[Swap, asyncio.Future[Swapped]]]) -> None:
        ops: list[Any] = [
            etcd.nested(
                [etcd.mod_is(swap.key, swap.expected)],
                [etcd.put(swap.key, swap.value)],
                [etcd.get(swap.key)],
            )
            for swap, _ in group
        ]
        result = await self._client.txn([], ops)
        for (swap, future), part in zip(group, result.results, strict=True):
            if future.done():
                continue
            assert part.nested is not None
            if part.nested.succeeded:
                future.set_result(Swapped(True, KeyValue(swap.key, swap.value, result.revision)))
            else:
                pairs = part.nested.results[0].kvs
                future.set_result(Swapped(False, pairs[0] if pairs else None))


def _fail(group: list[tuple[Swap, asyncio.Future[Swapped]]], error: BinlogError) -> None:
    for _, future in group:
        if not future.done():
            future.set_exception(type(error)(error.message, hint=error.hint))
