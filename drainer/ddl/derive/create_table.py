"""Create table: a whole table, view or sequence from its definition.

Out    steps: CREATE with columns and keys, without partitions or generated columns if they are refused;
       foreign keys, checks and invisible keys apart
Tests  tests/drainer/ddl/derive/test_derive.py
"""

from __future__ import annotations

from drainer.ddl.derive.compare import Present, PresentKey
from drainer.ddl.derive.constraints import extras
from drainer.ddl.derive.definition import Definition
from drainer.ddl.derive.render import (
    Server,
    collated,
    column_clause,
    expression,
    fitting,
    key_clause,
    name_of,
    own_rules,
    partition_clause,
)
from drainer.ddl.derive.values import Alteration, Derived, Route, choice, of, step
from drainer.mysql.rows.dialect import Dialect
from tidb_binlog.type_text import literal

Name = tuple[str, str]


def create(
    definition: Definition, table: Name, server: Server, route: Route, *, replace: bool = False
) -> Derived:
    """`replace`: a view of that name may be there."""
    if definition.view is not None:
        return _view(definition, table, server, replace=replace)
    if definition.sequence is not None:
        return _sequence(definition, table, server)
    return _table(definition, table, server, route)


def only_upstream(definition: Definition, server: Server) -> list[str]:
    """Options that the downstream does not get."""
    left_out = [
        name for name, clause in definition.options if not (clause and server.dialect is Dialect.TIDB)
    ]
    return [f"{name}, which only the upstream has" for name in left_out]


def _table(definition: Definition, table: Name, server: Server, route: Route) -> Derived:
    missing: list[str] = []
    definition = fitting(definition, server, missing)
    if definition.temporary:
        missing.append("it is a temporary table upstream: an ordinary one, which never has rows")
    missing += only_upstream(definition, server)
    full = _columns(definition, server, missing, plain=False)
    keys = [key_clause(key, definition, server, missing) for key in definition.keys]
    tail = [text for text in keys if text is not None]
    options = _options(definition, server)
    generated = [column.name for column in definition.columns if column.generated]
    head = f"CREATE TABLE {name_of(*table)}"
    partitions = partition_clause(definition.partitioning) if definition.partitioning else ""
    whole = f"{head} ({', '.join(full + tail)}){options}"
    variants = [(whole, "partitions")] if partitions else [(whole, "")]
    if partitions:
        variants.insert(0, (f"{whole} {partitions}", ""))
    if generated:
        plain = _columns(definition, server, [], plain=True)
        lacks = f"columns {', '.join(generated)} are not generated, and nothing writes them"
        variants.append((f"{head} ({', '.join(plain + tail)}){options}", lacks))
    new = Alteration(None, definition, _as_made(definition), table, server, route)
    return of([choice(*variants), *extras(new, missing)], missing)


def _as_made(definition: Definition) -> Present:
    """The table as it is right after CREATE: all keys are used."""
    return Present(keys=tuple(PresentKey(key.name, ()) for key in definition.keys))


def _columns(definition: Definition, server: Server, missing: list[str], *, plain: bool) -> list[str]:
    leading = {key.parts[0].column.lower() for key in definition.keys if key.parts}
    texts = []
    for column in definition.columns:
        keyed = column.name.lower() in leading
        if column.auto_increment and not keyed:
            missing.append(f"column {column.name} is not AUTO_INCREMENT")
        missing += own_rules(column, definition)
        texts.append(column_clause(column, server, missing, auto_increment=keyed, plain=plain))
    for name, clause in definition.options if server.dialect is Dialect.TIDB else ():
        if name == "AUTO_RANDOM":
            at = [column.name for column in definition.columns].index(definition.keys[0].parts[0].column)
            texts[at] += f" {clause}"
    return texts


def _options(definition: Definition, server: Server) -> str:
    text = ""
    if definition.charset and definition.collate:
        charset, collate = server.collation(definition.charset, definition.collate)
        text += f" DEFAULT {collated(charset, collate)}"
    if definition.auto_increment > 1 and any(column.auto_increment for column in definition.columns):
        text += f" AUTO_INCREMENT={definition.auto_increment}"
    if server.dialect is Dialect.TIDB:
        text += "".join(f" {clause}" for name, clause in definition.options if name == "SHARD_ROW_ID_BITS")
    if definition.comment:
        text += f" COMMENT={literal(definition.comment)}"
    return text


def _view(definition: Definition, view: Name, server: Server, *, replace: bool) -> Derived:
    """A view has no rows: whatever is refused, nothing is lost."""
    assert definition.view is not None
    listed = ",".join(name_of(column.name) for column in definition.columns)
    verb = "CREATE OR REPLACE" if replace else "CREATE"
    text = (
        f"{verb} ALGORITHM={definition.view.algorithm} SQL SECURITY {definition.view.security}"
        f" VIEW {name_of(*view)} ({listed}) AS {expression(definition.view.select, server)}"
    )
    return of([step(text, lacks=f"view {'.'.join(view)}")])


def _sequence(definition: Definition, sequence: Name, server: Server) -> Derived:
    lacks = f"sequence {'.'.join(sequence)}"
    if not server.sequences:
        return Derived(missing=(lacks,))
    assert definition.sequence is not None
    text = f"CREATE SEQUENCE {name_of(*sequence)} START WITH {definition.sequence.start}"
    return of([step(f"{text} {_numbers(definition)}", lacks=lacks)])


def _numbers(definition: Definition) -> str:
    assert definition.sequence is not None
    sequence = definition.sequence
    cache = f"CACHE {sequence.cache}" if sequence.cache > 1 else "NOCACHE"
    cycle = "CYCLE" if sequence.cycle else "NOCYCLE"
    limits = f"MINVALUE {sequence.minimum} MAXVALUE {sequence.maximum}"
    return f"{limits} INCREMENT BY {sequence.increment} {cache} {cycle}"


def alter_sequence(change: Alteration) -> Derived:
    lacks = f"sequence {'.'.join(change.table)} as it was altered"
    return of([step(f"ALTER SEQUENCE {name_of(*change.table)} {_numbers(change.after)}", lacks=lacks)])
