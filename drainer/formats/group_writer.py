"""Group writer: groups of bytes become files.

In     groups: bytes for a file with an index, the ends of records that were begun without their length,
       contents of records that are copied from elsewhere
Out    files; what was written before `sync` returned is on the medium
Holds  after `DiskFull`, `write` continues exactly where it stopped
Never  decides what goes where: `relay_records` counts bytes and knows every offset beforehand
Tests  tests/drainer/formats/test_binlog_directory.py
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from drainer.formats.binlog_directory import BinlogDirectory
from drainer.formats.binlog_file import OPEN_LENGTH
from tidb_binlog.errors import Corruption
from tidb_binlog.protobuf_fields import Read
from tidb_binlog.record import BINLOG_FILE_MAGIC, FILE_HEADER, FILE_HEADER_SIZE, crc32c_extend

LENGTH_SIZE: Final = 5  # of a varint that is filled in later: up to 32 GiB
_CHUNK: Final = 1 << 20


@dataclass(slots=True)
class OpenRecord:
    """A record that was begun at offset `start`: `beginning`, the length of what follows in a fixed number of
    bytes, `contents` bytes of it, `ending`."""

    start: int
    beginning: bytes
    contents: int = 0
    ending: bytes = b""

    @property
    def head(self) -> bytes:
        """What is written first."""
        header = FILE_HEADER.pack(BINLOG_FILE_MAGIC, OPEN_LENGTH)
        return header + self.beginning + bytes(LENGTH_SIZE)

    @property
    def payload_size(self) -> int:
        """Count the bytes of the whole payload."""
        return len(self.beginning) + LENGTH_SIZE + self.contents + len(self.ending)


@dataclass(slots=True)
class CopiedContents:
    """The rest of a record whose beginning is written: `size` bytes that `read` gives. `checksum` is of what
    is written of its payload; `at` are copied. `read` blocks."""

    read: Read
    size: int
    checksum: int
    at: int = 0


@dataclass(slots=True)
class RecordGroup:
    """What goes into one file: bytes, after them perhaps the end of an open record, or of a copied one.

    `whole`: where the records end that are whole then.
    """

    index: int
    parts: list[bytes] = field(default_factory=list)
    completes: OpenRecord | None = None
    copies: CopiedContents | None = None
    whole: int = 0


def padded(value: int) -> bytes:
    """A varint of `LENGTH_SIZE` bytes, which is longer than it need be; every reader takes it."""
    return bytes(value >> 7 * n & 127 | (128 if n < LENGTH_SIZE - 1 else 0) for n in range(LENGTH_SIZE))


class RelayWriter:
    """Writes groups into a directory."""

    def __init__(self, directory: BinlogDirectory) -> None:
        self._directory = directory
        self._queue: deque[RecordGroup] = deque()
        self._whole: int | None = None  # where whole records end in the newest file; None: at its end

    def write(self, groups: Sequence[RecordGroup] = ()) -> None:
        """Everything given up to now, into the files. Raises `DiskFull` (call again without
        them), `Broken`."""
        self._queue.extend(groups)
        directory = self._directory
        while self._queue:
            group = self._queue[0]
            while directory.newest.index < group.index:
                directory.rotate()
            if group.parts:
                directory.append(group.parts)
                group.parts = []
            if group.completes is not None:
                self._complete(group.completes)
            if group.copies is not None:
                self._copy(group.copies)
            self._whole = group.whole
            self._queue.popleft()

    def sync(self) -> None:
        """What was written is on the medium. Raises `DiskFull` (call again) or `Broken`."""
        self._directory.sync(self._whole)

    def _complete(self, record: OpenRecord) -> None:
        """The checksum, then the length: with the length in place the record counts."""
        directory, file = self._directory, self._directory.newest
        start = record.start + FILE_HEADER_SIZE
        directory.overwrite(start + len(record.beginning), padded(record.contents))
        checksum, at, end = 0, start, start + record.payload_size
        while at < end:
            data = file.read(at, min(_CHUNK, end - at))
            checksum = crc32c_extend(checksum, data)
            at += len(data)
        directory.append([checksum.to_bytes(4, "little")])
        directory.sync(record.start)
        directory.overwrite(record.start, FILE_HEADER.pack(BINLOG_FILE_MAGIC, record.payload_size))

    def _copy(self, contents: CopiedContents) -> None:
        """A stretch at a time; where the disk is full, the next call goes on with the stretch that failed."""
        while contents.at < contents.size:
            data = contents.read(contents.at, min(_CHUNK, contents.size - contents.at))
            if not data:
                raise Corruption(
                    f"a large transaction ends at {contents.at} of {contents.size} bytes",
                    hint="check the disk of data-dir, then start again: it is pulled anew",
                )
            self._directory.append([data])
            contents.checksum = crc32c_extend(contents.checksum, data)
            contents.at += len(data)
        self._directory.append([contents.checksum.to_bytes(4, "little")])

    def remove(self, indexes: Sequence[int]) -> None:
        """Remove files that are not the newest."""
        self._directory.remove(indexes)

    def close(self) -> None:
        """Let go of the directory."""
        self._directory.close()
