"""Engine: where a job runs, in this process or in Spark's tasks. A job is written once, over `Rows`.

Out    rows that are brought together by key, and in order; what functions make of them, here
Holds  a job finds the same in both engines. Rows are tuples of plain values, in the order of their columns
Why    between two shuffles functions are called one inside the other: rows become Arrow, and Spark's, only
       where they have to move, and Spark sorts on its own disks what does not fit into memory
Tests  tests/spark/test_engine.py
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from itertools import chain
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from tidb_binlog.late_dataclass import dataclass, replace
from tidb_binlog.process.garbage import collect_rarely

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from drainer.reading.archive.archive_source import ArchiveSource, Part

T = TypeVar("T")
Row = tuple[Any, ...]
SparkOf = Callable[[], "SparkSession"]
SMALL_BYTES: Final = 64 << 20
"""So much is read sooner than Spark and its workers are up."""
_TYPES: Final = {"long": "int64", "binary": "binary", "string": "string"}
_TASKS: Final = 4
_BATCH_ROWS: Final = 8192
_BATCH_BYTES: Final = 16 << 20


class Rows(Protocol):
    """Rows in partitions. Nothing is read before it is gathered; names are those of the last `columns`."""

    def then(self, work: Callable[[Iterator[Any]], Iterator[Row]], columns: str) -> Rows:
        """What `work` makes of each partition, which may be empty."""
        ...

    def plus(self, other: Rows) -> Rows:
        """These and those, of the same columns."""
        ...

    def together(self, by: Sequence[str], order: Sequence[str]) -> Rows:
        """The same rows sorted by all these names, null first; rows that are equal in `by` are in one
        partition."""
        ...

    def kept(self) -> AbstractContextManager[Rows]:
        """The same for several that gather: what is behind them is read once."""
        ...

    def gather(self, work: Callable[[Iterator[Any]], Iterable[T]]) -> list[T]:
        """What `work` makes of each partition, all of it here: any values that can be pickled."""
        ...


class Engine(Protocol):
    """Makes rows. `is_here`: of what this process holds in memory."""

    is_here: bool

    def over(
        self,
        items: Sequence[T],
        work: Callable[[Iterator[T]], Iterator[Any]],
        columns: str = "",
        *,
        together: bool = False,
    ) -> Rows:
        """What `work` makes of some of the items, of each in a task of its own. `together`: few tasks for
        each core, where most items are small. `columns`: as Spark has them, "key binary, times long"; none
        for values that are only gathered."""
        ...


def engine_for(spark: SparkSession | SparkOf | None) -> Engine:
    """`spark`: a session, or what makes one; without it this process."""
    if spark is None:
        return Here()
    return Executors(spark() if callable(spark) else spark)


def over_view(
    engine: Engine,
    source: ArchiveSource,
    names: Sequence[str],
    work: Callable[[Iterator[list[list[Any]]]], Iterator[Any]],
    columns: str = "",
) -> Rows:
    """What `work` makes of these columns of an archive's view, batch by batch, times as microseconds. What
    the names leave out is not made. Raises `NoSuchTable`."""
    import pyarrow as pa

    from drainer.reading.archive import archive_source
    from drainer.reading.archive.decode.reading import Reach
    from drainer.reading.archive.files.segments import WHOLE_FILES

    source.check_tables()
    view = source.options.view
    task = source.task(pa.schema([source.schema.field(name) for name in names]))
    in_order = engine.is_here

    def read(parts: Iterator[Part]) -> Iterator[Any]:
        # What a drainer wrote again into another file comes once.
        own = replace(task, reach=Reach()) if in_order else task
        batches = (batch for part in parts for batch in archive_source.read(own, view, part))
        return work([_values(batch.column(name)) for name in names] for batch in batches)

    return engine.over(source.parts(WHOLE_FILES if in_order else 0), read, columns)


def _values(column: pa.Array) -> list[Any]:
    import pyarrow as pa

    is_time = pa.types.is_timestamp(column.type)
    values: list[Any] = (column.cast(pa.int64()) if is_time else column).to_pylist()
    return values


def frame_of(rows: Rows) -> DataFrame:
    """Of Spark's engine: a data frame of the rows."""
    assert isinstance(rows, _RowsOfSpark)
    return rows.moved()


def rows_of(frame: DataFrame) -> Rows:
    """The other way, for what `then` makes of them: times as numbers."""
    return _RowsOfSpark(frame, _as_they_are, "")


def _names(columns: str) -> list[str]:
    return [column.split()[0] for column in columns.split(", ")]


# -- this process -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _RowsHere:
    """One partition. `make` reads it."""

    make: Callable[[], Iterable[Any]]
    columns: str

    def then(self, work: Callable[[Iterator[Any]], Iterator[Row]], columns: str) -> Rows:
        return _RowsHere(lambda: work(iter(self.make())), columns)

    def plus(self, other: Rows) -> Rows:
        assert isinstance(other, _RowsHere)
        return _RowsHere(lambda: chain(self.make(), other.make()), self.columns)

    def together(self, by: Sequence[str], order: Sequence[str]) -> Rows:
        names = _names(self.columns)
        places = [names.index(name) for name in (*by, *order)]
        return _RowsHere(lambda: _in_order(list(self.make()), places), self.columns)

    @contextmanager
    def kept(self) -> Iterator[Rows]:
        rows = list(self.make())
        yield _RowsHere(lambda: rows, self.columns)

    def gather(self, work: Callable[[Iterator[Any]], Iterable[T]]) -> list[T]:
        return list(work(iter(self.make())))


def _in_order(rows: list[Any], places: Sequence[int]) -> list[Any]:
    try:
        rows.sort(key=itemgetter(*places))
    except TypeError:  # null where the values before are equal
        rows.sort(key=lambda row: [(row[place] is not None, row[place]) for place in places])
    return rows


class Here:
    """Items one after the other; all that is brought together is in memory."""

    is_here = True

    def __init__(self) -> None:
        collect_rarely()

    def over(
        self,
        items: Sequence[T],
        work: Callable[[Iterator[T]], Iterator[Any]],
        columns: str = "",
        *,
        together: bool = False,
    ) -> Rows:
        return _RowsHere(lambda: work(iter(items)), columns)


# -- Spark ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _RowsOfSpark:
    """What `work` makes of the rows of a frame, in its tasks."""

    frame: DataFrame
    work: Callable[[Iterator[Any]], Iterator[Any]]
    columns: str

    def then(self, work: Callable[[Iterator[Any]], Iterator[Row]], columns: str) -> Rows:
        first = self.work
        return _RowsOfSpark(self.frame, lambda rows: work(first(rows)), columns)

    def plus(self, other: Rows) -> Rows:
        assert isinstance(other, _RowsOfSpark)
        return _RowsOfSpark(self.moved().union(other.moved()), _as_they_are, self.columns)

    def together(self, by: Sequence[str], order: Sequence[str]) -> Rows:
        frame = self.moved().repartition(*by).sortWithinPartitions(*by, *order)
        return _RowsOfSpark(frame, _as_they_are, self.columns)

    @contextmanager
    def kept(self) -> Iterator[Rows]:
        from pyspark import StorageLevel

        frame = self.moved().persist(StorageLevel.DISK_ONLY)
        try:
            yield _RowsOfSpark(frame, _as_they_are, self.columns)
        finally:
            frame.unpersist()

    def gather(self, work: Callable[[Iterator[Any]], Iterable[T]]) -> list[T]:
        first = self.work

        def pickled(rows: Iterator[Any]) -> Iterator[Row]:
            return ((pickle.dumps(value),) for value in work(first(rows)))

        rows = _RowsOfSpark(self.frame, pickled, "value binary").moved().collect()
        return [pickle.loads(row.value) for row in rows]

    def moved(self) -> DataFrame:
        """As Spark's own rows."""
        if self.work is _as_they_are:
            return self.frame
        work, columns = self.work, self.columns

        def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            collect_rarely()
            yield from _batched(work(_rows(batches)), columns)

        return self.frame.mapInArrow(run, columns)


class Executors:
    """The engine over a session's tasks."""

    is_here = False

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def over(
        self,
        items: Sequence[T],
        work: Callable[[Iterator[T]], Iterator[Any]],
        columns: str = "",
        *,
        together: bool = False,
    ) -> Rows:
        tasks = len(items)
        if together:
            tasks = min(tasks, _TASKS * self._spark.sparkContext.defaultParallelism)
        frame = self._spark.range(0, len(items), 1, max(tasks, 1))
        return _RowsOfSpark(frame, lambda numbers: work(items[number] for (number,) in numbers), columns)


def _as_they_are(rows: Iterator[Any]) -> Iterator[Any]:
    return rows


def _batched(rows: Iterator[Row], columns: str) -> Iterator[pa.RecordBatch]:
    """Batches of exactly these columns."""
    import pyarrow as pa

    pairs = [column.split() for column in columns.split(", ")]
    types = pa.schema([(name, pa.type_for_alias(_TYPES[kind])) for name, kind in pairs])
    waiting: list[Row] = []
    size = 0
    for row in chain(rows, (None,)):
        if row is not None:
            waiting.append(row)
            size += sum(len(value) for value in row if isinstance(value, bytes | str))
        if len(waiting) >= _BATCH_ROWS or size >= _BATCH_BYTES or (row is None and waiting):
            values = zip(*waiting, strict=True)
            arrays = [pa.array(column, field.type) for column, field in zip(values, types, strict=True)]
            yield pa.RecordBatch.from_arrays(arrays, schema=types)
            waiting, size = [], 0


def _rows(batches: Iterable[pa.RecordBatch]) -> Iterator[Row]:
    """Values of batches, row by row."""
    for batch in batches:
        yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)
