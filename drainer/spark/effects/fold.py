"""Fold: effects of a whole range, brought together by key with Spark's own shuffle and sort.

Out    a data frame of effects, sorted by place, and so by bucket: a reader takes those of a key
       together as they come (`merge`)
Why    what is read is folded in the reader first, so that a key changed often crosses the shuffle once a
       slice; where that can be, for thousands of records at once (`pb_effects`, `row_effects`). After the
       shuffle there is one sort by one number; an aggregate of Spark's would sort by all of the key as well
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

from drainer.places.place import Place
from drainer.reading.archive.columns.pb_arrays import together
from drainer.reading.archive.decode import pump_range, reading
from drainer.reading.archive.decode.definitions import Definitions, KnownTables
from drainer.reading.archive.decode.images import Images
from drainer.reading.archive.decode.pump_range import PumpSlice
from drainer.reading.archive.decode.reading import PbReader, read
from drainer.reading.archive.decode.records import Changes
from drainer.reading.archive.files.payload import PB
from drainer.reading.archive.files.segments import Slice
from drainer.reading.archive.files.selection import Selection
from drainer.spark.effects.batches import COLUMNS, PLACE_BITS, batches
from drainer.spark.effects.merge import merged, taken_together
from drainer.spark.effects.operations import Operations
from drainer.spark.effects.pb_effects import PbEffects
from drainer.spark.effects.row_effects import RowEffects, only
from drainer.txn import Transaction
from tidb_binlog.late_dataclass import dataclass
from tidb_binlog.process.garbage import collect_rarely

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_HELD_KEYS: Final = 200_000
_HELD_BYTES: Final = 64 << 20
_TOGETHER_BYTES: Final = 32 << 20


@dataclass(frozen=True)
class Reading:
    """What a task does with the numbers of its shares."""

    location: Place
    shares: tuple[tuple[Slice, ...], ...]
    selection: Selection
    definitions: Definitions
    before_of: frozenset[int]
    buckets: int
    damage: str

    def __call__(self, numbers: Iterable[Any]) -> Iterator[Any]:
        collect_rarely()
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                yield from self._share(self.shares[number])

    def _share(self, parts: Iterable[Slice]) -> Iterator[Any]:
        return taken_together((batch for part in parts for batch in self._slice(part)), _HELD_BYTES)

    def _slice(self, part: Slice) -> Iterator[Any]:
        tables = KnownTables(self.definitions)
        operations = Operations(tables.number_of, self.before_of)
        if isinstance(part, PumpSlice):
            records = self._of_pumps(part, tables)
        else:
            records = self._at_once(part, tables) if part.kind == PB else self._one_by_one(part)
        for record in records:
            if not isinstance(record, Changes):
                yield record
                continue
            operations.add(record)
            if operations.size >= _HELD_BYTES or operations.keys >= _HELD_KEYS:
                yield from batches(operations.take(), operations.digits, self.buckets)
        yield from batches(operations.take(), operations.digits, self.buckets)

    def _one_by_one(self, part: Slice) -> Iterator[Changes]:
        for record in read(self.location, part, self.selection, self.definitions, damage=self.damage):
            if isinstance(record, Changes):
                yield record

    def _at_once(self, part: Slice, tables: KnownTables) -> Iterator[Any]:
        """Record batches of effects, and rows of what must be taken one by one."""
        reader = PbReader(part, self.selection, self.definitions, self.location.path_of(part.name))
        wants, is_one = self.selection.wants_table, self.definitions.is_one
        pb_effects = PbEffects(reader.walker, tables.number_of, self.before_of, wants, is_one, self.buckets)
        for some in together(reading.pieces(self.location, part, reader, self.damage), _TOGETHER_BYTES):
            record_batches = pb_effects.read(some)
            if record_batches is not None:
                yield from record_batches
                continue
            for piece in some:
                yield from reader.changes(piece, self.damage)

    def _of_pumps(self, part: PumpSlice, tables: KnownTables) -> Iterator[Any]:
        """The same of what Pumps have."""
        definitions, images, translator = self.definitions, Images(), part.state.translator()
        row_effects = RowEffects(definitions, tables.number_of, self.before_of, self.buckets)
        for entries in pump_range.stretches(part, _TOGETHER_BYTES):
            at_once = row_effects.of_binlogs(entries, translator)
            items = pump_range.transactions(entries, translator)
            # Large ones come in pieces.
            for some in _stretches(items) if at_once is None else [items]:
                record_batches, left = at_once or row_effects.read(some)
                yield from record_batches
                for item in only(left, some) if left else ():
                    yield from pump_range.rows_of(item, part, self.selection, definitions, images)


def _stretches(items: Iterable[Transaction]) -> Iterator[list[Transaction]]:
    """Groups of about `_TOGETHER_BYTES`."""
    some: list[Transaction] = []
    size = 0
    for item in items:
        some.append(item)
        size += item.size_bytes
        if size >= _TOGETHER_BYTES:
            yield some
            some, size = [], 0
    if some:
        yield some


def effects(spark: SparkSession, reading: Reading) -> DataFrame:
    """Effects as readers give them: several of a key."""
    count = len(reading.shares)
    return spark.range(0, count, 1, count).mapInArrow(reading, COLUMNS)


def by_place(frame: DataFrame, partitions: int) -> DataFrame:
    """Effects sorted by place, those of a key side by side; a bucket is in one partition."""
    from pyspark.sql import functions as f

    bucket = f.shiftright("place", PLACE_BITS)
    return frame.repartition(partitions, bucket).sortWithinPartitions("place")


def folded(frame: DataFrame, partitions: int) -> DataFrame:
    """One effect a key, sorted by place; a bucket is in one partition."""
    return by_place(frame, partitions).mapInArrow(merged, COLUMNS)
