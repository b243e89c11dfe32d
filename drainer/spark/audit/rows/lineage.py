"""Lineages: which rows of which name are rows of one table, over all DDL of an archive.

In     the archive's DDL in order: commit_ts, current database, statement, names
Out    spans (name, from, to) -> lineage; whether the lineage began empty in front of our eyes
Holds  a lineage ends where rows may appear or vanish without row changes: EXCHANGE, DROP and TRUNCATE
       PARTITION, RECOVER, FLASHBACK. CREATE, TRUNCATE and DROP begin an empty one. A RENAME takes it along
Never  takes a statement that it does not understand for harmless: tables that it names begin anew, unknown

Names are compared in lower case, as TiDB does.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from common.ddl_job import ActionType
from common.tso import TS_MAX
from drainer.schema.sql_tokens import tokens, unquote

Name = tuple[str, str]

EMPTIES: Final = "empties"
DROPS: Final = "drops"
ENDS: Final = "ends"
MOVES: Final = "moves"

_HARMLESS: Final = frozenset({"VIEW", "INDEX", "SEQUENCE", "PLACEMENT", "RESOURCE", "USER", "POLICY"})
_NO_ROWS: Final = frozenset({"ANALYZE", "LOCK", "UNLOCK", "SET", "GRANT", "REVOKE"})
_PARTITIONS_GO: Final = frozenset({"DROP", "TRUNCATE", "EXCHANGE", "DISCARD", "IMPORT", "FIRST"})
_BESIDE_RENAME: Final = frozenset({"COLUMN", "INDEX", "KEY", "CONSTRAINT"})
_BEFORE_KIND: Final = 20


@dataclass(frozen=True, slots=True)
class Statement:
    """One DDL of the archive. `tables` are names that it touches, as far as they are known."""

    commit_ts: int
    schema: str
    query: str
    tables: tuple[Name, ...] = ()
    action: int = 0


@dataclass(frozen=True, slots=True)
class TableEffect:
    """What a statement does to the rows of names. ("db", "") is all tables of a database, ("", "") all."""

    what: str
    name: Name
    to: Name = ("", "")


@dataclass(frozen=True, slots=True)
class Span:
    """Rows of `name` with `first_ts` < commit_ts <= `last_ts` belong to `lineage`."""

    name: Name
    first_ts: int
    last_ts: int
    lineage: int


@dataclass(frozen=True, slots=True)
class Lineage:
    """`born_ts`: it was empty then; None where that was before the archive, or is not known. `gone`: no table
    has the name any more."""

    number: int
    born_ts: int | None
    reason: str
    gone: bool = False


# -- statements -----------------------------------------------------------------------------------------


class _Words:
    """Tokens of a statement, read from the front."""

    def __init__(self, query: str) -> None:
        self.all = tokens(query)
        self.at = 0

    def peek(self, ahead: int = 0) -> str:
        at = self.at + ahead
        return self.all[at].upper() if at < len(self.all) else ""

    def skip(self, *words: str) -> bool:
        """Pass over these words if they come next."""
        if all(self.peek(n) == word for n, word in enumerate(words)):
            self.at += len(words)
            return True
        return False

    def name(self, schema: str) -> Name:
        first = unquote(self.all[self.at]) if self.at < len(self.all) else ""
        self.at += 1
        if self.peek() == "." and self.at + 1 < len(self.all):
            second = unquote(self.all[self.at + 1])
            self.at += 2
            return lower((first, second))
        return lower((schema, first))


def lower(name: Name) -> Name:
    return name[0].lower(), name[1].lower()


def effects(statement: Statement) -> list[TableEffect]:
    """What a DDL does to rows without row changes; [] for nothing."""
    words, schema = _Words(statement.query), statement.schema
    if words.peek() == "USE":
        words.at += 1
        schema = words.name("")[1]
        words.skip(";")
    if not words.peek():
        return _unknown(statement, schema)
    verb = words.peek()
    words.at += 1
    if verb == "CREATE":
        return _create(words, schema, statement)
    if verb == "DROP":
        return _drop(words, schema)
    if verb == "TRUNCATE":
        words.skip("TABLE")
        return [TableEffect(EMPTIES, words.name(schema))]
    if verb == "RENAME":
        return _rename(words, schema) if words.skip("TABLE") or words.skip("TABLES") else []
    if verb == "ALTER":
        return _alter(words, schema, statement)
    if verb in ("RECOVER", "FLASHBACK"):
        return _recover(words, schema, statement)
    return [] if verb in _NO_ROWS else _unknown(statement, schema)


def _unknown(statement: Statement, schema: str) -> list[TableEffect]:
    names = statement.tables or ((schema, ""),)
    return [TableEffect(ENDS, lower(name)) for name in names]


def _kind(words: _Words) -> str:
    """Go to the kind of a CREATE or DROP and pass over it."""
    for _ in range(_BEFORE_KIND):
        word = words.peek()
        words.at += 1
        if word in ("TABLE", "TABLES", "DATABASE", "SCHEMA") or word in _HARMLESS or not word:
            return "TABLE" if word == "TABLES" else "DATABASE" if word == "SCHEMA" else word
    return ""


def _create(words: _Words, schema: str, statement: Statement) -> list[TableEffect]:
    kind = _kind(words)
    words.skip("IF", "NOT", "EXISTS")
    if kind == "TABLE":
        what = ENDS if statement.action == ActionType.CREATE_TABLES else EMPTIES
        return [TableEffect(what, words.name(schema))]
    if kind == "DATABASE":
        return [TableEffect(EMPTIES, (words.name("")[1], ""))]
    return [] if kind in _HARMLESS else _unknown(statement, schema)


def _drop(words: _Words, schema: str) -> list[TableEffect]:
    kind = _kind(words)
    words.skip("IF", "EXISTS")
    if kind == "DATABASE":
        return [TableEffect(DROPS, (words.name("")[1], ""))]
    if kind != "TABLE":
        return []
    found = [TableEffect(DROPS, words.name(schema))]
    while words.skip(","):
        found.append(TableEffect(DROPS, words.name(schema)))
    return found


def _rename(words: _Words, schema: str) -> list[TableEffect]:
    found = []
    while True:
        old = words.name(schema)
        words.skip("TO")
        found.append(TableEffect(MOVES, old, words.name(schema)))
        if not words.skip(","):
            return found


def _alter(words: _Words, schema: str, statement: Statement) -> list[TableEffect]:
    words.skip("IGNORE")
    if not words.skip("TABLE"):
        return []
    words.skip("IF", "EXISTS")
    name = words.name(schema)
    found, depth = [], 0
    while word := words.peek():
        words.at += 1
        depth += (word == "(") - (word == ")")
        if depth:
            continue
        if word == "RENAME" and words.peek() not in _BESIDE_RENAME:
            for filler in ("TO", "AS", "="):
                if words.skip(filler):
                    break
            found.append(TableEffect(MOVES, name, words.name(schema)))
        elif word in _PARTITIONS_GO and words.peek() in ("PARTITION", "TABLESPACE"):
            found.append(TableEffect(ENDS, name))
            found += [TableEffect(ENDS, lower(other)) for other in statement.tables if other[1]]
            while word == "EXCHANGE" and words.peek():
                if words.skip("WITH", "TABLE"):
                    found.append(TableEffect(ENDS, words.name(schema)))
                else:
                    words.at += 1
    return list(dict.fromkeys(found))


def _recover(words: _Words, schema: str, statement: Statement) -> list[TableEffect]:
    if words.skip("DATABASE") or words.skip("SCHEMA"):
        names = [(words.name("")[1], "")]
        if words.skip("TO"):
            names.append((words.name("")[1], ""))
        return [TableEffect(ENDS, name) for name in names]
    if words.skip("TABLE") and not words.skip("BY"):
        names = [words.name(schema)]
        while words.skip(",") or words.skip("TO"):
            names.append(words.name(schema))
        if words.peek() not in ("TIMESTAMP", "TSO") and names[0][1]:
            return [TableEffect(ENDS, name) for name in names]
    if tables := [lower(name) for name in statement.tables if name[1]]:
        return [TableEffect(ENDS, name) for name in tables]
    return [TableEffect(ENDS, ("", ""))]  # a cluster, or a table named by its job


# -- lineages -------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Lineages:
    """Every name's lineages over time. A name without DDL has one, of unknown origin, since ever."""

    lineages: list[Lineage] = field(default_factory=list)
    _since: dict[Name, list[tuple[int, int]]] = field(default_factory=dict)  # (after commit_ts, lineage)
    _everything: list[int] = field(default_factory=list)  # commit_ts after which no table is known any more
    _databases: dict[str, list[tuple[int, int | None]]] = field(default_factory=dict)

    @classmethod
    def of(cls, statements: Iterable[Statement]) -> Lineages:
        found = cls()
        for statement in statements:
            for effect in effects(statement):
                found._take(statement, effect)
        return found

    def _take(self, statement: Statement, effect: TableEffect) -> None:
        ts, reason = statement.commit_ts, " ".join(statement.query.split())[:120]
        gone = effect.what in (DROPS, MOVES)
        born = ts if effect.what in (EMPTIES, DROPS) else None
        schema, table = effect.name
        if effect.what == MOVES:
            # Names of one RENAME move one after the other: what counts is where they are by now.
            moved = self._known(effect.name, ts)[-1][1]
            self._begin(effect.to, ts, moved)
            self._begin(effect.name, ts, self._new(ts, reason, gone=gone))
        elif table:
            self._begin(effect.name, ts, self._new(born, reason, gone=gone))
        else:
            if schema:
                self._databases.setdefault(schema, []).append((ts, born))
            else:
                self._everything.append(ts)
            for name in [one for one in self._since if not schema or one[0] == schema]:
                self._begin(name, ts, self._new(born, reason, gone=gone))

    def _new(self, born_ts: int | None, reason: str, *, gone: bool = False) -> int:
        self.lineages.append(Lineage(len(self.lineages), born_ts, reason, gone))
        return len(self.lineages) - 1

    def _begin(self, name: Name, ts: int, lineage: int) -> None:
        self._known(name, ts).append((ts, lineage))

    def _known(self, name: Name, before_ts: int) -> list[tuple[int, int]]:
        if name not in self._since:
            self._since[name] = self._first(name, before_ts)
        return self._since[name]

    def _first(self, name: Name, before_ts: int) -> list[tuple[int, int]]:
        """What a name that is met for the first time was until then."""
        found = [(-1, self._new(None, "before the archive"))]
        schema = [(ts, born) for ts, born in self._databases.get(name[0], ()) if ts < before_ts]
        for ts, born in sorted([*schema, *((ts, None) for ts in self._everything if ts < before_ts)]):
            found.append((ts, self._new(born, "database")))
        return found

    def lineage_at(self, name: Name, ts: int) -> Lineage:
        """Of rows of a name with this commit_ts."""
        since = self._known(lower(name), TS_MAX)
        at = bisect_right(since, ts - 1, key=lambda one: one[0])
        return self.lineages[since[at - 1][1]]

    @property
    def names(self) -> list[Name]:
        """Names that some DDL touched, in lower case."""
        return sorted(self._since)

    def spans(self, names: Iterable[Name]) -> list[Span]:
        """Spans of names, in order."""
        found = []
        for name in names:
            self.lineage_at(name, TS_MAX)
            since: Sequence[tuple[int, int]] = self._since[lower(name)]
            ends = [*(ts for ts, _ in since[1:]), TS_MAX]
            found += [
                Span(name, ts, end, lineage)
                for (ts, lineage), end in zip(since, ends, strict=True)
                if ts < end
            ]
        return found
