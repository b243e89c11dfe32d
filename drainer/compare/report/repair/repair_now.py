"""Repair now: what a comparison found is put right while the Drainer runs.

Out     how many rows were mended, how many had become right by themselves, and what was left
Holds   nothing of the comparison is written: in each batch the rows are read again on both sides, at one T,
        and what differs then is mended in a transaction that no Drainer can overtake. So a batch that is
        lost is made again, and a second run finds nothing to do
Never   mends a row without a key where both servers do not print its values alike, a table whose rows are
        others than upstream's by row rules, or one that waits in quarantine
        Says that a row is mended before it was read again
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Final

from drainer.compare.report.repair.fenced_moment import FencedMoment
from drainer.compare.report.repair.mending import exact, is_exactly, mending
from drainer.compare.report.shown import name_text
from drainer.compare.verify.checksum import row_queries
from drainer.compare.verify.compared_table import DOWNSTREAM, UPSTREAM, ComparedTable
from drainer.compare.verify.result import RowDifference, State, TableResult, Values
from drainer.compare.verify.row_differences import RowComparison
from drainer.mysql.connection import Connection
from drainer.mysql.errors import DUPLICATE, StatementRefused, safe_text
from drainer.mysql.rows.dialect import Dialect
from drainer.mysql.session_mode import DEFAULT
from drainer.points.snapshot.downstream import persistently
from drainer.points.snapshot.drainer_hold import is_waiting
from tidb_binlog.errors import Rejected
from tidb_binlog.late_dataclass import dataclass, field, replace

BATCH_ROWS: Final = 200
LAST_BATCH_ROWS: Final = 5_000
ROWS_MAX: Final = 100_000
BYTES_MAX: Final = 64 << 20
"""Of one table, of what finds its rows again."""
_ALL_S: Final = 120.0
_BY_VALUE: Final = "it has no key, and its values are not printed alike on both sides: use -repair FILE"
_EDITED: Final = "row rules make its rows, which are not read upstream as they are: use -repair FILE"
_TOO_MANY: Final = (
    f"more than {ROWS_MAX:,} rows, or too large ones: -repair FILE has no limit; for most of a table, load it"
    " again: binlogctl load -replace"
)
_WAITS: Final = "its rows wait for a decision: `binlogctl ddl list`"

OpenMoment = Callable[[], AbstractAsyncContextManager[FencedMoment]]


@dataclass(slots=True)
class ToMend:
    """Rows of one table that differ, as far as they are needed to find them again: keys, or whole rows where
    there is none. `too_many`: they are not kept."""

    rows: list[RowDifference] = field(default_factory=list)
    too_many: bool = False
    _size: int = 0

    def add(self, difference: RowDifference) -> None:
        if difference.key:
            difference = replace(difference, upstream=None, downstream=None)
        self._size += difference.size_bytes
        if len(self.rows) >= ROWS_MAX or self._size > BYTES_MAX:
            self.too_many = True
            self.rows.clear()
        if not self.too_many:
            self.rows.append(difference)


@dataclass(slots=True)
class Mended:
    """`settled`: rows that were right when they were looked at again. `left`: what could not be mended."""

    rows: int = 0
    settled: int = 0
    left: list[str] = field(default_factory=list)


async def repair_now(tables: Sequence[tuple[ComparedTable, ToMend]], open_moment: OpenMoment) -> Mended:
    """Raises `Unavailable`, `Rejected`, `DownstreamError`."""
    result = Mended()
    for table, to_mend in tables:
        if why := _refused(table, to_mend):
            result.left.append(f"{name_text(table.name)}: {why}")
            continue
        async for part in _Repair(table, to_mend, open_moment).run():
            result.rows += part.rows
            result.settled += part.settled
            result.left += [f"{name_text(table.name)}: {line}" for line in part.left]
    return result


def _refused(table: ComparedTable, to_mend: ToMend) -> str:
    if to_mend.too_many:
        return _TOO_MANY
    if table.is_edited:
        return _EDITED
    return "" if table.key or table.is_by_checksum else _BY_VALUE


class _Clash(Exception):
    """A row that differs, too, has the value of a unique key."""


class _Repair:
    """Of one table."""

    def __init__(self, table: ComparedTable, to_mend: ToMend, open_moment: OpenMoment) -> None:
        self._table = table
        self._to_mend = to_mend
        self._open_moment = open_moment
        self._comparison = RowComparison(table.pairs, table.key)
        self._dialects = (table.upstream[0].dialect, table.downstream.dialect)
        self._result = TableResult(
            table.upstream_names,
            table.name,
            State.DIFFERS,
            columns=table.columns,
            other_columns=table.only_downstream,
        )

    async def run(self) -> AsyncIterator[Mended]:
        clashed: list[RowDifference] = []
        for batch in _batches(self._to_mend.rows, BATCH_ROWS):
            try:
                yield await self._persistently(batch)
            except _Clash:
                clashed += batch
        # Rows that exchanged values are right together only.
        for batch in _batches(clashed, LAST_BATCH_ROWS):
            try:
                yield await self._persistently(batch)
            except _Clash as error:
                yield Mended(left=[f"{len(batch):,} rows: {error}"])

    async def _persistently(self, batch: Sequence[RowDifference]) -> Mended:
        async def once() -> Mended:
            async with self._open_moment() as moment:
                if is_waiting(moment.waiting, self._table.upstream_names):
                    return Mended(left=[_WAITS])
                return await asyncio.to_thread(self._mend, moment, batch)

        return await persistently(once, _ALL_S, "the downstream could not be repaired")

    def _mend(self, moment: FencedMoment, batch: Sequence[RowDifference]) -> Mended:
        with moment.upstream.session() as session:
            upstream = list(self._rows(session, UPSTREAM, batch))
        connection = moment.connection
        differences = self._comparison.differences(upstream, self._rows(connection, DOWNSTREAM, batch))
        result = Mended(settled=max(0, len(batch) - len(differences)))
        dialect = self._dialects[DOWNSTREAM]
        mendings = [mending(self._result, difference, dialect) for difference in differences]
        result.left += sorted({mended.refused for mended in mendings if mended.refused})
        try:
            for mended in mendings:
                for statement in mended.removals:  # of which a strict TiDB does not find each row
                    _run(connection, statement, is_lax=dialect is Dialect.TIDB)
            for mended in mendings:
                for statement in mended.writes:
                    _run(connection, statement, is_lax=mended.is_lax)
        except StatementRefused as error:
            if error.number == DUPLICATE:
                raise _Clash(safe_text(error)) from None
            return Mended(left=[f"{len(differences):,} rows: downstream says {safe_text(error)}"])
        result.rows = sum(bool(mended.removals or mended.writes) for mended in mendings)
        again = self._comparison.differences(upstream, self._rows(connection, DOWNSTREAM, batch))
        connection.commit()
        if (still := len(again) - sum(bool(mended.refused) for mended in mendings)) > 0:
            result.rows = max(0, result.rows - still)
            result.left.append(f"{still:,} rows: they differ as well after they were written")
        return result

    def _rows(
        self, connection: Connection, side: int, batch: Sequence[RowDifference]
    ) -> Iterator[tuple[bytes | None, ...]]:
        where = b" OR ".join(sorted({condition for row in batch for condition in self._found_by(row, side)}))
        for query in row_queries(self._table, side, where):
            yield from connection.printed(query)

    def _found_by(self, row: RowDifference, side: int) -> Iterator[bytes]:
        table = self._table
        if table.key:
            columns = self._result.key_columns
            names = [table.pairs[place].names[side] for place in table.key]
            terms = zip(names, columns, row.key, strict=True)
            same = (b"%b=%b" % (name, exact(column.type, value)) for name, column, value in terms)
            yield b"(%b)" % b" AND ".join(same)
            return
        for values in filter(None, (row.upstream, row.downstream)):
            yield b"(%b)" % b" AND ".join(self._exactly(values, side))

    def _exactly(self, values: Values, side: int) -> Iterator[bytes]:
        """As both servers print the values alike, both find them by the same literals."""
        columns = self._result.row_columns
        for pair, column, value in zip(self._table.pairs, columns, values, strict=True):
            yield is_exactly(pair.names[side], column.type, value, self._dialects[side])


def _run(connection: Connection, statement: bytes, *, is_lax: bool) -> None:
    if not (connection.run_lax(statement, DEFAULT) if is_lax else connection.run(statement)):
        raise Rejected(
            "a row is not found by the values that were read of it",
            hint="use -repair FILE and look at its statements",
        )


def _batches(rows: Sequence[RowDifference], size: int) -> Iterator[Sequence[RowDifference]]:
    for start in range(0, len(rows), size):
        yield rows[start : start + size]
