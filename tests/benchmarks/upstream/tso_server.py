"""A fake PD that only hands out timestamps, as a process of its own, until SIGTERM.

    python -m tests.benchmarks.upstream.tso_server

Prints {"event": "listening", "port": N}.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys

import uvloop

from tests.fakes.cluster import FakeCluster
from tests.fakes.pd import FakePd
from tidb_binlog.clock import ManualClock, SystemClock
from tidb_binlog.errors import BinlogError


class _Running(ManualClock):
    """The machine's clock in the cluster's place for one that is moved by hand."""

    wall_s = staticmethod(SystemClock.wall_s)  # type: ignore[assignment]


async def run() -> None:
    pd = await FakePd.start(FakeCluster(clock=_Running()))
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    print(json.dumps({"event": "listening", "port": pd.members[0].port}), flush=True)
    await stopped.wait()
    await pd.close()


if __name__ == "__main__":
    try:
        uvloop.run(run())
    except BinlogError as error:
        sys.exit(f"tso server: {error}")
