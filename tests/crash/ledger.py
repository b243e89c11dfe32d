"""A ledger of transactions, outside the pump: an append-only file of what was sent and what was answered.

    kind u8 | start_ts u64 LE | commit_ts u64 LE         17 bytes
    P  a prewrite is about to be sent     C  its commit is     A  the commit was acknowledged

As a program it writes transactions to a pump until the pump is gone:

    python -m tests.crash.ledger FILE ADDRESS CLUSTER_ID FIRST_TS single|batch
"""

from __future__ import annotations

import asyncio
import itertools
import os
import struct
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import uvloop

from tidb_binlog import binlog, rpc
from tidb_binlog.errors import BinlogError
from tidb_binlog.wire import pump_pb2

PREWRITTEN: Final = ord("P")
SENT: Final = ord("C")
ACKNOWLEDGED: Final = ord("A")
_ENTRY: Final = struct.Struct("<BQQ")
_LANES: Final = {"single": 64, "batch": 4}
_A_BATCH: Final = 100
_REPEAT_EVERY: Final = 50


def prewrite(start_ts: int) -> bytes:
    return binlog.prewrite(start_ts, b"t%020d" % start_ts, (b"%d " % start_ts) * (start_ts % 31))


def commit(start_ts: int, commit_ts: int) -> bytes:
    return binlog.commit(start_ts, commit_ts, b"t%020d" % start_ts)


def joined(start_ts: int, commit_ts: int) -> bytes:
    """What a puller gets."""
    return binlog.join(prewrite(start_ts), commit(start_ts, commit_ts))


@dataclass
class Ledger:
    """What is known of all transactions: `sent` and `acknowledged` by commit timestamp."""

    open: set[int] = field(default_factory=set)
    sent: dict[int, int] = field(default_factory=dict)
    acknowledged: set[int] = field(default_factory=set)
    last_ts: int = 0
    read_to: int = 0

    def read(self, path: Path) -> None:
        """Read on from where the last call ended."""
        with path.open("rb") as file:
            file.seek(self.read_to)
            data = file.read()
        data = data[: len(data) // _ENTRY.size * _ENTRY.size]
        self.read_to += len(data)
        for kind, start_ts, commit_ts in _ENTRY.iter_unpack(data):
            self.last_ts = max(self.last_ts, start_ts, commit_ts)
            if kind == PREWRITTEN:
                self.open.add(start_ts)
            elif kind == SENT:
                self.sent[commit_ts] = start_ts
                self.open.discard(start_ts)
            else:
                self.acknowledged.add(commit_ts)

    @property
    def unanswered(self) -> list[tuple[int, int]]:
        """Commits that were sent and not acknowledged."""
        return [(start, ts) for ts, start in self.sent.items() if ts not in self.acknowledged]


class LedgerWriter:
    """Writes transactions and keeps the ledger."""

    def __init__(self, path: str, address: str, cluster_id: int, first_ts: int) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        self._client = rpc.Client(address)
        self._cluster_id = cluster_id
        self._timestamps = itertools.count(first_ts)

    def note(self, kind: int, pairs: list[tuple[int, int]]) -> None:
        os.write(self._file, b"".join(_ENTRY.pack(kind, *pair) for pair in pairs))

    async def run(self, way: str) -> None:
        """Until the pump is gone."""
        lane = self._single if way == "single" else self._batch
        lanes = [asyncio.create_task(lane()) for _ in range(_LANES[way])]
        await asyncio.wait(lanes)
        for one in lanes:
            if not isinstance(one.exception(), BinlogError):
                one.result()

    async def _transactions(self, count: int) -> AsyncIterator[list[bytes]]:
        """Payloads of prewrites, then of their commits, some of them again; each to be stored before the
        next is asked for."""
        starts = [next(self._timestamps) for _ in range(count)]
        self.note(PREWRITTEN, [(start, 0) for start in starts])
        yield [prewrite(start) for start in starts]
        pairs = [(start, next(self._timestamps)) for start in starts]
        self.note(SENT, pairs)
        yield [commit(*pair) for pair in pairs]
        self.note(ACKNOWLEDGED, pairs)
        again = [commit(*pair) for pair in pairs if pair[0] % _REPEAT_EVERY == 0]
        if again:
            yield again

    async def _single(self) -> None:
        while True:
            async for payloads in self._transactions(1):
                await self.write(payloads[0])

    async def write(self, payload: bytes) -> None:
        request = pump_pb2.WriteBinlogReq(clusterID=self._cluster_id, payload=payload)
        reply = await self._client.unary("/binlog.Pump/WriteBinlog", request.SerializeToString(), 20.0)
        assert not pump_pb2.WriteBinlogResp.FromString(reply).errmsg

    async def _batch(self) -> None:
        requests: asyncio.Queue[list[bytes]] = asyncio.Queue()

        async def sent() -> AsyncIterator[bytes]:
            while True:
                payloads = await requests.get()
                yield pump_pb2.WriteBinlogsReq(
                    cluster_id=self._cluster_id, payloads=payloads
                ).SerializeToString()

        replies = self._client.bidi("/binlog.PumpBatch/WriteBinlogs", sent())
        number = answered = 0
        while True:
            async for payloads in self._transactions(_A_BATCH):
                requests.put_nowait(payloads)
                number += len(payloads)
                while answered < number:
                    reply = pump_pb2.WriteBinlogsResp.FromString(await anext(replies))
                    assert not reply.failures, reply.failures
                    answered = reply.answered

    async def close(self) -> None:
        await self._client.close()
        os.close(self._file)


async def main(path: str, address: str, cluster_id: str, first_ts: str, way: str) -> None:
    writer = LedgerWriter(path, address, int(cluster_id), int(first_ts))
    await writer.run(way)
    await writer.close()


if __name__ == "__main__":
    uvloop.run(main(*sys.argv[1:]))
