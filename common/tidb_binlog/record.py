"""Framed records: the two ways in which payloads lie in files.

Value log (Pump), all little-endian:

    magic u32 0x823a56e8 | length u64 | CRC-32C of the payload u32 | payload

and after the last record of a file that is written no more:

    max_ts i64 | magic u32 0x123ab922

Binlog file (relay log, pb archive), all little-endian:

    magic u32 0x1c1b0504 | length u64 | payload | CRC-32C of the payload u32

CRC-32C is the Castagnoli polynomial, reflected, unmasked. The header is not covered by the checksum, so a
length is compared with what the file can hold before anything is read or allocated. What a reader does
with a violation differs (a torn tail is normal, anything earlier is corruption) and is decided by the
caller; `RecordError` says where and why.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final

import google_crc32c

from tidb_binlog.late_dataclass import dataclass

VALUE_LOG_MAGIC: Final = 0x823A56E8
BINLOG_FILE_MAGIC: Final = 0x1C1B0504

VALUE_HEADER: Final = struct.Struct("<IQI")
"""Magic, length and checksum in front of a value-log payload."""
VALUE_FOOTER_MAGIC: Final = 0x123AB922
VALUE_FOOTER: Final = struct.Struct("<qI")
"""Largest timestamp and magic after the last record of a value-log file."""
FILE_HEADER: Final = struct.Struct("<IQ")
"""Magic and length in front of a binlog-file payload."""
_CRC = struct.Struct("<I")

VALUE_HEADER_SIZE: Final = VALUE_HEADER.size
FILE_HEADER_SIZE: Final = FILE_HEADER.size
FILE_OVERHEAD: Final = FILE_HEADER.size + _CRC.size


@dataclass(frozen=True, slots=True)
class RecordError(Exception):
    """Not a whole, valid record at `offset`; `torn` if the bytes simply end too early."""

    offset: int
    reason: str
    torn: bool

    def __str__(self) -> str:
        return f"offset {self.offset}: {self.reason}"


crc32c: Final[Callable[[bytes], int]] = google_crc32c.value
"""Of a whole payload; the library's own function, since a call around it costs as much as a short payload."""

crc32c_extend: Final[Callable[[int, bytes], int]] = google_crc32c.extend
"""Checksum of what a checksum is of, with more bytes after it; the checksum of nothing is 0."""


def encode_value(payload: bytes) -> bytes:
    """One value-log record."""
    return VALUE_HEADER.pack(VALUE_LOG_MAGIC, len(payload), crc32c(payload)) + payload


def value_header(payload: bytes) -> bytes:
    """The header alone, for writers that gather header and payload without joining them."""
    return VALUE_HEADER.pack(VALUE_LOG_MAGIC, len(payload), crc32c(payload))


def decode_value(data: bytes | memoryview, offset: int = 0, *, base: int = 0) -> tuple[bytes, int]:
    """Payload at `offset` and the offset after it. `base` is added to offsets in errors."""
    body = offset + VALUE_HEADER_SIZE
    if body > len(data):
        raise RecordError(base + offset, "record header ends early", True)
    magic, length, checksum = VALUE_HEADER.unpack_from(data, offset)
    if magic != VALUE_LOG_MAGIC:
        raise RecordError(base + offset, f"wrong magic {magic:#010x}", False)
    end = body + length
    if end > len(data):
        raise RecordError(base + offset, f"record of {length} bytes ends early", True)
    payload = bytes(data[body:end])
    if crc32c(payload) != checksum:
        raise RecordError(base + offset, "checksum mismatch", False)
    return payload, end


def check_value(header: bytes, payload: bytes, *, base: int = 0) -> None:
    """Raise `RecordError` unless `payload` is what `header` announces: for readers who want it uncopied."""
    magic, length, checksum = VALUE_HEADER.unpack(header)
    if magic != VALUE_LOG_MAGIC:
        raise RecordError(base, f"wrong magic {magic:#010x}", False)
    if len(payload) != length:
        raise RecordError(base, f"record of {length} bytes ends early", True)
    if crc32c(payload) != checksum:
        raise RecordError(base, "checksum mismatch", False)


def encode_file(payload: bytes) -> bytes:
    """One binlog-file record."""
    return FILE_HEADER.pack(BINLOG_FILE_MAGIC, len(payload)) + payload + _CRC.pack(crc32c(payload))


def decode_file(data: bytes | memoryview, offset: int = 0, *, base: int = 0) -> tuple[bytes, int]:
    """Payload at `offset` and the offset after it. `base` is added to offsets in errors."""
    body = offset + FILE_HEADER_SIZE
    if body > len(data):
        raise RecordError(base + offset, "record header ends early", True)
    magic, length = FILE_HEADER.unpack_from(data, offset)
    if magic != BINLOG_FILE_MAGIC:
        raise RecordError(base + offset, f"wrong magic {magic:#010x}", False)
    end = body + length + _CRC.size
    if end > len(data):
        raise RecordError(base + offset, f"record of {length} bytes ends early", True)
    payload = bytes(data[body : body + length])
    if crc32c(payload) != _CRC.unpack_from(data, body + length)[0]:
        raise RecordError(base + offset, "checksum mismatch", False)
    return payload, end
