"""A campaign of streams of Spark: run after run under a seed of its own, each compared row by row, and a sum.

    python -m tests.crash.faults.spark_campaign [--runs N] [--seed N] [--kinds NAME,...]
        [--seconds N] [--rate N]

The kinds take turns: into MariaDB by tasks and by the driver alone (`tests.rig --chaos --spark`), into
changelogs and mirrors of Delta and Iceberg (`lake_stream`). Each run is a process, whose output is kept where
it was not equal.
Exit status: 0 all runs were equal, 1 one was not, 2 usage; 130 a signal ended it, with all that the run
at hand had started.

Tests   tests/crash/faults/test_spark_campaign.py
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import signal
import subprocess
import sys
import time
from types import FrameType
from typing import Any, Final

from binlog_playground.program import INTERRUPTED, SIGNALS
from tests.rig import ROOT
from tests.spark.support import spark_home

LAKE_KILLS: Final = 4
OUTPUT: Final = ROOT / "build" / "spark-campaign"
RATE: Final = 40
SECONDS: Final = 60
"""Executors are there after about 20, and again after each kill of a driver."""


def _rig(small: str) -> list[str]:
    return ["tests.rig", "--chaos", "--json", "--sessions", "8", "--spark", small]


def _lake(form: str, mode: str) -> list[str]:
    return ["tests.crash.faults.lake_stream", "--form", form, "--mode", mode, "--kills", str(LAKE_KILLS)]


KINDS: Final = {
    "mariadb-tasks": _rig("4KiB"),
    "mariadb-driver": _rig("8MiB"),
    **{
        f"{form}-{mode}": _lake(form, mode)
        for mode in ("changelog", "mirror")
        for form in ("delta", "iceberg")
    },
}


def run(kind: str, seed: int, seconds: int, rate: int) -> dict[str, Any] | None:
    """What a run said of itself at its end; None if it was not equal, or came to none."""
    command = [sys.executable, "-m", *KINDS[kind], "--seed", str(seed)]
    if kind.startswith("mariadb"):
        command += ["--seconds", str(seconds), "--rate", str(rate)]
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env=os.environ | spark_home.environ(),
    )
    try:
        out, err = process.communicate()
    except BaseException:
        process.terminate()  # it ends all that it has started
        process.communicate()
        raise
    lines = out.splitlines()
    if process.returncode == 0:
        said: dict[str, Any] = json.loads(lines[-1])
        return said
    OUTPUT.mkdir(parents=True, exist_ok=True)
    kept = OUTPUT / f"{kind}-{seed}.log"
    kept.write_text(out + err)
    print(f"  exit {process.returncode}, see {kept}", flush=True)
    return None


def parse_count(text: str) -> int:
    """Raises `ArgumentTypeError` for less than one: nothing would be tested, and equal."""
    if not (text.isdecimal() and int(text)):
        raise argparse.ArgumentTypeError(f"{text} is not 1 or more")
    return int(text)


def parse_kinds(text: str) -> list[str]:
    """Raises `ArgumentTypeError`."""
    kinds = text.split(",")
    if unknown := [kind for kind in kinds if kind not in KINDS]:
        raise argparse.ArgumentTypeError(f"{', '.join(unknown)}: not among {', '.join(KINDS)}")
    return kinds


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=parse_count, default=100)
    parser.add_argument("--seed", type=int, default=1, help="of the first run; each has the next one")
    parser.add_argument(
        "--seconds", type=parse_count, default=SECONDS, help="of random work in a run into MariaDB"
    )
    parser.add_argument(
        "--rate",
        type=parse_count,
        default=RATE,
        help="transactions a second of it; where the machine has other work, fewer in more seconds are as"
        " many, with more faults",
    )
    parser.add_argument("--kinds", type=parse_kinds, default=[*KINDS], help="which take turns")
    chosen = parser.parse_args()
    kinds = chosen.kinds
    sums: dict[str, collections.Counter[str]] = {kind: collections.Counter() for kind in kinds}
    try:
        for number in range(chosen.runs):
            kind, seed, began_s = kinds[number % len(kinds)], chosen.seed + number, time.monotonic()
            print(f"{kind}, seed {seed}", flush=True)
            said = run(kind, seed, chosen.seconds, chosen.rate)
            sums[kind] += counted(said)
            print(f"  {time.monotonic() - began_s:.0f} s: {shown(counted(said))}", flush=True)
    finally:
        for kind, counts in sums.items():
            print(f"{kind}: {shown(counts)}")
        total = sum(sums.values(), collections.Counter[str]())
        print(f"all: {shown(total)}")
    return int(total["not equal"] > 0)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    for number in SIGNALS:  # the run's processes are ended whatever comes
        signal.signal(number, signal.SIG_IGN)
    raise SystemExit(INTERRUPTED)


def counted(said: dict[str, Any] | None) -> collections.Counter[str]:
    """What adds up, over runs of all kinds."""
    if said is None:
        return collections.Counter({"not equal": 1})
    ddl = said["ddl"]
    counts = {"equal": 1, "ddl": ddl if isinstance(ddl, int) else sum(ddl.values())}
    counts |= {name: said[name] for name in ("transactions", "rows", "rows_identical")}
    counts |= said["faults"] if "faults" in said else {f"kill -9 of {k}": n for k, n in said["kills"].items()}
    return collections.Counter(counts)


def shown(counts: collections.Counter[str]) -> str:
    return ", ".join(f"{name} {count}" for name, count in counts.items())


if __name__ == "__main__":
    for each in SIGNALS:
        signal.signal(each, _interrupt)
    sys.exit(main())
