"""`readStream.format("binlog")` over real Pumps: each change once, over micro-batches and lives."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType

from drainer.reading.errors import BinlogsLost
from drainer.reading.subscribe.named_reader import NameTaken
from drainer.spark.source import pump_stream
from drainer.spark.source.pump_source import PumpSource
from drainer.spark.source.pump_stream import PumpStreamReader
from drainer.spark.source.spark_types import struct_of
from pumpclient import column
from tests.docs.pages import SPARK
from tests.integration.support.subscribed_shop import shop, write
from tests.pump.conftest import pump as pump
from tests.pump.support.process import Start, start_two
from tests.spark.support import pumped_shop
from tidb_binlog.errors import ConfigError
from tidb_binlog.etcd.registry import connect_registry

pytestmark = pytest.mark.integration


def changes(frame: DataFrame) -> list[tuple[Any, ...]]:
    """In their order."""
    rows = frame.orderBy("_commit_ts", "_seq").collect()
    return [(row["_commit_ts"], row["_seq"], row["after"]) for row in rows]


class Taken:
    """A sink that fails at the batches that it is told."""

    def __init__(self, spark: SparkSession, endpoint: str, checkpoint: Path, **options: str) -> None:
        self._spark = spark
        self._path = f"pumps://{endpoint}"
        self._checkpoint = str(checkpoint)
        self._options = options
        self.batches: dict[int, list[tuple[Any, ...]]] = {}
        self.fails_at = -1

    def start(self) -> StreamingQuery:
        """A life that ends with what is there now."""
        stream = self._spark.readStream.format("binlog").options(**self._options).load(self._path)
        writer = stream.writeStream.foreachBatch(self._take).option("checkpointLocation", self._checkpoint)
        return writer.trigger(availableNow=True).start()

    def live(self) -> None:
        self.start().awaitTermination()

    def _take(self, frame: DataFrame, number: int) -> None:
        if number == self.fails_at:
            self.fails_at = -1
            raise RuntimeError("the sink is away")
        assert number not in self.batches
        self.batches[number] = sorted(
            (row["_commit_ts"], row["_seq"], row["after"]) for row in frame.collect()
        )

    @property
    def rows(self) -> list[tuple[Any, ...]]:
        return [row for number in sorted(self.batches) for row in self.batches[number]]


async def held_by(endpoint: str, name: str) -> int:
    registry = await connect_registry(endpoint)
    view = await registry.view()
    await registry.close()
    return int(view.drainers[name].status.max_commit_ts)


async def test_each_change_comes_once_over_batches_failures_and_lives(
    pump: Start, etcd_clean: str, free_port: Callable[[], int], tmp_path: Path, spark: SparkSession
) -> None:
    pumps = await start_two(pump)
    publisher = await shop(etcd_clean)
    await pumped_shop.fill(publisher, etcd_clean, pumps)
    taken = Taken(spark, etcd_clean, tmp_path / "checkpoint", name="frames", maxBytesPerTrigger="2000")
    taken.fails_at = 4
    with pytest.raises(StreamingQueryException, match="the sink is away"):
        await asyncio.to_thread(taken.live)
    done, held_ts = len(taken.rows), await held_by(etcd_clean, "frames")
    await asyncio.to_thread(taken.live)
    assert 0 < held_ts < taken.rows[done][0], "what failed is not given up"
    assert len(taken.batches) > 8, "DDL and bytes end batches"

    pumps[1].kill()
    for number in range(200, 220):
        await write(publisher, number, table="items")
    query = await asyncio.to_thread(taken.start)
    await pumps[1].start_and_wait()
    await publisher.add_column("shop.items", column("n", "int"))
    await asyncio.to_thread(query.awaitTermination)
    stop_ts = await write(publisher, 300)
    await publisher.close()
    await asyncio.to_thread(taken.live)

    archive = await asyncio.to_thread(
        pumped_shop.archived, etcd_clean, tmp_path / "drainer", free_port(), stop_ts
    )
    expected = changes(spark.read.format("binlog").load(archive))
    assert taken.rows == expected
    assert await held_by(etcd_clean, "frames") > expected[-2][0]
    await asyncio.to_thread(as_the_page_says, spark, etcd_clean, tmp_path)
    assert await held_by(etcd_clean, "warehouse") > expected[0][0], "Spark commits a batch with the next one"


def as_the_page_says(spark: SparkSession, endpoint: str, directory: Path) -> None:
    (block,) = [block for block in SPARK.blocks("python") if "pumps://" in block]
    names: dict[str, Any] = {"spark": spark}
    exec(block.replace("127.0.0.1:2379", endpoint).replace("build/", f"{directory}/"), names)
    names["query"].processAllAvailable()
    names["query"].stop()
    kinds = names["pumps"].select("_change_type").distinct().collect()
    assert {row["_change_type"] for row in kinds} == {"insert", "update", "delete"}
    orders = spark.read.parquet(f"{directory}/orders")
    assert sorted(row["after"]["id"] for row in orders.collect()) == [*range(18), *range(100, 112), 300]


def columns() -> StructType:
    return struct_of(PumpSource({"path": "pumps://127.0.0.1:1"}).schema)


async def test_a_table_that_is_made_while_a_query_runs_is_read(pump: Start, etcd_clean: str) -> None:
    """Its DDL is in no history that was read when the query began."""
    await pump("-node-id=p1", "-heartbeat-interval=200ms").start_and_wait()
    publisher = await shop(etcd_clean)
    reader = PumpStreamReader({"path": f"pumps://{etcd_clean}", "start": "1"}, columns())
    at, rows = await asyncio.to_thread(reader.initialOffset), list[str]()

    def follow(count: int) -> None:
        nonlocal at
        while len(rows) < count:
            end = reader.latestOffset(at, reader.getDefaultReadLimit())
            for part in reader.partitions(at, end) if end != at else ():
                rows.extend(row["after"] for batch in reader.read(part) for row in batch.to_pylist())
            at = end

    await write(publisher, 1)
    await asyncio.to_thread(follow, 1)
    await publisher.create_table("shop.later", [column("id", "int", nullable=False)], primary_key=["id"])
    async with publisher.transaction() as txn:
        txn.insert("shop.later", {"id": 7})
    await asyncio.to_thread(follow, 2)
    assert rows == ['{"id":1,"item":"pen 1"}', '{"id":7}']
    await asyncio.to_thread(reader.stop)
    await publisher.close()


async def test_a_name_is_one_query_and_a_purged_place_ends_it(
    pump: Start, etcd_clean: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pumps = await start_two(pump)
    publisher = await shop(etcd_clean)
    await write(publisher, 1)
    monkeypatch.setattr(pump_stream, "_NAME_TRIES", 1)
    given = {"path": f"pumps://{etcd_clean}", "name": "frames", "start": "1"}
    one, other = PumpStreamReader(given, columns()), PumpStreamReader(given, columns())
    start = await asyncio.to_thread(one.initialOffset)
    assert start["commit_ts"] == 0
    with pytest.raises(NameTaken, match="the name frames is another process's"):
        await asyncio.to_thread(other.initialOffset)
    await asyncio.to_thread(one.stop)
    await asyncio.to_thread(other.stop)

    third = PumpStreamReader(given, columns())
    with pytest.raises(ConfigError, match="an offset that is none of cluster"):
        await asyncio.to_thread(third.latestOffset, start | {"cluster_id": "1"}, third.getDefaultReadLimit())
    status, _ = await asyncio.to_thread(pumps[0].http, "/state/p1/close?force=true", "PUT")
    assert status == 200
    await asyncio.to_thread(third.stop)
    await publisher.close()

    await asyncio.to_thread(pumps[0].wait)

    nameless = PumpStreamReader({**given, "name": ""}, columns())
    with pytest.raises(BinlogsLost, match="pump p1 has left the cluster"):
        await asyncio.to_thread(nameless.latestOffset, start, nameless.getDefaultReadLimit())
    await asyncio.to_thread(nameless.stop)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"failOnDataLoss": "false"}, "failOnDataLoss is about an archive"),
        ({"maxRowsPerTrigger": "9"}, "maxRowsPerTrigger is about an archive"),
        ({"view": "definitions"}, "the view definitions is none of a stream"),
    ],
)
def test_what_makes_no_sense_for_a_stream_is_refused(options: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        PumpStreamReader({"path": "pumps://127.0.0.1:2379", **options}, columns())
