"""Parquet in an object store, written and read by Spark without a jar of Hadoop's for it."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from drainer.places.place import Place
from drainer.points.image.manifest import Manifest
from drainer.reading.archive.files.segments import survey
from drainer.spark import image, parquet_tasks
from drainer.spark.audit.auditing import audit
from drainer.spark.program import run
from tests.drainer.reading.archive.support import corpus
from tests.drainer.support.relay_world import items
from tests.object_store import ObjectStore
from tidb_binlog.errors import Rejected

pytestmark = pytest.mark.integration


def test_a_frame_comes_back(spark: SparkSession, s3: ObjectStore) -> None:
    frame = spark.sql(
        "SELECT id, CAST(id / 3 AS DECIMAL(20,4)) d, IF(id % 7 = 0, NULL, CAST(id AS STRING)) `ö s`,"
        " TIMESTAMP_NTZ'2024-01-01 00:00:00.123456' t, MAKE_DT_INTERVAL(1, 2, 3, id) i"
        " FROM range(0, 5000, 1, 3)"
    )
    place = Place(s3.uri("out")).under("odd name%2F")
    parquet_tasks.write(frame, place)
    assert sorted(s3.objects()) == [f"out/odd name%2F/part-0000{number}.parquet" for number in range(3)]
    again = parquet_tasks.read(spark, place, frame.schema)
    assert again.exceptAll(frame).count() == frame.exceptAll(again).count() == 0
    assert again.schema == frame.schema
    with pytest.raises(Rejected, match="has files already"):
        parquet_tasks.write(frame, place)


@pytest.mark.parametrize("small_bytes", [0, 1 << 30])
def test_an_image_and_the_next_one_on_it(
    spark: SparkSession, s3: ObjectStore, tmp_path: Path, small_bytes: int
) -> None:
    archive = corpus.our_archive(items("basic"), tmp_path / "archive", 1 << 20)
    last_ts = survey(archive).last_ts()
    local = image.make(spark, archive.uri, str(tmp_path / "image"), small_bytes=small_bytes)
    first, second = s3.uri("first"), s3.uri("second")
    image.make(spark, archive.uri, first, {"stop": str(last_ts - 1)}, small_bytes=small_bytes)
    made = image.make(spark, archive.uri, second, base=first, small_bytes=small_bytes)
    assert Manifest.load(second) == made
    assert [(one.shown, one.rows, one.checksum) for one in made.tables] == [
        (one.shown, one.rows, one.checksum) for one in local.tables
    ]
    assert audit(None, archive.uri, image=second).findings["contents"].listed == []


@pytest.mark.parametrize("master", [[], ["--master", "local[1]"]], ids=["here", "by Spark"])
def test_changes_are_saved(
    s3: ObjectStore, master: list[str], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    archive = corpus.our_archive(items("basic"), tmp_path / "archive", 1 << 20)
    assert (
        run(["read", "--archive", archive.uri, "--save", s3.uri("changes"), "--output", "json", *master]) == 0
    )
    assert f'"directory": "{s3.uri("changes")}"' in capfd.readouterr().out
    assert s3.objects()
