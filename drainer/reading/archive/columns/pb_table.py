"""pb table: the rows of one table in an archive's records, as arrays of typed columns.

In     records; the columns that are wanted
Out    of the table's events their record, place, kind and arrays of values before and after
Holds  the result is what the walk and the readers of images give. For records that it does not understand at
       once it gives None, and they are read row by row
Tests  tests/drainer/reading/archive/test_typed_values.py
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from drainer.formats.obinlog.column import delimited
from drainer.reading.archive.columns.column_types import family_of
from drainer.reading.archive.columns.pb_arrays import array
from drainer.reading.archive.columns.pb_spans import Buffer, Element, Events, Numbers, Spans, elements, events
from drainer.reading.archive.decode.pb_walk import EventShape, PbWalker
from drainer.reading.archive.decode.records import Piece
from drainer.txn import DELETE, INSERT, UPDATE, TableVersion
from tidb_binlog.rowcodec.varint import uvarint
from tidb_binlog.table_info import Column

_KIND: Final = b"\x18"
_OLD: Final = (UPDATE, DELETE)
_NEW: Final = (INSERT, UPDATE)
BEFORE: Final = "before"
AFTER: Final = "after"


@dataclass(frozen=True, slots=True)
class TableRows:
    """Rows in their order; `columns`: arrays by side, in the order in which they were wanted."""

    record: Numbers
    seq: Numbers
    kind: Numbers
    columns: Mapping[str, list[pa.Array]]

    @staticmethod
    def without(side: str) -> int:
        """The kind of row that has no image on this side."""
        return INSERT if side == BEFORE else DELETE


_Types = dict[str, dict[int, tuple[Column, bool]]]
"""By side and place of a column: the one that it is in the events, and whether it has local times."""


class PbTable:
    """`newest`: the version whose columns are `wanted`, by side, each with its type in Arrow.

    `is_one` says whether the table has one definition from one commit_ts to another. `time_zone`: of what
    the walker says is local time.
    """

    def __init__(
        self,
        walker: PbWalker,
        newest: TableVersion,
        wanted: Mapping[str, Sequence[tuple[Column, pa.DataType]]],
        wants: Callable[[str, str], bool],
        is_one: Callable[[int, int], bool],
        kinds: Sequence[int],
        time_zone: str = "",
    ) -> None:
        self._walker = walker
        self._newest = newest
        self._wanted = wanted
        self._wants = wants
        self._is_one = is_one
        self._kinds = kinds
        self._time_zone = time_zone
        self._names = names_of(*newest.downstream)

    def read(self, pieces: Sequence[Piece]) -> TableRows | None:
        if not pieces or not self._is_one(pieces[0].commit_ts, pieces[-1].commit_ts):
            return None
        buffer = Buffer([piece.payload for piece in pieces])
        sizes = np.array([len(piece.payload) for piece in pieces], np.int64)
        ends = np.cumsum(sizes)
        begins = ends - sizes + np.array([piece.begin for piece in pieces], np.int64)
        found = events(buffer, begins, ends)
        if found is None:
            return None
        ours = buffer.holds(found.begin, self._names)
        if not ours.all() and self._is_in(buffer, found.where(~ours)):
            return None
        found = found.where(ours)
        kinds = buffer.at(found.begin + len(self._names))
        if len(self._kinds) < 3:
            chosen = np.isin(kinds, self._kinds)
            found, kinds = found.where(chosen), kinds[chosen]
        columns = self._columns(buffer, found, kinds, pieces)
        return None if columns is None else TableRows(found.record, found.seq, kinds, columns)

    def _is_in(self, buffer: Buffer, others: Events) -> bool:
        """Whether the table is among other events, under a name that is written in another way."""
        while len(others.begin):
            names = names_at(buffer.data, int(others.begin[0]))
            if names is None or self._wants(*names):
                return True
            same = buffer.holds(others.begin, names_of(*names))
            if not same.any():
                return True
            others = others.where(~same)
        return False

    def _columns(
        self, buffer: Buffer, found: Events, kinds: Numbers, pieces: Sequence[Piece]
    ) -> Mapping[str, list[pa.Array]] | None:
        count = len(found.begin)
        spans = {
            side: [Spans(np.zeros(count, np.int64), np.zeros(count, np.int64)) for _ in wanted]
            for side, wanted in self._wanted.items()
        }
        types: _Types = {side: {} for side in self._wanted}
        for kind in (INSERT, UPDATE, DELETE):
            chosen = np.flatnonzero(kinds == kind)
            if len(chosen) and not self._fill(
                buffer, found.where(chosen), chosen, kind, spans, types, pieces
            ):
                return None
        made: dict[str, list[pa.Array]] = {}
        for side, wanted in self._wanted.items():
            made[side] = []
            for place, (column, arrow) in enumerate(wanted):
                source, is_local = types[side].get(place) or (column, False)
                zone = self._time_zone if is_local else ""
                one = array(buffer, spans[side][place], source.type, arrow, zone)
                if one is None:
                    return None
                made[side].append(one)
        return made

    def _fill(
        self,
        buffer: Buffer,
        some: Events,
        chosen: Numbers,
        kind: int,
        spans: Mapping[str, list[Spans]],
        types: _Types,
        pieces: Sequence[Piece],
    ) -> bool:
        """Enter where the values of one kind of events lie."""
        first = pieces[int(some.record[0])]
        shape = self._walker.shape(buffer.data[int(some.begin[0]) : int(some.end[0])], first.commit_ts)
        begins = some.begin + len(self._names) + 1
        datums = elements(buffer, begins, some.end, shape_of(shape), paired=kind == UPDATE)
        if datums is None:
            return False
        by_name = not shape.version.id or shape.version.id != self._newest.id
        for side, at, kinds in ((BEFORE, 0, _OLD), (AFTER, 1, _NEW)):
            if kind not in kinds or side not in self._wanted:
                continue
            for place, (column, _) in enumerate(self._wanted[side]):
                source = _source(shape, column, by_name=by_name)
                if source is None:
                    return False
                mine = _read_as(shape, source)
                if types[side].setdefault(place, mine) != mine:
                    return False
                found = datums[source][at]
                spans[side][place].begin[chosen] = found.begin
                spans[side][place].size[chosen] = found.size
        return True


def together(pieces: Iterable[Piece], size_max: int) -> Iterator[list[Piece]]:
    """Records in groups of about that many bytes."""
    some: list[Piece] = []
    size = 0
    for piece in pieces:
        some.append(piece)
        size += len(piece.payload)
        if size >= size_max:
            yield some
            some, size = [], 0
    if some:
        yield some


def shape_of(shape: EventShape) -> list[Element]:
    return [
        Element(None, 0)
        if value is None
        else Element(value.prefix, 0 if value.made is not None else value.flag)
        for value in shape.values
    ]


def _source(shape: EventShape, column: Column, *, by_name: bool) -> int | None:
    """Place of a column in the events; None if rows must be read one by one."""
    for place, mine in enumerate(shape.columns):
        if mine is not None and (mine.name == column.name if by_name else mine.id == column.id):
            return place if family_of(mine.type) is family_of(column.type) else None
    return None


def _read_as(shape: EventShape, place: int) -> tuple[Column, bool]:
    column, value = shape.columns[place], shape.values[place]
    assert column is not None
    return column, value is not None and value.is_local


def names_of(schema: str, table: str) -> bytes:
    """How an event of the table begins, up to its kind."""
    return delimited(b"\n", schema.encode()) + delimited(b"\x12", table.encode()) + _KIND


def names_at(b: bytes, i: int) -> tuple[str, str] | None:
    """What an event calls its table, if it begins as writers begin it."""
    if b[i] != 10:
        return None
    size, begin = uvarint(b, i + 1)
    schema, i = b[begin : begin + size], begin + size
    if b[i] != 0x12:
        return None
    size, begin = uvarint(b, i + 1)
    return schema.decode("utf-8", "replace"), b[begin : begin + size].decode("utf-8", "replace")
