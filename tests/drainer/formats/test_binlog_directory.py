"""Binlog directory on a disk that dies, fails and fills up: at every call that changes it.

The disk in memory of the crash tests: a kill leaves what was written, a power cut what was synced and more or
less of the rest, a failed sync loses the bytes although later syncs say yes.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from types import SimpleNamespace

import pytest

from drainer.formats import binlog_directory
from drainer.formats.binlog_directory import BinlogDirectory, Broken, DiskFull
from drainer.formats.record_groups import OpenRecord, RecordGroup, RelayWriter, padded
from tests.crash.faults import disk
from tests.crash.faults.disk import CUTS, ERROR, FREEZE, ROOT, SHORT, TEAR, Disk, Fault
from tidb_binlog import filesystem
from tidb_binlog.clock import ManualClock
from tidb_binlog.errors import BinlogError
from tidb_binlog.record import encode_file

LARGE = [b"l" * 700, b"m" * 900]


@pytest.fixture
def mount(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Disk], None]]:
    for module in (binlog_directory, filesystem):
        monkeypatch.setattr(module, "os", disk.calls)
    locks = SimpleNamespace(flock=lambda descriptor, how: None, LOCK_EX=0, LOCK_NB=0, LOCK_UN=0)
    monkeypatch.setattr(filesystem, "fcntl", locks)

    def put(found: Disk) -> None:
        disk.calls.disk = found

    yield put
    disk.calls.disk = None


def payload(number: int) -> bytes:
    return b"%04d" % number * (number % 7 + 1)


class Life:
    """Writes records in groups, one of them large and without a length at first. `synced`: acknowledged."""

    def __init__(self, written: list[bytes]) -> None:
        self.before = list(written)
        self.given: list[bytes] = []
        self.synced: list[bytes] = []
        self.failure: BinlogError | OSError | None = None
        self.full = 0

    def live(self) -> None:
        try:
            self._live(BinlogDirectory(ROOT + "/relay", ManualClock()))
        except (BinlogError, OSError) as error:
            self.failure = error

    def _live(self, directory: BinlogDirectory) -> None:
        writer, first = RelayWriter(directory), len(self.before)
        index, size = directory.newest.index, directory.newest.size
        for group in range(4):
            records = [payload(first + 3 * group + number) for number in range(3)]
            self.given += records
            parts = [encode_file(record) for record in records]
            groups = [RecordGroup(index, parts)]
            size += sum(map(len, parts))
            groups[0].whole = size
            if group == 2:
                large = OpenRecord(size, b"begin")
                groups.append(RecordGroup(index, [large.head, *LARGE], whole=size))
                self._write(writer, groups)  # the record is not whole yet
                self.synced = list(self.given)
                large.contents, large.ending = sum(map(len, LARGE)), b"end"
                self.given.append(b"begin" + padded(large.contents) + b"".join(LARGE) + b"end")
                size += len(large.head) + large.contents + 3 + 4
                groups = [RecordGroup(index, [large.ending], large, whole=size)]
            self._write(writer, groups)
            self.synced = list(self.given)
            if group == 1:
                index, size = index + 1, 0

    def _write(self, writer: RelayWriter, groups: list[RecordGroup]) -> None:
        while True:
            try:
                writer.write(groups)
                writer.sync()
                return
            except DiskFull:
                self.full += 1
                groups = []


def contents() -> list[bytes]:
    directory = BinlogDirectory(ROOT + "/relay", ManualClock())
    return [file.payload(place) for i, file in directory.files.items() for place in directory.places[i]]


def whole_life(put: Callable[[Disk], None]) -> tuple[list[str], list[bytes]]:
    undisturbed = Disk()
    put(undisturbed)
    life = Life([])
    life.live()
    assert life.failure is None
    calls = list(undisturbed.calls)
    assert contents() == life.synced
    return calls, life.synced


def leftovers(dead: Disk) -> Iterator[Disk]:
    yield dead.after_kill()
    for cut in CUTS:
        for entries_too in (False, True):
            yield dead.after_power_cut(cut, entries_too=entries_too)


def check(put: Callable[[Disk], None], dead: Disk, life: Life) -> None:
    """Whatever is left: all that was acknowledged, in order, nothing else; and it goes on from there."""
    for left in leftovers(dead):
        put(left)
        found = contents()
        assert found[: len(life.synced)] == life.synced
        assert found == life.given[: len(found)]
        after = Life(found)
        after.live()
        assert after.failure is None
        put(left.after_power_cut("nothing"))
        assert contents() == found + after.synced


def test_a_kill_or_a_power_cut_at_every_call_keeps_what_was_synced(
    mount: Callable[[Disk], None],
) -> None:
    calls, _ = whole_life(mount)
    for at, call in enumerate(calls):
        for kind in (FREEZE, TEAR) if call.startswith("writev") else (FREEZE,):
            dead, life = Disk({at: Fault(kind)}), Life([])
            mount(dead)
            life.live()
            assert life.failure is not None
            check(mount, dead, life)


@pytest.mark.parametrize("number", [errno.EIO, errno.EROFS])
def test_an_error_at_any_call_is_final(mount: Callable[[Disk], None], number: int) -> None:
    """Nothing is written or synced any more, above all no sync that would say yes."""
    calls, _ = whole_life(mount)
    for at, call in enumerate(calls):
        dead, life = Disk({at: Fault(ERROR, number)}), Life([])
        mount(dead)
        life.live()
        assert life.failure is not None, call
        made = len(dead.calls)
        assert made == at + 1, f"{call} failed, and {dead.calls[at + 1 :]} followed"
        check(mount, dead, life)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_is_waited_for_where_it_loses_nothing(mount: Callable[[Disk], None], number: int) -> None:
    calls, everything = whole_life(mount)
    waited = 0
    for at, call in enumerate(calls):
        if not call.startswith(("writev", "create binlog-0000000000000001")):
            continue
        found, life = Disk({at: Fault(ERROR, number)}), Life([])
        mount(found)
        life.live()
        assert life.failure is None, call
        assert life.full == 1
        waited += 1
        mount(found.after_power_cut("nothing"))
        assert contents() == everything
    assert waited > 5


def test_short_writes_are_continued(mount: Callable[[Disk], None]) -> None:
    calls, everything = whole_life(mount)
    for at, call in enumerate(calls):
        if call.startswith(("writev", "pwrite binlog")):
            found, life = Disk({at: Fault(SHORT), at + 1: Fault(SHORT)}), Life([])
            mount(found)
            life.live()
            assert life.failure is None
            mount(found.after_power_cut("nothing"))
            assert contents() == everything


def test_a_sync_that_failed_is_never_asked_again(mount: Callable[[Disk], None]) -> None:
    calls, _ = whole_life(mount)
    (at, *_) = [number for number, call in enumerate(calls) if call.startswith("fdatasync binlog")]
    mount(Disk({at: Fault(ERROR)}))
    directory = BinlogDirectory(ROOT + "/relay", ManualClock())
    directory.append([encode_file(b"lost")])
    for _ in range(3):
        with pytest.raises(Broken, match="cannot be written"):
            directory.sync()
    with pytest.raises(Broken):
        directory.append([encode_file(b"more")])
