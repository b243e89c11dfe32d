"""Archive records: items of the stream become groups of bytes for an archive's segments, and their index.

In     transactions, pieces of large ones, DDL, in the order of the stream
Out    `Group`s for a `RelayWriter`; of every segment that was touched its index as far as it goes, and the
       definitions that its records need
Holds  the records of one DDL are in one segment, next to each other

Tests  tests/drainer/sink/file/test_archive.py
"""

from __future__ import annotations

from collections.abc import Callable

from drainer.formats.pb import PbEncoder
from drainer.formats.record_groups import RelayRecords
from drainer.formats.segment_index import SegmentIndex
from drainer.sink.file import table_definitions as archive_tables
from drainer.txn import Ddl
from tidb_binlog.record import FILE_OVERHEAD
from tidb_binlog.tso import Ts


class ArchiveRecords(RelayRecords):
    """Continues at the end of what `described` says of the segment with that index. `observe` gets sizes."""

    def __init__(
        self,
        index: int,
        described: SegmentIndex,
        max_file_size: int,
        observe: Callable[[int], None],
        encode: PbEncoder | None = None,
    ) -> None:
        self._encode = encode or PbEncoder()
        super().__init__(index, described.size, {}, max_file_size, observe, self._encode)
        self._described = described
        self._closed: dict[int, SegmentIndex] = {}
        self._tables: dict[int, list[bytes]] = {}
        self._is_ddl = False

    def ddl(self, ddl: Ddl, *texts: str) -> None:
        self._is_ddl = True
        super().ddl(ddl, *texts)
        self._is_ddl = False

    @property
    def newest(self) -> int:
        """The number of the segment that is written."""
        return self._index

    @property
    def described(self) -> int:
        """Bytes of the newest segment whose records are complete."""
        return self._described.size

    def indexes(self) -> dict[int, SegmentIndex]:
        """By segment: those that were closed since the last call, and the newest one as it is now.

        Not the newest one in the middle of a record: rows of it are counted already.
        """
        indexes, self._closed = self._closed, {}
        if self._open is None:
            self._described.count(self._encode.take_counts())
            indexes[self._index] = self._described
        return indexes

    def take_tables(self) -> dict[int, list[bytes]]:
        """By segment: lines of definitions that records since the last call need."""
        lines, self._tables = self._tables, {}
        return lines

    def _record_ended(self, commit_ts: Ts, payload_size: int) -> None:
        super()._record_ended(commit_ts, payload_size)
        if self._encode.fresh:
            lines = self._tables.setdefault(self._index, [])
            lines += [archive_tables.line(commit_ts, version) for version in self._encode.fresh]
            self._described.definitions += len(self._encode.fresh)
            self._encode.fresh.clear()
        start = self._size - payload_size - FILE_OVERHEAD
        self._described.add(commit_ts, start, self._size, is_ddl=self._is_ddl)

    def _rotate_if_large(self) -> None:
        before = self._index
        super()._rotate_if_large()
        if self._index != before:
            described = self._described
            described.count(self._encode.take_counts())
            described.closed = True
            self._closed[before] = described
            self._described = SegmentIndex(described.cluster_id)
