"""Binlog directory: the shell around `binlog_file`. Locks, appends, syncs, reads, removes.

Owns    the locks (`.lock`, and the newest file as the Go drainer has it) and the file that is written
Holds   what `sync` returned for is on the medium with its directory entry; after a failed sync, and after a
        failed write that cannot be undone, nothing is written or synced any more
Stops   `close`

`.lock` holds the id of the cluster, `.purged` up to where records were removed. `.synced` names the offset up
to which the newest file was synced. It is synced itself only when the file is made: after a kill it is exact,
after a power cut it may be older, never newer than the file.
"""

from __future__ import annotations

import datetime
import errno
import os
from collections.abc import Sequence
from typing import Final

from drainer.formats import binlog_file
from drainer.formats.binlog_file import SYNCED, SYNCED_SIZE, Place, Synced
from tidb_binlog import checked, filesystem
from tidb_binlog.clock import Clock
from tidb_binlog.errors import BinlogError, Corruption, DirectoryLocked, ForeignDirectory
from tidb_binlog.filesystem import Naming, read_at, read_file, sync_directory
from tidb_binlog.late_dataclass import dataclass
from tidb_binlog.record import RecordError, crc32c
from tidb_binlog.tso import Ts

PURGED: Final = ".purged"
DISK_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})


class DiskFull(BinlogError):
    """The disk is full; nothing of the last write is in the file. May be tried again."""


class Broken(BinlogError):
    """The directory cannot be written any more; what was not synced may be lost."""


@dataclass(eq=False, slots=True)
class BinlogFile:
    """One file, open for reading, the newest also for writing. `size`: bytes of it that count."""

    path: str
    index: int
    descriptor: int
    size: int

    def read(self, offset: int, size: int) -> bytes:
        """Fewer bytes only at the end."""
        with Naming(self.path):
            return read_at(self.descriptor, offset, size)

    def payload(self, place: Place) -> bytes:
        """A record's payload, compared with its checksum. Raises `Corruption`."""
        data = self.read(place.start, place.size)
        if len(data) != place.size or crc32c(data).to_bytes(4, "little") != self.read(
            place.start + place.size, 4
        ):
            raise binlog_file.damage(self.path, RecordError(place.record, "checksum mismatch", False))
        return data


class BinlogDirectory:
    """A locked directory of binlog files. Not thread-safe; methods block."""

    def __init__(self, path: str, clock: Clock, *, newest_only: bool = False) -> None:
        """Lock it, open every file, cut the torn end of the last one; make what is missing.

        `newest_only`: of years of files only the last one is opened, and those before it are let go.
        Raises `ConfigError`, `DirectoryLocked`, `Corruption`.
        """
        self.path = os.path.abspath(path)
        self._clock = clock
        self._newest_only = newest_only
        self._broken: Broken | None = None  # final: whatever writes raises it
        self._lock = self._locked()
        self.files: dict[int, BinlogFile] = {}  # by index; the last one is written
        self.places: dict[int, list[Place]] = {}  # records that were there when it was opened
        self._mark = os.open(os.path.join(self.path, SYNCED), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            self._open_files()
        except BaseException:
            self.close()
            raise

    def _locked(self) -> int:
        try:
            os.makedirs(self.path, mode=0o700, exist_ok=True)
            sync_directory(os.path.dirname(self.path))
            path = os.path.join(self.path, ".lock")
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            what = f"binlog directory {self.path} cannot be used"
            raise filesystem.unusable(what, error, "choose a directory that this user may write") from None
        self._flock(descriptor, self.path)
        return descriptor

    @staticmethod
    def _flock(descriptor: int, path: str) -> None:
        if not filesystem.lock(descriptor):
            os.close(descriptor)
            raise DirectoryLocked(
                f"{path} is locked: file already locked",
                hint="another drainer uses it; stop that one or give this one its own directory",
            ) from None

    def _open_files(self) -> None:
        named = binlog_file.in_order(self.path, os.listdir(self.path), compressed=self._newest_only)
        synced = self._read_mark()
        # After a compressed file nothing is written.
        newest = [entry for entry in named[-1:] if not binlog_file.is_compressed(entry[1])]
        for index, name in newest if self._newest_only else named:
            path = os.path.join(self.path, name)
            last = index == named[-1][0]
            descriptor = os.open(path, (os.O_RDWR | os.O_APPEND if last else os.O_RDONLY) | os.O_CLOEXEC)
            if last:
                self._flock(descriptor, path)
            file = self.files[index] = BinlogFile(path, index, descriptor, os.fstat(descriptor).st_size)
            self._walk(file, synced, last=last)
        if not self.files:
            self._create(named[-1][0] + 1 if named else 0)
        # A killed process may have made a file or the directory, and synced neither.
        sync_directory(self.path)

    def _walk(self, file: BinlogFile, synced: Synced | None, *, last: bool) -> None:
        """Find the records; the last file is checked whole, and cut where it is torn."""
        places = self.places[file.index] = []
        try:
            for place in binlog_file.places(file.read, file.size):
                if last:
                    binlog_file.check(file.read, place)
                places.append(place)
        except RecordError as error:
            if not last or not binlog_file.is_torn_end(error, file.index, synced, file.read, file.size):
                raise binlog_file.damage(file.path, error) from None
            with Naming(file.path):
                os.ftruncate(file.descriptor, error.offset)
            file.size = error.offset
        gone = binlog_file.missing_end(file.index, file.size, synced) if last else None
        if gone is not None:
            raise binlog_file.damage(file.path, gone)
        if last:
            # What a process wrote that was killed.
            start = synced.offset if synced and synced.index == file.index else 0
            filesystem.renew(file.path, file.descriptor, start, file.size)

    def _read_mark(self) -> Synced | None:
        with Naming(f"{self.path}/{SYNCED}"):
            return Synced.from_bytes(os.pread(self._mark, SYNCED_SIZE, 0))

    @property
    def cluster_id(self) -> int:
        """Of whose binlogs these are; 0 if it is not known."""
        with Naming(f"{self.path}/.lock"):
            data = os.pread(self._lock, 32, 0)
        return int(data) if data.isdigit() else 0

    def adopt_cluster(self, cluster_id: int) -> None:
        """Remember the cluster; `ForeignDirectory`, and the locks are gone, if it is another one's."""
        owner = self.cluster_id
        if owner not in (0, cluster_id):
            self.close()
            raise ForeignDirectory(
                f"{self.path} has binlogs of cluster {owner}, but the upstream is cluster {cluster_id}",
                hint="give each cluster a log-dir of its own, or move the files away",
            )
        if not owner:
            with Naming(f"{self.path}/.lock"):
                os.pwrite(self._lock, b"%d" % cluster_id, 0)
                os.fsync(self._lock)

    @property
    def purged_ts(self) -> Ts:
        """Files with records at or below it are gone; 0: none were removed."""
        try:
            text = read_file(os.path.join(self.path, PURGED)).decode("ascii")
            return int(checked.read_text(text.strip("\0")) or 0)
        except FileNotFoundError:
            return 0
        except ValueError:
            path = os.path.join(self.path, PURGED)
            raise Corruption(
                f"{path} has not the commit_ts that was written", hint="move the relay log away"
            ) from None

    def note_purged(self, commit_ts: Ts) -> None:
        """Durably, before files with records at or below it go. Raises `DiskFull`, `Broken`.

        In its place and in as many bytes as before, which a disk has on which nothing is left.
        """
        path = os.path.join(self.path, PURGED)
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                filesystem.write_at(path, 0, checked.text(f"{commit_ts:020d}\n").encode())
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            sync_directory(self.path)
        except OSError as error:
            raise self._failed(path, error) from None

    def begin_anew(self, commit_ts: Ts) -> None:
        """Nothing of it is needed: what follows is after `commit_ts`. Raises `DiskFull`, `Broken`."""
        self.rotate()
        self.note_purged(commit_ts)
        self.remove([index for index in self.files if index != self.newest.index])

    # -- writing ---------------------------------------------------------------------------------

    @property
    def newest(self) -> BinlogFile:
        """Get the file that is written."""
        return self.files[max(self.files)]

    def append(self, parts: Sequence[bytes]) -> int:
        """Append; the offset at which it begins. Raises `DiskFull` or `Broken`."""
        file = self._writable()
        start = file.size
        try:
            file.size += filesystem.append(file.descriptor, parts)
        except OSError as error:
            self._undo(file, start, error)
        return start

    def _undo(self, file: BinlogFile, start: int, error: OSError) -> None:
        if error.errno in DISK_FULL:
            try:
                os.ftruncate(file.descriptor, start)
            except OSError as second:
                raise self._break(file.path, second) from None
            file.size = start
        raise self._failed(file.path, error) from None

    def overwrite(self, offset: int, data: bytes) -> None:
        """Put bytes in the place of others in the newest file. Raises `Broken`."""
        file = self._writable()
        try:
            filesystem.write_at(file.path, offset, data)
        except OSError as error:
            raise self._break(file.path, error) from None

    def sync(self, whole: int | None = None) -> None:
        """Everything appended is on the medium. Raises `Broken`, also for ever after a failure.

        `whole`: where the records that are whole end, if that is not the end of the file.
        """
        file = self._writable()
        try:
            os.fdatasync(file.descriptor)
        except OSError as error:
            raise self._break(file.path, error) from None
        # Only now: a caller that knows of the sync may act, and a kill then leaves an exact mark.
        try:
            self._write_mark(file.index, file.size if whole is None else whole)
        except OSError as error:
            raise self._failed(f"{self.path}/.synced", error) from None

    def _write_mark(self, index: int, offset: int) -> None:
        os.pwrite(self._mark, Synced(index, offset).to_bytes(), 0)

    def rotate(self) -> None:
        """Continue in a new file; the one before is synced first. Raises `DiskFull` or `Broken`."""
        before = self._writable()
        self.sync()
        self._create(before.index + 1)
        filesystem.unlock(before.descriptor)
        if self._newest_only:
            del self.files[before.index], self.places[before.index]
            os.close(before.descriptor)

    def cut(self, offset: int) -> None:
        """Take away what the newest file has from there on, durably. Raises `Broken`."""
        file = self._writable()
        try:
            self._write_mark(file.index, offset)
            os.fdatasync(self._mark)  # a mark beyond the end would say that synced bytes are gone
            os.ftruncate(file.descriptor, offset)
            file.size = offset
            os.fsync(file.descriptor)
        except OSError as error:
            raise self._break(file.path, error) from None
        self.places[file.index] = [place for place in self.places[file.index] if place.end <= offset]

    def _create(self, index: int) -> None:
        now = datetime.datetime.fromtimestamp(self._clock.wall_s())
        local_time = now.strftime("%Y%m%d%H%M%S")
        path = os.path.join(self.path, binlog_file.file_name(index, local_time))
        flags = os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | os.O_CREAT | os.O_EXCL
        try:
            descriptor = os.open(path, flags, 0o600)
        except OSError as error:
            raise self._failed(path, error) from None
        self._flock(descriptor, path)
        self.files[index] = BinlogFile(path, index, descriptor, 0)
        self.places[index] = []
        try:
            os.fsync(descriptor)
            sync_directory(self.path)
            # So a mark of an earlier file says that another program wrote this one.
            self._write_mark(index, 0)
            os.fdatasync(self._mark)
        except OSError as error:
            raise self._break(path, error) from None

    def remove(self, indexes: Sequence[int]) -> None:
        """Remove files, the oldest first, never the newest. Raises `Broken`."""
        for index in sorted(indexes):
            assert index < max(self.files)
            file = self.files.pop(index)
            self.places.pop(index, None)
            try:
                os.unlink(file.path)
            except OSError as error:
                raise self._break(file.path, error) from None
            finally:
                os.close(file.descriptor)

    def _writable(self) -> BinlogFile:
        if self._broken is not None:
            raise self._broken
        return self.newest

    def _failed(self, path: str, error: OSError) -> BinlogError:
        """A full disk may have room again; anything else is final."""
        if error.errno in DISK_FULL:
            return DiskFull(f"{path}: {error.strerror}", hint="make room on its disk")
        return self._break(path, error)

    def _break(self, path: str, error: OSError) -> Broken:
        self._broken = Broken(
            f"{path} cannot be written: {error.strerror}",
            hint=filesystem.mending(
                error, "check the disk, then start again: what was not synced is written anew"
            ),
        )
        return self._broken

    def close(self) -> None:
        """Let go of the files and the locks."""
        for file in self.files.values():
            os.close(file.descriptor)
        self.files.clear()
        os.close(self._mark)
        os.close(self._lock)
