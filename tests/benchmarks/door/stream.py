"""`door.stream.64k`: a server stream of messages of 64 KiB to a client that discards them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from tests.benchmarks.door.children import Child, Server, median, server
from tests.benchmarks.door.server import DOOR, GRPCIO
from tests.benchmarks.measure import cpu_s, peak_rss_mib
from tests.benchmarks.report import Result
from tests.benchmarks.settings import Settings

NAME: Final = "door.stream.64k"
MESSAGE_BYTES: Final = 1 << 16
ROUNDS: Final = 3


@dataclass(frozen=True, slots=True)
class Flow:
    mb_per_s: float
    cpu_us: float


def flow(target: Server, seconds: float) -> Flow:
    """Once more where a busy machine asks for the server's CPU when all has been sent."""
    while True:
        seen, spent_s = _flow(target, seconds)
        if spent_s:
            return Flow(seen["octets"] / seen["seconds"] / 1e6, spent_s / seen["messages"] * 1e6)


def _flow(target: Server, seconds: float) -> tuple[dict[str, Any], float]:
    with Child("door.bulk", target.address, *target.tls_arguments, "flow", MESSAGE_BYTES, seconds) as bulk:
        bulk.said("begin")
        bulk.said("flowing")
        before_s = cpu_s(target.pid)
        seen = bulk.said("end")
        spent_s = cpu_s(target.pid) - before_s
        bulk.wait()
    return seen, spent_s


def run(settings: Settings) -> list[Result]:
    return [_measure(name, tls, settings) for name, tls in ((NAME, False), (f"{NAME}.tls", True))]


def _measure(name: str, tls: bool, settings: Settings) -> Result:
    seconds = settings.seconds / ROUNDS / 3
    ours: list[Flow] = []
    other: list[Flow] = []
    with server(DOOR, tls=tls) as door, server(GRPCIO, tls=tls) as grpcio:
        for _ in range(ROUNDS):
            ours.append(flow(door, seconds))
            other.append(flow(grpcio, seconds))
        rss = peak_rss_mib(door.pid)
    cost = median([one.cpu_us for one in ours])
    other_cost = median([one.cpu_us for one in other])
    return Result(
        name=name,
        value=median([one.mb_per_s for one in ours]),
        unit="MB/s",
        cpu_us_per_unit=cost,
        peak_rss_mib=rss,
        compared_to=f"CPU of a message with grpcio's server, {other_cost:.0f} us",
        ratio=cost / other_cost,
        note=(
            f"CPU is that of one message, median of {ROUNDS} rounds in turns;"
            f" grpcio {median([one.mb_per_s for one in other]):.0f} MB/s"
        ),
    )
