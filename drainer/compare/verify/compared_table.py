"""Compared table: what of a downstream table is compared with the upstream's one, or those routed to it.

Out    the pairs of columns, those that identify a row, what is not compared and why
Holds  rows are told apart by the first of these whose columns are all compared: primary key downstream,
       primary key upstream, another unique key without NULLs. Without any, rows are a multiset
Never  leaves out a column in silence: the primary key's columns must be comparable or the table is not
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from drainer.compare.verify.column_pairs import ColumnPair, NotCompared, pair
from drainer.compare.verify.result import ComparedColumn, How, Name
from drainer.mysql.literal.quoting import qualified
from drainer.mysql.rows.column_match import DownstreamTable, UniqueKey
from tidb_binlog.late_dataclass import dataclass, field, replace

UPSTREAM: Final = 0
DOWNSTREAM: Final = 1
ONLY_DOWNSTREAM: Final = "upstream has no such column"
NOT_SHOWN: Final = "the user has no right on it (GRANT SELECT), or it is not as it was published"


@dataclass(frozen=True, slots=True)
class ComparedTable:
    """`key`: places among `pairs`, () for a table without key. `not_compared`: by names downstream.

    `missing`: columns of upstream that the downstream lacks. `is_edited`: row rules make other rows of
    upstream's, so that these are not what is to be downstream.
    """

    upstream: tuple[DownstreamTable, ...]
    downstream: DownstreamTable
    pairs: tuple[ColumnPair, ...]
    key: tuple[int, ...]
    not_compared: tuple[NotCompared, ...] = ()
    missing: tuple[str, ...] = ()
    key_names: frozenset[str] = field(default_factory=frozenset)  # in lower case
    is_edited: bool = False

    @property
    def name(self) -> Name:
        return self.downstream.schema, self.downstream.name

    @property
    def label(self) -> str:
        return self.downstream.label

    @property
    def upstream_names(self) -> tuple[Name, ...]:
        return tuple((table.schema, table.name) for table in self.upstream)

    @property
    def identity(self) -> str:
        """The same in every process for a table that is compared in the same way."""
        return repr((self.upstream_names, self.name, self.pairs, self.key))

    @property
    def is_by_checksum(self) -> bool:
        """Whether both servers print every compared value alike."""
        return all(pair.texts is not None for pair in self.pairs)

    def sources(self, side: int) -> list[bytes]:
        """Quoted names of the tables of a side."""
        tables = self.upstream if side == UPSTREAM else (self.downstream,)
        return [qualified(table.schema, table.name) for table in tables]

    @property
    def columns(self) -> tuple[ComparedColumn, ...]:
        """Every column of the downstream table, for the result."""
        pairs = {pair.name: pair for pair in self.pairs}
        why = {other.name: other.why for other in self.not_compared}
        columns = []
        for column in self.downstream.columns:
            pair = pairs.get(column.name)
            how = How.NOT_COMPARED
            if pair is not None:
                how = How.CHECKSUM if pair.texts is not None else How.VALUES
            columns.append(
                ComparedColumn(
                    column.name,
                    how,
                    pair.why if pair is not None else why.get(column.name, ""),
                    is_key=column.name.lower() in self.key_names,
                    is_generated=column.generated,
                    is_unique=column.name.lower() in self._other_keys,
                    type="json" if column.checks_json else column.type,
                )
            )
        return tuple(columns)

    @property
    def only_downstream(self) -> tuple[str, ...]:
        """Columns that upstream does not have."""
        return tuple(column.name for column in self.not_compared if column.why == ONLY_DOWNSTREAM)

    @property
    def unknown(self) -> tuple[NotCompared, ...]:
        """Columns without which a table cannot be called equal."""
        return tuple(column for column in self.not_compared if not column.is_meant)

    @property
    def is_whole(self) -> bool:
        """Whether all is compared that should be equal."""
        return not self.missing and not self.unknown

    @property
    def _other_keys(self) -> set[str | None]:
        """Names in unique keys that are not the one that rows are told apart by."""
        keys = (key.columns for key in self.downstream.unique_keys)
        return {name for names in keys if names != self.key_names for name in names}


def compared_table(
    upstream: Sequence[DownstreamTable],
    downstream: DownstreamTable,
    left_out: frozenset[str] = frozenset(),
    *,
    edited: bool = False,
    published: Sequence[frozenset[str]] = (),
) -> ComparedTable | str:
    """How rows are compared, or why they cannot be. `left_out`: columns of upstream that a rule leaves out,
    in lower case. `edited`: row rules make other rows of upstream's. `published`: columns that each table
    upstream has by its definition, whatever its server shows."""
    pairs: list[ColumnPair] = []
    others: list[NotCompared] = []
    for column in downstream.columns:
        theirs = [table.column(column.name) for table in upstream]
        if column.name.lower() in left_out:
            others.append(NotCompared(column.name, "a column-rule leaves it out", True))
            continue
        if any(source is None for source in theirs):
            is_lacking = all(source is None for source in theirs)
            why = ONLY_DOWNSTREAM if is_lacking else "one of the tables upstream lacks it"
            others.append(NotCompared(column.name, why, is_lacking))
            continue
        candidates = [
            pair(source, column, (table.dialect, downstream.dialect))
            for source, table in zip(theirs, upstream, strict=True)
            if source is not None
        ]
        matched = candidates[0]
        if any(source != matched for source in candidates):
            others.append(NotCompared(column.name, "the tables upstream have different types for it"))
        elif isinstance(matched, NotCompared):
            others.append(matched)
        elif edited and matched.is_generated:
            others.append(NotCompared(column.name, "computed of what row rules leave", True))
        else:
            pairs.append(replace(matched, texts=None, why="its rows are read") if edited else matched)
    missing = tuple(
        dict.fromkeys(
            column.name
            for table in upstream
            for column in table.columns
            if downstream.column(column.name) is None and column.name.lower() not in left_out
        )
    )
    hidden = {
        name: f"{table.label} upstream does not show it: {NOT_SHOWN}"
        for table, shown in zip(upstream, published, strict=False)
        for name in sorted(shown - left_out - {column.name.lower() for column in table.columns})
    }
    others = [other for other in others if other.name.lower() not in hidden]
    others += [NotCompared(name, why) for name, why in hidden.items()]
    if not pairs:
        return "no column can be compared"
    names = [pair.name.lower() for pair in pairs]
    key = next(_keys(upstream, downstream, names), frozenset[str]())
    if not key and (lost := _uncompared_key(downstream, others)):
        return f"column {lost} of its key cannot be compared"
    return ComparedTable(
        upstream=tuple(upstream),
        downstream=downstream,
        pairs=tuple(pairs),
        key=tuple(place for place, name in enumerate(names) if name in key),
        not_compared=tuple(others),
        missing=missing,
        key_names=key,
        is_edited=edited,
    )


def _keys(
    upstream: Sequence[DownstreamTable], downstream: DownstreamTable, compared: Iterable[str]
) -> Iterator[frozenset[str]]:
    """Sets of columns that identify a row, the best first."""
    compared_names = frozenset(compared)
    tables = (downstream, *upstream[:1]) if len(upstream) == 1 else (downstream,)
    for is_primary in (True, False):
        for table in tables:
            for key in table.unique_keys:
                if (key.name.upper() == "PRIMARY") is is_primary and _identifies(key, table):
                    names = frozenset(name for name in key.columns if name is not None)
                    if names <= compared_names:
                        yield names


def _identifies(key: UniqueKey, table: DownstreamTable) -> bool:
    """No two rows have the same columns, none of which may be NULL."""
    for part in key.parts:
        column = table.column(part.column) if part.column is not None else None
        if column is None or part.length is not None or column.nullable:
            return False
    return True


def _uncompared_key(downstream: DownstreamTable, others: Iterable[NotCompared]) -> str:
    names = {column.name.lower(): column.name for column in others if column.why != ONLY_DOWNSTREAM}
    for key in downstream.unique_keys:
        if key.name.upper() == "PRIMARY":
            return next((names[name] for name in key.columns if name in names), "")
    return ""
