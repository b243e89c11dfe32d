"""pb effects: what many records of a file archive do to the keys of tables, found for all of them at once.

In     records, definitions by way of a walker
Out    record batches of effects, as `operations` and `fold` have them, already one a key
Why    of a key that changes often only the last image is ever read; and where values stand in an event
       as they stand in an image, images are put together without a step in Python a row
Holds  the result is what `Operations` gives of the same records, up to how effects are cut into pieces. For
       records that it does not understand at once it gives None, and they are taken row by row: tables
       without a key or with another key than one whole number, values that change their form, keys that
       move, further unique keys, a definition that changes, anything that writers do not write
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from drainer.mysql.literal.image_sql_plan import ImageSqlPlan
from drainer.mysql.literal.plan import compile_sql
from drainer.mysql.rows.change import PUT_INSERT, PUT_UPDATE, REMOVE
from drainer.reading.archive.columns.pb_arrays import (
    Buffer,
    Events,
    Numbers,
    Spans,
    elements,
    events,
    names_at,
    names_of,
    numbers_of,
    shape_of,
)
from drainer.reading.archive.decode.pb_walk import EventShape, PbWalker
from drainer.reading.archive.decode.records import Piece
from drainer.spark.effects.batches import ARROW, digit_places
from drainer.spark.effects.operations import ORDER_STEP, table_id
from drainer.txn import DELETE, INSERT, UPDATE, TableVersion
from tidb_binlog.rowcodec.row_error import UnsupportedTable
from tidb_binlog.table_info import INTEGER_TYPES

_OPERATIONS: Final = np.array([PUT_INSERT, PUT_UPDATE, REMOVE], np.int64)
_KINDS: Final = (INSERT, UPDATE, DELETE)
_NOTHING: Final = pa.scalar(b"", pa.binary())


@dataclass(frozen=True, slots=True)
class _Kind:
    """Events of one kind: which they are, and by place of their shape the datums of the new or only image."""

    shape: EventShape
    chosen: Numbers
    datums: list[Spans]


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
        buffer = Buffer([piece.payload for piece in pieces])
        sizes = np.array([len(piece.payload) for piece in pieces], np.int64)
        ends = np.cumsum(sizes)
        begins = ends - sizes + np.array([piece.begin for piece in pieces], np.int64)
        remaining = events(buffer, begins, ends)
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
        parts: list[_Kind] = []
        for kind in _KINDS:
            chosen = np.flatnonzero(kinds == kind)
            if not len(chosen):
                continue
            some = of_table.where(chosen)
            event = buffer.data[int(some.begin[0]) : int(some.end[0])]
            shape = self._walker.shape(event, int(times[some.record[0]]))
            place = self._key_place(shape)
            if place is None or (parts and shape.version is not parts[0].shape.version):
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
            parts.append(_Kind(shape, chosen, [new for _, new in datums]))
        if sum(len(part.chosen) for part in parts) != len(kinds):
            return None
        return list(self._effects(buffer, of_table, kinds, keys, times, parts))

    def _key_place(self, shape: EventShape) -> int | None:
        """Place of the key's column; None if rows of this shape are not for here."""
        version = shape.version
        if version not in self._keys:
            self._keys[version] = self._key_of(version)
        key = self._keys[version]
        if key is None or any(value is not None and value.datums is not None for value in shape.values):
            return None
        return next(
            (at for at, column in enumerate(shape.columns) if column is not None and column.id == key), None
        )

    def _key_of(self, version: TableVersion) -> int | None:
        try:
            sql = compile_sql(version.info, kind=ImageSqlPlan)
        except UnsupportedTable:
            return None
        if not sql.key_columns or not sql.key_is_literal or table_id(version) in self._before_of:
            return None
        column = sql.key_columns[0]
        return column.id if column.type.tp in INTEGER_TYPES else None

    def _effects(
        self,
        buffer: Buffer,
        of_table: Events,
        kinds: Numbers,
        keys: Numbers,
        times: Numbers,
        parts: Sequence[_Kind],
    ) -> Iterator[pa.RecordBatch]:
        """One a key: by the first and the last event of it."""
        order = np.argsort(keys, kind="stable")  # events are in their order
        in_order = keys[order]
        starts = np.flatnonzero(np.concatenate(([True], in_order[1:] != in_order[:-1])))
        stops = np.concatenate((starts[1:], [len(order)]))
        first, last = order[starts], order[stops - 1]
        births = (kinds == INSERT).astype(np.int64)
        reborn = np.add.reduceat(births[order], starts) > births[first]
        shape = parts[0].shape
        unsigned = _unsigned(shape, self._key_place(shape) or 0)
        for part in parts:
            kind = int(kinds[part.chosen[0]])
            mine = np.flatnonzero(kinds[last] == kind)
            if not len(mine):
                continue
            mine = mine[np.argsort(last[mine])]  # datums are cut out in the order of the buffer
            begun, ended = first[mine], last[mine]
            image = None
            if kind != DELETE:
                within = np.searchsorted(part.chosen, ended)
                image = _images(buffer, part, within)
            yield self._batch(
                shape.version,
                keys[ended] if unsigned else keys[ended].view(np.int64),
                (times[of_table.record[begun]], of_table.seq[begun] * ORDER_STEP + _OPERATIONS[kinds[begun]]),
                (times[of_table.record[ended]], of_table.seq[ended] * ORDER_STEP + _OPERATIONS[kinds[ended]]),
                image,
                reborn[mine],
            )

    def _batch(
        self,
        version: TableVersion,
        keys: Numbers,
        first: tuple[Numbers, Numbers],
        last: tuple[Numbers, Numbers],
        image: pa.Array | None,
        reborn: Numbers,
    ) -> pa.RecordBatch:
        count, table = len(keys), table_id(version)
        columns: list[Any] = [
            digit_places(keys, table, self._buckets),
            np.full(count, table, np.int64),
            pa.array(keys).cast(pa.string()).cast(pa.binary()),
            *first,
            pa.nulls(count, pa.binary()),
            *last,
            np.full(count, self._number_of(version), np.int64),
            pa.nulls(count, pa.binary()) if image is None else image,
            reborn,
            np.zeros(count, np.int64),
        ]
        arrays = [
            column if isinstance(column, pa.Array) else pa.array(column, field.type)
            for column, field in zip(columns, ARROW, strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=ARROW)


def _unsigned(shape: EventShape, place: int) -> bool:
    column = shape.columns[place]
    return column is not None and column.type.unsigned


def _images(buffer: Buffer, part: _Kind, within: Numbers) -> pa.Array:
    """Images of events: of every column its id and its datum, in the order of the table."""
    places = [at for at, column in enumerate(part.shape.columns) if column is not None]
    places.sort(key=lambda at: part.shape.columns[at].offset)  # type: ignore[union-attr]
    joined: list[Any] = []
    for at in places:
        value = part.shape.values[at]
        assert value is not None
        spans = part.datums[at]
        joined += [pa.scalar(value.id, pa.binary()), buffer.cut(spans.begin[within], spans.size[within])]
    return pc.binary_join_element_wise(*joined, _NOTHING)
