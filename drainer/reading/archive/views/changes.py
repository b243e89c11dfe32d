"""Changes: one row a change, images as JSON, or as structs of the columns of one table; a stream of batches.

Holds  typed columns are those of the newest definition in the range. A value that a column cannot hold is
       null there and stands in `_invalid`, a JSON object of column ("before.d") to text; who leaves it out
       gets an error instead. Of a stream a batch or two are in memory, however large the archive is
Why    typed rows of a file archive are read thousands at once, row by row where that does not work
Tests  tests/drainer/reading/archive/test_typed_values.py, tests/drainer/reading/archive/test_to_arrow.py
"""

from __future__ import annotations

import base64
import functools
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
import pyarrow as pa

from drainer.reading.archive.columns.column_types import arrow_type
from drainer.reading.archive.columns.json_text import ImageText
from drainer.reading.archive.columns.pb_arrays import PbTable, TableRows, together
from drainer.reading.archive.columns.typed_values import ImageValues, Unfit
from drainer.reading.archive.decode import reading
from drainer.reading.archive.decode.reading import PbReader
from drainer.reading.archive.decode.records import Piece, Record, Row
from drainer.reading.archive.files.payload import PB
from drainer.reading.archive.files.segments import Slice
from drainer.reading.archive.views.view import (
    CHANGE_TYPES,
    PLACE,
    ROWS_MAX,
    PlaceColumns,
    Portion,
    ReadTask,
    View,
    batch,
    commit_times,
    given,
    portions,
    records_of,
    unknown_column,
)
from drainer.txn import TableVersion
from tidb_binlog.errors import ConfigError, Corruption
from tidb_binlog.table_info import Column

BYTES: Final = 4 << 20
"""Of payloads that are taken at once."""
_NAMES: Final = [CHANGE_TYPES[kind] for kind in sorted(CHANGE_TYPES)]


INVALID: Final = "_invalid"
_SIDES: Final = (("before", 2), ("after", 3))
_HINT: Final = "read the table without the option table: then its rows are JSON"


def schema(version: TableVersion) -> pa.Schema:
    """Make the schema of typed changes of a table."""
    ordered = sorted(version.info.columns, key=lambda column: column.offset)
    image = pa.struct([(column.name, arrow_type(column.type)) for column in ordered if column.is_writable])
    sides = [pa.field(name, image) for name, _ in _SIDES]
    return pa.schema([*PLACE, *sides, pa.field(INVALID, pa.string())])


class TypedRows:
    """Batches of the rows of one table, whatever they come from and whatever is in them."""

    def __init__(self, task: ReadTask) -> None:
        assert task.version is not None
        self._version = task.version
        self._arrow = task.columns
        self._sides = [
            ImageSide(name, at, self._arrow, task.version) for name, at in _SIDES if name in self._arrow.names
        ]
        self._places = PlaceColumns()

    def batches(self, task: ReadTask) -> Iterator[pa.RecordBatch]:
        """Of a file: of a file archive thousands of rows at once, row by row where that does not work."""
        if task.part.kind != PB:
            yield from map(self.batch, portions(records_of(task)))
            return
        selection = task.selection
        path = task.location.path_of(task.part.name)
        reader = PbReader(task.part, selection, task.definitions, path, task.reach)
        columns = {
            side.name: [(column, field.type) for column, field in zip(side.columns, side.fields, strict=True)]
            for side in self._sides
        }
        is_one = functools.partial(task.definitions.is_one, *self._version.downstream)
        kinds = selection.ops or tuple(CHANGE_TYPES)
        zone = task.part.time_zone
        table = PbTable(reader.walker, self._version, columns, selection.wants_table, is_one, kinds, zone)
        for some in together(reading.pieces(task.location, task.part, reader, task.damage), BYTES):
            rows = table.read(some)
            if rows is None:
                changes = (each for piece in some for each in reader.changes(piece, task.damage))
                yield from map(self.batch, portions(changes))
            elif len(rows.kind):
                whole = self._of_arrays(task.part.name, some, rows)
                for begin in range(0, whole.num_rows, 2 * ROWS_MAX):
                    yield whole.slice(begin, 2 * ROWS_MAX)

    def _of_arrays(self, file: str, some: list[Piece], rows: TableRows) -> pa.RecordBatch:
        count = len(rows.kind)
        commit_ts = np.array([piece.commit_ts for piece in some], np.int64)[rows.record]
        positions = np.array([piece.pos for piece in some], np.int64)

        def text(value: str) -> Callable[[], pa.Array]:
            return lambda: pa.repeat(pa.scalar(value, pa.string()), count)

        schema, name = self._version.downstream
        arrays = {
            "_commit_ts": lambda: pa.array(commit_ts),
            "_commit_timestamp": lambda: commit_times(commit_ts),
            "_start_ts": lambda: pa.nulls(count, pa.int64()),
            "_seq": lambda: pa.array(rows.seq),
            "_schema": text(schema),
            "_table": text(name),
            "_change_type": lambda: pa.array(_NAMES, pa.string()).take(pa.array(rows.kind)),
            "_file": text(file),
            "_pos": lambda: pa.array(positions[rows.record]),
            INVALID: lambda: pa.nulls(count, pa.string()),
        }
        for side in self._sides:
            absent = pa.array(rows.kind == rows.without(side.name))
            struct = pa.StructArray.from_arrays(rows.columns[side.name], fields=side.fields, mask=absent)
            arrays[side.name] = given(struct)
        return batch(self._arrow, arrays)

    def batch(self, portion: Portion) -> pa.RecordBatch:
        """Raises `Corruption` for a value that its column cannot hold, where `_invalid` is not asked for."""
        rows: list[Row] = []
        for changes, first, some in portion:
            self._places.add(changes, first, some)
            rows += some
        arrays = self._places.take()
        invalid: dict[int, dict[str, Any]] = {}
        for side in self._sides:
            arrays[side.name] = given(side.array(rows, invalid))
        if invalid and INVALID not in self._arrow.names:
            names = ", ".join(invalid[min(invalid)])
            raise Corruption(
                f"{portion[0][0].file}: no value for {names}", hint=f"ask for {INVALID}, or {_HINT}"
            )
        arrays[INVALID] = given(_notes(len(rows), invalid))
        return batch(self._arrow, arrays)


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
        reader = self._readers[version] = ImageValues(version.info, self.columns, by_name=by_name)
        return reader

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


_IMAGES: Final = ("key", "before", "after")
COLUMNS: Final = pa.schema([*PLACE, *(pa.field(name, pa.string()) for name in _IMAGES)])


def _of_file(task: ReadTask, typed: TypedRows | None) -> Iterator[pa.RecordBatch]:
    return _of_records(task, records_of(task), None) if typed is None else typed.batches(task)


def _of_records(
    task: ReadTask, records: Iterable[Record], typed: TypedRows | None
) -> Iterator[pa.RecordBatch]:
    if typed is not None:
        yield from map(typed.batch, portions(records))
        return
    texts, places = Texts(), PlaceColumns()
    for portion in portions(records):
        for changes, first, rows in portion:
            places.add(changes, first, rows)
        yield batch(task.columns, places.take() | texts.arrays(portion))


class Texts:
    """Images of any tables as JSON."""

    def __init__(self) -> None:
        self._texts: dict[TableVersion, ImageText] = {}

    def of(self, version: TableVersion) -> ImageText:
        """Get the texts of a table version."""
        text = self._texts.get(version)
        if text is None:
            text = self._texts[version] = ImageText(version)
        return text

    def arrays(self, portion: Portion) -> dict[str, Callable[[], pa.Array]]:
        """Make the columns of the images, when they are asked for."""
        return {
            "key": lambda: _strings(portion, self._key),
            "before": lambda: _strings(portion, lambda row: self._image(row[0], row[2])),
            "after": lambda: _strings(portion, lambda row: self._image(row[0], row[3])),
        }

    def _image(self, version: TableVersion, image: bytes | None) -> str | None:
        return None if image is None else self.of(version).row(image)

    def _key(self, row: Row) -> str | None:
        """Of the row as it is afterwards, or was if it is gone."""
        version, _, before, after = row
        key = self.of(version).key
        image = before if after is None else after
        return None if key is None or image is None else key(image)


def _strings(portion: Portion, show: Callable[[Any], str | None]) -> pa.Array:
    return pa.array([show(row) for _, _, rows in portion for row in rows], pa.string())


VIEW: Final = View(COLUMNS, lambda task: _of_file(task, None if task.version is None else TypedRows(task)))


# -- a stream of batches ---------------------------------------------------------------------------------


def chosen_schema(version: TableVersion | None, columns: Sequence[str]) -> pa.Schema:
    """What there is, or only the columns that are wanted. Raises `ConfigError` for one that is not there."""
    whole = COLUMNS if version is None else schema(version)
    if not columns:
        return whole
    images: dict[str, list[pa.Field]] = {}
    chosen: dict[str, pa.Field] = {}
    for column in columns:
        name, _, inner = column.partition(".")
        place = whole.get_field_index(name)
        if place < 0:
            raise unknown_column(column, whole.names)
        field = whole.field(place)
        if inner:
            among = field.type if pa.types.is_struct(field.type) else pa.struct([])
            if among.get_field_index(inner) < 0:
                raise unknown_column(column, [f"{name}.{each.name}" for each in among] or whole.names)
            fields = images.setdefault(name, [])
            fields.append(among.field(inner))
            field = pa.field(name, pa.struct(fields))
        chosen[name] = field
    return pa.schema(list(chosen.values()))


def reader(
    task: ReadTask, slices: Iterable[Slice], records: Callable[[], Iterator[Record]] | None, batch_rows: int
) -> pa.RecordBatchReader:
    """`records`: of what is in no order file by file. `batch_rows`: the most rows of a batch, 0: as they
    come."""
    typed = None if task.version is None else TypedRows(task)
    if records is not None:
        batches = _of_records(task, records(), typed)
    else:
        tasks = (replace(task, part=part) for part in slices)
        batches = (each for each_task in tasks for each in _of_file(each_task, typed))
    return pa.RecordBatchReader.from_batches(task.columns, _cut(batches, batch_rows))


def _cut(batches: Iterable[pa.RecordBatch], batch_rows: int) -> Iterator[pa.RecordBatch]:
    for each in batches:
        for begin in range(0, each.num_rows, batch_rows or each.num_rows):
            yield each.slice(begin, batch_rows or None)
