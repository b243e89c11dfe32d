"""An embedding program as a process of its own: writes transactions through `pumpclient`, or by hand.

    python -m tests.benchmarks.client.load KIND ENDPOINTS CLUSTER_ID FIRST_TS IN_FLIGHT SECONDS [ADDRESS]

IN_FLIGHT tasks (threads, for `sync`) send a prewrite of 300 bytes, wait, send its commit, wait. KIND:

    batched   the client as it is
    unary     the client, one call a binlog
    sync      the blocking client, from threads
    failover  as batched, but commits are sent in the background, as TiDB does; tells of the longest prewrite
    bare      the least that a program without the client does: a grpc.aio stub of one pump at ADDRESS

A line of JSON says when the measured time begins and another one what was seen; `cpu_us` is this process's
own CPU per binlog, all threads. The event loop is asyncio's own, as in a host that chose none.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import grpc.aio

import pumpclient
from tests.benchmarks.door.h2_load import say
from tests.benchmarks.measure import percentile
from tidb_binlog import binlog
from tidb_binlog.errors import BinlogError
from tidb_binlog.wire import pump_pb2

WARM_UP_S: Final = 0.5
LOOK_S: Final = 0.01  # where nothing came in the time that was asked for
PAYLOAD_BYTES: Final = 300
TIMEOUT_S: Final = 15.0
# A commit whose pump is gone is tried for so long: the load ends soon.
FAILOVER: Final = pumpclient.Options(finish_deadline_s=0.5)
Transact = Callable[[int, int], Awaitable[None]]


class Load:
    """Counts what its writers do. `ended` is looked at by each before a transaction."""

    def __init__(self, first_ts: int) -> None:
        self.timestamps: Iterator[int] = itertools.count(first_ts)
        self.value = os.urandom(PAYLOAD_BYTES)
        self.latencies_s: list[float] = []
        self.ended = False

    async def task(self, transact: Transact) -> None:
        while not self.ended:
            began_s = time.perf_counter()
            await transact(next(self.timestamps), next(self.timestamps))
            self.latencies_s.append(time.perf_counter() - began_s)

    def thread(self, client: pumpclient.SyncPumpClient) -> None:
        while not self.ended:
            began_s = time.perf_counter()
            start_ts, commit_ts = next(self.timestamps), next(self.timestamps)
            key = b"t%020d" % start_ts
            client.write_prewrite(start_ts, key, self.value)
            client.write_commit(start_ts, commit_ts, key)
            self.latencies_s.append(time.perf_counter() - began_s)

    def report(self, began: tuple[float, float]) -> None:
        """What was seen since `began` (monotonic, CPU). Latencies: a binlog, on average of two."""
        took_s, spent_s = time.monotonic() - began[0], time.process_time() - began[1]
        if not self.latencies_s:
            return  # each writer failed; its error is raised when it is awaited
        seen = [latency / 2 for latency in self.latencies_s]
        binlogs = 2 * len(seen)
        say(
            event="end",
            binlogs=binlogs,
            seconds=took_s,
            cpu_us=spent_s / binlogs * 1e6,
            p50_ms=percentile(seen, 0.5) * 1000,
            p99_ms=percentile(seen, 0.99) * 1000,
        )

    def begin(self) -> tuple[float, float]:
        self.latencies_s.clear()
        say(event="begin")
        return time.monotonic(), time.process_time()


async def run_tasks(load: Load, transact: Transact, in_flight: int, seconds: float) -> None:
    tasks = [asyncio.create_task(load.task(transact)) for _ in range(in_flight)]
    await asyncio.sleep(WARM_UP_S)
    began = load.begin()
    await asyncio.sleep(seconds)
    while not load.latencies_s and not any(task.done() for task in tasks):
        await asyncio.sleep(LOOK_S)
    load.ended = True
    load.report(began)
    await asyncio.gather(*tasks)


async def run_client(
    endpoints: str, cluster_id: int, load: Load, in_flight: int, seconds: float, *, batches: bool
) -> None:
    options = pumpclient.Options(batches=batches)
    async with await pumpclient.connect(endpoints, cluster_id=cluster_id, options=options) as client:

        async def transact(start_ts: int, commit_ts: int) -> None:
            key = b"t%020d" % start_ts
            await client.write_prewrite(start_ts, key, load.value)
            await client.write_commit(start_ts, commit_ts, key)

        await run_tasks(load, transact, in_flight, seconds)


async def run_failover(endpoints: str, cluster_id: int, load: Load, in_flight: int, seconds: float) -> None:
    """Says the longest prewrite and the longest time without one acknowledged, by any writer."""
    commits: set[asyncio.Task[bool]] = set()
    longest_s = silence_s = 0.0
    last_s = time.perf_counter()

    async with await pumpclient.connect(endpoints, cluster_id=cluster_id, options=FAILOVER) as client:

        async def transact(start_ts: int, commit_ts: int) -> None:
            nonlocal longest_s, silence_s, last_s
            key, began_s = b"t%020d" % start_ts, time.perf_counter()
            await client.write_prewrite(start_ts, key, load.value)
            now_s = time.perf_counter()
            longest_s, silence_s = max(longest_s, now_s - began_s), max(silence_s, now_s - last_s)
            last_s = now_s
            commit = asyncio.create_task(client.write_commit(start_ts, commit_ts, key))
            commits.add(commit)
            commit.add_done_callback(commits.discard)

        tasks = [asyncio.create_task(load.task(transact)) for _ in range(in_flight)]
        await asyncio.sleep(WARM_UP_S)
        load.begin()
        longest_s = silence_s = 0.0
        await asyncio.sleep(seconds)
        say(
            event="end",
            longest_ms=longest_s * 1000,
            silence_ms=silence_s * 1000,
            prewrites=len(load.latencies_s),
            p50_ms=percentile(load.latencies_s, 0.5) * 1000,
            p99_ms=percentile(load.latencies_s, 0.99) * 1000,
            retried=client.counters.attempts_failed,
        )
        load.ended = True
        await asyncio.gather(*tasks)
        await asyncio.gather(*commits)


async def run_bare(address: str, cluster_id: int, load: Load, in_flight: int, seconds: float) -> None:
    request, reply = pump_pb2.WriteBinlogReq, pump_pb2.WriteBinlogResp
    async with grpc.aio.insecure_channel(address) as channel:
        write: Any = channel.unary_unary(
            "/binlog.Pump/WriteBinlog",
            request_serializer=request.SerializeToString,
            response_deserializer=reply.FromString,
        )

        async def transact(start_ts: int, commit_ts: int) -> None:
            key = b"t%020d" % start_ts
            payload = binlog.prewrite(start_ts, key, load.value)
            await write(request(clusterID=cluster_id, payload=payload), timeout=TIMEOUT_S)
            payload = binlog.commit(start_ts, commit_ts, key)
            await write(request(clusterID=cluster_id, payload=payload), timeout=TIMEOUT_S)

        await run_tasks(load, transact, in_flight, seconds)


def run_sync(endpoints: str, cluster_id: int, load: Load, in_flight: int, seconds: float) -> None:
    with (
        pumpclient.connect_sync(endpoints, cluster_id=cluster_id) as client,
        ThreadPoolExecutor(in_flight) as pool,
    ):
        threads = [pool.submit(load.thread, client) for _ in range(in_flight)]
        time.sleep(WARM_UP_S)
        began = load.begin()
        time.sleep(seconds)
        while not load.latencies_s and not any(thread.done() for thread in threads):
            time.sleep(LOOK_S)
        load.ended = True
        load.report(began)
        for thread in threads:
            thread.result()


def run(arguments: list[str]) -> None:
    kind, endpoints, cluster_id, first_ts, in_flight, seconds, *address = arguments
    load = Load(int(first_ts))
    ask = (int(cluster_id), load, int(in_flight), float(seconds))
    if kind == "sync":
        run_sync(endpoints, *ask)
    elif kind == "failover":
        asyncio.run(run_failover(endpoints, *ask))
    elif kind == "bare":
        asyncio.run(run_bare(address[0], *ask))
    else:
        asyncio.run(run_client(endpoints, *ask, batches=kind == "batched"))


if __name__ == "__main__":
    try:
        run(sys.argv[1:])
    except BinlogError as error:
        sys.exit(f"pumpclient load: {error}")
