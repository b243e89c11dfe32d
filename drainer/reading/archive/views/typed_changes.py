"""View changes with typed columns: the rows of one table, images as structs of its columns.

Holds  the columns are those of the newest definition in the range. A value that a column cannot hold is null
       there and stands in `_invalid`, a JSON object of column ("before.d") to text; who leaves `_invalid` out
       gets an error instead
Tests  tests/drainer/reading/archive/test_typed_values.py
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from drainer.reading.archive.columns.column_types import arrow_type
from drainer.reading.archive.columns.typed_values import ImageValues, Unfit
from drainer.reading.archive.decode import reading
from drainer.reading.archive.decode.records import Record, Row
from drainer.reading.archive.files.payload import PB
from drainer.reading.archive.views import typed_pb
from drainer.reading.archive.views.columns import (
    PLACE,
    PlaceColumns,
    Portion,
    batch,
    given,
    portions,
)
from drainer.reading.archive.views.view import ReadTask
from drainer.txn import TableVersion
from tidb_binlog.errors import ConfigError, Corruption
from tidb_binlog.table_info import Column

INVALID: Final = "_invalid"
_SIDES: Final = (("before", 2), ("after", 3))
_HINT: Final = "read the table without the option table: then its rows are JSON"


def schema(version: TableVersion) -> pa.Schema:
    ordered = sorted(version.info.columns, key=lambda column: column.offset)
    image = pa.struct([(one.name, arrow_type(one.type)) for one in ordered if one.is_writable])
    sides = [pa.field(name, image) for name, _ in _SIDES]
    return pa.schema([*PLACE, *sides, pa.field(INVALID, pa.string())])


def batches(task: ReadTask) -> Iterator[pa.RecordBatch]:
    rows = TypedRows(task)
    if task.part.kind == PB:
        yield from typed_pb.batches(task, rows.arrow, rows.sides, rows.batch)
        return
    yield from map(rows.batch, portions(read(task)))


def read(task: ReadTask) -> Iterator[Record]:
    """Records of a task's part, in the order of the file. Raises `Corruption`."""
    yield from reading.read(
        task.location,
        task.part,
        task.selection,
        task.definitions,
        damage=task.damage,
        reach=task.reach,
    )


class TypedRows:
    """Batches from rows, one by one: whatever they come from, and whatever is in them."""

    def __init__(self, task: ReadTask) -> None:
        assert task.version is not None
        self.arrow = task.columns
        self.sides = [
            ImageSide(name, at, self.arrow, task.version) for name, at in _SIDES if name in self.arrow.names
        ]
        self._places = PlaceColumns()
        self.file = task.part.name

    def batch(self, portion: Portion) -> pa.RecordBatch:
        """Raises `Corruption` for a value that its column cannot hold, where `_invalid` is not asked for."""
        rows: list[Row] = []
        for changes, first, some in portion:
            self._places.add(changes, first, some)
            rows += some
        found = self._places.take()
        invalid: dict[int, dict[str, Any]] = {}
        for side in self.sides:
            found[side.name] = given(side.array(rows, invalid))
        if invalid and INVALID not in self.arrow.names:
            names = ", ".join(invalid[min(invalid)])
            raise Corruption(f"{self.file}: no value for {names}", hint=f"ask for {INVALID}, or {_HINT}")
        found[INVALID] = given(_notes(len(rows), invalid))
        return batch(self.arrow, found)


def _notes(count: int, invalid: dict[int, dict[str, Any]]) -> pa.Array:
    if not invalid:
        return pa.nulls(count, pa.string())
    return pa.array([json.dumps(invalid[row]) if row in invalid else None for row in range(count)])


class ImageSide:
    """Images before or after changes, as a struct."""

    def __init__(self, name: str, at: int, arrow: pa.Schema, newest: TableVersion) -> None:
        self.name = name
        self._at = at
        self._type = arrow.field(name).type
        self._newest = newest
        by_name = {column.name: column for column in newest.info.columns}
        self.fields = [self._type.field(place) for place in range(self._type.num_fields)]
        unknown = [field.name for field in self.fields if field.name not in by_name]
        if unknown:
            raise ConfigError(f"table {newest.name} has no column {unknown[0]!r}")
        self.columns: list[Column] = [by_name[field.name] for field in self.fields]
        self._nothing = (None,) * len(self.fields)
        self._readers: dict[TableVersion, ImageValues] = {}

    def _reader(self, version: TableVersion) -> ImageValues:
        by_name = not version.id or version.id != self._newest.id
        made = self._readers[version] = ImageValues(version.info, self.columns, by_name=by_name)
        return made

    def array(self, rows: Sequence[Row], invalid: dict[int, dict[str, Any]]) -> pa.Array:
        """`invalid` gets what columns cannot hold, by row."""
        at, readers, nothing = self._at, self._readers, self._nothing
        values: list[tuple[Any, ...]] = []
        for row in rows:
            image = row[at]
            if image is None:
                values.append(nothing)
            else:
                reader = readers.get(row[0]) or self._reader(row[0])
                values.append(reader.read(image))  # type: ignore[arg-type]
        columns: list[Sequence[Any]] = list(zip(*values, strict=True)) or []
        if any(reader.met_unfit for reader in readers.values()):
            columns = [self._noted(place, column, invalid) for place, column in enumerate(columns)]
        arrays = [self._column(place, column, invalid) for place, column in enumerate(columns)]
        absent = np.fromiter((row[at] is None for row in rows), np.bool_, len(rows))
        mask = pa.array(absent) if absent.any() else None
        return pa.StructArray.from_arrays(arrays, fields=self.fields, mask=mask)

    def _noted(self, place: int, column: Sequence[Any], invalid: dict[int, dict[str, Any]]) -> Sequence[Any]:
        kept = list(column)
        for row, value in enumerate(column):
            if isinstance(value, Unfit):
                kept[row] = None
                invalid.setdefault(row, {})[f"{self.name}.{self.fields[place].name}"] = value.text
        return kept

    def _column(self, place: int, values: Sequence[Any], invalid: dict[int, dict[str, Any]]) -> pa.Array:
        field = self.fields[place]
        try:
            return array_of(field.type, values)
        except (pa.ArrowInvalid, OverflowError):
            kept = list(values)
            for row, value in enumerate(values):
                try:
                    array_of(field.type, [value])
                except (pa.ArrowInvalid, OverflowError):
                    kept[row] = None
                    raw = isinstance(value, bytes)
                    text = {"base64": base64.b64encode(value).decode()} if raw else str(value)
                    invalid.setdefault(row, {})[f"{self.name}.{field.name}"] = text
            return array_of(field.type, kept)


def array_of(kind: pa.DataType, values: Sequence[Any]) -> pa.Array:
    """An array of a type from values that `typed_values` gives."""
    if pa.types.is_decimal(kind):
        return _decimals(kind, values)
    if pa.types.is_timestamp(kind) or pa.types.is_duration(kind):
        return pa.array(values, pa.int64()).cast(kind)
    if pa.types.is_date(kind):
        return pa.array(values, pa.int32()).cast(kind)
    return pa.array(values, kind)


def _decimals(kind: pa.DataType, values: Sequence[Any]) -> pa.Array:
    """From text, or from integers."""
    if any(isinstance(value, int) for value in values):
        return pa.array(values, pa.uint64()).cast(kind)
    return pa.array(values, pa.string()).cast(kind)
