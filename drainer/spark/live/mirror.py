"""Mirror: the downstream of a stream is a lake, whose tables are what the tables upstream are.

Drives  Spark's `MERGE INTO` of folded effects, one row a key, by the connector of the format; the format's
        Python library for what needs no rows
Holds   a batch is in a table once: its end is stored with the MERGE, and what a table has is passed over. A
        MERGE that is done again with more after it leaves the last row of each key all the same. That of a
        stream that was overtaken comes to nothing, however long ago it was planned
        DDL: a column that is added without values is; where values change their places, the table is written
        anew in one commit
Never   follows what no change tells of, nor a table without a key: it ends before that, and says so
Tests   tests/spark/live/test_mirror.py, tests/spark/live/test_mirror_refusals.py,
        tests/spark/live/test_mirror_overtaken.py
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from drainer.config.lake_options import ICEBERG
from drainer.config.options import DrainerConfig
from drainer.ddl.rules import REWRITE, SKIP
from drainer.lake import mirror
from drainer.lake.delta import DeltaChangelog, DeltaLake
from drainer.lake.evolution import holds
from drainer.lake.iceberg import CATALOG, IcebergChangelog, IcebergLake, sqlite_for_java
from drainer.lake.lake_table import Name, plain_name, plain_type
from drainer.lake.warehouse import lake_of
from drainer.mysql.rows.change import PUT_UPDATE
from drainer.places.place import Place
from drainer.reading.archive.decode.definitions import Definitions
from drainer.reading.archive.decode.pump_range import PUMPS, has_rows
from drainer.reading.archive.decode.reading import FAIL
from drainer.reading.archive.files.selection import Selection
from drainer.reading.archive.views.changes import INVALID, ImageSide, array_of
from drainer.spark.driver import translated
from drainer.spark.effects.blocks import FOLDED, by_bucket, effects_in, folded
from drainer.spark.effects.fold import Reading
from drainer.spark.effects.operations import OPERATION
from drainer.spark.engine import SparkOf
from drainer.spark.live.downstream import KnownSchema, LiveBatch, LiveSettings
from drainer.spark.live.lake import LakeDownstream, LakeStart, begin, named, ruling_of
from drainer.spark.replay.plan import SMALL_BYTES, shares
from drainer.spark.source.pump_cluster import PumpCluster
from drainer.spark.source.spark_types import arrow_schema, quoted, struct_of
from drainer.stream.rules.rule_set import Rules
from drainer.txn import INSERT, Ddl, TableVersion
from tidb_binlog.errors import ConfigError, Conflict, DownstreamError, Unavailable
from tidb_binlog.late_dataclass import dataclass
from tidb_binlog.observe import log
from tidb_binlog.observe.printable import one_line
from tidb_binlog.table_info import STRING, Column
from tidb_binlog.tso import Ts

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

logger = log.get("drainer.mirror")

GONE: Final = "_gone"
_VIEW: Final = "tidb_binlog_changes"
_PARTITIONS_PER_CORE: Final = 2
_BUCKETS_MIN: Final = 8
_PASSES: Final = re.compile(
    r"Concurrent\w*Exception|MetadataChanged|ALREADY_EXISTS|CommitFailedException|CommitStateUnknown|IOException"
)


@dataclass(frozen=True)
class Connector:
    """What Spark needs of a format. `packages`: of Maven."""

    extension: str
    packages: tuple[str, ...]
    settings: tuple[tuple[str, str], ...]


DELTA_CONNECTOR: Final = Connector(
    "io.delta.sql.DeltaSparkSessionExtension",
    ("io.delta:delta-spark_4.1_2.13:4.4.0",),
    (
        ("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog"),
        # Delta's own 50 tasks for the list of a table's files, twice a MERGE, cost more than a small batch.
        ("spark.databricks.delta.snapshotPartitions", "4"),
    ),
)
ICEBERG_CONNECTOR: Final = Connector(
    "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
    ("org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0", "org.xerial:sqlite-jdbc:3.50.3.0"),
    ((f"spark.sql.catalog.{CATALOG}", "org.apache.iceberg.spark.SparkCatalog"),),
)


def connector_of(settings: DrainerConfig) -> Connector:
    """Of the format that a configuration names."""
    return ICEBERG_CONNECTOR if settings.db_type == ICEBERG else DELTA_CONNECTOR


def session_settings(settings: DrainerConfig) -> dict[str, str]:
    """What a session for mirrors of this configuration is to be made with. Of a REST catalog Spark knows
    properties by the same names; secrets, and any other catalog, are the user's to say
    (`spark.sql.catalog.lake.*`)."""
    connector = connector_of(settings)
    chosen = {"spark.sql.extensions": connector.extension, **dict(connector.settings)}
    if connector is ICEBERG_CONNECTOR:
        of_catalog = {"cache-enabled": "false"}  # tables change beside Spark, too
        if not settings.catalog:
            of_catalog |= sqlite_for_java(settings.warehouse)
        elif settings.catalog.get("type") == "rest":
            resolved = settings.catalog_properties
            of_catalog |= {key: text for key, text in settings.catalog.items() if text == resolved[key]}
        chosen |= {f"spark.sql.catalog.{CATALOG}.{key}": text for key, text in of_catalog.items()}
    return chosen


@dataclass(frozen=True)
class Decoding:
    """What a task makes of blocks of one table: rows of its columns, and whether the key is gone. `schema`:
    of these, to the letter."""

    version: TableVersion
    definitions: Definitions
    schema: pa.Schema

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        names = [name for name in self.schema.names if name not in (INVALID, GONE)]
        image = pa.struct([self.schema.field(name) for name in names])
        side = ImageSide("after", 3, pa.schema([("after", image)]), self.version)
        key = mirror.key_of(self.version)[0].name
        for batch in effects_in(block for some in batches for block in some.column("block")):
            images = batch.column("image").to_pylist()
            numbers = batch.column("definition").to_pylist()
            rows = [
                (self.definitions.version(number), INSERT, None, data)
                for number, data in zip(numbers, images, strict=True)
            ]
            invalid: dict[int, dict[str, Any]] = {}
            columns = dict(zip(names, side.array(rows, invalid).flatten(), strict=True))
            if None in images:  # a key that is a whole number says all of a row that is gone
                keys = batch.column("key").to_pylist()
                whole = [int(each) if data is None else None for each, data in zip(keys, images, strict=True)]
                lacking = pc.is_null(batch.column("image"))
                columns[key] = pc.if_else(lacking, array_of(image.field(key).type, whole), columns[key])
            operations = pc.bit_wise_and(batch.column("last_order"), OPERATION)
            notes = [mirror.noted(invalid[at]) if at in invalid else None for at in range(len(rows))]
            yield pa.RecordBatch.from_arrays(
                [*columns.values(), pa.array(notes, pa.string()), pc.greater(operations, PUT_UPDATE)],
                schema=self.schema,
            )


def decoded(frame: DataFrame, number: int, definitions: Definitions) -> DataFrame:
    """Rows of one definition, of folded blocks."""
    version = definitions.version(number)
    columns = struct_of(mirror.schema_of(version).append(pa.field(GONE, pa.bool_())))
    return frame.where(frame["definition"] == number).mapInArrow(
        Decoding(version, definitions, arrow_schema(columns)), columns
    )


async def open_mirror(
    settings: LiveSettings, spark: SparkOf | None, cluster: PumpCluster, rules: Rules
) -> Mirrors:
    """At its position, with the schema of there. Raises `ConfigError` without Spark or its connector."""
    if spark is None:
        raise ConfigError("a mirror needs Spark", hint="--mode changelog does without")
    drainer = named(settings)
    await asyncio.to_thread(lambda: require(spark(), connector_of(drainer)))
    start = await begin(settings, cluster)
    lake = lake_of(drainer, cluster.upstream.cluster_id)
    await asyncio.to_thread(lake.open)
    return Mirrors(start, lake, spark, rules)


def require(spark: SparkSession, connector: Connector) -> None:
    """Raises `ConfigError` where the connector is not in the session."""
    jvm: Any = spark.sparkContext._jvm
    if not jvm.org.apache.spark.util.Utils.classIsLoadable(connector.extension):
        packages = ",".join(connector.packages)
        raise ConfigError(
            f"--mode mirror needs {packages}, and Spark {spark.version} has no {connector.extension}",
            hint=f"PySpark 4.1 (pip install 'pyspark==4.1.*') with --conf spark.jars.packages={packages}; or"
            " --mode changelog, which needs none",
        )


class Mirrors(LakeDownstream):
    """One life at a warehouse."""

    def __init__(self, start: LakeStart, lake: DeltaLake | IcebergLake, spark: SparkOf, rules: Rules) -> None:
        super().__init__(start)
        self._lake = lake
        self._spark_of = spark
        self._rules = rules
        self._tables = start.position.load_tables()  # mirrors that were made and not removed by a DDL

    @property
    def _spark(self) -> SparkSession:
        return self._spark_of()

    def work(self, batch: LiveBatch) -> tuple[int, int]:
        _check_apart(batch.schema.definitions)
        # A job costs seconds, and between two DDL there are often no rows.
        rows = self._rows(batch) if batch.buckets(SMALL_BYTES) or has_rows(batch.slices) else 0
        if batch.ddl is not None:
            self._change(batch, batch.ddl)
        return rows, 0

    def close(self) -> None:
        self._lake.close()

    # -- rows ------------------------------------------------------------------------------------------

    def _rows(self, batch: LiveBatch) -> int:
        step, buckets = batch.rows, batch.buckets(0) or _BUCKETS_MIN
        parts = shares(batch.slices, self._spark.sparkContext.defaultParallelism)
        selection, definitions = Selection(step.start, step.stop), batch.schema.definitions
        reading = Reading(Place(PUMPS), parts, selection, definitions, frozenset(), buckets, FAIL)
        return self.merge(reading, step.stop)  # a DDL at the end has a commit of its own

    def merge(self, reading: Reading, stop_ts: Ts) -> int:
        """What was read goes into the tables; how many keys."""
        from pyspark import StorageLevel

        spark, definitions = self._spark, reading.definitions
        partitions = min(reading.buckets, spark.sparkContext.defaultParallelism * _PARTITIONS_PER_CORE)
        blocks = by_bucket(spark, reading, partitions)
        frame = blocks.mapInArrow(folded, FOLDED).persist(StorageLevel.DISK_ONLY)
        try:
            counts = frame.select("definition", "keys").collect()
            for number in sorted({number for number, _ in counts}):
                self.merge_rows(decoded(frame, number, definitions), definitions.version(number), stop_ts)
            return sum(keys for _, keys in counts)
        finally:
            frame.unpersist()

    def merge_rows(self, rows: DataFrame, version: TableVersion, stop_ts: Ts) -> None:
        """One row a key."""
        keys, schema, name = mirror.key_of(version), mirror.schema_of(version), plain_name(version.downstream)
        table = self._load(name) or self._lake.create(name, schema, "")
        self._note(self._tables | {name})
        if table.position >= stop_ts:
            return
        _check(".".join(name), table.schema, schema)
        rows.createOrReplaceTempView(_VIEW)
        names = [quoted(each) for each in schema.names]
        on = " AND ".join(_same(key, schema.field(key.name).type) for key in keys)
        values = ", ".join(f"s.{each}" for each in names)
        statement = (
            f"MERGE INTO {self._lake.sql_name(name)} t USING {_VIEW} s ON {on}"
            f" WHEN MATCHED AND s.{GONE} THEN DELETE"
            f" WHEN MATCHED THEN UPDATE SET {', '.join(f'{each} = s.{each}' for each in names)}"
            f" WHEN NOT MATCHED AND NOT s.{GONE} THEN INSERT ({', '.join(names)}) VALUES ({values})"
        )
        with table.merging(stop_ts) as conf:
            self._run(statement, conf)

    def _load(self, name: Name) -> DeltaChangelog | IcebergChangelog | None:
        """None if there is none yet, or none any more."""
        table = self._lake.load(name)
        if table is None and name in self._tables:
            raise Conflict(
                f"the mirror {'.'.join(name)} is gone: another program has removed it",
                hint="restore it, or begin with an empty warehouse: rows of before come from no Pump",
            )
        return table

    def _note(self, tables: frozenset[Name]) -> None:
        if tables != self._tables:
            self.position.store_tables(tables)
            self._tables = tables

    def _run(self, statement: str, settings: Mapping[str, str]) -> None:
        """In one commit. `settings`: of this statement alone."""
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException

        spark = self._spark
        for key, value in settings.items():
            spark.conf.set(key, value)
        try:
            spark.sql(statement).collect()
        except (PySparkException, Py4JError) as error:
            if (why := translated(error)) is not None:
                raise why from None
            words = one_line(str(error).partition("\n")[0])
            kind = Unavailable if _PASSES.search(str(error)) else DownstreamError
            raise kind(
                f"Spark cannot write to {self._lake.shown}: {words}",
                hint="the statement was: " + statement.partition(" ON ")[0],
            ) from None
        finally:
            with contextlib.suppress(Py4JError):  # of a session that is gone
                for key in settings:
                    spark.conf.unset(key)

    # -- schema changes --------------------------------------------------------------------------------

    def _change(self, batch: LiveBatch, ddl: Ddl) -> None:
        """Each part of it leaves a table at its commit_ts, or removed: what was done is seen."""
        ruling = ruling_of(ddl, self.policy)
        if ruling.action == REWRITE:
            raise DownstreamError(
                f"syncer.ddl-rule {ruling.rule} writes DDL job {ddl.job_id} anew: a mirror runs no statement",
                hint="skip it, or apply it as it is",
            )
        if ruling.action == SKIP:
            logger.info("DDL left out", job_id=ddl.job_id, commit_ts=ddl.commit_ts, reason=ruling.reason)
            return
        after = KnownSchema.of(self.tracker, self._rules).definitions
        before, now = ([table.version for table in each] for each in (batch.schema.definitions, after))
        changes = mirror.changed(ddl, before, now)
        for old, new in changes.renamed:
            self._rename(plain_name(old), plain_name(new), ddl)
        taken = {new for _, new in changes.renamed}
        for name in (*changes.removed, *(old for old, _ in changes.renamed if old not in taken)):
            self._remove(plain_name(name), ddl)
        for version in changes.emptied:
            name = plain_name(version.downstream)
            if self._load(name) is not None:
                empty = struct_of(mirror.schema_of(version))
                self._spark.createDataFrame([], empty).createOrReplaceTempView(_VIEW)
                self._replace(name, f"SELECT * FROM {_VIEW}", ddl)
        for version, columns in changes.altered:
            self._alter(plain_name(version.downstream), version, columns, ddl)

    def _rename(self, old: Name, new: Name, ddl: Ddl) -> None:
        """What has the new name so far has left it before."""
        if self._load(old) is not None:
            self._replace(new, f"SELECT * FROM {self._lake.sql_name(old)}", ddl)
        elif (former := self._lake.load(new)) is not None and former.position < ddl.commit_ts:
            self._remove(new, ddl)

    def _alter(self, name: Name, version: TableVersion, columns: tuple[mirror.Follow, ...], ddl: Ddl) -> None:
        table = self._load(name)
        if table is None or table.position >= ddl.commit_ts:
            return
        if mirror.only_adds(columns, table.schema.names):
            table.add_columns(mirror.schema_of(version))
            return
        defaults = {each.name: each for each in columns if not each.former}
        row = pa.table({each.name: pa.array([each.default], each.type) for each in defaults.values()})
        source = f"{self._lake.sql_name(name)} t"
        if defaults:
            self._spark.createDataFrame(row).createOrReplaceTempView(_VIEW)
            source += f" CROSS JOIN {_VIEW} d"
        types = struct_of(mirror.schema_of(version))
        selected = [
            f"CAST({'t' if each.former else 'd'}.{quoted(each.former or each.name)}"
            f" AS {types[each.name].dataType.simpleString()}) AS {quoted(each.name)}"
            for each in columns
        ]
        self._replace(name, f"SELECT {', '.join(selected)}, t.{INVALID} FROM {source}", ddl)

    def _replace(self, name: Name, select: str, ddl: Ddl) -> None:
        """The table is what is selected, unless it was made so before."""
        table = self._lake.load(name)
        if table is None or table.position < ddl.commit_ts:
            with self._lake.replacing(name, table, ddl.commit_ts) as (head, settings):  # type: ignore[arg-type]
                self._run(f"{head} {select}", settings)
        self._note(self._tables | {name})

    def _remove(self, name: Name, ddl: Ddl) -> None:
        """Unless what has the name was made after the DDL, which is done again."""
        table = self._lake.load(name)
        if table is not None and table.position >= ddl.commit_ts:
            return
        self._note(self._tables - {name})
        self._lake.remove(name)
        if isinstance(self._lake, DeltaLake):  # Spark remembers a table by its path
            jvm: Any = self._spark.sparkContext._jvm
            jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()


def _check_apart(definitions: Definitions) -> None:
    """Raises `DownstreamError` for tables that go into one: a MERGE of one passes for that of the other."""
    names = collections.Counter(table.version.downstream for table in definitions)
    if shared := [".".join(name) for name, count in names.items() if count > 1]:
        raise DownstreamError(
            f"several tables are routed to {', '.join(shared)}: a mirror has the rows of one",
            hint="route them apart, leave out all but one, or keep a changelog",
        )


def _same(column: Column, kind: pa.DataType) -> str:
    """Whether two rows have one value of a key column. What it cannot hold stands in `_invalid`."""
    name = quoted(column.name)
    mine, other = f"t.{name}", f"s.{name}"
    if column.type.tp == STRING and not column.type.is_binary_string:  # CHAR: blanks at the end do not count
        mine, other = f"rtrim({mine})", f"rtrim({other})"
    if not (pa.types.is_temporal(kind) or pa.types.is_string(kind)):
        return f"{mine} = {other}"
    path = column.name.replace("\\", "\\\\").replace('"', '\\"')
    noted = (f"get_json_object({side}.{INVALID}, \"$['{path}']\")" for side in "ts")
    return f"{mine} <=> {other} AND ({other} IS NOT NULL OR {' <=> '.join(noted)})"


def _check(shown: str, present: pa.Schema, needed: pa.Schema) -> None:
    """Raises `Conflict` for a table that is none of ours, or was changed."""
    for field in needed:
        place = present.get_field_index(field.name)
        if place < 0 or not holds(plain_type(present.field(place).type), field.type):
            what = "is missing" if place < 0 else f"is {present.field(place).type} and not {field.type}"
            raise Conflict(
                f"{shown} in the warehouse is no mirror of its table: column {field.name} {what}",
                hint="another program, or a DDL that was left out, changed it: undo that, or move it away and"
                " copy it anew",
            )
