"""`door.empty.unary.64`: calls without content, the server alone; clients with and without deadlines."""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from tests.benchmarks.door.children import Round, forget_peak, load_round, median_round, server
from tests.benchmarks.door.requests import NEW, USUAL
from tests.benchmarks.door.server import DOOR, GRPCIO
from tests.benchmarks.measure import peak_rss_mib
from tests.benchmarks.report import Result
from tests.benchmarks.settings import Settings

NAME: Final = "door.empty.unary.64"
IN_FLIGHT: Final = 64
ROUNDS: Final = 3
KINDS: Final = {"": NAME, USUAL: f"{NAME}.deadlines", NEW: f"{NAME}.deadlines.all_new"}


def run(settings: Settings) -> list[Result]:
    seconds = settings.seconds / ROUNDS / 4
    with server(DOOR) as door, server(GRPCIO) as grpcio:
        rounds: dict[tuple[str, str], list[Round]] = {}
        peaks = dict.fromkeys(KINDS, 0.0)
        for _ in range(ROUNDS):
            for deadlines in KINDS:
                with suppress(OSError):  # where it is not allowed, the peak is that of all kinds so far
                    forget_peak(door.pid)
                for kind, one in ((DOOR, door), (GRPCIO, grpcio)):
                    options = ("--deadlines", deadlines) if deadlines else ()
                    measured = load_round(
                        one.pid, one.address, "--in-flight", IN_FLIGHT, "--seconds", seconds, *options
                    )
                    rounds.setdefault((kind, deadlines), []).append(measured)
                peaks[deadlines] = max(peaks[deadlines], peak_rss_mib(door.pid))
    return [
        _result(name, rounds[DOOR, deadlines], rounds[GRPCIO, deadlines], peaks[deadlines])
        for deadlines, name in KINDS.items()
    ]


def _result(name: str, door: list[Round], grpcio: list[Round], rss: float) -> Result:
    ours, other = median_round(door), median_round(grpcio)
    return Result(
        name=name,
        value=ours.requests_per_s,
        unit="requests/s",
        cpu_us_per_unit=ours.cpu_us,
        p50_ms=ours.p50_ms,
        p99_ms=ours.p99_ms,
        peak_rss_mib=rss,
        compared_to=f"CPU with grpcio's server, {other.cpu_us:.0f} us",
        ratio=ours.cpu_us / other.cpu_us,
        note=(
            f"median of {ROUNDS} rounds in turns; grpcio {other.requests_per_s:,.0f}/s, p50"
            f" {other.p50_ms:.2g} ms, p99 {other.p99_ms:.2g} ms; client {ours.client_cpu_us:.1f} us of CPU"
            f" a call"
        ),
    )
