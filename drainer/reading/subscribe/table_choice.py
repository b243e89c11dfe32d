"""Table choice: which tables a program reads, as it says so, and the Drainer's rules that it gives besides.

    tables=["shop.*", "!shop.tmp_*"]      `*` any characters, `?` one, a leading `!` takes tables out again
    rules={"table-migrate-rule": [...]}   keys of [syncer] of a Drainer's configuration, with their meaning

Out    a configuration that `rule_set.read_rules` reads: one set of rules, one code that applies them
Holds  a table is read if a pattern without `!` fits it (or none is given) and none with `!` does; names are
       compared without regard to case. `shop.*` is about the database itself, too (CREATE DATABASE)
Never  passes over a key or a pattern that cannot be understood: `ConfigError` names it
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from drainer.reading.errors import NoSuchTable
from drainer.stream.rules.rule_set import RULE_FIELDS, Rules, read_rules
from drainer.stream.rules.table_rules import TableFilter
from tidb_binlog.config.declaring import Option, convert, options
from tidb_binlog.errors import ConfigError
from tidb_binlog.late_dataclass import dataclass
from tidb_binlog.similar import similar

if TYPE_CHECKING:
    from drainer.config.database_options import UpstreamOptions

_SECTION: Final = "syncer."
_FROM: Final = "syncer.from."
_FORM: Final = 'write "database.table"; `*` and `?` stand for characters, `!` in front takes tables out'


@dataclass(frozen=True, slots=True)
class TablePattern:
    """One entry of `tables`."""

    text: str
    takes_out: bool
    schema: str  # regular expressions for whole names
    table: str

    @classmethod
    def of(cls, text: object) -> TablePattern:
        """Raises `ConfigError`."""
        if not isinstance(text, str):
            raise ConfigError(f"tables has an entry that is no text: {text!r}", hint=_FORM)
        schema, dot, table = text.strip().removeprefix("!").partition(".")
        if not dot or not schema.strip() or not table.strip() or "." in table:
            raise ConfigError(f"tables has an entry that is no pattern: {text!r}", hint=_FORM)
        return cls(text, text.strip().startswith("!"), _expression(schema), _expression(table))

    def fits(self, schema: str, table: str) -> bool:
        """Tell whether a table has such a name."""
        return (
            re.fullmatch(self.schema, schema, re.IGNORECASE | re.DOTALL) is not None
            and re.fullmatch(self.table, table, re.IGNORECASE | re.DOTALL) is not None
        )


def _expression(pattern: str) -> str:
    return "".join({"*": "(?s:.)*", "?": "(?s:.)"}.get(mark, re.escape(mark)) for mark in pattern.strip())


def read_patterns(tables: Iterable[str]) -> list[TablePattern]:
    """Raises `ConfigError`."""
    if isinstance(tables, str):
        raise ConfigError(f"tables is the text {tables!r}", hint=f'give a list: tables=["{tables}"]')
    return [TablePattern.of(text) for text in tables]


def choose(patterns: Sequence[TablePattern], rules: Mapping[str, Any] | None) -> Rules:
    """The rules of a stream. Raises `ConfigError`."""
    if not rules:  # as the keys' defaults have it, without loading the Drainer's options
        do_table = [(pair["db-name"], pair["tbl-name"]) for pair in _pairs(patterns, takes_out=False)]
        ignore_table = [(pair["db-name"], pair["tbl-name"]) for pair in _pairs(patterns, takes_out=True)]
        return Rules(names=TableFilter(do_table=do_table, ignore_table=ignore_table))
    from drainer.config.options import DrainerConfig

    given = _given(rules)
    chosen = _pairs(patterns, takes_out=False)
    if chosen and (given.get("replicate_do_db") or given.get("replicate_do_table")):
        raise ConfigError(
            "both tables and rules say which tables are read",
            hint="leave out replicate-do-db and replicate-do-table, or the patterns without `!`",
        )
    if chosen:
        given["replicate_do_table"] = tuple(chosen)
    given["ignore_table"] = (
        *given.get("ignore_table", ()),
        *_pairs(patterns, takes_out=True),
    )
    return read_rules(DrainerConfig(**given))


def _pairs(patterns: Sequence[TablePattern], *, takes_out: bool) -> list[dict[str, str]]:
    return [_pair(pattern) for pattern in patterns if pattern.takes_out is takes_out]


def _pair(pattern: TablePattern) -> dict[str, str]:
    return {"db-name": rf"~\A{pattern.schema}\Z", "tbl-name": rf"~\A{pattern.table}\Z"}


def _given(rules: Mapping[str, Any]) -> dict[str, Any]:
    """Field by field of the configuration."""
    if not isinstance(rules, Mapping):
        raise ConfigError(f"rules is {rules!r}", hint="give a dict with keys of [syncer]")
    from drainer.config.options import DrainerConfig

    keys = {
        entry.key.removeprefix(_SECTION): (name, entry)
        for name, entry in options(DrainerConfig).items()
        if name in RULE_FIELDS and entry.key
    }
    return _converted("rules", "rule", rules, keys)


def read_upstream(snapshot: Mapping[str, Any]) -> UpstreamOptions:
    """Where the upstream's SQL server is, by keys of [syncer.from]. Raises `ConfigError`."""
    security = snapshot.get("security") or {} if isinstance(snapshot, Mapping) else None
    if not isinstance(security, Mapping):  # which may have a password: it is not shown
        what = "snapshot" if security is None else "security of snapshot"
        raise ConfigError(f"{what} is no dict", hint="give a dict with keys of [syncer.from]")
    from drainer.config.database_options import UpstreamOptions

    keys = {
        entry.key.removeprefix(_FROM): (name, entry)
        for name, entry in options(UpstreamOptions).items()
        if entry.key and entry.key.startswith(_FROM)
    }
    flat = {key: value for key, value in snapshot.items() if key != "security"}
    flat |= {f"security.{key}": value for key, value in security.items()}
    return UpstreamOptions(**_converted("snapshot", "key of [syncer.from]", flat, keys))


def _converted(
    where: str, what: str, given: Mapping[str, Any], keys: Mapping[str, tuple[str, Option]]
) -> dict[str, Any]:
    """Values of `keys` by the names of their fields."""
    converted: dict[str, Any] = {}
    for key, value in given.items():
        if key not in keys:
            near = similar(str(key), keys)
            hint = f"did you mean {near}?" if near else f"known: {', '.join(sorted(keys))}"
            raise ConfigError(f"{where} has a key that is no {what}: {key!r}", hint=hint)
        name, entry = keys[key]
        try:
            converted[name] = convert(entry.kind, list(value) if isinstance(value, tuple) else value)
        except ValueError as error:
            raise ConfigError(f"{where}: {key}: {error}", hint=f"correct the value of {key}") from None
    return converted


def check_exist(patterns: Sequence[TablePattern], names: Iterable[tuple[str, str]], position: int) -> None:
    """Raises `NoSuchTable` for a pattern that fits none of the tables that there are."""
    existing = list(names)
    for pattern in patterns:
        if not pattern.takes_out and not any(pattern.fits(*name) for name in existing):
            raise _missing(pattern.text, "fits no table", existing, position)


def check_typed(typed: Iterable[str], names: Iterable[tuple[str, str]], position: int) -> None:
    """The same for the names of a `row_type`, which are no patterns."""
    existing = list(names)
    shown = {".".join(name).lower() for name in existing}
    for name in typed:
        if name.lower() not in shown:
            raise _missing(name, "in row_type is no table", existing, position)


def _missing(text: str, what: str, existing: Sequence[tuple[str, str]], position: int) -> NoSuchTable:
    near = similar(text, sorted(map(".".join, existing)))
    hint = f"did you mean {near}? " if near else ""
    return NoSuchTable(
        f"{text} {what} of the upstream, which has {len(existing)}",
        position=position,
        hint=f"{hint}missing_ok=True reads tables that are made later",
    )
