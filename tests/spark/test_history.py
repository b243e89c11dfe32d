"""History, image and statistics of one small archive, and of frames made by hand."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from drainer.mysql.connection import Connection
from drainer.spark import history, statistics
from drainer.spark.engine import engine_for
from tests.drainer.support.apply_model import SHAPES, World
from tests.spark.support.table_history import History
from tidb_binlog.errors import ConfigError
from tidb_binlog.rowcodec.plan import TablePlan


def change(ts: int, kind: str, key: str | None, before: str | None, after: str | None) -> tuple[object, ...]:
    return ts, None, ts - 1, 0, "d", "t", kind, "f", 0, key, before, after


@pytest.mark.parametrize("here", [True, False], ids=["here", "spark"])
def test_versions_follow_each_other(spark: SparkSession, here: bool) -> None:
    one, two, three = (f'{{"v":1,"id":{number}}}' for number in (1, 2, 3))
    changes = [
        change(10, "insert", '{"id":1}', None, one),
        change(20, "update", '{"id":2}', one, two),  # the row moves
        change(30, "update", '{"id":3}', '{"v":0,"id":3}', three),  # it was there before
        change(40, "delete", '{"id":2}', two, None),
        change(50, "insert", '{"id":2}', None, two),
    ]
    random.Random(1).shuffle(changes)
    rows = engine_for(None if here else spark).over(changes, lambda rows: rows)
    names = ("key", "valid_from", "valid_to", "exists", "_change_type", "before", "after")
    found = history.table(history.of_changes(rows)).select(names).to_pylist()
    assert sorted((tuple(row.values()) for row in found), key=lambda row: (row[0], row[1] or 0)) == [
        ('{"id":"1"}', 10, 20, True, "insert", None, one),
        ('{"id":"1"}', 20, None, False, "update", one, two),
        ('{"id":"2"}', 20, 40, True, "update", one, two),
        ('{"id":"2"}', 40, 50, False, "delete", two, None),
        ('{"id":"2"}', 50, None, True, "insert", None, two),
        ('{"id":"3"}', None, 30, True, None, None, '{"v":0,"id":3}'),
        ('{"id":"3"}', 30, None, True, "update", '{"v":0,"id":3}', three),
    ]
    only = history.table(history.of_changes(rows, history.parse_key("id=3")))
    assert sorted(map(str, only["valid_from"].to_pylist())) == ["30", "None"]


def test_keys_are_read() -> None:
    assert history.parse_key("id=5") == {"id": "5"}
    assert history.parse_key("a=1,b=x=y") == {"a": "1", "b": "x=y"}
    assert history.parse_key('{"a": 1, "b": "x,y"}') == {"a": "1", "b": "x,y"}
    with pytest.raises(ConfigError, match="is no key"):
        history.parse_key("5")
    with pytest.raises(ConfigError, match="cannot be read"):
        history.parse_key("{5")


async def test_an_archive_in_numbers(spark: SparkSession, connection: Connection, tmp_path: Path) -> None:
    world = World(connection, next(shape for shape in SHAPES if shape.name == "int"), random.Random(5))
    made = History(world)
    rows = [row for _ in range(20) for row in made.one()]
    await made.write(tmp_path)
    plan = TablePlan(world.version.info)
    ids = Counter(plan.decode_delete(after or before or b"")[0] for _, _, before, after in rows)

    found = statistics.rates(spark, str(tmp_path), {}).collect()
    kinds = Counter({row["_change_type"]: row["changes"] for row in found})
    assert kinds == Counter(("insert", "update", "delete")[kind] for _, kind, _, _ in rows)
    (sizes,) = statistics.sizes(spark, str(tmp_path), {}).collect()
    assert (sizes["transactions"], sizes["rows"]) == (20, len(rows))
    (volume,) = statistics.volumes(spark, str(tmp_path), {}).collect()
    assert volume["bytes"] == sizes["bytes"] > 0
    hottest = statistics.hottest(spark, str(tmp_path), {}, 3).collect()
    assert [row["changes"] for row in hottest] == sorted(ids.values(), reverse=True)[:3]

    (key, times) = ids.most_common(1)[0]
    versions = history.history(spark, str(tmp_path), "m.dst", {"id": str(key)}).collect()
    assert len(versions) >= times
    frame = spark.read.format("binlog").load(str(tmp_path))
    assert sorted(history.versions(frame.where("_table = 'dst'"), {"id": str(key)}).collect()) == sorted(
        versions
    )
    upto = history.history(spark, str(tmp_path), "m.dst", options={"STOP": "1"})
    assert upto.count() == 0
