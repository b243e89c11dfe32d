"""CPU of commands, bytecode cached, in turns; the median of each.

imports.*     one that does nothing but import what it needs; `-X importtime` says where it goes
binlogctl.*   as a user calls it, on a cluster with one pump; Go's lists pumps, as `nodes` does

Compared with a Python that imports nothing.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from typing import Final

from tests.benchmarks.door.children import median
from tests.benchmarks.peer.programs import BINLOGCTL, programs
from tests.benchmarks.pump.nodes import pump_nodes
from tests.benchmarks.report import Result, Theirs
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


CODES: Final = (0, 11, 12)
"""Those above 10 are what `binlogctl status` says of a cluster; there is no drainer."""


def cpu_s(command: tuple[str, ...]) -> float:
    """User and system time of one run."""
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, cwd=ROOT)
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    assert child.returncode in CODES, (command, child.returncode)
    return usage.ru_utime + usage.ru_stime


def measure(
    prefix: str, commands: dict[str, tuple[str, ...]], at_least_s: float, peer: tuple[str, ...] | None = None
) -> list[Result]:
    """Arguments of Python by name; `peer`: Go's command."""
    whole = {name: (sys.executable, *arguments) for name, arguments in {"": BARE, **commands}.items()}
    spent: dict[str, list[float]] = {name: [] for name in whole}
    theirs: list[float] = []
    end_s = time.monotonic() + at_least_s
    while time.monotonic() < end_s or len(spent[""]) < ROUNDS_MIN:
        for name, seconds in spent.items():
            seconds.append(cpu_s(whole[name]))
        if peer is not None:
            theirs.append(cpu_s(peer))
    bare_s = median(spent.pop(""))
    return [
        Result(
            name=f"{prefix}.{name}",
            value=median(seconds),
            unit="s",
            cpu_us_per_unit=median(seconds) * 1e6,
            compared_to=f"a Python that imports nothing, {bare_s:.3f} s",
            ratio=median(seconds) / bare_s,
            note=f"CPU of `python {' '.join(commands[name])}`, {len(seconds)} times in turns",
            theirs=Theirs.of(theirs, [one * 1e6 for one in theirs]),
        )
        for name, seconds in spent.items()
    ]


def run(settings: Settings) -> list[Result]:
    return measure("imports", COMMANDS, settings.seconds)


async def measure_binlogctl(settings: Settings) -> list[Result]:
    async with pump_nodes(clock_stands=False) as nodes:
        nodes.start("pump")
        endpoint = nodes.etcd_endpoint
        ours = {name: ("-m", "binlogctl", name, "-pd-urls", endpoint) for name in ("status", "nodes")}
        with programs(settings, BINLOGCTL, nodes.supervisor, endpoint) as go:
            peer = None if go is None else go.binlogctl("-cmd", "pumps")
            return await asyncio.to_thread(measure, "binlogctl", ours, settings.seconds, peer)


def binlogctl(settings: Settings) -> list[Result]:
    return asyncio.run(measure_binlogctl(settings))
