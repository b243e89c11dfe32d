"""Grid: how far a comparison is, chunk by chunk, for whoever looks at it.

Out    `ChunkGrid`s of bounded size: TABLES_MAX tables of CELLS_MAX cells
Tests  tests/drainer/compare/verify/test_grid.py
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from drainer.compare.verify.table_work import TableWork
from tidb_binlog.status.drainer import ChunkGrid

CELLS_MAX: Final = 200
TABLES_MAX: Final = 20
EQUAL, LEFT, DIFFERS = "=", ".", "!"
_WORST: Final = (DIFFERS, LEFT, EQUAL)


def grids(works: Iterable[TableWork]) -> list[ChunkGrid]:
    """Tables of which something is known: with a difference, under way, done."""
    begun = [work for work in works if work.chunks and not work.is_gone]
    begun.sort(key=lambda work: (not work.wrong, work.is_settled))
    return [_grid(work) for work in begun[:TABLES_MAX]]


def _grid(work: TableWork) -> ChunkGrid:
    states = [
        DIFFERS if chunk.number in work.wrong else EQUAL if chunk.number in work.equal else LEFT
        for chunk in work.chunks
    ]
    each = -(-len(states) // CELLS_MAX)
    groups = (states[at : at + each] for at in range(0, len(states), each))
    return ChunkGrid(
        table=work.request.label,
        cells="".join(min(group, key=_WORST.index) for group in groups),
        chunks=len(states),
        is_cut=work.is_cut,
        rows=work.rows,
        rows_expected=work.request.rows_expected,
    )
