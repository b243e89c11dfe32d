"""Segment: one file of the value log, `%06d.vlog`.

    record*  [footer]
    record   see `tidb_binlog.record`: magic, length, CRC-32C, payload
    footer   max_ts i64 LE | magic u32 LE 0x123ab922         12 bytes, only on closed files

`max_ts` is at least the largest index timestamp of the records in the file; retention compares with it.
A footer is believed only where a walk over the records lands exactly in front of it: the last four bytes
alone may as well be the end of a torn payload.

Never truncates on its own account: what a violation means is decided by `recovery`.

Tests  tests/crash/test_pump_log.py
"""

from __future__ import annotations

import re
import struct
from collections import deque
from collections.abc import Iterator
from typing import Final, NamedTuple

from pump.log import record_scan
from pump.log.log_file import OsLogFile
from pump.log.record import LogRecord, ValuePointer
from pump.log.record_scan import NotABinlog, Scanned
from tidb_binlog import binlog
from tidb_binlog.errors import Corruption
from tidb_binlog.record import (
    VALUE_FOOTER,
    VALUE_FOOTER_MAGIC,
    VALUE_HEADER,
    VALUE_HEADER_SIZE,
    VALUE_LOG_MAGIC,
    RecordError,
    check_value,
    crc32c_extend,
    decode_value,
)
from tidb_binlog.tso import Ts

FOOTER_SIZE: Final = VALUE_FOOTER.size
_NAME: Final = re.compile(r"(\d{6,10})\.vlog")
_CHUNK: Final = 1 << 20
_LARGE: Final = 8 << 20
_MAGIC_BYTES: Final = struct.pack("<I", VALUE_LOG_MAGIC)


def name_of(fid: int) -> str:
    return f"{fid:06d}.vlog"


def fid_of(name: str) -> int | None:
    """Number of a log file, None for files that are none. `Corruption` for a malformed log file name."""
    if not name.endswith(".vlog"):
        return None
    match = _NAME.fullmatch(name)
    if match is None or name_of(int(match[1])) != name or int(match[1]) >= 1 << 32:
        raise Corruption(
            f"value log file name {name!r} is not a six-digit number", hint="move the file elsewhere"
        )
    return int(match[1])


class Walked(NamedTuple):
    """How far whole records go; `error`: why no further. `records` are those from `checked_from` on."""

    end: int
    checked_from: int
    records: list[LogRecord]
    error: RecordError | None


class Segment:
    """One log file. `end`: bytes of it that hold whole records; reads never go beyond. `max_ts`: at least
    the largest index timestamp of its records, 0 while that is not known."""

    def __init__(self, fid: int, file: OsLogFile, *, end: int, max_ts: Ts = 0) -> None:
        self.fid = fid
        self.file = file
        self.end = end
        self.max_ts = max_ts

    def read(self, offset: int) -> bytes:
        """Payload of the record at `offset`; `Corruption` if there is none."""
        head = self.file.read(offset, VALUE_HEADER_SIZE)
        payload = self.file.read(offset + VALUE_HEADER_SIZE, self._length(offset, head))
        try:
            check_value(head, payload, base=offset)
        except RecordError as error:
            raise self.corruption(error) from None
        return payload

    def head(self, offset: int) -> tuple[int, int]:
        """Length and checksum of the record at `offset` by its header; `Corruption` if there is none."""
        head = self.file.read(offset, VALUE_HEADER_SIZE)
        return self._length(offset, head), int(VALUE_HEADER.unpack(head)[2])

    def begin(self, offset: int, size: int) -> bytes:
        """The first `size` bytes of the payload at `offset`, not verified."""
        return self.file.read(offset + VALUE_HEADER_SIZE, size)

    def _length(self, offset: int, head: bytes) -> int:
        if len(head) < VALUE_HEADER_SIZE:
            raise self.corruption(RecordError(offset, "no record here, the file ends early", True))
        magic, length, _ = VALUE_HEADER.unpack_from(head)
        if magic != VALUE_LOG_MAGIC:
            raise self.corruption(RecordError(offset, f"wrong magic {magic:#010x}", False))
        if offset + VALUE_HEADER_SIZE + length > self.end:
            raise self.corruption(RecordError(offset, f"record of {length} bytes ends early", True))
        return int(length)

    def corruption(self, error: RecordError) -> Corruption:
        return Corruption(
            f"{self.file.path}: {error}",
            hint="restore the file from a backup, or give up what is lost there: start the pump with "
            f"`--accept-loss {name_of(self.fid)}:{error.offset}`",
        )

    def scan(self, start: int, stop: int) -> Iterator[Scanned]:
        """The records in [start, stop), a stretch at a time; an error ends it. `Corruption` for what is no
        Binlog. A record of any size is verified with little of it in memory."""
        at, size = start, _CHUNK
        while at < stop:
            data = self.file.read(at, min(size, stop - at))
            try:
                scanned = record_scan.scan(data, self.fid, at, stop)
            except NotABinlog as error:
                raise Corruption(
                    f"{self.file.path}: offset {error.offset}: {error.reason}",
                    hint="the file was altered; restore it",
                ) from None
            if scanned.records or scanned.error:
                yield scanned
            if scanned.error:
                return
            needed = record_scan.needed(data, scanned.after - at)
            if needed > _LARGE and (large := self._scan_large(scanned.after, needed)) is not None:
                yield large
                if large.error:
                    return
                at, size = large.after, _CHUNK
                continue
            if scanned.after == at and len(data) < min(size, stop - at):
                yield Scanned([], at, RecordError(at, "the file ends early", True))
                return
            at, size = scanned.after, max(_CHUNK, needed)

    def _scan_large(self, at: int, size: int) -> Scanned | None:
        """The record of `size` bytes at `at`, which is in the file; None if it does not begin as usual."""
        _, checksum = self.head(at)
        header = binlog.leading_header(self.begin(at, record_scan.HEAD.size))
        if header.start_ts == 0:
            return None
        actual = 0
        for offset in range(at + VALUE_HEADER_SIZE, at + size, _CHUNK):
            actual = crc32c_extend(actual, self.file.read(offset, min(_CHUNK, at + size - offset)))
        if actual != checksum:
            return Scanned([], at, RecordError(at, "checksum mismatch", False))
        return Scanned([LogRecord(*header, ValuePointer(self.fid, at))], at + size, None)

    def walk(self, start: int, stop: int, checked_bytes: int) -> Walked:
        """Go from header to header in [start, stop). Of the records in the last `checked_bytes`, and at
        least of the last one, the checksums are verified too. Raises `Corruption` as `scan`."""
        at, error = start, None
        places = deque([start])  # of records, one for each stretch that was read
        while at < stop and error is None:
            data = self.file.read(at, min(_CHUNK, stop - at))
            last, steps = record_scan.steps(data)
            if steps == 0 or at + steps > stop:
                error = record_scan.error_at(data, last, at, stop)
                error = error or RecordError(at, "the file ends early", True)
                at += last
                break
            at += steps
            places.append(at)
            while len(places) > 2 and places[1] <= at - checked_bytes:
                places.popleft()
        records: list[LogRecord] = []
        for scanned in self.scan(places[0], at):
            records += scanned.records
            if scanned.error is not None:
                return Walked(scanned.after, places[0], records, scanned.error)
        return Walked(at, places[0], records, error)

    def resume_at(self, offset: int) -> int | None:
        """Where records continue after a damaged one: where its header says if a record, a footer or the end
        is there, else at the next valid record (a Go pump appends after a torn one). None: nowhere."""
        head = self.file.read(offset, VALUE_HEADER_SIZE)
        end = offset + record_scan.needed(head, 0)
        if len(head) == VALUE_HEADER_SIZE and head.startswith(_MAGIC_BYTES) and end <= self.end:
            next_magic = self.file.read(end, len(_MAGIC_BYTES))
            if end == self.end or next_magic == _MAGIC_BYTES or self.footer_at(end) is not None:
                return end
        return self.find_record(offset + 1, self.end)

    def footer_at(self, offset: int) -> int | None:
        """`max_ts` of the footer that begins at `offset` and ends the file; None if there is none."""
        data = self.file.read(offset, FOOTER_SIZE + 1)
        if len(data) != FOOTER_SIZE:
            return None
        max_ts, magic = VALUE_FOOTER.unpack(data)
        return int(max_ts) if magic == VALUE_FOOTER_MAGIC else None

    def closed_max_ts(self) -> Ts | None:
        """`max_ts` of a file that is written no more, as its footer says; None without a footer."""
        if self.max_ts == 0:
            data = self.file.read(max(self.file.size() - FOOTER_SIZE, 0), FOOTER_SIZE)
            max_ts, magic = VALUE_FOOTER.unpack(data) if len(data) == FOOTER_SIZE else (0, 0)
            self.max_ts = int(max_ts) if magic == VALUE_FOOTER_MAGIC else 0
        return self.max_ts or None

    def close_with_footer(self) -> None:
        """Write the footer and bring it to the medium; nothing is appended afterwards."""
        self.file.append([VALUE_FOOTER.pack(self.max_ts, VALUE_FOOTER_MAGIC)])
        self.file.sync()

    def find_record(self, start: int, stop: int) -> int | None:
        """Offset of the first valid record that begins in [start, stop), at any offset; None without one."""
        at = start
        while at < stop:
            data = self.file.read(at, _CHUNK + VALUE_HEADER_SIZE)
            magic = data.find(_MAGIC_BYTES)
            while 0 <= magic < _CHUNK:
                offset = at + magic
                if offset >= stop:
                    return None
                if self._is_record(offset, stop):
                    return offset
                magic = data.find(_MAGIC_BYTES, magic + 1)
            at += _CHUNK
        return None

    def _is_record(self, offset: int, stop: int) -> bool:
        head = self.file.read(offset, VALUE_HEADER_SIZE)
        if len(head) < VALUE_HEADER_SIZE:
            return False
        length = int(VALUE_HEADER.unpack(head)[1])
        if length == 0 or offset + VALUE_HEADER_SIZE + length > stop:  # magic and zeros are no evidence
            return False
        try:
            decode_value(self.file.read(offset, VALUE_HEADER_SIZE + length))
        except RecordError:
            return False
        return True
