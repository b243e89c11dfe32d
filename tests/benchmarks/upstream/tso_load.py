"""Draws timestamps as fast as they come, as a process of its own: its CPU is neither PD's nor the bench's.

    python -m tests.benchmarks.upstream.tso_load oracle|bare ADDRESS CALLERS SECONDS

`oracle`: CALLERS tasks, each draws one timestamp after the other from one `PdOracle`. `bare`: CALLERS is not
looked at; grpcio's own stream, a request for one timestamp, its reply, the next request. A line of JSON says
when the measured time begins (after a warm-up) and another one what was seen when it ends.
"""

from __future__ import annotations

import asyncio
import json
import resource
import sys
import time
from typing import Any, Final

import grpc.aio
import uvloop

from tests.benchmarks.measure import peak_rss_mib, percentile
from tidb_binlog.errors import BinlogError
from tidb_binlog.upstream.tidb.pd.oracle import PdOracle
from tidb_binlog.upstream.tidb.pd.pd import PdClient
from tidb_binlog.wire import pdpb_pb2

ORACLE: Final = "oracle"
BARE: Final = "bare"
WARM_UP_S: Final = 0.3


class Draws:
    """Latency of each timestamp, from when the measured time begins."""

    def __init__(self) -> None:
        self.latencies_s: list[float] = []
        self.ended = False

    async def measure(self, seconds: float) -> None:
        await asyncio.sleep(WARM_UP_S)
        self.latencies_s.clear()
        cpu_s, began_s = _cpu_s(), time.monotonic()
        _say(event="begin")
        await asyncio.sleep(seconds)
        took_s, cpu_s = time.monotonic() - began_s, _cpu_s() - cpu_s
        self.ended = True
        seen = self.latencies_s[:]
        _say(
            event="end",
            timestamps_per_s=len(seen) / took_s,
            cpu_us=cpu_s / len(seen) * 1e6,
            p50_ms=percentile(seen, 0.5) * 1000,
            p99_ms=percentile(seen, 0.99) * 1000,
            peak_rss_mib=peak_rss_mib("self"),
        )


async def with_oracle(address: str, callers: int, seconds: float) -> None:
    pd = await PdClient.connect(address)
    oracle = PdOracle(pd)
    draws = Draws()
    last = 0

    async def draw() -> None:
        nonlocal last
        clock = time.perf_counter
        while not draws.ended:
            began_s, floor = clock(), last
            ts = await oracle.timestamp()
            assert ts > floor
            last = max(last, ts)
            draws.latencies_s.append(clock() - began_s)

    tasks = [asyncio.create_task(draw()) for _ in range(callers)]
    await draws.measure(seconds)
    await asyncio.gather(*tasks)
    await oracle.close()
    await pd.close()


async def bare(address: str, seconds: float) -> None:
    pd = await PdClient.connect(address)
    request = pdpb_pb2.TsoRequest(header=pd.header(), count=1).SerializeToString()
    await pd.close()
    draws = Draws()
    channel: Any = grpc.aio.insecure_channel(address)
    call = channel.stream_stream("/pdpb.PD/Tso")()

    async def draw() -> None:
        while not draws.ended:
            began_s = time.perf_counter()
            await call.write(request)
            reply = pdpb_pb2.TsoResponse.FromString(await call.read())
            assert reply.count == 1
            draws.latencies_s.append(time.perf_counter() - began_s)

    task = asyncio.create_task(draw())
    await draws.measure(seconds)
    await task
    call.cancel()
    await channel.close()


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _say(**fields: object) -> None:
    print(json.dumps(fields), flush=True)


async def run(arguments: list[str]) -> None:
    kind, address, callers, seconds = arguments
    if kind == ORACLE:
        await with_oracle(address, int(callers), float(seconds))
    else:
        await bare(address, float(seconds))


if __name__ == "__main__":
    try:
        uvloop.run(run(sys.argv[1:]))
    except BinlogError as error:
        sys.exit(f"tso load: {error}")
