"""Table filter: which databases and tables replicate.

Names are compared without regard to case. A pattern is a regular expression for the whole name (`^X$`,
not escaped: `.` and `*` keep their meaning), or with a leading `~` one that may match anywhere in it. Two
steps: if any of `replicate-do-db`, `replicate-do-table` is given, a name must match one of them; then
`ignore-table` or `ignore-schemas` takes it out again. Blanks around entries do not count.

A database itself (CREATE DATABASE) is asked for with the table name "": patterns such as `~.*` match it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from drainer.stream.rules.name_pattern import expression
from tidb_binlog.errors import ConfigError

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

    Raises `ConfigError` naming the key of an entry that is empty or no regular expression.
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
        known = self._cache.get(key)
        if known is None:
            if len(self._cache) >= 100_000:
                self._cache.clear()
            known = self._cache[key] = self._decide(schema, table)
        return known

    def _decide(self, schema: str, table: str) -> bool:
        if self._do_dbs or self._do_tables:
            wanted = _matches_pair(self._do_tables, schema, table) or _matches(self._do_dbs, schema)
            if not wanted:
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
