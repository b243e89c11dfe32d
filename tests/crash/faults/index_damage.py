"""Every damage of every file of a small index, each followed by a start: delivered is what was acknowledged.

    python -m tests.crash.faults.index_damage [--every N] [--processes N]

Flipped: each bit. Zeroed: each sector, each page, everything from a sector on. Cut: at each byte. Removed:
each file. A start may notice and rebuild, or end with an error that lets the next start rebuild; whoever
pulls then gets everything, and never has anything been left out without an error.

Four indexes: one of few bytes in which LevelDB has written tables, moved them and gone on, for bits and
bytes; the same after a life without writes, in which no entry comes after those of a table; one with a log of
many blocks, as a power cut may find it, for sectors and pages; and one of SQLite.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import os
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from pump.index.backends import SQLITE
from pump.log.delivery import Delivery
from pump.storage.opening import StorageLimits
from pump.storage.storage import Storage
from tests.pump.support.payloads import opened, pull, put, put_pair, wait_watermark
from tidb_binlog import binlog
from tidb_binlog.errors import BinlogError
from tidb_binlog.observe import log

LIMITS = StorageLimits(segment_bytes_max=200_000)
SECTOR, PAGE, BLOCK = 512, 4096, 32 << 10
NOTHING = {
    "start": b"~",
    "stop": b"~~",
}  # a range to compact: entries in memory become a table, and no table is touched
NO_DATA = ("LOCK", "LOG", "LOG.old")


def scratch() -> str:
    """In memory where there is such a place: LevelDB syncs at every opening."""
    shared = Path("/dev/shm")
    return tempfile.mkdtemp(prefix="index-damage-", dir=shared if shared.is_dir() else None)


@dataclass(frozen=True, slots=True)
class Damage:
    """What is done to one file at one place. `what`: flip, zero, blank, cut or remove."""

    what: str
    file: str
    at: int = 0
    size: int = 0  # of zeros, bytes; of a flip, the bit

    def apply(self, kv: Path) -> None:
        path = kv / self.file
        data = bytearray(path.read_bytes())
        match self.what:
            case "flip":
                data[self.at] ^= 1 << self.size
            case "zero":
                end = min(self.at + self.size, len(data))
                data[self.at : end] = bytes(end - self.at)
            case "blank":
                data[self.at :] = bytes(len(data) - self.at)
            case "cut":
                del data[self.at :]
            case "remove":
                path.unlink()
                return
        path.write_bytes(data)


@dataclass(frozen=True, slots=True)
class Image:
    """A data directory that nobody works in, and what it has to deliver."""

    path: Path
    expected: list[Delivery]

    def files(self) -> list[tuple[str, int]]:
        found = sorted((self.path / "kv").iterdir())
        return [(file.name, file.stat().st_size) for file in found if file.name not in NO_DATA]

    def bits(self) -> Iterator[Damage]:
        for name, size in self.files():
            for at in range(size):
                for bit in range(8):
                    yield Damage("flip", name, at, bit)

    def cuts(self) -> Iterator[Damage]:
        for name, size in self.files():
            for at in range(size):
                yield Damage("cut", name, at)

    def sectors(self) -> Iterator[Damage]:
        for name, size in self.files():
            yield Damage("remove", name)
            for at in range(0, size, PAGE):
                yield Damage("zero", name, at, PAGE)
            for at in range(0, size, SECTOR):
                yield Damage("zero", name, at, SECTOR)
                yield Damage("blank", name, at)
                yield Damage("cut", name, at)


async def _pairs(storage: Storage, first_ts: int, count: int) -> list[Delivery]:
    """Transactions, each in batches of its own."""
    stored = []
    for ts in range(first_ts, first_ts + 10 * count, 10):
        stored.append(Delivery(ts + 1, ts, await put_pair(storage, ts, ts + 1, b"v" * (ts % 7))))
        await wait_watermark(storage, ts + 1)
    return stored


async def few_bytes(path: Path, pairs: int = 3) -> Image:
    """Tables of several lives, edits of all kinds, and newer entries in the log of LevelDB."""
    stored = []
    async with opened(path, limits=LIMITS) as storage:
        stored += await _pairs(storage, 1000, pairs)
    async with opened(path, limits=LIMITS, abandon=True) as storage:
        for first_ts, merged in ((2000, {}), (3000, {}), (4000, NOTHING), (5000, NOTHING)):
            stored += await _pairs(storage, first_ts, pairs)
            storage.index.store.database.compact_range(**merged)
        stored += await _pairs(storage, 6000, pairs)
    return Image(path, stored)


async def idle(path: Path) -> Image:
    image = await few_bytes(path)
    async with opened(path, limits=LIMITS):
        return image


async def many_blocks(path: Path, pairs: int = 500) -> Image:
    """A log of LevelDB of several blocks of 32 KiB in front of which a table was written."""
    async with opened(path, limits=LIMITS, abandon=True) as storage:
        stored = await _pairs(storage, 1000, 20)
        storage.index.store.database.compact_range()
        stored += await _pairs(storage, 2000, pairs)
        await put(storage, binlog.fake(1_000_000))
        await wait_watermark(storage, 1_000_000)
    stored.append(Delivery(1_000_000, 1_000_000, binlog.fake(1_000_000)))
    return Image(path, stored)


async def tables(path: Path, pairs: int = 200) -> Image:
    """Tables of several blocks, of which an opening reads the last ones only."""
    async with opened(path, limits=LIMITS) as storage:
        stored = await _pairs(storage, 1000, pairs)
        storage.index.store.database.compact_range()
    return Image(path, stored)


async def sqlite(path: Path, pairs: int = 150) -> Image:
    """Leaves in the file of SQLite, and some that are only written ahead, as a killed process leaves both."""
    live = path.with_name("live")
    async with opened(live, limits=LIMITS, index_backend=SQLITE) as storage:
        stored = await _pairs(storage, 1000, pairs)
        with storage.index.store.write_batch(sync=True):
            """What was written ahead goes into the file."""
        stored += await _pairs(storage, 5000, pairs // 3)
        shutil.copytree(live, path)
    return Image(path, stored)


def data_end(table: bytes) -> int:
    """Where the entries of a table end, by its footer: behind them are the blocks that tell where they begin.
    LevelDB maps a table into memory and checks those once, when it opens it, and entries at every reading."""
    value = shift = 0
    for octet in table[-48:]:
        value |= (octet & 0x7F) << shift
        shift += 7
        if octet < 0x80:
            break
    return value


async def _served(path: Path, expected: list[Delivery], damage: Damage | None = None) -> list[Delivery]:
    """What a pump delivers, in one go and one by one; `damage` comes while it is open."""
    async with opened(path, limits=replace(LIMITS, recent_bytes_max=1)) as storage:
        if damage is None:
            history = storage.history()
            for one in expected:
                ask = partial(history.page, one.commit_ts - 1, one.commit_ts, bytes_max=1)
                page = await storage.in_thread(ask)
                assert page.deliveries == [one], "left out without an error"
            return await pull(storage, from_disk=True)
        damage.apply(path / "kv")
        return await pull(storage)


async def judge(image: Image, damage: Damage, copy: Path, *, while_open: bool = False) -> str:
    """Start on a damaged copy; what came of it. `AssertionError` where something is left out."""
    shutil.copytree(image.path, copy)
    try:
        if not while_open:
            damage.apply(copy / "kv")
        told = ""
        try:
            served = await _served(copy, image.expected, damage if while_open else None)
        except BinlogError:
            told = "told, "
            assert not while_open or (copy / ".rebuild").exists()
            served = await _served(copy, image.expected)
        assert served == image.expected, f"{damage}: {len(served)} of {len(image.expected)} delivered"
        return told + ("rebuilt" if list(copy.glob("kv.damaged-*")) else "no loss")
    finally:
        shutil.rmtree(copy)


# -- by hand ---------------------------------------------------------------------------------------


def _judge_all(work: tuple[Image, list[Damage], str]) -> tuple[Counter[str], list[str]]:
    image, damages, name = work
    seen, lost = Counter[str](), []
    log.setup("fatal", "", "tidb")

    async def run() -> None:
        for number, damage in enumerate(damages):
            try:
                outcome = await judge(image, damage, image.path.parent / f"{name}-{number}")
            except Exception as error:
                outcome = "LOST"
                lost.append(f"{damage}: {error!r}"[:300])
            seen[f"{damage.what} {damage.file.rpartition('.')[2].split('-')[0]}: {outcome}"] += 1

    asyncio.run(run())
    return seen, lost


def campaign(image: Image, damages: Iterable[Damage], processes: int) -> int:
    """Judge all; how many were lost."""
    began_s, todo = time.monotonic(), list(damages)
    works = [(image, todo[at : at + 500], f"copy-{at}") for at in range(0, len(todo), 500)]
    seen, lost = Counter[str](), []
    with multiprocessing.Pool(processes) as pool:
        for more, also in pool.imap_unordered(_judge_all, works):
            seen += more
            lost += also
    print(f"{len(todo)} damages of {image.files()}, {time.monotonic() - began_s:.0f} s")
    for kind, count in sorted(seen.items()):
        print(f"    {count:7} {kind}")
    for line in lost[:50]:
        print(line)
    return len(lost)


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="tests.crash.faults.index_damage", allow_abbrev=False)
    parser.add_argument("--every", type=int, default=1, help="only each Nth damage")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    chosen = parser.parse_args(arguments)
    made = Path(scratch())
    lost = 0
    with suppress(KeyboardInterrupt):
        builds = (("few", few_bytes), ("idle", idle), ("many", many_blocks), ("sqlite", sqlite))
        for name, build in builds:
            image = asyncio.run(build(made / name / "whole"))
            damages = list(image.sectors())
            if build is not many_blocks:
                damages += [*image.cuts(), *image.bits()]
            lost += campaign(image, damages[:: chosen.every], chosen.processes)
    shutil.rmtree(made)
    sys.exit(bool(lost))


if __name__ == "__main__":
    main(sys.argv[1:])
