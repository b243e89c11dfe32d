"""Record scan: what a stretch of the value log holds, record by record, every checksum verified.

Out    the records as `LogRecord`, how far they reach, and what is wrong there if something is
Why    a start, the slow chaser and retention read millions of records for nothing but their timestamps.
       Payloads of all known writers begin alike, so one unpacking gives the record's header and both
       timestamps; what begins otherwise goes to the parser

    magic u32 | length u64 | CRC-32C u32 | 08 type | 10 start_ts varint | 18 commit_ts varint | ...

A timestamp of the years since 1978 takes nine octets as a varint: two pairs of 7-bit groups come from a
table, the upper four, alike for a second of records, from a dictionary.

Tests  tests/pump/pull/test_parts.py
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from pump.log.record import LogRecord, ValuePointer
from tidb_binlog import binlog
from tidb_binlog.errors import Rejected
from tidb_binlog.record import VALUE_HEADER, VALUE_HEADER_SIZE, VALUE_LOG_MAGIC, RecordError, crc32c

HEAD: Final = struct.Struct("<IQI3BHHIBBHHIB")
_NOT_A_VARINT: Final = -1 << 70
_UPPER_MAX: Final = 4096
new_tuple = tuple.__new__  # a NamedTuple's own constructor is a Python function


PAIR: Final = [_NOT_A_VARINT] * (1 << 16)
"""The 14 bits of two octets of a varint that continues after them; negative if it ends in them."""
for _high in range(128):
    PAIR[_high << 8 | 0x8080 : (_high << 8 | 0x80FF) + 1] = range(_high << 7, (_high + 1) << 7)


class _Upper(dict[int, int]):
    """Bits 28 to 55 of a timestamp by the four octets that carry them."""

    def __missing__(self, octets: int) -> int:
        if len(self) >= _UPPER_MAX:
            self.clear()
        value = self[octets] = PAIR[octets & 0xFFFF] << 28 | PAIR[octets >> 16] << 42
        return value


UPPER: Final = _Upper()


class Scanned(NamedTuple):
    """`after`: offset after the last whole record; `error`: why there is none, if bytes are left."""

    records: list[LogRecord]
    after: int
    error: RecordError | None


def scan(data: bytes, fid: int, base: int, stop: int) -> Scanned:
    """Records in `data`, which lies at offset `base` of file `fid`.

    `stop` is where records end in the file: one that claims to reach beyond is an error, one that only
    reaches beyond `data` is not. Raises `NotABinlog`.
    """
    records: list[LogRecord] = []
    append, unpack, pair, upper = records.append, HEAD.unpack_from, PAIR, UPPER
    at, end, checksum_of = 0, len(data), crc32c
    sure = end - HEAD.size
    while at <= sure:
        (magic, length, checksum, a, tp, b, s0, s1, s2, s3, c, c0, c1, c2, c3) = unpack(data, at)
        body = at + VALUE_HEADER_SIZE
        after = body + length
        if magic != VALUE_LOG_MAGIC or after > end:
            break
        if checksum_of(data[body:after]) != checksum:
            break
        start_ts = pair[s0] | pair[s1] << 14 | upper[s2] | s3 << 56
        commit_ts = 0 if c0 & 0xFF == 0 else pair[c0] | pair[c1] << 14 | upper[c2] | c3 << 56
        place = new_tuple(ValuePointer, (fid, base + at))
        if (
            a == 0x08
            and b == 0x10
            and c == 0x18
            and tp <= binlog.ROLLBACK
            and length >= 14
            and 0 < start_ts < 1 << 63
            and (commit_ts == 0 or (0 < commit_ts < 1 << 63 and length >= 22))
        ):
            if tp == binlog.ROLLBACK and data[after - 2 : after] == binlog.SETTLED:
                tp = binlog.SETTLED_ROLLBACK
            append(new_tuple(LogRecord, (tp, start_ts, commit_ts, place)))
        else:
            append(_parsed(data[body:after], place))
        at = after
    return _scan_end(data, fid, base, stop, at, records)


def _scan_end(data: bytes, fid: int, base: int, stop: int, at: int, records: list[LogRecord]) -> Scanned:
    """What the quick loop left: short records at the end of the data, and why it stopped."""
    while base + at < stop:
        error = error_at(data, at, base, stop)
        if error is not None:
            return Scanned(records, base + at, error)
        after = at + needed(data, at)
        if at + VALUE_HEADER_SIZE > len(data) or after > len(data):
            break
        records.append(_parsed(data[at + VALUE_HEADER_SIZE : after], ValuePointer(fid, base + at)))
        at = after
    return Scanned(records, base + at, None)


def steps(data: bytes) -> tuple[int, int]:
    """How far the headers in `data`, which begins at a record, lead: where the last record begins and where
    it ends, which may be beyond. (0, 0) if there is no header at all."""
    at, last, sure, unpack = 0, 0, len(data) - VALUE_HEADER_SIZE, VALUE_HEADER.unpack_from
    while at <= sure:
        magic, length, _ = unpack(data, at)
        if magic != VALUE_LOG_MAGIC:
            break
        last = at
        at += VALUE_HEADER_SIZE + length
    return last, at


def error_at(data: bytes, at: int, base: int, stop: int) -> RecordError | None:
    """What is wrong with the record at `at`, as far as `data` shows it."""
    body = at + VALUE_HEADER_SIZE
    if body > len(data):
        return RecordError(base + at, "record header ends early", True) if base + body > stop else None
    magic, length, checksum = VALUE_HEADER.unpack_from(data, at)
    if magic != VALUE_LOG_MAGIC:
        return RecordError(base + at, f"wrong magic {magic:#010x}", False)
    if base + body + length > stop:
        return RecordError(base + at, f"record of {length} bytes ends early", True)
    if body + length <= len(data) and crc32c(data[body : body + length]) != checksum:
        return RecordError(base + at, "checksum mismatch", False)
    return None


def needed(data: bytes, at: int) -> int:
    """Bytes that the record at `at` takes, as far as its header is there."""
    if at + VALUE_HEADER_SIZE > len(data):
        return VALUE_HEADER_SIZE
    return VALUE_HEADER_SIZE + int(VALUE_HEADER.unpack_from(data, at)[1])


class NotABinlog(Exception):
    """A record with a right checksum whose payload is no Binlog: written by another program, or altered."""

    def __init__(self, offset: int, reason: str) -> None:
        super().__init__(reason)
        self.offset = offset
        self.reason = reason


def _parsed(payload: bytes, place: ValuePointer) -> LogRecord:
    try:
        message = binlog.parse(payload)
    except Rejected as error:
        raise NotABinlog(place.offset, error.message) from None
    tp = binlog.SETTLED_ROLLBACK if message.settled and message.tp == binlog.ROLLBACK else message.tp
    return LogRecord(tp, message.start_ts, message.commit_ts, place)
