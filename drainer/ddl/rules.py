"""DDL rules: what an operator may say about DDL, and which statement a rule means.

Out    `Rule`s in order, each with the words that name it; whether a rule means a statement
Holds  a rule is refused as a whole, with its number and what is wrong, before anything is started

A rule has any of `kind`, `db-name`, `tbl-name`, `sql`, all of which must hold, and an `action`:

    kind      one kind of DDL as `ADMIN SHOW DDL JOBS` calls it ("add index", also add-index, ADD_INDEX), a
              group of them (GROUPS), or a list of both
    db-name,  pattern of a name as in `replicate-do-table`, where one table of the statement must match both;
    tbl-name  a database itself has the table name ""
    sql       regular expression, found anywhere in the text, without regard to case
    action    apply, skip, rewrite (into `text`, where {db} and {table} stand for the quoted names of the
              first table concerned), stop (the drainer ends before the statement)
Tests  tests/drainer/ddl/test_policy.py
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from drainer.config import rule_keys
from drainer.stream.rules import table_rules as table_filter
from drainer.txn import Ddl
from tidb_binlog.ddl_job import ACTION_NAMES, ActionType
from tidb_binlog.errors import ConfigError
from tidb_binlog.late_dataclass import dataclass

KEY: Final = "syncer.ddl-rule"
APPLY: Final = "apply"
SKIP: Final = "skip"
REWRITE: Final = "rewrite"
STOP: Final = "stop"
ACTIONS: Final = (APPLY, SKIP, REWRITE, STOP)

GROUPS: Final[Mapping[str, frozenset[int]]] = {
    group: frozenset(action for action in ActionType if group in action.groups)
    for group in sorted({group for action in ActionType for group in action.groups})
}
"""Kinds that are often meant together. `all` is every kind, `unknown` a code that has no name here."""

_ALL: Final = "all"
_UNKNOWN: Final = "unknown"
CODES: Final = {action.words: action for action in ActionType if action}
"""Action codes by single kinds."""


def kinds() -> tuple[str, ...]:
    """Every word that `kind` may be: groups first, then single kinds."""
    return (_ALL, _UNKNOWN, *GROUPS, *sorted(CODES))


def kind_of(word: str) -> str | None:
    """The kind or group that a word means; None for none."""
    plain = " ".join(re.split(r"[\s_-]+", word.strip().lower()))
    for kind in kinds():
        if plain == " ".join(re.split(r"[\s_-]+", kind)):
            return kind
    return None


def means(kind: str, action: int) -> bool:
    """Whether a kind or group has the action code."""
    if kind == _ALL:
        return True
    if kind == _UNKNOWN:
        return action not in ACTION_NAMES
    return action in GROUPS[kind] if kind in GROUPS else CODES[kind] == action


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule; `number` counts from 1 as in the file."""

    number: int
    action: str
    kinds: tuple[str, ...] = ()
    names: tuple[table_filter.Pattern, table_filter.Pattern] | None = None
    sql: re.Pattern[str] | None = None
    text: str = ""
    words: str = ""

    def __str__(self) -> str:
        return f"ddl-rule {self.number} ({self.words})"

    def matches(self, action: int, names: Sequence[tuple[str, str]], query: str) -> bool:
        """Whether the rule means this statement."""
        if self.kinds and not any(means(kind, action) for kind in self.kinds):
            return False
        if self.names is not None:
            schema, table = self.names
            if not any(schema.search(db) and table.search(name) for db, name in names):
                return False
        return self.sql is None or self.sql.search(query) is not None

    def rewritten(self, ddl: Ddl) -> str:
        """The text to run instead."""
        schema, table = ddl.tables[0] if ddl.tables else (ddl.schema, "")
        return self.text.replace("{db}", _quoted(schema)).replace("{table}", _quoted(table))


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def parse(documents: Sequence[Mapping[str, Any]]) -> tuple[Rule, ...]:
    """The rules of a configuration. `ConfigError` names the rule and the key that is wrong."""
    return tuple(_rule(number, document) for number, document in enumerate(documents, 1))


def _rule(number: int, document: Mapping[str, Any]) -> Rule:
    words = ", ".join(f"{key} = {document[key]!r}" for key in rule_keys.DDL if key in document)
    where = f"{KEY} {number} ({words})" if words else f"{KEY} {number}"
    for key, value in document.items():
        if key not in rule_keys.DDL:
            raise ConfigError(f"{where}: unknown key {key!r}", hint="a rule has " + ", ".join(rule_keys.DDL))
        if not isinstance(value, str) and not (key == "kind" and isinstance(value, list)):
            raise ConfigError(f"{where}: {key} is not a text", hint=f'write {key} = "..."')
    action = str(document.get("action", "")).strip().lower()
    if action not in ACTIONS:
        raise ConfigError(f"{where}: action {action!r} is unknown", hint="one of " + ", ".join(ACTIONS))
    text = str(document.get("text", "")).strip()
    if (action == REWRITE) != bool(text):
        wrong = "no text to rewrite into" if action == REWRITE else f"text without a use in {action}"
        raise ConfigError(
            f"{where}: {wrong}",
            hint='text belongs to action = "rewrite", and only there',
        )
    if not any(key in document for key in ("kind", "db-name", "tbl-name", "sql")):
        raise ConfigError(f"{where}: it does not say what it means", hint='for every DDL write kind = "all"')
    return Rule(
        number=number,
        action=action,
        kinds=_kinds(document, where),
        names=_names(document, where),
        sql=_sql(document, where),
        text=text,
        words=words,
    )


def _kinds(document: Mapping[str, Any], where: str) -> tuple[str, ...]:
    given = document.get("kind", [])
    names = []
    for word in [given] if isinstance(given, str) else given:
        kind = kind_of(word) if isinstance(word, str) else None
        if kind is None:
            raise ConfigError(
                f"{where}: kind {word!r} is unknown",
                hint="one of " + ", ".join(kinds()),
            )
        names.append(kind)
    if not names and "kind" in document:
        raise ConfigError(f"{where}: kind is empty", hint="leave it out, or name a kind of DDL")
    return tuple(names)


def _names(
    document: Mapping[str, Any], where: str
) -> tuple[table_filter.Pattern, table_filter.Pattern] | None:
    if "db-name" not in document and "tbl-name" not in document:
        return None
    everything = "~.*"
    schema = table_filter.compile_name(document.get("db-name", everything), f"{where}: db-name")
    return schema, table_filter.compile_name(document.get("tbl-name", everything), f"{where}: tbl-name")


def _sql(document: Mapping[str, Any], where: str) -> re.Pattern[str] | None:
    if "sql" not in document:
        return None
    pattern = document["sql"]
    try:
        return re.compile(pattern, re.IGNORECASE | re.DOTALL)
    except re.error as error:
        raise ConfigError(
            f"{where}: sql is not a regular expression: {error}",
            hint="a bracket or a star that stands for itself needs a backslash",
        ) from None
