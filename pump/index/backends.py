"""Backends: which files an index has, and which it is to have.

    leveldb    a Go pump's own; needs the package plyvel (plyvel-next)
    sqlite     needs nothing but Python; no Go pump reads it

What an index was built from is in the value log, so another backend begins empty.

Tests   tests/pump/storage/test_index_backends.py
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection
from typing import Any, Final

from pump.index.store import Store
from tidb_binlog.errors import ConfigError

AUTO: Final = "auto"
LEVELDB: Final = "leveldb"
SQLITE: Final = "sqlite"
NAMES: Final = (AUTO, LEVELDB, SQLITE)
_FILES: Final = {
    LEVELDB: re.compile(r"CURRENT|MANIFEST-\d+|\d+\.(?:log|ldb|sst)"),
    SQLITE: re.compile(r"index\.sqlite(?:-wal|-journal|-shm)?"),
}


class Missing(ConfigError):
    """This Python has no such backend."""


def files(backend: str, path: str) -> list[str]:
    """Names in a directory that are this backend's; none where there is no such directory."""
    names = os.listdir(path) if os.path.isdir(path) else []
    return [name for name in names if _FILES[backend].fullmatch(name)]


def present_in(path: str) -> list[str]:
    """The backends that have an index in this directory."""
    return [backend for backend in (LEVELDB, SQLITE) if files(backend, path)]


def choose(configured: str, present: Collection[str]) -> str:
    """For a directory with indexes of `present`. Automatically it is what is there, else LevelDB, as far as
    this Python has it. Raises `Missing`."""
    candidates = (*present, LEVELDB, SQLITE) if configured == AUTO else (configured,)
    missing = ""
    for backend in candidates:
        try:
            _store_of(backend)
            return backend
        except ImportError as error:
            missing = missing or f"{backend} ({error})"
    raise Missing(
        f"this Python has no {missing}, which the index needs",
        hint='storage.index = "sqlite" needs no package, and is built anew from the value log'
        if configured == LEVELDB
        else "use a Python that has the module sqlite3, or one that plyvel or plyvel-next has a wheel for",
    )


def open_store(backend: str, path: str, *, write_buffer_bytes: int, cache_bytes: int) -> Store:
    """`IndexDamaged` if the files are wrong, `ConfigError` if they are in use or the disk refuses."""
    store: Store = _store_of(backend)(path, write_buffer_bytes=write_buffer_bytes, cache_bytes=cache_bytes)
    return store


def _store_of(backend: str) -> Any:
    """Raises `ImportError`."""
    if backend == LEVELDB:
        from pump.index.leveldb_store import LevelDbStore

        return LevelDbStore
    from pump.index.sqlite_store import SqliteStore

    return SqliteStore
