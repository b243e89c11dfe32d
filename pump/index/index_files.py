"""Index files: what LevelDB would lose of a directory in silence, found before LevelDB reads it.

In     the names and sizes of the files, and their bytes
Out    `Whole`, with what to cut off files first; or `Broken`: the index is to be built anew
Why    LevelDB takes an end that it cannot read for the tear of a crash and a page of zeros for nothing at
       all: it drops what is there without a word, checksums or not, and reads on after it, where newer
       entries and the head among them say that everything is filed
Holds  what is lost of an index is its end. A batch carries the head with its entries, so whatever is lost
       from some batch on is filed again from the value log; no batch is read after a lost one

    CURRENT    names the MANIFEST. Lost, LevelDB begins a new one beside the logs of the old
    MANIFEST   edits: which tables there are, which log continues from them. A torn last edit is cut. An edit
               that is lost shows by what is gone: files that it made needless are removed as soon as it is on
               the medium, and then a table or the log that the edit before it names is not there
    *.log      batches since the tables, numbered without a gap; not synced, so a power cut may keep a later
               page and lose an earlier one. Cut at the first batch that is not whole or not the next
    *.ldb      blocks with checksums, compared whenever they are read; here only that they are there whole

The format is LevelDB's since its first release, the same for C++ and Go.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from tidb_binlog.late_dataclass import dataclass, field
from tidb_binlog.protobuf_fields import varint
from tidb_binlog.record import crc32c

_BLOCK: Final = 32 << 10
_HEADER: Final = struct.Struct("<IHB")  # masked CRC-32C of type and payload, length of the payload, type
_FULL, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4
_MASK_DELTA: Final = 0xA282EAD8
_BATCH: Final = struct.Struct("<QI")  # number of its first entry, how many there are
_CURRENT: Final = re.compile(rb"(MANIFEST-\d+)\n")
_LOG: Final = re.compile(r"(\d+)\.log")
_TABLE: Final = re.compile(r"(\d+)\.(?:ldb|sst)")

Read = Callable[[str, int, int], bytes]
"""Bytes of a file: name, offset, size; fewer only at its end."""


@dataclass(frozen=True, slots=True)
class Cut:
    """Make the file `size` bytes long before LevelDB opens it."""

    name: str
    size: int
    reason: str


@dataclass(frozen=True, slots=True)
class Whole:
    """What LevelDB will find after `cuts` is everything that was written up to some batch."""

    cuts: tuple[Cut, ...] = ()


@dataclass(frozen=True, slots=True)
class Broken:
    """Something in the middle is lost."""

    reason: str


def judge(sizes: Mapping[str, int], read: Read) -> Whole | Broken:
    """`sizes`: of all files of the directory, by name."""
    if "CURRENT" not in sizes:
        left = sorted(
            name for name in sizes if sizes[name] and (_LOG.fullmatch(name) or _TABLE.fullmatch(name))
        )
        return Broken(f"CURRENT is not there, {left[0]} is") if left else Whole()
    current = _CURRENT.fullmatch(read("CURRENT", 0, sizes["CURRENT"]))
    if current is None:
        return Broken("CURRENT names no MANIFEST")
    manifest = current[1].decode()
    if manifest not in sizes:
        return Broken(f"{manifest} is not there")
    state = _State()
    torn = None
    try:
        for _, edit in _records(read, manifest, sizes[manifest]):
            state.apply(edit)
    except _Unreadable as error:
        if not error.torn:
            return Broken(f"{manifest}: {error}")
        torn = Cut(manifest, error.offset, error.reason)
    except (IndexError, ValueError):
        return Broken(f"{manifest} holds an edit that cannot be read")
    reason = state.missing(sizes)
    if reason is not None:
        ends = "" if torn is None else f"; {manifest} ends at {torn.size}: {torn.reason}"
        return Broken(reason + ends)
    cuts = list(_log_cuts(state, sizes, read))
    return Whole(tuple(cuts if torn is None else [torn, *cuts]))


# -- MANIFEST ----------------------------------------------------------------------------------------


@dataclass(slots=True)
class _State:
    """What the edits say, one after the other."""

    log: int = 0
    log_before: int = 0
    last_sequence: int = 0
    tables: dict[tuple[int, int], int] = field(default_factory=dict)
    """(level, number): bytes"""

    def apply(self, edit: bytes) -> None:
        """Raises `IndexError` or `ValueError` for what is no edit."""
        at = 0
        added: dict[tuple[int, int], int] = {}
        while at < len(edit):
            tag, at = varint(edit, at)
            if tag in (2, 3, 4, 9):
                value, at = varint(edit, at)
                if tag == 2:
                    self.log = value
                elif tag == 4:
                    self.last_sequence = value
                elif tag == 9:
                    self.log_before = value
            elif tag == 1:
                at = _skip(edit, at)
            elif tag == 5:
                at = _skip(edit, varint(edit, at)[1])
            elif tag in (6, 7):
                level, at = varint(edit, at)
                number, at = varint(edit, at)
                if tag == 6:
                    self.tables.pop((level, number), None)
                    continue
                added[level, number], at = varint(edit, at)
                at = _skip(edit, _skip(edit, at))
            else:
                raise ValueError(f"unknown tag {tag}")
        self.tables |= added

    def missing(self, sizes: Mapping[str, int]) -> str | None:
        """Why the files are not those of this state; None if they are."""
        tables = {int(match[1]): (name, sizes[name]) for name in sizes if (match := _TABLE.fullmatch(name))}
        for (_, number), size in self.tables.items():
            name, actual = tables.get(number, (f"{number:06d}.ldb", 0))
            if actual != size:
                return f"{name} has {actual} of {size} bytes"
        logs = {int(match[1]): size for name, size in sizes.items() if (match := _LOG.fullmatch(name))}
        if self.log == 0:  # a new directory: its first log was not named yet
            return "the MANIFEST names no log, and there is one" if any(logs.values()) or tables else None
        return None if self.log in logs else f"{self.log:06d}.log is not there"


def _skip(data: bytes, at: int) -> int:
    """After a string with its length in front."""
    length, at = varint(data, at)
    if at + length > len(data):
        raise ValueError("a string ends early")
    return at + length


# -- logs --------------------------------------------------------------------------------------------


def _log_cuts(state: _State, sizes: Mapping[str, int], read: Read) -> Iterator[Cut]:
    """What to cut off so that batches follow each other without a hole."""
    logs = sorted((int(match[1]), name) for name in sizes if (match := _LOG.fullmatch(name)))
    expected: int | None = None
    hole = ""
    for number, name in logs:
        if number < state.log and number != state.log_before:
            continue  # LevelDB does not read it
        if hole:
            if sizes[name]:
                yield Cut(name, 0, hole)
            continue
        try:
            for offset, batch in _records(read, name, sizes[name]):
                first, count = _BATCH.unpack_from(batch.ljust(_BATCH.size, b"\xff"))
                if first != expected and (expected is not None or first > state.last_sequence + 1):
                    raise _Unreadable(offset, "a batch is not the next", False)
                expected = first + count
        except _Unreadable as error:
            hole = f"{name}: {error}"
            yield Cut(name, error.offset, error.reason)


class _Unreadable(Exception):
    """No whole record begins at `offset`. `torn`: as a write that was cut short leaves it."""

    def __init__(self, offset: int, reason: str, torn: bool) -> None:
        super().__init__(f"offset {offset}: {reason}")
        self.offset = offset
        self.reason = reason
        self.torn = torn


def _records(read: Read, name: str, size: int) -> Iterator[tuple[int, bytes]]:
    """(offset, payload) of each record of a file in LevelDB's log format. Raises `_Unreadable`."""
    unpack, checksum_of = _HEADER.unpack_from, crc32c
    start = 0
    pieces: list[bytes] = []
    for base in range(0, size, _BLOCK):
        block = read(name, base, min(_BLOCK, size - base))
        at, length_read = 0, len(block)
        while _BLOCK - at >= _HEADER.size and at < length_read:
            if not pieces:
                start = base + at
            body = at + _HEADER.size
            if body > length_read:
                raise _Unreadable(start, "the file ends early", True)
            masked, length, kind = unpack(block, at)
            end = body + length
            if end > length_read or not 0 < kind <= _LAST:
                raise _unreadable(read, name, size, start, base + end)
            checksum = checksum_of(block[body - 1 : end])
            if ((checksum >> 15 | checksum << 17) + _MASK_DELTA) & 0xFFFFFFFF != masked:
                raise _Unreadable(start, "checksum mismatch", False)
            if (kind in (_MIDDLE, _LAST)) != bool(pieces):
                raise _Unreadable(start, "a piece of a record without the others", False)
            pieces.append(block[body:end])
            at = end
            if kind in (_FULL, _LAST):
                yield start, pieces[0] if kind == _FULL else b"".join(pieces)
                pieces = []
    if pieces:
        raise _Unreadable(start, "the file ends early", True)


def _unreadable(read: Read, name: str, size: int, start: int, end: int) -> _Unreadable:
    """Why the record at `start`, which claims to end at `end`, is none."""
    if end > size:
        return _Unreadable(start, "the file ends early", True)
    for at in range(start, size, _BLOCK):
        if any(read(name, at, min(_BLOCK, size - at))):
            return _Unreadable(start, "no record", False)
    return _Unreadable(start, "zeros up to the end of the file", True)
