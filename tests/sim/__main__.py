"""`python -m tests.sim`: worlds by seed, each in a process of its own, which begins as all others do."""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import importlib
import multiprocessing
import os
import sys
import tempfile
import time
import traceback
from collections import Counter
from dataclasses import dataclass, field
from multiprocessing.pool import Pool
from pathlib import Path
from typing import TYPE_CHECKING, Final

_NO_RANDOMIZED_ADDRESSES: Final = 0x0040000

if os.environ.get("PYTHONHASHSEED") != "0":  # sets have an order by hash: of names, and of addresses
    ctypes.CDLL(None).personality(_NO_RANDOMIZED_ADDRESSES)
    os.execve(
        sys.executable,
        [sys.executable, "-m", "tests.sim", *sys.argv[1:]],
        {**os.environ, "PYTHONHASHSEED": "0"},
    )

from tests.sim import mutants  # noqa: E402 - by then it is the process it needs
from tests.sim.mutants import ARCHIVE, DRAINER, READERS, TIDB  # noqa: E402
from tests.sim.shrinking import Size, shrink  # noqa: E402

if TYPE_CHECKING:
    from tests.binary_log import BinlogServer

_SEEDS_OF_A_SIZE: Final = 5

_servers: list[BinlogServer] = []
"""One for each world that runs at a time."""
_free = multiprocessing.get_context("fork").SimpleQueue()
"""Numbers of those that no world uses."""


@dataclass(frozen=True)
class Result:
    """Of one world. `broken`: the promise that was not kept, "" if all were."""

    seed: int
    broken: str
    hash: str
    virtual_s: float
    cpu_s: float
    counts: Counter[str] = field(default_factory=Counter)
    kinds: tuple[str, ...] = ()  # of what may go wrong in it


_LATER: Final = (
    *("drainer.app.build_mysql", "drainer.app.build_file", "drainer.reading.archive.archive"),
    *("drainer.reading.subscribe.live_stream", "tidb_binlog.upstream.tidb.pd.oracle"),
    *("tidb_binlog.upstream.tidb.pd.safe_point", "tidb_binlog.upstream.tidb.meta.history"),
    *(f"tests.sim.kinds.{kind}_world" for kind in (READERS, TIDB, DRAINER, ARCHIVE)),
)
"""Modules that each world would import anew. With a planted fault, once it is planted."""


def run(kind: str, seed: int, size: Size, trace: bool = False) -> Result:
    from tests.sim.kinds.archive_world import ArchiveWorld
    from tests.sim.kinds.drainer_world import DrainerWorld
    from tests.sim.kinds.readers_world import ReadersWorld
    from tests.sim.kinds.tidb_world import TidbWorld
    from tests.sim.world import Broken, World

    began_s = time.process_time()
    say = print if trace else None
    with tempfile.TemporaryDirectory(prefix="sim-") as directory:
        world: World
        if kind == READERS:
            world = ReadersWorld(seed, size, Path(directory), say)
        elif kind == TIDB:
            world = TidbWorld(seed, size, Path(directory), say)
        elif kind == ARCHIVE:
            world = ArchiveWorld(seed, size, Path(directory), say)
        else:
            number = _free.get()
            world = DrainerWorld(seed, size, Path(directory), _servers[number], say)
        broken = ""
        try:
            world.run()
        except Broken as error:
            broken = str(error)
        except BaseException as error:  # a process that ends here is never heard of again
            traceback.print_exc()
            broken = f"the world itself: {error!r}"
        finally:
            if kind == DRAINER:
                _free.put(number)
    cpu_s = time.process_time() - began_s
    sys.stdout.flush()
    virtual_s, kinds = world.loop.time(), tuple(world.kinds)
    return Result(seed, broken, world.hash.hexdigest()[:16], virtual_s, cpu_s, world.counts, kinds)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.sim", description=__doc__)
    parser.add_argument("--seeds", type=int, default=20, help="so many worlds")
    parser.add_argument(
        "--world", choices=(READERS, TIDB, DRAINER, ARCHIVE), help="who uses the Pumps: readers"
    )
    parser.add_argument("--first", type=int, default=1, help="the seed of the first")
    parser.add_argument("--seed", type=int, help="this world alone")
    parser.add_argument("--jobs", type=int, default=1, help="worlds at a time")
    parser.add_argument("--trace", action="store_true", help="print what happens")
    parser.add_argument("--mutant", choices=mutants.MUTANTS, help="plant this fault first")
    parser.add_argument("--shrink", action="store_true", help="look for a smaller world that breaks so, too")
    Size.add_options(parser)
    given = parser.parse_args()
    if given.mutant:
        given.world = given.world or mutants.MUTANTS[given.mutant].world
        mutants.plant(given.mutant)
    given.world = given.world or READERS
    from tests.sim import ports

    ports.install()
    for module in _LATER:
        importlib.import_module(module)
    if given.world == DRAINER:
        from tests.binary_log import BinlogServer

        with tempfile.TemporaryDirectory(prefix="sim-db-") as directory, contextlib.ExitStack() as ends:
            for number in range(given.jobs):
                server = BinlogServer()
                ends.callback(server.kill)
                server.start(Path(directory) / str(number))
                _servers.append(server)
                _free.put(number)
            return worlds(given)
    return worlds(given)


def worlds(given: argparse.Namespace) -> int:
    """The exit code."""
    first, count = (given.first, given.seeds) if given.seed is None else (given.seed, 1)
    counts: Counter[str] = Counter()
    virtual_s = cpu_s = 0.0
    fork = multiprocessing.get_context("fork")
    with fork.Pool(given.jobs, maxtasksperchild=1) as pool:
        asked = [
            pool.apply_async(run, (given.world, seed, Size.of(given), given.trace))
            for seed in range(first, first + count)
        ]
        for each in asked:
            result = each.get()
            said = f"BROKEN: {result.broken}" if result.broken else "holds"
            print(f"seed {result.seed}: {said}; {result.hash}", flush=True)
            if result.broken:
                if given.shrink:
                    smallest(given, result, pool)
                return 1
            counts += result.counts
            virtual_s, cpu_s = virtual_s + result.virtual_s, cpu_s + result.cpu_s
    what = ", ".join(f"{number:,} {name.replace('_', ' ')}" for name, number in sorted(counts.items()))
    speed = f"{virtual_s:,.0f} virtual seconds, {virtual_s / cpu_s:.0f} for each of a core"
    print(f"{count} worlds hold: {speed}; {what}")
    return 0


def smallest(given: argparse.Namespace, broke: Result, pool: Pool) -> None:
    """Say each smaller world that breaks in the same way, as the command that repeats it."""
    command = f"python -m tests.sim --world {given.world}" + (
        f" --mutant {given.mutant}" if given.mutant else ""
    )
    seeds = range(broke.seed, broke.seed + _SEEDS_OF_A_SIZE)

    def broken(size: Size, seed: int) -> str:
        result: Result = pool.apply(run, (given.world, seed, size))
        return result.broken

    for size, seed in shrink(Size.of(given), broke.kinds, seeds, broke.broken, broken):
        print(f"breaks, too: {command} --seed {seed}{size.options()}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
