"""Writes binlogs to one pump as fast as it takes them, as a process of its own: its CPU is not the pump's.

    python -m tests.benchmarks.pump.load_generator ADDRESS CLUSTER_ID FIRST_TS WRITERS SECONDS PAYLOAD_BYTES

Each of WRITERS tasks sends a prewrite, waits, sends its commit, waits, over one connection. With
PAYLOAD_BYTES 0 it sends probes instead, which a pump answers without storing anything. A line of JSON says
when the measured time begins (after a warm-up) and another one what was seen when it ends.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import sys
import time
from collections.abc import Iterator
from typing import Final

import uvloop

from tests.benchmarks.measure import percentile
from tidb_binlog import binlog, rpc
from tidb_binlog.errors import BinlogError
from tidb_binlog.wire import pump_pb2

WRITE_PATH: Final = "/binlog.Pump/WriteBinlog"
TIMEOUT_S: Final = 10.0
WARM_UP_S: Final = 0.5
LOOK_S: Final = 0.01


def request(cluster_id: int, payload: bytes) -> bytes:
    return pump_pb2.WriteBinlogReq(clusterID=cluster_id, payload=payload).SerializeToString()


class Generator:
    def __init__(self, address: str, cluster_id: int, first_ts: int, payload_bytes: int) -> None:
        self._client = rpc.Client(address)
        self._cluster_id = cluster_id
        self._timestamps: Iterator[int] = itertools.count(first_ts)
        self._value = os.urandom(payload_bytes)
        self._probe = request(cluster_id, binlog.commit(0, 0))
        self._ended = False
        self.latencies_s: list[float] = []

    async def run(self, writers: int, seconds: float) -> None:
        work = self._transactions if self._value else self._probes
        tasks = [asyncio.create_task(work()) for _ in range(writers)]
        await asyncio.sleep(WARM_UP_S)
        self.latencies_s.clear()
        _say(event="begin")
        began_s = time.monotonic()
        await asyncio.sleep(seconds)
        while not self.latencies_s and not any(task.done() for task in tasks):
            await asyncio.sleep(LOOK_S)  # nothing came in the time that was asked for
        took_s = time.monotonic() - began_s
        seen = self.latencies_s[:]
        self._ended = True
        _say(
            event="end",
            requests=len(seen),
            seconds=took_s,
            p50_ms=percentile(seen, 0.5) * 1000,
            p99_ms=percentile(seen, 0.99) * 1000,
        )
        await asyncio.gather(*tasks)
        await self._client.close()

    async def _transactions(self) -> None:
        while not self._ended:
            start_ts = next(self._timestamps)
            key = b"t%020d" % start_ts
            await self._send(request(self._cluster_id, binlog.prewrite(start_ts, key, self._value)))
            commit_ts = next(self._timestamps)
            await self._send(request(self._cluster_id, binlog.commit(start_ts, commit_ts, key)))

    async def _probes(self) -> None:
        while not self._ended:
            await self._send(self._probe)

    async def _send(self, data: bytes) -> None:
        began_s = time.perf_counter()
        await self._client.unary(WRITE_PATH, data, TIMEOUT_S)
        self.latencies_s.append(time.perf_counter() - began_s)


def _say(**fields: object) -> None:
    print(json.dumps(fields), flush=True)


async def run(arguments: list[str]) -> None:
    address, cluster_id, first_ts, writers, seconds, payload_bytes = arguments
    generator = Generator(address, int(cluster_id), int(first_ts), int(payload_bytes))
    await generator.run(int(writers), float(seconds))


if __name__ == "__main__":
    try:
        uvloop.run(run(sys.argv[1:]))
    except BinlogError as error:
        sys.exit(f"load generator: {error}")
