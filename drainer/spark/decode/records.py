"""Records: what readers of segments give, whatever wrote the segment.

Values only. A row is known by its images: an *image* is one complete row as TiDB writes it into a DELETE,
(column id, datum) pairs (`common.rowcodec.layout`). Both halves of an UPDATE have that form already, so one
compiled plan per table version reads every image, whichever change it came with.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from drainer.txn import Ddl, TableVersion

Row: TypeAlias = tuple[TableVersion, int, bytes | None, bytes | None]
"""Table, kind (`txn.INSERT`, `UPDATE`, `DELETE`), image before, image after. A tuple: there is one a row."""


@dataclass(slots=True)  # not frozen: there is one for every few rows, freezing triples its cost
class Changes:
    """Rows of one transaction, or a piece of a large one, in the order in which they were executed.

    `file` and `pos` say where the record begins. `first_seq`: the place of `rows[0]` among all rows of the
    transaction, so (commit_ts, seq) orders all changes of a cluster. `start_ts` is 0 where the source does
    not have it. `last` is False on all pieces but the last one.
    """

    commit_ts: int
    start_ts: int
    file: str
    pos: int
    first_seq: int
    rows: list[Row]
    last: bool = True


@dataclass(frozen=True, slots=True)
class SchemaChange:
    """A DDL and where its record begins. `part` counts records with one commit_ts from 0."""

    ddl: Ddl
    file: str
    pos: int
    part: int = 0


class Piece(NamedTuple):
    """Rows of a transaction in a file archive, as they stand there. `begin`: of the events in the payload."""

    commit_ts: int
    pos: int
    payload: bytes
    begin: int


Record: TypeAlias = Changes | SchemaChange
