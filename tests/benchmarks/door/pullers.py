"""`door.write.pullers.50`: what writers notice of 50 pullers beside them that are slow or dead.

Half of them never read what they asked for, half read a little now and then; all ask for everything from the
beginning, by the protocol of old drainers. The figure is the writers' p99 with them, beside that without.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from tests.attacks.frames import message
from tests.benchmarks.door.children import Round, median_round
from tests.benchmarks.door.pumps import PAYLOAD_BYTES, cluster
from tests.benchmarks.door.requests import PlainBlocks
from tests.benchmarks.measure import peak_rss_mib, percentile
from tests.benchmarks.report import Result
from tests.benchmarks.settings import Settings
from tidb_binlog.http2 import frames
from tidb_binlog.wire import pump_pb2

NAME: Final = "door.write.pullers.50"
PULL_PATH: Final = "/binlog.Pump/PullBinlogs"
PULLERS: Final = 50
IN_FLIGHT: Final = 8
ROUNDS: Final = 4
RECEIVE_BYTES: Final = 1 << 15
SLOW_BYTES: Final = 4096
SLOW_PAUSE_S: Final = 0.1


def open_puller(address: str, cluster_id: int) -> socket.socket:
    """A connection with one pull stream, of which nothing is read."""
    host, _, port = address.rpartition(":")
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BYTES)
    connection.connect((host, int(port)))
    request = pump_pb2.PullBinlogReq(clusterID=cluster_id).SerializeToString()
    block = PlainBlocks(PULL_PATH, address, "http").first
    connection.sendall(
        frames.PREFACE
        + frames.settings({})
        + frames.SETTINGS_ACK
        + frames.frame(frames.HEADERS, frames.END_HEADERS, 1, block)
        + frames.frame(frames.DATA, frames.END_STREAM, 1, message(request))
    )
    return connection


@contextmanager
def pullers(address: str, cluster_id: int) -> Iterator[None]:
    """All of them, until the end of the block."""
    connections = [open_puller(address, cluster_id) for _ in range(PULLERS)]
    ended = threading.Event()

    def read_slowly() -> None:
        while not ended.wait(SLOW_PAUSE_S):
            for connection in connections[::2]:
                got = len(connection.recv(SLOW_BYTES))
                increment = frames.window_update(0, got) + frames.window_update(1, got)
                connection.sendall(increment if got else b"")

    reader = threading.Thread(target=read_slowly, daemon=True)
    reader.start()
    try:
        yield
    finally:
        ended.set()
        reader.join()
        for connection in connections:
            connection.close()


async def measure(settings: Settings) -> Result:
    seconds = settings.seconds / ROUNDS / 2
    alone: list[Round] = []
    beside: list[Round] = []
    async with cluster(tls=False) as (pumps, cluster_id):
        pump = await pumps.start()
        # Something to pull, more than windows and buffers hold.
        await asyncio.to_thread(pump.round, cluster_id, 0, 64, 1.0)
        for number in range(ROUNDS):
            alone.append(await asyncio.to_thread(pump.round, cluster_id, 2 * number + 1, IN_FLIGHT, seconds))
            with pullers(pump.address, cluster_id):
                beside.append(
                    await asyncio.to_thread(pump.round, cluster_id, 2 * number + 2, IN_FLIGHT, seconds)
                )
        rss = peak_rss_mib(pump.process.pid)
    with_them = percentile([one.p99_ms for one in beside], 0.5)
    without = percentile([one.p99_ms for one in alone], 0.5)
    middle = median_round(beside)
    return Result(
        name=NAME,
        value=middle.requests_per_s,
        unit="requests/s",
        cpu_us_per_unit=middle.cpu_us,
        p50_ms=middle.p50_ms,
        p99_ms=with_them,
        peak_rss_mib=rss,
        compared_to=f"p99 without pullers, {without:.2f} ms",
        ratio=with_them / without,
        note=(
            f"{PAYLOAD_BYTES}-byte prewrites and their commits, {IN_FLIGHT} in flight, median of {ROUNDS}"
            f" rounds in turns; CPU with what the pullers cost;"
            f" alone {median_round(alone).requests_per_s:,.0f}/s"
        ),
    )


def run(settings: Settings) -> Result:
    return asyncio.run(measure(settings))
