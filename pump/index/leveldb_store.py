"""LevelDB: the index's files as a Go pump has them.

LevelDB compares the checksums of what it reads only where it is asked to; everywhere here it is. An entry
that a flipped bit hides would be a transaction that no drainer ever gets.

Tests   tests/pump/index/test_stores.py, tests/crash/test_index_damage.py
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from itertools import islice
from typing import Any

from pump.index import index_files
from pump.index.store import Batch, Entries, IndexDamaged, cannot_open
from tidb_binlog.observe import log

if sys.version_info >= (3, 13):
    import plyvel_next as plyvel
else:
    import plyvel

__all__ = ["plyvel"]

_logger = log.get("index")


class LevelDbStore:
    """See `Store`."""

    def __init__(self, path: str, *, write_buffer_bytes: int, cache_bytes: int) -> None:
        """`IndexDamaged` if the files are wrong, `ConfigError` if they are in use or the disk refuses."""
        self._path = path
        _cut(path)
        try:
            self.database: Any = plyvel.DB(
                path,
                create_if_missing=True,
                paranoid_checks=True,
                write_buffer_size=write_buffer_bytes,
                lru_cache_size=cache_bytes,
                max_open_files=500,
            )
        except plyvel.IOError as error:
            raise cannot_open(path, error) from None
        except plyvel.Error as error:
            raise IndexDamaged.at(path, error) from None

    def get(self, key: bytes) -> bytes | None:
        try:
            value: bytes | None = self.database.get(key, verify_checksums=True)
        except plyvel.Error as error:
            raise IndexDamaged.at(self._path, error) from None
        return value

    def runs(self, start: bytes, stop: bytes, count: int, *, cached: bool = True) -> Iterator[Entries]:
        try:
            with self.database.iterator(
                start=start, stop=stop, include_stop=True, fill_cache=cached, verify_checksums=True
            ) as iterator:
                last = start
                while entries := list(islice(iterator, count)):
                    last = entries[-1][0]
                    if len(entries) < count:
                        break
                    yield entries
                self._check_end(last)
                if entries:
                    yield entries
        except plyvel.Error as error:
            raise IndexDamaged.at(self._path, error) from None

    def _check_end(self, last: bytes) -> None:
        """Raise the error that made an iterator end after this key, if one did.

        LevelDB steps over a block that it cannot read, and plyvel's iterator asks how it went only where an
        entry within its bounds follows.
        """
        with closing(self.database.raw_iterator(verify_checksums=True)) as iterator:
            iterator.seek(last)
            if iterator.valid() and iterator.key() == last:
                iterator.next()

    def last_before(self, key: bytes) -> bytes:
        try:
            with closing(self.database.raw_iterator(verify_checksums=True)) as iterator:
                iterator.seek(key)
                if iterator.valid():
                    iterator.prev()
                else:
                    iterator.seek_to_last()
                return iterator.key() if iterator.valid() else b""
        except plyvel.Error as error:
            raise IndexDamaged.at(self._path, error) from None

    @contextmanager
    def write_batch(self, *, sync: bool = False) -> Iterator[Batch]:
        try:
            with self.database.write_batch(sync=sync) as batch:
                yield batch
        except plyvel.CorruptionError as error:
            raise IndexDamaged.at(self._path, error) from None
        except plyvel.Error as error:
            raise OSError(f"index {self._path} cannot be written: {error}") from None

    def settle(self) -> None:
        self.database.compact_range(start=b"", stop=b"\0")  # no key is there: the newest entries alone go

    def close(self) -> None:
        self.database.close()


def _cut(path: str) -> None:
    """Cut off what LevelDB would step over. Raises `IndexDamaged`."""
    descriptors: dict[str, int] = {}

    def read(name: str, offset: int, size: int) -> bytes:
        if name not in descriptors:
            descriptors[name] = os.open(os.path.join(path, name), os.O_RDONLY | os.O_CLOEXEC)
        return os.pread(descriptors[name], size, offset)

    sizes = {entry.name: entry.stat().st_size for entry in os.scandir(path) if entry.is_file()}
    try:
        verdict = index_files.judge(sizes, read)
    finally:
        for descriptor in descriptors.values():
            os.close(descriptor)
    if isinstance(verdict, index_files.Broken):
        raise IndexDamaged(f"index {path} is not whole: {verdict.reason}", hint="it is built anew at a start")
    for cut in verdict.cuts:
        _logger.warning(
            "the end of the index is lost, filing it again from the value log",
            file=cut.name,
            offset=cut.size,
            bytes=sizes[cut.name] - cut.size,
            reason=cut.reason,
        )
        os.truncate(os.path.join(path, cut.name), cut.size)
