"""`door.idle.1000`: what 1,000 connections cost that said hello and no more, in clear text and with TLS."""

from __future__ import annotations

import resource
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Final

from tests.attacks.session import Session
from tests.benchmarks.door.children import server
from tests.benchmarks.door.server import DOOR, GRPCIO
from tests.benchmarks.measure import cpu_s, peak_rss_mib
from tests.benchmarks.report import Result
from tests.benchmarks.settings import Settings
from tidb_binlog.errors import Unavailable

NAME: Final = "door.idle.1000"
CONNECTIONS: Final = 1000
PER_ADDRESS: Final = 500
WARM_UP: Final = 10
PATIENCE_S: Final = 120.0


@dataclass(frozen=True, slots=True)
class Crowd:
    grown_mib: float
    cpu_s: float
    peak_mib: float


def crowd(kind: str, tls: bool) -> Crowd:
    with server(kind, tls=tls) as one, ExitStack() as stack:

        def connect(number: int) -> None:
            # No more from one address than a door takes.
            target = replace(one.target, source=f"127.0.0.{2 + number // PER_ADDRESS}")
            session = stack.enter_context(Session(target, PATIENCE_S, 1))
            session.until_acknowledged()
            if session.ended:
                raise Unavailable(f"connection {number} was not taken: {session.outcome()}")

        for number in range(WARM_UP):
            connect(number)
        before_mib, before_s = one.rss_mib(), cpu_s(one.pid)
        for number in range(CONNECTIONS):
            connect(number)
        return Crowd(one.rss_mib() - before_mib, cpu_s(one.pid) - before_s, peak_rss_mib(one.pid))


def run(settings: Settings) -> list[Result]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < 4 * CONNECTIONS:
        # The servers inherit it.
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4 * CONNECTIONS), hard))
    return [
        _result(name, crowd(DOOR, tls), crowd(GRPCIO, tls))
        for name, tls in ((NAME, False), (f"{NAME}.tls", True))
    ]


def _result(name: str, ours: Crowd, other: Crowd) -> Result:
    return Result(
        name=name,
        value=ours.grown_mib,
        unit="MiB",
        cpu_us_per_unit=ours.cpu_s / CONNECTIONS * 1e6,
        peak_rss_mib=ours.peak_mib,
        compared_to=f"grpcio's server, {other.grown_mib:.1f} MiB",
        ratio=ours.grown_mib / other.grown_mib,
        note=(
            f"{ours.grown_mib / CONNECTIONS * 1024:.1f} KiB a connection; CPU is that of one connect,"
            f" {other.cpu_s / CONNECTIONS * 1e6:.0f} us with grpcio"
        ),
    )
