"""Recycle bin: tables that were dropped or truncated are kept for a time, so that a RECOVER finds their rows.

Out    steps: the table moves to a schema of the drainer's in place of being dropped, and back
Why    RECOVER TABLE and FLASHBACK bring back rows upstream that are not in the binlog. A downstream that has
       dropped them cannot have them again
Holds  a table that other things hang on (foreign keys, triggers, a view's or a sequence's name) is dropped
       as it was; whatever is refused ends in the plain statement
Never  keeps a table longer than asked for: `outdated`, by the time of the stream
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

from drainer.changes.ddl_effect import DdlEffect, EffectKind
from drainer.ddl.derive.compare import TABLE
from drainer.ddl.derive.derive import Change
from drainer.ddl.derive.render import name_of
from drainer.ddl.derive.values import Derived, Step, of, step
from tidb_binlog import tso
from tidb_binlog.late_dataclass import dataclass
from tidb_binlog.tso import Ts

Name = tuple[str, str]

_BRINGS_BACK: Final = frozenset({EffectKind.RECOVER, EffectKind.RECOVER_DATABASE})
_NAME: Final = re.compile(r"dropped_(\d+)_(\d+)_(\d+)")


def takes_away(effect: DdlEffect) -> bool:
    """Whether tables are gone or empty after a DDL."""
    return effect.takes_rows_away or effect.kind is EffectKind.DROP_DATABASE


def brings_back(effect: DdlEffect) -> bool:
    """Whether a DDL brings back what was dropped."""
    return effect.kind in _BRINGS_BACK


@dataclass(frozen=True, slots=True)
class KeepDropped:
    """Where dropped tables of one upstream are kept, and for how many seconds of the stream's time."""

    schema: str
    cluster_id: int
    seconds: float


def recycled_name(keep: KeepDropped, table_id: int, commit_ts: Ts) -> Name:
    return keep.schema, f"dropped_{keep.cluster_id}_{table_id}_{commit_ts}"


def kept(keep: KeepDropped, tables: Iterable[str]) -> dict[int, Name]:
    """Table id -> its newest place, for this upstream's tables among the names in the schema."""
    names: dict[int, Name] = {}
    matches = [match for name in tables if (match := _NAME.fullmatch(name)) is not None]
    for match in sorted(matches, key=lambda match: int(match[3])):
        if int(match[1]) == keep.cluster_id:
            names[int(match[2])] = keep.schema, match[0]
    return names


def outdated(keep: KeepDropped, tables: Iterable[str], commit_ts: Ts) -> list[Name]:
    """Tables of this upstream that were dropped too long before `commit_ts`."""
    limit_ms = tso.physical_ms(commit_ts) - keep.seconds * 1000
    return [
        (keep.schema, match[0])
        for name in tables
        if (match := _NAME.fullmatch(name)) is not None
        and int(match[1]) == keep.cluster_id
        and tso.physical_ms(int(match[3])) < limit_ms
    ]


def take_away(
    change: Change, keep: KeepDropped, commit_ts: Ts, movable: frozenset[Name], names_kept: Mapping[int, Name]
) -> Derived | None:
    """Steps in place of the statement; None where it is to run as it was, since nothing can be kept.

    `movable`: tables downstream that may be renamed. `names_kept`: what is kept already, by table id.
    """
    moves = {
        dropped.id: (change.at(dropped), recycled_name(keep, dropped.id, commit_ts))
        for dropped in change.before
        if change.at(dropped) in movable
        and dropped.id not in names_kept
        and _is_table(change, change.at(dropped))
    }
    if not moves:
        return None
    steps: list[Step] = []
    for dropped in change.before:
        if dropped.id not in moves:
            continue
        table, place = moves[dropped.id]
        if change.effect.kind is EffectKind.TRUNCATE:
            steps.append(_empty(keep, dropped.id, table, place))
        else:
            drop = step(f"DROP TABLE IF EXISTS {name_of(*table)}")
            steps.append(Step((f"RENAME TABLE {name_of(*table)} TO {name_of(*place)}",), instead=(drop,)))
    if change.effect.kind is EffectKind.DROP_DATABASE and change.database is not None:
        name = change.route(change.database[0], "")[0]
        if name == change.database[0]:
            steps.append(step(f"DROP DATABASE IF EXISTS {name_of(name)}"))
    return of(steps)


def _is_table(change: Change, name: Name) -> bool:
    present = change.present.get(name)
    return present is not None and present.kind == TABLE and not present.foreign_keys


def _empty(keep: KeepDropped, table_id: int, table: Name, place: Name) -> Step:
    """An empty table takes the place of the full one, in one statement."""
    new = name_of(keep.schema, f"new_{keep.cluster_id}_{table_id}")
    statements = (
        f"DROP TABLE IF EXISTS {new}",
        f"CREATE TABLE {new} LIKE {name_of(*table)}",
        f"RENAME TABLE {name_of(*table)} TO {name_of(*place)}, {new} TO {name_of(*table)}",
    )
    return Step(statements, instead=(step(f"TRUNCATE TABLE {name_of(*table)}"),))


def bring_back(change: Change, names_kept: Mapping[int, Name]) -> Derived | None:
    """Steps that put kept tables under their (new) names; None if none of them is kept.

    What is not kept is left to derivation, which sees what is there afterwards.
    """
    steps = [
        step(f"RENAME TABLE {name_of(*names_kept[table.id])} TO {name_of(*change.at(table))}")
        for table in change.after
        if table.id in names_kept and change.present_of(table) is None
    ]
    return of(steps) if steps else None
