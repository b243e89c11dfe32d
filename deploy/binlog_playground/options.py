"""Options: command line of the playground.

Tests  tests/deploy/binlog_playground/test_options.py
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any, Final

from tidb_binlog import version
from tidb_binlog.late_dataclass import dataclass

DESCRIPTION = """\
Runs a private etcd, two Pumps, a Drainer and a MariaDB, feeds them with a recorded TiDB workload and then
with random transactions and DDL, and compares every table row by row at the end. Everything lives in a
scratch directory on loopback ports and is gone afterwards.
"""
EPILOG = "exit status: 0 equal, 1 different, 2 could not run, 130 interrupted"
OF_A_CHECKOUT: Final = ("--chaos", "--replay", "--kill", "--subscriber", "--load", "--kills")
"""What `python -m tests.rig` does."""


@dataclass(frozen=True, slots=True)
class Options:
    """What was asked for. `rate` is transactions/s over all sessions, 0 for as many as possible."""

    seconds: float = 20.0
    rate: float = 200.0
    sessions: int = 16
    seed: int = 1
    keep: bool = False
    json: bool = False


def parser(program: str, description: str) -> argparse.ArgumentParser:
    """A parser of the options above."""
    parser = argparse.ArgumentParser(prog=program, description=description, epilog=EPILOG, allow_abbrev=False)
    default = Options()
    add = parser.add_argument
    add("-V", "--version", action="version", version=f"Release Version: {version.release()}")
    add(
        "--seconds",
        type=number(float, 0, 86400, "seconds"),
        default=default.seconds,
        help="length of the random part (default 20)",
    )
    add(
        "--rate",
        type=number(float, 0, 100_000, "transactions/s"),
        default=default.rate,
        help="transactions/s, 0: as many as go (default 200)",
    )
    add(
        "--sessions",
        type=number(int, 1, 1000),
        default=default.sessions,
        help="concurrent sessions (default 16)",
    )
    add("--seed", type=int, default=default.seed, help="seed of everything random (default 1)")
    add("--keep", action="store_true", help="leave everything running until Ctrl-C and say how to connect")
    add("--json", action="store_true", help="print one JSON object at the end and nothing else")
    return parser


def parse(argv: list[str]) -> Options:
    """Options from the command line; exits with 2 and a usage line for wrong ones."""
    demo = parser("binlog-playground", DESCRIPTION)
    for flag in OF_A_CHECKOUT:
        if flag in argv:
            demo.error(f"{flag} is an option of the checkout: .venv/bin/python -m tests.rig {flag} ...")
    return Options(**vars(demo.parse_args(argv)))


def number(kind: Callable[[str], Any], first: int, last: int, unit: str = "") -> Callable[[str], Any]:
    """The type of an option: a number of a range."""

    def number(text: str) -> Any:
        value = kind(text)
        if not first <= value <= last:
            raise argparse.ArgumentTypeError(f"give {first} to {last} {unit}".rstrip())
        return value

    return number
