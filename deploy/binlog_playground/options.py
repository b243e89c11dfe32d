"""Command line of the playground."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

from tidb_binlog import version

DESCRIPTION = """\
Runs a private etcd, two Pumps, a Drainer and a MariaDB, feeds them with a recorded TiDB workload and then
with random transactions and DDL, and compares every table row by row at the end. Everything lives in a
scratch directory on loopback ports and is gone afterwards.
"""
EPILOG = "exit status: 0 equal, 1 different, 2 could not run, 130 interrupted"


@dataclass(frozen=True, slots=True)
class Options:
    """What was asked for. `rate` is transactions/s over all sessions, 0 for as many as possible."""

    seconds: float = 20.0
    rate: float = 200.0
    sessions: int = 16
    seed: int = 1
    chaos: bool = False
    keep: bool = False
    json: bool = False
    replay: Path | None = None
    kill: bool = False
    subscriber: bool = False
    load: bool = False
    kills: int = 0


def parse(argv: list[str]) -> Options:
    """Options from the command line; exits with 2 and a usage line for wrong ones."""
    parser = argparse.ArgumentParser(
        prog="binlog-playground",
        description=DESCRIPTION,
        epilog=EPILOG,
        allow_abbrev=False,
    )
    default = Options()
    add = parser.add_argument
    add("-V", "--version", action="version", version=f"Release Version: {version.release()}")
    add("--seconds", type=_seconds, default=default.seconds, help="length of the random part (default 20)")
    add("--rate", type=_rate, default=default.rate, help="transactions/s, 0: as many as go (default 200)")
    add("--sessions", type=_positive, default=default.sessions, help="concurrent sessions (default 16)")
    add("--seed", type=int, default=default.seed, help="seed of everything random (default 1)")
    add("--chaos", action="store_true", help="kill -9 Pumps, Drainer and MariaDB at random times")
    add("--keep", action="store_true", help="leave everything running until Ctrl-C and say how to connect")
    add("--json", action="store_true", help="print one JSON object at the end and nothing else")
    add("--replay", type=Path, metavar="DIR", help="replay a recorded scenario instead of the demo")
    add("--kill", action="store_true", help="with --replay: kill the Drainer and a Pump on the way")
    add("--subscriber", action="store_true", help="a program subscribes too, and its tables are compared")
    add("--load", action="store_true", help="begin with rows that exist: load them while they are written to")
    add("--kills", type=_kills, default=0, metavar="N", help="with --load: kill the load so many times")
    chosen = parser.parse_args(argv)
    if chosen.kill and chosen.replay is None:
        parser.error("--kill needs --replay DIR (for the demo it is --chaos)")
    if chosen.kills and not chosen.load:
        parser.error("--kills needs --load (for the demo it is --chaos)")
    if chosen.load and (chosen.replay is not None or chosen.chaos or chosen.subscriber):
        parser.error("--load is a run of its own: without --replay, --chaos and --subscriber")
    return Options(**vars(chosen))


def _seconds(text: str) -> float:
    value = float(text)
    if not 0 <= value <= 86400:
        raise argparse.ArgumentTypeError("give 0 to 86400 seconds")
    return value


def _rate(text: str) -> float:
    value = float(text)
    if not 0 <= value <= 100_000:
        raise argparse.ArgumentTypeError("give 0 to 100000 transactions/s")
    return value


def _kills(text: str) -> int:
    value = int(text)
    if not 0 <= value <= 1000:
        raise argparse.ArgumentTypeError("give 0 to 1000")
    return value


def _positive(text: str) -> int:
    value = int(text)
    if not 1 <= value <= 1000:
        raise argparse.ArgumentTypeError("give 1 to 1000")
    return value
