"""SQLite: the index's files where LevelDB cannot be had, with checksums, which SQLite's files have not.

    index.sqlite    leaf(first BLOB UNIQUE, data BLOB)
    data            CRC-32C u32 LE | msgpack [first, next, key, value, key, value …], ascending

A leaf has all entries with keys in [first, next); the first one begins at b"", the last one ends with b"".
So each key belongs to one leaf, and what altered bytes hide shows: a leaf does not fit its checksum, is not
the one that was asked for, or does not end where the next one begins.

Written ahead (WAL) and not synced but at checkpoints: a power cut takes the newest batches, each one whole.
The file is locked for this process alone, which needs no shared memory beside it; one call at a time.

Tests   tests/pump/index/test_stores.py, tests/crash/test_index_damage.py
"""

from __future__ import annotations

import os
import sqlite3
import struct
import threading
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import chain
from typing import Final, NamedTuple

import msgspec

from pump.index.store import Batch, Entries, IndexDamaged, cannot_open
from tidb_binlog.record import crc32c

_FILE: Final = "index.sqlite"
_ENTRIES_MAX: Final = 144  # of a timestamp, 27 octets each: one page
_CRC: Final = struct.Struct("<I")
_LEAF: Final = (
    "SELECT rowid, data, (SELECT first FROM leaf AS later WHERE later.first > leaf.first"
    " ORDER BY first LIMIT 1) FROM leaf WHERE first {} ? ORDER BY first DESC LIMIT 1"
)
_AT, _BEFORE = _LEAF.format("<="), _LEAF.format("<")
_INSERT: Final = "INSERT INTO leaf VALUES(?, ?)"
_UPDATE: Final = "UPDATE leaf SET data = ? WHERE rowid = ?"
_ERRORS: Final = (sqlite3.Error, UnicodeDecodeError)  # the latter: for a message that quotes altered bytes
_OF_THE_HOST: Final = (
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_NOMEM,
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_CANTOPEN,
)
_decoder = msgspec.msgpack.Decoder(list[bytes])


class _Leaf(NamedTuple):
    row: int
    first: bytes
    next: bytes  # b"": no leaf follows
    keys: list[bytes]
    values: list[bytes]


class _Batch:
    def __init__(self) -> None:
        self.changes: dict[bytes, bytes | None] = {}

    def put(self, key: bytes, value: bytes, /) -> None:
        self.changes[key] = value

    def delete(self, key: bytes, /) -> None:
        self.changes[key] = None


class SqliteStore:
    """See `Store`."""

    def __init__(self, path: str, *, write_buffer_bytes: int, cache_bytes: int) -> None:
        """`IndexDamaged` if the file is wrong, `ConfigError` if it is in use or the disk refuses.
        `write_buffer_bytes`: there is none."""
        self._path = path
        self._lock = threading.Lock()
        try:
            self._database = sqlite3.connect(
                os.path.join(path, _FILE), timeout=0, isolation_level=None, check_same_thread=False
            )
        except sqlite3.Error as error:
            raise cannot_open(path, error) from None
        try:
            self._prepare(cache_bytes)
        except _ERRORS as error:
            self._database.close()
            raise (cannot_open if _is_of_the_host(error) else IndexDamaged.at)(path, error) from None

    def _prepare(self, cache_bytes: int) -> None:
        run = self._database.execute
        run(f"PRAGMA cache_size = -{max(cache_bytes >> 10, 1)}")
        run("PRAGMA locking_mode = EXCLUSIVE")
        run("PRAGMA cell_size_check = ON")
        run("PRAGMA journal_mode = WAL")
        run("PRAGMA synchronous = NORMAL")
        with self._transaction():
            if not run("SELECT 1 FROM sqlite_master WHERE name = 'leaf'").fetchone():
                run("CREATE TABLE leaf(first BLOB NOT NULL UNIQUE, data BLOB NOT NULL)")
                run(_INSERT, (b"", _coded(b"", b"", [])))

    # -- reading ---------------------------------------------------------------------------------

    def get(self, key: bytes) -> bytes | None:
        with self._reading():
            leaf = self._leaf(key)
        at = bisect_left(leaf.keys, key)
        return leaf.values[at] if leaf.keys[at : at + 1] == [key] else None

    def runs(self, start: bytes, stop: bytes, count: int, *, cached: bool = True) -> Iterator[Entries]:
        entries: Entries = []
        at = start
        while at <= stop:
            with self._reading():
                leaf = self._leaf(at)
            # From `at` on: a purge may have given this leaf to the one before it, which was read already.
            part = slice(bisect_left(leaf.keys, at), bisect_right(leaf.keys, stop))
            entries += zip(leaf.keys[part], leaf.values[part], strict=True)
            while len(entries) >= count:
                yield entries[:count]
                del entries[:count]
            if not leaf.next:
                break
            at = leaf.next
        if entries:
            yield entries

    def last_before(self, key: bytes) -> bytes:
        with self._reading():
            leaf = self._leaf(key)
            while not (at := bisect_left(leaf.keys, key)) and leaf.first:
                leaf = self._leaf_before(leaf)
        return leaf.keys[at - 1] if at else b""

    def _leaf(self, key: bytes) -> _Leaf:
        """The one to which a key belongs."""
        leaf = self._found(_AT, key)
        if key < leaf.first or (leaf.next and key >= leaf.next):
            raise IndexDamaged.at(self._path, f"no leaf for {key.hex()}")
        return leaf

    def _leaf_before(self, leaf: _Leaf) -> _Leaf:
        before = self._found(_BEFORE, leaf.first)
        if before.next != leaf.first:
            raise IndexDamaged.at(self._path, f"no leaf before {leaf.first.hex()}")
        return before

    def _found(self, query: str, key: bytes) -> _Leaf:
        row, data, following = self._database.execute(query, (key,)).fetchone() or (0, b"", b"")
        if not isinstance(data, bytes) or data[: _CRC.size] != _CRC.pack(crc32c(data[_CRC.size :])):
            raise IndexDamaged.at(self._path, f"the leaf of {key.hex()} does not fit its checksum")
        first, after, *entries = _decoder.decode(data[_CRC.size :])
        if after != (following or b""):
            raise IndexDamaged.at(self._path, f"a leaf after {first.hex()} is lost")
        return _Leaf(row, first, after, entries[::2], entries[1::2])

    @contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            with self._lock:
                yield
        except sqlite3.ProgrammingError:
            raise
        except _ERRORS as error:
            raise IndexDamaged.at(self._path, error) from None

    # -- writing ---------------------------------------------------------------------------------

    @contextmanager
    def write_batch(self, *, sync: bool = False) -> Iterator[Batch]:
        batch = _Batch()
        yield batch
        try:
            with self._lock:
                with self._transaction():
                    self._write(batch.changes)
                if sync:
                    self._database.execute("PRAGMA wal_checkpoint(FULL)").fetchone()
        except sqlite3.ProgrammingError:
            raise
        except _ERRORS as error:
            if _is_of_the_host(error):
                raise OSError(f"index {self._path} cannot be written: {error}") from None
            raise IndexDamaged.at(self._path, error) from None

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._database.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._database.execute("COMMIT")
        except BaseException:
            if self._database.in_transaction:
                self._database.execute("ROLLBACK")
            raise

    def _write(self, changes: dict[bytes, bytes | None]) -> None:
        keys, at = sorted(changes), 0
        while at < len(keys):
            leaf = self._leaf(keys[at])
            end = bisect_left(keys, leaf.next, at) if leaf.next else len(keys)
            entries: dict[bytes, bytes | None] = dict(zip(leaf.keys, leaf.values, strict=True))
            entries.update((key, changes[key]) for key in keys[at:end])
            kept = [(key, value) for key in sorted(entries) if (value := entries[key]) is not None]
            self._replace(leaf, kept)
            at = end

    def _replace(self, leaf: _Leaf, entries: Entries) -> None:
        """Let these be all that a leaf has: in more leaves if it is too much, in none if it is nothing."""
        run = self._database.execute
        if not entries and leaf.first:
            before = self._leaf_before(leaf)
            run("DELETE FROM leaf WHERE rowid = ?", (leaf.row,))
            kept = zip(before.keys, before.values, strict=True)
            run(_UPDATE, (_coded(before.first, leaf.next, kept), before.row))
            return
        size = _ENTRIES_MAX
        if leaf.next and len(entries) > size:  # timestamps mostly ascend: the last leaf alone is filled up
            size = -(-len(entries) // -(-len(entries) // size))
        parts = [entries[at : at + size] for at in range(0, len(entries), size)] or [[]]
        firsts = [leaf.first, *(part[0][0] for part in parts[1:]), leaf.next]
        run(_UPDATE, (_coded(leaf.first, firsts[1], parts[0]), leaf.row))
        for number, part in enumerate(parts[1:], 1):
            run(_INSERT, (firsts[number], _coded(firsts[number], firsts[number + 1], part)))

    def settle(self) -> None:
        """No Go pump reads it."""

    def close(self) -> None:
        with self._lock:  # who is in a call ends it; closed meanwhile, the process would crash
            self._database.close()


def _coded(first: bytes, after: bytes, entries: Iterable[tuple[bytes, bytes]]) -> bytes:
    data = msgspec.msgpack.encode([first, after, *chain.from_iterable(entries)])
    return _CRC.pack(crc32c(data)) + data


def _is_of_the_host(error: Exception) -> bool:
    """Whether it says nothing about what the file holds."""
    return getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & 0xFF in _OF_THE_HOST
