"""Event filter: `binlog-filter-rule`, which kinds of row events and statements of which tables are left out.

In     rules (`ignore-event`, `ignore-sql`) bound to source patterns by `table-migrate-rule`
Out    the row kinds of a table that do not replicate; whether a DDL is left out, and by which rule
Holds  rules of the same pattern are read as one list, in order. A listed event matches itself; `all`,
       `all dml` and `all ddl` match their group; `none`, `none dml` and `none ddl` end the list. A DDL is
       left out when an event matches or any `ignore-sql` is found in its text (not anchored, in any case)
Why    row events are removed one by one: ignoring `delete` keeps the inserts of the same transaction

`add`, `drop` and `truncate table partition` match ALTER TABLE statements here. The Go drainer accepts these
names and never matches them. `alter table` matches such statements in both.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from drainer.stream.rules.name_pattern import Source, expression
from drainer.txn import DELETE, INSERT, UPDATE
from tidb_binlog.errors import ConfigError

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
        known = []
        for event in events:
            lowered = event.strip().lower()
            if lowered not in EVENTS:
                close = difflib.get_close_matches(lowered, EVENTS, n=1, cutoff=0.6)
                raise ConfigError(
                    f"`binlog-filter-rule.{name}`: ignore-event has no event named {event!r}",
                    hint=f"did you mean {close[0]!r}?"
                    if close
                    else f"one of {', '.join(sorted(EVENTS)[1:])}",
                )
            known.append(_ALIASES.get(lowered, lowered))
        patterns = tuple(sql)
        for pattern in patterns:
            try:
                expression(pattern)
            except re.error as error:
                raise ConfigError(
                    f"`binlog-filter-rule.{name}`: ignore-sql {pattern!r} is no regular expression: {error}",
                    hint="correct the expression; a literal `(` or `*` is written `\\(` or `\\*`",
                ) from None
        return cls(name, tuple(known), patterns)


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
    """`bindings`: each source pattern with a rule. Raises `ConfigError`."""

    def __init__(self, bindings: Iterable[tuple[Source, EventRule]] = ()) -> None:
        grouped: dict[tuple[str, str], tuple[Source, list[EventRule]]] = {}
        for source, rule in bindings:
            grouped.setdefault(source.key, (source, []))[1].append(rule)
        self._bound = tuple(_bind(source, rules) for source, rules in grouped.values())

    @property
    def is_empty(self) -> bool:
        return not self._bound

    def touches(self, schema: str, table: str) -> bool:
        """Whether rows or statements of a table may be left out."""
        return any(bound.source.matches(schema, table) for bound in self._bound)

    def ignored_rows(self, schema: str, table: str) -> frozenset[int]:
        """Row kinds (INSERT, UPDATE, DELETE) of a table that are left out."""
        found = [bound for bound in self._bound if bound.source.matches(schema, table)]
        return frozenset(
            kind
            for event, kind in _ROW_EVENTS.items()
            if any(bound.lists((event,), "dml") for bound in found)
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
