"""The data source in Spark itself: views, typed columns, a schema that prunes, other systems' forms."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql.types import StringType, StructField, StructType

from drainer.reading.archive.archive_source import ArchiveSource
from drainer.reading.archive.read_options import ReadOptions
from drainer.reading.errors import NoSuchTable
from drainer.spark.replay.archive_range import ArchiveRange
from drainer.spark.source.source import BinlogReader
from drainer.spark.source.spark_types import struct_of
from tests.drainer.reading.archive.support import corpus
from tests.drainer.support import recorded
from tests.drainer.support.relay_world import items
from tidb_binlog.errors import ConfigError, Corruption


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> str:
    return corpus.our_archive(items("basic"), tmp_path_factory.mktemp("source") / "archive").uri


def rows(path: str, **options: str) -> list[dict[str, object]]:
    """What a task gives, without Spark."""
    found = ArchiveSource({"path": path, **options})
    reader = BinlogReader(found, struct_of(found.schema))
    return [row for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]


def test_spark_takes_the_batches_of_every_view(spark: SparkSession, archive: str) -> None:
    for view in ("changes", "transactions", "ddl", "files", "definitions"):
        frame = spark.read.format("binlog").option("view", view).load(archive)
        assert frame.count() == len(rows(archive, view=view)) > 0, view


def test_a_schema_that_is_given_prunes_typed_columns(spark: SparkSession, archive: str) -> None:
    expected = rows(archive, table="shop.customer")
    one = {"table": "shop.customer"}
    some = "_seq long, after struct<id bigint>"
    pruned = spark.read.format("binlog").options(**one).schema(some).load(archive)
    found = [(row["_seq"], row["after"] and row["after"]["id"]) for row in pruned.collect()]
    assert sorted(found, key=str) == sorted(
        [(row["_seq"], row["after"] and row["after"]["id"]) for row in expected],  # type: ignore[index]
        key=str,
    )


def test_who_does_not_ask_for_invalid_values_gets_an_error(tmp_path: Path) -> None:
    path = corpus.our_archive(items("types"), tmp_path / "types").uri
    found = ArchiveSource({"path": path, "table": "typ.t_date"})
    without = StructType([one for one in struct_of(found.schema).fields if one.name != "_invalid"])
    reader = BinlogReader(found, without)
    with pytest.raises(Corruption, match=r"no value for after\.") as error:
        list(itertools.chain.from_iterable(map(reader.read, reader.partitions())))
    assert "_invalid" in str(error.value.hint)


def test_files_are_told_by_their_index_unless_they_are_verified(tmp_path: Path) -> None:
    location = corpus.our_archive(items("basic"), tmp_path / "a", 8 << 10)
    by_index, verified = (rows(location.uri, view="files", verify=way) for way in ("", "true"))
    assert len(by_index) > 1
    assert sorted(by_index, key=str) == sorted(verified, key=str)
    victim = tmp_path / "a" / str(by_index[0]["file"])
    data = bytearray(victim.read_bytes())
    data[len(data) // 2] ^= 1
    victim.write_bytes(data)
    assert all(row["problem"] is None for row in rows(location.uri, view="files"))
    problems = [row["file"] for row in rows(location.uri, view="files", verify="true") if row["problem"]]
    assert problems == [victim.name]


def test_a_value_log_with_its_history_has_the_changes_of_the_archive(tmp_path: Path, archive: str) -> None:
    (pump,) = corpus.pumps("basic", tmp_path)
    history = str(recorded.ROOT / "basic" / "ddl_jobs.jsonl.gz")
    images = ("_commit_ts", "_seq", "_schema", "_table", "_change_type", "key", "before", "after")

    def told_by(path: str, **options: str) -> list[tuple[object, ...]]:
        return sorted((tuple(row[one] for one in images) for row in rows(path, **options)), key=str)

    options = {"ddl-history": history}
    assert told_by(pump.uri, **options) == told_by(archive)
    ours, theirs = (list(ArchiveRange.open(no_session, path, options).net()) for path in (archive, pump.uri))
    assert len(ours) == len(theirs) > 0


def no_session() -> SparkSession:
    raise AssertionError("there is too little to read for a session")


def test_an_option_or_column_that_is_not_known_is_refused(spark: SparkSession, archive: str) -> None:
    with pytest.raises(AnalysisException, match="there is no option 'strat'"):
        spark.read.format("binlog").option("strat", "1").load(archive)
    found = ArchiveSource({"path": archive})
    wider = StructType([*struct_of(found.schema).fields, StructField("nothing", StringType())])
    with pytest.raises(ConfigError, match="no column 'nothing'"):
        BinlogReader(found, wider)
    misspelt = ArchiveSource({"path": archive, "tables": "nope.*"})
    with pytest.raises(NoSuchTable, match=r"has no table nope\.\*"):
        BinlogReader(misspelt, struct_of(misspelt.schema))


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
