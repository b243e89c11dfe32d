"""`pump.write.batch`, `pump.write.64k`: durable writes through one `WriteBinlogs` stream.

In turns on one pump: the stream, single writes with 64 in flight, and the same records appended to a file
and synced by nobody but this process, which is the least that durable writes can cost on this disk.
"""

from __future__ import annotations

import asyncio
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.benchmarks.door.children import Child, Round, median, median_round
from tests.benchmarks.door.pumps import FIRST_TS, TS_A_ROUND, Pump, cluster
from tests.benchmarks.door.write import ROUNDS
from tests.benchmarks.measure import cpu_s, peak_rss_mib
from tests.benchmarks.report import Result
from tests.benchmarks.settings import Settings
from tidb_binlog import binlog
from tidb_binlog.record import value_header

SINGLE_IN_FLIGHT: Final = 64


@dataclass(frozen=True, slots=True)
class Shape:
    """What the stream carries: prewrites with values of so many bytes, and their commits."""

    payload_bytes: int
    pairs: int  # a message
    in_flight: int  # messages

    @property
    def group(self) -> list[bytes]:
        """The records of a message."""
        value = os.urandom(self.payload_bytes)
        stamps = range(FIRST_TS, FIRST_TS + self.pairs)
        prewrites = [binlog.prewrite(ts, b"t%020d" % ts, value) for ts in stamps]
        return [*prewrites, *(binlog.commit(ts, ts + 1, b"t%020d" % ts) for ts in stamps)]


SMALL: Final = Shape(payload_bytes=300, pairs=128, in_flight=4)
LARGE: Final = Shape(payload_bytes=1 << 16, pairs=8, in_flight=4)


@dataclass(frozen=True, slots=True)
class Raw:
    """Records appended and synced one group after the other."""

    binlogs_per_s: float
    cpu_us: float


def stream_round(pump: Pump, cluster_id: int, number: int, shape: Shape, seconds: float) -> Round:
    """Latencies are those of a message."""
    with Child(
        *("pump.write_client", pump.address, cluster_id, FIRST_TS + number * TS_A_ROUND, shape.payload_bytes),
        *("--pairs", shape.pairs, "--in-flight", shape.in_flight, "--seconds", seconds),
    ) as client:
        client.said("begin")
        before_s = cpu_s(pump.process.pid)
        seen = client.said("end")
        spent_s = cpu_s(pump.process.pid) - before_s
        client.wait()
    count = seen["binlogs"]
    return Round(
        count / seen["seconds"], spent_s / count * 1e6, seen["p50_ms"], seen["p99_ms"], seen["client_cpu_us"]
    )


def raw_round(path: Path, shape: Shape, seconds: float) -> Raw:
    """Nothing but the bytes: no checksum is computed again, nobody is told."""
    group = shape.group
    octets = b"".join(part for payload in group for part in (value_header(payload), payload))
    count = 0
    with path.open("wb", buffering=0) as file:
        spent_s, began_s = time.process_time(), time.monotonic()
        while time.monotonic() < began_s + seconds:
            file.write(octets)
            os.fdatasync(file.fileno())
            count += len(group)
        took_s, spent_s = time.monotonic() - began_s, time.process_time() - spent_s
    path.unlink()
    return Raw(count / took_s, spent_s / count * 1e6)


@dataclass(frozen=True, slots=True)
class Measured:
    stream: Round
    single: Round
    raw: Raw
    rss_mib: float


async def measure(shape: Shape, settings: Settings) -> Measured:
    seconds = settings.seconds / ROUNDS / 2.5
    streams: list[Round] = []
    singles: list[Round] = []
    raws: list[Raw] = []
    async with cluster(tls=False) as (pumps, cluster_id):
        pump = await pumps.start()
        file = pumps.directory / "raw"
        for number in range(ROUNDS):
            streams.append(
                await asyncio.to_thread(stream_round, pump, cluster_id, 2 * number, shape, seconds)
            )
            singles.append(
                await asyncio.to_thread(pump.round, cluster_id, 2 * number + 1, SINGLE_IN_FLIGHT, seconds)
            )
            raws.append(await asyncio.to_thread(raw_round, file, shape, seconds / 2))
        rss = peak_rss_mib(pump.process.pid)
    raw = Raw(median([one.binlogs_per_s for one in raws]), median([one.cpu_us for one in raws]))
    return Measured(median_round(streams), median_round(singles), raw, rss)


def small(settings: Settings) -> Result:
    found = asyncio.run(measure(SMALL, settings))
    stream, single, raw = found.stream, found.single, found.raw
    return Result(
        name="pump.write.batch",
        value=stream.requests_per_s,
        unit="binlogs/s",
        cpu_us_per_unit=stream.cpu_us,
        p50_ms=stream.p50_ms,
        p99_ms=stream.p99_ms,
        peak_rss_mib=found.rss_mib,
        compared_to=f"CPU of single writes, {SINGLE_IN_FLIGHT} in flight: {single.cpu_us:.1f} us",
        ratio=stream.cpu_us / single.cpu_us,
        note=(
            f"{SMALL.payload_bytes}-byte prewrites and their commits, {2 * SMALL.pairs} a message,"
            f" {SMALL.in_flight} messages in flight, median of {ROUNDS} rounds in turns; single writes"
            f" {single.requests_per_s:,.0f}/s; appending and syncing the same bytes alone"
            f" {raw.binlogs_per_s:,.0f}/s, {raw.cpu_us:.2f} us; client {stream.client_cpu_us:.1f} us of CPU a"
            " binlog; the Go pump has no batches and takes 26 us"
        ),
    )


def large(settings: Settings) -> Result:
    found = asyncio.run(measure(LARGE, settings))
    stream, raw = found.stream, found.raw
    mb = sum(map(len, LARGE.group)) / len(LARGE.group) / 1e6  # a binlog, prewrite or commit
    return Result(
        name="pump.write.64k",
        value=stream.requests_per_s * mb,
        unit="MB/s",
        cpu_us_per_unit=stream.cpu_us / mb,
        p50_ms=stream.p50_ms,
        p99_ms=stream.p99_ms,
        peak_rss_mib=found.rss_mib,
        compared_to=f"the same bytes appended and synced alone, {raw.binlogs_per_s * mb:.0f} MB/s",
        ratio=stream.requests_per_s / raw.binlogs_per_s,
        note=(
            f"64-KiB prewrites and their commits, {2 * LARGE.pairs} a message, {LARGE.in_flight} messages in"
            f" flight, median of {ROUNDS} rounds in turns; CPU is that of a MB, {raw.cpu_us / mb:.0f} us"
            f" alone; client {stream.client_cpu_us / mb:.0f} us a MB; the Go pump on such payloads 215 MB/s"
        ),
    )
