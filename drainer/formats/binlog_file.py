"""Binlog files: their names, their order, and which of their bytes are records (relay log, file sink).

In     names of a directory; a file as `read(offset, size)` and a size
Out    indexes in order; places of records; for a file that does not end with a whole record, where it ends
Why    `binlog-<index>-<time>` and the framing of `tidb_binlog.record` are those of the Go drainer, which may
       have written the files or may read them next
Holds  only the last file may end in bytes that are no whole record: they were never synced, so nothing that
       depends on them was done
Never  looks for a record at any other place than after the one before: a payload may hold bytes that look
       like a record

A record that is written before its length is known has `OPEN_LENGTH` in its header until it is complete, so
that a reader takes it for a record that ends early.
"""

from __future__ import annotations

import itertools
import re
import struct
from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

from tidb_binlog.errors import Corruption
from tidb_binlog.late_dataclass import dataclass
from tidb_binlog.record import (
    BINLOG_FILE_MAGIC,
    FILE_HEADER,
    FILE_HEADER_SIZE,
    FILE_OVERHEAD,
    RecordError,
    crc32c,
    crc32c_extend,
)

OPEN_LENGTH: Final = (1 << 63) - 1
_NAME: Final = re.compile(r"binlog-(\d{1,19})(?:-\d{14}(?:-\d+(?:\.[\w.]*)?)?)?")
_COMPRESSED: Final = re.compile(r"\.(?:tar\.)?(?:gz|tgz|zst)$")
_CHUNK: Final = 1 << 20
_MARK: Final = struct.Struct("<QQ")
SYNCED: Final = ".synced"
SYNCED_SIZE: Final = _MARK.size + 4

Read = Callable[[int, int], bytes]


class Place(NamedTuple):
    """A record in a file: where its payload begins, and the payload's size."""

    start: int
    size: int

    @property
    def record(self) -> int:
        """Where the record begins."""
        return self.start - FILE_HEADER_SIZE

    @property
    def end(self) -> int:
        """Tell where the record ends."""
        return self.start + self.size + FILE_OVERHEAD - FILE_HEADER_SIZE


def file_name(index: int, local_time: str) -> str:
    """`local_time` is YYYYMMDDhhmmss."""
    return f"binlog-{index:016d}-{local_time}"


def is_compressed(name: str) -> bool:
    """Tell whether a file of this name is compressed."""
    return _COMPRESSED.search(name) is not None


def plain_name(name: str) -> str:
    """`binlog-<index>-<time>` of the file, also of a compressed one."""
    return "-".join(name.split("-")[:3]) if is_compressed(name) else name


def named(names: Iterable[str]) -> list[tuple[int, str]]:
    """(index, name) of the binlog files among the names, in order, whatever is missing. A compressed one does
    not count where the file is there that it was made of."""
    files = sorted(
        (int(match[1]), name)
        for name in names
        if (match := _NAME.fullmatch(name)) and not name.endswith(".tmp")
    )
    plain = {name for _, name in files if not is_compressed(name)}
    return [entry for entry in files if not is_compressed(entry[1]) or plain_name(entry[1]) not in plain]


def in_order(directory: str, names: Iterable[str], *, compressed: bool = False) -> list[tuple[int, str]]:
    """(index, name) of the binlog files among the names; `Corruption` where one is missing or there twice.

    `compressed`: such files count, except where the file is there that they were made of.
    """
    files = named(names)
    for (before, _), (after, name) in itertools.pairwise(files):
        if after == before:
            raise Corruption(
                f"{directory}: two files have the index {after}, one is {name}",
                hint="move the one that does not belong here out of the directory",
            )
        if after != before + 1:
            raise Corruption(
                f"{directory}: the file with index {before + 1} is missing: {before} and {after} are there",
                hint="restore it; without it nothing after it may be applied",
            )
    for _, name in files:
        if is_compressed(name) and not compressed:
            raise Corruption(f"{directory}/{name} is compressed", hint="unpack it under the same index")
    return files


def places(read: Read, size: int) -> Iterator[Place]:
    """The records of a file, from header to header. Raises `RecordError` where no whole record is."""
    at = chunk_at = 0
    chunk = b""
    while at < size:
        if at + FILE_HEADER_SIZE > chunk_at + len(chunk):
            chunk_at, chunk = at, read(at, _CHUNK)
        if at + FILE_HEADER_SIZE > chunk_at + len(chunk):
            raise RecordError(at, "record header ends early", True)
        magic, length = FILE_HEADER.unpack_from(chunk, at - chunk_at)
        if magic != BINLOG_FILE_MAGIC:
            raise RecordError(at, f"wrong magic {magic:#010x}", False)
        if at + FILE_OVERHEAD + length > size:
            raise RecordError(at, "record ends early", True)
        yield Place(at + FILE_HEADER_SIZE, length)
        at += FILE_OVERHEAD + length


def check(read: Read, place: Place) -> None:
    """Compare the checksum, a stretch at a time; `RecordError` if it is wrong."""
    checksum, at, end = 0, place.start, place.start + place.size
    while at < end:
        data = read(at, min(_CHUNK, end - at))
        if not data:
            raise RecordError(place.record, "record ends early", True)
        checksum = crc32c_extend(checksum, data)
        at += len(data)
    if checksum.to_bytes(4, "little") != read(end, 4):
        raise RecordError(place.record, "checksum mismatch", False)


@dataclass(frozen=True, slots=True)
class Synced:
    """Up to where the last writer knew its bytes to be on the medium: an offset of the file with an index."""

    index: int
    offset: int

    def to_bytes(self) -> bytes:
        """As it lies in `.synced`, checksum after it."""
        data = _MARK.pack(self.index, self.offset)
        return data + crc32c(data).to_bytes(4, "little")

    @classmethod
    def from_bytes(cls, data: bytes) -> Synced | None:
        """None for what is not whole."""
        if len(data) != SYNCED_SIZE or crc32c(data[:-4]).to_bytes(4, "little") != data[-4:]:
            return None
        return cls(*_MARK.unpack_from(data))


def is_torn_end(error: RecordError, index: int, synced: Synced | None, read: Read, size: int) -> bool:
    """Whether the last file just ends in bytes that were never synced, from the error on.

    A killed writer leaves an exact `synced`; a power cut may leave an older one, a Go drainer leaves none.
    What lies before it is damaged; after it anything may be. Without one for this file, only a record that
    ends early and zeros are taken for an end.
    """
    if synced is not None and synced.index == index:
        return error.offset >= synced.offset
    if error.torn:
        return True
    at = error.offset
    while at < size:
        data = read(at, min(_CHUNK, size - at))
        if not data or data.count(0) != len(data):
            return False
        at += len(data)
    return True


def missing_end(index: int, size: int, synced: Synced | None) -> RecordError | None:
    """The error if bytes that were synced are gone beyond the end of the last file, or that file itself."""
    if synced is None or (synced.index, synced.offset) <= (index, size):
        return None
    gone = f"{synced.offset} bytes of " + ("it" if synced.index == index else f"file {synced.index}")
    return RecordError(size, f"the file ends here, but {gone} were synced", False)


def damage(path: str, error: RecordError) -> Corruption:
    """What to tell of a record that is damaged and not just torn at the end."""
    return Corruption(
        f"{path}: {error}",
        hint="restore the file from a backup. With the upstream at hand nothing is lost: move the binlog "
        "files away and start the drainer, it continues from its checkpoint. Without it, what lies before "
        "the offset can be kept: cut the file there, remove the files after it and the file .synced",
    )
