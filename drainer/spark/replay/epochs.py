"""Epochs of a replay: ranges of rows between schema changes, and those changes, in order.

Out    steps, each numbered by its place: rows of a range of commit_ts, or one schema change
Holds  every commit_ts of the range is in one step of rows or is the one of a schema change; a schema change
       that is there twice, because a drainer started again, is one step. The numbers depend on nothing else
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, TypeAlias

from drainer.reading.archive.decode.records import SchemaChange
from drainer.reading.archive.files.selection import Selection
from drainer.txn import Ddl
from tidb_binlog.late_dataclass import dataclass

LAST_TS: Final = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Rows:
    """Transactions with `start` <= commit_ts <= `stop`."""

    start: int
    stop: int


Step: TypeAlias = Rows | Ddl


def steps(start: int, stop: int, changes: Iterable[SchemaChange]) -> list[Step]:
    """`stop` 0: no end."""
    stop = stop or LAST_TS
    by_order = {(change.ddl.commit_ts, change.part): change.ddl for change in changes}
    in_order: list[Step] = []
    begin = start
    for commit_ts, part in sorted(by_order):
        if not start <= commit_ts <= stop:
            continue
        if begin < commit_ts:
            in_order.append(Rows(begin, commit_ts - 1))
        in_order.append(by_order[commit_ts, part])
        begin = commit_ts + 1
    if begin <= stop:
        in_order.append(Rows(begin, stop))
    return in_order


def is_wanted(ddl: Ddl, selection: Selection) -> bool:
    """Whether a schema change is to run: it is about a table that is replayed, or it is not known about what.

    A database is made, dropped or altered only where all of its tables are replayed.
    """
    return not ddl.skip and selection.wants_ddl(ddl.tables)
