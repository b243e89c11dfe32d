"""Shards: whether a DDL of one of several tables that share a target leaves room for the rows of the others.

Out    what is in its way, a line each; nothing where all their rows fit in the target afterwards
Holds  a type that is not known to hold another one does not: the DDL waits, which loses nothing
Why    a table downstream that has lost a column, or refuses NULL, has no place for rows of a table upstream
       that still has it: the statement runs once the last one has had it, as in TiDB DM's merge of shards

Rows that wait come by the definitions that they were written by, so those count too. Downstream the others
are as before their DDL that wait: a column goes for all of them, or has the same new name for all. After a
start nothing is said before the stream is where it was: what the others are is not known earlier.

Tests  tests/drainer/ddl/quarantine/test_shards.py
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from typing import Final, NamedTuple

from drainer.changes.ddl_effect import columns_apart, effect, sub_actions
from drainer.ddl.derive import definition
from drainer.ddl.derive.alter_table import counterparts, meaning
from drainer.ddl.derive.definition import Column, Definition
from drainer.ddl.quarantine.entry import SHARED, Name, name_of
from drainer.ddl.quarantine.waiting_tables import Quarantine
from drainer.txn import Ddl, Tracked
from tidb_binlog import table_info as ti
from tidb_binlog.table_info import FieldType
from tidb_binlog.tso import TS_MAX, Ts

Sharing = Callable[[Sequence[Name]], tuple[Tracked, ...]]
"""The other tables, as they are now, that go to the targets of these."""

LINES_MAX: Final = 10
_SIZES: Final = (
    {size: rank for rank, size in enumerate((ti.TINY, ti.SHORT, ti.INT24, ti.LONG, ti.LONGLONG))},
    {size: rank for rank, size in enumerate((ti.TINY_BLOB, ti.BLOB, ti.MEDIUM_BLOB, ti.LONG_BLOB))},
)
_BY_LENGTH: Final = frozenset({ti.VARCHAR, ti.VAR_STRING, ti.STRING, ti.BIT})
_BY_DIGITS: Final = frozenset({ti.TIMESTAMP, ti.DATETIME, ti.TIME})


class Shards:
    """`sharing` gives the others as they are now; without it they are as they were when the DDL came."""

    def __init__(self, quarantine: Quarantine, sharing: Sharing | None) -> None:
        self._quarantine = quarantine
        self._sharing = sharing

    def in_the_way(self, ddl: Ddl) -> str:
        """Why it cannot run yet; "" where it can."""
        if not ddl.shared or ddl.skip or ddl.refused:
            return ""
        if not self._quarantine.is_where_it_was:
            return f"{SHARED} the stream has yet to come to where it was"
        shared = self._sharing(ddl.tables) if self._sharing is not None else ddl.shared
        names = {name_of(table.schema, table.name) for table in shared}
        changed = changes_of(ddl)
        queues, is_done = self._quarantine.queues, self._quarantine.is_done
        pending = [kept for queue in queues for kept in queue.ddls if kept.shared and not is_done(kept)]
        own = [  # what each table is after each of its DDL that wait, and which columns that one converts
            (kept.commit_ts, table, change.converted)
            for kept in pending
            for change, table in zip(changes_of(kept), kept.after, strict=True)
            if name_of(table.schema, table.name) in names
        ]

        def unfit_at(upto_ts: Ts, other: Tracked, *, rows_alone: bool = False) -> Iterator[str]:
            name = name_of(other.schema, other.name)
            before = (step for step in own if step[0] <= upto_ts)
            converted = (done for _, table, done in before if name_of(table.schema, table.name) == name)
            return unfit(changed, other, frozenset().union(*converted), rows_alone=rows_alone)

        reasons = [line for table in shared for line in unfit_at(TS_MAX, table)]
        reasons += [line for ts, table, _ in own for line in unfit_at(ts, table)]
        for queue in queues:
            for version, last_ts in queue.rows.items():
                waits = last_ts > queue.position.complete_ts
                if waits and name_of(version.schema, version.name) in names:
                    other = Tracked(version.schema, version.name, version.info.to_json())
                    reasons += unfit_at(last_ts, other, rows_alone=True)
        for kept in pending:
            if any(name_of(table.schema, table.name) in names for table in kept.before):
                reasons += other_fates(changed, kept)
                if not ddl.before:  # its rows would come before what that one makes of the target
                    reasons.append(f"DDL job {kept.job_id} waits")
        lines = list(dict.fromkeys(reasons))
        if len(lines) > LINES_MAX:
            lines[LINES_MAX:] = [f"and {len(lines) - LINES_MAX} more"]
        return f"{SHARED} {'; '.join(lines)}" if lines else ""


class Changed(NamedTuple):
    """A table before and after a DDL. `old`: by id of a column after, what it was before."""

    before: Definition | None
    after: Definition
    old: dict[int, Column]

    @property
    def converted(self) -> set[str]:
        """Names of the columns that keep theirs and hold something else afterwards, in lower case."""
        was = {name: self.old.get(column.id) for name, column in self.after.by_name.items()}
        return {
            name
            for name, old in was.items()
            if old and old.name.lower() == name and meaning(old) != meaning(self.after.by_name[name])
        }


def changes_of(ddl: Ddl) -> list[Changed]:
    modified, apart = effect(ddl.action, sub_actions(ddl.job)).modifies_columns, columns_apart(ddl.job)
    changes = []
    for table in ddl.after:
        same = (old for old in ddl.before if old.id == table.id or old.name.lower() == table.name.lower())
        before = next((definition.read(old.document) for old in same), None)
        after = definition.read(table.document)
        changes.append(Changed(before, after, counterparts(before, after, modified=modified, apart=apart)))
    return changes


def unfit(
    changed: Iterable[Changed], other: Tracked, converted: Set[str] = frozenset(), *, rows_alone: bool = False
) -> Iterator[str]:
    """What another table has or lacks whose rows would not fit in the target afterwards. `converted`: its
    columns that a DDL of its own, which waits, makes what they are. `rows_alone`: a server would take them
    for something else, and not refuse them."""
    theirs = definition.read(other.document)
    for change in changed:
        for line in _columns(*change, theirs, converted):
            yield f"{other.schema}.{other.name} {line}"
        for line in () if rows_alone else _constraints(change.before, change.after, theirs):
            yield f"{other.schema}.{other.name} {line}"


def _columns(
    before: Definition | None,
    after: Definition,
    old: dict[int, Column],
    theirs: Definition,
    converted: Set[str],
) -> Iterator[str]:
    for name in before.by_name if before else ():
        if name not in after.by_name and name in theirs.by_name and not theirs.by_name[name].generated:
            yield f"still has column {name}"
    both = [name for name in after.by_name if name in theirs.by_name]
    moved = both != [name for name in theirs.by_name if name in after.by_name] and _places(before, after, old)
    for name, column in after.by_name.items():
        was, their = old.get(column.id), theirs.by_name.get(name)
        if was is not None and not moved and meaning(was) == meaning(column):
            continue  # it stays as it is downstream
        if their is None:
            if not column.nullable and column.type.flag & ti.FLAG_NO_DEFAULT:
                yield f"has no column {name}, which is NOT NULL and has no default"
        elif was is not None and was.name.lower() != name and was.name.lower() in theirs.by_name:
            yield f"has both column {was.name} and {name}, of which one becomes the other"
        elif was is None and before is not None and name in converted:
            pass  # of a new column: that DDL is asked for its conversion once this one has run
        elif column.generated and not their.generated:
            yield f"writes column {name}, which is generated"
        elif column.generated:
            pass
        elif not holds(column.type, their.type):
            yield f"has column {name} of another type"
        elif their.nullable and not column.nullable:
            yield f"has column {name} with NULL"
        elif was is None and before is not None and not _gives_the_same(column, their):
            yield f"has column {name} with another default, which rows from before the DDL would have"


def _places(before: Definition | None, after: Definition, old: dict[int, Column]) -> bool:
    """Whether it says where columns stand: one is new, or they are in another order than before."""
    kept = [old[column.id].id for column in after.columns if column.id in old]
    order = [column.id for column in before.columns if column.id in kept] if before else []
    return len(kept) < len(after.columns) or kept != order


def _gives_the_same(column: Column, their: Column) -> bool:
    """Whether rows that had no such column upstream hold, by another table's, what they hold by this one."""
    if their.default is None and not their.nullable:  # a zero
        return their.origin in (None, column.origin) and column.default is None
    return {their.default, their.origin or their.default} == {column.origin}


def _constraints(before: Definition | None, after: Definition, theirs: Definition) -> Iterator[str]:
    for key in sorted(_keys(after) - _keys(before) - _keys(theirs)):
        yield f"has no unique key ({', '.join(part for part, _ in key)})"
    for check in sorted(_checks(after) - _checks(before) - _checks(theirs)):
        yield f"has no check {check}"
    if after.partitioning and not (before and before.partitioning) and not theirs.partitioning:
        yield "has no partitions"


def _keys(info: Definition | None) -> set[tuple[tuple[str, int], ...]]:
    """Of each unique key its columns, with the lengths of prefixes, or expressions."""
    keys = [key for key in info.keys if key.unique] if info else []
    return {
        tuple((part.column.lower() or part.expression, part.length) for part in key.parts) for key in keys
    }


def _checks(info: Definition | None) -> set[str]:
    return {check.expression for check in info.checks if check.enforced} if info else set()


def other_fates(changed: Iterable[Changed], kept: Ddl) -> Iterator[str]:
    """Columns that go, or get another name, and do not by a DDL of another table that waits."""
    theirs = _fates(changes_of(kept))
    for name, fate in _fates(changed).items():
        if fate != name and theirs.get(name, fate) != fate:
            yield f"DDL job {kept.job_id}, which waits, makes something else of column {name}"


def _fates(changed: Iterable[Changed]) -> dict[str, str]:
    """The name that each column has afterwards; "" where it goes."""
    fates: dict[str, str] = {}
    for before, after, old in changed:
        left = {old[column.id].id: column.name.lower() for column in after.columns if column.id in old}
        for name, column in before.by_name.items() if before else ():
            fates[name] = left.get(column.id, "")
    return fates


def holds(wide: FieldType, narrow: FieldType) -> bool:
    """Whether each value of one type is the same value of the other, also written as text."""
    if (wide.charset, wide.collate, wide.unsigned) != (narrow.charset, narrow.collate, narrow.unsigned):
        return False
    for sizes in _SIZES:
        if wide.tp in sizes and narrow.tp in sizes:
            return sizes[wide.tp] >= sizes[narrow.tp] and wide.array == narrow.array
    if wide.tp != narrow.tp or wide.array != narrow.array:
        return False
    if wide.tp in (ti.ENUM, ti.SET):
        return wide.elems[: len(narrow.elems)] == narrow.elems
    if wide.tp in _BY_LENGTH:
        padded = wide.tp == ti.STRING and wide.is_binary_string
        return wide.flen == narrow.flen if padded else wide.flen >= narrow.flen
    if wide.tp in _BY_DIGITS:
        return wide.fsp >= narrow.fsp
    if wide.tp in (ti.FLOAT, ti.DOUBLE):
        return (wide.flen, wide.decimal) == (narrow.flen, narrow.decimal)
    if wide.tp == ti.DECIMAL:
        whole = wide.flen - wide.decimal >= narrow.flen - narrow.decimal
        return whole and wide.decimal >= narrow.decimal
    return True
