"""Record groups: items of the stream become groups of bytes, each for a file at offsets known beforehand, and
the groups become files.

In     transactions, pieces of large ones or as they lie on disk, DDL, in the order of the stream
Out    `RecordGroup`s, and which files are not needed any more; files: what was written before `sync` returned
       is on the medium
Holds  records are in files in the order of the stream; a file ends after the record that made it large
       enough. A large transaction is copied by who writes, a chunk at a time: it is never in memory. After
       `DiskFull`, `write` continues exactly where it stopped
Tests  tests/drainer/relay/test_relay_log.py, tests/drainer/formats/test_binlog_directory.py
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from drainer.formats.binlog_directory import BinlogDirectory
from drainer.formats.binlog_file import OPEN_LENGTH
from drainer.formats.obinlog.writer import ObinlogWriter
from drainer.formats.relay_payload import PayloadWriter
from drainer.txn import Ddl, TableVersion, Transaction
from tidb_binlog.errors import Corruption
from tidb_binlog.late_dataclass import dataclass, field
from tidb_binlog.protobuf_fields import Read
from tidb_binlog.record import (
    BINLOG_FILE_MAGIC,
    FILE_HEADER,
    FILE_HEADER_SIZE,
    FILE_OVERHEAD,
    crc32c,
    crc32c_extend,
    encode_file,
)
from tidb_binlog.tso import Ts

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


CHECKSUM_BYTES: Final = 4


class Encoder(Protocol):
    """Makes payloads; see `obinlog.ObinlogWriter`, `relay_payload.PayloadWriter`."""

    def begin_file(self) -> None: ...

    def transaction(self, transaction: Transaction) -> bytes: ...

    def ddl(self, ddl: Ddl, text: str) -> bytes: ...


class PieceEncoder(Encoder, Protocol):
    """Makes payloads of pieces, too."""

    def beginning(self, commit_ts: Ts) -> bytes: ...

    def tables(self, transaction: Transaction) -> bytes: ...

    def ending(self) -> bytes: ...


class RecordGroups:
    """Continues at `size` of the file `index`. `last_ts`: the largest commit_ts of each file that is there.
    `observe` gets the size of every record."""

    def __init__(
        self,
        index: int,
        size: int,
        last_ts: dict[int, int],
        max_file_size: int,
        observe: Callable[[int], None],
        encoder: Encoder,
    ) -> None:
        self._max_file_size = max_file_size
        self._observe = observe
        self._whole_encoder = encoder
        self._last_ts = last_ts
        self._highest_ts = last_ts.get(index, 0)  # of the file that is written
        self._index = index
        self._size = size
        self._group = RecordGroup(index, whole=size)
        self._groups = [self._group]
        self.waiting = 0
        """Bytes that were not taken yet."""

    def ddl(self, ddl: Ddl, *texts: str) -> None:
        """A DDL that is to run with these texts: a record each, all in one file."""
        self._append_records(ddl.commit_ts, *[self._whole_encoder.ddl(ddl, text) for text in texts])

    def transaction(self, item: Transaction) -> None:
        """A whole transaction. Raises `RowError` for a row that cannot be right."""
        self._append_records(item.commit_ts, self._whole_encoder.transaction(item))

    def take(self) -> list[RecordGroup]:
        """What is to be written now; the end of an open record comes later."""
        groups = self._groups
        self._groups = []
        self._begin_group()
        self.waiting = 0
        return groups

    def done(self, resolved_ts: Ts) -> list[int]:
        """Files, not the newest, that hold nothing above it: they are not needed again."""
        gone = []
        for index in sorted(self._last_ts):
            if index >= self._index or self._last_ts[index] > resolved_ts:
                break
            gone.append(index)
        for index in gone:
            del self._last_ts[index]
        return gone

    def _append_records(self, commit_ts: Ts, *payloads: bytes) -> None:
        for payload in payloads:
            self._add(encode_file(payload))
            self._record_ended(commit_ts, len(payload))
        self._rotate_if_large()

    def _add(self, data: bytes) -> None:
        self._group.parts.append(data)
        self._count(len(data))

    def _count(self, size: int) -> None:
        self._size += size
        self.waiting += size
        self._group.whole = self._whole()

    def _whole(self) -> int:
        """Where the records end that are whole."""
        return self._size

    def _begin_group(self) -> None:
        self._group = RecordGroup(self._index, whole=self._whole())
        self._groups.append(self._group)

    def _record_ended(self, commit_ts: Ts, payload_size: int) -> None:
        self._observe(payload_size + FILE_OVERHEAD)
        if commit_ts > self._highest_ts:
            self._highest_ts = commit_ts

    def _rotate_if_large(self) -> None:
        if self._size >= self._max_file_size:
            self._last_ts[self._index], self._highest_ts = self._highest_ts, 0
            self._index += 1
            self._size = 0
            self._whole_encoder.begin_file()
            self._begin_group()


class RelayRecords(RecordGroups):
    """Of an encoder that has to see all rows: a large transaction comes in pieces, and is one record."""

    def __init__(
        self,
        index: int,
        size: int,
        last_ts: dict[int, int],
        max_file_size: int,
        observe: Callable[[int], None],
        encoder: PieceEncoder | None = None,
    ) -> None:
        self._open: OpenRecord | None = None
        self._encoder = encoder or ObinlogWriter()
        super().__init__(index, size, last_ts, max_file_size, observe, self._encoder)

    def transaction(self, item: Transaction) -> None:
        """A transaction or the next piece of one. Raises `RowError` for a row that cannot be right."""
        if not item.last or self._open is not None:
            self._append_piece(item)
        else:
            super().transaction(item)

    def _append_piece(self, piece: Transaction) -> None:
        if self._open is None:
            self._open = OpenRecord(self._size, self._encoder.beginning(piece.commit_ts))
            self._add(self._open.head)
        record = self._open
        tables = self._encoder.tables(piece)
        record.contents += len(tables)
        self._add(tables)
        if piece.last:
            self._open = None
            record.ending = self._encoder.ending()
            self._add(record.ending)
            self._group.completes = record
            self._count(CHECKSUM_BYTES)
            self._begin_group()
            self._record_ended(piece.commit_ts, record.payload_size)
            self._rotate_if_large()

    def _whole(self) -> int:
        return self._size if self._open is None else self._open.start


class PayloadRecords(RecordGroups):
    """As `RecordGroups`."""

    def __init__(
        self,
        index: int,
        size: int,
        last_ts: dict[int, int],
        max_file_size: int,
        observe: Callable[[int], None],
    ) -> None:
        self._encoder = PayloadWriter()
        super().__init__(index, size, last_ts, max_file_size, observe, self._encoder)

    def transaction(self, item: Transaction) -> None:
        """As that of `RecordGroups`, in one step: there are tens of thousands a second."""
        head, payload, commit_ts = self._encoder.before(item), item.payload, item.commit_ts
        size = len(head) + len(payload)
        checksum = crc32c_extend(crc32c(head), payload).to_bytes(CHECKSUM_BYTES, "little")
        group = self._group
        group.parts += (FILE_HEADER.pack(BINLOG_FILE_MAGIC, size) + head, payload, checksum)
        size += FILE_OVERHEAD
        self._observe(size)
        self.waiting += size
        self._size = group.whole = end = self._size + size
        if commit_ts > self._highest_ts:
            self._highest_ts = commit_ts
        if end >= self._max_file_size:
            self._rotate_if_large()

    def _rotate_if_large(self) -> None:
        index, size = self._index, self._size
        super()._rotate_if_large()
        if self._index != index:
            self.follows(size)

    def follows(self, size: int) -> None:
        """The file that is begun follows one of so many bytes."""
        self._encoder.follows(size)

    def rules(self, text: str) -> None:
        """What follows goes by these rules."""
        self._encoder.rules(text)

    def large(self, commit_ts: Ts, tables: Sequence[TableVersion], rows: int, size: int, read: Read) -> None:
        """A transaction of `size` bytes that has so many rows of these tables; `read` gives what the pump
        sent."""
        head = self._encoder.head(commit_ts, tables, rows)
        payload_size = len(head) + size
        self._add(FILE_HEADER.pack(BINLOG_FILE_MAGIC, payload_size) + head)
        self._group.copies = CopiedContents(read, size, crc32c(head))
        self._count(size + CHECKSUM_BYTES)
        self._begin_group()
        self._record_ended(commit_ts, payload_size)
        self._rotate_if_large()


class RecordSizes:
    """`bounds` are those of the histogram."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._total = 0

    def observe(self, size: int) -> None:
        """Count a record."""
        self._counts[bisect_left(self._bounds, size)] += 1
        self._total += size

    def taken(self) -> tuple[tuple[int, ...], int]:
        """Since the last call."""
        sizes = tuple(self._counts), self._total
        self._counts = [0] * len(self._counts)
        self._total = 0
        return sizes
