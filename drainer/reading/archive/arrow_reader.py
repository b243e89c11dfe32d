"""Arrow reader: the changes of an archive as a stream of record batches.

In     an archive as it was opened, a range, the columns that are wanted
Out    `pyarrow.RecordBatchReader`: of one table with typed images, or of any with images as JSON
Holds  a batch or two are in memory, however large the archive is. Columns that are not wanted are not made;
       "after.id" is one column of an image
Tests  tests/drainer/reading/archive/test_to_arrow.py
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

import pyarrow as pa

from drainer.reading.archive.decode.records import Record
from drainer.reading.archive.files.payload import PB
from drainer.reading.archive.files.segments import Slice
from drainer.reading.archive.views import changes, typed_changes, typed_pb
from drainer.reading.archive.views.columns import unknown_column
from drainer.reading.archive.views.view import ReadTask
from drainer.txn import TableVersion


def schema(version: TableVersion | None, columns: Sequence[str]) -> pa.Schema:
    """What there is, or only the columns that are wanted. Raises `ConfigError` for one that is not there."""
    whole = changes.COLUMNS if version is None else typed_changes.schema(version)
    if not columns:
        return whole
    images: dict[str, list[pa.Field]] = {}
    found: dict[str, pa.Field] = {}
    for column in columns:
        name, _, inner = column.partition(".")
        place = whole.get_field_index(name)
        if place < 0:
            raise unknown_column(column, whole.names)
        field = whole.field(place)
        if inner:
            among = field.type if pa.types.is_struct(field.type) else pa.struct([])
            if among.get_field_index(inner) < 0:
                raise unknown_column(column, [f"{name}.{one.name}" for one in among] or whole.names)
            fields = images.setdefault(name, [])
            fields.append(among.field(inner))
            field = pa.field(name, pa.struct(fields))
        found[name] = field
    return pa.schema(list(found.values()))


def reader(
    task: ReadTask, slices: Iterable[Slice], records: Callable[[], Iterator[Record]] | None, batch_rows: int
) -> pa.RecordBatchReader:
    """`records`: of what is in no order file by file. `batch_rows`: the most rows of a batch, 0: as they
    come."""
    found = _of_files(task, slices) if records is None else changes.of_records(task, records())
    return pa.RecordBatchReader.from_batches(task.columns, _cut(found, batch_rows))


def _of_files(task: ReadTask, slices: Iterable[Slice]) -> Iterator[pa.RecordBatch]:
    typed = None if task.version is None else typed_changes.TypedRows(task)
    for part in slices:
        one = replace(task, part=part)
        if typed is not None and part.kind == PB:
            typed.file = part.name
            yield from typed_pb.batches(one, typed.arrow, typed.sides, typed.batch)
        else:
            yield from changes.VIEW.batches(one)


def _cut(batches: Iterable[pa.RecordBatch], batch_rows: int) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for begin in range(0, batch.num_rows, batch_rows or batch.num_rows):
            yield batch.slice(begin, batch_rows or None)
