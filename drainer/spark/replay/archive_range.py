"""Archive range: a stretch of an archive between two timestamps, surveyed once, and what it comes to.

Out    what is known of its tables, its schema changes, its last commit_ts; effects in an order of their own,
       found by Spark where there is more than a little to read, else here
Holds  the end is a number from now on, whatever is written to the archive meanwhile. The order of effects
       depends on the range alone: not on who finds them, nor on how files are cut or packed
Tests  tests/spark/source/test_source.py
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from drainer.reading.archive.decode.definitions import Definitions, KnownTables
from drainer.reading.archive.decode.reading import REPORT, read
from drainer.reading.archive.decode.records import Changes
from drainer.reading.archive.files.segments import SLICE_BYTES, Slice, Survey
from drainer.reading.archive.files.selection import Selection
from drainer.reading.archive.read_options import ReadOptions
from drainer.spark.effects.batches import batches
from drainer.spark.effects.fold import Reading, effects, folded
from drainer.spark.effects.operations import Operations, RowEffect, effects_in_order, table_id
from drainer.spark.engine import SMALL_BYTES, SparkOf
from drainer.spark.replay.outline import Outline, end_of, outline, size_of
from tidb_binlog.late_dataclass import dataclass, replace

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_BUCKETS: Final = 64


@dataclass(frozen=True)
class ArchiveRange:
    """`asked_stop`: the end that was asked for, 0 for all there is."""

    spark: SparkOf
    options: ReadOptions
    survey: Survey
    definitions: Definitions
    outline: Outline
    selection: Selection
    asked_stop: int

    @classmethod
    def open(cls, spark: SparkSession | SparkOf, archive: str, options: Mapping[str, str]) -> ArchiveRange:
        """`spark`: a session, or what makes one when it is needed. Raises `ConfigError`, `Corruption`."""
        from drainer.reading.archive.archive_source import ArchiveSource

        source = ArchiveSource({**options, "path": archive})
        asked = source.options.selection
        make = spark if callable(spark) else lambda: spark
        skip_damage = source.options.damage == REPORT
        seen = outline(make, source.survey, asked, source.definitions, skip_damage=skip_damage)
        selection = replace(asked, stop=end_of(asked, seen.last_ts))
        return cls(make, source.options, source.survey, source.definitions, seen, selection, asked.stop)

    @property
    def size(self) -> int:
        """Bytes to read."""
        return size_of(self._slices)

    def until(self, stop: int) -> ArchiveRange:
        """The same up to `stop`."""
        return replace(self, selection=replace(self.selection, stop=stop))

    def net(self, small_bytes: int = SMALL_BYTES) -> Effects:
        """The net effect of the range, one a key, with the images before; by table and key."""
        if size_of(self._slices) <= small_bytes:
            return Effects(
                sorted(self._here(by_transaction=False), key=lambda effect: (effect.table, effect.key))
            )
        return Effects(frame=self.net_frame(), order=("table", "key"))

    def net_frame(self) -> DataFrame:
        """The same as a frame, in no order."""
        spark = self.spark()
        partitions = int(str(spark.conf.get("spark.sql.shuffle.partitions")))
        return folded(effects(spark, self._reading(Reading)), partitions)

    def by_transaction(self, small_bytes: int = SMALL_BYTES) -> Effects:
        """The effects of each transaction by itself, the last one first."""
        if size_of(self._slices) <= small_bytes:
            ordered = sorted(
                self._here(by_transaction=True),
                key=lambda effect: (-effect.last_ts, effect.table, effect.key),
            )
            return Effects(ordered)
        from pyspark.sql import functions as f

        # A drainer that was started again may have written the same transaction twice.
        frame = effects(self.spark(), self._reading(_ByTransaction)).dropDuplicates(
            ["last_ts", "table", "key"]
        )
        return Effects(frame=frame, order=(f.desc("last_ts"), "table", "key"))

    def _here(self, *, by_transaction: bool) -> Iterator[RowEffect]:
        operations = Operations(KnownTables(self.definitions).number_of, self._before_of)
        last_ts = 0
        for part in self._planned():
            for record in read(
                self.survey.location, part, self.selection, self.definitions, damage=self.options.damage
            ):
                if not isinstance(record, Changes):
                    continue
                if by_transaction and record.commit_ts > last_ts:
                    yield from effects_in_order(operations.take())
                    last_ts = record.commit_ts
                operations.add(record)
        yield from effects_in_order(operations.take())

    @property
    def _before_of(self) -> frozenset[int]:
        return frozenset(table_id(definition.version) for definition in self.definitions)

    @cached_property
    def _slices(self) -> list[Slice]:
        return self._planned(self.options.partition_bytes)

    def _planned(self, target_bytes: int = SLICE_BYTES) -> list[Slice]:
        skip_damage = self.options.damage == REPORT
        return self.outline.once(self.survey.plan(self.selection, target_bytes, skip_damage=skip_damage))

    def _reading(self, kind: type[Reading]) -> Reading:
        return kind(
            self.survey.location,
            tuple((part,) for part in self._slices),
            self.selection,
            self.definitions,
            self._before_of,
            _BUCKETS,
            self.options.damage,
        )


class _ByTransaction(Reading):
    """Nothing is taken together across transactions."""

    def _share(self, parts: Iterable[Slice]) -> Iterator[Any]:
        for part in parts:
            yield from self._slice(part)

    def _slice(self, part: Slice) -> Iterator[Any]:
        operations = Operations(KnownTables(self.definitions).number_of, self.before_of)
        last_ts = 0
        for record in read(self.location, part, self.selection, self.definitions, damage=self.damage):
            if not isinstance(record, Changes):
                continue
            if record.commit_ts != last_ts:
                yield from batches(operations.take(), operations.digits, self.buckets)
                last_ts = record.commit_ts
            operations.add(record)
        yield from batches(operations.take(), operations.digits, self.buckets)


class Effects:
    """Effects that may be gone through several times: a list, or a frame that executors keep on disk."""

    def __init__(
        self,
        listed: list[RowEffect] | None = None,
        frame: DataFrame | None = None,
        order: tuple[str | Column, ...] = (),
    ) -> None:
        self._listed = listed
        self._frame = frame
        if frame is not None:
            from pyspark import StorageLevel

            # Spark samples what it sorts: without the first one the archive would be read twice.
            frame.persist(StorageLevel.DISK_ONLY)
            self._frame = frame.orderBy(*order).persist(StorageLevel.DISK_ONLY)
            self._frame.count()
            frame.unpersist()

    def __iter__(self) -> Iterator[RowEffect]:
        if self._frame is None:
            yield from self._listed or ()
            return
        rows: Iterable[Any] = self._frame.select(*RowEffect._fields).toLocalIterator(prefetchPartitions=True)
        for row in rows:
            yield RowEffect._make(bytes(value) if isinstance(value, bytearray) else value for value in row)

    def close(self) -> None:
        if self._frame is not None:
            self._frame.unpersist()

    def __enter__(self) -> Effects:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
