"""The process that writes the relay log: its death and its drainer's, signals, errors, a full disk."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from common import filesystem
from common.clock import ManualClock
from common.errors import BinlogError, ConfigError, Corruption, DirectoryLocked, ForeignDirectory
from common.rowcodec.row_error import RowError
from drainer import metrics
from drainer.formats import binlog_directory
from drainer.formats.binlog_directory import BinlogDirectory, Broken
from drainer.relay import process as relay_process
from drainer.relay import protocol, relay_log
from drainer.relay.child import RelayChild
from drainer.relay.relay_log import RelayLog
from drainer.txn import INSERT, TableEvents, TableVersion, Transaction
from tests.crash.faults import disk
from tests.crash.faults.disk import ROOT, Disk
from tests.drainer.relay.test_relay_log import INFO, opened, records, timestamps, transaction
from tests.drainer.support.relay_thread import RelayThread

LIFE = """
import asyncio, sys
from common.clock import SystemClock
from drainer.relay.relay_log import RelayLog
from tests.drainer.relay.test_relay_log import transaction

async def live():
    log = RelayLog.open(sys.argv[1], 20_000, SystemClock())
    print(log._child.pid, flush=True)
    for ts in range(1, 1_000_000):
        log.append(transaction(ts, 3))
        if ts % 10 == 0:
            await log.sync()
            print(ts, flush=True)

asyncio.run(live())
"""


def process(path: Path, max_file_size: int = 2000) -> tuple[RelayLog, RelayChild]:
    child = RelayChild()
    return RelayLog.open(str(path), max_file_size, ManualClock(), child=child), child


def is_alive(pid: int) -> bool:
    try:
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False


async def test_a_process_writes_the_log_and_ends_with_it(tmp_path: Path) -> None:
    """Also more at once than a socket takes."""
    log, child = process(tmp_path, 1 << 20)
    before = sum(metrics.RELAY_RECORD_BYTES.counts)
    log.append(transaction(1))
    await log.sync()
    for ts in range(2, 40):
        log.append(transaction(ts, 4000))
    await log.sync()
    assert sum(metrics.RELAY_RECORD_BYTES.counts) == before + 39
    await log.close()
    assert not is_alive(child.pid)
    assert timestamps(tmp_path) == list(range(1, 40))


async def test_signals_for_the_drainer_do_not_end_it(tmp_path: Path) -> None:
    log, child = process(tmp_path)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        os.kill(child.pid, number)
    log.append(transaction(1))
    await log.close()
    assert timestamps(tmp_path) == [1]


async def test_its_death_is_told_at_once_and_nothing_is_lost(tmp_path: Path) -> None:
    log, child = process(tmp_path)
    failure: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()
    log.watch(failure.set_result)
    for ts in range(1, 20):
        log.append(transaction(ts))
    await log.sync()
    log.append(transaction(20))
    os.kill(child.pid, signal.SIGKILL)
    async with asyncio.timeout(10):
        error = await failure
    assert isinstance(error, Broken)
    assert f"(pid {child.pid}) was ended by SIGKILL" in str(error)
    assert error.hint
    log.append(transaction(21))
    log.done(5)
    for _ in range(2):
        with pytest.raises(Broken, match="SIGKILL"):
            await log.sync()
    with pytest.raises(Broken, match="SIGKILL"):
        await log.close()
    log, _ = process(tmp_path)
    log.append(transaction(20))
    await log.close()
    found = timestamps(tmp_path)
    assert found[:19] == list(range(1, 20))
    assert found[-1] == 20


async def test_death_while_a_sync_is_waited_for(tmp_path: Path) -> None:
    log, child = process(tmp_path)
    os.kill(child.pid, signal.SIGSTOP)
    log.append(transaction(1))
    waiting = [asyncio.create_task(log.sync()) for _ in range(3)]
    await asyncio.sleep(0)
    os.kill(child.pid, signal.SIGKILL)
    for task in waiting:
        with pytest.raises(Broken, match="SIGKILL"):
            await task
    with pytest.raises(Broken):
        await log.close()


@pytest.mark.parametrize("lines", [2, 3, 40])
def test_it_dies_with_its_drainer_and_nothing_acknowledged_is_lost(tmp_path: Path, lines: int) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", LIFE, str(tmp_path)], stdout=subprocess.PIPE, text=True
    ) as drainer:
        assert drainer.stdout is not None
        pid = int(drainer.stdout.readline())
        for _ in range(lines):
            acknowledged = int(drainer.stdout.readline())
        drainer.kill()
        acknowledged = int(([str(acknowledged), *drainer.stdout.read().split()])[-1])
    child = RelayThread()  # waits for the lock, if need be
    log = RelayLog.open(str(tmp_path), 20_000, ManualClock(), child=child)
    assert not is_alive(pid)
    log._socket.close()
    child.end()
    found = timestamps(tmp_path)
    assert found == list(range(1, len(found) + 1))
    assert len(found) >= acknowledged


def test_a_start_that_fails_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relay_process, "LOCK_PAUSE_S", 0.0)
    directory = BinlogDirectory(str(tmp_path / "log"), ManualClock())
    directory.adopt_cluster(7)
    with pytest.raises(DirectoryLocked, match="another drainer uses it"):
        opened(tmp_path / "log")
    directory.close()
    with pytest.raises(ForeignDirectory, match="cluster 7") as found:
        RelayLog.open(str(tmp_path / "log"), 0, ManualClock(), cluster_id=8)
    assert found.value.hint
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot be used"):
        RelayLog.open(str(tmp_path / "file" / "log"), 0, ManualClock())


def test_a_process_that_dies_before_it_opens(tmp_path: Path) -> None:
    child = RelayChild()
    os.kill(child.pid, signal.SIGKILL)
    with pytest.raises(Broken, match="SIGKILL"):
        RelayLog.open(str(tmp_path), 0, ManualClock(), child=child)


async def test_a_row_that_cannot_be_right(tmp_path: Path) -> None:
    log = opened(tmp_path)
    log.append(Transaction(0, 1, (TableEvents(TableVersion(INFO, "s", "t", 1), [INSERT], [b"\xff"], 0),), 9))
    with pytest.raises(RowError):
        await log.sync()
    with pytest.raises(RowError):
        await log.close()


@pytest.mark.parametrize(
    "error", [Broken("a", hint="b"), Corruption("a"), RowError("a", column="c", hint="b")]
)
def test_errors_arrive_as_they_were(error: BinlogError) -> None:
    data = protocol.message(protocol.failure(error))
    back = protocol.read_message(data[protocol.LENGTH.size :])
    assert type(back) is type(error)
    assert (str(back), vars(back)) == (str(error), vars(error))


def test_an_error_without_a_class_of_ours_gets_one() -> None:
    back = protocol.failure(ValueError("x"))
    assert isinstance(back, Broken)
    assert "ValueError('x')" in str(back)
    assert back.hint


async def test_table_numbers_begin_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relay_log, "VERSIONS_MAX", 2)
    versions = [TableVersion(INFO, "shop", f"t{n}", 1) for n in range(5)]
    row = transaction(1).tables[0].rows
    log = opened(tmp_path, 1 << 20)
    for ts in range(1, 30):
        log.append(Transaction(0, ts, (TableEvents(versions[ts * ts % 5], [INSERT], row, 0),), 60))
        if ts % 4 == 0:
            await log.sync()
    await log.close()
    names = [record.dml_data.tables[0].table_name for record in records(tmp_path)]
    assert names == [f"t{ts * ts % 5}" for ts in range(1, 30)]


# -- answers and a full disk ----------------------------------------------------------------------------


async def test_answers_come_in_the_order_of_what_was_asked(tmp_path: Path) -> None:
    """A caller that knows of a sync finds what was appended before it asked, whatever came in between."""
    log = opened(tmp_path / "log", 1500)
    acknowledged: list[int] = []

    async def synced(ts: int) -> None:
        await log.sync()
        acknowledged.append(ts)
        copy = shutil.copytree(tmp_path / "log", tmp_path / f"copy-{ts}")
        assert set(range(max(ts - 20, 1), ts + 1)) <= set(timestamps(copy))

    tasks = []
    for ts in range(1, 61):
        log.append(transaction(ts))
        if ts % 3 == 0:
            tasks.append(asyncio.create_task(synced(ts)))
            await asyncio.sleep(0)
        if ts > 20 and ts % 5 == 0:
            await asyncio.gather(*tasks)
            log.done(acknowledged[-1] - 20)
    await asyncio.gather(*tasks)
    assert acknowledged == sorted(acknowledged)
    assert len(acknowledged) == 20
    await log.close()
    assert 1 not in timestamps(tmp_path / "log")


class SmallDisk(Disk):
    """So many bytes of binlog files fit."""

    capacity = 12_000

    def writev(self, descriptor: int, buffers: list[bytes]) -> int:
        used = sum(len(inode.data) for inode in self._entries.values() if inode is not None)
        if used + sum(map(len, buffers)) > self.capacity:
            raise OSError(errno.ENOSPC, "No space left on device")
        return super().writev(descriptor, buffers)


@pytest.fixture
def mount(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Disk], None]]:
    for module in (binlog_directory, filesystem):
        monkeypatch.setattr(module, "os", disk._calls)
    locks = SimpleNamespace(flock=lambda descriptor, how: None, LOCK_EX=0, LOCK_NB=0, LOCK_UN=0)
    monkeypatch.setattr(filesystem, "fcntl", locks)
    monkeypatch.setattr(relay_process, "Backoff", lambda *pauses: SimpleNamespace(next_s=lambda: 0.001))

    def put(found: Disk) -> None:
        disk._calls.disk = found

    yield put
    disk._calls.disk = None


async def test_files_that_are_done_make_room_on_a_full_disk(mount: Callable[[Disk], None]) -> None:
    """Removing does not wait for what waits for space; what was asked meanwhile is done in its order."""
    mount(SmallDisk())
    log = opened(ROOT + "/relay", 1500)
    ts = 0
    async with asyncio.timeout(20):
        while not log.waiting_for:
            ts += 1
            log.append(transaction(ts))
            waiting = asyncio.create_task(log.sync())
            for _ in range(20):
                if waiting.done() or log.waiting_for:
                    break
                await asyncio.sleep(0.001)
        assert "No space left" in log.waiting_for
        log.append(transaction(ts + 1))
        later = asyncio.create_task(log.sync())
        log.done(ts - 2)
        await waiting
        await later
    assert log.waiting_for == ""
    await log.close()
    found = timestamps(ROOT + "/relay")
    assert set(range(ts - 1, ts + 2)) <= set(found)
    assert 1 not in found


async def test_a_disk_that_stays_full_does_not_hold_up_the_end(mount: Callable[[Disk], None]) -> None:
    small = SmallDisk()
    mount(small)
    log = opened(ROOT + "/relay", 1500)
    small.capacity = 0
    log.append(transaction(1))
    waiting = asyncio.create_task(log.sync())
    async with asyncio.timeout(10):
        while not log.waiting_for:
            await asyncio.sleep(0.001)
        waiting.cancel()
        closing = asyncio.create_task(log.close())
        await asyncio.sleep(0)
        closing.cancel()
        await asyncio.gather(waiting, closing, return_exceptions=True)
    assert timestamps(ROOT + "/relay") == []
