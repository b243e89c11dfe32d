"""Errors: what a reader of changes may meet, each with the position where it stands and what to do next.

    BinlogError
    └── ReadingError            `position`: everything at or below this commit_ts was given
        ├── BinlogsLost         pumps do not hold what comes next any more; `lowest`: where a stream can begin
        ├── OutOfOrder          a pump broke the order that it had promised: nothing after it can be trusted
        ├── UpstreamWentBack    the cluster is at an earlier time than the position: restored, or another one
        ├── SnapshotLost        the rest of a snapshot cannot be read at its timestamp any more: begin anew
        ├── NoSuchTable         a pattern of `tables` fits nothing that exists
        └── StreamEnded         rows or items were asked for when the stream had moved on, or was closed

Everything else is of `tidb_binlog.errors`: `Unavailable` only before the stream has begun, `ConfigError` for
what was asked in a way that cannot be, `Corruption` for bytes that cannot be read.

Tests  tests/drainer/stream/pull/test_collector_finds_pumps.py
"""

from __future__ import annotations

from tidb_binlog.errors import BinlogError


class ReadingError(BinlogError):
    """Root of what only readers meet."""

    exit_code = 6

    def __init__(self, message: str, *, position: int = 0, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.position = position


class BinlogsLost(ReadingError):
    """What follows `position` is gone. `lowest`: the smallest start that works; 0 where that is not known."""

    def __init__(self, message: str, *, position: int, lowest: int = 0, hint: str = "") -> None:
        super().__init__(message, position=position, hint=hint)
        self.lowest = lowest


class OutOfOrder(ReadingError):
    """A pump sent what it had promised to be complete, or two pumps differ about one transaction."""


class UpstreamWentBack(ReadingError):
    """The position lies in the future of the upstream."""


class SnapshotLost(ReadingError):
    """The upstream does not show the snapshot's timestamp any more. What was given of it is to be forgotten,
    and another snapshot begun, with `start=0`."""


class NoSuchTable(ReadingError):
    """A pattern fits no table."""

    exit_code = 1


class StreamEnded(ReadingError):
    """There is nothing to read from any more."""

    exit_code = 4
