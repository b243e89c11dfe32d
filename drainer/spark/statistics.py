"""Statistics: what an archive holds, in numbers.

In     the views `changes` and `transactions`; of `changes` only the columns that are counted
Out    data frames: changes by table, kind and hour; bytes by hour; transactions' sizes; keys that change most
Holds  bytes are those of complete rows before and after, as an archive of TiDB rows has them, not of files
Tests  tests/spark/test_history.py
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PERCENTS: Final = (50, 90, 99)
HOTTEST: Final = 10
_HOUR: Final = "hour"


def rates(spark: SparkSession, archive: str, options: Mapping[str, str]) -> DataFrame:
    """Changes by hour, table and kind."""
    from pyspark.sql import functions as f

    names = ("_schema", "_table", "_change_type")
    changes = _load(spark, archive, options, "changes", {"_commit_timestamp": "timestamp", **_texts(names)})
    hour = f.date_trunc(_HOUR, "_commit_timestamp").alias(_HOUR)
    return changes.groupBy(hour, *names).agg(f.count("*").alias("changes")).orderBy(_HOUR, *names)


def sizes(spark: SparkSession, archive: str, options: Mapping[str, str]) -> DataFrame:
    """One row: how many transactions, and percentiles of their rows and bytes."""
    from pyspark.sql import functions as f

    wanted = {"rows": "long", "bytes": "long"}
    found = _load(spark, archive, options, "transactions", wanted)
    measures = [f.count("*").alias("transactions")]
    for name in wanted:
        measures.append(f.sum(name).alias(name))
        measures += [f.percentile_approx(name, part / 100).alias(f"{name}_p{part}") for part in PERCENTS]
        measures.append(f.max(name).alias(f"{name}_max"))
    return found.agg(*measures)


def volumes(spark: SparkSession, archive: str, options: Mapping[str, str]) -> DataFrame:
    """Transactions, rows and bytes by hour."""
    from pyspark.sql import functions as f

    wanted = {"_commit_timestamp": "timestamp", "rows": "long", "bytes": "long"}
    found = _load(spark, archive, options, "transactions", wanted)
    hour = f.date_trunc(_HOUR, "_commit_timestamp").alias(_HOUR)
    measures = (
        f.count("*").alias("transactions"),
        f.sum("rows").alias("rows"),
        f.sum("bytes").alias("bytes"),
    )
    return found.groupBy(hour).agg(*measures).orderBy(_HOUR)


def hottest(
    spark: SparkSession, archive: str, options: Mapping[str, str], number: int = HOTTEST
) -> DataFrame:
    """The keys with most changes. Rows of tables without a key have none."""
    from pyspark.sql import functions as f

    names = ("_schema", "_table", "key")
    changes = _load(spark, archive, options, "changes", _texts(names)).where("key is not null")
    counted = changes.groupBy(*names).agg(f.count("*").alias("changes"))
    return counted.orderBy(f.desc("changes"), *names).limit(number)


def _texts(names: tuple[str, ...]) -> dict[str, str]:
    return dict.fromkeys(names, "string")


def _load(
    spark: SparkSession, archive: str, options: Mapping[str, str], view: str, columns: Mapping[str, str]
) -> DataFrame:
    """Spark prunes no columns of a Python source: what the schema names is all that is made."""
    reader = spark.read.format("binlog").options(**{**options, "view": view})
    return reader.schema(", ".join(f"{name} {kind}" for name, kind in columns.items())).load(archive)
