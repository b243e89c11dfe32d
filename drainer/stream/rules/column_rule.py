"""Column rule: which columns of a table are written (`[[syncer.column-rule]]`).

In     rules with `db-name`, `tbl-name` (as in `replicate-do-table`) and `columns` or `ignore-columns`
Out    the ids of columns that are left out of statements
Holds  a column of the primary key, or of the key by which rows are found, cannot be left out: `ConfigError`
       naming rule, table and column; so are two rules for one table
Why    `columns` is the whole selection: a column added later is left out until the rule names it. A name that
       a table does not have is no error, since columns come and go and a rule may be about many tables

The column may be missing downstream; if it is there it must allow NULL or have a default.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from drainer.mysql.literal.plan import compile_sql
from drainer.stream.rules.table_filter import Pattern, compile_name
from tidb_binlog.errors import ConfigError
from tidb_binlog.table_info import FLAG_PRIMARY, Column, TableInfo

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
        return bool(self.schema.search(schema) and self.table.search(table))

    def leaves_out(self, column: Column) -> bool:
        named = any(pattern.search(column.name) for pattern in self.columns)
        return column.is_writable and named != self.keep


class ColumnRules:
    def __init__(self, rules: Iterable[ColumnRule] = ()) -> None:
        self._rules = tuple(rules)

    @property
    def is_empty(self) -> bool:
        return not self._rules

    def left_out(self, schema: str, table: str, info: TableInfo) -> frozenset[int]:
        """Ids of the columns that are not written. Raises `ConfigError` as described above."""
        found = [rule for rule in self._rules if rule.matches(schema, table)]
        if not found:
            return NOTHING
        if len(found) > 1:
            raise ConfigError(
                f"{schema}.{table} has two column rules: {found[0].label} and {found[1].label}",
                hint="narrow one of them: one rule says which columns of a table are written",
            )
        out = {column.id: column for column in info.columns if found[0].leaves_out(column)}
        if out:
            for column in _key_columns(info):
                if column.id in out:
                    raise ConfigError(
                        f"{found[0].label} leaves out {schema}.{table}.{column.name}, a column of the key",
                        hint="rows are found by their key: keep its columns",
                    )
        return frozenset(out)


def _key_columns(info: TableInfo) -> tuple[Column, ...]:
    if info.is_view or info.is_sequence:
        return ()
    primary = tuple(column for column in info.columns if column.type.flag & FLAG_PRIMARY)
    return primary + compile_sql(info).key_columns
