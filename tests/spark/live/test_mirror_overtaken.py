"""A stream that stood still while another one took its mirrors over: what it had begun comes to nothing."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest

from drainer.config.options import DrainerConfig
from drainer.lake.mirror import schema_of
from drainer.lake.warehouse import LakePosition, lake_of
from drainer.spark.live.mirror import DELTA_CONNECTOR, ICEBERG_CONNECTOR, Connector, Mirrors
from drainer.txn import Ddl
from tests.architecture.source import ROOT
from tests.drainer.support.lake_world import column, version_of
from tests.spark.support import spark_versions
from tidb_binlog.ddl_job import ActionType
from tidb_binlog.table_info import FLAG_NOT_NULL, FLAG_PRIMARY

KEYED = version_of(column(1, "id", flag=FLAG_PRIMARY | FLAG_NOT_NULL), column(2, "n"))
TABLE = replace(KEYED, info=replace(KEYED.info, pk_is_handle=True))
NAME = ("d", "t")
DROP = Ddl(100, 1, ActionType.DROP_TABLE, "d", "DROP TABLE d.t", (NAME,), 2)


def settings_of(form: str, warehouse: str) -> DrainerConfig:
    return replace(DrainerConfig(), db_type=form, warehouse=warehouse, node_id="n")


def mirrors_of(settings: DrainerConfig, spark: Any) -> Mirrors:
    """Of a stream that is somewhere."""
    lake = lake_of(settings, 1)
    lake.open()
    start: Any = SimpleNamespace(position=LakePosition(settings, 1, "mirror"), floor_ts=0)
    start.tracker = start.policy = None
    return Mirrors(start, lake, lambda: spark, None)  # type: ignore[arg-type]


@pytest.mark.parametrize(("position", "is_there"), [(99, False), (100, True)])
def test_a_drop_that_is_done_again_leaves_what_was_made_since(
    position: int, is_there: bool, tmp_path: Path
) -> None:
    mirrors = mirrors_of(settings_of("delta", str(tmp_path)), MagicMock())
    mirrors._lake.create(NAME, schema_of(TABLE), "").add([], position)
    mirrors._remove(NAME, DROP)
    assert (mirrors._lake.load(NAME) is not None) == is_there
    mirrors.close()


OVERTAKEN = """
import json, sys, threading, time
from pathlib import Path
import pyarrow as pa
from pyspark.sql import SparkSession
from drainer.lake.mirror import schema_of
from drainer.spark.live.mirror import GONE, session_settings
from drainer.spark.source.spark_types import struct_of
from tests.spark.live.test_mirror_overtaken import NAME, TABLE, mirrors_of, settings_of
from tidb_binlog.errors import BinlogError

form, warehouse, jars = sys.argv[1:]
settings = settings_of(form, warehouse)
builder = SparkSession.builder.master("local[4]")
own = {"spark.jars": jars, "spark.sql.shuffle.partitions": "2", "spark.ui.enabled": "false"}
for key, value in (session_settings(settings) | own).items():
    builder = builder.config(key, value)
spark = builder.getOrCreate()
begun, goes_on = Path(warehouse, "begun"), Path(warehouse, "goes-on")

def rows(session, *values, waits=False):
    types = struct_of(schema_of(TABLE).append(pa.field(GONE, pa.bool_())))
    def late(batches):
        begun.touch()
        while not goes_on.exists():
            time.sleep(0.05)
        yield from batches
    frame = session.createDataFrame([(key, n, None, gone) for key, n, gone in values], types).coalesce(1)
    return frame.mapInArrow(late, types) if waits else frame

first, second = spark.newSession(), spark.newSession()
old, new = mirrors_of(settings, first), mirrors_of(settings, second)
old.merge_rows(rows(first, (1, 1, False)), TABLE, 100)
said = []

def stand_still():
    try:
        old.merge_rows(rows(first, (2, 2, False), waits=True), TABLE, 200)
    except BinlogError as error:
        said.append(type(error).__name__)

thread = threading.Thread(target=stand_still)
thread.start()
while thread.is_alive() and not begun.exists():
    time.sleep(0.05)
new.merge_rows(rows(second, (2, None, True)), TABLE, 300)  # a longer batch: the row came and went in it
goes_on.touch()
thread.join()
table = new._lake.load(NAME)
there = [(row["id"], row["n"]) for batch in table.batches() for row in batch.to_pylist()]
print("told", json.dumps([there, table.position, said]))
"""


@pytest.mark.integration
@pytest.mark.timeout(spark_versions.MAKING_S + 600)
@pytest.mark.parametrize(("form", "connector"), [("delta", DELTA_CONNECTOR), ("iceberg", ICEBERG_CONNECTOR)])
def test_a_merge_that_was_planned_before_another_stream_went_on(
    form: str, connector: Connector, tmp_path: Path
) -> None:
    """The other one's adds no file, which is all that Iceberg looks at."""
    jars = spark_versions.or_skip(lambda: spark_versions.jars("4.1", *connector.packages))["spark.jars"]
    done = subprocess.run(
        [sys.executable, "-c", OVERTAKEN, form, str(tmp_path), jars],
        env=spark_versions.environ("4.1"),
        cwd=ROOT,
        text=True,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    (told,) = [line for line in done.stdout.splitlines() if line.startswith("told ")]
    assert told == 'told [[[1, 1]], 300, ["Unavailable"]]'
