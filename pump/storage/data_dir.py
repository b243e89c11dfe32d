"""Data directory: who may use it, and whose it is.

    .lock     flock for as long as the process lives, taken before anything else is opened
    kv/LOCK   flock as well: the lock that a Go pump keeps (it loses `.lock` soon after its start). LevelDB's
              own lock on this file is a POSIX one, which an flock neither sees nor stops
    .node     node id, text
    .cluster  cluster id, decimal text; a directory without it (a Go pump's) is adopted
    .purged   largest timestamp that may have been purged; the index has it too, but may be rebuilt
    .age      what retention believed the upstream's time to be, and when (`age_clock`); without it the wall
              clock is asked
    .unknown  there from before the first entry in the registry until every living drainer knows this pump
    .purged-files  number of the first log file when `.purged` was last known to be right: where older files
              are gone as well, another program has purged since
    .losses   damage that was given up, see `accepted_losses`
    .late     how many commits came too late, as in `/status`; without it none did
    .rebuild  there if a running pump found the index damaged: the next start renames it
    value/    the value log     kv/  the index

What is made here is private to the user that runs the pump: it holds rows.

Never creates the index or the log itself; `storage` does.
"""

from __future__ import annotations

import json
import os
import stat
import sys
from collections.abc import Sequence
from typing import Final

from tidb_binlog import checked, filesystem
from tidb_binlog.errors import ConfigError, DirectoryLocked, ForeignDirectory
from tidb_binlog.filesystem import make_directory, read_file, replace_file, sync_directory
from tidb_binlog.foreign_document import left_in
from tidb_binlog.observe import log
from tidb_binlog.status.codec import plain, read
from tidb_binlog.status.pump import LateStatus
from tidb_binlog.tso import Ts

PRIVATE: Final = 0o700
_DIGITS_MAX: Final = 20
_CHECKED: Final = (".purged", ".purged-files", ".age", ".losses")
"""Files with a checksum: another value of theirs would be believed."""
_logger = log.get("storage")


class DataDir:
    """A locked data directory. The lock ends with `close` or the process."""

    def __init__(self, path: str) -> None:
        """Make the directory if needed and lock it; `ConfigError` if that cannot be."""
        self.path = os.path.abspath(path)
        self._lock = self._locked("", ".lock")
        try:
            self._index_lock = self._locked("kv", "LOCK")
            self._warn_of_write_access()
        except BaseException:
            os.close(self._lock)
            raise

    def _locked(self, name: str, lock: str) -> int:
        """A descriptor that holds a lock file of a directory, which is made if needed."""
        directory = os.path.join(self.path, name)
        flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            make_directory(directory, PRIVATE)
            descriptor = os.open(os.path.join(directory, lock), flags, 0o600)
        except OSError as error:
            what = f"data directory {self.path} cannot be used: {error.filename or directory}"
            hint = "set data-dir to a directory that this user may write"
            raise filesystem.unusable(what, error, hint) from None
        if not filesystem.lock(descriptor):
            os.close(descriptor)
            raise DirectoryLocked(
                f"data directory {self.path} is locked: file already locked",
                hint="another pump uses it; stop that one or give this one its own data-dir",
            ) from None
        return descriptor

    def _warn_of_write_access(self) -> None:
        """What is made here is private; what was there before is as it is."""
        for path in (self.path, self.index_path, self.value_path):
            if os.path.isdir(path) and (mode := os.stat(path).st_mode) & (stat.S_IWGRP | stat.S_IWOTH):
                _logger.warning(
                    "others may alter what this pump has stored",
                    directory=path,
                    mode=f"{stat.S_IMODE(mode):o}",
                    hint=f"chmod go-w {path}",
                )

    @property
    def value_path(self) -> str:
        return os.path.join(self.path, "value")

    @property
    def index_path(self) -> str:
        return os.path.join(self.path, "kv")

    def node_id(self, configured: str, default: str) -> tuple[str, bool]:
        """The persisted node id, else the configured one, else the default; it is persisted from now on.

        The flag says whether a different configured id was ignored.
        """
        stored = self._read(".node")
        if stored:
            return stored, bool(configured) and configured != stored
        chosen = configured or default
        if not chosen or "/" in chosen:
            raise ConfigError(f"node id {chosen!r} is empty or contains a slash", hint="set node-id")
        self._write(".node", chosen)
        return chosen, False

    @property
    def has_node_id(self) -> bool:
        return bool(self._read(".node"))

    @property
    def has_log(self) -> bool:
        """Whether a pump has stored something here."""
        try:
            return any(file.stat().st_size for file in os.scandir(self.value_path))
        except FileNotFoundError:
            return False

    @property
    def is_unknown(self) -> bool:
        """Whether there may be a living drainer that does not know this pump."""
        return bool(self._read(".unknown"))

    def keep_unknown(self, unknown: bool) -> None:
        """Durable when this returns. Raises `OSError`."""
        if unknown:
            self._write(".unknown", "not all drainers have confirmed this pump")
        elif self.is_unknown:
            os.unlink(os.path.join(self.path, ".unknown"))
            sync_directory(self.path)

    def adopt_cluster(self, cluster_id: int) -> None:
        """Remember the cluster; `ForeignDirectory` if the directory belongs to another one."""
        stored = self._read(".cluster")
        if not stored:
            self._write(".cluster", str(cluster_id))
        elif stored != str(cluster_id):
            raise ForeignDirectory(
                f"data directory {self.path} belongs to cluster {stored}, "
                f"but the upstream is cluster {cluster_id}",
                hint="check pd-urls, or use an empty data-dir for this cluster",
            )

    @property
    def purged_ts(self) -> Ts:
        """Positions below it may miss binlogs; 0 if nothing was ever purged. Raises `ConfigError`."""
        text = self._read(".purged")
        if text and not _is_number(text):
            raise ConfigError(
                f"{os.path.join(self.path, '.purged')} is not a timestamp: {text[:40]!r}",
                hint="restore it, or write the gc timestamp that /status of this pump showed last",
            )
        return int(text or 0)

    @property
    def purged_fid(self) -> int:
        """The log's first file to which `purged_ts` belongs. A directory of before has no such note: then
        any, unless nothing was purged. Raises `ConfigError`."""
        text = self._read(".purged-files")
        if not text:
            return sys.maxsize if self.purged_ts else 0
        return int(text) if _is_number(text) else 0

    def keep_purged(self, ts: Ts, first_fid: int) -> None:
        """Positions below `ts` may miss binlogs once no file below `first_fid` is left. Durable when this
        returns. Raises `OSError`."""
        if ts > self.purged_ts:
            self._write(".purged", str(ts))
        if first_fid != self.purged_fid:
            self._write(".purged-files", str(first_fid))

    @property
    def losses(self) -> list[str]:
        """The lines that `keep_losses` was given last. Raises `ConfigError`."""
        return self._read(".losses").splitlines()

    def keep_losses(self, lines: Sequence[str]) -> None:
        """Durable when this returns. Raises `OSError`."""
        self._write(".losses", "".join(f"{line}\n" for line in lines))

    @property
    def age_anchor(self) -> str:
        """As it was kept; "" if it never was. Raises `ConfigError`."""
        return self._read(".age")

    def keep_age_anchor(self, text: str) -> None:
        """Durable when this returns. Raises `OSError`."""
        self._write(".age", text)

    @property
    def late(self) -> LateStatus:
        """As it was kept."""
        return read(left_in(os.path.join(self.path, ".late")), LateStatus)

    def keep_late(self, late: LateStatus) -> None:
        """Durable when this returns. Raises `OSError`."""
        self._write(".late", json.dumps(plain(late)))

    def ask_for_rebuild(self) -> None:
        """Let the next start build the index anew. Raises `OSError`."""
        self._write(".rebuild", "the index is damaged")

    def take_rebuild(self) -> bool:
        """Whether the index is to be built anew; asked for once."""
        asked = bool(self._read(".rebuild"))
        if asked:
            if os.path.isdir(self.index_path):
                self.set_aside("kv", "damaged")
            os.unlink(os.path.join(self.path, ".rebuild"))
            sync_directory(self.path)
        return asked

    def set_aside(self, name: str, suffix: str) -> str:
        """Rename an entry of the directory to the first free `<name>.<suffix>-<n>`; returns the new path."""
        number = 1
        while os.path.exists(os.path.join(self.path, f"{name}.{suffix}-{number}")):
            number += 1
        target = os.path.join(self.path, f"{name}.{suffix}-{number}")
        os.rename(os.path.join(self.path, name), target)
        sync_directory(self.path)
        if name == "kv":
            before, self._index_lock = self._index_lock, self._locked("kv", "LOCK")
            os.close(before)
        return target

    def close(self) -> None:
        """After the index: closing any descriptor of `kv/LOCK` ends LevelDB's own lock too."""
        os.close(self._index_lock)
        os.close(self._lock)

    def _read(self, name: str) -> str:
        path = os.path.join(self.path, name)
        try:
            return checked.read_text(read_file(path).decode()).strip()
        except FileNotFoundError:
            return ""
        except OSError as error:
            raise filesystem.unusable(f"{path} cannot be read", error, "let this user read it") from None
        except ValueError as error:
            raise ConfigError(f"{path} cannot be read: {error}", hint="repair or remove it") from None

    def _write(self, name: str, text: str) -> None:
        whole = checked.text(f"{text}\n") if name in _CHECKED else text
        replace_file(os.path.join(self.path, name), whole.encode())


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX
