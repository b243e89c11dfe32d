"""Archive segments: the directory around the segment that is written: indexes, definitions, closed segments.

Owns    the files of `index/`, which segments are kept
Holds   a segment is removed only when all older ones are gone, and never the newest one: what is left has no
        gaps. An index is replaced whole; one that is missing or damaged is made again from its segment.
        Definitions of tables are only added

Tests  tests/drainer/sink/file/test_archive.py
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from typing import Final

from google.protobuf.message import DecodeError

from drainer.formats import binlog_file, segment_index
from drainer.formats import compression as segment_compression
from drainer.formats.binlog_directory import BinlogFile
from drainer.formats.binlog_file import Place
from drainer.formats.segment_index import SegmentIndex
from drainer.sink.file import table_definitions as archive_tables
from tidb_binlog.errors import Corruption
from tidb_binlog.filesystem import read_file, replace_file, sync_directory
from tidb_binlog.observe import log
from tidb_binlog.protobuf_fields import MalformedMessage, utf8_text
from tidb_binlog.record import RecordError
from tidb_binlog.tso import Ts
from tidb_binlog.wire import pb_binlog_pb2

logger = log.get("drainer.archive_segments")

DAY_S: Final = 24 * 3600.0


class ArchiveSegments:
    """Of one directory. Methods block; `OSError` comes through."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._indexes = os.path.join(path, segment_index.DIRECTORY)
        os.makedirs(self._indexes, mode=0o700, exist_ok=True)
        sync_directory(path)

    def in_order(self) -> list[tuple[int, str]]:
        """(index, name) of the segments. Raises `Corruption` where one is missing."""
        return binlog_file.in_order(self.path, os.listdir(self.path), compressed=True)

    def clear_up(self) -> None:
        """Remove what a compression left that did not come to its end. No other compression runs."""
        names = set(os.listdir(self.path))
        for name in names:
            segment = name.removesuffix(segment_compression.UNFINISHED)
            if not binlog_file.is_compressed(segment):
                continue
            if segment != name or binlog_file.plain_name(segment) in names:
                os.unlink(os.path.join(self.path, name))

    def compress(self, newest: int, stopped: Callable[[], bool]) -> int:
        """Compress segments that are closed, the oldest first; how many. Raises as `segment_compression`."""
        done = 0
        for index, name in self.in_order():
            if index >= newest or binlog_file.is_compressed(name):
                continue
            stored = self.index_of(name)
            if stored is None or not stored.closed or not stored.size:
                continue
            before, after = segment_compression.compress(self.path, name, stored.first_ts, stopped)
            logger.info("segment compressed", segment=name, bytes=before, compressed=after)
            done += 1
        return done

    def index_of(self, name: str) -> SegmentIndex | None:
        """The stored index of a segment; None if there is none that can be used."""
        try:
            return SegmentIndex.from_json(read_file(self._index_path(name)))
        except FileNotFoundError:
            return None

    def store(self, name: str, index: bytes) -> None:
        """Put an index, rendered, in its place; durable when this returns."""
        replace_file(self._index_path(name), index)

    def add_tables(self, name: str, lines: list[bytes]) -> None:
        """Put definitions after those that are there; durable when this returns."""
        path = self._tables_path(name)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            # What is there may end anywhere, and after a failed sync be something else on the medium.
            view = memoryview(b"\n" + b"".join(lines))
            while view:
                view = view[os.write(descriptor, view) :]
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        # Also for a file that was there: its writer may have been killed before this.
        sync_directory(self._indexes)

    def keep_tables(self, name: str, described: SegmentIndex) -> None:
        """For who writes the segment, at its start: definitions that can be read are on the medium, whatever
        their last writer came to, and what it had only begun is gone. The index counts them, so that they are
        missed if they go later."""
        path = self._tables_path(name)
        with contextlib.suppress(FileNotFoundError):
            text, count = archive_tables.without_torn(read_file(path))
            replace_file(path, text)
            described.definitions = max(described.definitions, count)

    def _tables_path(self, name: str) -> str:
        return os.path.join(self._indexes, archive_tables.file_name(binlog_file.plain_name(name)))

    def _index_path(self, name: str) -> str:
        return os.path.join(self._indexes, segment_index.file_name(binlog_file.plain_name(name)))

    def described(self, index: int, name: str) -> SegmentIndex:
        """The index of a segment that is not being written, made if need be. Raises `Corruption`."""
        if binlog_file.is_compressed(name):
            stored = self.index_of(name)
            if stored is None:
                raise Corruption(
                    f"{self.path}/{name} is compressed and has no index",
                    hint="unpack it under the same index",
                )
            return stored
        descriptor = os.open(os.path.join(self.path, name), os.O_RDONLY | os.O_CLOEXEC)
        file = BinlogFile(os.path.join(self.path, name), index, descriptor, os.fstat(descriptor).st_size)
        try:
            return self.up_to_date(file)
        finally:
            os.close(descriptor)

    def up_to_date(self, file: BinlogFile) -> SegmentIndex:
        """The index of the segment with all its records. Raises `Corruption`."""
        described = self.index_of(os.path.basename(file.path))
        if described is None or described.size > file.size:
            zone = "" if described is None else described.time_zone
            described = SegmentIndex(described.cluster_id if described else 0, zone)
        at = described.size

        def read(offset: int, size: int) -> bytes:
            return file.read(at + offset, size)

        try:
            for place in binlog_file.places(read, file.size - at):
                add_record(described, file, Place(at + place.start, place.size))
        except RecordError as error:
            moved = RecordError(at + error.offset, error.reason, error.torn)
            raise binlog_file.damage(file.path, moved) from None
        return described

    def remove_older(self, than_s: float, than_ts: Ts, newest: int) -> int:
        """Remove segments that were written last before that time (seconds since 1970, by this host's clock)
        and whose last commit is below `than_ts`, the oldest first, and never from the newest one on. The
        number of them. Of a Go drainer's without an index the first alone counts."""
        gone = 0
        for index, name in self.in_order():
            path = os.path.join(self.path, name)
            if index >= newest or os.stat(path).st_mtime >= than_s:
                break
            stored = self.index_of(name)
            if stored is not None and stored.last_ts >= than_ts:
                break
            os.unlink(path)
            for beside in (self._index_path(name), self._tables_path(name)):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(beside)
            gone += 1
            logger.info("segment is older than retention-time", segment=name)
        return gone


def add_record(index: SegmentIndex, file: BinlogFile, place: Place) -> None:
    """Read a record and add it. Raises `Corruption`."""
    message = _message(file.payload(place))
    if message is None:
        raise Corruption(
            f"{file.path}: the record at offset {place.record} is none of an archive",
            hint="is it a relay log's directory? Give the archive a directory of its own",
        )
    is_ddl = message.tp == pb_binlog_pb2.DDL
    index.add(message.commit_ts, place.record, place.end, is_ddl=is_ddl)
    rows: dict[tuple[str, str], list[int]] = {}
    for event in message.dml_data.events:
        counts = rows.setdefault((event.schema_name, event.table_name), [0, 0, 0])
        counts[event.tp] += 1
    index.count(rows)


def _message(payload: bytes) -> pb_binlog_pb2.Binlog | None:
    """None for what is no record of an archive: one of a relay log lacks the kinds of events."""
    try:
        message = pb_binlog_pb2.Binlog.FromString(payload)
        for event in message.dml_data.events:
            utf8_text(event.schema_name), utf8_text(event.table_name)
    except (DecodeError, MalformedMessage):
        return None
    return message if all(event.HasField("tp") for event in message.dml_data.events) else None
