"""Contents: what a load brings downstream: which databases, tables, views and sequences, under which names.

Out    `Contents`: of each table what it is upstream, where it goes, and whether rules have to see its rows
Holds  the same tables, under the same names, as a Drainer with these rules has rows and DDL of
Never  reads rows, or asks a server
Tests   tests/drainer/points/load/test_load.py
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from drainer.changes import ddl_effect
from drainer.ddl.derive import definition
from drainer.mysql.mark import is_mark_table
from drainer.stream.rules.rule_set import Rules
from drainer.stream.schema.tracker import SchemaTracker, is_system_schema
from drainer.stream.translate.row_edit import row_edit
from drainer.stream.translate.translator import Translator
from drainer.txn import INSERT, TableVersion, Tracked
from tidb_binlog.ddl_job import ActionType
from tidb_binlog.late_dataclass import dataclass, field, replace

if TYPE_CHECKING:
    from drainer.stream.translate.row_edit import RowEdit

Name = tuple[str, str]
_CREATES: dict[str, tuple[int, str]] = {
    ddl_effect.TABLE: (ActionType.CREATE_TABLE, "CREATE TABLE t"),
    ddl_effect.VIEW: (ActionType.CREATE_VIEW, "CREATE VIEW t"),
    ddl_effect.SEQUENCE: (ActionType.CREATE_SEQUENCE, "CREATE SEQUENCE t"),
}


@dataclass(frozen=True, slots=True)
class Source:
    """A table, view or sequence upstream. `version` is as it is written downstream.

    `edit`: row rules that see each row. `copies`: its rows are wanted. `creates`: it is made where it is not
    there. `shared`: other tables go to the same one downstream. `digest` is the same as long as what is
    downstream for it may stay.
    """

    tracked: Tracked
    version: TableVersion
    kind: str
    digest: str
    edit: RowEdit | None = field(default=None, compare=False, repr=False)
    copies: bool = True
    creates: bool = True
    shared: bool = False

    @property
    def name(self) -> Name:
        return self.tracked.schema, self.tracked.name

    @property
    def target(self) -> Name:
        return self.version.downstream

    @property
    def label(self) -> str:
        return ".".join(self.name)

    @property
    def action(self) -> int:
        return _CREATES[self.kind][0]


@dataclass(frozen=True, slots=True)
class Contents:
    """`databases` are (upstream, downstream) names. All in the order of names. `gone`: names downstream of
    what upstream has no more."""

    databases: tuple[tuple[str, str], ...] = ()
    tables: tuple[Source, ...] = ()
    views: tuple[Source, ...] = ()
    sequences: tuple[Source, ...] = ()
    gone: tuple[Name, ...] = ()

    @property
    def all(self) -> tuple[Source, ...]:
        return (*self.tables, *self.sequences, *self.views)

    def only(self, belongs: Callable[[Source], bool]) -> Contents:
        """A part, with the databases of that."""
        tables, views, sequences = (
            tuple(filter(belongs, kind)) for kind in (self.tables, self.views, self.sequences)
        )
        part = Contents((), tables, views, sequences)
        schemas = {source.name[0] for source in part.all}
        return replace(part, databases=tuple(pair for pair in self.databases if pair[0] in schemas))


def contents_of(tracker: SchemaTracker, rules: Rules) -> Contents:
    """Raises `ConfigError` for rules that contradict each other, or do not fit a table."""
    translator = Translator(tracker, rules)
    rows = tracker.dump()
    of_kind: dict[str, list[Source]] = {kind: [] for kind in _CREATES}
    for row in rows:
        value = row["value"]
        if row["key"].startswith("table/"):
            tracked = Tracked(value["schema"], value["name"], value["document"])
            source = _source(tracked, tracker, translator)
            if source is not None:
                of_kind[source.kind].append(source)
    targets = Counter(source.target for source in of_kind[ddl_effect.TABLE])
    tables = [replace(source, shared=targets[source.target] > 1) for source in of_kind[ddl_effect.TABLE]]
    return Contents(
        tuple(_databases(rows, rules)),
        _sorted(tables),
        _sorted(of_kind[ddl_effect.VIEW]),
        _sorted(of_kind[ddl_effect.SEQUENCE]),
    )


def _sorted(sources: list[Source]) -> tuple[Source, ...]:
    return tuple(sorted(sources, key=lambda source: source.name))


def _databases(rows: list[dict[str, Any]], rules: Rules) -> list[tuple[str, str]]:
    if not rules.sync_ddl:
        return []
    names = sorted(row["value"]["name"] for row in rows if row["key"].startswith("database/"))
    return [
        (name, rules.router.route(name, "")[0])
        for name in names
        if not is_system_schema(name) and rules.allows(name)
    ]


def _source(tracked: Tracked, tracker: SchemaTracker, translator: Translator) -> Source | None:
    """None for what does not replicate."""
    rules = translator.rules
    if is_mark_table(tracked.schema, tracked.name) or is_system_schema(tracked.schema):
        return None
    if not rules.allows(tracked.schema, tracked.name):
        return None
    plain = tracker.table_for(tracked.id, tracker.version)
    kind = ddl_effect.object_of(tracked.document)
    edit = row_edit(rules, plain)
    version = translator.placed(plain)
    return Source(
        tracked,
        version,
        kind,
        _digest(tracked, version, rules.text if edit is not None else ""),
        edit,
        copies=kind == ddl_effect.TABLE
        and INSERT not in rules.events.ignored_rows(tracked.schema, tracked.name),
        creates=translator.runs(plain, *_CREATES[kind]),
    )


def _digest(tracked: Tracked, version: TableVersion, rules: str) -> str:
    meant = replace(definition.read(tracked.document), auto_increment=0)
    text = repr((meant, version.downstream, sorted(version.left_out), rules))
    return hashlib.sha256(text.encode()).hexdigest()
