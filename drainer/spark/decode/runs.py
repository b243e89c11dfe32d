"""Runs: rows of a transaction with the place of the first one, put together and cut by what is selected."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeAlias

from drainer.spark.archive.selection import Selection
from drainer.spark.decode.records import Changes, Row

Run: TypeAlias = tuple[int, list[Row]]
"""Place of the first row among all rows of the transaction, rows."""


def changes(
    runs: Iterable[Run], selection: Selection, begin: Changes, *, last: bool = True
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


def _joined(runs: Iterable[Run]) -> Iterator[Run]:
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


def _kept(runs: Iterable[Run], selection: Selection) -> Iterator[Run]:
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
