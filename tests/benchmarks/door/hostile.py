"""`door.hostile`: all attacks of `tests.attacks` against one server, a polite client beside them.

    python -m tests.benchmarks.door.hostile door|grpcio [--seconds S] [ATTACK...]

runs them alone, also against grpcio's server. Between attacks nothing is started anew.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from rich.console import Console

from tests.attacks.catalog import ATTACKS, FRAMES_MAX, TLS_ONLY
from tests.attacks.session import Outcome
from tests.benchmarks.door.children import KINDS, Child, Server, forget_peak, memory_mib, server
from tests.benchmarks.door.server import DOOR
from tests.benchmarks.measure import cpu_s, percentile
from tests.benchmarks.report import Result, print_table
from tests.benchmarks.settings import Settings
from tidb_binlog.errors import BinlogError, Unavailable

NAME: Final = "door.hostile"
SHARE: Final = 6
"""An attack lasts a share of the measured time at most: there are many."""
AT_REST_S: Final = 1.0
AFTER_S: Final = 0.3
EVERY_MS: Final = 5


@dataclass(frozen=True, slots=True)
class Siege:
    """What one attack did to the server and to the polite client."""

    outcome: Outcome
    began_s: float
    ended_s: float
    grown_mib: float
    peak_mib: float
    cpu_s: float


@dataclass(frozen=True, slots=True)
class Politeness:
    """All calls of a polite client, and those that failed."""

    calls: list[tuple[float, float]]
    failed: list[float]

    def latencies(self, from_s: float, to_s: float) -> list[float]:
        return [took_s for sent_s, took_s in self.calls if from_s <= sent_s <= to_s] or [0.0]

    def failures(self, from_s: float, to_s: float) -> int:
        return sum(from_s <= at_s <= to_s for at_s in self.failed)


def siege(one: Server, name: str, seconds: float) -> Siege:
    """One attack. The polite client is watched for as long as it was meant to last, and a moment longer for
    what it leaves behind."""
    with contextlib.suppress(OSError):  # where it is not allowed, the peak is that of all attacks so far
        forget_peak(one.pid)
    before_mib, before_cpu_s, began_s = one.rss_mib(), cpu_s(one.pid), time.monotonic()
    outcome = ATTACKS[name](one.target, seconds, FRAMES_MAX)
    time.sleep(max(began_s + seconds - time.monotonic(), 0.0) + AFTER_S)
    if not one.child.is_running:
        raise Unavailable(f"{name} killed the server")
    peak = memory_mib(one.pid, "VmHWM")
    return Siege(outcome, began_s, time.monotonic(), peak - before_mib, peak, cpu_s(one.pid) - before_cpu_s)


def series(kind: str, names: Iterable[str], seconds: float, *, tls: bool) -> list[Result]:
    """One server bears them all, one after the other."""
    sieges: dict[str, Siege] = {}
    with (
        server(kind, tls=tls) as one,
        Child("door.polite", one.address, "--every-ms", EVERY_MS, *one.tls_arguments) as polite,
    ):
        polite.said("begin")
        rest_from_s = time.monotonic()
        time.sleep(AT_REST_S)
        for name in names:
            sieges[name] = found = siege(one, name, seconds)
            print(f"{name}: {found.outcome}", file=sys.stderr, flush=True)
        polite.end_of_input()
        seen = polite.said("end")
    politeness = Politeness([(sent_s, took_s) for sent_s, took_s in seen["calls"]], seen["failed"])
    rest_s = percentile(politeness.latencies(rest_from_s, rest_from_s + AT_REST_S), 0.99)
    return [_result(name, found, politeness, rest_s) for name, found in sieges.items()]


def _result(name: str, seen: Siege, politeness: Politeness, rest_s: float) -> Result:
    under = politeness.latencies(seen.began_s, seen.ended_s)
    frames = seen.outcome.frames_sent
    return Result(
        name=f"{NAME}.{name}",
        value=seen.grown_mib,
        unit="MiB more",
        cpu_us_per_unit=seen.cpu_s / frames * 1e6 if frames else None,
        p50_ms=percentile(under, 0.5) * 1000,
        p99_ms=percentile(under, 0.99) * 1000,
        peak_rss_mib=seen.peak_mib,
        compared_to=f"polite p99 at rest, {rest_s * 1000:.2g} ms",
        ratio=percentile(under, 0.99) / rest_s,
        note=(
            f"{seen.outcome}; {seen.cpu_s:.2f} s of CPU; polite client: largest stall"
            f" {max(under) * 1000:.0f} ms, {politeness.failures(seen.began_s, seen.ended_s)} failed calls"
        ),
    )


def measure(kind: str, names: Iterable[str], seconds: float) -> list[Result]:
    """Those that are about TLS at a port with TLS, the others in clear text."""
    wanted = list(names)
    clear = [name for name in wanted if name not in TLS_ONLY]
    secret = [name for name in wanted if name in TLS_ONLY]
    results = series(kind, clear, seconds, tls=False) if clear else []
    return results + (series(kind, secret, seconds, tls=True) if secret else [])


def run(settings: Settings) -> list[Result]:
    return measure(DOOR, ATTACKS, settings.seconds / SHARE)


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.benchmarks.door.hostile", allow_abbrev=False)
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("--seconds", type=float, default=6.0)
    parser.add_argument("names", nargs="*", metavar="ATTACK", help=", ".join(ATTACKS))
    chosen = parser.parse_intermixed_args()
    if unknown := set(chosen.names) - set(ATTACKS):
        parser.error(f"no attack {sorted(unknown)[0]!r}")
    try:
        results = measure(chosen.kind, chosen.names or ATTACKS, chosen.seconds)
    except BinlogError as error:
        sys.exit(f"door.hostile: {error}")
    print_table(results, Console())
    return 0


if __name__ == "__main__":
    sys.exit(main())
