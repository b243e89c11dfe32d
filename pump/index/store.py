"""Store: what the index asks of the files beneath it, of whichever backend these are.

Holds   keys in the order of their bytes. A batch is there whole or not at all. A process that is killed loses
        none; a power cut may take the newest ones, back to the last that was synced and no further.
        Where bytes were altered an error comes, never another answer
Never   is called from the event loop: every call blocks. Any thread may call

Tests   tests/pump/index/test_stores.py
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Protocol

from tidb_binlog.errors import ConfigError, Corruption

Entries = list[tuple[bytes, bytes]]


class IndexDamaged(Corruption):
    """The index cannot be read; the next start builds it anew, so a start is worth it."""

    exit_code = 2

    @classmethod
    def at(cls, path: str, error: Exception | str) -> IndexDamaged:
        return cls(
            f"index {path} cannot be read: {error}",
            hint="try again: the pump starts anew and builds the index from the value log",
        )


def cannot_open(path: str, error: Exception) -> ConfigError:
    """For an error that says nothing about what the files hold."""
    return ConfigError(
        f"index {path} cannot be opened: {error}",
        hint="end the process that uses it, or see to the disk; the index need not be damaged",
    )


class Batch(Protocol):
    """Changes that are written together."""

    def put(self, key: bytes, value: bytes, /) -> None: ...

    def delete(self, key: bytes, /) -> None: ...


class Store(Protocol):
    """One index, open. What reads raises `IndexDamaged`, what writes `OSError` as well."""

    def get(self, key: bytes) -> bytes | None: ...

    def runs(self, start: bytes, stop: bytes, count: int, *, cached: bool = True) -> Iterator[Entries]:
        """Entries with keys from `start` to `stop`, both included, ascending, at most `count` in one list.
        Not `cached`: nobody asks for them soon again."""
        ...

    def last_before(self, key: bytes) -> bytes:
        """The largest key below this one; b"" if there is none."""
        ...

    def write_batch(self, *, sync: bool = False) -> AbstractContextManager[Batch]:
        """Written at the end of the block; `sync`: then it is on the medium, with all before it."""
        ...

    def settle(self) -> None:
        """Leave nothing in LevelDB's own log, as opening it does. A merge of tables raises the number in the
        manifest above those in it, and a Go pump then steps over these entries without an error."""
        ...

    def close(self) -> None: ...
