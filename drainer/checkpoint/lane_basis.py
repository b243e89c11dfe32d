"""Lane basis: what lane positions belong to, so that no row is dispatched by anything else than they were.

Out    how a downstream table's rows are spread, what has to be stored before a row goes out, and whether all
       lanes have to stand at one stored position first
Holds  the downstream table is the unit: all upstream tables that go there are spread alike, as widely as the
       narrowest of them allows. While positions are apart, a table's spread stays what it was
Why    a lane skips what its position covers. A row that came to another lane than before would be skipped by
       one that never had it, or applied again by one that had

Stored is one document for all (`StoredBasis`), and one for each table that rows were dispatched of since all
lanes stood at one position. A table whose first row since then comes now may be spread anyhow.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable, Mapping
from typing import Final

from drainer.mysql.literal.collation import Collation
from drainer.mysql.rows.causality import Equality, Spread, equality_upstream, lane_of_table
from drainer.mysql.rows.change import TableTarget
from tidb_binlog.errors import Corruption
from tidb_binlog.late_dataclass import dataclass, field, replace
from tidb_binlog.table_info import DECIMAL, Column

HASH_VERSION: Final = 3
"""How rows become lanes: keys, their bytes, fold ids, the hash. Any change of these is a new version.

1: tables whose target has their own name were folded by their id beside others that are routed there.
2: no table was spread by a collated key."""
_KNOWN: Final = frozenset({2, HASH_VERSION})
_NAMES: Final = {
    Spread.BY_KEY: "key",
    Spread.BY_PADDED_KEY: "padded key",
    Spread.BY_COLLATED_KEY: "collated key",
    Spread.BY_TABLE: "table",
}
_SPREADS: Final = {name: spread for spread, name in _NAMES.items()}


@dataclass(frozen=True, slots=True)
class TableSpread:
    """How rows of one downstream table are spread. `key`: its columns and their kinds, () if it is pinned.

    `collations`: labels, one a column of a collated key, "" for a binary one."""

    spread: Spread
    key: tuple[str, ...] = ()
    collations: tuple[str, ...] = ()

    @property
    def pinned(self) -> bool:
        """Says that all rows go to one lane."""
        return self.spread is Spread.BY_TABLE

    def joined(self, other: TableSpread) -> TableSpread:
        """What serves both: rows under different keys have no lane in common but the table's."""
        if self == other:
            return self
        if self.pinned or other.pinned or self.key != other.key or self.collations != other.collations:
            return PINNED
        return TableSpread(Spread.BY_PADDED_KEY, self.key)

    def to_json(self) -> str:
        """Writes what `from_json` reads."""
        document: dict[str, object] = {"spread": _NAMES[self.spread], "key": self.key}
        if self.collations:
            document["collations"] = self.collations
        return json.dumps(document)

    @classmethod
    def from_json(cls, text: str) -> TableSpread:
        """Raises `Corruption`."""
        try:
            document = json.loads(text)
            spread, key = _SPREADS[document["spread"]], tuple(map(str, document["key"]))
            return cls(spread, key, tuple(map(str, document.get("collations", ()))))
        except (ValueError, KeyError, TypeError) as error:
            raise damaged(f"spread of a table: {text[:100]!r} ({type(error).__name__})") from None


PINNED: Final = TableSpread(Spread.BY_TABLE)


def key_of(target: TableTarget) -> tuple[str, ...]:
    """The columns of a row key and their kinds: where these are equal, equal values have equal bytes."""
    index = target.sql.key_index
    return ("handle" if index is None else "index", *map(_kind, target.sql.key_columns))


def _kind(column: Column) -> str:
    kind = column.type
    digits = f"{kind.flen},{kind.decimal}" if kind.tp == DECIMAL else f"{kind.fsp}"
    text = f"{column.name.lower()} {kind.tp} {kind.charset} {kind.collate} {digits} {','.join(kind.elems)}"
    return f"{text} unsigned" if kind.unsigned else text


def spread_of(target: TableTarget) -> TableSpread:
    """As the definitions on both sides have it."""
    if target.spread is Spread.BY_TABLE:
        return PINNED
    return TableSpread(target.spread, key_of(target), _labels(target.collations))


def _labels(collations: Iterable[Collation | None]) -> tuple[str, ...]:
    return tuple("" if collation is None else collation.label for collation in collations)


def spread_as(
    target: TableTarget, spread: TableSpread, lanes: int, collations: tuple[Collation | None, ...] = ()
) -> TableTarget:
    """The target with its rows spread like that; `collations`: those of the spread, if not the target's."""
    if target.spread is spread.spread and _labels(target.collations) == spread.collations:
        return target
    assert _labels(collations) == spread.collations
    sql = target.sql if spread.pinned else target.sql.under(collations)
    lane = lane_of_table(target.fold_id, lanes)
    return replace(target, sql=sql, spread=spread.spread, lane=lane, collations=collations)


def as_version_1(target: TableTarget, lanes: int) -> TableTarget:
    """The target as releases without a stored basis had it."""
    collated = any(equality_upstream(column) is Equality.LOOSE for column in target.sql.key_columns)
    if collated or target.spread is Spread.BY_COLLATED_KEY:
        target = spread_as(target, PINNED, lanes)
    version = target.version
    if version.target != (version.schema, version.name):
        return target
    return replace(target, fold_id=version.id, lane=lane_of_table(version.id, lanes))


@dataclass(frozen=True, slots=True)
class StoredBasis:
    """What a start finds. `rules`: `rule_history`'s document. `tables` by fold id."""

    rules: str
    tables: Mapping[int, TableSpread] = field(default_factory=dict)
    hash_version: int = HASH_VERSION

    @property
    def is_known(self) -> bool:
        """Whether this release spreads rows as the one that stored it."""
        return self.hash_version in _KNOWN

    @classmethod
    def from_json(cls, header: str, tables: Mapping[int, str]) -> StoredBasis:
        """Of the document for all tables and those of each. Raises `Corruption`."""
        try:
            document = json.loads(header)
            rules, version = str(document["rules"]), int(document["hash"])
        except (ValueError, KeyError, TypeError) as error:
            raise damaged(f"{header[:100]!r} ({type(error).__name__})") from None
        if version not in _KNOWN:
            return cls(rules, {}, version)
        return cls(rules, {fold: TableSpread.from_json(text) for fold, text in tables.items()}, version)


def header_json(rules: str) -> str:
    """The document for all tables."""
    return json.dumps({"hash": HASH_VERSION, "rules": rules})


def damaged(why: str) -> Corruption:
    """Makes the error for what is stored and cannot be read."""
    return Corruption(
        f"what the lanes' positions belong to cannot be read: {why}",
        hint="read the lane_basis table beside the checkpoint; with its rows of the cluster deleted, the "
        "drainer starts as one that never had them, which is right only if all lanes stand at one position",
    )


@dataclass(frozen=True, slots=True)
class Plan:
    """What comes of targets that were asked for. `new` and `other` are to be stored before any row of theirs
    goes to a lane; with `other`, all lanes have to stand at one position, stored with it."""

    spreads: Mapping[int, TableSpread]
    new: Mapping[int, TableSpread]
    other: Mapping[int, TableSpread]


class LaneBasis:
    """`stored`: by fold id, of tables with rows dispatched since all lanes stood at one position."""

    def __init__(self, stored: Mapping[int, TableSpread] | None = None) -> None:
        self._known = dict(stored or {})
        self._found: dict[int, dict[int, TableSpread]] = {}  # by fold id and id upstream, since the start

    def of_past(self, target: TableTarget) -> TableSpread | None:
        """How rows that lanes may have had are spread; None: they are covered by every lane's position."""
        spread = self._known.get(target.fold_id)
        if spread is not None and not spread.pinned and spread.key != key_of(target):
            return None
        return spread

    def plan(self, targets: Iterable[TableTarget]) -> Plan:
        """For rows that no lane has had. Nothing is noted as stored yet."""
        folds = {}
        for target in targets:
            members = self._found.setdefault(target.fold_id, {})
            members[target.version.id] = spread_of(target)
            folds[target.fold_id] = members
        spreads = {}
        for fold_id, members in folds.items():
            spreads[fold_id] = functools.reduce(TableSpread.joined, members.values())
        new = {fold_id: spread for fold_id, spread in spreads.items() if fold_id not in self._known}
        other = {
            fold_id: spread
            for fold_id, spread in spreads.items()
            if fold_id in self._known and self._known[fold_id] != spread
        }
        return Plan(spreads, new, other)

    def stored(self, plan: Plan) -> None:
        """What the plan wanted stored is durable."""
        self._known.update(plan.new)
        self._known.update(plan.other)

    def settled(self, fold_ids: Iterable[int] | None = None) -> None:
        """All lanes stand at one position, stored, and the tables (None: all) may be others than before."""
        if fold_ids is None:
            self._known.clear()
            self._found.clear()
            return
        for fold_id in fold_ids:
            self._known.pop(fold_id, None)
            self._found.pop(fold_id, None)
