"""Changelog: the form of a table that changes are appended to, and its batches.

    _commit_ts    int64    commit_ts of the transaction upstream
    _seq          int32    place of the row among all rows of the transaction
    _kind         string   insert, update or delete; snapshot: the row stood there at _commit_ts
    before        struct   the row before, null for an insert
    after         struct   the row after, null for a delete
    _invalid      string   what a column cannot hold (a zero date), null there: JSON, {"after.d": "text"}

Out    Arrow batches in the order of the rows, all with the columns of the changelog
Tests  tests/drainer/lake/test_changelog.py
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

import pyarrow as pa

from drainer.changes.row_reader import KINDS
from drainer.lake.evolution import LakeColumn, lake_type
from drainer.reading.archive.columns.column_types import arrow_type
from drainer.reading.archive.decode.records import Row
from drainer.reading.archive.views.changes import ImageSide
from drainer.txn import TableVersion

SNAPSHOT: Final = "snapshot"
ROWS_MAX: Final = 10_000
_SIDES: Final = (("before", 2), ("after", 3))


class Change(NamedTuple):
    """A row with its place in the stream."""

    commit_ts: int
    seq: int
    row: Row
    is_snapshot: bool = False


def columns_of(version: TableVersion) -> tuple[LakeColumn, ...]:
    """The columns of a table version that are written, in their order."""
    ordered = sorted(version.info.columns, key=lambda column: column.offset)
    return tuple(
        LakeColumn(column.name, column.id, lake_type(arrow_type(column.type)))
        for column in ordered
        if column.is_writable and column.id not in version.left_out
    )


def schema_of(columns: Mapping[str, pa.DataType]) -> pa.Schema:
    """The schema of a changelog with these columns in its images."""
    image = pa.struct(list(columns.items()))
    return pa.schema(
        [
            pa.field("_commit_ts", pa.int64(), nullable=False),
            pa.field("_seq", pa.int32(), nullable=False),
            pa.field("_kind", pa.string(), nullable=False),
            pa.field("before", image),
            pa.field("after", image),
            pa.field("_invalid", pa.string()),
        ]
    )


class Changelog:
    """Makes batches of one changelog, as long as its columns are the same."""

    def __init__(self, columns: Mapping[str, pa.DataType]) -> None:
        self.schema = schema_of(columns)
        self.columns = dict(columns)
        self._names = {name.lower(): name for name in columns}
        self._sides: dict[TableVersion, list[ImageSide]] = {}

    def batches(self, changes: Iterable[Change]) -> Iterator[pa.RecordBatch]:
        """Raises `RowError` for an image that cannot be right."""
        run: list[Change] = []
        for change in changes:
            if run and (len(run) >= ROWS_MAX or change.row[0] is not run[0].row[0]):
                yield self._batch(run)
                run = []
            run.append(change)
        if run:
            yield self._batch(run)

    def _batch(self, run: list[Change]) -> pa.RecordBatch:
        version = run[0].row[0]
        rows = [change.row for change in run]
        invalid: dict[int, dict[str, Any]] = {}
        images = [self._whole(side, side.array(rows, invalid)) for side in self._sides_of(version)]
        notes = [json.dumps(invalid[at]) if at in invalid else None for at in range(len(run))]
        kinds = [SNAPSHOT] * len(run) if run[0].is_snapshot else [KINDS[row[1]] for row in rows]
        arrays = [
            pa.array([change.commit_ts for change in run], pa.int64()),
            pa.array([change.seq for change in run], pa.int32()),
            pa.array(kinds, pa.string()),
            *images,
            pa.array(notes, pa.string()),
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _sides_of(self, version: TableVersion) -> list[ImageSide]:
        sides = self._sides.get(version)
        if sides is None:
            types = [
                (column.name, self.columns[self._names[column.name.lower()]])
                for column in columns_of(version)
            ]
            arrow = pa.schema([(name, pa.struct(types)) for name, _ in _SIDES])
            sides = self._sides[version] = [ImageSide(name, at, arrow, version) for name, at in _SIDES]
        return sides

    def _whole(self, side: ImageSide, image: pa.StructArray) -> pa.StructArray:
        """With nulls for the columns that the version does not have."""
        places = {field.name.lower(): place for place, field in enumerate(side.fields)}
        arrays = [
            image.field(places[key]) if (key := name.lower()) in places else pa.nulls(len(image), kind)
            for name, kind in self.columns.items()
        ]
        fields = list(self.schema.field(side.name).type)
        return pa.StructArray.from_arrays(arrays, fields=fields, mask=image.is_null())
