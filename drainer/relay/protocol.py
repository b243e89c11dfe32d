"""Relay protocol: what a drainer and the process that writes its relay log send each other.

In     values
Out    messages, each with its length in front
Why    rows go as `marshal`, which copies them as fast as memory allows. Both ends are the same program, one
       started by the other over a socket pair of their own, so pickles are as good as calls
Tests  tests/drainer/relay/test_process.py

    to the process      `Opening`, then marshalled (sync, resolved_ts, entries): write the entries, answer
                        `Synced` if `sync`, remove files that hold nothing above resolved_ts
    from the process    `Opened`, then `Synced` for each sync in order, `WaitingForSpace` when that changes,
                        or the error that ended it

An entry is (number, pickled table version), (pickled (ddl, text),) or
(commit_ts, last, ((number, kinds, rows, first_ordinal), ...)).
"""

from __future__ import annotations

import marshal
import pickle
import struct
from dataclasses import dataclass
from typing import Any, Final

from common.errors import BinlogError
from drainer.formats.binlog_directory import Broken
from drainer.txn import Ddl, TableVersion

LENGTH: Final = struct.Struct("<I")
MARSHAL_VERSION: Final = 2  # later ones look for objects that occur twice, which costs more than the rest
END_HINT: Final = "check the disk, then start again: what was not synced is written anew"

Entry = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Opening:
    """What the process is to open; `bounds` of the histogram of record sizes. `after_ts`: the stream
    continues after it."""

    path: str
    max_file_size: int
    cluster_id: int
    bounds: tuple[float, ...]
    after_ts: int = 0


@dataclass(frozen=True, slots=True)
class Opened:
    """The directory is locked and whole."""


@dataclass(frozen=True, slots=True)
class Synced:
    """Everything before the sync is on the medium. Sizes of the records since the last one: a count for each
    bucket, and the sum."""

    counts: tuple[int, ...]
    total: int


@dataclass(frozen=True, slots=True)
class WaitingForSpace:
    """Why nothing can be written now, "" if it can again."""

    reason: str


RelayAnswer = Opened | Synced | WaitingForSpace | BinlogError


def framed(data: bytes) -> bytes:
    return LENGTH.pack(len(data)) + data


def order(entries: list[Entry], *, sync: bool, resolved_ts: int = 0) -> bytes:
    """A message to the process."""
    return framed(marshal.dumps((sync, resolved_ts, entries), MARSHAL_VERSION))


def read_order(data: bytes | bytearray) -> tuple[bool, int, list[Entry]]:
    sync, resolved_ts, entries = marshal.loads(data)
    return sync, resolved_ts, entries


def message(value: Opening | RelayAnswer) -> bytes:
    return framed(pickle.dumps(value))


def failure(error: Exception) -> BinlogError:
    """An error as the other side can have it."""
    if isinstance(error, BinlogError):
        return error
    return Broken(f"the relay log cannot be written: {error!r}", hint=END_HINT)


def read_message(data: bytes | bytearray) -> Any:
    return pickle.loads(data)


def table_entry(number: int, version: TableVersion) -> Entry:
    return number, pickle.dumps(version)


def ddl_entry(ddl: Ddl, text: str) -> Entry:
    return (pickle.dumps((ddl, text)),)
