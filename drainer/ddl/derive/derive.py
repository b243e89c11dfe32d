"""Derive: statements that reach the columns and keys the upstream has after a DDL.

In     what a job changed (tracked definitions before and after), what the downstream has now, its dialect,
       where tables are routed to, and whether the steps have run, or begun, already
Out    steps, and what will be missing, one line each; nothing where everything is as it should be; what is
       not there afterwards
Holds  steps bring whatever is there to what is wanted: after a crash between two of them they are derived
       again from what is there then
Never  edits a statement's text, drops what the DDL did not drop, or pretends: what changed rows upstream
       without being in the binlog is in `missing`, and what cannot be reached at all raises `NotDerivable`
Tests  tests/drainer/changes/test_ddl_effect.py
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from drainer.changes.ddl_effect import DdlEffect, EffectKind, effect
from drainer.ddl.derive import definition
from drainer.ddl.derive.alter_table import alter, meaning
from drainer.ddl.derive.compare import SEQUENCE, TABLE, VIEW, Present, differences
from drainer.ddl.derive.create_table import alter_sequence, create, only_upstream
from drainer.ddl.derive.definition import Definition
from drainer.ddl.derive.partition import alter_partitions, exchange
from drainer.ddl.derive.render import NotDerivable, Server, collated, name_of, partition_by
from drainer.ddl.derive.values import Alteration, Derived, Route, of, step
from drainer.txn import Tracked
from tidb_binlog.late_dataclass import dataclass, field

Name = tuple[str, str]

_KIND_WORDS: Final = {TABLE: "TABLE", VIEW: "VIEW", SEQUENCE: "SEQUENCE"}


def same_names(schema: str, table: str) -> Name:
    """The route of a drainer without routes."""
    return schema, table


@dataclass(frozen=True, slots=True)
class Change:
    """A DDL to be derived. `present` has every name that `names` gives; None: it is not there.

    `ran`: what was derived has run downstream, the last steps of it maybe not. `apart`: columns that it adds
    or drops besides changing others. `forced`: the next number of AUTO_INCREMENT may be a lower one.
    """

    action: int
    before: tuple[Tracked, ...] = ()
    after: tuple[Tracked, ...] = ()
    database: tuple[str, str, str] | None = None  # name, charset, collation
    sub_actions: tuple[int, ...] = ()
    present: Mapping[Name, Present | None] = field(default_factory=dict)
    server: Server = field(default_factory=Server)
    route: Route = same_names
    ran: bool = False
    apart: frozenset[str] = frozenset()
    forced: bool = False

    @property
    def effect(self) -> DdlEffect:
        return effect(self.action, self.sub_actions)

    def at(self, tracked: Tracked) -> Name:
        """Where the table is downstream."""
        return self.route(tracked.schema, tracked.name)

    def present_of(self, tracked: Tracked) -> Present | None:
        return self.present.get(self.at(tracked))


def names(change: Change) -> tuple[Name, ...]:
    """(schema, table) downstream of everything whose definition downstream is needed."""
    return tuple(dict.fromkeys(change.at(table) for table in (*change.before, *change.after)))


def database_of(job: dict[str, Any] | None) -> tuple[str, str, str] | None:
    """(name, charset, collation) of a job on a database."""
    document = ((job or {}).get("binlog") or {}).get("DBInfo")
    if not document:
        return None
    name = str((document.get("db_name") or {}).get("O") or "")
    return name, str(document.get("charset") or ""), str(document.get("collate") or "")


def derive(change: Change) -> Derived:
    """Raises `NotDerivable`, or `Corruption` for a definition that cannot be read."""
    return _HANDLERS[change.effect.kind](change)


def _alter_all(change: Change) -> Derived:
    if not change.after:
        if change.database is not None:
            return _alter_database(change)
        raise NotDerivable("the job does not say what it changed")
    return _together([_alter(change, table) for table in change.after])


def _together(parts: list[Derived]) -> Derived:
    whole = Derived()
    for part in parts:
        whole += part
    return whole


# Databases -----------------------------------------------------------------------------------------------


def _database(change: Change) -> tuple[str, str]:
    """Its name downstream, and the clause with its character set."""
    if change.database is None:
        raise NotDerivable("the job does not say which database it is about")
    name, charset, collate = change.database
    clause = ""
    if charset and collate:
        charset, collate = change.server.collation(charset, collate)
        clause = f" {collated(charset, collate)}"
    return change.route(name, "")[0], clause


def _create_database(change: Change) -> Derived:
    name, clause = _database(change)
    return of([step(f"CREATE DATABASE IF NOT EXISTS {name_of(name)}{clause}")])


def _alter_database(change: Change) -> Derived:
    name, clause = _database(change)
    return of([step(f"ALTER DATABASE {name_of(name)}{clause}")] if clause else [])


def _drop_database(change: Change) -> Derived:
    name, _ = _database(change)
    assert change.database is not None
    if name == change.database[0]:
        return of([step(f"DROP DATABASE IF EXISTS {name_of(name)}")])
    # Others may be routed there too, or remain: several statements took its place, and some may have run.
    return _drop(change)


def _recover_database(change: Change) -> Derived:
    created = _create_database(change)
    return created + _recover(change)


# Whole tables --------------------------------------------------------------------------------------------


def _create(change: Change) -> Derived:
    gone = {table.id: table for table in change.before if table.id not in {new.id for new in change.after}}
    parts = []
    for table in change.after:
        present, definition_after = change.present_of(table), definition.read(table.document)
        replaced = any(change.at(old) == change.at(table) for old in gone.values())
        if present is None or replaced or not definition_after.is_table:
            if not (present is not None and change.ran):
                parts.append(
                    create(definition_after, change.at(table), change.server, change.route, replace=replaced)
                )
        else:
            parts.append(
                _alter(change, table) + Derived(missing=tuple(only_upstream(definition_after, change.server)))
            )
    return _together(parts)


def _recover(change: Change) -> Derived:
    """The table again, without the rows it had: they are not in the binlog."""
    parts = [_create(change)]
    parts += [
        Derived(missing=(f"rows that table {table.schema}.{table.name} had when it was dropped",))
        for table in change.after
        if change.present_of(table) is None
    ]
    return _together(parts)


def _drop(change: Change) -> Derived:
    steps = []
    for table in change.before:
        present = change.present_of(table)
        if present is not None:
            steps.append(step(f"DROP {_KIND_WORDS[present.kind]} IF EXISTS {name_of(*change.at(table))}"))
    return of(steps)


def _truncate(change: Change) -> Derived:
    parts = []
    for table in change.after:
        if change.present_of(table) is None:
            parts.append(
                create(definition.read(table.document), change.at(table), change.server, change.route)
            )
        else:
            parts.append(of([step(f"TRUNCATE TABLE {name_of(*change.at(table))}")]))
    return _together(parts)


def _rename(change: Change) -> Derived:
    """One statement for all: servers rename several tables at once or none of them."""
    if change.ran:
        return Derived()
    new = {table.id: table for table in change.after}
    moves: dict[Name, Name] = {}
    for old in change.before:
        if old.id not in new:
            continue
        source, target = change.at(old), change.at(new[old.id])
        if source != target:
            moves[source] = target
    pairs = _pairs(change, moves)
    return of([step(f"RENAME TABLE {', '.join(pairs)}")] if pairs else [])


def _pairs(change: Change, moves: dict[Name, Name]) -> list[str]:
    """`a TO b` in an order in which every target is free; through a spare name where they go in a circle."""
    missing = [name for name in moves if change.present.get(name) is None]
    for source in missing:
        if change.present.get(moves[source]) is None:
            raise NotDerivable(f"table {'.'.join(source)} is not there")
        del moves[source]  # it has its new name already
    pairs: list[str] = []
    while moves:
        free = next((source for source, target in moves.items() if target not in moves), None)
        if free is None:
            source = next(iter(moves))
            spare = source[0], f"tidb_binlog_aside_{len(pairs)}"
            pairs.append(f"{name_of(*source)} TO {name_of(*spare)}")
            moves[spare] = moves.pop(source)
            continue
        pairs.append(f"{name_of(*free)} TO {name_of(*moves.pop(free))}")
    return pairs


# One table changed ---------------------------------------------------------------------------------------


def before_of(change: Change, after: Tracked) -> Tracked | None:
    """The definition that a table had before: by its id, else by its name."""
    same_id = (old for old in change.before if old.id == after.id)
    same_name = (old for old in change.before if (old.schema, old.name) == (after.schema, after.name))
    return next(same_id, None) or next(same_name, None)


def _alteration(change: Change, table: Tracked, present: Present) -> Alteration:
    before = before_of(change, table)
    return Alteration(
        before=definition.read(before.document) if before else None,
        after=definition.read(table.document),
        present=present,
        table=change.at(table),
        server=change.server,
        route=change.route,
        ran=change.ran,
        modified=change.effect.modifies_columns,
        apart=change.apart,
        rebased=change.effect.rebases_auto_id,
        forced=change.forced,
    )


def _alter(change: Change, table: Tracked) -> Derived:
    present = change.present_of(table)
    if present is None:
        raise NotDerivable(f"table {'.'.join(change.at(table))} is not there")
    alteration = _alteration(change, table, present)
    if alteration.after.sequence is not None:
        return alter_sequence(alteration)
    if not alteration.after.is_table:
        return Derived()
    partitions = alter_partitions(
        alteration,
        emptied=change.effect.empties_partitions,
        dropped=change.effect.drops_partitions,
    )
    return alter(alteration) + partitions


def _exchange(change: Change) -> Derived:
    if change.ran:
        return Derived()
    with_partitions = [table for table in change.after if table.document.get("partition")]
    plain = [table for table in change.after if not table.document.get("partition")]
    if len(with_partitions) != 1 or len(plain) != 1:
        raise NotDerivable("the definitions of the two tables are not known")
    present, other = change.present_of(with_partitions[0]), change.present_of(plain[0])
    if present is None or other is None:
        raise NotDerivable("one of the two tables is not there")
    alteration = _alteration(change, with_partitions[0], present)
    columns = definition.read(plain[0].document).columns
    return of([exchange(alteration, change.at(plain[0]), columns)])


def _flashback(change: Change) -> Derived:
    raise NotDerivable("rows of every table went back in time upstream, and the binlog does not have them")


_HANDLERS: Final[dict[EffectKind, Callable[[Change], Derived]]] = {
    EffectKind.CREATE_DATABASE: _create_database,
    EffectKind.ALTER_DATABASE: _alter_database,
    EffectKind.DROP_DATABASE: _drop_database,
    EffectKind.RECOVER_DATABASE: _recover_database,
    EffectKind.CREATE: _create,
    EffectKind.RESTORE: _create,
    EffectKind.RECOVER: _recover,
    EffectKind.DROP: _drop,
    EffectKind.TRUNCATE: _truncate,
    EffectKind.RENAME: _rename,
    EffectKind.EXCHANGE: _exchange,
    EffectKind.REWIND: _flashback,
    EffectKind.ALTER: _alter_all,
}


# What is not there ---------------------------------------------------------------------------------------


def lacking(change: Change, named: Iterable[str]) -> list[str]:
    """What the definitions say of what the DDL changed and the downstream, as it is in `present`, does not
    have; what `named` has already is left out."""
    lines = []
    said = "\n".join(named)
    for table in change.after:
        after, was = definition.read(table.document), before_of(change, table)
        before = _subjects(definition.read(was.document)) if was else {}
        changed = [subject for subject, value in _subjects(after).items() if before.get(subject, "") != value]
        for line in differences(after, change.present_of(table), change.server) if after.is_table else ():
            subject = next((subject for subject in changed if line.startswith(f"{subject} ")), None)
            name = re.escape((subject or "").partition(" ")[2] or subject or "")
            if subject is not None and not re.search(rf"(?<!\w){name}(?!\w)", said):
                lines.append(line)
    return lines


def _subjects(definition: Definition) -> dict[str, object]:
    """What `differences` speaks of, with what a DDL changes of it. An engine is that of a new table."""
    parts = definition.partitioning
    return {
        "the table": object(),
        "engine": None,
        "columns": [column.name for column in definition.columns],
        "partitions": [
            partition_by(parts),
            *((partition.name, partition.less_than, partition.values) for partition in parts.partitions),
        ]
        if parts
        else None,
        **{f"column {column.name}": meaning(column) for column in definition.columns},
        **{f"key {key.name}": key for key in definition.keys},
        **{f"check {check.name}": check for check in definition.checks},
    }
