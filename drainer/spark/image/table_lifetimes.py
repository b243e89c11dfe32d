"""Table lifetimes: from when on an archive's rows make up a table, and under which definition.

In     schema changes in order, the names of the tables that are wanted, whether there is an image before
Out    of each table that is there at the end, from when on its rows count; refusals
Holds  what makes rows without telling them (a table that moves, a partition that goes or comes) is refused
       for the life of the table in which it was: an image would be wrong, and nothing would show it
Tests  tests/spark/image/test_image.py
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from drainer.changes.ddl_effect import TABLE, DdlEffect, EffectKind, effect, sub_actions
from drainer.changes.statement_effect import statement_effect
from drainer.txn import Ddl
from tidb_binlog.errors import Rejected
from tidb_binlog.late_dataclass import dataclass, replace

_MOVES: Final = frozenset(
    {
        EffectKind.RENAME,
        EffectKind.EXCHANGE,
        EffectKind.RECOVER,
        EffectKind.RECOVER_DATABASE,
        EffectKind.REWIND,
    }
)
Name = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Life:
    """`since`: rows count after this commit_ts. `whole`: the table began in the archive, there. `altered`:
    when it last got other columns, 0: in no change that was looked at."""

    since: int
    whole: bool
    converted: bool = False
    altered: int = 0


def lives(
    names: Iterable[Name],
    changes: Iterable[Ddl],
    since: int,
    wants: Callable[[str, str], bool] = lambda schema, table: True,
) -> dict[Name, Life]:
    """Tables that are there at the end. `since`: of the image before, 0 for none. `wants`: also a table that
    moved and has no row since. Raises `Rejected`."""
    by_name: dict[Name, Life | Rejected | None] = {name: Life(since, whole=False) for name in names}
    for ddl in changes:
        if ddl.commit_ts <= since:
            continue
        for _, moved in _effect(ddl).renamed:
            if wants(*moved):
                by_name.setdefault(moved, None)
        for name in by_name:
            if name in ddl.tables:
                by_name[name] = _after(by_name[name], ddl, name)
            elif (name[0], "") in ddl.tables and _effect(ddl).kind is EffectKind.DROP_DATABASE:
                by_name[name] = None
    for life in by_name.values():
        if isinstance(life, Rejected):
            raise life
    return {name: life for name, life in by_name.items() if isinstance(life, Life)}


def _effect(ddl: Ddl) -> DdlEffect:
    """By its text, which says whether a column's type changes; by its job where there is no text."""
    return statement_effect(ddl.query, ddl.schema, ddl.action) or effect(ddl.action, sub_actions(ddl.job))


def _after(life: Life | Rejected | None, ddl: Ddl, name: Name) -> Life | Rejected | None:
    """A refusal holds until the table begins anew."""
    done = _effect(ddl)
    if done.object == TABLE and done.kind in (EffectKind.CREATE, EffectKind.TRUNCATE):
        is_same = done.kind is EffectKind.TRUNCATE
        altered = life.altered if is_same and isinstance(life, Life) else ddl.commit_ts
        return Life(ddl.commit_ts, whole=True, altered=altered)
    if done.object == TABLE and done.kind is EffectKind.DROP:
        return None
    if done.kind in _MOVES or done.empties_partitions or done.drops_partitions:
        return Rejected(
            f"the rows of {'.'.join(name)} cannot be known after commit_ts {ddl.commit_ts}: {ddl.query}",
            hint="take an image of the database after it as the base, or leave the table out with --tables",
        )
    if isinstance(life, Life) and done.changes_columns:
        return replace(life, converted=life.converted or done.modifies_columns, altered=ddl.commit_ts)
    return life
