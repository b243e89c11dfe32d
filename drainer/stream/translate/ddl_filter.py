"""DDL filter: what a finished schema change comes to downstream, given filters and routes.

Out    a verdict: run it, pass over it with the reason, run other statements instead, or refuse it
Holds  rows and DDL agree: what is not replicated as rows does not run, what is keeps its name and contents

    statement about several tables            of which some replicate
    ------------------------------            -------------------------------------------------
    CREATE TABLES                             only those are created
    RENAME, kept -> kept                      runs
    RENAME, kept -> ignored                   runs: nothing is destroyed, the old name is free;
                                              a database that does not replicate is made for it
    RENAME, ignored -> kept                   refused: the rows written so far are not downstream
    RENAME, ignored -> ignored                left out, also of a statement that renames other tables too
    EXCHANGE PARTITION with one of the two    refused, for the same reason
    DROP DATABASE that itself is filtered     drops the tables in it that replicate
    FLASHBACK DATABASE, likewise              brings back those that replicate
    whatever takes rows away or brings them   refused: it would take away rows of the others
    (DROP, TRUNCATE, also of a partition,
    EXCHANGE, RECOVER, RENAME) of a table
    whose target others are routed to too

A rename is judged by its net effect: `a TO tmp, b TO a, tmp TO b` keeps both tables, whatever `tmp` is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from drainer.changes.ddl_effect import DdlEffect, EffectKind, Names
from drainer.mysql import sql_tokens
from drainer.mysql.literal.quoting import quote_name
from drainer.stream.rules.rule_set import Rules
from tidb_binlog import ddl_job
from tidb_binlog.ddl_job import DdlJob
from tidb_binlog.late_dataclass import dataclass

Name = tuple[str, str]

_COPY_HINT: Final = "copy it downstream as of this commit_ts and skip the DDL, or change the filter"


@dataclass(frozen=True, slots=True)
class Verdict:
    """`tables`: the names that the statement still touches. At most one of `skip` and `refused` is set."""

    tables: Names
    skip: str = ""
    refused: str = ""
    instead: tuple[str, ...] = ()


def judge(job: DdlJob, change: DdlEffect, rules: Rules, all_names: Iterable[Name]) -> Verdict:
    """`all_names`: of all tables after the change. Raises `ConfigError` for contradicting routes."""
    names = change.tables
    if not names:
        return Verdict(names)
    if change.renamed:
        verdict = _rename(change, rules, all_names)
    elif change.kind is EffectKind.DROP_DATABASE:
        verdict = _drop_database(change, rules, all_names)
    else:
        verdict = _by_names(job, change, rules, all_names)
    return verdict if verdict.skip else _by_events(job, change, verdict, rules)


def _by_names(job: DdlJob, change: DdlEffect, rules: Rules, all_names: Iterable[Name]) -> Verdict:
    names = change.tables
    kept = tuple(name for name in names if rules.allows(*name))
    if not kept:
        # A database that comes back brings tables that its own name does not show.
        kept = tuple(
            (table.schema, table.name) for table in change.after if rules.allows(table.schema, table.name)
        )
        return Verdict(kept) if kept else Verdict(names, skip="filtered")
    if change.kind is EffectKind.RESTORE:
        return Verdict(kept)
    if len(kept) < len(names):
        out = ", ".join(_dotted(name) for name in names if name not in kept)
        return Verdict(
            names,
            refused=f"{ddl_job.action_name(job.action)} brings in rows of {out}, which does not replicate:"
            f" {_COPY_HINT}",
        )
    if change.takes_rows_away or change.replaces_rows:
        for name in dict.fromkeys((*names, *((table.schema, table.name) for table in change.after))):
            if others := sharing(name, rules, all_names):
                return Verdict(names, refused=_shared(ddl_job.action_name(job.action), name, rules, others))
    return Verdict(names)


def _by_events(job: DdlJob, change: DdlEffect, verdict: Verdict, rules: Rules) -> Verdict:
    """The event filter asks about the new name of a rename, and about every other name."""
    if rules.events.is_empty:
        return verdict
    renamed = {new for _, new in change.renamed}
    asked = [name for name in verdict.tables if not renamed or name in renamed]
    events = sql_tokens.events_of(job.query, job.action)
    ignored_by = {name: rules.events.ignores_ddl(*name, events, job.query) for name in asked}
    passed = tuple(name for name in verdict.tables if not ignored_by.get(name))
    if change.kind is EffectKind.RESTORE and passed:
        return Verdict(passed)
    if all(ignored_by.values()):
        return Verdict(
            verdict.tables, skip=f"filtered by binlog-filter-rule {', '.join(sorted({*ignored_by.values()}))}"
        )
    return verdict


# -- renames ----------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Move:
    """What a rename does to one table: from its first to its last name, through `steps`."""

    old: Name
    new: Name
    steps: list[int]


def _moves(renames: Sequence[tuple[Name, Name]]) -> list[_Move]:
    moves: list[_Move] = []
    for step, (old, new) in enumerate(renames):
        earlier = next((move for move in moves if _lower(move.new) == _lower(old)), None)
        if earlier is None:
            moves.append(_Move(old, new, [step]))
        else:
            earlier.new = new
            earlier.steps.append(step)
    return moves


def _rename(change: DdlEffect, rules: Rules, all_names: Iterable[Name]) -> Verdict:
    moves = _moves(change.renamed)
    kept = [move for move in moves if rules.allows(*move.old) or rules.allows(*move.new)]
    if not kept:
        return Verdict(change.tables, skip="filtered")
    for move in kept:
        if not rules.allows(*move.old):
            return Verdict(
                change.tables,
                refused=f"{_dotted(move.old)} did not replicate under this name and does as"
                f" {_dotted(move.new)}: its rows so far are not downstream: {_COPY_HINT}",
            )
    if not rules.router.is_empty:
        refused = _shared_by_rename(kept, moves, rules, all_names)
        if refused:
            return Verdict(change.tables, refused=refused)
    return _renamed(change, kept, rules)


def _renamed(change: DdlEffect, kept: Sequence[_Move], rules: Rules) -> Verdict:
    """Which steps run, under which names."""
    steps = [change.renamed[step] for step in sorted(step for move in kept for step in move.steps)]
    route = rules.router.route
    routed = [(route(*old), route(*new)) for old, new in steps]
    homes = {
        route(*move.new)[0]
        for move in kept
        if move.new[0].lower() != move.old[0].lower() and not rules.allows(move.new[0])
    }
    if len(steps) == len(change.renamed) and routed == steps and not homes:
        return Verdict(change.tables)
    tables = tuple(dict.fromkeys(name for pair in steps for name in pair))
    effective = [(old, new) for old, new in routed if old != new]
    if not effective:
        return Verdict(tables, skip="both names are routed to the same table")
    databases = [f"CREATE DATABASE IF NOT EXISTS {quote_name(home).decode()}" for home in sorted(homes)]
    renames = ", ".join(f"{_qualified(old)} TO {_qualified(new)}" for old, new in effective)
    return Verdict(tables, instead=(*databases, f"RENAME TABLE {renames}"))


def _shared_by_rename(
    kept: Sequence[_Move], moves: Sequence[_Move], rules: Rules, all_names: Iterable[Name]
) -> str:
    """Why a rename would take along or run into rows of other tables; "" if it does not."""
    route = rules.router.route
    moved = {_lower(move.new) for move in moves}
    others = [name for name in all_names if _lower(name) not in moved]
    for move in kept:
        old, new = route(*move.old), route(*move.new)
        if _lower(old) == _lower(new):
            continue
        for name in (move.old, move.new):
            if shared := sharing(name, rules, others):
                return _shared("rename table", name, rules, shared)
    targets = [_lower(route(*move.new)) for move in kept]
    if len(set(targets)) < len(targets):
        return f"the rename would join tables that were apart: {_COPY_HINT}"
    return ""


# -- databases, shared targets ----------------------------------------------------------------------------


def _drop_database(change: DdlEffect, rules: Rules, all_names: Iterable[Name]) -> Verdict:
    """The database itself if it replicates and nothing is routed around it; else the tables in it that do."""
    ((schema, _),) = change.tables
    inside = [(name, kind) for *name, kind in change.inside]
    kept = [((table[0], table[1]), kind) for table, kind in inside if rules.allows(*table)]
    allowed = rules.allows(schema)
    if not allowed and not kept:
        return Verdict(change.tables, skip="filtered")
    if rules.router.is_empty:
        if allowed:
            return Verdict(change.tables)
        return Verdict(tuple(name for name, _ in kept), instead=_drops(kept, rules))
    others = [name for name in all_names if rules.allows(*name)]
    for name, _ in kept:
        if shared := sharing(name, rules, others):
            return Verdict(change.tables, refused=_shared("drop database", name, rules, shared))
    home = rules.router.route(schema)[0]
    routes = [rules.router.route(*name)[0].lower() for name, _ in kept]
    taken = any(rules.router.route(*name)[0].lower() == home.lower() for name in others)
    if allowed and not taken and all(target == home.lower() for target in routes):
        whole = f"DROP DATABASE IF EXISTS {quote_name(home).decode()}"
        return Verdict(change.tables, instead=() if home == schema else (whole,))
    if not kept:
        return Verdict(change.tables, skip="its database downstream holds tables of other databases")
    return Verdict(tuple(name for name, _ in kept), instead=_drops(kept, rules))


def _drops(kept: Sequence[tuple[Name, str]], rules: Rules) -> tuple[str, ...]:
    statements = []
    for kind in ("view", "table", "sequence"):
        targets = [_qualified(rules.router.route(*name)) for name, of_kind in kept if of_kind == kind]
        if targets:
            statements.append(f"DROP {kind.upper()} IF EXISTS {', '.join(targets)}")
    return tuple(statements)


def sharing(name: Name, rules: Rules, all_names: Iterable[Name]) -> list[Name]:
    """Other tables that replicate into the same table downstream."""
    if rules.router.is_empty or not name[1]:
        return []
    target = _lower(rules.router.route(*name))
    return [
        other
        for other in all_names
        if _lower(other) != _lower(name)
        and rules.allows(*other)
        and _lower(rules.router.route(*other)) == target
    ]


def _shared(what: str, name: Name, rules: Rules, others: Sequence[Name]) -> str:
    target = _dotted(rules.router.route(*name))
    return (
        f"{what} of {_dotted(name)}: {', '.join(_dotted(other) for other in others[:3])} replicate into"
        f" {target} too: change the rows of {target} by hand and skip the DDL, or ignore such statements with"
        " a binlog-filter-rule"
    )


def _lower(name: Name) -> Name:
    return name[0].lower(), name[1].lower()


def _dotted(name: Name) -> str:
    return f"{name[0]}.{name[1]}" if name[1] else name[0]


def _qualified(name: Name) -> str:
    return b".".join(map(quote_name, name)).decode()
