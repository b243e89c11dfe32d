"""Archive on a disk that dies, fails and fills up: at every call that changes it."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import TypeVar

import pytest

from drainer.ddl.derive.derive import same_names
from drainer.formats import binlog_directory
from drainer.formats.binlog_directory import Broken, DiskFull
from drainer.formats.pb import PbEncoder, PbPlan
from drainer.sink.ddl_text import ddl_texts
from drainer.sink.file import segments as archive_segments
from drainer.sink.file import table_definitions as archive_tables
from drainer.sink.file.archive import ArchiveFiles
from drainer.sink.file.records import ArchiveRecords
from drainer.sink.file.segments import ArchiveSegments
from drainer.txn import Ddl, TableVersion
from tests.crash.faults import disk
from tests.crash.faults.disk import CUTS, ERROR, FREEZE, ROOT, SHORT, TEAR, Disk, Fault
from tests.drainer.support.relay_world import items
from tidb_binlog import filesystem
from tidb_binlog.clock import ManualClock
from tidb_binlog.errors import BinlogError
from tidb_binlog.record import decode_file
from tidb_binlog.wire import pb_binlog_pb2 as pb

T = TypeVar("T")

PATH = ROOT + "/archive"
STREAM = items("basic")[:16]
PLANS: dict[TableVersion, PbPlan] = {}
"""Compiled once for all lives."""


@pytest.fixture
def mount(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Disk], None]]:
    for module in (binlog_directory, filesystem, archive_segments):
        monkeypatch.setattr(module, "os", disk.calls)
    locks = SimpleNamespace(flock=lambda descriptor, how: None, LOCK_EX=0, LOCK_NB=0, LOCK_UN=0)
    monkeypatch.setattr(filesystem, "fcntl", locks)

    def put(found: Disk) -> None:
        disk.calls.disk = found

    yield put
    disk.calls.disk = None


class Life:
    """Archives the stream from where the archive says, three items a sync. `synced`: up to that commit_ts."""

    def __init__(self, stored_ts: int = 0) -> None:
        self.stored_ts = self.synced = stored_ts
        self.failure: BinlogError | OSError | None = None
        self.full = 0

    def live(self) -> None:
        try:
            files = self._patiently(lambda: ArchiveFiles(PATH, ManualClock(), 7, self.stored_ts))
            self._archive(files)
            files.close()
        except (BinlogError, OSError) as error:
            self.failure = error

    def _archive(self, files: ArchiveFiles) -> None:
        records = ArchiveRecords(
            files.newest, files.described, 900, lambda _size: None, encode=PbEncoder(PLANS)
        )
        rest = [item for item in STREAM if item.commit_ts > max(files.last_ts, self.stored_ts)]
        for at in range(0, len(rest), 3):
            for item in rest[at : at + 3]:
                if isinstance(item, Ddl):
                    records.ddl(item, *ddl_texts(item, None, same_names))
                elif item.tables:
                    records.transaction(item)
            groups, tables = records.take(), records.take_tables()
            files.give(groups, tables, {index: one.to_json() for index, one in records.indexes().items()})
            self._patiently(files.sync)
            self.synced = rest[at : at + 3][-1].commit_ts

    def _patiently(self, step: Callable[[], T]) -> T:
        while True:
            try:
                return step()
            except DiskFull:
                self.full += 1


def contents() -> list[int]:
    """commit_ts of every record, whose tables are defined; a segment before the last has nothing else."""
    found = []
    segments = ArchiveSegments(PATH)
    in_order = segments.in_order()
    for index, name in in_order:
        files = disk.calls.disk.files()  # type: ignore[union-attr]
        data = bytes(files[name].data)
        tables = files.get(archive_tables.file_name(name))
        defined = {one[1:3] for one in archive_tables.read(bytes(tables.data) if tables else b"")}
        at = 0
        while at < len(data):
            payload, at = decode_file(data, at)
            message = pb.Binlog.FromString(payload)
            found.append(message.commit_ts)
            assert {(event.schema_name, event.table_name) for event in message.dml_data.events} <= defined
        known = segments.index_of(name)
        assert known is None or known.size <= len(data)
        if known is not None and known.closed:
            assert known == segments.described(index, name)
    return found


EVERYTHING = [item.commit_ts for item in STREAM if isinstance(item, Ddl) or item.tables]


def undisturbed(put: Callable[[Disk], None]) -> list[str]:
    whole = Disk()
    put(whole)
    life = Life()
    life.live()
    assert life.failure is None
    calls = list(whole.calls)
    assert contents() == EVERYTHING
    assert sum(call.startswith("create binlog-") for call in calls) > 2
    return calls


def leftovers(dead: Disk) -> Iterator[Disk]:
    yield dead.after_kill()
    for cut in CUTS:
        yield dead.after_power_cut(cut, entries_too=False)
    yield dead.after_power_cut("holes", entries_too=True)


def check(put: Callable[[Disk], None], dead: Disk, life: Life) -> None:
    """All that was synced is there, once, and the next life brings the rest."""
    for left in leftovers(dead):
        put(left)
        after = Life(life.stored_ts)
        after.live()
        assert after.failure is None
        put(left.after_power_cut("nothing"))
        assert contents() == EVERYTHING


def test_a_kill_or_a_power_cut_at_every_call_loses_and_doubles_nothing(mount: Callable[[Disk], None]) -> None:
    calls = undisturbed(mount)
    for at, call in enumerate(calls):
        for kind in (FREEZE, TEAR) if call.startswith("writev") else (FREEZE,):
            dead, life = Disk({at: Fault(kind)}), Life()
            mount(dead)
            life.live()
            assert life.failure is not None
            synced = life.synced
            left = dead.after_power_cut("nothing")
            mount(left)
            files = ArchiveFiles(PATH, ManualClock(), 7, synced)
            assert files.last_ts >= max([ts for ts in EVERYTHING if ts <= synced], default=0)
            files.close()
            check(mount, dead, life)


def test_an_error_at_any_call_is_final_and_made_good_by_the_next_life(mount: Callable[[Disk], None]) -> None:
    for at, call in enumerate(undisturbed(mount)):
        dead, life = Disk({at: Fault(ERROR, errno.EIO)}), Life()
        mount(dead)
        life.live()
        assert life.failure is not None, call
        check(mount, dead, life)


def test_a_full_disk_and_short_writes_are_waited_out(mount: Callable[[Disk], None]) -> None:
    full = 0
    for at, call in enumerate(undisturbed(mount)):
        for fault in (Fault(ERROR, errno.ENOSPC), Fault(SHORT)):
            if fault.kind == SHORT and not call.startswith(("writev", "pwrite")):
                continue
            mount(Disk({at: fault}))
            life = Life()
            life.live()
            full += life.full
            if life.failure is None:
                assert contents() == EVERYTHING
            else:
                assert isinstance(life.failure, Broken | OSError | BinlogError)
                assert fault.kind == ERROR
    assert full > 10
