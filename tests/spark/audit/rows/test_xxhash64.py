"""xxhash64: what Spark's function of this name gives."""

from __future__ import annotations

import random

from pyspark.sql import SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import BinaryType, StructField, StructType

from drainer.spark.audit.rows import xxhash64


def test_hashes(spark: SparkSession) -> None:
    rng = random.Random(5)
    sizes = [*range(70), 95, 96, 97, 128, 500, 4096]
    pairs = [(rng.randbytes(size), rng.randbytes(rng.choice(sizes))) for size in sizes for _ in range(3)]
    schema = StructType([StructField("key", BinaryType()), StructField("row", BinaryType())])
    hashes = f.xxhash64("key").alias("key"), f.xxhash64("key", "row").alias("row")
    found = [tuple(row) for row in spark.createDataFrame(pairs, schema).coalesce(1).select(*hashes).collect()]
    keys, rows = map(list, zip(*pairs, strict=True))
    of_keys, of_rows = xxhash64.of_keys(keys), xxhash64.of_rows(keys, rows)
    assert found == list(zip(of_keys.view("i8").tolist(), of_rows.view("i8").tolist(), strict=True))
