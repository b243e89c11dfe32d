"""Damage of the index's own files: refused, told, rebuilt or without effect; never another answer."""

from __future__ import annotations

import random
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from common import binlog
from common.errors import BinlogError
from pump.delivery import Delivery
from pump.storage import Limits
from tests.pump.payloads import opened, pull, put, put_pair, wait_watermark

LIMITS = Limits(segment_bytes_max=20_000)


@pytest.fixture
def scratch() -> Iterator[Path]:
    """In memory where there is such a place: LevelDB syncs at every opening."""
    shared = Path("/dev/shm")
    made = tempfile.mkdtemp(dir=shared if shared.is_dir() else None)
    yield Path(made)
    shutil.rmtree(made)


async def store(path: Path) -> list[Delivery]:
    """Two lives, so that the index has a table, a log and a manifest with something in them."""
    stored = []
    for first in (1000, 10_000):
        async with opened(path, limits=LIMITS) as storage:
            for ts in range(first, first + 600, 10):
                joined = await put_pair(storage, ts, ts + 1, b"v" * (ts % 70))
                stored.append(Delivery(ts + 1, ts, joined))
    async with opened(path, limits=LIMITS) as storage:
        await put(storage, binlog.fake(50_000))
        await wait_watermark(storage, 50_000)
        stored.append(Delivery(50_000, 50_000, binlog.fake(50_000)))
        assert await pull(storage, from_disk=True) == stored
    return stored


async def test_a_flipped_bit_in_any_file_of_the_index(scratch: Path) -> None:
    expected = await store(scratch / "whole")
    rng, seen = random.Random(5), Counter[str]()
    for file in sorted((scratch / "whole" / "kv").iterdir()):
        data = file.read_bytes()
        for _ in range(min(len(data), 25)):
            copy = scratch / "flipped"
            shutil.copytree(scratch / "whole", copy)
            damaged, at = bytearray(data), rng.randrange(len(data))
            damaged[at] ^= 1 << rng.randrange(8)
            (copy / "kv" / file.name).write_bytes(damaged)
            try:
                async with opened(copy, limits=LIMITS) as storage:
                    served = await pull(storage, from_disk=True)
                    assert served == expected[: len(served)], f"{file.name} byte {at}: something was left out"
                    assert storage.watermark >= expected[-1].commit_ts or served != expected
            except BinlogError:
                seen["told"] += 1
            else:
                seen["rebuilt" if list(copy.glob("kv.damaged-*")) else "no effect"] += 1
                assert len(served) == len(expected), f"{file.name} byte {at}: {len(served)} served"
            shutil.rmtree(copy)
    assert all(seen[kind] for kind in ("told", "rebuilt", "no effect")), seen
