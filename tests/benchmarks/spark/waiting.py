"""`spark.live.memory`: the most memory that the driver of a stream has while a Pump has what it has not read.

The driver is `binlog-spark stream --once` and its JVM; one executor has a JVM of its own, as on a cluster.
What waits are updates of the same few rows, so that the downstream is not what limits it. Contents are
verified.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

from binlog_playground.cluster.mariadb import MariaDbServer
from tests.benchmarks.drainer.draining import filled, reset, verify
from tests.benchmarks.drainer.workloads import Backlog
from tests.benchmarks.measure import peak_rss_mib
from tests.benchmarks.report import Result
from tests.benchmarks.settings import Settings
from tidb_binlog.errors import Unavailable

CHANGES: Final = 10_000_000
TEXT_BYTES: Final = 40
ASKED_MIB: Final = 600.0
_SAMPLE_S: Final = 0.2


def _peaks(command: list[str], variables: dict[str, str]) -> tuple[float, float]:
    """Of the process and of its JVM, MiB, until it ends. Raises `Unavailable` if it fails."""
    own = jvm = 0.0
    with subprocess.Popen(command, env=variables, stdout=subprocess.DEVNULL) as process:
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        while process.poll() is None:
            with contextlib.suppress(OSError, Unavailable):  # it has just ended
                own = max(own, peak_rss_mib(process.pid))
                jvm = max([jvm, *map(peak_rss_mib, children.read_text().split())])
            time.sleep(_SAMPLE_S)
    if process.returncode:
        raise Unavailable(f"the stream ended with {process.returncode}")
    return own, jvm


def _stream(pd_urls: str, server: MariaDbServer) -> tuple[list[str], dict[str, str]]:
    to = f"mysql://{server.user}@{server.host}:{server.port}/"
    options = ["--from", f"pumps://{pd_urls}", "--to", to, "--start", "1", "--once"]
    command = [
        sys.executable,
        "-m",
        "drainer.spark",
        "stream",
        *options,
        "--master",
        "local-cluster[1,1,1024]",
    ]
    return command, os.environ | {"BINLOG_SPARK_PASSWORD": server.password}


async def measure(settings: Settings) -> Result:
    backlog = Backlog(rows=CHANGES, text_bytes=TEXT_BYTES)
    async with filled(backlog.scenario, more=backlog) as bench:
        server = bench.cluster.mariadb
        reset(server, backlog.scenario)
        began_s = time.monotonic()
        own, jvm = await asyncio.to_thread(_peaks, *_stream(bench.cluster.etcd_endpoint, server))
        seconds = time.monotonic() - began_s
        verify(server, backlog.scenario)
    return Result(
        name="spark.live.memory",
        value=own + jvm,
        unit="MiB",
        peak_rss_mib=own + jvm,
        compared_to=f"asked, {ASKED_MIB:.0f} MiB",
        ratio=(own + jvm) / ASKED_MIB,
        note=f"driver: Python {own:.0f}, JVM {jvm:.0f} MiB; {backlog.rows:,} changes waited in one Pump, read"
        f" by one executor in {seconds:.0f} s",
    )


def run(settings: Settings) -> Result:
    return asyncio.run(measure(settings))
