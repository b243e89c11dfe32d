"""`file.s3`: what an archive in S3 costs a drainer against one on its disk.

A pump full of binlogs, drainers that archive all of it, into S3 (moto, on this machine) and into a directory
in turns. The cost is the CPU of a drainer from its start until all is archived, and in S3 uploaded, without
that of a start that has nothing to do. Both archives are read again and compared with what they are to be.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import tempfile
import time
from pathlib import Path
from typing import Final

from binlog_playground.cluster.cluster import Cluster
from binlog_playground.replay import Replay
from binlog_playground.scenario import Scenario
from tests.benchmarks.drainer import workloads
from tests.benchmarks.drainer.file_sink import PUMP, replayed, verify
from tests.benchmarks.drainer.stored import fill
from tests.benchmarks.measure import StatusPage, cpu_s, peak_rss_mib, percentile
from tests.benchmarks.report import Result
from tests.benchmarks.settings import Settings, private_cluster
from tests.object_store import ObjectStore, moto
from tidb_binlog.errors import Unavailable

ROUNDS: Final = 3
LIMIT: Final = 1.15
ROWS: Final = 480_000
SAMPLE_S: Final = 0.2  # an answer costs a drainer as much as a hundred changes
DEADLINE_S: Final = 120.0
_numbers = itertools.count()


async def _life(cluster: Cluster, scenario: Scenario, name: str, to: str) -> tuple[float, float, float]:
    """CPU until all is archived, seconds, and peak memory of one life."""
    began_s = time.monotonic()
    node = await cluster.start_archiver(name, to)
    page = StatusPage(node.status_url)
    try:
        while int((await asyncio.to_thread(page.document)).get("AppliedTS", 0)) < scenario.last_commit_ts:
            if time.monotonic() - began_s > DEADLINE_S:
                raise Unavailable("the archive is not whole in time", hint=node.process.tail(2))
            await asyncio.sleep(SAMPLE_S)
        cost = cpu_s(node.process.pid), time.monotonic() - began_s, peak_rss_mib(node.process.pid)
    finally:
        page.close()
        await asyncio.to_thread(node.process.stop)
    return cost


async def _archived(cluster: Cluster, scenario: Scenario, name: str, to: str) -> tuple[float, float, float]:
    """The same without what a start costs."""
    cpu, seconds, peak = await _life(cluster, scenario, name, to)
    idle_cpu, idle_s, _ = await _life(cluster, scenario, name, to)
    return cpu - idle_cpu, seconds - idle_s, peak


def _changes(directory: Path, scenario: Scenario) -> int:
    tables, changes = replayed(directory)
    verify(tables, scenario.checksums)
    return changes


async def _measured(scenario: Scenario, s3_port: int) -> Result:
    here: list[tuple[float, float, float]] = []
    there: list[tuple[float, float, float]] = []
    async with private_cluster() as cluster:
        upstream = await cluster.start_base(scenario.cluster_id)
        await Replay.prepare(scenario, upstream)
        (records,) = scenario.files
        await fill(cluster.directory / PUMP, PUMP, scenario.cluster_id, records)
        await upstream.oracle.pin(scenario.last_commit_ts + 1)
        await cluster.start_pumps(1)
        for _ in range(ROUNDS):
            s3, number = ObjectStore.empty(s3_port), next(_numbers)
            os.environ.update(s3.environ)
            to = f'[syncer.to]\ndir = "{s3.uri("archive")}"\nupload-interval = "1s"'
            there.append(await _archived(cluster, scenario, f"there-{number}", to))
            copy = cluster.directory / f"copy-{number}"
            copy.mkdir()
            for name, data in s3.objects().items():
                if name.startswith("archive/binlog-"):
                    (copy / name.removeprefix("archive/")).write_bytes(data)
            here.append(await _archived(cluster, scenario, f"here-{number}", ""))
            changes = _changes(copy, scenario)
            assert _changes(cluster.directory / f"here-{number}", scenario) == changes
    local, remote = (percentile([cpu for cpu, _, _ in lives], 0.5) / changes * 1e6 for lives in (here, there))
    seconds = percentile([seconds for _, seconds, _ in there], 0.5)
    return Result(
        name="file.s3",
        value=changes / seconds,
        unit="changes/s",
        cpu_us_per_unit=remote,
        peak_rss_mib=max(peak for _, _, peak in there),
        compared_to=f"CPU of an archive on disk, {local:.1f} us a change; at most {LIMIT:.2f} of it is asked",
        ratio=remote / local,
        note=(
            f"INSERTs, {workloads.INSERTS_A_TRANSACTION} a transaction, {changes:,} row changes,"
            f" {ROUNDS} rounds in turns, starts not counted; contents of both verified"
        ),
    )


def s3(settings: Settings) -> Result:
    with tempfile.TemporaryDirectory() as name, moto(Path(name)) as port:
        return asyncio.run(_measured(workloads.inserts(ROWS), port))
