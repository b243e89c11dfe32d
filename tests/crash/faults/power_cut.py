"""Power cuts on real file systems: a storage under load on a loop-mounted image that is shut down under it.

    python -m tests.crash.faults.power_cut [--cuts 200] [--file-systems ext4,ext4-writeback,xfs] [--seed N]

By hand, as root: it needs loop devices, mkfs and the shutdown ioctl, and says what is missing. Each cut stops
the file system without flushing anything, unmounts, mounts again (which replays the journal), opens the
storage and compares it with what was acknowledged to a process outside. The index loses what it had not
synced, as the log does.
"""

from __future__ import annotations

import argparse
import asyncio
import fcntl
import os
import random
import shutil
import struct
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pump.log.writer import WriteFailed
from pump.storage.opening import StorageLimits
from pump.storage.storage import Storage
from tests.crash import ledger
from tests.crash.ledger import ACKNOWLEDGED, PREWRITTEN, SENT, Ledger
from tests.pump.support.payloads import header, opened, pull
from tests.pump.support.process import ROOT
from tests.waiting import PATIENCE_S
from tidb_binlog import binlog
from tidb_binlog.errors import BinlogError

SHUTDOWN = 0x8004587D  # _IOR('X', 125, __u32), of ext4 and xfs alike
NO_FLUSH = struct.pack("I", 2)  # ext4: EXT4_GOING_FLAGS_NOLOGFLUSH; xfs: XFS_FSOP_GOING_FLAGS_NOLOGFLUSH
MAKE = {
    "ext4": (["mkfs.ext4", "-q", "-F"], []),
    "ext4-writeback": (["mkfs.ext4", "-q", "-F"], ["-o", "data=writeback"]),
    "ext4-nojournal": (["mkfs.ext4", "-q", "-F", "-O", "^has_journal"], []),
    "xfs": (["mkfs.xfs", "-q", "-f"], []),
}
IMAGE_BYTES = 512 << 20
LIMITS = StorageLimits(segment_bytes_max=1 << 20, index_queue_bytes_max=1 << 20)
LANES = 16


class Missing(Exception):
    """Something that this machine does not have or does not allow."""


def command(*arguments: str | Path) -> None:
    """Run; `Missing` with what it said if it fails."""
    name = str(arguments[0])
    if shutil.which(name) is None:
        raise Missing(f"{name} is not installed")
    done = subprocess.run([str(one) for one in arguments], capture_output=True, check=False)
    if done.returncode:
        raise Missing(f"`{' '.join(map(str, arguments))}` failed: {done.stderr.decode().strip()}")


class FileSystem:
    """A file system in an image, mounted."""

    def __init__(self, directory: Path, kind: str) -> None:
        self.image, self.mounted = directory / "image", directory / "mounted"
        self._make, self._options = MAKE[kind]
        with self.image.open("wb") as file:
            file.truncate(IMAGE_BYTES)
        self.mounted.mkdir()
        command(*self._make, self.image)
        self.mount()

    def mount(self) -> None:
        command("mount", "-o", "loop", *self._options, self.image, self.mounted)

    def cut(self) -> None:
        """Stop it: what is not on the medium never gets there."""
        descriptor = os.open(self.mounted, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.ioctl(descriptor, SHUTDOWN, NO_FLUSH)
        except OSError as error:
            raise Missing(f"the shutdown ioctl failed: {error}") from None
        finally:
            os.close(descriptor)

    def unmount(self) -> None:
        command("umount", self.mounted)


# -- the storage that loses its disk: a process of its own ----------------------------------------


async def write(directory: str, path: str, first_ts: str) -> None:
    """Write transactions until the disk is gone; the ledger lies elsewhere."""
    file = os.open(path, os.O_WRONLY | os.O_APPEND)
    timestamp = int(first_ts)

    def note(kind: int, start_ts: int, commit_ts: int) -> None:
        os.write(file, struct.pack("<BQQ", kind, start_ts, commit_ts))

    async def lane(storage: Storage) -> None:
        nonlocal timestamp
        while True:
            timestamp += 1
            start_ts = timestamp
            note(PREWRITTEN, start_ts, 0)
            await put(storage, ledger.prewrite(start_ts))
            timestamp += 1
            commit_ts = timestamp
            note(SENT, start_ts, commit_ts)
            await put(storage, ledger.commit(start_ts, commit_ts))
            note(ACKNOWLEDGED, start_ts, commit_ts)

    with suppress(WriteFailed, OSError, BinlogError):
        async with opened(Path(directory), limits=LIMITS, abandon=True) as storage:
            await asyncio.gather(*(lane(storage) for _ in range(LANES)))


async def put(storage: Storage, payload: bytes) -> None:
    await storage.write(payload, header(payload))


# -- the cuts -------------------------------------------------------------------------------------


@dataclass
class Found:
    """After one cut."""

    served: int
    rolled_back: int


async def compare(directory: Path, known: Ledger) -> Found:
    """Open, end what is open, read everything. AssertionError where anything is not as it was."""
    async with opened(directory, limits=LIMITS) as storage:
        left = [one.start_ts for one in storage.open_prewrites()]
        sent = {start: ts for ts, start in known.sent.items()}
        for start_ts in left:
            known_ts = sent.get(start_ts)
            await put(storage, ledger.commit(start_ts, known_ts) if known_ts else binlog.rollback(start_ts))
        while storage.open_count:
            await asyncio.sleep(0)
        served = {one.commit_ts: one for one in await pull(storage, from_disk=True)}
    missing = known.acknowledged - served.keys()
    assert not missing, f"{len(missing)} acknowledged commits are missing, the first {min(missing)}"
    for commit_ts, one in served.items():
        assert known.sent.get(commit_ts) == one.start_ts, f"{commit_ts} was never sent"
        assert one.payload == ledger.joined(one.start_ts, commit_ts), f"{commit_ts} is altered"
    return Found(len(served), len(left))


def cut_once(system: FileSystem, path: Path, known: Ledger, rng: random.Random) -> None:
    arguments = ("--write", str(system.mounted / "pump"), str(path), str(known.last_ts + 1))
    writer = subprocess.Popen(
        [sys.executable, "-m", "tests.crash.faults.power_cut", *arguments],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        size, until_s = path.stat().st_size, time.monotonic() + 20
        while path.stat().st_size == size and time.monotonic() < until_s:
            time.sleep(0.005)
        time.sleep(rng.uniform(0, 0.4))
        system.cut()
    finally:
        writer.kill()
        writer.wait(PATIENCE_S)
    system.unmount()
    system.mount()


def campaign(directory: Path, kind: str, cuts: int, seed: int) -> Counter[str]:
    rng, seen = random.Random(seed), Counter[str]()
    system = FileSystem(directory, kind)
    path = directory / "ledger"
    path.touch()
    known = Ledger(last_ts=1 << 58)
    try:
        for number in range(cuts):
            cut_once(system, path, known, rng)
            known.read(path)
            try:
                found = asyncio.run(compare(system.mounted / "pump", known))
            except (AssertionError, BinlogError) as error:
                seen["lost"] += 1
                print(f"{kind}, cut {number + 1}: {error!r}", flush=True)
                traceback.print_exc()
                break
            seen["cuts"] += 1
            seen["acknowledged"] = len(known.acknowledged)
            seen["ended afterwards"] += found.rolled_back
            # What was never acknowledged may be there or not; from here on it is known which.
            if number % 10 == 9:
                shutil.rmtree(system.mounted / "pump")
                known = Ledger(last_ts=known.last_ts, read_to=known.read_to)
                seen["all acknowledged"] += seen.pop("acknowledged")
    finally:
        system.unmount()
    seen["all acknowledged"] += seen.pop("acknowledged", 0)
    return seen


def main(arguments: list[str]) -> None:
    if arguments[:1] == ["--write"]:
        asyncio.run(write(*arguments[1:]))
        return
    parser = argparse.ArgumentParser(prog="tests.crash.faults.power_cut", allow_abbrev=False)
    parser.add_argument("--cuts", type=int, default=200, help="of each file system")
    parser.add_argument("--file-systems", type=lambda text: text.split(","), default=["ext4", "xfs"])
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    chosen = parser.parse_args(arguments)
    print(f"seed {chosen.seed}", flush=True)
    lost = 0
    for kind in chosen.file_systems:
        with tempfile.TemporaryDirectory(prefix="power-cut-") as made:
            try:
                seen = campaign(Path(made), kind, chosen.cuts, chosen.seed)
            except Missing as error:
                sys.exit(f"no power cuts here: {error}")
        print(f"{kind}: {dict(seen)}", flush=True)
        lost += seen["lost"]
    sys.exit(bool(lost))


if __name__ == "__main__":
    main(sys.argv[1:])
