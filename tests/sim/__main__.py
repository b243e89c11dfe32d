"""`python -m tests.sim`: worlds by seed, each in a process of its own, which begins as all others do."""

from __future__ import annotations

import argparse
import ctypes
import multiprocessing
import os
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

_NO_RANDOMIZED_ADDRESSES: Final = 0x0040000

if os.environ.get("PYTHONHASHSEED") != "0":  # sets have an order by hash: of names, and of addresses
    ctypes.CDLL(None).personality(_NO_RANDOMIZED_ADDRESSES)
    os.execve(
        sys.executable,
        [sys.executable, "-m", "tests.sim", *sys.argv[1:]],
        {**os.environ, "PYTHONHASHSEED": "0"},
    )

from tests.sim import mutants  # noqa: E402 - by then it is the process that the world needs


@dataclass(frozen=True)
class Result:
    """Of one world. `broken`: the promise that was not kept, "" if all were."""

    seed: int
    broken: str
    hash: str
    virtual_s: float
    cpu_s: float
    counts: Counter[str] = field(default_factory=Counter)


def run(seed: int, trace: bool) -> Result:
    from tests.sim.world import Broken, World

    began_s = time.process_time()
    with tempfile.TemporaryDirectory(prefix="sim-") as directory:
        world = World(seed, Path(directory), print if trace else None)
        broken = ""
        try:
            world.run()
        except Broken as error:
            broken = str(error)
    cpu_s = time.process_time() - began_s
    sys.stdout.flush()
    return Result(seed, broken, world.hash.hexdigest()[:16], world.loop.time(), cpu_s, world.counts)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.sim", description=__doc__)
    parser.add_argument("--seeds", type=int, default=20, help="so many worlds")
    parser.add_argument("--first", type=int, default=1, help="the seed of the first")
    parser.add_argument("--seed", type=int, help="this world alone")
    parser.add_argument("--jobs", type=int, default=1, help="worlds at a time")
    parser.add_argument("--trace", action="store_true", help="print what happens")
    parser.add_argument("--mutant", choices=mutants.MUTANTS, help="plant this fault first")
    given = parser.parse_args()
    if given.mutant:
        mutants.plant(given.mutant)
    from tests.sim import ports

    ports.install()
    first, count = (given.first, given.seeds) if given.seed is None else (given.seed, 1)
    counts: Counter[str] = Counter()
    virtual_s = cpu_s = 0.0
    fork = multiprocessing.get_context("fork")
    with fork.Pool(given.jobs, maxtasksperchild=1) as pool:
        asked = [pool.apply_async(run, (seed, given.trace)) for seed in range(first, first + count)]
        for each in asked:
            result = each.get()
            said = f"BROKEN: {result.broken}" if result.broken else "holds"
            print(f"seed {result.seed}: {said}; {result.hash}", flush=True)
            if result.broken:
                return 1
            counts += result.counts
            virtual_s, cpu_s = virtual_s + result.virtual_s, cpu_s + result.cpu_s
    what = ", ".join(f"{number:,} {name.replace('_', ' ')}" for name, number in sorted(counts.items()))
    speed = f"{virtual_s:,.0f} virtual seconds, {virtual_s / cpu_s:.0f} for each of a core"
    print(f"{count} worlds hold: {speed}; {what}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
