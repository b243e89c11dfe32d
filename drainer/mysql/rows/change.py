"""Change: one row change on its way to a lane, and what a lane needs to know of its table. Values only.

A change is a plain tuple, because there is one for every row: a class of its own costs 80 ns to make, half of
what cutting a row into its lane costs. Whoever reads it unpacks it, `table, op, key, row, split = change`, or
asks for a field by its name, `change[OP]`:

    table  the target whose row it is
    op     what the row event does to the key, one of the codes below
    key    identity bytes of the row that the change puts or removes, b"" in a table without a key
    row    the event's row, still encoded
    split  offset of the new image inside an UPDATE row, 0 in others

    op            of the event            was the row there?   is it there then?   image before, after
    PUT_INSERT    INSERT                  no                   yes                 -,      insert
    PUT_MOVED     UPDATE to this key      no                   yes                 -,      new
    PUT_UPDATE    UPDATE in its place     yes                  yes                 old,    new
    REMOVE        DELETE                  yes                  no                  delete, -
    REMOVE_OLD    UPDATE away from it     yes                  no                  old,    -

and of tables without a key, where it is of any one row equal to the image:

    APPEND        INSERT                  no                   yes                 -,      insert
    REPLACE_ONE   UPDATE                  yes                  yes                 old,    new
    DROP_ONE      DELETE                  yes                  no                  delete, -

Tests  tests/drainer/mysql/rows/test_row_fold.py, tests/drainer/mysql/rows/test_statement.py
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Final, TypeAlias

from drainer.mysql.literal.collation import Collation
from drainer.mysql.literal.plan import SqlPlan
from drainer.mysql.rows.causality import Spread
from drainer.txn import TableVersion
from tidb_binlog.late_dataclass import dataclass
from tidb_binlog.tso import Ts

TABLE: Final = 0
OP: Final = 1
KEY: Final = 2
ROW: Final = 3
SPLIT: Final = 4

# The codes are stored by Spark jobs as well (`drainer.spark.effects.operations`).
PUT_INSERT: Final = 0
PUT_MOVED: Final = 1
PUT_UPDATE: Final = 2
REMOVE: Final = 3
REMOVE_OLD: Final = 4
APPEND: Final = 5
REPLACE_ONE: Final = 6
DROP_ONE: Final = 7

ARRIVALS: Final = frozenset({PUT_INSERT, PUT_MOVED})
"""The row was not there before."""
PUTS: Final = frozenset({*ARRIVALS, PUT_UPDATE})
"""The row is there afterwards."""

COMPLETE: Final = -1


class Form(Enum):
    """How the rows of a table are written."""

    REPLACE = auto()  # REPLACE: nothing but the row key can collide, and nothing is lost with the old row
    UPSERT = auto()  # INSERT ... ON DUPLICATE KEY UPDATE: the same, and what upstream does not know stays
    REWRITE = auto()  # delete first, then INSERT: further keys may collide; a collision is an error
    KEYLESS = auto()  # one row equal to the image


@dataclass(frozen=True, slots=True, eq=False)
class TableTarget:
    """A table version as the lanes see it. Identity is the key of every map over tables.

    `fold_id`: tables with the same one are one table downstream. `gentle`: a form of REWRITE that leaves
    rows in place whose unique values did not change, because something downstream would go with the row; of
    KEYLESS, one that updates a row. `repeats`: rows may come again: an engine without transactions may keep a
    part of a batch, lanes may have applied a part of what waits.
    `row_key`: what the key of a row is called downstream; "" if it is none, or merges keys of the upstream.
    `fillers`: columns that only the downstream has, and what a born row gets there. `collations`: by which
    rows are spread, one a column of the key, None for a binary one; only where spread is BY_COLLATED_KEY.
    """

    version: TableVersion
    sql: SqlPlan
    spread: Spread
    lane: int  # where the table is pinned; meaningless unless spread is BY_TABLE
    name: bytes  # qualified and quoted
    form: Form
    fold_id: int
    keyed: bool = True
    gentle: bool = False
    row_key: str = ""
    fillers: tuple[tuple[str, bytes], ...] = ()
    repeats: bool = False
    collations: tuple[Collation | None, ...] = ()

    @property
    def label(self) -> str:
        """As it is called downstream."""
        return ".".join(self.version.downstream)


Change: TypeAlias = tuple[TableTarget, int, bytes, bytes, int]


def image_after(change: Change) -> str:
    """Name of the image that it leaves. Only an UPDATE row has a second half, never at its beginning."""
    return "new" if change[SPLIT] else "insert"


@dataclass(frozen=True, slots=True)
class Position:
    """Up to where a lane has applied: all of `commit_ts`, or its first `rows` row events."""

    commit_ts: Ts
    rows: int = COMPLETE

    @property
    def complete_ts(self) -> Ts:
        """Everything at or below it is applied."""
        return self.commit_ts if self.rows == COMPLETE else self.commit_ts - 1

    def order_key(self) -> tuple[int, int]:
        """Positions in the order of the stream: a complete transaction comes after any part of it."""
        return (self.commit_ts, self.rows if self.rows != COMPLETE else 1 << 62)

    def covers(self, commit_ts: Ts, ordinal: int) -> bool:
        """Whether row event `ordinal` of the transaction was applied before."""
        if commit_ts != self.commit_ts:
            return commit_ts < self.commit_ts
        return self.rows == COMPLETE or ordinal < self.rows


@dataclass(frozen=True, slots=True)
class Chunk:
    """Consecutive changes of one lane. Chunks end where a transaction ends, unless it is too large."""

    sequence: int  # of the lane, from 1, without a gap
    changes: list[Change]  # never empty
    first_ts: Ts  # at or below the commit_ts of every change
    position: Position  # after the last change
    size_bytes: int  # of the encoded rows
    cut: bool = False  # holds a part of a transaction whose other parts are in other chunks of the lane
