"""Row parts: the rows of both sides of a part of a table, compared with a bound on memory, whatever they are.

In     the rows of each side as they arrive, in any order
Out    `Differing`: how many rows there are, how many differ, the first differences; all of them, where wanted
Holds  a side's rows stay in memory up to `MEMORY_BYTES`. Beyond, all go to files without a name, parted by a
       hash of what identifies a row, so that equal rows are in one part on both sides; a part that is too
       large is parted once more. Each row is read from the server once, so time grows with the rows
Why    bytes and not rows are the limit: two thousand rows may be half a gigabyte
Tests  tests/drainer/compare/verify/test_row_parts.py
"""

from __future__ import annotations

import pickle
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import closing, suppress
from typing import IO, Final
from zlib import crc32

from drainer.changes import canonical
from drainer.compare.verify.compared_table import ComparedTable
from drainer.compare.verify.result import LISTED_BYTES, LISTED_MAX, Kind, RowDifference
from drainer.compare.verify.row_differences import Printed, RowComparison
from tidb_binlog.errors import DownstreamError
from tidb_binlog.late_dataclass import dataclass, field

MEMORY_BYTES: Final = 32 << 20
"""Of one side's rows in memory; what is made of them to compare them comes to about three times as much."""
PARTS: Final = 16
_LEVELS_MAX: Final = 4  # rows that are equal cannot be parted
_VALUE_BYTES: Final = 48
_ROW_BYTES: Final = 80
_LENGTH_BYTES: Final = 4


@dataclass(slots=True)
class Differing:
    """`first`: as many as a result lists. `computed`: changed rows that differ only in columns that the
    servers compute. `rest`: all further differences, where somebody wants them and there are some."""

    keep_all: bool = False
    first: list[RowDifference] = field(default_factory=list)
    counts: dict[Kind, int] = field(default_factory=lambda: dict.fromkeys(Kind, 0))
    computed: int = 0
    rest: IO[bytes] | None = None
    _first_bytes: int = 0

    def add(self, difference: RowDifference, generated: frozenset[str]) -> None:
        self.counts[difference.kind] += difference.rows
        self.computed += difference.kind is Kind.CHANGED and generated.issuperset(difference.columns)
        if len(self.first) < LISTED_MAX and self._first_bytes < LISTED_BYTES:
            self.first.append(difference)
            self._first_bytes += difference.size_bytes
        elif self.keep_all:
            self.rest = self.rest or _file()
            pickle.dump(difference, self.rest)

    def all(self) -> Iterator[RowDifference]:
        """Every difference, once; the file of the rest is closed after that."""
        yield from self.first
        if self.rest is None:
            return
        with self.rest as file:
            end = file.tell()
            file.seek(0)
            while file.tell() < end:
                yield pickle.load(file)


class SideRows:
    """The rows of one side. `level`: how often they were parted before."""

    def __init__(self, table: ComparedTable, level: int = 0) -> None:
        places = table.key or range(len(table.pairs))
        self._identity = [(place, table.pairs[place].form) for place in places]
        self._shift = PARTS**level
        self._memory: list[Printed] = []
        self._memory_bytes = 0
        self._files: list[IO[bytes]] = []
        self.count = 0

    def close(self) -> None:
        for file in self._files:
            with suppress(OSError):  # what was not written yet, on a full disk
                file.close()

    @property
    def is_parted(self) -> bool:
        return bool(self._files)

    def take(self, rows: Iterable[Printed]) -> None:
        """Raises `Corruption` for a key that its column cannot have, `DownstreamError` where there is no room
        for files, and what the rows raise."""
        for row in rows:
            self.count += 1
            if self._files:
                self._put(row)
                continue
            self._memory.append(row)
            self._memory_bytes += _ROW_BYTES + sum(_VALUE_BYTES + len(value or b"") for value in row)
            if self._memory_bytes > MEMORY_BYTES:
                self.part()

    def part(self) -> None:
        """Whatever is in memory goes to files."""
        if not self._files:
            self._files = [_file() for _ in range(PARTS)]
            for row in self._memory:
                self._put(row)
            self._memory = []

    def size_bytes(self, number: int) -> int:
        """Of a part."""
        return self._files[number].tell()

    def rows(self, number: int | None = None) -> Iterator[Printed]:
        """Those of a part, once, after all were taken; None: all, which are in memory."""
        if number is None:
            yield from self._memory
            return
        file = self._files[number]
        file.seek(0)
        while head := file.read(_LENGTH_BYTES):
            yield tuple(canonical.unpack(file.read(int.from_bytes(head, "big"))))

    def _put(self, row: Printed) -> None:
        key = canonical.pack([canonical.of_server(row[place], form) for place, form in self._identity])
        packed = canonical.pack(row)
        file = self._files[crc32(key) // self._shift % PARTS]
        try:
            file.write(len(packed).to_bytes(_LENGTH_BYTES, "big") + packed)
        except OSError as error:
            raise _no_room(error) from None


class PartedComparison:
    """Of one table. `keep_all`: every difference is wanted, not only the first ones."""

    def __init__(self, table: ComparedTable, *, keep_all: bool = False) -> None:
        self._table = table
        self._keep_all = keep_all
        self._rows = RowComparison(table.pairs, table.key)
        self._generated = frozenset(pair.name for pair in table.pairs if pair.is_generated)

    def compare(self, upstream: SideRows, downstream: SideRows) -> Differing:
        """Both sides were taken whole. Raises as `SideRows.take`, of any value."""
        differing = Differing(self._keep_all)
        try:
            for difference in self._differences(upstream, downstream, 0):
                differing.add(difference, self._generated)
        except OSError as error:
            raise _no_room(error) from None
        return differing

    def _differences(self, upstream: SideRows, downstream: SideRows, level: int) -> Iterator[RowDifference]:
        if not (upstream.is_parted or downstream.is_parted):
            yield from self._rows.differences(upstream.rows(), downstream.rows())
            return
        upstream.part()
        downstream.part()
        for number in range(PARTS):
            sizes = upstream.size_bytes(number), downstream.size_bytes(number)
            if max(sizes) <= MEMORY_BYTES // 2 or level == _LEVELS_MAX:
                yield from self._rows.differences(upstream.rows(number), downstream.rows(number))
                continue
            ours, theirs = (SideRows(self._table, level + 1) for _ in range(2))
            with closing(ours), closing(theirs):
                ours.take(upstream.rows(number))
                theirs.take(downstream.rows(number))
                yield from self._differences(ours, theirs, level + 1)


def _file() -> IO[bytes]:
    try:
        return tempfile.TemporaryFile()
    except OSError as error:
        raise _no_room(error) from None


def _no_room(error: OSError) -> DownstreamError:
    return DownstreamError(
        f"rows that do not fit into memory cannot be kept in {tempfile.gettempdir()}: {error.strerror}",
        hint="TMPDIR names another directory",
    )
