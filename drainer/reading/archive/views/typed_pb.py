"""Typed changes of a file archive: thousands of rows at once, row by row where that does not work.

Tests  tests/drainer/reading/archive/test_typed_values.py
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Final, Protocol

import numpy as np
import pyarrow as pa

from drainer.reading.archive.columns.pb_table import PbTable, TableRows, together
from drainer.reading.archive.decode import reading
from drainer.reading.archive.decode.reading import PbReader
from drainer.reading.archive.decode.records import Piece
from drainer.reading.archive.views.columns import CHANGE_TYPES, Portion, batch, commit_times, given, portions
from drainer.reading.archive.views.view import ROWS_MAX, ReadTask
from tidb_binlog.table_info import Column

BYTES: Final = 4 << 20
"""Of payloads that are taken at once."""
_NAMES: Final = [CHANGE_TYPES[kind] for kind in sorted(CHANGE_TYPES)]


class TypedSide(Protocol):
    """Before or after: the fields that are wanted and their columns."""

    name: str
    fields: list[pa.Field]
    columns: list[Column]


def batches(
    task: ReadTask, arrow: pa.Schema, sides: Sequence[TypedSide], of_rows: Callable[[Portion], pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """`of_rows` makes a batch of rows that were read one by one."""
    assert task.version is not None
    selection = task.selection
    path = task.location.path_of(task.part.name)
    reader = PbReader(task.part, selection, task.definitions, path, task.reach)
    wanted = {
        side.name: [(one, field.type) for one, field in zip(side.columns, side.fields, strict=True)]
        for side in sides
    }
    is_one = functools.partial(task.definitions.is_one, *task.version.downstream)
    kinds = selection.ops or tuple(CHANGE_TYPES)
    zone = task.part.time_zone
    table = PbTable(reader.walker, task.version, wanted, selection.wants_table, is_one, kinds, zone)
    for some in together(reading.pieces(task.location, task.part, reader, task.damage), BYTES):
        found = table.read(some)
        if found is None:
            rows = (changes for piece in some for changes in reader.changes(piece, task.damage))
            yield from map(of_rows, portions(rows))
        elif len(found.kind):
            made = _batch(task, arrow, sides, some, found)
            for begin in range(0, made.num_rows, 2 * ROWS_MAX):
                yield made.slice(begin, 2 * ROWS_MAX)


def _batch(
    task: ReadTask, arrow: pa.Schema, sides: Sequence[TypedSide], some: list[Piece], found: TableRows
) -> pa.RecordBatch:
    assert task.version is not None
    count = len(found.kind)
    commit_ts = np.array([piece.commit_ts for piece in some], np.int64)[found.record]
    positions = np.array([piece.pos for piece in some], np.int64)

    def text(value: str) -> Callable[[], pa.Array]:
        return lambda: pa.repeat(pa.scalar(value, pa.string()), count)

    schema, name = task.version.downstream
    arrays = {
        "_commit_ts": lambda: pa.array(commit_ts),
        "_commit_timestamp": lambda: commit_times(commit_ts),
        "_start_ts": lambda: pa.nulls(count, pa.int64()),
        "_seq": lambda: pa.array(found.seq),
        "_schema": text(schema),
        "_table": text(name),
        "_change_type": lambda: pa.array(_NAMES, pa.string()).take(pa.array(found.kind)),
        "_file": text(task.part.name),
        "_pos": lambda: pa.array(positions[found.record]),
        "_invalid": lambda: pa.nulls(count, pa.string()),
    }
    for side in sides:
        absent = pa.array(found.kind == found.without(side.name))
        struct = pa.StructArray.from_arrays(found.columns[side.name], fields=side.fields, mask=absent)
        arrays[side.name] = given(struct)
    return batch(arrow, arrays)
