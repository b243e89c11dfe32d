"""Rule set: everything that decides what replicates and under which name, as one value that can be replaced.

Out    a name filter, an event filter, a router, column and row rules, transactions to pass over, the loopback
       channel
Never  keeps a rule that cannot be understood: `ConfigError` names the key and the rule
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from drainer.config import rule_keys
from drainer.stream.rules.name_pattern import Source, known_keys, names_tables, texts
from drainer.stream.rules.row_rule import RowRules, read_row_rules
from drainer.stream.rules.table_rules import (
    ColumnRule,
    ColumnRules,
    EventFilter,
    EventRule,
    RouteRule,
    TableFilter,
    TableRouter,
)
from drainer.txn import TableVersion
from tidb_binlog.errors import ConfigError
from tidb_binlog.late_dataclass import dataclass, field, replace
from tidb_binlog.similar import similar

if TYPE_CHECKING:  # readers have rules without a Drainer's options
    from drainer.config.options import DrainerConfig

CHECKPOINT_SCHEMA: Final = "tidb_binlog"
"""Where drainers keep their checkpoints downstream unless configured otherwise."""
RULE_FIELDS: Final = (
    "ignore_schemas",
    "replicate_do_db",
    "replicate_do_table",
    "ignore_table",
    "ignore_txn_commit_ts",
    "case_sensitive",
    "table_migrate_rule",
    "binlog_filter_rule",
    "column_rule",
    "row_rule",
    "sync_ddl",
)
"""Options that rules are made of and that may change while a drainer runs: as one set, at one commit_ts."""
FIXED_FIELDS: Final = ("loopback_control", "channel_id", "checkpoint_schema", "disjoint_shards")
"""Those that need a restart."""
MADE_OF: Final = "made_of"
"""In the text beside the options: digests of files that rules name."""


@dataclass(frozen=True, slots=True)
class Rules:
    """`channel_id` is None without loopback control. `own_schemas` (lower case) never replicate.

    `text`: what they were read from, canonical; `rule_history` makes them of it again.
    """

    names: TableFilter = field(default_factory=TableFilter)
    events: EventFilter = field(default_factory=EventFilter)
    router: TableRouter = field(default_factory=TableRouter)
    columns: ColumnRules = field(default_factory=ColumnRules)
    rows: RowRules = field(default_factory=RowRules)
    passed_over: frozenset[int] = frozenset()  # commit_ts
    sync_ddl: bool = True
    disjoint_shards: bool = False  # rows never move between tables that share a target
    channel_id: int | None = None
    own_schemas: frozenset[str] = frozenset()
    text: str = field(default="", compare=False, repr=False)

    @property
    def keep_all_as_is(self) -> bool:
        """No table is written in another way than upstream has it."""
        filters = self.events.is_empty and not self.rows.withhold_any and not self.passed_over
        return filters and self.router.is_empty and self.columns.is_empty

    def withholds(self, schema: str, table: str, *, routed: bool) -> bool:
        """Whether changes of a table, or of one that shares its target, may be left out."""
        if self.passed_over or (routed and not (self.events.is_empty and not self.rows.withhold_any)):
            return True
        return self.events.touches(schema, table) or self.rows.withholds(schema, table)

    def placed(self, table: TableVersion) -> TableVersion:
        """The table as it is written downstream: with its target and without the columns left out.

        Raises `ConfigError` for rules that contradict each other."""
        if self.keep_all_as_is:
            return table
        left_out = self.columns.left_out(table.schema, table.name, table.info)
        # With routes every table is known by its name downstream: others may be routed there.
        routed = not self.router.is_empty
        partial = self.withholds(table.schema, table.name, routed=routed)
        filtered = self.events.may_ignore_ddl(table.schema, table.name)
        if not (left_out or partial or routed or filtered):
            return table
        target = self.router.route(table.schema, table.name) if routed else None
        return replace(table, target=target, left_out=left_out, partial=partial, ddl_filtered=filtered)

    def allows(self, schema: str, table: str = "") -> bool:
        """Whether the names of a table (or, with "", of a database) replicate."""
        return schema.lower() not in self.own_schemas and self.names.allows(schema, table)


def read_rules(settings: DrainerConfig) -> Rules:
    """The rules of a configuration. Raises `ConfigError`."""
    sources = _migrate_rules(settings)
    rows = read_row_rules(settings.row_rule)
    # A row that is stored upstream would be a binlog, which moves the checkpoint, which is stored.
    has_own = settings.loopback_control or settings.has_savepoint_row
    own = {CHECKPOINT_SCHEMA, settings.checkpoint_schema.lower()} if has_own else set()
    return Rules(
        names=TableFilter(
            do_db=settings.replicate_do_db,
            do_table=name_pairs("replicate-do-table", settings.replicate_do_table),
            ignore_table=name_pairs("ignore-table", settings.ignore_table),
            ignore_schemas=settings.ignore_schemas.split(",") if settings.ignore_schemas.strip() else (),
        ),
        events=EventFilter(_bindings(sources, _event_rules(settings.binlog_filter_rule))),
        router=TableRouter(_routes(sources)),
        columns=ColumnRules(_column_rules(settings.column_rule)),
        rows=rows,
        passed_over=_timestamps(settings.ignore_txn_commit_ts),
        sync_ddl=settings.sync_ddl,
        disjoint_shards=settings.disjoint_shards,
        channel_id=settings.channel_id if settings.loopback_control else None,
        own_schemas=frozenset(own),
        text=_text(settings, rows),
    )


def _text(settings: DrainerConfig, rows: RowRules) -> str:
    fields = {name: getattr(settings, name) for name in (*RULE_FIELDS, *FIXED_FIELDS)}
    for name in ("row_rule", "disjoint_shards"):
        if not fields[name]:
            del fields[name]  # releases that do not know it read the text, too
    if rows.made_of:
        fields[MADE_OF] = rows.made_of
    return json.dumps(fields, sort_keys=True)


# -- single keys ------------------------------------------------------------------------------------------


def name_pairs(key: str, rules: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """Reads tables by name. Raises `ConfigError`."""
    for rule in rules:
        known_keys(f"`{key}`", rule, rule_keys.NAMES)
        for name, what in (("db-name", "schema"), ("tbl-name", "table")):
            if not isinstance(rule.get(name), str) or not rule[name]:
                raise ConfigError(f"empty {what} name in `{key}` config", hint=f"each rule needs {name}")
    return [(rule["db-name"], rule["tbl-name"]) for rule in rules]


def _timestamps(values: Iterable[str | int]) -> frozenset[int]:
    try:
        return frozenset(int(value) for value in values)
    except ValueError:
        raise ConfigError(
            f"`ignore-txn-commit-ts` has an entry that is no timestamp: {list(values)}",
            hint="list commit timestamps as whole numbers",
        ) from None


def _event_rules(tables: Mapping[str, Any]) -> dict[str, EventRule]:
    rules = {}
    for name, table in tables.items():
        label = f"`binlog-filter-rule.{name}`"
        if not isinstance(table, dict):
            raise ConfigError(f"{label} is not a table", hint=f"write [syncer.binlog-filter-rule.{name}]")
        known_keys(label, table, rule_keys.EVENTS)
        events = texts(label, "ignore-event", table.get("ignore-event", []))
        sql = texts(label, "ignore-sql", table.get("ignore-sql", []))
        rules[name] = EventRule.of(name, events, sql)
    return rules


@dataclass(frozen=True, slots=True)
class _Migrate:
    """One `[[syncer.table-migrate-rule]]`, read."""

    label: str
    source: Source
    target: tuple[str, str] | None
    filters: tuple[str, ...]


def _migrate_rules(settings: DrainerConfig) -> list[_Migrate]:
    migrate_rules = []
    for number, rule in enumerate(settings.table_migrate_rule, 1):
        label = f"`table-migrate-rule` {number}"
        known_keys(label, rule, rule_keys.ROUTE)
        schema, table = _place(label, "source", rule.get("source"))
        try:
            source = Source.of(schema, table, case_sensitive=settings.case_sensitive)
        except ValueError as error:
            raise ConfigError(
                f"{label}: source is no pattern: {error}", hint="`*` at the end, `?`, `[a-z]` and `[!x]` are"
            ) from None
        target = _place(label, "target", rule["target"]) if "target" in rule else None
        filters = texts(label, "binlog-filter-rule", rule.get("binlog-filter-rule", []))
        migrate_rules.append(_Migrate(label, source, target, filters))
    return migrate_rules


def _place(label: str, key: str, value: Any) -> tuple[str, str]:
    if not isinstance(value, dict):
        raise ConfigError(f"{label} has no {key}", hint=f'write {key} = {{ schema = "...", table = "..." }}')
    known_keys(f"{label}: {key}", value, ("schema", "table"))
    schema, table = value.get("schema", ""), value.get("table", "")
    if not isinstance(schema, str) or not isinstance(table, str) or not schema:
        raise ConfigError(
            f"{label}: {key} names no schema", hint=f"{key}.schema is a text; .table may be left out"
        )
    return schema, table


def _bindings(sources: Iterable[_Migrate], rules: Mapping[str, EventRule]) -> list[tuple[Source, EventRule]]:
    bindings = []
    for rule in sources:
        for name in rule.filters:
            if name not in rules:
                near = similar(name, rules)
                raise ConfigError(
                    f"{rule.label}: event filter rule name {name} not found",
                    hint=f"did you mean {near}?" if near else f"write [syncer.binlog-filter-rule.{name}]",
                )
            bindings.append((rule.source, rules[name]))
    return bindings


def _routes(sources: Iterable[_Migrate]) -> list[RouteRule]:
    return [RouteRule(rule.label, rule.source, *rule.target) for rule in sources if rule.target is not None]


def _column_rules(rules: Sequence[Mapping[str, Any]]) -> list[ColumnRule]:
    column_rules = []
    for number, rule in enumerate(rules, 1):
        label = f"`column-rule` {number}"
        known_keys(label, rule, rule_keys.COLUMNS)
        names_tables(label, rule)
        given = [key for key in ("columns", "ignore-columns") if key in rule]
        if len(given) != 1:
            raise ConfigError(
                f"{label} has {'both' if given else 'neither'} of columns and ignore-columns",
                hint="give one of them: the columns to write, or those to leave out",
            )
        columns = texts(label, given[0], rule[given[0]])
        column_rules.append(
            ColumnRule.of(label, rule["db-name"], rule["tbl-name"], columns, keep=given[0] == "columns")
        )
    return column_rules
