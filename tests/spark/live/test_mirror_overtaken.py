"""A stream that stood still while another one took its mirrors over: what it had begun comes to nothing."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pyarrow as pa
import pytest

from drainer.config.options import DrainerConfig
from drainer.lake.iceberg import IcebergLake
from drainer.lake.mirror import schema_of
from drainer.lake.warehouse import LakePosition, lake_of
from drainer.spark.live.mirror import DELTA_CONNECTOR, ICEBERG_CONNECTOR, Connector, Mirrors
from drainer.txn import Ddl
from tests.architecture.source import ROOT
from tests.drainer.support.lake_world import column, version_of
from tests.spark.support import spark_versions
from tidb_binlog.ddl_job import ActionType
from tidb_binlog.errors import Unavailable
from tidb_binlog.table_info import FLAG_NOT_NULL, FLAG_PRIMARY

KEYED = version_of(column(1, "id", flag=FLAG_PRIMARY | FLAG_NOT_NULL), column(2, "n"))
TABLE = replace(KEYED, info=replace(KEYED.info, pk_is_handle=True))
NAME = ("d", "t")
DROP = Ddl(100, 1, ActionType.DROP_TABLE, "d", "DROP TABLE d.t", (NAME,), 2)
REBUILD = Ddl(200, 1, ActionType.MODIFY_COLUMN, "d", "ALTER TABLE d.t MODIFY n BIGINT", (NAME,), 2)


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


def rows_of(table: Any) -> list[dict[str, Any]]:
    return sorted((row for batch in table.batches() for row in batch.to_pylist()), key=repr)


@pytest.mark.parametrize("meanwhile", ["nothing", "rows", "columns", "another"])
def test_an_iceberg_table_becomes_what_was_made_of_it(meanwhile: str, tmp_path: Path) -> None:
    """In one commit, with columns that changed their places; not where the table moved since."""
    lake = lake_of(settings_of("iceberg", str(tmp_path)), 1)
    assert isinstance(lake, IcebergLake)
    lake.open()
    schema = pa.schema([("id", pa.int32()), ("n", pa.int64())])
    turned = pa.schema([("n", pa.int32()), ("id", pa.int64()), ("m", pa.string())])
    lake.create(NAME, schema, "").append(pa.table([[1, 2], [10, 20]], schema).to_reader(), 100)
    table, other = lake.load(NAME), lake.load(NAME)
    assert table is not None
    assert other is not None
    with (
        contextlib.nullcontext() if meanwhile == "nothing" else pytest.raises(Unavailable),
        lake.replacing(NAME, table, 200) as (head, _),
    ):
        mark = head.partition("'wap.id' = '")[2].partition("'")[0]
        anew = lake.create((NAME[0], f"{NAME[1]}~anew"), turned, "")
        anew.append(pa.table([[1], [10], ["x"]], turned).to_reader(), 200)
        if meanwhile != "another":
            with anew._table.transaction() as transaction:
                transaction.set_properties({"wap.id": mark})
        if meanwhile == "rows":
            other.append(pa.table([[3], [30]], schema).to_reader(), 300)
        elif meanwhile == "columns":
            other.add_columns(turned)
    after = lake.load(NAME)
    assert after is not None
    if meanwhile == "nothing":
        assert (after.position, rows_of(after)) == (200, [{"n": 1, "id": 10, "m": "x"}])
        after.append(pa.table([[2], [20], [None]], turned).to_reader(), 300)
        assert rows_of(lake.load(NAME)) == [{"n": 1, "id": 10, "m": "x"}, {"n": 2, "id": 20, "m": None}]
        assert lake.load((NAME[0], f"{NAME[1]}~anew")) is None
        past = after._table.scan(snapshot_id=after._table.metadata.snapshots[0].snapshot_id).to_arrow()
        assert past.to_pylist() == [{"id": 1, "n": 10}, {"id": 2, "n": 20}]
    else:
        assert after.position == (300 if meanwhile == "rows" else 100)
        assert {"id": 1, "n": 10}.items() <= rows_of(after)[0].items()
    lake.close()


OVERTAKEN = """
import json, sys, threading, time
from pathlib import Path
import pyarrow as pa
from pyspark.sql import SparkSession
from drainer.lake.mirror import schema_of
from drainer.spark.live.mirror import GONE, session_settings
from drainer.spark.source.spark_types import struct_of
from tests.spark.live.test_mirror_overtaken import NAME, REBUILD, TABLE, mirrors_of, settings_of
from tidb_binlog.errors import BinlogError

form, warehouse, jars, work = sys.argv[1:]
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
SAME = f"SELECT id, n, _invalid FROM {old._lake.sql_name(NAME)}"

def stand_still():
    try:
        if work == "merge":
            old.merge_rows(rows(first, (2, 2, False), waits=True), TABLE, 200)
        else:
            rows(first, waits=True).createOrReplaceTempView("nothing")
            old._replace(NAME, f"{SAME} UNION ALL SELECT id, n, _invalid FROM nothing", REBUILD)
    except BinlogError as error:
        said.append(type(error).__name__)

thread = threading.Thread(target=stand_still)
thread.start()
while thread.is_alive() and not begun.exists():
    time.sleep(0.05)
if work == "rebuild":
    new._replace(NAME, SAME, REBUILD)
later = [(3, 3, False)] if work == "rebuild" else []
new.merge_rows(rows(second, (2, None, True), *later), TABLE, 300)  # a longer batch: the row came and went
goes_on.touch()
thread.join()
table = new._lake.load(NAME)
there = sorted((row["id"], row["n"]) for batch in table.batches() for row in batch.to_pylist())
print("told", json.dumps([there, table.position, said]))
"""


@pytest.mark.integration
@pytest.mark.timeout(spark_versions.MAKING_S + 600)
@pytest.mark.parametrize(("form", "connector"), [("delta", DELTA_CONNECTOR), ("iceberg", ICEBERG_CONNECTOR)])
@pytest.mark.parametrize(("work", "rows"), [("merge", [[1, 1]]), ("rebuild", [[1, 1], [3, 3]])])
def test_what_was_planned_before_another_stream_went_on(
    form: str, connector: Connector, work: str, rows: list[list[int]], tmp_path: Path
) -> None:
    """The other one's MERGE adds no file, which is all that Iceberg looks at; of a REPLACE, at nothing."""
    jars = spark_versions.or_skip(lambda: spark_versions.jars("4.1", *connector.packages))["spark.jars"]
    done = subprocess.run(
        [sys.executable, "-c", OVERTAKEN, form, str(tmp_path), jars, work],
        env=spark_versions.environ("4.1"),
        cwd=ROOT,
        text=True,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    (told,) = [line for line in done.stdout.splitlines() if line.startswith("told ")]
    assert json.loads(told.removeprefix("told ")) == [rows, 300, ["Unavailable"]]
