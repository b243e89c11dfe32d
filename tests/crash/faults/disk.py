"""A disk in memory below `pump.log.log_file`, at the level of the operating system's calls.

It knows what a kill leaves (everything that was written) and what a power cut leaves (what was synced, and
more or less of the rest), and it can be told to stop, to fail or to write short at any call.

    file contents   on the medium after fdatasync or fsync of the file
    entries         on the medium after fsync of their directory, and not before: neither the fsync of a
                    file nor a later call brings the entry along
    failed sync     the pages count as clean afterwards, as Linux has it: later syncs say yes, the bytes
                    never reach the medium

Paths outside the disk go to the real operating system.
"""

from __future__ import annotations

import errno
import itertools
import os
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from pump.log import log_file
from tidb_binlog import filesystem

ROOT = "/disk-in-memory"
FREEZE, TEAR, ERROR, SHORT = "freeze", "tear", "error", "short"
CUTS = ("nothing", "half", "all", "zeros", "holes")
_PAGE = 512
_MAY_DO_HALF = ("writev", "pwrite", "fsync", "fdatasync")
_GROWS = ("create", "writev", "mkdir")
FREE = 1 << 40
_FIRST_DESCRIPTOR = 1 << 24
_descriptors = itertools.count(_FIRST_DESCRIPTOR)
opened_files: dict[int, tuple[Disk, str, Inode | None]] = {}
"""Of all disks: whoever holds a file of a disk that is no longer mounted must not meet another one's."""


@dataclass(eq=False)
class Inode:
    """`data`: what a read gets. `medium`: what a power cut leaves. Equal up to `clean`."""

    data: bytearray = field(default_factory=bytearray)
    medium: bytearray = field(default_factory=bytearray)
    clean: int = 0

    def synced(self) -> None:
        self.medium[self.clean :] = self.data[self.clean :]
        self.clean = len(self.data)

    def sync_failed(self) -> None:
        del self.medium[len(self.data) :]
        self.medium += bytes(len(self.data) - len(self.medium))
        self.clean = len(self.data)

    def after_cut(self, how: str, rng: random.Random) -> bytearray:
        """What is there after a power cut. Where nothing came to the medium it holds what it held before, and
        zeros where it held nothing."""
        size, old = len(self.data), self.medium[: len(self.data)]
        if how == "nothing":
            return bytearray(self.medium)
        if how == "all":
            return bytearray(self.data)
        if how == "half":
            upto = self.clean + (size - self.clean) // 2
            return self.data[:upto] + old[upto:]
        left = old + bytes(size - len(old))
        if how == "holes":
            for at in range(self.clean, size, _PAGE):
                if rng.random() < 0.5:
                    left[at : at + _PAGE] = self.data[at : at + _PAGE]
        return left


@dataclass(frozen=True)
class Fault:
    """`freeze`: this call and all later ones do nothing but fail, as if the machine had stopped before it;
    `tear`: the same, though half of a write is done; `error`: this call alone fails with `number`, after
    half of a write; `short`: a write takes fewer bytes than it was given and says so."""

    kind: str
    number: int = errno.EIO


class Disk:
    """One file system. `calls`: what was called to change something, in order; `faults`: by number of it.
    `fails`: names of calls of which the next one fails; `free`: bytes, without any nothing grows; `struck`:
    names of calls that one of the two has made fail."""

    def __init__(self, faults: dict[int, Fault] | None = None) -> None:
        self.faults = faults or {}
        self.calls: list[str] = []
        self.frozen = False
        self.fails: set[str] = set()
        self.free = FREE
        self.struck: set[str] = set()
        names = {name: getattr(os.path, name) for name in ("join", "dirname", "basename", "abspath")}
        self.path = SimpleNamespace(**names, isdir=self._isdir)  # what `os.path` is asked for
        self._entries: dict[str, Inode | None] = {ROOT: None}  # None: a directory
        self._durable: dict[str, Inode | None] = {ROOT: None}

    def put(self, path: str, inode: Inode | None) -> None:
        """A file, or a directory (None), that is there and synced."""
        self._entries[path] = self._durable[path] = inode

    # -- what is left ----------------------------------------------------------------------------

    def after_kill(self, faults: dict[int, Fault] | None = None) -> Disk:
        """The same files, what was not synced still not synced."""
        left = Disk(faults)
        copies: dict[int, Inode] = {}

        def copy(inode: Inode | None) -> Inode | None:
            if inode is None:
                return None
            return copies.setdefault(
                id(inode), Inode(bytearray(inode.data), bytearray(inode.medium), inode.clean)
            )

        left._entries = {path: copy(inode) for path, inode in self._entries.items()}
        left._durable = {path: copy(inode) for path, inode in self._durable.items()}
        left.fails, left.free = self.fails, self.free
        return left

    def after_power_cut(self, how: str, seed: int = 0, *, entries_too: bool | None = None) -> Disk:
        """What was synced, and of the rest what `how` says (one of `CUTS`). Entries that were not synced
        are as the last fsync of the directory left them, or with `entries_too` as they were."""
        left, rng = Disk(), random.Random(seed)
        found = self._entries if (how == "all" if entries_too is None else entries_too) else self._durable
        for path, inode in found.items():
            if inode is None:
                left.put(path, None)
                continue
            data = inode.after_cut(how, rng)
            left.put(path, Inode(data, bytearray(data), len(data)))
        left.fails, left.free = self.fails, self.free
        return left

    def durable(self) -> dict[str, bytearray]:
        """What a power cut leaves at the least, by name; not to be changed."""
        return {os.path.basename(path): inode.medium for path, inode in self._durable.items() if inode}

    def files(self) -> dict[str, Inode]:
        """By name, whatever directory they are in."""
        return {os.path.basename(path): inode for path, inode in self._entries.items() if inode is not None}

    # -- faults ----------------------------------------------------------------------------------

    def freeze(self) -> None:
        """From here on nothing changes any more: the process is dead, it only does not know yet."""
        self.frozen = True

    def _call(self, name: str, path: str) -> Fault | None:
        """Count a call that changes something; the fault it has to show, if it is not an error already."""
        number = len(self.calls)
        self.calls.append(f"{name} {os.path.basename(path)}")
        fault = self.faults.get(number)
        if fault is not None and fault.kind in (FREEZE, TEAR):
            self.frozen = True
            if fault.kind == TEAR and name in ("writev", "pwrite"):
                return fault
        if self.frozen:
            raise OSError(errno.EIO, "the disk has stopped", path)
        fault = fault or self._strikes(name)
        if fault is not None and fault.kind == ERROR and name not in _MAY_DO_HALF:
            named = () if name == "ftruncate" else (path,)  # an error of a descriptor names no file
            raise OSError(fault.number, os.strerror(fault.number), *named)
        return fault

    def _strikes(self, name: str) -> Fault | None:
        if name not in self.fails and (self.free or name not in _GROWS):
            return None
        number = errno.EIO if name in self.fails else errno.ENOSPC
        self.fails.discard(name)
        self.struck.add(name)
        return Fault(ERROR, number)

    # -- the operating system --------------------------------------------------------------------

    def open(self, path: str, flags: int, mode: int = 0o777) -> int:
        if not _is_ours(path):
            return os.open(path, flags, mode)
        if flags & os.O_CREAT and path not in self._entries:
            self._call("create", path)
            self._entries[path] = Inode()
        elif flags & os.O_EXCL:
            raise FileExistsError(errno.EEXIST, "File exists", path)
        elif path not in self._entries:
            raise FileNotFoundError(errno.ENOENT, "No such file", path)
        elif flags & os.O_TRUNC and (left := self._entries[path]) is not None and left.data:
            self._call("truncate", path)
            del left.data[:]
            left.clean = 0
        descriptor = next(_descriptors)
        opened_files[descriptor] = (self, path, self._entries[path])
        return descriptor

    def writev(self, descriptor: int, buffers: list[Any]) -> int:
        disk, path, inode = opened_files[descriptor]
        assert inode is not None
        fault = disk._call("writev", path)
        joined = b"".join(buffers)
        if fault is None:
            inode.data += joined
            return len(joined)
        if fault.kind == SHORT:
            some = max(len(joined) // 3, 1)
            inode.data += joined[:some]
            return some
        inode.data += joined[: len(joined) // 2]
        raise OSError(fault.number, os.strerror(fault.number))

    def write(self, descriptor: int, data: Any) -> int:
        """Behind the end: whoever writes like this has just made or emptied the file."""
        if descriptor < _FIRST_DESCRIPTOR:
            return os.write(descriptor, data)
        return self.writev(descriptor, [data])

    def rename(self, old: str, new: str) -> None:
        if not _is_ours(old):
            os.rename(old, new)
            return
        self._call("rename", new)
        self._entries[new] = self._entries.pop(old)

    def pwrite(self, descriptor: int, data: bytes, offset: int) -> int:
        disk, path, inode = opened_files[descriptor]
        assert inode is not None
        fault = disk._call("pwrite", path)
        some = len(data) if fault is None else max(len(data) // 3, 1)
        inode.data[offset : offset + some] = data[:some]
        inode.clean = min(inode.clean, offset)
        if fault is not None and fault.kind != SHORT:
            raise OSError(fault.number, os.strerror(fault.number))
        return some

    def pread(self, descriptor: int, size: int, offset: int) -> bytes:
        if descriptor < _FIRST_DESCRIPTOR:
            return os.pread(descriptor, size, offset)
        disk, _, inode = opened_files[descriptor]
        assert inode is not None
        if "pread" in disk.fails and (fault := disk._strikes("pread")) is not None:
            raise OSError(fault.number, os.strerror(fault.number))
        return bytes(inode.data[offset : offset + size])

    def fdatasync(self, descriptor: int) -> None:
        self._sync("fdatasync", descriptor)

    def fsync(self, descriptor: int) -> None:
        if descriptor < _FIRST_DESCRIPTOR:
            os.fsync(descriptor)
        else:
            self._sync("fsync", descriptor)

    def _sync(self, name: str, descriptor: int) -> None:
        disk, path, inode = opened_files[descriptor]
        fault = disk._call(name, path)
        if fault is not None and fault.kind == ERROR:
            if inode is not None:
                inode.sync_failed()
            raise OSError(fault.number, os.strerror(fault.number))
        if inode is not None:
            inode.synced()
            return
        inside = {one: found for one, found in disk._entries.items() if os.path.dirname(one) == path}
        kept = {one: found for one, found in disk._durable.items() if os.path.dirname(one) != path}
        disk._durable = {**kept, **inside}

    def ftruncate(self, descriptor: int, size: int) -> None:
        disk, path, inode = opened_files[descriptor]
        assert inode is not None
        disk._call("ftruncate", path)
        del inode.data[size:]
        inode.clean = min(inode.clean, size)

    def fstat(self, descriptor: int) -> Any:
        if descriptor < _FIRST_DESCRIPTOR:
            return os.fstat(descriptor)
        inode = opened_files[descriptor][2]
        assert inode is not None
        return SimpleNamespace(st_size=len(inode.data))

    def stat(self, path: str) -> Any:
        if not _is_ours(path):
            return os.stat(path)
        if path not in self._entries:
            raise FileNotFoundError(errno.ENOENT, "No such file", path)
        inode = self._entries[path]
        return SimpleNamespace(st_size=0 if inode is None else len(inode.data))

    def mkdir(self, path: str, mode: int = 0o777) -> None:
        if not _is_ours(path):
            os.mkdir(path, mode)
            return
        self._call("mkdir", path)
        self._entries[path] = None

    def unlink(self, path: str) -> None:
        if not _is_ours(path):
            os.unlink(path)
            return
        self._call("unlink", path)
        if self._entries.pop(path, None) is None:
            raise FileNotFoundError(errno.ENOENT, "No such file", path)

    def listdir(self, path: str) -> list[str]:
        return [os.path.basename(one) for one in self._entries if os.path.dirname(one) == path]

    def makedirs(self, path: str, mode: int = 0o777, exist_ok: bool = False) -> None:
        assert exist_ok
        if path not in self._entries:
            self._call("mkdir", path)
            self._entries[path] = None

    def _isdir(self, path: str) -> bool:
        return path in self._entries if _is_ours(path) else os.path.isdir(path)

    def __getattr__(self, name: str) -> int:
        if name.startswith("O_"):
            flag: int = getattr(os, name)
            return flag
        raise AttributeError(f"the disk in memory has no {name!r}: add it")


def _is_ours(path: str) -> bool:
    return path == ROOT or path.startswith(ROOT + "/")


class _Calls:
    """What `pump.log.log_file` calls instead of `os`. It stays for as long as the process lives: a file of a
    disk in memory may be let go, and closed, long after the disk."""

    def __init__(self) -> None:
        self.disk: Disk | None = None

    def close(self, descriptor: int) -> None:
        if descriptor < _FIRST_DESCRIPTOR:
            os.close(descriptor)
        else:
            del opened_files[descriptor]

    def __getattr__(self, name: str) -> Any:
        return getattr(self.disk if self.disk is not None else os, name)


calls = _Calls()


@contextmanager
def mounted() -> Iterator[Callable[[Disk], log_file.OsLogDirectory]]:
    """`pump.log.log_file` and what it builds on work on disks in memory inside.

    The value opens the log directory of a disk.
    """

    def mount(disk: Disk) -> log_file.OsLogDirectory:
        calls.disk = disk
        return log_file.OsLogDirectory(ROOT + "/value")

    log_file.os = filesystem.os = calls  # type: ignore[attr-defined]
    try:
        yield mount
    finally:
        calls.disk = None
