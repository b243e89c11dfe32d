"""Parquet tasks: frames written and read as Parquet wherever a place leads.

Drives  Spark where the place is of this machine or of a directory that all share; else Python in its tasks,
        which reach what the driver reaches by their own environment. `write_part` needs no Spark
Holds   a file is there whole or not at all. A task that is done again writes the same file again
Why     Spark's own writers need a jar of Hadoop's for each object store
Tests   tests/spark/test_parquet_tasks.py
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from drainer.places.place import Place
from tidb_binlog.errors import Rejected

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


def write(frame: DataFrame, place: Place) -> None:
    """Write all rows into a directory that has nothing yet. Raises `Rejected` where it has."""
    check_empty(place)
    if place.local is not None:
        frame.write.mode("error").parquet(place.local)
        return
    from drainer.spark.source.spark_types import arrow_schema

    schema = arrow_schema(frame.schema)

    def work(batches: Iterable[Any]) -> Iterator[Any]:
        import pyarrow as pa
        from pyspark import TaskContext

        context = TaskContext.get()
        rows = write_part(place, context.partitionId() if context else 0, schema, batches)
        yield pa.RecordBatch.from_pydict({"rows": [rows]}, pa.schema([("rows", pa.int64())]))

    frame.mapInArrow(work, "rows long").collect()


def check_empty(place: Place) -> None:
    """Raises `Rejected` for a directory that has something."""
    if place.list(missing_ok=True):
        raise Rejected(f"{place.shown} has files already", hint="name another directory")


def write_part(place: Place, number: int, schema: Any, batches: Iterable[Any]) -> int:
    """One file of a directory; how many rows it has."""
    import pyarrow as pa
    from pyarrow import parquet

    rows, name = 0, f"part-{number:05d}.parquet"
    with place.stream(name) as file, parquet.ParquetWriter(file, schema, compression="zstd") as writer:
        for batch in batches:
            writer.write_table(pa.Table.from_batches([batch]).cast(schema))
            rows += batch.num_rows
    return rows


def read(spark: SparkSession, place: Place, columns: StructType) -> DataFrame:
    """The rows of all files of a directory."""
    if place.local is not None:
        return spark.read.schema(columns).parquet(place.local)
    from drainer.spark.source.spark_types import arrow_schema

    names = [entry.name for entry in place.list() if entry.name.endswith(".parquet")]
    schema = arrow_schema(columns)

    def work(batches: Iterable[Any]) -> Iterator[Any]:
        import pyarrow as pa
        from pyarrow import parquet

        for batch in batches:
            for name in batch.column(0).to_pylist():
                with place.native(name) as source:
                    file = parquet.ParquetFile(source, coerce_int96_timestamp_unit="us")
                    for rows in file.iter_batches(columns=schema.names):
                        yield from pa.Table.from_batches([rows]).cast(schema).to_batches()

    files = spark.createDataFrame([(name,) for name in names], "name string")
    return files.repartition(max(len(names), 1)).mapInArrow(work, columns)
