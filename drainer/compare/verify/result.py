"""Result: what a comparison of downstream and upstream found. Values only: `report` shows them.

    Verification          one run: both timestamps, and for each downstream table
      TableResult         equal, different or not comparable, and how that is known
        ComparedColumn    how a column was compared, or why it was not
        RowDifference     a row that is missing, one too many, or changed; at most `LISTED_MAX` a table, of
                          large ones fewer

Values of rows are SQL literals as the Drainer writes them downstream (`'it''s'`, `-1.50`, `x'00ff'`,
`NULL`), in the order of `TableResult.row_columns`: they are exact, NULL is no empty text, and a statement can
take them as they are. `TableResult` counts all differences; who needs them all, not only those that are
listed, is told of each as it is found (`OnDifference`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import StrEnum
from typing import Final

from tidb_binlog.late_dataclass import dataclass
from tidb_binlog.tso import Ts

LISTED_MAX: Final = 100  # of one table
LISTED_BYTES: Final = 4 << 20  # beyond, no more are added
Name = tuple[str, str]  # schema, table
Values = tuple[bytes, ...]


class State(StrEnum):
    """The worst state of its tables is that of a run, in this order."""

    EQUAL = "equal"
    NOT_COMPARABLE = "not comparable"
    DIFFERS = "differs"


class Kind(StrEnum):
    """What is wrong with a row, as the downstream has it."""

    MISSING = "missing"
    EXTRA = "extra"
    CHANGED = "changed"


class How(StrEnum):
    """By what the values of a column, or of a table, were compared."""

    CHECKSUM = "checksum"  # computed by both servers
    VALUES = "values"  # canonical values, row by row
    NOT_COMPARED = "not compared"


@dataclass(frozen=True, slots=True)
class ComparedColumn:
    """A column of the downstream table. `why`: of one that is not compared by checksum.

    `is_key`: it is one of those that identify a row. `is_generated`: the downstream computes it, so that no
    statement can write it. `is_unique`: a unique key downstream other than the row's own has it. `type`: as
    information_schema names it downstream (DATA_TYPE, in lower case); "json" also for MariaDB's JSON.
    """

    name: str
    how: How = How.CHECKSUM
    why: str = ""
    is_key: bool = False
    is_generated: bool = False
    is_unique: bool = False
    type: str = ""


@dataclass(frozen=True, slots=True)
class RowDifference:
    """One row. `upstream` is None for one that is extra, `downstream` for one that is missing.

    `key` are the values of the key columns; () without a key, and then `copies` says how many rows of these
    values the upstream has, and how many the downstream has. `columns`: those whose values differ.
    `commit_ts`: of the last transaction that an archive knows to have touched the row, 0 for unknown.
    """

    key: Values
    kind: Kind
    upstream: Values | None
    downstream: Values | None
    columns: tuple[str, ...] = ()
    copies: tuple[int, int] | None = None
    commit_ts: Ts = 0

    @property
    def rows(self) -> int:
        """How many rows are wrong."""
        return 1 if self.copies is None else abs(self.copies[0] - self.copies[1])

    @property
    def size_bytes(self) -> int:
        return sum(map(len, (*self.key, *(self.upstream or ()), *(self.downstream or ()))))


@dataclass(frozen=True, slots=True)
class TableResult:
    """One downstream table beside the upstream's one, or several, that are routed to it.

    `read_whole`: chunks whose rows were read, and not summed up by the servers. `computed`: changed rows that
    differ only in columns that the servers compute.

    `columns` are those of the downstream in its order, also those that were not compared: their values are
    in no row, and `row_columns` are the others. `rows` and `downstream_rows` are what was counted on both
    sides; `other_columns`: columns that only the downstream has.
    """

    upstream: tuple[Name, ...]
    downstream: Name
    state: State
    why: str = ""
    columns: tuple[ComparedColumn, ...] = ()
    how: How = How.CHECKSUM
    chunks: int = 0
    read_whole: int = 0
    rows: int = 0
    downstream_rows: int = 0
    missing: int = 0
    extra: int = 0
    changed: int = 0
    computed: int = 0
    differences: tuple[RowDifference, ...] = ()
    other_columns: tuple[str, ...] = ()
    seconds: float = 0.0

    @property
    def row_columns(self) -> tuple[ComparedColumn, ...]:
        """The columns that values of rows belong to, one by one."""
        return tuple(column for column in self.columns if column.how is not How.NOT_COMPARED)

    @property
    def key_columns(self) -> tuple[ComparedColumn, ...]:
        """Those that `RowDifference.key` has the values of."""
        return tuple(column for column in self.columns if column.is_key)

    @property
    def wrong(self) -> int:
        """Rows that differ."""
        return self.missing + self.extra + self.changed


OnDifference = Callable[
    [TableResult, RowDifference], None
]  # the table as it is known so far: names and columns


@dataclass(frozen=True, slots=True)
class Verification:
    """One run. Times are seconds of the wall clock; `ended_s` is 0 while it runs.

    `ts` is the upstream's moment, `downstream_ts` the downstream's: 0 where it has none of its own (MySQL and
    MariaDB, whose snapshot was opened while apply was held at `ts`). `held_ms`: how long it was held.
    `looked_again`: how often differences were read anew at a later moment before they were reported. `notes`:
    what was not, or only partly, compared beside the tables' own reasons.
    """

    upstream: str
    downstream: str
    ts: Ts
    downstream_ts: Ts
    began_s: float
    ended_s: float
    tables: tuple[TableResult, ...]
    held_ms: float = 0.0
    looked_again: int = 0
    notes: tuple[str, ...] = ()

    @property
    def state(self) -> State:
        """Equal only if every table is; a difference is said before what could not be compared."""
        return worst(table.state for table in self.tables)

    @property
    def rows(self) -> int:
        return sum(table.rows for table in self.tables)

    @property
    def chunks(self) -> int:
        return sum(table.chunks for table in self.tables)

    @property
    def read_whole(self) -> int:
        return sum(table.read_whole for table in self.tables)

    @property
    def wrong(self) -> int:
        return sum(table.wrong for table in self.tables)


def listed(differences: Iterable[RowDifference]) -> tuple[RowDifference, ...]:
    """The first ones, as many as a result has of a table."""
    size, kept = 0, list[RowDifference]()
    for difference in differences:
        if len(kept) == LISTED_MAX or size >= LISTED_BYTES:
            break
        kept.append(difference)
        size += difference.size_bytes
    return tuple(kept)


def worst(states: Iterable[State]) -> State:
    """The state of what has parts in these states; without any it is not comparable: silence is no proof."""
    order = list(State)
    return max(states, key=order.index, default=State.NOT_COMPARABLE)
