"""Chain rule: the image before a change is the image that the previous change of that row left.

Out    findings: lost, doubled, altered changes, wherever a row shows them; how many links were checked
Holds  a row's first step is a beginning, except in a table whose creation the archive has: there a row that
       is changed or deleted was inserted before. Images under two definitions are compared in the columns
       that both know (`projection`). Definitions that are guessed do not tell which columns are computed,
       of which a Go drainer writes now the value, now NULL, nor which were renamed: less is claimed there

A step takes a row from one state to another: an INSERT begins it, a DELETE ends it, an UPDATE that moves its
key does both, each to another row.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from drainer.changes.canonical import differences, show
from drainer.spark.audit.checks.findings import CHAINS, Finding
from drainer.spark.audit.rows.projection import Projections
from drainer.txn import TableVersion
from tidb_binlog.late_dataclass import dataclass
from tidb_binlog.rowcodec.row_error import RowError
from tidb_binlog.tso import Ts

LOST: Final = "row was not there"
KEPT: Final = "row was there"
BROKEN: Final = "broken chain"
UNREADABLE: Final = "unreadable row"
_SHOWN: Final = 4


@dataclass(frozen=True, slots=True)
class Link:
    """A step of a row and the one before it. `before` is what the step found, `left` what the previous step
    left: each None for no row. `is_left_known`: there is a previous step, or the row cannot have
    been there."""

    is_left_known: bool
    before: bytes | None
    definition: int
    left: bytes | None
    left_definition: int


def judge(
    link: Link, version_of: Callable[[int], TableVersion], projections: Projections
) -> tuple[str, str, str, str] | None:
    """(kind, text, expected, actual) of what is wrong with a link, None for nothing."""
    if not link.is_left_known:
        return None
    if link.before is None:
        if link.left is None:
            return None
        return KEPT, "an insert of a row that an earlier change left in place", "no row", "a row"
    if link.left is None:
        return LOST, "an update or delete of a row that did not exist at that time", "no row", "a row"
    if link.definition == link.left_definition and link.before == link.left:
        return None
    return _compare(link, version_of, projections)


def _compare(
    link: Link, version_of: Callable[[int], TableVersion], projections: Projections
) -> tuple[str, str, str, str] | None:
    assert link.before is not None
    assert link.left is not None
    now, then = version_of(link.definition), version_of(link.left_definition)
    is_guessed = not (now.id and then.id)
    if is_guessed and now is not then:
        return None
    reads, old = projections.of(now, now), projections.of(then, now)
    if reads is None or old is None:
        return None
    try:
        before, left = reads.values(link.before), old.values(link.left)
    except RowError as error:
        return UNREADABLE, f"an image cannot be read under the table's definition: {error.message}", "", ""
    names = [column.name for column in reads.columns]
    # What an ALTER put into a new column is its business, not that of the change before it.
    unknown = old.unknown | old.newer
    if is_guessed:
        unknown |= {place for place, pair in enumerate(zip(left, before, strict=True)) if None in pair}
    differing = differences(names, left, before, unknown)
    if not differing:
        return None
    listed = ", ".join(difference.column for difference in differing[:_SHOWN])
    more = f" and {len(differing) - _SHOWN} more" if len(differing) > _SHOWN else ""
    return (
        BROKEN,
        f"the image before the change is not what the previous change of the row left: {listed}{more}",
        "; ".join(f"{difference.column} = {show(difference.expected)}" for difference in differing[:_SHOWN]),
        "; ".join(f"{difference.column} = {show(difference.actual)}" for difference in differing[:_SHOWN]),
    )


def finding(
    wrong: tuple[str, str, str, str], table: str, key: str, commit_ts: Ts, file: str, pos: int
) -> Finding:
    kind, text, expected, actual = wrong
    return Finding(CHAINS, kind, table, text, key, commit_ts, file, pos, expected, actual)
