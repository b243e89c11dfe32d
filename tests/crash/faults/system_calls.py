"""A real pump under load, killed by the kernel at the k-th system call of a kind on its data directory.

    python -m tests.crash.faults.system_calls [--points 12] [--calls fdatasync,writev,...] [--seed N]

Needs `strace` and the right to trace. One data directory lives through all kills; in front of some starts a
torn record is put after the newest file, so that cutting it is killed too. After each kill the pump starts
untraced, and everything it serves is compared with a ledger that a process of its own keeps.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

from tests.crash import ledger
from tests.crash.acknowledged import WAYS, Stage, stage
from tests.pump.support.process import ROOT, PumpProcess
from tests.waiting import PATIENCE_S
from tidb_binlog.record import encode_value

CALLS = ("fdatasync", "writev", "write", "fsync", "openat", "rename", "unlink", "ftruncate", "pwrite64")
RARE = ("ftruncate", "pwrite64", "rename", "unlink")
LOAD_S = 2.5
_AHEAD = 10  # so many files LevelDB may make in one life; each one looked for costs time at every call
_NUMBER = re.compile(r"\d{6}")


class TracedPump(PumpProcess):
    """A pump that `strace` kills at a call; an ordinary one while `at` is None."""

    at: tuple[str, int] | None = None

    def start(self, *flags: str) -> None:
        if self.at is None:
            super().start(*flags)
            return
        call, number = self.at
        prefix = ["strace", "-D", "-f", "-qq", "-o", "/dev/null", *self._paths()]
        prefix += [f"--trace={call}", f"--inject={call}:signal=KILL:when={number}"]
        with self.log.open("ab") as log:
            self.child = subprocess.Popen(
                [*prefix, sys.executable, "-m", "pump", *self.arguments, *flags],
                cwd=ROOT,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def _paths(self) -> list[str]:
        """Only calls on these count."""
        names = [".", "value", "kv", "kv/CURRENT", "kv/LOG", ".node.new", ".cluster.new", "value/000000.vlog"]
        known = [
            int(match[0]) for one in (self.directory / "kv").glob("*") if (match := _NUMBER.search(one.name))
        ]
        newest = max(known, default=0)
        for number in range(max(newest - 2, 0), newest + _AHEAD):
            names += [f"kv/{number:06d}.{end}" for end in ("log", "ldb", "dbtmp")]
            names.append(f"kv/MANIFEST-{number:06d}")
        return [f"--trace-path={self.directory / name}" for name in names]

    @property
    def is_dead(self) -> bool:
        return self.child is not None and self.child.poll() is not None


async def suffer(at: Stage[TracedPump], way: str) -> str:
    """Start under the tracer and write until the pump is dead; where it died, or that it did not."""
    pump = at.pump
    pump.start()
    with suppress(AssertionError, TimeoutError):
        await pump.until_up()
    if pump.is_dead:
        return "while starting"
    writer = await at.writer(way)
    until_s = time.monotonic() + LOAD_S
    while not pump.is_dead and time.monotonic() < until_s:
        await asyncio.sleep(0.02)
    died = pump.is_dead
    pump.kill()
    await asyncio.to_thread(writer.wait, PATIENCE_S)
    at.known.read(at.path)
    return "under load" if died else "not reached"


def _when(call: str, number: int, points: int, rng: random.Random) -> int:
    """The first calls one after the other, then far ones; of kinds that a start makes a few times, those."""
    if call in RARE:
        return 1 + (number - 1) % 2
    return number if number <= points // 2 else rng.randrange(number, number * 8)


def tear(pump: PumpProcess, rng: random.Random) -> None:
    """Half a record after the newest file, as a kill inside a write leaves it."""
    newest = max((pump.directory / "value").glob("*.vlog"))
    record = encode_value(ledger.prewrite(rng.randrange(1 << 58, 1 << 59)))
    with newest.open("ab") as file:
        file.write(record[: rng.randrange(1, len(record))])


async def campaign(directory: Path, calls: list[str], points: int, seed: int) -> bool:
    rng, clean = random.Random(seed), True
    total: Counter[str] = Counter()
    async with stage(directory, TracedPump) as at:
        pump, known = at.pump, at.known
        for call in calls:
            seen: Counter[str] = Counter()
            for number in range(1, points + 1):
                is_torn = call == "ftruncate" or rng.random() < 0.5
                if is_torn and (pump.directory / "value").is_dir():
                    tear(pump, rng)
                pump.at = (call, _when(call, number, points, rng))
                seen[await suffer(at, WAYS[number % 2])] += 1
                pump.at = None
                await pump.start_and_wait()
                found = await at.judge()
                pump.kill()
                clean = clean and found.is_clean
                if not found.is_clean:
                    print(f"{call} {number}: {found}", flush=True)
            print(f"{call}: {dict(seen)}, {len(known.acknowledged)} acknowledged so far", flush=True)
            total += seen
    lost = "nothing" if clean else "SOMETHING"
    print(f"{total.total()} points {dict(total)}: {lost} lost")
    return clean


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="tests.crash.faults.system_calls", allow_abbrev=False)
    parser.add_argument("--points", type=int, default=12, help="of each call")
    parser.add_argument("--calls", type=lambda text: text.split(","), default=list(CALLS))
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    chosen = parser.parse_args(arguments)
    if shutil.which("strace") is None:
        sys.exit("strace is missing: install it (`apt-get install strace`) and run this again")
    probe = subprocess.run(["strace", "-qq", "-o", "/dev/null", "true"], capture_output=True, check=False)
    if probe.returncode:
        sys.exit(f"strace may not trace here: {probe.stderr.decode().strip()}")
    print(f"seed {chosen.seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="system-calls-") as made:
        sys.exit(not asyncio.run(campaign(Path(made), chosen.calls, chosen.points, chosen.seed)))


if __name__ == "__main__":
    main(sys.argv[1:])
