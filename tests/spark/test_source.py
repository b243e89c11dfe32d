"""The data source in Spark itself: views, typed columns, a schema that prunes, other systems' forms."""

from __future__ import annotations

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql.types import StringType, StructField, StructType

from common.errors import ConfigError
from drainer.spark.change_formats import as_cdf, as_debezium
from drainer.spark.read_options import ReadOptions
from drainer.spark.source import Archive, BinlogReader
from tests.spark.replay_world import our_archive


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(our_archive("basic", tmp_path_factory.mktemp("source") / "archive"))


def rows(path: str, **options: str) -> list[dict[str, object]]:
    """What a task gives, without Spark."""
    found = Archive({"path": path, **options})
    reader = BinlogReader(found, found.schema)
    return [row for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]


def test_spark_takes_the_batches_of_every_view(spark: SparkSession, archive: str) -> None:
    for view in ("changes", "transactions", "ddl", "files", "definitions"):
        frame = spark.read.format("binlog").option("view", view).load(archive)
        assert frame.count() == len(rows(archive, view=view)) > 0, view


def test_typed_columns_pruned_and_in_the_forms_of_others(spark: SparkSession, archive: str) -> None:
    expected = rows(archive, table="shop.customer")
    one = {"table": "shop.customer"}
    some = "_seq long, after struct<id bigint>"
    pruned = spark.read.format("binlog").options(**one).schema(some).load(archive)
    found = [(row["_seq"], row["after"] and row["after"]["id"]) for row in pruned.collect()]
    assert sorted(found, key=str) == sorted(
        [(row["_seq"], row["after"] and row["after"]["id"]) for row in expected],  # type: ignore[index]
        key=str,
    )
    changes = spark.read.format("binlog").options(**one).load(archive).cache()
    updates = sum(row["_change_type"] == "update" for row in expected)
    feed = as_cdf(changes)
    assert feed.columns[0] == "id"
    assert feed.count() == len(expected) + updates
    assert as_debezium(changes).where("op = 'u' and source.table = 'customer'").count() == updates > 0
    changes.unpersist()


def test_an_option_or_column_that_is_not_known_is_refused(spark: SparkSession, archive: str) -> None:
    with pytest.raises(AnalysisException, match="there is no option 'strat'"):
        spark.read.format("binlog").option("strat", "1").load(archive)
    found = Archive({"path": archive})
    wider = StructType([*found.schema.fields, StructField("nothing", StringType())])
    with pytest.raises(ConfigError, match="no column 'nothing'"):
        BinlogReader(found, wider)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"path": "x", "table": "t"},
        {"path": "x", "table": "a.b", "tables": "a.c"},
        {"path": "x", "damage": "no"},
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, str]) -> None:
    with pytest.raises(ConfigError):
        ReadOptions.of(options)
