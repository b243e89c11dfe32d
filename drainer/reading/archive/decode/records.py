"""Records: what readers of segments give, whatever wrote the segment.

Out    values: changes of a transaction, or a piece of them, put together and cut by the selection
Tests  tests/drainer/reading/archive/decode/test_reading.py

A row is known by its images: an *image* is one complete row as TiDB writes it into a DELETE, (column id,
datum) pairs (`tidb_binlog.rowcodec.layout`). Both halves of an UPDATE have that form already, so one compiled
plan per table version reads every image, whichever change it came with.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple, TypeAlias

from drainer.reading.archive.files.selection import Selection
from drainer.txn import Ddl, TableVersion
from tidb_binlog.late_dataclass import dataclass
from tidb_binlog.tso import Ts

Row: TypeAlias = tuple[TableVersion, int, bytes | None, bytes | None]
"""Table, kind (`txn.INSERT`, `UPDATE`, `DELETE`), image before, image after. A tuple: there is one a row."""


@dataclass(slots=True)  # not frozen: there is one for every few rows, freezing triples its cost
class Changes:
    """Rows of one transaction, or a piece of a large one, in the order in which they were executed.

    `file` and `pos` say where the record begins. `first_seq`: the place of `rows[0]` among all rows of the
    transaction, so (commit_ts, seq) orders all changes of a cluster. `start_ts` is 0 where the source does
    not have it. `last` is False on all pieces but the last one.
    """

    commit_ts: Ts
    start_ts: Ts
    file: str
    pos: int
    first_seq: int
    rows: list[Row]
    last: bool = True


@dataclass(frozen=True, slots=True)
class SchemaChange:
    """A DDL and where its record begins. `part` counts records with one commit_ts from 0; `text` is what a
    file archive has of it."""

    ddl: Ddl
    file: str
    pos: int
    part: int = 0
    text: bytes = b""


class Piece(NamedTuple):
    """Rows of a transaction in a file archive, as they stand there. `begin`: of the events in the payload."""

    commit_ts: Ts
    pos: int
    payload: bytes
    begin: int


Record: TypeAlias = Changes | SchemaChange
RowRun: TypeAlias = tuple[int, list[Row]]
"""Place of the first row among all rows of the transaction, rows."""


def changes(
    runs: Iterable[RowRun], selection: Selection, begin: Changes, *, last: bool = True
) -> Iterator[Changes]:
    """A piece of a transaction without what is not selected. `begin` says of which one; `last`: no piece
    follows."""
    kept = list(_kept(_joined(runs), selection))
    for number, (first_seq, rows) in enumerate(kept, 1):
        yield Changes(
            begin.commit_ts,
            begin.start_ts,
            begin.file,
            begin.pos,
            first_seq,
            rows,
            last and number == len(kept),
        )


def _joined(runs: Iterable[RowRun]) -> Iterator[RowRun]:
    """Runs that follow each other without a gap are one."""
    first, rows = 0, list[Row]()
    for seq, more in runs:
        if rows and seq == first + len(rows):
            rows += more
            continue
        if rows:
            yield first, rows
        first, rows = seq, more
    if rows:
        yield first, rows


def _kept(runs: Iterable[RowRun], selection: Selection) -> Iterator[RowRun]:
    if selection.takes_all_rows:
        yield from runs
        return
    for first, rows in runs:
        run: list[Row] = []
        for seq, row in enumerate(rows, first):
            if selection.wants_op(row[1]) and selection.wants_table(*row[0].downstream):
                run.append(row)
            elif run:
                yield seq - len(run), run
                run = []
        if run:
            yield first + len(rows) - len(run), run
