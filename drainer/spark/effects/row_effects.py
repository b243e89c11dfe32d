"""Row effects: what a stretch of transactions does to the keys of tables, found for all rows of a table at
once.

In     transactions in commit order, as the translator has them, or as Pumps send them
Out    record batches of effects, as `operations` and `fold` have them; what must be taken row by row
Holds  the result is what `Operations` gives of the same rows, up to how effects are cut into pieces. Taken
       row by row are tables without a key or with another key than one whole number, those whose former
       images are needed, and stretches of a table in which a key moves or a row is not as writers make it
Why    Pumps send rows one by one; what they do is found for thousands of them
Tests  tests/spark/effects/test_row_effects.py
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Final

import numpy as np
import pyarrow as pa

from drainer.reading.archive.columns.binlog_arrays import BinlogRows, binlog_rows
from drainer.reading.archive.columns.pb_arrays import Numbers
from drainer.reading.archive.columns.row_arrays import RowArrays, RowSpans
from drainer.reading.archive.decode.definitions import Definitions
from drainer.spark.effects.net_effects import KeyChanges, KindImages, net_effects, number_key
from drainer.spark.effects.operations import table_id
from drainer.stream.pull.merged import Merged
from drainer.stream.schema.tracker import UnknownTable
from drainer.stream.translate.translator import Translator
from drainer.txn import DELETE, INSERT, UPDATE, TableEvents, TableVersion, Transaction
from tidb_binlog.late_dataclass import dataclass, replace
from tidb_binlog.rowcodec.row_error import UnsupportedTable
from tidb_binlog.tso import Ts

_KINDS: Final = (INSERT, UPDATE, DELETE)


@dataclass(frozen=True, slots=True)
class _Rows:
    """Of one table, in their order."""

    kinds: Numbers
    ts: Numbers
    seq: Numbers
    spans: RowSpans


class RowEffects:
    """`number_of`, `before_of`: as of `Operations`."""

    def __init__(
        self,
        definitions: Definitions,
        number_of: Callable[[TableVersion], int],
        before_of: frozenset[int],
        buckets: int,
    ) -> None:
        self._definitions = definitions
        self._number_of = number_of
        self._before_of = before_of
        self._buckets = buckets
        self._arrays: dict[TableVersion, RowArrays | None] = {}  # by the version of the rows

    def of_binlogs(
        self, entries: Sequence[Merged], translator: Translator
    ) -> tuple[list[pa.RecordBatch], set[TableVersion]] | None:
        """Effects, in no order, and the tables whose rows are taken one by one; None where the translator has
        to look at each binlog."""
        if translator.rules.passed_over or any(entry.spilled is not None for entry in entries):
            return None
        rows = binlog_rows([entry.payload for entry in entries])
        if rows is None:
            return None
        version, last_ts = rows.schema_version, entries[-1].commit_ts
        translator.catch_up(last_ts, version)
        ts = np.array([entry.commit_ts for entry in entries], np.int64)[rows.binlog]
        of_table: dict[TableVersion, list[int]] = {}  # several ids where it has partitions
        for number in np.unique(rows.table).tolist():
            try:
                row_filter = translator.row_filter(number, version, last_ts)
            except UnknownTable:  # it is to be said of which binlog
                return None
            if row_filter.opens and not row_filter.plain:
                return None
            if row_filter.table is not None:
                of_table.setdefault(row_filter.table, []).append(number)
        if _have_one_target(rows, of_table):
            return None
        tables = {}
        for table, numbers in of_table.items():
            chosen = np.flatnonzero(np.isin(rows.table, numbers))
            tables[table] = _Rows(
                rows.kind[chosen], ts[chosen], rows.ordinal[chosen], rows.spans.where(chosen)
            )
        return self._effects(tables)

    def read(self, items: Iterable[Transaction]) -> tuple[list[pa.RecordBatch], set[TableVersion]]:
        """The same of transactions."""
        stretches: dict[TableVersion, list[tuple[Ts, TableEvents]]] = {}
        for item in items:
            for events in item.tables:
                stretches.setdefault(events.table, []).append((item.commit_ts, events))
        return self._effects({version: _joined(stretch) for version, stretch in stretches.items()})

    def _effects(self, tables: dict[TableVersion, _Rows]) -> tuple[list[pa.RecordBatch], set[TableVersion]]:
        batches: list[pa.RecordBatch] = []
        left: set[TableVersion] = set()
        for version, rows in tables.items():
            some = self._table(version, rows)
            if some is None:
                left.add(version)
            else:
                batches += some
        return batches, left

    def _table(self, version: TableVersion, rows: _Rows) -> list[pa.RecordBatch] | None:
        arrays = self._arrays_of(version)
        if arrays is None:
            return None
        keys = np.zeros(len(rows.kinds), np.uint64)
        parts: list[KindImages] = []
        for kind in _KINDS:
            chosen = np.flatnonzero(rows.kinds == kind)
            if not len(chosen):
                continue
            read = arrays.read(kind, rows.spans.where(chosen))
            if read is None:
                return None
            keys[chosen] = read.keys
            parts.append(KindImages(chosen, read.images))
        if not parts:
            return []
        changes = KeyChanges(rows.kinds, keys, rows.ts, rows.seq, parts)
        placed = self._definitions.of_upstream(version)
        definition = self._number_of(placed)
        return list(net_effects(changes, placed, definition, self._buckets, unsigned=arrays.unsigned))

    def _arrays_of(self, version: TableVersion) -> RowArrays | None:
        if version not in self._arrays:
            placed = self._definitions.of_upstream(version)
            key = None if table_id(placed) in self._before_of else number_key(placed)
            try:
                self._arrays[version] = RowArrays(version.info, key) if key is not None else None
            except UnsupportedTable:
                self._arrays[version] = None
        return self._arrays[version]


def _joined(stretch: Sequence[tuple[Ts, TableEvents]]) -> _Rows:
    counts = np.array([len(events.rows) for _, events in stretch])
    ordinals = np.array([events.first_ordinal for _, events in stretch], np.int64)
    ends = np.cumsum(counts)
    chained = itertools.chain.from_iterable
    return _Rows(
        np.fromiter(chained(events.kinds for _, events in stretch), np.int64, int(ends[-1])),
        np.repeat(np.array([ts for ts, _ in stretch], np.int64), counts),
        np.arange(int(ends[-1])) + np.repeat(ordinals - ends + counts, counts),
        RowSpans.joined(list(chained(events.rows for _, events in stretch))),
    )


def only(versions: AbstractSet[TableVersion], items: Iterable[Transaction]) -> Iterator[Transaction]:
    """Transactions that have rows of these, without others."""
    for item in items:
        tables = tuple(events for events in item.tables if events.table in versions)
        if tables:
            yield replace(item, tables=tables)


def _have_one_target(rows: BinlogRows, of_table: Mapping[TableVersion, list[int]]) -> bool:
    """Whether a binlog has rows of several tables that are one downstream: in which order those come is the
    translator's business."""
    targets: dict[tuple[str, str], list[list[int]]] = {}
    for table, numbers in of_table.items():
        targets.setdefault(table.downstream, []).append(numbers)
    for tables in targets.values():
        if len(tables) > 1:
            binlogs = [np.unique(rows.binlog[np.isin(rows.table, numbers)]) for numbers in tables]
            if len(np.unique(np.concatenate(binlogs))) < sum(map(len, binlogs)):
                return True
    return False
