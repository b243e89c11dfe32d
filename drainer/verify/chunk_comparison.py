"""Chunk comparison: whether a part of a table has the same rows on both sides, and which differ.

Drives  two sessions of one moment at a time, one of each side, whose servers work side by side
In      a `ComparedTable`, a condition
Out     rows counted, `RowDifference`s
Holds   where both servers print values alike they sum up the part; only what differs is read: first by
        buckets, then the rows of the buckets that differ. Otherwise rows are read and compared by meaning.
        No more than about `ROWS_AT_ONCE` rows are in memory, however large the part is
Tests   tests/drainer/verify/test_verifying.py
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from typing import Final

from drainer.chunks.chunk import Chunk
from drainer.verify import checksum
from drainer.verify.checksum import Sum
from drainer.verify.compared_table import DOWNSTREAM, UPSTREAM, ComparedTable
from drainer.verify.result import LISTED_MAX, Kind, RowDifference
from drainer.verify.row_differences import Printed, RowComparison
from drainer.verify.sides import Sides

ROWS_AT_ONCE: Final = 40_000
_FEW: Final = 2_000
_BUCKET_ROWS: Final = 200
_Group = tuple[tuple[int, ...], int]
"""Buckets of so many; ((), 1): every row."""


@dataclass(frozen=True, slots=True)
class Part:
    """What was found in a part of a table. `differences` may be the first ones only, the counts are all."""

    rows: int
    downstream_rows: int
    differences: tuple[RowDifference, ...] = ()
    missing: int = 0
    extra: int = 0
    changed: int = 0

    @property
    def is_equal(self) -> bool:
        return not (self.missing or self.extra or self.changed)

    def listed(self) -> Part:
        """With as many differences as a result lists."""
        return replace(self, differences=self.differences[:LISTED_MAX])


class ChunkComparison:
    """Parts of one table at one moment. Raises `SessionError` and what the moment's sessions raise.

    `upstream_rows` replaces the reading of rows upstream: of a table whose rows are others downstream.
    """

    def __init__(
        self,
        table: ComparedTable,
        sides: Sides,
        executor: Executor,
        *,
        upstream_rows: Callable[[Chunk], Iterable[Printed]] | None = None,
    ) -> None:
        self._table = table
        self._sides = sides
        self._executor = executor
        self._upstream_rows = upstream_rows
        self._rows = RowComparison(table.pairs, table.key)

    def compare(self, chunk: Chunk) -> Part:
        """The rows of a chunk, on both sides."""
        where = chunk.condition()
        if self._upstream_rows is not None:
            return self._edited(chunk, self._upstream_rows)
        if not self._table.is_by_checksum:
            return self._by_values(where)
        here, there = self._sums(where)
        if here == there and here.is_whole:
            return Part(here.rows, there.rows)
        if not (here.is_whole and there.is_whole):
            return self._by_values(where)
        return self._drill(where, here.rows, there.rows)

    # -- sums -----------------------------------------------------------------------------------------

    def _sums(self, where: bytes) -> tuple[Sum, Sum]:
        answers = self._both(lambda side: checksum.sum_queries(self._table, side, where))
        here, there = (sum(map(checksum.read_sum, rows), Sum()) for rows in answers)
        return here, there

    def _drill(self, where: bytes, here: int, there: int) -> Part:
        """Rows of the buckets that differ."""
        rows = max(here, there)
        groups: list[_Group] = [((), 1)]
        if rows > _FEW:
            buckets = min(checksum.BUCKETS_MAX, rows // _BUCKET_ROWS)
            answers = self._both(lambda side: checksum.bucket_queries(self._table, side, where, buckets))
            ours, theirs = (_by_bucket(one) for one in answers)
            wrong = [one for one in sorted({*ours, *theirs}) if ours.get(one) != theirs.get(one)]
            counts = [max(side.get(one, Sum()).rows for side in (ours, theirs)) for one in wrong]
            groups = [(tuple(group), buckets) for group in _grouped(wrong, counts)]
        return replace(self._read(where, groups), rows=here, downstream_rows=there)

    # -- rows -----------------------------------------------------------------------------------------

    def _by_values(self, where: bytes) -> Part:
        if not checksum.has_buckets(self._table):
            return self._read(where, [((), 1)])
        answers = self._both(lambda side: checksum.count_queries(self._table, side, where))
        rows = max(sum(int(row[0] or 0) for row in side) for side in answers)
        pieces = min(checksum.BUCKETS_MAX, -(-rows // ROWS_AT_ONCE))
        if pieces < 2:
            return self._read(where, [((), 1)])
        return self._read(where, [((number,), pieces) for number in range(pieces)])

    def _edited(self, chunk: Chunk, upstream_rows: Callable[[Chunk], Iterable[Printed]]) -> Part:
        queries = checksum.row_queries(self._table, DOWNSTREAM, chunk.condition())
        theirs = self._executor.submit(self._ask, DOWNSTREAM, queries)
        try:
            ours = list(upstream_rows(chunk))
        finally:
            theirs.exception()  # its session is given back before anything else is done
        downstream = theirs.result()
        return part_of(len(ours), len(downstream), self._rows.differences(ours, downstream))

    def _read(self, where: bytes, groups: Iterable[_Group]) -> Part:
        """The rows of some groups; `rows` are those that were read."""
        found: list[RowDifference] = []
        here = there = 0
        for chosen, buckets in groups:
            upstream, downstream = self._row_sets(where, chosen, buckets)
            here, there = here + len(upstream), there + len(downstream)
            found += self._rows.differences(upstream, downstream)
        return part_of(here, there, found)

    def _row_sets(
        self, where: bytes, chosen: tuple[int, ...], buckets: int
    ) -> tuple[list[Printed], list[Printed]]:
        return self._both(lambda side: checksum.row_queries(self._table, side, where, chosen, buckets))

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


def part_of(rows: int, downstream_rows: int, found: Sequence[RowDifference]) -> Part:
    counts = {kind.value: _count(found, kind) for kind in Kind}
    return Part(rows, downstream_rows, tuple(found), **counts)


def _count(differences: Iterable[RowDifference], kind: Kind) -> int:
    return sum(one.rows for one in differences if one.kind is kind)


def _by_bucket(rows: Iterable[Printed]) -> dict[int, Sum]:
    found: dict[int, Sum] = {}
    for row in rows:
        number = int(row[0] or 0)
        found[number] = found.get(number, Sum()) + checksum.read_sum(row)
    return found


def _grouped(buckets: Sequence[int], counts: Sequence[int]) -> Iterator[list[int]]:
    """Buckets that are read together."""
    group: list[int] = []
    rows = 0
    for bucket, count in zip(buckets, counts, strict=True):
        if group and rows + count > ROWS_AT_ONCE:
            yield group
            group, rows = [], 0
        group.append(bucket)
        rows += count
    if group:
        yield group
