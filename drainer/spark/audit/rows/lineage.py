"""Lineages: which rows of which name are rows of one table, over all DDL of an archive.

In     the archive's DDL in order: commit_ts, current database, statement, names
Out    spans (name, from, to) -> lineage; whether the lineage began empty in front of our eyes
Holds  a lineage ends where rows may appear or vanish without row changes: EXCHANGE, DROP and TRUNCATE
       PARTITION, RECOVER, FLASHBACK. CREATE, TRUNCATE and DROP begin an empty one. A RENAME takes it along
Never  takes a statement that it does not understand for harmless: tables that it names begin anew, unknown

Names are compared in lower case, as TiDB does.
"""

from __future__ import annotations

import zlib
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from typing import Final

from drainer.changes.ddl_effect import TABLE, EffectKind
from drainer.changes.statement_effect import statement_effect
from tidb_binlog.late_dataclass import dataclass, field
from tidb_binlog.tso import TS_MAX, Ts

Name = tuple[str, str]

EMPTIES: Final = "empties"
DROPS: Final = "drops"
ENDS: Final = "ends"
MOVES: Final = "moves"

_WHAT: Final = {
    EffectKind.CREATE_DATABASE: EMPTIES,
    EffectKind.DROP_DATABASE: DROPS,
    EffectKind.RECOVER_DATABASE: ENDS,
    EffectKind.CREATE: EMPTIES,
    EffectKind.RESTORE: ENDS,
    EffectKind.RECOVER: ENDS,
    EffectKind.DROP: DROPS,
    EffectKind.TRUNCATE: EMPTIES,
    EffectKind.EXCHANGE: ENDS,
    EffectKind.REWIND: ENDS,
}
"""What becomes of rows by the kind of a DDL; by the others nothing, or what their parts do."""


@dataclass(frozen=True, slots=True)
class Statement:
    """One DDL of the archive. `tables` are names that it touches, as far as they are known."""

    commit_ts: Ts
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
    first_ts: Ts
    last_ts: Ts
    lineage: int


@dataclass(frozen=True, slots=True)
class Lineage:
    """`born_ts`: it was empty then; None where that was before the archive, or is not known. `gone`: no table
    has the name any more."""

    number: int
    born_ts: Ts | None
    reason: str
    gone: bool = False


# -- statements -----------------------------------------------------------------------------------------


def lower(name: Name) -> Name:
    return name[0].lower(), name[1].lower()


def effects(statement: Statement) -> list[TableEffect]:
    """What a DDL does to rows without row changes; [] for nothing."""
    done = statement_effect(statement.query, statement.schema, statement.action)
    named = [name for name in statement.tables if name[1]]
    if done is None:
        return [TableEffect(ENDS, lower(name)) for name in statement.tables or ((statement.schema, ""),)]
    if done.object != TABLE:
        return []
    names = list(done.tables)
    if done.kind in (EffectKind.RECOVER, EffectKind.REWIND):
        names = names or named or [("", "")]  # a cluster, or a table named by its job
    elif done.replaces_rows and done.kind in (EffectKind.ALTER, EffectKind.EXCHANGE):
        names += named
    what = _WHAT.get(done.kind) or (ENDS if done.replaces_rows else "")
    table_effects = [TableEffect(what, lower(name)) for name in names] if what else []
    table_effects += [TableEffect(MOVES, lower(old), lower(new)) for old, new in done.renamed]
    return list(dict.fromkeys(table_effects))


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
        lineages = cls()
        for statement in statements:
            for effect in effects(statement):
                lineages._take(statement, effect)
        return lineages

    def _take(self, statement: Statement, effect: TableEffect) -> None:
        ts, reason = statement.commit_ts, " ".join(statement.query.split())[:120]
        gone = effect.what in (DROPS, MOVES)
        born = ts if effect.what in (EMPTIES, DROPS) else None
        schema, table = effect.name
        if effect.what == MOVES:
            # Names of one RENAME move one after the other: what counts is where they are by now.
            moved = self._history(effect.name, ts)[-1][1]
            self._begin(effect.to, ts, moved)
            self._begin(effect.name, ts, self._new(ts, reason, gone=gone))
        elif table:
            self._begin(effect.name, ts, self._new(born, reason, gone=gone))
        else:
            if schema:
                self._databases.setdefault(schema, []).append((ts, born))
            else:
                self._everything.append(ts)
            for name in [name for name in self._since if not schema or name[0] == schema]:
                self._begin(name, ts, self._new(born, reason, gone=gone))

    def _new(self, born_ts: Ts | None, reason: str, *, gone: bool = False) -> int:
        self.lineages.append(Lineage(len(self.lineages), born_ts, reason, gone))
        return len(self.lineages) - 1

    def _begin(self, name: Name, ts: Ts, lineage: int) -> None:
        self._history(name, ts).append((ts, lineage))

    def _history(self, name: Name, before_ts: Ts) -> list[tuple[int, int]]:
        if name not in self._since:
            self._since[name] = self._first(name, before_ts)
        return self._since[name]

    def _first(self, name: Name, before_ts: Ts) -> list[tuple[int, int]]:
        """What a name that is met for the first time was until then."""
        history = [(-1, self._new(None, "before the archive"))]
        schema = [(ts, born) for ts, born in self._databases.get(name[0], ()) if ts < before_ts]
        for ts, born in sorted([*schema, *((ts, None) for ts in self._everything if ts < before_ts)]):
            history.append((ts, self._new(born, "database")))
        return history

    def lineage_at(self, name: Name, ts: Ts) -> Lineage:
        """Of rows of a name with this commit_ts."""
        since = self._history(lower(name), TS_MAX)
        at = bisect_right(since, ts - 1, key=lambda begin: begin[0])
        return self.lineages[since[at - 1][1]]

    @property
    def names(self) -> list[Name]:
        """Names that some DDL touched, in lower case."""
        return sorted(self._since)

    def spans(self, names: Iterable[Name]) -> list[Span]:
        """Spans of names, in order."""
        spans = []
        for name in names:
            self.lineage_at(name, TS_MAX)
            since: Sequence[tuple[int, int]] = self._since[lower(name)]
            ends = [*(ts for ts, _ in since[1:]), TS_MAX]
            spans += [
                Span(name, ts, end, lineage)
                for (ts, lineage), end in zip(since, ends, strict=True)
                if ts < end
            ]
        return spans


class LineageOf:
    """Which lineage a row belongs to, by the name in its change; of names without spans each has its own, a
    negative one."""

    def __init__(self, spans: Iterable[Span]) -> None:
        self._spans: dict[Name, list[Span]] = {}
        for span in spans:
            self._spans.setdefault(span.name, []).append(span)
        # By name as rows have it: ends of spans, their lineages, the one without a span.
        self._by_name: dict[Name, tuple[list[Ts], list[int], int]] = {}

    def at(self, name: Name, commit_ts: Ts) -> int:
        """A number, the same in every task."""
        ends, lineages, unnamed = self._by_name.get(name) or self._prepare(name)
        # A span has its last timestamp, and not its first.
        place = bisect_left(ends, commit_ts)
        return lineages[place] if place < len(ends) else unnamed

    def _prepare(self, name: Name) -> tuple[list[Ts], list[int], int]:
        """Spans follow each other without gaps."""
        spans = self._spans.get(lower(name), ())
        schema, table = (part.encode() for part in lower(name))
        unnamed = -1 - (zlib.crc32(schema) << 31 ^ zlib.crc32(table))
        of_name = [span.last_ts for span in spans], [span.lineage for span in spans], unnamed
        self._by_name[name] = of_name
        return of_name
