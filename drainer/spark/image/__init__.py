"""Image: tables as they were at a point in time, as Parquet.

Out    a directory with Parquet of each table, and `manifest.json`: commit_ts, tables, rows, checksums
Holds  the changes fit the image they are put on: each row that they overwrite or remove is there, or the
       image is not made. The manifest is written last: a directory without it is no image
Why    rows travel as encoded images through the fold, and become columns once
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from drainer.formats.obinlog import writer
from drainer.mysql.literal.image_sql_plan import ImageSqlPlan
from drainer.mysql.literal.plan import compile_sql
from drainer.mysql.rows.change import APPEND, ARRIVALS, PUT_UPDATE
from drainer.places.place import Place
from drainer.points.image.columns import ROW, ImageColumns, notes_name
from drainer.points.image.manifest import (
    ROWS,
    SPARK,
    Manifest,
    TableImage,
    checksum_of_file,
    directory_of,
    is_image,
    names_of,
)
from drainer.points.image.parquet_reader import TableReader
from drainer.points.image.parquet_writer import TableWriter
from drainer.reading.archive.views.changes import INVALID, schema
from drainer.sink.file.table_definitions import ArchivedTable
from drainer.spark import parquet_tasks
from drainer.spark.effects.operations import OPERATION, RowEffect, table_id
from drainer.spark.engine import SparkOf
from drainer.spark.image.table_lifetimes import Life, lives
from drainer.spark.replay.archive_range import ArchiveRange
from drainer.txn import Ddl, TableVersion
from tidb_binlog.ddl_job import ActionType
from tidb_binlog.errors import ConfigError, Conflict, Rejected
from tidb_binlog.late_dataclass import dataclass, replace
from tidb_binlog.time_text import utc

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


def make(
    spark: SparkSession | SparkOf,
    archive: str,
    directory: str,
    options: Mapping[str, str] | None = None,
    *,
    base: str = "",
    small_bytes: int = 0,
    tell: Callable[[str], None] = lambda text: None,
) -> Manifest:
    """Write the image at the option `stop` (0: the end of the archive) into a new directory. Up to
    `small_bytes` of archive and base are read here. `tell` hears of each table.

    Raises `Rejected` where schema changes do not let the rows be known, `Conflict` where the changes do not
    fit the base.
    """
    place = Place(directory)
    if is_image(directory):
        raise ConfigError(f"{place.shown} has an image already", hint="name another directory")
    before = Manifest.load(base) if base else None
    since = before.commit_ts if before else 0
    archive_range = ArchiveRange.open(
        spark, archive, {**(options or {}), "start": str(since + 1 if before else 0)}
    )
    stop = archive_range.selection.stop
    changes = [change.ddl for change, _ in archive_range.outline.changes if change.ddl.commit_ts <= stop]
    newest = _newest(archive_range, before, changes)
    if not newest:
        raise Rejected(
            f"{archive_range.options.location.shown} defines none of the tables that are wanted",
            hint="an archive of a Go Drainer has no definitions: `replay` it and dump the database; else see"
            " --tables, and --view ddl of `read`",
        )
    table_lives = sorted(lives(newest, changes, since, archive_range.selection.wants_table).items())
    based = {(table.schema, table.table): table for table in (before.tables if before else ())}
    of_base = sum(table.size(base) for table in based.values())
    is_small = archive_range.size + of_base <= small_bytes
    tables = []
    for number, (name, life) in enumerate(table_lives, 1):
        tell(f"{'.'.join(name)}, table {number} of {len(table_lives)}")
        if newest[name].first_ts < life.altered:
            raise Rejected(
                f"no row shows which columns {'.'.join(name)} has after commit_ts {life.altered}",
                hint="end before that, or after its next row; or leave the table out with --tables",
            )
        maker = _Maker(archive_range, newest[name].version, life)
        rows = None if life.whole else based.get(name)
        if maker.is_empty or is_small:
            tables.append(maker.write_here(place, TableReader(base, rows) if rows else None))
            continue
        try:
            tables.append(maker.write(place, _of_base(archive_range.spark(), base, rows) if rows else None))
        finally:
            maker.close()
    shown, hashed = archive_range.options.location.shown, ROWS if is_small else SPARK
    manifest = Manifest(stop, utc(stop), shown, base, archive_range.selection.tables, tuple(tables), hashed)
    manifest.store(directory)
    return manifest


def _newest(
    archive_range: ArchiveRange, before: Manifest | None, changes: Iterable[Ddl]
) -> dict[tuple[str, str], ArchivedTable]:
    """The last definition of each table that is wanted; the first one of a table that was made and has no row
    yet. What did not change after the image before is there alone."""
    selection = archive_range.selection
    based: dict[tuple[str, str], ArchivedTable] = {}
    if before is not None:
        for table in before.tables:
            name = table.schema, table.table
            based[name] = ArchivedTable(before.commit_ts, *name, table.version)
    created = {
        name: ddl.commit_ts for ddl in changes if ddl.action == ActionType.CREATE_TABLE for name in ddl.tables
    }
    archived: dict[tuple[str, str], ArchivedTable] = {}
    for definition in sorted(archive_range.definitions, key=lambda definition: definition.first_ts):
        name = definition.schema, definition.table
        last_ts = archived[name].first_ts if name in archived else 0
        if definition.first_ts <= selection.stop or last_ts < created.get(name, 0):
            archived[name] = definition
    return {name: entry for name, entry in (based | archived).items() if selection.wants_table(*name)}


def _of_base(spark: SparkSession, base: str, table: TableImage) -> DataFrame:
    from drainer.spark.source.spark_types import struct_of

    for name in table.names(base):
        table.check(base, name)
    # Files of other writers do not say which columns are intervals.
    return parquet_tasks.read(spark, table.place(base), struct_of(ImageColumns(table.version).schema))


class _Maker:
    """The image of one table."""

    def __init__(self, archive_range: ArchiveRange, version: TableVersion, life: Life) -> None:
        self._version = version
        self._life = life
        self._name = f"{version.schema}.{version.name}"
        self._keys = [column.name for column in compile_sql(version.info).key_columns]
        pattern = f"~^{re.escape(self._name)}$"
        selection = replace(archive_range.selection, start=life.since + 1, tables=(pattern,))
        self._range = replace(archive_range, selection=selection)
        self._refuse_conversion(archive_range)

    @cached_property
    def _frame(self) -> DataFrame:
        frame = self._range.net_frame()  # makes the session, or says what it misses
        from pyspark import StorageLevel

        return frame.persist(StorageLevel.DISK_ONLY)

    @property
    def is_empty(self) -> bool:
        """The table was made or emptied by the last that is in the image."""
        return self._life.whole and self._range.selection.is_empty

    def close(self) -> None:
        self._frame.unpersist()

    def _refuse_conversion(self, archive_range: ArchiveRange) -> None:
        """A converted column is a new one, whose values stand in no row that was not changed since."""
        if not self._life.converted:
            return
        now = {column.name: column for column in self._version.info.columns}
        for definition in archive_range.definitions:
            if (definition.schema, definition.table) != (self._version.schema, self._version.name):
                continue
            for column in definition.version.info.columns:
                same = now.get(column.name)
                if same is not None and (same.id != column.id or same.type.tp != column.type.tp):
                    raise Rejected(
                        f"column {column.name} of {self._name} was converted in the range",
                        hint="take an image of the database after that as the base",
                    )

    def _refuse_beginning(self) -> None:
        if not self._life.whole:
            raise Rejected(
                f"the archive does not reach back to the creation of {self._name}",
                hint="give an earlier image with --base",
            )

    def write_here(self, place: Place, base: TableReader | None) -> TableImage:
        """Without Spark: all that changed is in memory."""
        if base is None:
            self._refuse_beginning()
        elif ImageColumns(base.version).schema != ImageColumns(self._version).schema:
            raise self._other_columns()
        table, writer_here = table_id(self._version), TableWriter(place.uri, self._version)
        writer_here.begin()
        writer_here.forget()  # what another command left here
        with self._range.net(self._range.size) as net, writer_here.part(0) as part:
            effects = [effect for effect in net if effect.table == table]
            gone = {effect.key: count for effect in effects if (count := _removed(effect))}
            arrived = {effect.key for effect in effects if effect.first_order & OPERATION in ARRIVALS}
            if base is None and gone:
                raise self._misfit("rows that they change were never added")
            if base is not None:
                for group in base.groups():
                    images = base.images(group)
                    part.add([image for image in images if not self._taken(image, gone, arrived)])
            if any(gone.values()):
                verb = "change" if self._keys else "remove"
                raise self._misfit(f"rows that they {verb} are not in the base")
            for effect in effects:
                if effect.image is not None and (times := _added(effect)):
                    part.add([effect.image] * times)
        return writer_here.table_image()

    @cached_property
    def _key_of(self) -> Callable[[bytes], bytes]:
        """As effects have it."""
        sql = compile_sql(self._version.info, kind=ImageSqlPlan)
        return sql.delete_key if sql.key_columns else sql.insert_literals

    def _taken(self, image: bytes, gone: dict[bytes, int], arrived: set[bytes]) -> bool:
        """Whether a row of the base is there no more, or anew; it is counted then. One that arrived may have
        been there: of one that LOAD DATA ... REPLACE leaves as it is TiDB says INSERT."""
        key = self._key_of(image) if gone or arrived else b""
        count = gone.get(key, 0)
        if count:
            gone[key] = count - 1
        return count > 0 or key in arrived

    def write(self, place: Place, base: DataFrame | None) -> TableImage:
        from pyspark.sql import functions as f

        from drainer.spark.source.spark_types import quoted

        if base is None:
            self._refuse_beginning()
        gone, come, passed = self._changes()
        version = self._version
        rows = come if base is None else self._on(base, gone, come.unionByName(passed)).unionByName(come)
        if base is None and gone.limit(1).count():
            raise self._misfit("rows that they change were never added")
        directory = directory_of(version.schema, version.name)
        table = place.under(directory)
        parquet_tasks.write(rows, table)
        written = parquet_tasks.read(self._range.spark(), table, rows.schema)
        digest = f.sum(f.xxhash64(*map(quoted, written.columns)).cast("decimal(38,0)"))
        (row,) = written.agg(f.count("*").alias("rows"), digest.alias("sum")).collect()
        return TableImage(
            version.schema,
            version.name,
            directory,
            row["rows"],
            str(row["sum"] or 0),
            writer.definition_json(version).decode(),
            {name: checksum_of_file(table, name) for name in names_of(table)},
        )

    def _on(self, base: DataFrame, gone: DataFrame, arrived: DataFrame) -> DataFrame:
        """What stays of the base; see `_taken`."""
        from drainer.spark.source.spark_types import quoted

        if [(field.name, field.dataType) for field in base.schema] != [
            (field.name, field.dataType) for field in gone.schema
        ]:
            raise self._other_columns()
        if not self._keys:
            if gone.exceptAll(base).limit(1).count():
                raise self._misfit("rows that they remove are not in the base")
            return base.exceptAll(gone)
        names = [quoted(name) for name in self._keys]
        keys = gone.select(*names).distinct()

        def joined(keys: DataFrame, how: str) -> DataFrame:
            return base.join(keys, [base[name].eqNullSafe(keys[name]) for name in names], how)

        if joined(keys, "left_semi").count() != keys.count():
            raise self._misfit("rows that they change are not in the base")
        return joined(keys.union(arrived.select(*names)), "left_anti")

    def _other_columns(self) -> Rejected:
        return Rejected(
            f"{self._name} has other columns than in the base", hint="take a base after that change"
        )

    def _misfit(self, why: str) -> Conflict:
        return Conflict(
            f"the changes of {self._name} do not fit what they are put on: {why}",
            hint="audit the archive for gaps; the base must be of the same cluster and commit_ts as it says",
        )

    def _changes(self) -> tuple[DataFrame, ...]:
        """Rows that were there and are so no more, those that are there now, and those that came and went."""
        from pyspark.sql import functions as f

        from drainer.spark.source.spark_types import struct_of

        frame = self._frame.where(f.col("table") == table_id(self._version))
        first = f.col("first_order").bitwiseAND(OPERATION)
        keyless = first >= APPEND
        stays = f.col("last_order").bitwiseAND(OPERATION) <= PUT_UPDATE
        come = f.when(keyless & (f.col("times") > 0), f.col("image")).when(~keyless & stays, f.col("image"))
        gone = f.when(keyless & (f.col("times") < 0), f.col("image")).when(~keyless, f.col("before"))
        passed = f.when(first.isin(*ARRIVALS) & ~stays, f.col("image"))
        times = f.greatest(f.abs("times"), f.lit(1)).cast("int")
        columns = struct_of(schema(self._version))[ROW].dataType
        decoded = []
        for image in (gone, come, passed):
            some = frame.select(image.alias("image"), times.alias("times")).where("image is not null")
            repeated = some.select("image", f.explode(f.array_repeat(f.lit(1), f.col("times"))))
            decoding = Decoding(self._version, columns)
            rows = repeated.select("image").mapInArrow(decoding, decoding.columns)
            notes = f.col(INVALID).alias(notes_name(self._version))
            decoded.append(rows.select(f"{ROW}.*", notes))
        return tuple(decoded)


def _removed(effect: RowEffect) -> int:
    """How many rows of its key were there before the range, and are no more or others."""
    if effect.first_order & OPERATION >= APPEND:  # without a key
        return max(-effect.times, 0)
    return int(effect.before is not None)


def _added(effect: RowEffect) -> int:
    """How many rows of its image are there after the range, which are new or others."""
    if effect.first_order & OPERATION >= APPEND:
        return max(effect.times, 0)
    return int(effect.last_order & OPERATION <= PUT_UPDATE)


@dataclass(frozen=True)
class Decoding:
    """Images as columns of the newest definition. What an older row lacks it holds since it was added."""

    version: TableVersion
    image: Any

    @property
    def columns(self) -> StructType:
        from pyspark.sql.types import StringType, StructField, StructType

        return StructType([StructField(ROW, self.image), StructField(INVALID, StringType())])

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        from drainer.spark.source.spark_types import arrow_schema

        arrow = arrow_schema(self.columns)
        columns = ImageColumns(self.version, arrow)
        for batch in batches:
            images = batch.column(0).to_pylist()
            if not images:
                continue
            rows, notes = columns.arrays(images)
            yield pa.RecordBatch.from_arrays([rows, notes], schema=arrow)
