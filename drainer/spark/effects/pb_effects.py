"""pb effects: what many records of a file archive do to the keys of tables, found for all of them at once.

Out    record batches of effects, as `operations` and `fold` have them, already one a key
Why    of a key that changes often only the last image is ever read; and where values stand in an event
       as they stand in an image, images are put together without a step in Python a row
Holds  the result is what `Operations` gives of the same records, up to how effects are cut into pieces. For
       records that it does not understand at once it gives None, and they are taken row by row: tables
       without a key or with another key than one whole number, values that change their form, keys that
       move, further unique keys, a definition that changes, anything that writers do not write
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from drainer.reading.archive.columns.pb_arrays import (
    Buffer,
    Events,
    Numbers,
    Spans,
    elements,
    events_of,
    names_at,
    names_of,
    numbers_of,
    shape_of,
)
from drainer.reading.archive.decode.pb_walk import EventShape, PbWalker
from drainer.reading.archive.decode.records import Piece
from drainer.spark.effects.net_effects import KeyChanges, KindImages, net_effects, number_key
from drainer.spark.effects.operations import table_id
from drainer.txn import DELETE, INSERT, UPDATE, TableVersion

_KINDS: Final = (INSERT, UPDATE, DELETE)
_NOTHING: Final = pa.scalar(b"", pa.binary())


class PbEffects:
    """`wants` and `is_one` as of `PbTable`; `before_of`: tables whose former images are needed."""

    def __init__(
        self,
        walker: PbWalker,
        number_of: Callable[[TableVersion], int],
        before_of: frozenset[int],
        wants: Callable[[str, str], bool],
        is_one: Callable[[str, str, int, int], bool],
        buckets: int,
    ) -> None:
        self._walker = walker
        self._number_of = number_of
        self._before_of = before_of
        self._wants = wants
        self._is_one = is_one
        self._buckets = buckets
        self._keys: dict[TableVersion, int | None] = {}

    def read(self, pieces: Sequence[Piece]) -> list[pa.RecordBatch] | None:
        """Effects of the records, in no order. Raises `Corruption`."""
        times = np.array([piece.commit_ts for piece in pieces], np.int64)
        if (np.diff(times) < 0).any():
            return None
        buffer, remaining = events_of(pieces)
        if remaining is None:
            return None
        batches: list[pa.RecordBatch] = []
        while len(remaining.begin):
            names = names_at(buffer.data, int(remaining.begin[0]))
            if names is None:
                return None
            head = names_of(*names)
            same = buffer.holds(remaining.begin, head)
            if not same.any():
                return None
            if self._wants(*names):
                if not self._is_one(*names, int(times[0]), int(times[-1])):
                    return None
                some = self._table(buffer, remaining.where(same), len(head), times)
                if some is None:
                    return None
                batches += some
            remaining = remaining.where(~same)
        return batches

    def _table(
        self, buffer: Buffer, of_table: Events, head: int, times: Numbers
    ) -> list[pa.RecordBatch] | None:
        kinds = buffer.at(of_table.begin + head)
        keys = np.zeros(len(kinds), np.uint64)
        parts: list[KindImages] = []
        first: EventShape | None = None
        for kind in _KINDS:
            chosen = np.flatnonzero(kinds == kind)
            if not len(chosen):
                continue
            some = of_table.where(chosen)
            event = buffer.data[int(some.begin[0]) : int(some.end[0])]
            shape = self._walker.shape(event, int(times[some.record[0]]))
            place = self._key_place(shape)
            first = first or shape
            if place is None or shape.version is not first.version:
                return None
            begins = some.begin + head + 1
            datums = elements(buffer, begins, some.end, shape_of(shape), paired=kind == UPDATE)
            if datums is None:
                return None
            unsigned = _unsigned(shape, place)
            old, new = (numbers_of(buffer, spans, unsigned=unsigned) for spans in datums[place])
            if old is None or new is None or (old != new).any():
                return None
            keys[chosen] = new
            images = functools.partial(_images, buffer, shape, [new for _, new in datums])
            parts.append(KindImages(chosen, images))
        if first is None or sum(len(part.chosen) for part in parts) != len(kinds):
            return None
        changes = KeyChanges(kinds, keys, times[of_table.record], of_table.seq, parts)
        unsigned = _unsigned(first, self._key_place(first) or 0)
        number = self._number_of(first.version)
        return list(net_effects(changes, first.version, number, self._buckets, unsigned=unsigned))

    def _key_place(self, shape: EventShape) -> int | None:
        """Place of the key's column; None if rows of this shape are not for here."""
        version = shape.version
        if version not in self._keys:
            column = None if table_id(version) in self._before_of else number_key(version)
            self._keys[version] = column.id if column is not None else None
        key = self._keys[version]
        if key is None or any(value is not None and value.datums is not None for value in shape.values):
            return None
        return next(
            (at for at, column in enumerate(shape.columns) if column is not None and column.id == key), None
        )


def _unsigned(shape: EventShape, place: int) -> bool:
    column = shape.columns[place]
    return column is not None and column.type.unsigned


def _images(buffer: Buffer, shape: EventShape, datums: Sequence[Spans], within: Numbers) -> pa.Array:
    """Images of events: of every column its id and its datum, in the order of the table."""
    places = [at for at, column in enumerate(shape.columns) if column is not None]
    places.sort(key=lambda at: shape.columns[at].offset)  # type: ignore[union-attr]
    joined: list[Any] = []
    for at in places:
        value = shape.values[at]
        assert value is not None
        spans = datums[at]
        joined += [pa.scalar(value.id, pa.binary()), buffer.cut(spans.begin[within], spans.size[within])]
    return pc.binary_join_element_wise(*joined, _NOTHING)
