"""`lag.verify`: how far a Drainer is behind while `binlogctl verify` compares all of its tables at the pace
that it has by default, beside how far it is without.

A program writes a probe into its own database and publishes it, up to twenty times a second; a lag is the
time from its COMMIT until the row is seen downstream. Spells with and without the comparison take turns; each
comparison has to find both sides equal.
"""

from __future__ import annotations

import asyncio
import sys
import time
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from random import Random
from typing import Final

from pumpclient import column
from pumpclient.publish.publisher import Publisher, open_publisher
from tests.benchmarks.drainer.lag import Reader
from tests.benchmarks.existing_rows import SCHEMA, Existing, existing
from tests.benchmarks.measure import cpu_s, peak_rss_mib, percentile
from tests.benchmarks.report import Result
from tests.benchmarks.settings import Settings
from tests.rig.workload.application import Application
from tidb_binlog.errors import DownstreamError

TABLES: Final = 2
ROWS: Final = 150_000
PROBES: Final = f"{SCHEMA}.probes"
INTERVAL_S: Final = 0.05
SPELLS: Final = 3
SETTLE_S: Final = 1.0
WANTED: Final = 2.0


@dataclass(slots=True)
class Lags:
    """Milliseconds of each probe. `compared`: how often all tables were."""

    without_ms: list[float]
    with_ms: list[float]
    compared: int = 0
    drainer_cpu_s: float = 0.0
    peak_rss_mib: float = 0.0


class Program:
    """Writes a row, and publishes it."""

    def __init__(self, application: Application, publisher: Publisher) -> None:
        self._application = application
        self._publisher = publisher
        self._random = Random(1)
        self._number = 0

    async def create(self) -> None:
        self._application.alter("CREATE TABLE probes (id BIGINT NOT NULL PRIMARY KEY)")
        columns = [column("id", "bigint", nullable=False)]
        await self._publisher.create_table(PROBES, columns, primary_key=["id"])

    async def probes_ms(self, reader: Reader, seconds: float) -> list[float]:
        found, ends_s = [], time.monotonic() + seconds
        while time.monotonic() < ends_s:
            self._number += 1
            committed_s = await self._write(self._number)
            seen_s = await asyncio.to_thread(reader.seen_s, self._number)
            found.append((seen_s - committed_s) * 1000)
            await asyncio.sleep(INTERVAL_S * (0.5 + self._random.random()))
        return found

    async def _write(self, number: int) -> float:
        """When it was committed."""
        transaction = self._publisher.transaction()
        await transaction.begin()
        with self._application.session() as session:
            session.run(b"INSERT INTO %b VALUES (%d)" % (PROBES.encode(), number))
            self._application.outcomes.mark(session, transaction.start_ts)
            transaction.insert(PROBES, {"id": number})
            await transaction.prepare()
            session.commit()
        committed_s = time.monotonic()
        await transaction.commit()
        return committed_s


def run(settings: Settings) -> Result:
    lags = asyncio.run(measure(settings.seconds))
    without, beside = percentile(lags.without_ms, 0.99), percentile(lags.with_ms, 0.99)
    return Result(
        name="lag.verify",
        value=beside,
        unit="ms",
        p50_ms=percentile(lags.with_ms, 0.5),
        p99_ms=beside,
        peak_rss_mib=lags.peak_rss_mib,
        compared_to=f"without, p50 {percentile(lags.without_ms, 0.5):.1f} ms, p99 {without:.1f} ms",
        ratio=beside / without,
        note=(
            f"{len(lags.with_ms)} probes beside {lags.compared} comparisons of {TABLES * ROWS:,} rows,"
            f" {len(lags.without_ms)} without; wanted: at most {WANTED:g} x the p99"
        ),
    )


async def measure(seconds: float) -> Lags:
    lags = Lags([], [])
    async with existing(TABLES, ROWS) as made:
        application = Application(made.upstream, SCHEMA)
        try:
            endpoint = made.cluster.etcd_endpoint
            async with await open_publisher(endpoint, outcomes=application.outcomes) as publisher:
                program = Program(application, publisher)
                await program.create()
                await _ctl(made, "load")
                drainer = await made.cluster.begin_drainer(made.drainer)
                reader = Reader(made.downstream, PROBES)
                try:
                    await program.probes_ms(reader, SETTLE_S)
                    for _ in range(SPELLS):
                        lags.without_ms += await program.probes_ms(reader, seconds / SPELLS)
                        async with _comparing(made, lags):
                            lags.with_ms += await program.probes_ms(reader, seconds / SPELLS)
                finally:
                    reader.close()
                lags.drainer_cpu_s = cpu_s(drainer.process.pid)
                lags.peak_rss_mib = peak_rss_mib(drainer.process.pid)
        finally:
            application.close()
    return lags


@asynccontextmanager
async def _comparing(made: Existing, lags: Lags) -> AsyncIterator[None]:
    """One comparison after the other, up to the end of the last one that was begun."""
    stop = asyncio.Event()

    async def compare() -> None:
        while not stop.is_set():
            await _ctl(made, "verify", "-state", "none")
            lags.compared += 1

    task = asyncio.create_task(compare())
    try:
        yield
    finally:
        stop.set()
        await task


async def _ctl(made: Existing, *arguments: str) -> None:
    """Raises `DownstreamError` where it does not end with 0."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "binlogctl", *arguments, "-drainer-config", str(made.config)),
        stdout=DEVNULL,
        stderr=PIPE,
    )
    _, said = await process.communicate()
    if process.returncode:
        raise DownstreamError(
            f"{arguments[0]} ended with {process.returncode}: {said.decode().strip()[-300:]}"
        )
