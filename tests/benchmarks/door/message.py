"""`door.message.1gib`: one message of 1 GiB to the server and one from it, a polite client beside them.

grpcio's server is measured with a quarter of it: it needs four times a message's memory.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Final

from tests.benchmarks.door.children import Child, Server, forget_peak, memory_mib, server
from tests.benchmarks.door.server import DOOR, GRPCIO
from tests.benchmarks.measure import cpu_s, percentile
from tests.benchmarks.report import Result
from tests.benchmarks.settings import Settings

NAME: Final = "door.message.1gib"
MIB: Final = 1 << 20
MESSAGE_MIB: Final = 1024
OTHER_MIB: Final = 256
EVERY_MS: Final = 5


@dataclass(frozen=True, slots=True)
class Transfer:
    seconds: float
    cpu_s: float
    above_idle_mib: float
    peak_mib: float
    polite_p99_s: float
    stall_s: float
    failed: int


def transfer(target: Server, what: str, mib: int) -> Transfer:
    """`what` is send or take, as `door.bulk` knows it."""
    try:
        forget_peak(target.pid)
    except OSError:
        print("VmHWM cannot be reset here: peaks include what came before", file=sys.stderr)
    idle_mib = target.rss_mib()
    with Child("door.polite", target.address, "--every-ms", EVERY_MS) as polite:
        polite.said("begin")
        before_s = cpu_s(target.pid)
        with Child("door.bulk", target.address, what, mib * MIB) as bulk:
            bulk.said("begin")
            seen = bulk.said("end")
            bulk.wait()
        spent_s = cpu_s(target.pid) - before_s
        polite.end_of_input()
        calls = polite.said("end")
    latencies = [took_s for _, took_s in calls["calls"]]
    peak = memory_mib(target.pid, "VmHWM")
    return Transfer(
        seen["seconds"],
        spent_s,
        peak - idle_mib,
        peak,
        percentile(latencies, 0.99),
        max(latencies),
        len(calls["failed"]),
    )


def prepare(target: Server, mib: int) -> None:
    """The message that the server will send is made, and is not part of what sending costs."""
    with Child("door.bulk", target.address, "make", mib * MIB) as bulk:
        bulk.said("begin")
        bulk.said("end")


def measure(kind: str, mib: int) -> dict[str, Transfer]:
    """In a process for each direction: memory left behind by the first would hide what the second takes."""
    with server(kind) as fresh:
        sent = transfer(fresh, "send", mib)
    with server(kind) as fresh:
        prepare(fresh, mib)
        return {"in": sent, "out": transfer(fresh, "take", mib)}


def run(settings: Settings) -> list[Result]:
    door, grpcio = measure(DOOR, MESSAGE_MIB), measure(GRPCIO, OTHER_MIB)
    return [_result(way, door[way], grpcio[way]) for way in ("in", "out")]


def _result(way: str, ours: Transfer, other: Transfer) -> Result:
    other_cpu_s = other.cpu_s * MESSAGE_MIB / OTHER_MIB
    return Result(
        name=f"{NAME}.{way}",
        value=MESSAGE_MIB / ours.seconds,
        unit="MiB/s",
        cpu_us_per_unit=ours.cpu_s / MESSAGE_MIB * 1e6,
        p99_ms=ours.polite_p99_s * 1000,
        peak_rss_mib=ours.peak_mib,
        compared_to=f"CPU of grpcio's server, {other_cpu_s:.1f} s a GiB",
        ratio=ours.cpu_s / other_cpu_s,
        note=(
            f"{ours.seconds:.1f} s, {ours.cpu_s:.1f} s of CPU, peak {ours.above_idle_mib:,.0f} MiB above idle"
            f"; p99 is that of a polite client, its largest stall {ours.stall_s * 1000:.0f} ms,"
            f" {ours.failed} calls failed; grpcio: {OTHER_MIB} MiB, {OTHER_MIB / other.seconds:.0f} MiB/s,"
            f" {other.above_idle_mib / OTHER_MIB:.2f} times the message above idle, largest stall"
            f" {other.stall_s * 1000:.0f} ms"
        ),
    )
