"""Chunk comparison: whether a part of a table has the same rows on both sides, and which differ.

Drives  two sessions of one moment at a time, one of each side, whose servers work side by side
Holds   where both servers print values alike they sum up the part; only what differs is read: first by
        buckets, then the rows of the buckets that differ. Otherwise rows are read and compared by meaning
        (`row_parts`), and so they are where a server refuses the sum, or cannot make a row's hash
        Whichever way: rows that were read are as many as the server counts at the same moment, and what was
        drilled explains the difference of the whole, else it is an error, and never "equal"
Tests   tests/drainer/compare/verify/test_verifying.py
"""

from __future__ import annotations

import pickle
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import closing, suppress
from functools import partial
from typing import IO, Final
from zlib import crc32

from drainer.changes import canonical
from drainer.compare.verify import checksum
from drainer.compare.verify.checksum import Sum
from drainer.compare.verify.compared_table import DOWNSTREAM, UPSTREAM, ComparedTable
from drainer.compare.verify.result import LISTED_BYTES, LISTED_MAX, Kind, RowDifference
from drainer.compare.verify.row_differences import Printed, RowComparison
from drainer.compare.verify.row_source import Rows, Sides
from drainer.mysql.chunks.chunk import Chunk, check_rows
from drainer.mysql.errors import NOT_ALLOWED, StatementRefused
from tidb_binlog.errors import DownstreamError
from tidb_binlog.late_dataclass import dataclass, field, replace

_FEW: Final = 2_000
_BUCKET_ROWS: Final = 200
_SIDES: Final = ("upstream", "downstream")


@dataclass(frozen=True, slots=True)
class Part:
    """What was found in a part of a table. `differences` are the first ones, the counts are all; `all` gives
    each once. `computed`: changed rows that differ only in columns that the servers compute. `is_read`: its
    rows were read whole, and not summed up by the servers."""

    rows: int
    downstream_rows: int
    differences: tuple[RowDifference, ...] = ()
    missing: int = 0
    extra: int = 0
    changed: int = 0
    computed: int = 0
    is_read: bool = False
    differing: Differing | None = field(default=None, compare=False, repr=False)

    @property
    def is_equal(self) -> bool:
        return not (self.missing or self.extra or self.changed)

    def all(self) -> Iterable[RowDifference]:
        return self.differences if self.differing is None else self.differing.all()

    def settled(self) -> Part:
        """Its counts alone."""
        return replace(self, differences=(), differing=None)


class ChunkComparison:
    """Parts of one table at one moment. Raises `SessionError` and what the moment's sessions raise,
    `DownstreamError` where a server gives other rows than it counts.

    `given` replaces the reading of rows of a side: of a table whose rows are others downstream, or that no
    server has. `keep_all`: every difference is wanted.
    """

    def __init__(
        self,
        table: ComparedTable,
        sides: Sides,
        executor: Executor,
        *,
        given: tuple[Rows | None, Rows | None] = (None, None),
        keep_all: bool = False,
    ) -> None:
        self._table = table
        self._sides = sides
        self._executor = executor
        self._given = given
        self._rows = PartedComparison(table, keep_all=keep_all)

    def compare(self, chunk: Chunk) -> Part:
        """The rows of a chunk, on both sides."""
        where = chunk.condition()
        if any(self._given):
            return self._read(where, given=tuple(rows and rows(chunk) for rows in self._given))
        if not self._table.is_by_checksum:
            return self._read(where)
        try:
            above, below = self.sums(where)
            if not (above.is_whole and below.is_whole):
                return self._read(where)
            return Part(above.rows, below.rows) if above == below else self._drill(where, above, below)
        except StatementRefused as error:
            if error.number in NOT_ALLOWED:
                raise
            return self._read(where)

    # -- sums -----------------------------------------------------------------------------------------

    def sums(self, where: bytes) -> tuple[Sum, Sum]:
        """Of what both servers have there."""
        answers = self._both(lambda side: checksum.sum_queries(self._table, side, where))
        above, below = (sum(map(checksum.read_sum, rows), Sum()) for rows in answers)
        return above, below

    def _drill(self, where: bytes, above: Sum, below: Sum) -> Part:
        """Rows of the buckets that differ, if these are what makes the whole differ."""
        if max(above.rows, below.rows) <= _FEW:
            return self._read(where)
        buckets = min(checksum.BUCKETS_MAX, max(above.rows, below.rows) // _BUCKET_ROWS)
        answers = self._both(lambda side: checksum.bucket_queries(self._table, side, where, buckets))
        ours, theirs = (_by_bucket(rows) for rows in answers)
        wrong = [bucket for bucket in sorted({*ours, *theirs}) if ours.get(bucket) != theirs.get(bucket)]
        if (sum(ours.values(), Sum()), sum(theirs.values(), Sum())) != (above, below) or not wrong:
            return self._read(where)
        counts = tuple(sum(side.get(bucket, Sum()).rows for bucket in wrong) for side in (ours, theirs))
        part = self._read(where, wrong, buckets, counts=counts)
        return replace(part, rows=above.rows, downstream_rows=below.rows, is_read=False)

    # -- rows -----------------------------------------------------------------------------------------

    def _read(
        self,
        where: bytes,
        chosen: Iterable[int] = (),
        buckets: int = 1,
        *,
        counts: tuple[int, ...] = (),
        given: tuple[Iterable[Printed] | None, ...] = (None, None),
    ) -> Part:
        """Rows of some buckets, or all, compared by meaning. `counts`: how many each side has of them."""
        if not counts:
            count = partial(checksum.count_queries, self._table, where=where)
            if given == (None, None):
                answers: Sequence[list[Printed]] = self._both(count)
            else:
                answers = [
                    [] if given[side] is not None else self._ask(side, count(side)) for side in range(2)
                ]
            counts = tuple(sum(int(row[0] or 0) for row in side) for side in answers)
        with closing(SideRows(self._table)) as ours, closing(SideRows(self._table)) as theirs:

            def take(side: int) -> None:
                if (rows := given[side]) is not None:
                    (ours, theirs)[side].take(rows)
                    return
                queries = checksum.row_queries(self._table, side, where, chosen, buckets)
                with self._sides.of(side).session() as connection:
                    for query in queries:
                        (ours, theirs)[side].take(connection.stream_printed(query))

            downstream = self._executor.submit(take, DOWNSTREAM)
            try:
                take(UPSTREAM)
            finally:
                downstream.exception()  # its session is given back before anything else is done
            downstream.result()
            for side, rows in enumerate((ours, theirs)):
                if given[side] is None:  # of others their source is checked
                    check_rows(f"{_SIDES[side]} {self._table.label}", rows.count, counts[side])
            differing = self._rows.compare(ours, theirs)
            part = part_of(ours.count, theirs.count, differing)
        if part.extra - part.missing != theirs.count - ours.count:
            raise DownstreamError(
                f"{self._table.label}: the differences that were found do not explain that upstream has"
                f" {ours.count:,} rows and downstream {theirs.count:,}",
                hint="this is an error of the comparison: report it",
            )
        return part

    # -- servers --------------------------------------------------------------------------------------

    def _both(self, queries: Callable[[int], list[bytes]]) -> tuple[list[Printed], list[Printed]]:
        """The answers of both sides, which work at the same time."""
        theirs = self._executor.submit(self._ask, DOWNSTREAM, queries(DOWNSTREAM))
        try:
            ours = self._ask(UPSTREAM, queries(UPSTREAM))
        except BaseException:
            theirs.exception()  # its session is given back before anything else is done
            raise
        return ours, theirs.result()

    def _ask(self, side: int, queries: Iterable[bytes]) -> list[Printed]:
        with self._sides.of(side).session() as connection:
            return [row for query in queries for row in connection.printed(query)]


def part_of(rows: int, downstream_rows: int, differing: Differing) -> Part:
    counts = {kind.value: number for kind, number in differing.counts.items()}
    first = tuple(differing.first)
    return Part(
        rows, downstream_rows, first, **counts, computed=differing.computed, is_read=True, differing=differing
    )


def _by_bucket(rows: Iterable[Printed]) -> dict[int, Sum]:
    sums: dict[int, Sum] = {}
    for row in rows:
        number = int(row[0] or 0)
        sums[number] = sums.get(number, Sum()) + checksum.read_sum(row)
    return sums


# Row parts: the rows of both sides of a part of a table, compared with a bound on memory, whatever they are.
# Holds  a side's rows stay in memory up to `MEMORY_BYTES`. Beyond, all go to files without a name, parted by
#        a hash of what identifies a row, so that equal rows are in one part on both sides; a part that is too
#        large is parted once more. Each row is read from the server once, so time grows with the rows
# Why    bytes and not rows are the limit: two thousand rows may be half a gigabyte

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
