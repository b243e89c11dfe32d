"""Row effects: what a stretch of transactions does to the keys of tables, found for all rows of a table at
once.

In     transactions in commit order, as the translator has them
Out    record batches of effects, as `operations` and `fold` have them; what must be taken row by row
Holds  the result is what `Operations` gives of the same rows, up to how effects are cut into pieces. Taken
       row by row are tables without a key or with another key than one whole number, those whose former
       images are needed, and stretches of a table in which a key moves or a row is not as writers make it
Why    Pumps send rows one by one; what they do is found for thousands of them
Tests  tests/spark/effects/test_row_effects.py
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Final

import numpy as np
import pyarrow as pa

from drainer.reading.archive.columns.row_arrays import RowArrays
from drainer.reading.archive.decode.definitions import Definitions
from drainer.spark.effects.net_effects import KeyChanges, KindImages, net_effects, number_key
from drainer.spark.effects.operations import table_id
from drainer.txn import DELETE, INSERT, UPDATE, TableEvents, TableVersion, Transaction
from tidb_binlog.rowcodec.row_error import UnsupportedTable
from tidb_binlog.tso import Ts

_KINDS: Final = (INSERT, UPDATE, DELETE)


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

    def read(self, items: Iterable[Transaction]) -> tuple[list[pa.RecordBatch], list[Transaction]]:
        """Effects, in no order, and the transactions that have rows that are taken one by one, with these
        alone."""
        stretches: dict[TableVersion, list[tuple[Ts, TableEvents]]] = {}
        items = list(items)
        for item in items:
            for events in item.tables:
                stretches.setdefault(events.table, []).append((item.commit_ts, events))
        batches: list[pa.RecordBatch] = []
        left: set[TableVersion] = set()
        for version, stretch in stretches.items():
            some = self._table(version, stretch)
            if some is None:
                left.add(version)
            else:
                batches += some
        return batches, list(_with(left, items)) if left else []

    def _table(
        self, version: TableVersion, stretch: list[tuple[Ts, TableEvents]]
    ) -> list[pa.RecordBatch] | None:
        arrays = self._arrays_of(version)
        if arrays is None:
            return None
        rows = [row for _, events in stretch for row in events.rows]
        counts = np.array([len(events.rows) for _, events in stretch])
        ends = np.cumsum(counts)
        ordinals = np.array([events.first_ordinal for _, events in stretch], np.int64)
        kinds = np.fromiter(
            itertools.chain.from_iterable(events.kinds for _, events in stretch), np.int64, len(rows)
        )
        keys = np.zeros(len(rows), np.uint64)
        parts: list[KindImages] = []
        for kind in _KINDS:
            chosen = np.flatnonzero(kinds == kind)
            if not len(chosen):
                continue
            read = arrays.read(kind, [rows[place] for place in chosen.tolist()])
            if read is None:
                return None
            keys[chosen] = read.keys
            parts.append(KindImages(chosen, read.images))
        if not parts:
            return []
        changes = KeyChanges(
            kinds,
            keys,
            np.repeat(np.array([ts for ts, _ in stretch], np.int64), counts),
            np.arange(len(rows)) + np.repeat(ordinals - ends + counts, counts),
            parts,
        )
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


def _with(versions: set[TableVersion], items: Iterable[Transaction]) -> Iterator[Transaction]:
    """Transactions that have rows of these, without others."""
    for item in items:
        tables = tuple(events for events in item.tables if events.table in versions)
        if tables:
            yield replace(item, tables=tables)
