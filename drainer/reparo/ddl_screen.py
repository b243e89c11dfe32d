"""DDL screen: what a schema change of an archive comes to downstream, given filters and routes.

Out    the same Ddl: to be run, left out with the reason, with other statements in its place, or refused
Holds  the same verdicts as a Drainer's (`drainer.stream.translate.ddl_filter`). A statement whose tables
       cannot be read from it runs as it is, unless tables are routed: then it is refused
Why    `DROP TABLE a, b` is a job for each table upstream, and each has the whole text: a table that is gone
       already is no error
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import Final

from drainer.changes.ddl_effect import TABLE, DdlEffect, EffectKind, Name, effect
from drainer.changes.statement_effect import BESIDE_RENAME, Words, statement_effect
from drainer.ddl.derive.values import Route
from drainer.mysql import sql_tokens
from drainer.mysql.literal.quoting import qualified, quote_name
from drainer.mysql.sql_tokens import unquote
from drainer.stream.rules.rule_set import Rules
from drainer.stream.schema.tracker import is_system_schema
from drainer.stream.translate import ddl_filter
from drainer.txn import Ddl
from tidb_binlog.ddl_job import DdlJob

_MAY_NARROW: Final = frozenset(
    {"DROP", "MODIFY", "CHANGE", "RENAME", "CONVERT", "UNIQUE", "PRIMARY", "NOT", "CHECK", "PARTITION"}
)
"""Words of a statement about one of several tables with the same target. What the columns are, a text does
not say, nor when the others have had it."""


def screened(ddl: Ddl, rules: Rules, names: Collection[Name]) -> Ddl:
    """`names`: those of all tables as far as they are known. Raises `ConfigError` for routes that
    contradict."""
    if not rules.sync_ddl:
        return replace(ddl, skip="sync-ddl is false")
    change = statement_effect(ddl.query, ddl.schema, ddl.action)
    if change is None or not change.tables or not all(schema for schema, _ in change.tables):
        if rules.router.is_empty:
            return ddl
        return replace(ddl, refused="which tables it is about cannot be read from it, and tables are routed")
    if all(is_system_schema(schema) for schema, _ in change.tables):
        return replace(ddl, skip="system schema")
    if change.kind is EffectKind.DROP_DATABASE:
        schema = change.tables[0][0].lower()
        change = replace(
            change, inside=tuple((*name, TABLE) for name in sorted(names) if name[0].lower() == schema)
        )
    parts = list(_parts(change))
    if len(parts) > 1:
        return _joined(ddl, [_judged(ddl, part, rules, names) for part in parts])
    return _judged(ddl, change, rules, names)


def _parts(change: DdlEffect) -> Iterable[DdlEffect]:
    """A DROP of several tables is about each of them by itself."""
    if change.kind is EffectKind.DROP and len(change.tables) > 1:
        return (replace(change, tables=(name,)) for name in change.tables)
    return (change,)


def _joined(ddl: Ddl, parts: list[Ddl]) -> Ddl:
    kept = [part for part in parts if not part.skip]
    if not kept:
        return parts[0]
    refused = next((part.refused for part in kept if part.refused), "")
    about = effect(ddl.action).object.upper()
    route = {name: part for part in kept for name in part.tables}
    drops = tuple(
        f"DROP {about} IF EXISTS {qualified(*(part.targets[0] if part.targets else name)).decode()}"
        for name, part in route.items()
    )
    targets = tuple(target for part in kept for target in part.targets)
    return replace(ddl, tables=tuple(route), targets=targets, instead=drops, refused=refused)


def _judged(ddl: Ddl, change: DdlEffect, rules: Rules, names: Collection[Name]) -> Ddl:
    job = DdlJob(0, ddl.action, query=ddl.query)
    verdict = ddl_filter.judge(job, change, rules, names)
    route = rules.router.route
    targets = () if rules.router.is_empty else tuple(route(*name) for name in verdict.tables)
    judged = replace(
        ddl,
        tables=verdict.tables,
        skip=verdict.skip,
        refused=verdict.refused,
        instead=verdict.instead,
        targets=() if verdict.skip else targets,
    )
    if judged.skip or judged.refused or judged.instead:
        return judged
    others = [other for name in judged.tables for other in ddl_filter.sharing(name, rules, names)]
    words = {token.upper() for token in sql_tokens.tokens(ddl.query)}
    if others and change.kind is EffectKind.ALTER and words & _MAY_NARROW:
        which = ", ".join(".".join(name) for name in others[:3])
        return replace(
            judged,
            refused=f"rows of {which} go to the same table, and may not fit any more: skip it by a"
            " syncer.ddl-rule, and rewrite that of the table which has it last",
        )
    schema_moves = bool(ddl.schema) and not rules.router.is_empty and route(ddl.schema)[0] != ddl.schema
    if not schema_moves and all(name == target for name, target in zip(judged.tables, targets, strict=False)):
        return judged
    try:
        return replace(judged, instead=(routed_text(ddl.query, ddl.schema, route),))
    except NotRoutable as error:
        return replace(judged, refused=f"it cannot be said with the names that tables are routed to: {error}")


_OBJECTS: Final = frozenset({"TABLE", "TABLES", "SEQUENCE", "INDEX", "DATABASE", "SCHEMA"})
_BETWEEN: Final = frozenset({"TEMPORARY", "UNIQUE", "FULLTEXT", "SPATIAL", "GLOBAL"})


class NotRoutable(Exception):
    """The statement cannot be said with other names. The text says why."""


class _Names(Words):
    """Walks over tokens; notes where a table or database is named, and what is to stand there."""

    def __init__(self, query: str, schema: str, route: Route) -> None:
        super().__init__(query)
        self._query = query
        self._schema = schema
        self._route = route
        self._names: list[tuple[int, int, str]] = []  # from where to where in the query, the other name

    def text(self) -> str:
        """Walk over the statement."""
        verb = self.take()
        if verb in ("CREATE", "DROP", "ALTER"):
            self._about(verb)
        elif verb == "TRUNCATE":
            self.skip("TABLE")
            self._table()
        elif verb == "RENAME" and self.peek() in ("TABLE", "TABLES"):
            self.take()
            self._renames()
        else:
            raise NotRoutable(f"its tables are not known: it begins with {verb}")
        parts, end = [], 0
        for begin, stop, name in self._names:
            parts += [self._query[end:begin], name]
            end = stop
        return "".join(parts) + self._query[end:]

    def _about(self, verb: str) -> None:
        while self.peek() in _BETWEEN:
            self.take()
        about = self.take()
        if about not in _OBJECTS:
            raise NotRoutable(f"its tables are not known: it is about {about or 'nothing'}")
        for word in ("IF", "NOT", "EXISTS"):
            self.skip(word)
        if about in ("DATABASE", "SCHEMA"):
            self._database()
            return
        if about == "INDEX":
            while self.peek() not in ("ON", ""):
                self.take()
            self.take()
        self._table()
        while verb == "DROP" and self.skip(","):
            self._table()
        self._rest(verb)

    def _rest(self, verb: str) -> None:
        """Other tables that a CREATE or ALTER names."""
        depth, first = 0, True
        while word := self.take():
            depth += (word == "(") - (word == ")")
            is_like = verb == "CREATE" and first and (word == "LIKE" or (word == "(" and self.skip("LIKE")))
            if is_like or word == "REFERENCES":
                self._table()
            elif word == "SELECT" and verb == "CREATE":
                raise NotRoutable("its tables are not known: it has a SELECT")
            elif not depth and verb == "ALTER" and word == "RENAME" and self.peek() not in BESIDE_RENAME:
                self.skip_first("TO", "AS", "=")
                self._table()
            elif not depth and verb == "ALTER" and word == "WITH" and self.skip("TABLE"):
                self._table()
            first = False

    def _renames(self) -> None:
        self._table()
        self.skip("TO")
        self._table()
        while self.skip(","):
            self._table()
            self.skip("TO")
            self._table()

    def _name(self) -> tuple[str, int, int]:
        if self.at >= len(self.spans):
            raise NotRoutable("it ends where a name is expected")
        token, begin, end = self.spans[self.at]
        self.at += 1
        return unquote(token), begin, end

    def _database(self) -> None:
        name, begin, end = self._name()
        self._names.append((begin, end, quote_name(self._route(name, "")[0]).decode()))

    def _table(self) -> None:
        name, begin, end = self._name()
        schema = self._schema
        if self.skip("."):
            schema = name
            name, _, end = self._name()
        self._names.append((begin, end, qualified(*self._route(schema, name)).decode()))


def routed_text(query: str, schema: str, route: Route) -> str:
    """Raises `NotRoutable`."""
    return _Names(query, schema, route).text()
