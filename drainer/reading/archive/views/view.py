"""View: one way to read an archive, as a data source needs it, and the columns that several views have.

A view has a schema and gives record batches of a slice. `columns` of a task are those that are wanted: the
schema that was given may have fewer, and then the others are not made.

Why    Spark takes only batches whose schema equals the declared one to the letter, so every array is made to
       its type. What belongs to a whole transaction is kept once and repeated by Arrow, not by Python
Tests  tests/spark/source/test_source.py
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from drainer.places.place import Place
from drainer.reading.archive.decode import reading
from drainer.reading.archive.decode.definitions import Definitions
from drainer.reading.archive.decode.reading import FAIL, Reach
from drainer.reading.archive.decode.records import Changes, Record, Row, SchemaChange
from drainer.reading.archive.files.segments import Segment, Slice
from drainer.reading.archive.files.selection import Selection
from drainer.txn import DELETE, INSERT, UPDATE, TableVersion
from tidb_binlog.errors import ConfigError
from tidb_binlog.late_dataclass import dataclass
from tidb_binlog.tso import LOGICAL_BITS, Ts

if TYPE_CHECKING:
    import pyarrow as pa


ROWS_MAX: Final = 8192
"""Rows of a batch: where the cost a row is lowest."""
BYTES_MAX: Final = 8 << 20
"""Bytes of images in a batch."""


@dataclass(frozen=True, slots=True)
class ReadTask:
    """What one task reads. `columns`: the schema of its batches, exactly. `version`: of a typed table.

    `files`: whole files and what is known of them, instead of a part; `verify`: read them nevertheless.
    `reach`: of a reading of whole files in order, one after the other.
    """

    location: Place
    part: Slice
    selection: Selection
    definitions: Definitions
    columns: pa.Schema
    version: TableVersion | None = None
    damage: str = FAIL
    files: tuple[tuple[Slice, Segment], ...] = ()
    verify: bool = False
    reach: Reach | None = None


def records_of(task: ReadTask) -> Iterator[Record]:
    """Records of a task's part, in the order of the file. Raises `Corruption`."""
    return reading.read(
        task.location, task.part, task.selection, task.definitions, damage=task.damage, reach=task.reach
    )


@dataclass(frozen=True, slots=True)
class View:
    """`schema` of rows that are not typed; `batches` is called in a task."""

    schema: pa.Schema
    batches: Callable[[ReadTask], Iterator[pa.RecordBatch]]
    is_of_definitions: bool = False
    """One task gives all, and it reads no segment."""
    is_of_files: bool = False
    """A task is about whole files."""


CHANGE_TYPES: Final = {INSERT: "insert", UPDATE: "update", DELETE: "delete"}
_MS_US: Final = 1000
_PIECE: Final = 256
"""Rows of a large record that are taken at a time."""
TIME: Final = pa.timestamp("us", "UTC")
TEXTS: Final = pa.list_(pa.field("element", pa.string()))
PLACE: Final = pa.schema(
    {
        "_commit_ts": pa.int64(),
        "_commit_timestamp": TIME,
        "_start_ts": pa.int64(),
        "_seq": pa.int64(),
        "_schema": pa.string(),
        "_table": pa.string(),
        "_change_type": pa.string(),
        "_file": pa.string(),
        "_pos": pa.int64(),
    }
)
"""Where a change is, and what it changed."""


def physical_us(commit_ts: Ts) -> int:
    """Microseconds since 1970 of a timestamp, as an array of times takes them."""
    return (commit_ts >> LOGICAL_BITS) * _MS_US


def commit_times(commit_ts: np.ndarray[Any, Any]) -> pa.Array:
    """Physical times of timestamps."""
    times = (commit_ts >> LOGICAL_BITS) * _MS_US
    return pa.array(times, pa.int64()).cast(TIME)


def unknown_column(name: str, names: Iterable[str], view: str = "") -> ConfigError:
    """Make the error for a column that a view does not have."""
    which = f"the view {view}" if view else "the view"
    return ConfigError(f"{which} has no column {name!r}", hint=f"it has {', '.join(names)}")


def batch(schema: pa.Schema, arrays: Mapping[str, Callable[[], pa.Array]]) -> pa.RecordBatch:
    """A batch of exactly this schema; arrays of other columns are not made."""
    columns = []
    for column in schema:
        make = arrays.get(column.name)
        if make is None:
            raise unknown_column(column.name, arrays)
        array = make()
        columns.append(array if array.type == column.type else array.cast(column.type))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def of_tuples(schema: pa.Schema, names: Sequence[str], rows: Sequence[Sequence[Any]]) -> pa.RecordBatch:
    """A batch of a few rows, whose values are in the order of `names`."""

    def column(place: int) -> Callable[[], pa.Array]:
        kind = schema.field(names[place]).type if names[place] in schema.names else pa.null()
        return lambda: pa.array([row[place] for row in rows], kind)

    return batch(schema, {name: column(place) for place, name in enumerate(names)})


def given(array: pa.Array) -> Callable[[], pa.Array]:
    """An array that is made already."""
    return lambda: array


class PlaceColumns:
    """Places of the rows of a batch: what a record says once, table and kind of a row as one number."""

    def __init__(self) -> None:
        self._kinds: dict[tuple[TableVersion, int], int] = {}
        self._names: list[tuple[str, str, str]] = []
        self._files: list[str] = []
        self._records: list[tuple[int, int, int, int, int, int]] = []
        self._codes: list[int] = []

    def add(self, changes: Changes, first: int, rows: Sequence[Row]) -> None:
        """Rows of a record, from its row number `first` on."""
        if not self._files or self._files[-1] != changes.file:
            self._files.append(changes.file)
        file, seq = len(self._files) - 1, changes.first_seq + first
        self._records.append((changes.commit_ts, changes.start_ts, seq, changes.pos, file, len(rows)))
        kinds = self._kinds
        for version, kind, _, _ in rows:
            code = kinds.get((version, kind))
            self._codes.append(self._new(version, kind) if code is None else code)

    def _new(self, version: TableVersion, kind: int) -> int:
        self._names.append((*version.downstream, CHANGE_TYPES[kind]))
        code = self._kinds[version, kind] = len(self._names) - 1
        return code

    def take(self) -> dict[str, Callable[[], pa.Array]]:
        """Arrays of the columns of `PLACE`; what follows belongs to another batch."""
        records = np.array(self._records, np.int64).reshape(-1, 6)
        codes, counts = pa.array(self._codes, pa.int32()), records[:, 5]
        names, files = tuple(self._names), tuple(self._files)
        self._records, self._codes, self._files = [], [], self._files[-1:]

        def number(field: int) -> np.ndarray[Any, Any]:
            return np.repeat(records[:, field], counts)

        def name(part: int) -> pa.Array:
            return pa.array([change[part] for change in names], pa.string()).take(codes)

        def start_ts() -> pa.Array:
            start = number(1)
            return pa.array(start, pa.int64(), mask=start == 0)

        def seq() -> pa.Array:
            begins = np.cumsum(counts) - counts  # of the records, in the batch
            return pa.array(np.arange(len(codes)) + np.repeat(records[:, 2] - begins, counts), pa.int64())

        def file() -> pa.Array:
            if len(files) == 1:
                return pa.repeat(pa.scalar(files[0], pa.string()), len(codes))
            return pa.array(files, pa.string()).take(pa.array(number(4)))

        return {
            "_commit_ts": lambda: pa.array(number(0), pa.int64()),
            "_commit_timestamp": lambda: commit_times(number(0)),
            "_start_ts": start_ts,
            "_seq": seq,
            "_schema": lambda: name(0),
            "_table": lambda: name(1),
            "_change_type": lambda: name(2),
            "_file": file,
            "_pos": lambda: pa.array(number(3), pa.int64()),
        }


Portion = list[tuple[Changes, int, list[Row]]]
"""Rows of a batch: each a record, the number of the first row, rows."""


def portions(records: Iterable[Record]) -> Iterator[Portion]:
    """Rows of records in portions of a batch."""
    portion: Portion = []
    count = size = 0
    for record in records:
        if isinstance(record, SchemaChange):
            continue
        first, rows = 0, record.rows
        while first < len(rows):
            taken = (
                rows[first : first + min(ROWS_MAX - count, _PIECE)] if first or len(rows) > _PIECE else rows
            )
            portion.append((record, first, taken))
            first += len(taken)
            count += len(taken)
            size += sum([len(row[2] or b"") + len(row[3] or b"") for row in taken])
            if count >= ROWS_MAX or size >= BYTES_MAX:
                yield portion
                portion, count, size = [], 0, 0
    if portion:
        yield portion
