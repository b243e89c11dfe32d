"""`imports.*`: CPU of a command that does nothing but import what it needs, bytecode cached.

In turns, the median of each. Compared with a Python that imports nothing; `-X importtime` says where it goes.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from typing import Final

from tests.benchmarks.door.children import median
from tests.benchmarks.report import Result
from tests.benchmarks.settings import Settings
from tests.rig import ROOT

ROUNDS_MIN: Final = 3
BARE: Final = ("-c", "pass")
COMMANDS: Final[dict[str, tuple[str, ...]]] = {
    "version": ("-m", "binlogctl", "--version"),
    "help": ("-m", "binlogctl", "status", "--help"),
    "status": ("-c", "import binlogctl.program, binlogctl.commands.status"),
    "pump": ("-m", "pump", "--help"),
    "drainer": ("-m", "drainer", "--help"),
    "reparo": ("-m", "drainer.reparo", "--help"),
    "pumpclient": ("-c", "import pumpclient"),
    "library": ("-c", "import drainer"),
}


def cpu_s(arguments: tuple[str, ...]) -> float:
    """User and system time of one run."""
    child = subprocess.Popen([sys.executable, *arguments], stdout=subprocess.DEVNULL, cwd=ROOT)
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    assert child.returncode == 0, arguments
    return usage.ru_utime + usage.ru_stime


def run(settings: Settings) -> list[Result]:
    spent: dict[str, list[float]] = {name: [] for name in ("", *COMMANDS)}
    end_s = time.monotonic() + settings.seconds
    while time.monotonic() < end_s or len(spent[""]) < ROUNDS_MIN:
        for name, seconds in spent.items():
            seconds.append(cpu_s(COMMANDS.get(name, BARE)))
    bare_s = median(spent.pop(""))
    return [
        Result(
            name=f"imports.{name}",
            value=median(seconds),
            unit="s",
            cpu_us_per_unit=median(seconds) * 1e6,
            p50_ms=None,
            p99_ms=None,
            peak_rss_mib=None,
            compared_to=f"a Python that imports nothing, {bare_s:.3f} s",
            ratio=median(seconds) / bare_s,
            note=f"CPU of `python {' '.join(COMMANDS[name])}`, {len(seconds)} times in turns",
        )
        for name, seconds in spent.items()
    ]
