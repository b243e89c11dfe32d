"""The pump's data directory as the Go pump lays it out, read from the description of the layout alone.

In     a data directory that nobody works in; the index is copied before LevelDB opens it
Out    `Layout`: the files with their records and footers, the entries of the index, its four positions
Why    storage must not be the only witness that it keeps the layout; nothing of `pump` and no framing of
       `common` is used here
Raises `Broken`: which rule, where. `read` holds what the bytes alone must keep, `check` what files and index
       must keep together

    value/%06d.vlog           record* [footer]
    record                    magic u32 0x823a56e8 | length u64 | CRC-32C of the payload u32 | payload
    footer                    max_ts i64 | magic u32 0x123ab922
    kv  ts:<i64 big-endian>   pointer: fid u32 | offset i64
        !binlog!headPointer, !binlog!handlePointer          pointer
        !binlog!maxCommitTS, !binlog!gcts                   i64

Everything little-endian but the keys' timestamps.
"""

from __future__ import annotations

import re
import shutil
import struct
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import google_crc32c

from pump.index.leveldb_store import plyvel

HEADER = struct.Struct("<IQI")
FOOTER = struct.Struct("<qI")
POINTER = struct.Struct("<Iq")
INTEGER = struct.Struct("<q")
KEY = struct.Struct(">3sq")
RECORD_MAGIC = 0x823A56E8
FOOTER_MAGIC = 0x123AB922
FINISHED_BYTES_MIN = 51_200  # a newest file of this size is finished at a clean stop
HEAD, HANDLE = b"!binlog!headPointer", b"!binlog!handlePointer"
MAX_COMMIT_TS, GC_TS = b"!binlog!maxCommitTS", b"!binlog!gcts"
LAST_COMMIT = b"!binlog!lastCommit"  # of ours: a Go pump asks for the keys that it knows, and no other
PREWRITE, ROLLBACK = 0, 2
ALWAYS_WRITTEN = (1, 2, 3, 7, 8)  # fields of a Binlog that are on disk even when they are zero


class Broken(AssertionError):
    """A directory that a Go pump would not have left."""


class Pointer(NamedTuple):
    fid: int
    offset: int


@dataclass(frozen=True)
class Record:
    place: Pointer
    tp: int
    start_ts: int
    commit_ts: int
    payload: bytes

    @property
    def index_ts(self) -> int:
        return self.start_ts if self.tp == PREWRITE else self.commit_ts


@dataclass(frozen=True)
class LogFile:
    """`max_ts`: of the footer, None without one. `records_end`: where footer, tear or nothing begins."""

    fid: int
    records: list[Record]
    records_end: int
    max_ts: int | None
    torn: str


@dataclass(frozen=True)
class Layout:
    files: list[LogFile]
    index: dict[int, Pointer]
    head: Pointer | None
    handle: Pointer | None
    max_commit_ts: int
    gc_ts: int

    @property
    def records(self) -> list[Record]:
        return [record for file in self.files for record in file.records]


def require(kept: bool, rule: str, where: object) -> None:
    if not kept:
        raise Broken(f"{where}: {rule}")


def read(directory: Path) -> Layout:
    """Everything that lies in a data directory. Raises `Broken`."""
    files = log_files(directory)
    with tempfile.TemporaryDirectory() as scratch:
        copy = Path(scratch) / "kv"
        shutil.copytree(directory / "kv", copy)
        stored = _database(copy)
    index = {}
    for key, value in stored.items():
        if key.startswith(b"ts:"):
            require(len(key) == KEY.size, "a timestamp has 8 bytes", key)
            index[KEY.unpack(key)[1]] = _pointer(key, value)
        else:
            require(key in (HEAD, HANDLE, MAX_COMMIT_TS, GC_TS, LAST_COMMIT), "no such key", key)
    head, handle = (_pointer(key, stored[key]) if key in stored else None for key in (HEAD, HANDLE))
    return Layout(files, index, head, handle, _integer(stored, MAX_COMMIT_TS), _integer(stored, GC_TS))


def log_files(directory: Path) -> list[LogFile]:
    """The value log of a data directory, whose pump may run: its end may be torn. Raises `Broken`."""
    return [_file(fid, path.read_bytes()) for fid, path in _log_files(directory / "value")]


def _log_files(directory: Path) -> list[tuple[int, Path]]:
    found = []
    for path in directory.iterdir():
        if path.suffix == ".vlog":
            require(re.fullmatch(r"\d{6,10}", path.stem) is not None, "a log file has a decimal name", path)
            require(f"{int(path.stem):06d}" == path.stem, "a log file's name has no needless zero", path)
            require(int(path.stem) < 1 << 32, "a log file's number has 32 bits", path)
            found.append((int(path.stem), path))
    return sorted(found)


def _database(path: Path) -> dict[bytes, bytes]:
    database = plyvel.DB(str(path), create_if_missing=False, paranoid_checks=True)
    try:
        return dict(database.iterator(verify_checksums=True))
    finally:
        database.close()


def _pointer(key: bytes, value: bytes) -> Pointer:
    require(len(value) == POINTER.size, "a pointer has 12 bytes", key)
    return Pointer(*POINTER.unpack(value))


def _integer(stored: dict[bytes, bytes], key: bytes) -> int:
    value = stored.get(key, bytes(INTEGER.size))
    require(len(value) == INTEGER.size, "an integer has 8 bytes", key)
    return int(INTEGER.unpack(value)[0])


def _file(fid: int, data: bytes) -> LogFile:
    records, at, torn = [], 0, ""
    max_ts: int | None = None
    while at < len(data):
        if len(data) - at == FOOTER.size and FOOTER.unpack_from(data, at)[1] == FOOTER_MAGIC:
            max_ts = int(FOOTER.unpack_from(data, at)[0])
            break
        payload = _payload(data, at)
        if isinstance(payload, str):
            torn = payload
            break
        records.append(record_at(Pointer(fid, at), payload))
        at += HEADER.size + len(payload)
    return LogFile(fid, records, at, max_ts, torn)


def _payload(data: bytes, at: int) -> bytes | str:
    """The payload of the record at an offset, or why there is none."""
    if at + HEADER.size > len(data):
        return "a header ends early"
    magic, length, checksum = HEADER.unpack_from(data, at)
    if magic != RECORD_MAGIC:
        return f"magic {magic:#010x}"
    payload = data[at + HEADER.size : at + HEADER.size + length]
    if len(payload) < length:
        return "a payload ends early"
    return payload if google_crc32c.value(payload) == checksum else "wrong checksum"


def record_at(place: Pointer, payload: bytes) -> Record:
    fields = list(_fields(place, payload))
    numbers = [number for number, _ in fields]
    known = numbers[: sum(number <= 8 for number in numbers)]
    require(known == sorted(set(known)), "fields are written in order, once, unknown ones behind", place)
    require(set(ALWAYS_WRITTEN) <= set(known), "numbers are written even when they are zero", place)
    values = dict(fields)
    tp, start_ts, commit_ts = (_signed(values[number]) for number in (1, 2, 3))
    require(0 <= tp <= 4, "a binlog has one of five types", place)
    require((start_ts, commit_ts) != (0, 0), "a probe is not stored", place)
    return Record(place, tp, start_ts, commit_ts, payload)


def _fields(place: Pointer, payload: bytes) -> Iterator[tuple[int, int]]:
    """(number, value or length) of each field of a Binlog."""
    at = 0
    while at < len(payload):
        tag, at = _varint(place, payload, at)
        value, at = _varint(place, payload, at)
        require(tag & 7 in (0, 2), "a binlog has numbers and bytes only", place)
        at += value if tag & 7 == 2 else 0
        require(at <= len(payload), "a field ends inside the payload", place)
        yield tag >> 3, value


def _varint(place: Pointer, payload: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        require(at < len(payload) and shift < 70, "a varint ends inside the payload", place)
        value |= (payload[at] & 0x7F) << shift
        shift, at = shift + 7, at + 1
        if payload[at - 1] < 0x80:
            return value, at


def _signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value


def check(layout: Layout, *, clean: bool) -> None:
    """What files and index must keep together. `clean`: the pump was stopped, not killed."""
    _check_files(layout, clean)
    _check_positions(layout, clean)
    _check_index(layout)


def _check_files(layout: Layout, clean: bool) -> None:
    fids = [file.fid for file in layout.files]
    require(bool(fids) and fids == list(range(fids[0], fids[-1] + 1)), "no file is missing between", fids)
    require(fids[0] == 0 or layout.gc_ts > 0, "files are gone, and so is something below gcts", fids)
    largest = 0
    for file in layout.files:
        newest = file is layout.files[-1]
        require(
            not file.torn or (newest and not clean), f"only records and a footer, not {file.torn}", file.fid
        )
        within = max((record.index_ts for record in file.records), default=0)
        largest = max(largest, within)
        if file.max_ts is None:
            require(newest, "every file but the newest is finished", file.fid)
            require(not clean or file.records_end < FINISHED_BYTES_MIN, "a large file is finished", file.fid)
        else:
            require(within <= file.max_ts <= largest, "max_ts is the largest timestamp", file.fid)
            require(
                not newest or file.records_end >= FINISHED_BYTES_MIN, "a small file is not finished", file.fid
            )


def _check_positions(layout: Layout, clean: bool) -> None:
    records = layout.records
    starts = {record.place for record in records}
    for name, pointer in (("head", layout.head), ("handle", layout.handle)):
        known = pointer is None or pointer == (0, 0) or pointer in starts
        require(known, f"the {name} pointer is at the start of a record", pointer)
    head, handle = layout.head or Pointer(0, 0), layout.handle or Pointer(0, 0)
    require(handle <= head, "what is decided is in the index", handle)
    if clean and records:
        require(head == records[-1].place, "after a clean stop the head is the last record", head)
    decided = [record.commit_ts for record in records if record.place <= handle and handle != (0, 0)]
    require(max(decided, default=0) <= layout.max_commit_ts, "no decided commit is above maxCommitTS", handle)
    require(0 <= layout.gc_ts <= layout.max_commit_ts, "only what is sorted is purged", layout.gc_ts)


def _check_index(layout: Layout) -> None:
    places = {record.place: record for record in layout.records}
    for ts, pointer in layout.index.items():
        require(pointer in places, "an entry points to the start of a record", (ts, pointer))
        require(places[pointer].index_ts == ts, "an entry points to a record of its timestamp", (ts, pointer))
    head = layout.head or Pointer(-1, 0)
    for place, record in places.items():
        if place <= head and record.index_ts > layout.gc_ts:
            require(record.index_ts in layout.index, "every record up to the head is in the index", place)
