"""Relay log: durable before anything goes on, removed when done, whole over restarts, pieces, full disks."""

from __future__ import annotations

import asyncio
import errno
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from common import filesystem
from common.clock import ManualClock, SystemClock
from common.errors import BinlogError, ForeignDirectory
from common.rowcodec.encoder import RowEncoder
from common.wire import secondary_binlog_pb2 as pb
from drainer.formats import binlog_directory
from drainer.formats.binlog_directory import BinlogDirectory, Broken
from drainer.formats.obinlog import reader as obinlog_read
from drainer.relay import process, relay_log
from drainer.relay.relay_log import RelayLog
from drainer.txn import INSERT, Ddl, TableEvents, TableVersion, Transaction
from tests.common.rowcodec.tables import kind, table
from tests.crash.faults import disk
from tests.crash.faults.disk import ERROR, FREEZE, ROOT, Disk, Fault
from tests.drainer.support.relay_thread import RelayThread

INFO = table(("id", kind("bigint", not_null=True)), ("c", kind("varchar")), handle="rowid")
TABLE = TableVersion(INFO, "shop", "t", 1)
OTHER = TableVersion(INFO, "shop", "u", 1)
ENCODER = RowEncoder(INFO)


def transaction(ts: int, rows: int = 1, *, first: int = 0, last: bool = True) -> Transaction:
    encoded = [ENCODER.insert((ts * 1000 + first + n, "x" * 50), 1) for n in range(rows)]
    events = TableEvents(TABLE if ts % 2 else OTHER, [INSERT] * rows, encoded, first)
    return Transaction(ts - 1, ts, (events,), rows * 60, last=last)


def opened(path: Path | str, max_file_size: int = 2000) -> RelayLog:
    return RelayLog.open(str(path), max_file_size, ManualClock(), child=RelayThread())


def records(path: Path | str) -> list[pb.Binlog]:
    directory = BinlogDirectory(str(path), ManualClock())
    found = [
        pb.Binlog.FromString(file.payload(place))
        for index, file in directory.files.items()
        for place in directory.places[index]
    ]
    directory.close()
    return found


def timestamps(path: Path | str) -> list[int]:
    return [record.commit_ts for record in records(path)]


async def test_what_was_synced_is_there(tmp_path: Path) -> None:
    log = opened(tmp_path / "log")
    for ts in range(1, 30):
        log.append(transaction(ts))
        if ts % 4 == 0:
            await log.sync()
            copy = shutil.copytree(tmp_path / "log", tmp_path / f"copy-{ts}")
            assert timestamps(copy) == list(range(1, ts + 1))
    await log.close()
    assert timestamps(tmp_path / "log") == list(range(1, 30))
    assert len(list((tmp_path / "log").glob("binlog-*"))) > 2


async def test_syncs_are_shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever asks while a sync runs waits for the next one, together with all others."""
    log = opened(tmp_path, 1 << 20)
    syncs = 0
    sync = BinlogDirectory.sync

    def counted(self: BinlogDirectory, whole: int | None = None) -> None:
        nonlocal syncs
        syncs += 1
        sync(self, whole)

    monkeypatch.setattr(BinlogDirectory, "sync", counted)

    async def one(ts: int) -> None:
        log.append(transaction(ts))
        await log.sync()

    await asyncio.gather(*(one(ts) for ts in range(1, 200)))
    assert syncs <= 2
    await log.close()
    assert timestamps(tmp_path) == list(range(1, 200))


async def test_every_file_has_the_definitions_of_its_rows(tmp_path: Path) -> None:
    log = opened(tmp_path)
    for ts in range(1, 40):
        log.append(transaction(ts))
    await log.close()
    directory = BinlogDirectory(str(tmp_path), ManualClock())
    for index, file in directory.files.items():
        known: dict[int, bytes] = {}
        for place in directory.places[index]:
            record = pb.Binlog.FromString(file.payload(place))
            known.update({one.number: one.table for one in record.definitions})
            (written,) = record.dml_data.tables
            assert obinlog_read.definition(known[written.definition]).name == written.table_name
    directory.close()


async def test_transactions_without_rows_and_ddl(tmp_path: Path) -> None:
    log = opened(tmp_path)
    log.append(Transaction(1, 2, (), 10))
    log.append(Ddl(3, 1, 3, "shop", "CREATE TABLE t (a INT)", (("shop", "t"),), 1))
    log.append(Ddl(4, 2, 3, "shop", "CREATE TABLE u (a INT)", (("shop", "u"),), 2), "CREATE TABLE v (a INT)")
    log.append(Ddl(5, 3, 3, "a", "no", (("a", "u"),), 3, instead=("DROP TABLE x", "DROP TABLE y")))
    await log.close()
    assert [(one.commit_ts, one.ddl_data.ddl_query) for one in records(tmp_path)] == [
        (3, b"CREATE TABLE t (a INT)"),
        (4, b"CREATE TABLE v (a INT)"),
        (5, b"DROP TABLE x; DROP TABLE y"),
    ]


async def test_files_go_when_all_in_them_is_done(tmp_path: Path) -> None:
    log = opened(tmp_path)
    for ts in range(1, 60):
        log.append(transaction(ts))
        await log.sync()
    log.done(30)
    await log.close()
    left = timestamps(tmp_path)
    assert 1 not in left
    assert set(range(31, 60)) <= set(left)


@pytest.mark.parametrize("after_ts", [29, 30, 45])
async def test_a_stream_that_begins_below_what_was_removed_begins_the_log_anew(
    tmp_path: Path, after_ts: int
) -> None:
    """The downstream went back in time: what is left would seem whole, with a gap before it."""
    log = opened(tmp_path)
    for ts in range(1, 60):
        log.append(transaction(ts))
        await log.sync()
    log.done(30)
    await log.close()
    left = timestamps(tmp_path)
    log = RelayLog.open(str(tmp_path), 2000, SystemClock(), after_ts=after_ts)
    log.append(transaction(after_ts + 1))
    await log.close()
    assert timestamps(tmp_path) == ([30] if after_ts == 29 else [*left, after_ts + 1])
    directory = BinlogDirectory(str(tmp_path), SystemClock())
    assert directory.purged_ts == min(after_ts, 30)
    directory.close()


async def test_the_newest_file_stays_and_old_ones_go_after_a_restart(tmp_path: Path) -> None:
    for start in (1, 40):
        log = opened(tmp_path)
        for ts in range(start, start + 30):
            log.append(transaction(ts))
        await log.close()
    log = opened(tmp_path)
    before = sorted(path.name for path in tmp_path.glob("binlog-*"))
    log.done(10_000)
    await log.close()
    assert [path.name for path in tmp_path.glob("binlog-*")] == before[-1:]


async def test_a_file_stays_for_what_was_written_anew(tmp_path: Path) -> None:
    """After a restart from an older checkpoint timestamps begin again: a file's largest one counts."""
    log = opened(tmp_path, 4000)
    for ts in [*range(1, 20), *range(5, 40)]:
        log.append(transaction(ts))
    await log.sync()
    log.done(18)
    await log.close()
    assert set(range(19, 40)) <= set(timestamps(tmp_path))


async def test_pieces_are_one_record(tmp_path: Path) -> None:
    log = opened(tmp_path, 1 << 20)
    log.append(transaction(1))
    whole = transaction(3, 90)
    for first in range(0, 90, 30):
        log.append(transaction(3, 30, first=first, last=first == 60))
        await log.sync()
        if first < 60:
            await log.sync()
            assert len(sorted(tmp_path.glob("binlog-*"))) == 1
    log.append(transaction(4))
    await log.close()
    one, large, two = records(tmp_path)
    assert (one.commit_ts, large.commit_ts, two.commit_ts) == (1, 3, 4)
    rows = [mutation.row for piece in large.dml_data.tables for mutation in piece.mutations]
    assert [row.columns[0].int64_value for row in rows] == [3000 + n for n in range(90)]
    assert [piece.first_ordinal for piece in large.dml_data.tables] == [0, 30, 60]
    payload = large.SerializeToString()
    head = obinlog_read.head(lambda at, size: payload[at : at + size], len(payload))
    known = {number: obinlog_read.definition(one) for number, one in head.definitions.items()}
    reader = obinlog_read.ObinlogReader(known or {1: TABLE}, lambda foreign: TABLE)
    back = reader.transaction(lambda at, size: payload[at : at + size], head, str)
    assert sum(len(events.rows) for events in back.tables) == len(whole.tables[0].rows)


async def test_a_transaction_whose_last_piece_is_missing_is_no_record(tmp_path: Path) -> None:
    log = opened(tmp_path, 1 << 20)
    log.append(transaction(1))
    log.append(transaction(3, 30, last=False))
    await log.sync()
    await log.close()
    assert timestamps(tmp_path) == [1]
    log = opened(tmp_path, 1 << 20)
    log.append(transaction(3, 60))
    await log.close()
    assert timestamps(tmp_path) == [1, 3]


async def test_a_large_record_is_not_held_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relay_log, "BUFFERED_BYTES_MAX", 100_000)
    log = opened(tmp_path, 1 << 20)
    waited = 0
    for first in range(0, 10_000, 500):
        log.append(transaction(3, 500, first=first, last=first == 9_500))
        if not log.has_room:
            await log.sync()
            waited += 1
    assert waited >= 5
    await log.close()
    assert timestamps(tmp_path) == [3]


async def test_a_directory_belongs_to_one_cluster(tmp_path: Path) -> None:
    for cluster_id in (7, 7):
        log = RelayLog.open(str(tmp_path), 1000, ManualClock(), cluster_id=cluster_id, child=RelayThread())
        await log.close()
    with pytest.raises(ForeignDirectory, match="cluster 7"):
        RelayLog.open(str(tmp_path), 1000, ManualClock(), cluster_id=8, child=RelayThread())


# -- a disk in memory -----------------------------------------------------------------------------------


@pytest.fixture
def mount(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Disk], None]]:
    for module in (binlog_directory, filesystem):
        monkeypatch.setattr(module, "os", disk._calls)
    locks = SimpleNamespace(flock=lambda descriptor, how: None, LOCK_EX=0, LOCK_NB=0, LOCK_UN=0)
    monkeypatch.setattr(filesystem, "fcntl", locks)
    monkeypatch.setattr(process, "Backoff", lambda *pauses: SimpleNamespace(attempts=0, next_s=lambda: 0.0))

    def put(found: Disk) -> None:
        disk._calls.disk = found

    yield put
    disk._calls.disk = None


async def live(found: Disk, synced: list[int]) -> None:
    """Appends and syncs; `synced` gets what a lane might have been given by then."""
    log = opened(ROOT + "/relay", 1200)
    for ts in range(1, 17):
        if ts == 7:
            for first in range(0, 40, 10):
                log.append(transaction(ts, 10, first=first, last=first == 30))
                await log.sync()
        else:
            log.append(transaction(ts))
        if ts % 3 == 0:
            await log.sync()
            synced[:] = range(1, ts + 1)
            log.done(ts - 6)
    await log.close()


async def test_nothing_goes_on_that_a_power_cut_could_take(mount: Callable[[Disk], None]) -> None:
    """At every call: what a sync returned for is there after the worst cut, unless it was done."""
    whole = Disk()
    mount(whole)
    await live(whole, [])
    for at in range(len(whole.calls)):
        dead, synced = Disk({at: Fault(FREEZE)}), list[int]()
        mount(dead)
        try:
            await live(dead, synced)
        except (BinlogError, OSError):
            pass
        for left in (dead.after_kill(), dead.after_power_cut("nothing"), dead.after_power_cut("holes")):
            mount(left)
            found = timestamps(ROOT + "/relay")
            last = synced[-1] if synced else 0
            assert set(range(max(last - 5, 1), last + 1)) <= set(found)
            assert found == sorted(found)


async def test_a_full_disk_is_waited_for_visibly(mount: Callable[[Disk], None]) -> None:
    class Full(Disk):
        """No space until it was seen."""

        room = False

        def writev(self, descriptor: int, buffers: list[bytes]) -> int:
            path = disk._opened[descriptor][1]
            if not self.room and "binlog-" in path:
                raise OSError(errno.ENOSPC, "No space left on device", path)
            return super().writev(descriptor, buffers)

    full = Full()
    mount(full)
    log = opened(ROOT + "/relay", 1200)
    log.append(transaction(1))
    waiting = asyncio.create_task(log.sync())
    async with asyncio.timeout(10):
        while not log.waiting_for:
            await asyncio.sleep(0)
    assert "No space left" in log.waiting_for
    assert not waiting.done()
    log.append(transaction(2))
    full.room = True
    await waiting
    assert log.waiting_for == ""
    await log.close()
    assert timestamps(ROOT + "/relay") == [1, 2]


async def test_any_other_failure_is_final(mount: Callable[[Disk], None]) -> None:
    found = Disk()
    mount(found)
    log = opened(ROOT + "/relay", 1200)
    found.faults[len(found.calls) + 1] = Fault(ERROR)  # the write goes well, its sync fails
    log.append(transaction(1))
    for _ in range(2):
        with pytest.raises(Broken, match="cannot be written"):
            await log.sync()
    log.append(transaction(2))
    with pytest.raises(Broken):
        await log.close()
