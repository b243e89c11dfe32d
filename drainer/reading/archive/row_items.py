"""Row items: the records of an archive as transactions and DDL that programs see.

In     `Changes` and `SchemaChange`, in order
Out    `Transaction` and `Ddl` (`drainer.changes.model`), the same as a live stream has them
Holds  a transaction of more than `LARGE_ROWS` rows is read piece by piece while its rows are iterated: once,
       and before the next item is asked for. What of it is not iterated is passed over
Never  gives a row that cannot be right: `Corruption` names the file and the offset
Tests  tests/drainer/reading/archive/test_archive.py
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from drainer.changes.model import Ddl, Row, Transaction
from drainer.changes.row_reader import PLANS_MAX, RowPlan, RowReader
from drainer.reading.archive.decode import records
from drainer.reading.archive.decode.records import Changes, Record, SchemaChange
from drainer.reading.large_rows import LargeRows
from drainer.txn import DELETE, INSERT, TableVersion
from tidb_binlog.errors import Corruption
from tidb_binlog.rowcodec.row_error import RowError

LARGE_ROWS: Final = 10_000
Item = Transaction | Ddl
PathOf = Callable[[str], str]


class ImageRows:
    """Rows of any table version from complete images, which have the form of a DELETE."""

    def __init__(self) -> None:
        self._plans: dict[TableVersion, RowPlan] = {}

    def rows(self, images: Iterable[records.Row]) -> Iterator[Row]:
        """Raises `RowError`."""
        plans = self._plans
        for version, kind, before, after in images:
            plan = plans.get(version) or self._made(version)
            read = plan.read[DELETE]
            if kind == INSERT:
                assert after is not None
                yield Row(plan.table, "insert", None, read(after).before)
            elif kind == DELETE:
                assert before is not None
                yield read(before)
            else:
                assert before is not None
                assert after is not None
                yield Row(plan.table, "update", read(before).before, read(after).before)

    def _made(self, version: TableVersion) -> RowPlan:
        if len(self._plans) >= PLANS_MAX:
            self._plans.clear()
        plan = self._plans[version] = RowPlan(version)
        return plan


class RowItems:
    """`path_of` says how a file is called in messages."""

    def __init__(self, records: Iterable[Record], path_of: PathOf) -> None:
        self._records = iter(records)
        self._path_of = path_of
        self._images = ImageRows()
        self._schema = RowReader()
        self._waiting: Record | None = None

    def __iter__(self) -> Iterator[Item]:
        while (record := self._next()) is not None:
            if isinstance(record, SchemaChange):
                if not record.ddl.skip:
                    yield self._schema.ddl(record.ddl)
                continue
            yield from self._transaction(record)

    def _next(self) -> Record | None:
        record, self._waiting = self._waiting, None
        return next(self._records, None) if record is None else record

    def _transaction(self, first: Changes) -> Iterator[Transaction]:
        """Pieces of one transaction follow each other; the last one may have been left out by a filter."""
        pieces, count = [first], len(first.rows)
        while count <= LARGE_ROWS and (more := self._more(first)) is not None:
            pieces.append(more)
            count += len(more.rows)
        if count <= LARGE_ROWS:
            rows = [row for piece in pieces for row in self._rows(piece)]
            yield Transaction(first.commit_ts, first.start_ts, rows)
            return
        large = LargeRows(first.commit_ts, self._large(first, pieces))
        yield Transaction(first.commit_ts, first.start_ts, large, large=True)
        large.pass_over()
        while self._more(first) is not None:
            pass

    def _large(self, first: Changes, pieces: list[Changes]) -> Iterator[Row]:
        pieces.reverse()
        while pieces:
            yield from self._rows(pieces.pop())
        while (more := self._more(first)) is not None:
            yield from self._rows(more)

    def _more(self, first: Changes) -> Changes | None:
        """The next piece of the same transaction."""
        record = self._next()
        if isinstance(record, Changes) and record.commit_ts == first.commit_ts:
            return record
        self._waiting = record
        return None

    def _rows(self, piece: Changes) -> Iterator[Row]:
        try:
            yield from self._images.rows(piece.rows)
        except RowError as error:
            path = self._path_of(piece.file)
            raise Corruption(f"{path}: offset {piece.pos}: {error.message}", hint=error.hint) from None
