"""Alter table: one table's columns, keys and options brought from one tracked definition to the next.

Out    ALTER TABLE with everything it takes in one statement (servers run it whole or not at all), and
       separate steps for what the downstream may refuse without losing rows: foreign keys, checks,
       invisible keys; and one before it for what turns instants into local times or back
Holds  only what the DDL changed is touched: columns, keys and types that the downstream was given on
       purpose stay. Columns are matched by id, so a renamed one keeps its contents
Tests  tests/drainer/ddl/derive/test_derive.py
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from drainer.ddl.derive.compare import (
    PresentColumn,
    PresentKey,
    comparable,
    same_collation,
    same_column,
    same_default,
    same_key,
    same_type,
    shape_of,
)
from drainer.ddl.derive.constraints import drop_constraints, extras
from drainer.ddl.derive.definition import Column, Default, Definition, Key
from drainer.ddl.derive.render import (
    Server,
    collate_clause,
    collated,
    column_clause,
    default_clause,
    fitting,
    key_clause,
    name_of,
    own_rules,
    type_of,
)
from drainer.ddl.derive.values import Alteration, Derived, Step, choice, of, step
from drainer.mysql.rows.dialect import Dialect
from tidb_binlog import table_info as ti
from tidb_binlog.late_dataclass import dataclass, field, replace
from tidb_binlog.table_info import FieldType
from tidb_binlog.type_text import literal


def same_shape(was: FieldType, kind: FieldType) -> bool:
    """Whether a DDL leaves the type alone."""
    return _shape(was) == _shape(kind)


def _shape(kind: FieldType) -> tuple[object, ...]:
    zerofill = kind.flag & 64
    return kind.tp, kind.flen, kind.decimal, kind.charset, kind.collate, kind.elems, kind.unsigned, zerofill


def meaning(column: Column) -> tuple[object, ...]:
    """What of a column reaches a downstream."""
    kind = column.type
    return (
        column.name,
        (column.nullable, column.auto_increment, column.on_update_now),
        _shape(kind),
        column.default,
        column.generated,
        column.stored,
        column.comment,
    )


def counterparts(
    before: Definition | None, after: Definition, *, modified: bool, apart: frozenset[str] = frozenset()
) -> dict[int, Column]:
    """By id of a column after: what it was before. `apart`: columns that the DDL adds or drops, in lower
    case."""
    if before is None:
        return {}
    old = {column.id: column for column in before.columns}
    matched = {column.id: old.pop(column.id) for column in after.columns if column.id in old}
    new = [column for column in after.columns if column.id not in matched]
    if modified:  # a column whose values had to be converted has a new id
        left = {name: column for column in old.values() if (name := column.name.lower()) not in apart}
        new = [column for column in new if column.name.lower() not in apart]
        matched |= {column.id: left.pop(name) for column in new if (name := column.name.lower()) in left}
        new = [column for column in new if column.id not in matched]
        if len(new) == len(left):
            matched.update({column.id: match for column, match in zip(new, left.values(), strict=True)})
    return matched


def origin_of(column: Column) -> Default | None:
    """What rows hold that are older than the column. A JSON column holds JSON's null, not an empty text."""
    if column.origin is None and column.type.tp == ti.JSON and not column.nullable:
        return Default("null")
    return column.origin


def needs_origin(column: Column) -> bool:
    """Rows that are older than the column hold something else than what ADD COLUMN would give them."""
    if column.generated or column.auto_increment:
        return False
    if column.default is not None and (column.default.is_now or column.default.expression):
        return True
    origin = origin_of(column)
    if origin is None or origin == column.default:
        return False
    return column.default is not None or not _is_zero(column)


def _is_zero(column: Column) -> bool:
    """The original default is what a server gives a NOT NULL column that has none."""
    origin, kind = origin_of(column), column.type
    if origin is None or column.nullable:
        return False
    if origin.bits is not None:
        return not any(origin.bits)
    if kind.tp == ti.JSON:
        return False
    if kind.tp == ti.ENUM:
        return bool(kind.elems) and origin.text == kind.elems[0]
    if kind.tp in ti.STRING_TYPES or kind.tp == ti.SET:
        return not origin.text.strip("\0")
    return not origin.text.strip("0.:- ")


@dataclass(slots=True)
class _Clauses:
    """Clauses of one ALTER TABLE. `plain` has ordinary columns in place of generated ones."""

    full: list[str] = field(default_factory=list)
    plain: list[str] = field(default_factory=list)
    generated: list[str] = field(default_factory=list)
    later: list[str] = field(default_factory=list)

    def add(self, *texts: str) -> None:
        self.full += texts
        self.plain += texts


def alter(change: Alteration) -> Derived:
    """Steps that bring the table to `change.after`; none where it is there."""
    missing: list[str] = []
    before = fitting(change.before, change.server, []) if change.before else None
    change = replace(change, before=before, after=fitting(change.after, change.server, missing))
    if before is not None:
        missing = [line for line in missing if _is_new(line, change)]
    table = name_of(*change.table)
    clauses = _Clauses()
    old = counterparts(before, change.after, modified=change.modified, apart=change.apart)
    taken = _taken(change, old)
    renamed_keys = _drop_keys(change, clauses)
    _columns(change, old, taken, clauses, missing)
    _keys(change, renamed_keys, taken, clauses, missing)
    clauses.add(*_options(change, missing))
    steps = drop_constraints(change) + _local_times(change, old, taken)
    if clauses.full:
        whole = f"ALTER TABLE {table} {', '.join(clauses.full)}"
        if clauses.generated:
            lacks = f"columns {', '.join(clauses.generated)} are not generated, and nothing writes them"
            plain = f"ALTER TABLE {table} {', '.join(clauses.plain)}"
            steps.append(choice((whole, ""), (plain, lacks)))
        else:
            steps.append(step(whole))
    if clauses.later:
        steps.append(step(f"ALTER TABLE {table} {', '.join(clauses.later)}"))
    steps += _texts_anew(change, old, taken)
    steps += extras(change, missing)
    return of(steps, missing)


def _is_new(line: str, change: Alteration) -> bool:
    """Whether a lack concerns a column that this DDL changed."""
    old = counterparts(change.before, change.after, modified=change.modified, apart=change.apart)
    changed = {
        column.name
        for column in change.after.columns
        if column.id not in old or meaning(old[column.id]) != meaning(column)
    }
    return any(line.startswith(f"column {name} ") for name in changed)


_NOT_IN_LATIN1: Final = "81|8D|8F|90|9D"
"""Of UTF-8 after C2: characters that servers say latin1 has, and that are bytes nevertheless."""

# Columns -------------------------------------------------------------------------------------------------


def _taken(change: Alteration, old: dict[int, Column]) -> dict[int, PresentColumn]:
    """By id of a column after: the column downstream that is this one, under its old or its new name."""
    present = {column.name.lower(): column for column in change.present.columns}
    taken: dict[int, PresentColumn] = {}
    for column in change.after.columns:
        was = old.get(column.id)
        names = [column.name, was.name] if was is not None else [column.name]
        if was is not None and not change.ran:
            names.reverse()
        match = next((present[name.lower()] for name in names if name.lower() in present), None)
        if match is not None:
            taken[column.id] = match
    return taken


def _columns(
    change: Alteration,
    old: dict[int, Column],
    taken: dict[int, PresentColumn],
    clauses: _Clauses,
    missing: list[str],
) -> None:
    present = {column.name.lower(): column for column in change.present.columns}
    used = {match.name.lower() for match in taken.values()}
    for gone in _gone(change, old):
        match = present.get(gone.name.lower())
        if match is not None and match.name.lower() not in used:
            clauses.add(f"DROP COLUMN {name_of(match.name)}")
            del present[match.name.lower()]
    places = _places(change, old, taken, list(present.values()))
    for column in change.after.columns:
        match, was = taken.get(column.id), old.get(column.id)
        changed = was is None or meaning(was) != meaning(column)
        if match is None and was is not None and change.before is not None:
            if changed:
                missing.append(f"column {column.name} is not there")
            continue
        unseen = was is not None and was.default != column.default and not comparable(column)
        differs = changed and (match is None or unseen or _differs(column, match, change.server))
        if differs or column.id in places:
            kind = _given_type(column, was, match, change.server)
            _column(column, match, places.get(column.id, ""), change, clauses, missing, kind)


def _given_type(column: Column, was: Column | None, present: PresentColumn | None, server: Server) -> str:
    """That of a column that has another one downstream than upstream, which the DDL leaves alone: a statement
    that says the upstream's would cut values of texts that were given room, of other tables with this target.
    "" where there is none."""
    if was is None or present is None or not same_shape(was.type, column.type) or column.generated:
        return ""
    if same_type(column, present, server) and same_collation(column, present, server):
        return ""
    if present.generated or present.type.startswith(("enum", "set")):
        return ""
    return f"{present.type} COLLATE {present.collation}" if present.collation else present.type


def _local_times(change: Alteration, old: dict[int, Column], taken: dict[int, PresentColumn]) -> list[Step]:
    """Columns that become TIMESTAMP or were it: what instant a local time means depends on the zone.

    Their type alone; all else, with defaults in UTC, follows.
    """
    texts = []
    for column in change.after.columns:
        was, present = old.get(column.id), taken.get(column.id)
        if was is None or present is None or column.generated or present.generated:
            continue
        if (was.type.tp == ti.TIMESTAMP) == (column.type.tp == ti.TIMESTAMP):
            continue
        if (column.type.tp == ti.TIMESTAMP) == present.type.lower().startswith("timestamp"):
            continue
        null = "NULL" if present.nullable else "NOT NULL"
        kind = f"{type_of(column)}{collate_clause(column, change.server, [])}"
        texts.append(f"MODIFY COLUMN {name_of(present.name)} {kind} {null}")
    return (
        [replace(step(f"ALTER TABLE {name_of(*change.table)} {', '.join(texts)}"), local=True)]
        if texts
        else []
    )


def _texts_anew(change: Alteration, old: dict[int, Column], taken: dict[int, PresentColumn]) -> list[Step]:
    """Columns that get more characters than latin1 has: texts that it lacked are there as their bytes, each a
    character of it (`drainer.mysql.literal.charset`). Not in a column that had all characters before."""
    steps, table = [], name_of(*change.table)
    times = [name_of(column.name) for column in change.after.columns if column.on_update_now]
    kept = "".join(f",{name}={name}" for name in times)
    for column in change.after.columns:
        was, name = old.get(column.id), name_of(column.name)
        sets = (was.type.charset if was else "", column.type.charset[:4])
        is_string = column.type.tp in ti.STRING_TYPES and not column.generated
        if not is_string or sets != ("latin1", "utf8") or change.server.dialect is Dialect.TIDB:
            continue
        present = taken.get(column.id)
        if present is None or not (change.ran or present.collation.startswith("latin1")):
            continue
        raw = f"CONVERT({name} USING latin1)"
        text = f"CONVERT(CONVERT({raw} USING binary) USING utf8mb4)"
        where = (
            f"BINARY CONVERT({raw} USING utf8mb4)=BINARY {name} AND BINARY {text}=BINARY {raw}"
            f" AND (BINARY CONVERT(CONVERT({text} USING latin1) USING utf8mb4)<>BINARY {text}"
            f" OR HEX({text}) REGEXP '^(..)*C2({_NOT_IN_LATIN1})')"
        )
        lacks = f"column {column.name} has texts that latin1 lacks as their bytes"
        steps.append(step(f"UPDATE {table} SET {name}={text}{kept} WHERE {where}", lacks=lacks))
    return steps


def _gone(change: Alteration, old: dict[int, Column]) -> list[Column]:
    if change.before is None:
        return []
    kept = {column.id for column in old.values()}
    return [column for column in change.before.columns if column.id not in kept]


def _differs(column: Column, present: PresentColumn, server: Server) -> bool:
    return (
        present.name != column.name
        or not same_column(column, present, server)
        or not same_default(column, present, server)
        or present.comment != column.comment
    )


def _column(
    column: Column,
    present: PresentColumn | None,
    place: str,
    change: Alteration,
    clauses: _Clauses,
    missing: list[str],
    kind: str,
) -> None:
    """`kind`: a type in place of its own, or ""."""
    server, verb = change.server, "ADD COLUMN"
    if present is not None and not place and _only_default_differs(column, present, server):
        clause = default_clause(column, column.default, server, missing) or " DEFAULT NULL"
        verb = f"ALTER COLUMN {name_of(column.name)}"
        clauses.add(f"{verb} SET{clause}" if column.nullable or column.default else f"{verb} DROP DEFAULT")
        return
    if present is not None:
        verb = f"CHANGE COLUMN {name_of(present.name)}"
    keyed = _has_leading_key(column, change.after)
    if column.auto_increment and not keyed:
        missing.append(f"column {column.name} is not AUTO_INCREMENT")
    missing += own_rules(column, change.after)
    text = column_clause(column, server, missing, auto_increment=keyed, kind=kind)
    if present is None and change.before is not None and needs_origin(column):
        at_first = replace(column, default=origin_of(column))
        clauses.later.append(f"CHANGE COLUMN {name_of(column.name)} {text}")
        text = column_clause(at_first, server, [])
    clauses.full.append(f"{verb} {text}{place}")
    if not column.generated:
        clauses.plain.append(f"{verb} {text}{place}")
        return
    clauses.generated.append(column.name)
    clauses.plain.append(f"{verb} {column_clause(column, server, [], plain=True)}{place}")


def _only_default_differs(column: Column, present: PresentColumn, server: Server) -> bool:
    """A literal, on a TiDB: it refuses to CHANGE a column that decides about partitions."""
    default = column.default
    return (
        server.dialect is Dialect.TIDB
        and not (column.generated or column.auto_increment)
        and not (default is not None and (default.is_now or default.expression))
        and (column.type.tp != ti.TIMESTAMP or default is not None)
        and present.name == column.name
        and same_column(column, present, server)
        and present.comment == column.comment
    )


def _has_leading_key(column: Column, definition: Definition) -> bool:
    if not column.type.flag & ti.FLAG_AUTO_INCREMENT:
        return True
    lower = column.name.lower()
    return any(key.parts and key.parts[0].column.lower() == lower for key in definition.keys)


def _places(
    change: Alteration, old: dict[int, Column], taken: dict[int, PresentColumn], present: list[PresentColumn]
) -> dict[int, str]:
    """` FIRST` or ` AFTER x` for columns that are new, or stand elsewhere because of the DDL."""
    ids_before = [column.id for column in change.before.columns] if change.before else []
    after = [column.id for column in change.after.columns]
    kept = [old[number].id for number in after if number in old]
    if len(kept) == len(after) and kept == [number for number in ids_before if number in set(kept)]:
        return {}
    by_present = {column.name.lower(): number for number, column in taken.items()}
    order = [by_present[column.name.lower()] for column in present if column.name.lower() in by_present]
    others = len(present) > len(order)  # columns that only the downstream has, perhaps after all of ours
    places: dict[int, str] = {}
    previous: Column | None = None
    at = 0
    for column in change.after.columns:
        if column.id not in taken and column.id in old:
            continue  # not there downstream, and not new
        here = order[at] if at < len(order) else None
        if here != column.id:
            if column.id in order:
                order.remove(column.id)
            last = at == len(order) and column.id not in old and not others
            if not last:
                places[column.id] = f" AFTER {name_of(previous.name)}" if previous else " FIRST"
            order.insert(at, column.id)
        previous, at = column, at + 1
    return places


# Keys and options ----------------------------------------------------------------------------------------


def _changed_keys(change: Alteration) -> list[Key]:
    if change.before is None:
        return list(change.after.keys)
    before = {key.name.lower(): key for key in change.before.keys}
    return [key for key in change.after.keys if not _is_as_before(key, before, change)]


def _is_as_before(key: Key, before: dict[str, Key], change: Alteration) -> bool:
    was = before.get(key.name.lower())
    if was is None or change.before is None:
        return False
    return shape_of(was, change.before) == shape_of(key, change.after) and was.parts == key.parts


def _drop_keys(change: Alteration, clauses: _Clauses) -> set[str]:
    """Clauses that drop or rename keys; the names that are free then, and the new names."""
    if change.before is None:
        return set()
    after = {key.name.lower(): key for key in change.after.keys}
    done: set[str] = set()
    for key in change.before.keys:
        lower = key.name.lower()
        key_there = change.present.key(key.name)
        if lower in after or key_there is None:
            continue
        renamed = next(
            (candidate for candidate in _changed_keys(change) if _is_renamed(key, candidate, change, done)),
            None,
        )
        if renamed is not None and not key.primary and not renamed.primary:
            clauses.add(f"RENAME INDEX {name_of(key_there.name)} TO {name_of(renamed.name)}")
            done.add(renamed.name.lower())
        else:
            clauses.add(_drop_key(key_there.name))
    return done


def _is_renamed(old: Key, new: Key, change: Alteration, done: set[str]) -> bool:
    if change.before is None or new.name.lower() in done or change.present.key(new.name) is not None:
        return False
    return shape_of(old, change.before) == shape_of(new, change.after)


def _drop_key(name: str) -> str:
    return "DROP PRIMARY KEY" if name.upper() == "PRIMARY" else f"DROP INDEX {name_of(name)}"


def _keys(
    change: Alteration,
    renamed: set[str],
    taken: dict[int, PresentColumn],
    clauses: _Clauses,
    missing: list[str],
) -> None:
    names = {
        taken[column.id].name.lower(): column.name.lower()
        for column in change.after.columns
        if column.id in taken
    }
    for key in _changed_keys(change):
        clause = key_clause(key, change.after, change.server, missing)
        if clause is None or key.name.lower() in renamed:
            continue
        key_there = change.present.key(key.name)
        if key_there is not None:
            if same_key(key, change.after, _with_names(key_there, names)):
                continue
            clauses.add(_drop_key(key_there.name))
            if change.server.dialect is Dialect.TIDB:  # not in the statement that drops one of that name
                clauses.later.append(f"ADD {clause}")
                continue
        clauses.add(f"ADD {clause}")


def _with_names(key: PresentKey, names: dict[str, str]) -> PresentKey:
    """The key as it is after the columns are renamed."""
    return replace(key, parts=tuple((names.get(column, column), length) for column, length in key.parts))


def _options(change: Alteration, missing: list[str]) -> Iterable[str]:
    before, after, present = change.before, change.after, change.present
    if (before is None or before.comment != after.comment) and present.comment != after.comment:
        yield f"COMMENT={literal(after.comment)}"
    if before is not None and (before.charset, before.collate) != (after.charset, after.collate):
        charset, collate = change.server.collation(after.charset, after.collate)
        if present.collation != collate:
            yield f"DEFAULT {collated(charset, collate)}"
    if before is not None and change.server.dialect is Dialect.TIDB:
        new = set(after.options) - set(before.options)
        yield from (clause for name, clause in new if name == "SHARD_ROW_ID_BITS")
    if change.rebased and not change.ran and after.auto_increment:
        clause = f"AUTO_INCREMENT={after.auto_increment}"
        if change.forced and change.server.dialect is Dialect.TIDB:
            if after.clustered and any(column.auto_increment for column in after.columns):
                clause = f"FORCE {clause}"
            else:  # row ids come from the same counter: rows would take the place of others
                missing.append(f"{clause}, if the downstream's is higher")
        yield clause
