"""Value log: the transactions of a pump, put together from the halves in its files.

In      the files of a value log, the DDL history
Out     transactions that began in one file, by commit_ts, as the drainer would have got them
Holds   a transaction belongs to the file that has its prewrite, so files are read apart; its end may lie in
        any file after. Of two prewrites of one transaction the first counts. Time marks, what was rolled
        back and what has no end are left out. Bytes of a write that a kill cut off are passed over, wherever
        they are: the pump appends after them
Never   opens the index or takes a lock: the pump may be running. A record that is whole and damaged is
        `Corruption`
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from drainer.reading.archive.files.framing import CHUNK, value_records
from drainer.reading.archive.files.location import File, Location
from drainer.reading.archive.files.segments import Slice
from tidb_binlog import binlog, tso
from tidb_binlog.binlog import COMMIT, PREWRITE, Header
from tidb_binlog.errors import Corruption
from tidb_binlog.record import (
    VALUE_FOOTER,
    VALUE_FOOTER_MAGIC,
    VALUE_HEADER,
    VALUE_HEADER_SIZE,
    VALUE_LOG_MAGIC,
    RecordError,
    decode_value,
)

_BEGIN: Final = 64
_USUAL_BYTES: Final = 16 << 10
_MAGIC: Final = VALUE_LOG_MAGIC.to_bytes(4, "little")
LONGEST: Final = tso.compose(24 * 3600 * 1000)
"""How long a transaction may be open: no end is searched in files that begin later than that."""


@dataclass(slots=True)
class Transactions:
    """Of one file: (commit_ts, offset of the prewrite), and those without an end, offsets by start_ts.

    `reach`: the highest timestamp in the file. What is committed up to it was begun in the log before that.
    """

    committed: list[tuple[int, int]] = field(default_factory=list)
    unfinished: dict[int, int] = field(default_factory=dict)
    rolled_back: int = 0
    reach: int = 0


class ValueLog:
    """One file and what lies after it. With `skip_damage` what cannot be read is left out."""

    def __init__(self, location: Location, part: Slice, *, skip_damage: bool = False) -> None:
        self._location = location
        self._part = part
        self._skip_damage = skip_damage

    def transactions(self) -> Transactions:
        """Read the file, and those after it until every prewrite has its end. Raises `Corruption`."""
        found, early = Transactions(), {}
        for pos, header in self._headers(self._part.name):
            found.reach = max(found.reach, header.index_ts)
            if header.is_fake:
                continue
            if header.tp != PREWRITE:
                if not self._end(found, header):
                    early[header.start_ts] = header
            elif header.start_ts not in found.unfinished:
                found.unfinished[header.start_ts] = pos
                if header.start_ts in early:
                    self._end(found, early.pop(header.start_ts))
        for name in self._part.following:
            if not found.unfinished or self._begins_late(name, max(found.unfinished)):
                break
            for _, header in self._headers(name):
                if header.tp != PREWRITE:
                    self._end(found, header)
        found.committed.sort()
        return found

    @staticmethod
    def _end(found: Transactions, header: Header) -> bool:
        """Note an end; False if its transaction did not begin in the file, or has ended."""
        pos = found.unfinished.pop(header.start_ts, None)
        if pos is None:
            return False
        if header.tp == COMMIT:
            found.committed.append((header.commit_ts, pos))
        else:
            found.rolled_back += 1
        return True

    # -- records ---------------------------------------------------------------------------------

    def _headers(self, name: str) -> Iterator[tuple[int, Header]]:
        """Every whole record of a file."""
        with self._location.open(name) as file:
            at, size = 0, _records_end(file)
            while at < size:
                try:
                    for pos, payload in value_records(file.read, at, size):
                        yield pos, binlog.leading_header(payload[:_BEGIN])
                    return
                except RecordError as error:
                    at = self._after(name, file, error, size)

    def _after(self, name: str, file: File, error: RecordError, size: int) -> int:
        """Where the next record begins. Raises `Corruption` if the one here is damaged, not cut off."""
        header = file.read(error.offset, VALUE_HEADER_SIZE)
        following = _next_record(file, error.offset + 1, size)
        if len(header) == VALUE_HEADER_SIZE and not self._skip_damage:
            magic, length, _ = VALUE_HEADER.unpack(header)
            end = error.offset + VALUE_HEADER_SIZE + length
            if magic == VALUE_LOG_MAGIC and end in (following, size) and not error.torn:
                raise Corruption(
                    f"{self._location.path_of(name)}: {error}",
                    hint="restore the file from a backup; or read with damage=report, without this record",
                )
        return following

    def _begins_late(self, name: str, start_ts: int) -> bool:
        begin = self._location.read(name, VALUE_HEADER_SIZE, _BEGIN)
        return bool(begin) and binlog.leading_header(begin).index_ts > start_ts + LONGEST


def _records_end(file: File) -> int:
    """Where the footer of a file begins that is written no more, else its end."""
    assert file.size is not None, "value logs are never compressed"
    footer = file.read(max(0, file.size - VALUE_FOOTER.size), VALUE_FOOTER.size)
    if len(footer) == VALUE_FOOTER.size and VALUE_FOOTER.unpack(footer)[1] == VALUE_FOOTER_MAGIC:
        return file.size - VALUE_FOOTER.size
    return file.size


def _next_record(file: File, at: int, size: int) -> int:
    """Offset of the next whole record; the end of the records if there is none."""
    while at < size:
        data = file.read(at, min(CHUNK, size - at))
        place = data.find(_MAGIC)
        if place < 0:
            at += max(1, len(data) - len(_MAGIC) + 1)
            continue
        at += place
        try:
            next(value_records(file.read, at, size))
        except RecordError:
            at += 1
            continue
        return at
    return size


def payload_at(file: File, pos: int) -> bytes:
    """The payload of the record there."""
    data = file.read(pos, _USUAL_BYTES)
    _, length, _ = VALUE_HEADER.unpack_from(data)
    if VALUE_HEADER_SIZE + length > len(data):
        data = file.read(pos, VALUE_HEADER_SIZE + length)
    return decode_value(data, base=pos)[0]
