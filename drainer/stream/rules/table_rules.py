"""Table rules: which databases, tables, columns, row events and statements replicate, under which name.

    TableFilter   `replicate-do-*`, `ignore-table`, `ignore-schemas`
    TableRouter   `table-migrate-rule.target`: the name downstream
    ColumnRules   `column-rule`: the columns that are written
    EventFilter   `binlog-filter-rule`: row events and statements that are left out, by `table-migrate-rule`

A database itself (CREATE DATABASE) is asked for with the table name "": patterns such as `~.*` match it. No
rule is an allow-list: what no rule matches keeps its name, what filters take away stays away.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

from drainer.mysql.literal.plan import compile_sql
from drainer.stream.rules.name_pattern import Source, expression
from drainer.txn import DELETE, INSERT, UPDATE
from tidb_binlog.errors import ConfigError
from tidb_binlog.late_dataclass import dataclass
from tidb_binlog.similar import similar
from tidb_binlog.table_info import FLAG_PRIMARY, Column, TableInfo

DEFAULT_IGNORE_SCHEMAS: Final = ("INFORMATION_SCHEMA", "PERFORMANCE_SCHEMA", "mysql")

Pattern = re.Pattern[str]


def compile_name(pattern: str, key: str) -> Pattern:
    """One entry of a list of names. `ConfigError` names `key` for one that is empty or no expression."""
    text = pattern.strip()
    if not text or text == "~":
        raise ConfigError(f"empty name in `{key}`", hint=f"remove the empty entry from `{key}`")
    try:
        return expression(text[1:] if text.startswith("~") else rf"^{text}\Z")
    except re.error as error:
        raise ConfigError(
            f"`{key}` has a pattern that is not a regular expression: {pattern!r}: {error}",
            hint=f"correct the entry in `{key}`; a plain name needs no `~`, a literal `*` is written `\\*`",
        ) from None


class TableFilter:
    """The four lists, compiled. Answers are cached: a cluster has few names and many questions.

    Names are compared without regard to case. A pattern is a regular expression for the whole name (`^X$`,
    not escaped: `.` and `*` keep their meaning), or with a leading `~` one that may match anywhere in it. Two
    steps: if any of `replicate-do-db`, `replicate-do-table` is given, a name must match one of them; then
    `ignore-table` or `ignore-schemas` takes it out again. Blanks around entries do not count. Raises
    `ConfigError` naming the key of an entry that is empty or no regular expression.
    """

    def __init__(
        self,
        *,
        do_db: Iterable[str] = (),
        do_table: Iterable[tuple[str, str]] = (),
        ignore_table: Iterable[tuple[str, str]] = (),
        ignore_schemas: Iterable[str] = DEFAULT_IGNORE_SCHEMAS,
    ) -> None:
        self._do_dbs = tuple(compile_name(name, "replicate-do-db") for name in do_db)
        self._do_tables = _compile_pairs(do_table, "replicate-do-table")
        self._ignore_tables = _compile_pairs(ignore_table, "ignore-table")
        self._ignore_schemas = tuple(compile_name(name, "ignore-schemas") for name in ignore_schemas)
        self._cache: dict[tuple[str, str], bool] = {}

    def allows(self, schema: str, table: str = "") -> bool:
        """Whether a table replicates; `table` "" asks for the database itself."""
        key = (schema, table)
        answer = self._cache.get(key)
        if answer is None:
            if len(self._cache) >= 100_000:
                self._cache.clear()
            answer = self._cache[key] = self._decide(schema, table)
        return answer

    def _decide(self, schema: str, table: str) -> bool:
        if self._do_dbs or self._do_tables:
            is_chosen = _matches_pair(self._do_tables, schema, table) or _matches(self._do_dbs, schema)
            if not is_chosen:
                return False
        return not (
            _matches_pair(self._ignore_tables, schema, table) or _matches(self._ignore_schemas, schema)
        )


def _compile_pairs(pairs: Iterable[tuple[str, str]], key: str) -> tuple[tuple[Pattern, Pattern], ...]:
    return tuple(
        (compile_name(db, f"{key}.db-name"), compile_name(tbl, f"{key}.tbl-name")) for db, tbl in pairs
    )


def _matches(patterns: tuple[Pattern, ...], name: str) -> bool:
    return any(pattern.search(name) for pattern in patterns)


def _matches_pair(pairs: tuple[tuple[Pattern, Pattern], ...], schema: str, table: str) -> bool:
    return any(db.search(schema) and tbl.search(table) for db, tbl in pairs)


Name = tuple[str, str]
_CACHE_MAX: Final = 100_000


@dataclass(frozen=True, slots=True)
class RouteRule:
    """One rule. `label` is how errors name it."""

    label: str
    source: Source
    schema: str
    table: str = ""


class TableRouter:
    """Several tables may go to one (shards to one table). A rule with a table pattern goes before rules for
    whole databases; a target without a table keeps the table's name. The Go drainer reads these targets for
    Oracle only; here they count for all sinks. Raises `ConfigError`, which names both, for two rules with the
    same source, and for a target without a database."""

    def __init__(self, rules: Iterable[RouteRule] = ()) -> None:
        self._rules = tuple(rules)
        self._cache: dict[Name, Name] = {}
        seen: dict[Name, RouteRule] = {}
        for rule in self._rules:
            if not rule.schema:
                raise ConfigError(f"{rule.label}: target has no schema", hint="give target.schema")
            other = seen.setdefault(rule.source.key, rule)
            if other is not rule:
                raise _ambiguous(".".join(rule.source.key), (other, rule))

    @property
    def is_empty(self) -> bool:
        """Says that every table keeps its name."""
        return not self._rules

    def route(self, schema: str, table: str = "") -> Name:
        """Downstream name; `table` "" asks for the database. `ConfigError` when rules contradict."""
        if not self._rules:
            return schema, table
        key = (schema, table)
        target = self._cache.get(key)
        if target is None:
            if len(self._cache) >= _CACHE_MAX:
                self._cache.clear()
            target = self._cache[key] = self._decide(schema, table)
        return target

    def _decide(self, schema: str, table: str) -> Name:
        matching = [rule for rule in self._rules if rule.source.matches(schema, table)]
        of_table = [rule for rule in matching if table and not rule.source.is_database]
        rules = of_table or [rule for rule in matching if rule.source.is_database]
        if len(rules) > 1:
            raise _ambiguous(f"{schema}.{table}" if table else schema, rules)
        if not rules:
            return schema, table
        return rules[0].schema, (rules[0].table or table) if table else ""


def _ambiguous(name: str, rules: Sequence[RouteRule]) -> ConfigError:
    labels = " and ".join(
        f"{rule.label} ({'.'.join(part for part in rule.source.key if part)} to"
        f" {'.'.join(part for part in (rule.schema, rule.table) if part)})"
        for rule in rules
    )
    return ConfigError(
        f"{name} is routed by more than one rule: {labels}", hint="narrow one of the source patterns"
    )


NOTHING: Final[frozenset[int]] = frozenset()


@dataclass(frozen=True, slots=True)
class ColumnRule:
    """One rule: `keep` says whether `columns` are those to write or those to leave out."""

    label: str
    schema: Pattern
    table: Pattern
    columns: tuple[Pattern, ...]
    keep: bool

    @classmethod
    def of(cls, label: str, schema: str, table: str, columns: Iterable[str], *, keep: bool) -> ColumnRule:
        """Raises `ConfigError` for an empty name or one that is no regular expression."""
        key = "columns" if keep else "ignore-columns"
        patterns = tuple(compile_name(name, f"{label}.{key}") for name in columns)
        if not patterns:
            raise ConfigError(
                f"{label}: `{key}` is empty", hint="name at least one column, or remove the rule"
            )
        names = compile_name(schema, f"{label}.db-name"), compile_name(table, f"{label}.tbl-name")
        return cls(label, *names, patterns, keep)

    def matches(self, schema: str, table: str) -> bool:
        """Says whether the rule is about a table."""
        return bool(self.schema.search(schema) and self.table.search(table))

    def leaves_out(self, column: Column) -> bool:
        """Says whether a column does not replicate."""
        named = any(pattern.search(column.name) for pattern in self.columns)
        return column.is_writable and named != self.keep


class ColumnRules:
    """Which columns are written. `columns` is the whole selection: a column added later is left out until the
    rule names it. A name that a table does not have is no error, since columns come and go and a rule may be
    about many tables. What is left out may be missing downstream, or must allow NULL or have a default."""

    def __init__(self, rules: Iterable[ColumnRule] = ()) -> None:
        self._rules = tuple(rules)

    @property
    def is_empty(self) -> bool:
        """Says that every column replicates."""
        return not self._rules

    def left_out(self, schema: str, table: str, info: TableInfo) -> frozenset[int]:
        """Ids of the columns that are not written. Raises `ConfigError`, which names rule, table and column,
        for a column of the primary key or of the key by which rows are found, and for two rules for one
        table."""
        rules = [rule for rule in self._rules if rule.matches(schema, table)]
        if not rules:
            return NOTHING
        if len(rules) > 1:
            raise ConfigError(
                f"{schema}.{table} has two column rules: {rules[0].label} and {rules[1].label}",
                hint="narrow one of them: one rule says which columns of a table are written",
            )
        out = {column.id: column for column in info.columns if rules[0].leaves_out(column)}
        if out:
            for column in _key_columns(info):
                if column.id in out:
                    raise ConfigError(
                        f"{rules[0].label} leaves out {schema}.{table}.{column.name}, a column of the key",
                        hint="rows are found by their key: keep its columns",
                    )
        return frozenset(out)


def _key_columns(info: TableInfo) -> tuple[Column, ...]:
    if info.is_view or info.is_sequence:
        return ()
    primary = tuple(column for column in info.columns if column.type.flag & FLAG_PRIMARY)
    return primary + compile_sql(info).key_columns


_ROW_EVENTS: Final = {"insert": INSERT, "update": UPDATE, "delete": DELETE}
_ALIASES: Final = {
    "create schema": "create database",
    "drop schema": "drop database",
    "alter schema": "alter database",
    "add index": "create index",
}
_GROUPS: Final = ("all", "all ddl", "all dml", "none", "none ddl", "none dml", "")
_DDL_EVENTS: Final = (
    "create database",
    "drop database",
    "alter database",
    "create table",
    "drop table",
    "truncate table",
    "rename table",
    "alter table",
    "create index",
    "drop index",
    "create view",
    "drop view",
    "add table partition",
    "drop table partition",
    "truncate table partition",
)
EVENTS: Final = (*_ROW_EVENTS, *_DDL_EVENTS, *_GROUPS, *_ALIASES)
"""Every name that `ignore-event` takes."""


@dataclass(frozen=True, slots=True)
class EventRule:
    """One `[syncer.binlog-filter-rule.<name>]`."""

    name: str
    events: tuple[str, ...] = ()
    sql: tuple[str, ...] = ()

    @classmethod
    def of(cls, name: str, events: Iterable[str], sql: Iterable[str]) -> EventRule:
        """Raises `ConfigError` for an event that does not exist or text that is no expression."""
        kinds = []
        for event in events:
            lowered = event.strip().lower()
            if lowered not in EVENTS:
                near = similar(lowered, EVENTS)
                raise ConfigError(
                    f"`binlog-filter-rule.{name}`: ignore-event has no event named {event!r}",
                    hint=f"did you mean {near!r}?" if near else f"one of {', '.join(sorted(EVENTS)[1:])}",
                )
            kinds.append(_ALIASES.get(lowered, lowered))
        patterns = tuple(sql)
        for pattern in patterns:
            try:
                expression(pattern)
            except re.error as error:
                raise ConfigError(
                    f"`binlog-filter-rule.{name}`: ignore-sql {pattern!r} is no regular expression: {error}",
                    hint="correct the expression; a literal `(` or `*` is written `\\(` or `\\*`",
                ) from None
        return cls(name, tuple(kinds), patterns)


@dataclass(frozen=True, slots=True)
class _Bound:
    """All rules of one pattern."""

    source: Source
    names: str
    events: tuple[str, ...]
    sql: re.Pattern[str] | None

    def lists(self, events: Sequence[str], group: str) -> bool:
        """Whether the list of events takes one of `events`; `group` is "ddl" or "dml"."""
        for listed in self.events:
            if listed in ("all", f"all {group}"):
                return True
            if listed in ("none", f"none {group}"):
                return False
            if listed and listed in events:
                return True
        return False


class EventFilter:
    """`bindings`: each source pattern with a rule. Raises `ConfigError`.

    Rules of the same pattern are read as one list, in order. A listed event matches itself; `all`, `all dml`
    and `all ddl` match their group; `none`, `none dml` and `none ddl` end the list. A DDL is left out when an
    event matches or any `ignore-sql` is found in its text (not anchored, in any case). Row events are removed
    one by one: ignoring `delete` keeps the inserts of the same transaction. `add`, `drop` and `truncate table
    partition` match ALTER TABLE statements, which Go's never do; `alter table` matches them in both.
    """

    def __init__(self, bindings: Iterable[tuple[Source, EventRule]] = ()) -> None:
        grouped: dict[tuple[str, str], tuple[Source, list[EventRule]]] = {}
        for source, rule in bindings:
            grouped.setdefault(source.key, (source, []))[1].append(rule)
        self._bound = tuple(_bind(source, rules) for source, rules in grouped.values())

    @property
    def is_empty(self) -> bool:
        """Says that no event is ignored."""
        return not self._bound

    def touches(self, schema: str, table: str) -> bool:
        """Whether rows or statements of a table may be left out."""
        return any(bound.source.matches(schema, table) for bound in self._bound)

    def may_ignore_ddl(self, schema: str, table: str) -> bool:
        """Whether an ALTER TABLE may be left out, and the downstream be without a column."""
        return any(
            bound.source.matches(schema, table)
            and (bound.sql is not None or bound.lists(("alter table",), "ddl"))
            for bound in self._bound
        )

    def ignored_rows(self, schema: str, table: str) -> frozenset[int]:
        """Row kinds (INSERT, UPDATE, DELETE) of a table that are left out."""
        bound_rules = [bound for bound in self._bound if bound.source.matches(schema, table)]
        return frozenset(
            kind
            for event, kind in _ROW_EVENTS.items()
            if any(bound.lists((event,), "dml") for bound in bound_rules)
        )

    def ignores_ddl(self, schema: str, table: str, events: Sequence[str], query: str) -> str:
        """Name of the rules that leave a statement out, "" if none does; `table` "" is a database."""
        for bound in self._bound:
            if bound.source.matches(schema, table) and (
                (events and bound.lists(events, "ddl")) or (bound.sql is not None and bound.sql.search(query))
            ):
                return bound.names
        return ""


def _bind(source: Source, rules: Sequence[EventRule]) -> _Bound:
    names = ", ".join(dict.fromkeys(rule.name for rule in rules))
    events = tuple(event for rule in rules for event in rule.events)
    patterns = [pattern for rule in rules for pattern in rule.sql]
    try:
        return _Bound(source, names, events, expression("|".join(patterns)) if patterns else None)
    except re.error as error:
        raise ConfigError(
            f"`binlog-filter-rule` {names}: the ignore-sql entries do not go together: {error}",
            hint="they are joined with `|`, so flags such as (?s) belong into the first one only",
        ) from None
