"""`door.hostile`: each attack of `tests.attacks` against a server of its own, a polite client beside it.

    python -m tests.benchmarks.door_hostile door|grpcio [--seconds S] [ATTACK...]

runs them alone, also against grpcio's server.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import dataclass
from typing import Final

from rich.console import Console

from common.errors import BinlogError
from tests.attacks.catalog import ATTACKS, FRAMES_MAX, TLS_ONLY
from tests.attacks.session import Outcome
from tests.benchmarks.door_children import KINDS, Child, forget_peak, memory_mib, server
from tests.benchmarks.door_server import DOOR
from tests.benchmarks.measure import cpu_s, percentile
from tests.benchmarks.report import Result, print_table
from tests.benchmarks.settings import Settings

NAME: Final = "door.hostile"
SHARE: Final = 6
"""An attack lasts a share of the measured time at most: there are many."""
AT_REST_S: Final = 0.4
EVERY_MS: Final = 5


@dataclass(frozen=True, slots=True)
class Siege:
    outcome: Outcome
    rest_p99_s: float
    p50_s: float
    p99_s: float
    stall_s: float
    failed: int
    grown_mib: float
    peak_mib: float
    cpu_s: float
    died: bool


def siege(kind: str, name: str, seconds: float) -> Siege:
    """One attack: at rest for a moment, then under attack."""
    with (
        server(kind, tls=name in TLS_ONLY) as one,
        Child("door_polite", one.address, "--every-ms", EVERY_MS, *one.tls_arguments) as polite,
    ):
        polite.said("begin")
        time.sleep(AT_REST_S)
        try:
            forget_peak(one.pid)
        except OSError:
            pass  # the peak includes the start, which is small
        before_mib, before_cpu_s, began_s = one.rss_mib(), cpu_s(one.pid), time.monotonic()
        outcome = ATTACKS[name](one.target, seconds, FRAMES_MAX)
        ended_s = time.monotonic()
        died = not one.child.is_running
        peak = before_mib if died else memory_mib(one.pid, "VmHWM")
        spent_s = 0.0 if died else cpu_s(one.pid) - before_cpu_s
        polite.end_of_input()
        seen = polite.said("end")
    rest = [took_s for sent_s, took_s in seen["calls"] if sent_s < began_s]
    # An attack that is over at once leaves the server with what is left of it: look a moment longer.
    until_s = max(ended_s, began_s + AT_REST_S)
    under = [took_s for sent_s, took_s in seen["calls"] if began_s <= sent_s <= until_s] or [0.0]
    failed = sum(at_s >= began_s for at_s in seen["failed"])
    return Siege(
        outcome,
        percentile(rest, 0.99),
        percentile(under, 0.5),
        percentile(under, 0.99),
        max(under),
        failed,
        peak - before_mib,
        peak,
        spent_s,
        died,
    )


def result(name: str, seen: Siege) -> Result:
    died = "the server DIED; " if seen.died else ""
    per_frame = seen.cpu_s / seen.outcome.frames_sent * 1e6 if seen.outcome.frames_sent else None
    return Result(
        name=f"{NAME}.{name}",
        value=seen.grown_mib,
        unit="MiB more",
        cpu_us_per_unit=per_frame,
        p50_ms=seen.p50_s * 1000,
        p99_ms=seen.p99_s * 1000,
        peak_rss_mib=seen.peak_mib,
        compared_to=f"polite p99 at rest, {seen.rest_p99_s * 1000:.2g} ms",
        ratio=seen.p99_s / seen.rest_p99_s,
        note=(
            f"{died}{seen.outcome}; polite client: largest stall {seen.stall_s * 1000:.0f} ms,"
            f" {seen.failed} failed calls"
        ),
    )


def run(settings: Settings) -> list[Result]:
    return [result(name, siege(DOOR, name, settings.seconds / SHARE)) for name in ATTACKS]


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.benchmarks.door_hostile", allow_abbrev=False)
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("--seconds", type=float, default=6.0)
    parser.add_argument("names", nargs="*", metavar="ATTACK", help=", ".join(ATTACKS))
    chosen = parser.parse_args()
    if unknown := set(chosen.names) - set(ATTACKS):
        parser.error(f"no attack {sorted(unknown)[0]!r}")
    results = []
    for name in chosen.names or ATTACKS:
        try:
            results.append(result(name, siege(chosen.kind, name, chosen.seconds)))
        except (BinlogError, OSError) as error:
            print(f"{name}: {error}", file=sys.stderr)
            continue
        print(f"{name}: {results[-1].note}", file=sys.stderr, flush=True)
    print_table(results, Console())
    return 0


if __name__ == "__main__":
    sys.exit(main())
