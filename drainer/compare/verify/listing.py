"""Listing: which tables of upstream are to be which tables downstream, by the Drainer's rules.

In     the tracked schema at the moment, the rules
Out    `Wanted`, one for each downstream table, in the order of names
Holds  the same tables, under the same names, as a Drainer with these rules writes
       (`drainer.points.load.contents`). A table of which a rule leaves out changes is no copy of
       upstream's: it is named and not compared
Tests  tests/drainer/compare/verify/test_live.py
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from drainer.compare.verify.result import Name
from drainer.compare.verify.row_source import Edited
from drainer.compare.verify.table_work import Wanted
from drainer.points.load.contents import Contents, Source
from drainer.reading.subscribe.table_choice import TablePattern
from drainer.stream.rules.rule_set import Rules
from tidb_binlog.errors import ConfigError
from tidb_binlog.table_info import SchemaState


def listing(contents: Contents, rules: Rules, selected: Sequence[TablePattern] = ()) -> list[Wanted]:
    """`selected`: patterns of names upstream; of what goes to one table all or nothing is compared.

    Raises `ConfigError` for a pattern that fits no table."""
    by_target: dict[Name, list[Source]] = {}
    for source in contents.tables:
        schema, table = source.target
        by_target.setdefault((schema.lower(), table.lower()), []).append(source)
    for pattern in selected:
        if not pattern.takes_out and not any(pattern.fits(*source.name) for source in contents.tables):
            raise ConfigError(f"{pattern.text} fits no table of the upstream", hint="see the names there")
    return [
        _wanted(sources, rules)
        for _, sources in sorted(by_target.items())
        if is_selected([source.name for source in sources], selected)
    ]


def notes(rules: Rules) -> list[str]:
    """What is to be said of any comparison under these rules."""
    if not rules.passed_over:
        return []
    return ["ignore-txn-commit-ts passes over transactions: their rows differ, or follow from later changes"]


def is_selected(names: Sequence[Name], selected: Sequence[TablePattern]) -> bool:
    """Whether tables that go to one, by their names upstream, are to be compared."""
    chosen, taken_out = (
        [any(one.fits(*name) for one in selected if one.takes_out is is_out) for name in names]
        for is_out in (False, True)
    )
    is_limited = any(not one.takes_out for one in selected)
    return (any(chosen) or not is_limited) and not all(taken_out)


def _wanted(sources: Iterable[Source], rules: Rules) -> Wanted:
    sources = list(sources)
    edited: tuple[Edited, ...] = ()
    if any(source.edit is not None for source in sources):
        edited = tuple(
            Edited(source.version, source.edit, rules.rows.of_table(*source.name)) for source in sources
        )
    return Wanted(
        tuple(source.name for source in sources),
        sources[0].target,
        frozenset(name for source in sources for name in _left_out(source)),
        next((why for source in sources if (why := _why_not(source, rules))), ""),
        edited=edited,
        published=tuple(_published(source) for source in sources),
    )


def _published(source: Source) -> frozenset[str]:
    columns = source.version.info.columns
    shown = (one for one in columns if one.state == SchemaState.PUBLIC and not one.hidden)
    return frozenset(one.name.lower() for one in shown)


def _left_out(source: Source) -> Iterable[str]:
    ids = source.version.left_out
    return [column.name.lower() for column in source.version.info.columns if column.id in ids]


def _why_not(source: Source, rules: Rules) -> str:
    if rules.events.ignored_rows(*source.name):
        return f"a binlog-filter-rule leaves out changes of {source.label}"
    return ""
