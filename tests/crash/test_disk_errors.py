"""EIO, ENOSPC, EDQUOT and short writes at every call that changes the disk, under a whole storage.

After an error nothing is acknowledged any more and no byte goes to the log; a failed sync is never asked
again (the kernel would say yes, the bytes would be gone). After a restart everything acknowledged is there,
whether the process alone died or the machine. A short write is no error at all.
"""

from __future__ import annotations

import asyncio
import errno
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from pump.log.writer import WriteFailed
from pump.storage.opening import StorageLimits
from pump.storage.storage import Storage
from tests.crash.faults import disk
from tests.crash.faults.disk import ERROR, SHORT, Disk, Fault
from tests.crash.lives import Mount
from tests.pump.support.payloads import header, opened, pull, wait_watermark
from tidb_binlog import binlog
from tidb_binlog.errors import BinlogError

LIMITS = StorageLimits(segment_bytes_max=900, group_bytes_max=4096)
NUMBERS = (errno.EIO, errno.ENOSPC, errno.EDQUOT)


@pytest.fixture
def mount() -> Iterator[Mount]:
    with disk.mounted() as mounted:
        yield mounted


@pytest.fixture
def scratch() -> Iterator[Path]:
    """In memory where there is such a place: LevelDB syncs at every opening."""
    shared = Path("/dev/shm")
    made = tempfile.mkdtemp(dir=shared if shared.is_dir() else None)
    yield Path(made)
    shutil.rmtree(made)


@dataclass
class Life:
    """`acknowledged` and `refused`: commit timestamps."""

    acknowledged: list[int] = field(default_factory=list)
    refused: list[int] = field(default_factory=list)
    failed_at: int = 0  # calls of the disk when the first write was refused
    trouble: Exception | None = None


def transaction(ts: int) -> tuple[bytes, bytes]:
    return binlog.prewrite(ts, b"k", b"v" * (ts % 400)), binlog.commit(ts, ts + 1, b"k")


async def store(storage: Storage, found: Disk, life: Life, transactions: Sequence[int]) -> None:
    """All at once; each commit after its prewrite."""

    async def one(ts: int) -> None:
        try:
            for payload in transaction(ts):
                await storage.write(payload, header(payload))
        except WriteFailed:
            life.failed_at = life.failed_at or len(found.calls)
            life.refused.append(ts + 1)
        else:
            assert not life.refused, "acknowledged after a write had failed"
            life.acknowledged.append(ts + 1)

    await asyncio.gather(*(one(ts) for ts in transactions))


async def live(path: Path, mount: Mount, found: Disk) -> Life:
    life = Life()
    path.mkdir()
    try:
        async with opened(path, directory=mount(found), limits=LIMITS) as storage:
            for ts in range(10, 100, 30):
                await store(storage, found, life, (ts, ts + 10, ts + 20))
            if life.refused:
                assert storage.write_failure is not None
                assert len(found.calls) == life.failed_at, "the disk was asked again after it had failed"
    except (OSError, BinlogError) as error:
        life.trouble = error
    return life


async def check(path: Path, mount: Mount, found: Disk, life: Life) -> None:
    """Everything acknowledged, nothing that was never written; and it continues from there."""
    async with opened(path, directory=mount(found), limits=LIMITS) as storage:
        for prewrite in list(storage.open_prewrites()):
            payload = binlog.rollback(prewrite.start_ts)
            await storage.write(payload, header(payload))
        await store(storage, found, Life(), (1000, 1010))
        await wait_watermark(storage, 1011)
        deliveries = await pull(storage, from_disk=True)
        for delivery in deliveries:
            assert delivery.payload == binlog.join(*transaction(delivery.start_ts))
        commits = [delivery.commit_ts for delivery in deliveries]
        assert set(life.acknowledged) <= set(commits)
        assert set(commits) <= {*life.acknowledged, *life.refused, 1001, 1011}


async def undisturbed(scratch: Path, mount: Mount) -> int:
    whole = Disk()
    life = await live(scratch / "undisturbed", mount, whole)
    assert life.trouble is None
    assert len(life.acknowledged) == 9
    return len(whole.calls)


@pytest.mark.parametrize("number", NUMBERS, ids=errno.errorcode.get)
async def test_an_error_at_every_call_stops_writing_and_loses_nothing(
    number: int, scratch: Path, mount: Mount
) -> None:
    stopped = 0
    calls = await undisturbed(scratch, mount)
    for at in range(calls):
        found, path = Disk({at: Fault(ERROR, number)}), scratch / str(at)
        life = await live(path, mount, found)
        if at < len(found.calls):  # how writes share a group differs from run to run
            assert life.trouble or life.refused, f"{found.calls[at]} failed and nobody was told"
            stopped += 1
        for number_left, left in enumerate((found.after_kill(), found.after_power_cut("nothing"))):
            copy = scratch / f"{at}.{number_left}"
            shutil.copytree(path, copy)
            await check(copy, mount, left, life)
            shutil.rmtree(copy)
    assert stopped > calls // 2


async def test_short_writes_are_continued(scratch: Path, mount: Mount) -> None:
    for at in range(await undisturbed(scratch, mount)):
        found, path = Disk({at: Fault(SHORT), at + 1: Fault(SHORT)}), scratch / str(at)
        life = await live(path, mount, found)
        assert life.trouble is None
        assert len(life.acknowledged) == 9
        await check(path, mount, found.after_power_cut("nothing"), life)


async def test_a_failed_sync_is_not_made_good_by_the_next(scratch: Path, mount: Mount) -> None:
    """The disk says yes again after one error; what it lost in between stays lost."""
    whole = Disk()
    await live(scratch / "undisturbed", mount, whole)
    at = [number for number, call in enumerate(whole.calls) if call.startswith("fdatasync")][3]
    found = Disk({at: Fault(ERROR)})
    life = await live(scratch / "failed", mount, found)
    assert life.refused
    assert life.acknowledged
    left = found.after_power_cut("nothing")
    await check(scratch / "failed", mount, left, life)
