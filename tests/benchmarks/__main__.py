"""Runs benchmarks, writes `build/bench.json`, prints a table.

Exit status: 0 all ran, 1 one failed (the others are reported), 2 wrong usage, 130 interrupted.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final

from rich.console import Console

from tests.benchmarks.calibration import calibrator
from tests.benchmarks.catalog import BENCHMARKS
from tests.benchmarks.peer.programs import PROGRAMS, missing
from tests.benchmarks.report import Calibration, Result, print_report, to_json
from tests.benchmarks.settings import Settings
from tidb_binlog.errors import BinlogError

ROOT: Final = Path(__file__).resolve().parents[2]
OUTPUT: Final = ROOT / "build" / "bench.json"
RECORDING: Final = ROOT.parent / "shared" / "corpus" / "sysbench"
RECORDING_VARIABLE: Final = "BINLOG_SYSBENCH"


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="tests.benchmarks", description="Benchmarks, each beside a limit or a peer.", allow_abbrev=False
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="; ".join(BENCHMARKS))
    parser.add_argument("--seconds", type=float, default=Settings().seconds, help="measured per benchmark")
    parser.add_argument("--output", choices=("table", "json"), default="table", help="what is printed")
    parser.add_argument("--recording", type=Path, help="recorded sysbench workload for drain.sysbench")
    parser.add_argument(
        "--backlog", type=float, default=1.0, metavar="GIB", help="binlogs stored for drain.memory"
    )
    parser.add_argument(
        "--peer",
        type=Path,
        metavar="DIR",
        help=f"Go's programs, as far as they are there ({', '.join(PROGRAMS)}): measured in turns with ours",
    )
    chosen = parser.parse_args(arguments)
    unknown = [name for name in chosen.names if name not in BENCHMARKS]
    if unknown:
        parser.error(f"no benchmark {unknown[0]!r}; there are {', '.join(BENCHMARKS)}")
    if not chosen.seconds > 0:
        parser.error("--seconds must be above zero")
    if not chosen.backlog > 0:
        parser.error("--backlog must be above zero")
    if chosen.recording is not None and not chosen.recording.is_dir():
        parser.error(f"--recording: {chosen.recording} is not a directory")
    if chosen.peer is not None and len(missing(chosen.peer)) == len(PROGRAMS):
        parser.error(f"--peer: {chosen.peer} has none of {', '.join(PROGRAMS)}")
    return chosen


def recording(chosen: Path | None) -> Path | None:
    """The recorded workload: option, environment, beside the checkout, or None."""
    if chosen is not None:
        return chosen
    named = os.environ.get(RECORDING_VARIABLE)
    if named:
        return Path(named)
    return RECORDING if RECORDING.is_dir() else None


def run_all(
    names: list[str], settings: Settings, calibrate: Callable[[], Calibration]
) -> tuple[list[Result], int]:
    """Results of those that ran, and how many failed."""
    results: list[Result] = []
    failed = 0
    for name in names:
        began_s = time.monotonic()
        calibration = calibrate()
        try:
            found = BENCHMARKS[name](settings)
        except Exception as error:
            failed += 1
            if not isinstance(error, BinlogError):
                traceback.print_exception(error)
            print(f"{name}: {error}", file=sys.stderr, flush=True)
            continue
        group = found if isinstance(found, list) else [found]
        assert all(one.name == name or one.name.startswith(f"{name}.") for one in group)
        results.extend(replace(one, calibration=calibration) for one in group)
        print(f"{name}: {time.monotonic() - began_s:.0f} s", file=sys.stderr, flush=True)
    return results, failed


def main() -> int:
    chosen = parse(sys.argv[1:])
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # who starts a command a second time has its bytecode
    settings = Settings(
        seconds=chosen.seconds,
        recording=recording(chosen.recording),
        backlog_bytes=int(chosen.backlog * (1 << 30)),
        peer=chosen.peer,
    )
    for name in missing(chosen.peer) if chosen.peer else ():
        print(f"{chosen.peer} has no {name}: what it would be measured by is left out", file=sys.stderr)
    try:
        with calibrator() as calibrate:
            results, failed = run_all(chosen.names or list(BENCHMARKS), settings, calibrate)
    except KeyboardInterrupt:
        return 130
    text = to_json(results)
    OUTPUT.parent.mkdir(exist_ok=True)
    OUTPUT.write_text(text, encoding="utf-8")
    if chosen.output == "json":
        print(text, end="")
    else:
        print_report(results, Console())
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
