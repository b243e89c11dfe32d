"""`pump.memory.open`: memory of a pump to which a million prewrites come that nobody ends.

Beyond its bound the pump refuses them, with a reason; what it took is rolled back by the first that asks, so
that the watermark goes on. Meanwhile `/status` is asked all the time: what it takes is what the event loop is
kept from by whatever else it does.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import grpc

from binlog_playground.cluster.cluster import Node
from tests.benchmarks.measure import StatusPage, cpu_s, peak_rss_mib, percentile
from tests.benchmarks.pump.nodes import pump_nodes
from tests.benchmarks.pump.prepared import CLUSTER_ID
from tests.benchmarks.report import Result
from tests.benchmarks.settings import Settings
from tidb_binlog import binlog
from tidb_binlog.errors import Corruption, Unavailable
from tidb_binlog.wire import pump_pb2

NAME: Final = "pump.memory.open"
ASKED_MIB: Final = 400
COUNT: Final = 1_000_000
MESSAGE: Final = 1000
IN_FLIGHT: Final = 16
SETTLED_S: Final = 600.0


@dataclass(slots=True)
class Flood:
    """What became of prewrites that were sent over one stream. `text`: of the first refusal."""

    answered: int = 0
    refused: int = 0
    text: str = ""
    _space: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(IN_FLIGHT))

    def send(self, address: str, cluster_id: int, first_ts: int, count: int, message: int = MESSAGE) -> None:
        """Until all are answered."""
        with grpc.insecure_channel(address) as channel:
            write = channel.stream_stream("/binlog.PumpBatch/WriteBinlogs")
            for data in write(self._requests(cluster_id, first_ts, count, message), timeout=SETTLED_S):
                answer = pump_pb2.WriteBinlogsResp.FromString(data)
                self._space.release((answer.answered - self.answered) // message)
                self.answered = answer.answered
                self.refused += len(answer.failures)
                self.text = self.text or next((failure.text for failure in answer.failures), "")

    def _requests(self, cluster_id: int, first_ts: int, count: int, message: int) -> Iterator[bytes]:
        for at in range(first_ts, first_ts + count, message):
            self._space.acquire()
            payloads = [binlog.prewrite(ts, b"t%d" % ts, b"value") for ts in range(at, at + message)]
            yield pump_pb2.WriteBinlogsReq(cluster_id=cluster_id, payloads=payloads).SerializeToString()


class Asking:
    """`/status` and what it took, again and again."""

    def __init__(self, url: str) -> None:
        self._page = StatusPage(url)
        self.seconds: list[float] = []
        self.open_most = 0

    def once(self) -> dict[str, Any]:
        began_s = time.monotonic()
        found: dict[str, Any] = self._page.document()["pump"]
        self.seconds.append(time.monotonic() - began_s)
        self.open_most = max(self.open_most, found["open_prewrites"])
        return found

    def until_settled(self, flooding: threading.Thread) -> float:
        """Seconds from the end of the flood until none is open. Raises `Unavailable`."""
        end_s = 0.0
        while True:
            found = self.once()
            if not flooding.is_alive():
                end_s = end_s or time.monotonic()
                if not found["open_prewrites"]:
                    return time.monotonic() - end_s
                if time.monotonic() > end_s + SETTLED_S:
                    raise Unavailable(f"{found['open_prewrites']} prewrites are open after {SETTLED_S:g} s")
            time.sleep(0.02)


def measure(node: Node, first_ts: int) -> tuple[Flood, Asking, float]:
    flood, asking = Flood(), Asking(node.status_url)
    flooding = threading.Thread(target=flood.send, args=(node.address, CLUSTER_ID, first_ts, COUNT))
    flooding.start()
    settled_s = asking.until_settled(flooding)
    flooding.join()
    if flood.answered != COUNT or not flood.text.startswith("too many open prewrites"):
        raise Corruption(f"{flood.answered} of {COUNT} prewrites were answered, refused with {flood.text!r}")
    return flood, asking, settled_s


async def run_async(settings: Settings) -> Result:
    async with pump_nodes(clock_stands=False) as nodes:
        node = nodes.start("pump")
        before_s = cpu_s(node.process.pid)
        first_ts = await nodes.upstream.oracle.timestamp() - COUNT
        flood, asking, settled_s = await asyncio.to_thread(measure, node, first_ts)
        peak_mib, spent_s = peak_rss_mib(node.process.pid), cpu_s(node.process.pid) - before_s
    taken = flood.answered - flood.refused
    return Result(
        name=NAME,
        value=peak_mib,
        unit="MiB",
        cpu_us_per_unit=spent_s / COUNT * 1e6,
        p50_ms=percentile(asking.seconds, 0.5) * 1000,
        p99_ms=percentile(asking.seconds, 0.99) * 1000,
        peak_rss_mib=peak_mib,
        compared_to=f"asked, {ASKED_MIB} MiB",
        ratio=peak_mib / ASKED_MIB,
        note=(
            f"{COUNT:,} prewrites that nobody ends: {taken:,} taken, {asking.open_most:,} open at once, the"
            f" others refused ({flood.text.partition(';')[0]}); all rolled back {settled_s:.0f} s after the"
            f" last came; ms are of /status meanwhile, at most {max(asking.seconds) * 1000:.0f}"
        ),
    )


def run(settings: Settings) -> Result:
    return asyncio.run(run_async(settings))
