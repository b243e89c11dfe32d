"""Table route: under which name a table is written downstream (`table-migrate-rule.target`).

In     source patterns with targets
Out    (schema, table) downstream of (schema, table) upstream
Holds  a rule with a table pattern goes before rules for whole databases; two rules of the same level that
       match one table are a `ConfigError` naming both; a target without a table keeps the table's name
Why    several tables may go to one (shards to one table). A rule is no allow-list: what no rule matches
       keeps its name, what filters take away stays away

The Go drainer reads these targets for Oracle only and ignores them elsewhere; here they count for all sinks.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from drainer.stream.rules.name_pattern import Source
from tidb_binlog.errors import ConfigError

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
    """Raises `ConfigError` for two rules with the same source, or a target without a database."""

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
        return not self._rules

    def route(self, schema: str, table: str = "") -> Name:
        """Downstream name; `table` "" asks for the database. `ConfigError` when rules contradict."""
        if not self._rules:
            return schema, table
        key = (schema, table)
        known = self._cache.get(key)
        if known is None:
            if len(self._cache) >= _CACHE_MAX:
                self._cache.clear()
            known = self._cache[key] = self._decide(schema, table)
        return known

    def _decide(self, schema: str, table: str) -> Name:
        matching = [rule for rule in self._rules if rule.source.matches(schema, table)]
        of_table = [rule for rule in matching if table and not rule.source.is_database]
        found = of_table or [rule for rule in matching if rule.source.is_database]
        if len(found) > 1:
            raise _ambiguous(f"{schema}.{table}" if table else schema, found)
        if not found:
            return schema, table
        return found[0].schema, (found[0].table or table) if table else ""


def _ambiguous(name: str, rules: Sequence[RouteRule]) -> ConfigError:
    labels = " and ".join(
        f"{rule.label} ({'.'.join(part for part in rule.source.key if part)} to"
        f" {'.'.join(part for part in (rule.schema, rule.table) if part)})"
        for rule in rules
    )
    return ConfigError(
        f"{name} is routed by more than one rule: {labels}", hint="narrow one of the source patterns"
    )
