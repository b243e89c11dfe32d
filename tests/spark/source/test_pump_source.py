"""`format("binlog")` over real Pumps: what an archive of the same history gives, in every view."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from drainer.reading.archive.archive_source import ArchiveSource
from drainer.reading.errors import BinlogsLost, NoSuchTable
from drainer.spark.source import pump_source
from drainer.spark.source.pump_source import PumpReader, PumpSource
from drainer.spark.source.source import BinlogReader
from drainer.spark.source.spark_types import struct_of
from pumpclient import open_publisher
from tests.integration.support.subscribed_shop import shop, write
from tests.pump.conftest import pump as pump
from tests.pump.support.process import Start, start_two
from tests.spark.support import pumped_shop
from tidb_binlog.errors import ConfigError, Unavailable

pytestmark = pytest.mark.integration

OF_FILES = {"_file", "_pos", "_start_ts", "job_id", "kind"}
"""What an archive has of its files, or does not have of the upstream."""
Row = dict[str, Any]


def given(frame: Any) -> list[Row]:
    """Rows of an archive's reader or of that of Pumps, without Spark."""
    return [row for part in frame.partitions() for batch in frame.read(part) for row in batch.to_pylist()]


def of_pumps(endpoint: str, **options: str) -> list[Row]:
    source = PumpSource(
        {"pd-urls": endpoint, **{key.replace("_", "-"): text for key, text in options.items()}}
    )
    return given(PumpReader(source, struct_of(source.schema)))


def of_archive(path: str, **options: str) -> list[Row]:
    source = ArchiveSource({"path": path, **options})
    return given(BinlogReader(source, struct_of(source.schema)))


def same(rows: list[Row]) -> list[str]:
    """What is to be equal, in the order of changes. An archive has statements without their semicolon."""
    for row in rows:
        if "query" in row:
            row["query"] = row["query"].rstrip(";")
    return [str({key: value for key, value in row.items() if key not in OF_FILES}) for row in rows]


async def test_every_view_is_that_of_the_archive(
    pump: Start, etcd_clean: str, free_port: Callable[[], int], tmp_path: Path, spark: SparkSession
) -> None:
    pumps = await start_two(pump)
    publisher = await shop(etcd_clean)
    stop_ts = await pumped_shop.fill(publisher, etcd_clean, pumps)
    await publisher.close()
    stop = str(stop_ts)

    def check() -> None:
        archive = pumped_shop.archived(etcd_clean, tmp_path / "drainer", free_port(), stop_ts)
        for options in (
            {"view": "transactions"},
            {"view": "ddl"},
            {"view": "ddl", "tables": "shop.more"},
            {"tables": "shop.items", "ops": "update,delete"},
            {"table": "shop.orders"},
        ):
            expected = same(of_archive(archive, stop=stop, **options))
            assert same(of_pumps(etcd_clean, stop=stop, **options)) == expected != [], options

        frame = spark.read.format("binlog").option("stop", stop)
        read = frame.load(f"pumps://{etcd_clean}").orderBy("_commit_ts", "_seq")
        names = [name for name in read.columns if name not in OF_FILES]
        assert (
            read.select(names).collect()
            == frame.load(archive).orderBy("_commit_ts", "_seq").select(names).collect()
        )

        cut = PumpSource({"path": f"pumps://{etcd_clean}", "stop": stop, "partition-bytes": "500"})
        stretches = PumpReader(cut, struct_of(cut.schema))
        assert len(stretches.partitions()) > 2 * len(cut.range.states), "cut inside of epochs as well"
        assert same(given(stretches)) == same(of_archive(archive, stop=stop))

        ddl = of_archive(archive, view="ddl")
        middle = {"start": str(ddl[-2]["_commit_ts"]), "stop": str(ddl[-1]["_commit_ts"])}
        for view in ("ddl", "changes"):
            expected = same(of_archive(archive, view=view, **middle))
            assert same(of_pumps(etcd_clean, view=view, **middle)) == expected != []
        tables = [row["table"] for row in of_pumps(etcd_clean, view="definitions", stop=stop)]
        assert tables.count("orders") == 2
        assert set(tables) == {"orders", "items", "more"}

    await asyncio.to_thread(check)


async def test_what_pumps_have_not_is_refused(pump: Start, etcd_clean: str) -> None:
    """A Pump that has left took what it had along: nothing that goes up to it begins there."""
    pumps = await start_two(pump)
    publisher = await shop(etcd_clean)
    await write(publisher, 1)
    status, _ = await asyncio.to_thread(pumps[0].http, "/state/p1/close?force=true", "PUT")
    assert status == 200
    await asyncio.to_thread(pumps[0].wait)
    other = await open_publisher(etcd_clean)
    await write(other, 2)

    def check() -> None:
        with pytest.raises(BinlogsLost, match="pump p1 has left the cluster") as lost:
            of_pumps(etcd_clean, start="1")
        assert f"the lowest start is {lost.value.lowest}" in lost.value.hint
        assert "no start takes it" in lost.value.hint
        with pytest.raises(ConfigError, match=r"have nothing up to .* any more"):
            of_pumps(etcd_clean, stop="1")
        for way in ({}, {"start": str(lost.value.lowest + 1)}):
            rows = of_pumps(etcd_clean, **way)
            assert all(row["_commit_ts"] > lost.value.lowest for row in rows)
            assert rows[-1]["after"] == '{"id":2,"item":"pen 2"}'
        with pytest.raises(ConfigError, match="lies in the future"):
            of_pumps(etcd_clean, stop="2100-01-01")
        with pytest.raises(ConfigError, match=r"no table shop\.none at"):
            of_pumps(etcd_clean, table="shop.none")
        with pytest.raises(NoSuchTable, match=r"has no table shop\.none \(it has shop\."):
            of_pumps(etcd_clean, tables="shop.orders,shop.none")

    await asyncio.to_thread(check)
    await other.close()
    await publisher.close()


async def test_pumps_that_do_not_answer_are_named(
    pump: Start, etcd_clean: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = pump("-node-id=p1", "-heartbeat-interval=200ms")
    await process.start_and_wait()
    publisher = await shop(etcd_clean)
    first_ts = await write(publisher, 1)
    await publisher.close()
    process.kill()
    monkeypatch.setattr(pump_source, "WAIT_S", 1.0)
    with pytest.raises(Unavailable, match=r"waits for pump p1, not reachable"):
        await asyncio.to_thread(of_pumps, etcd_clean, start=str(first_ts))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"view": "files"}, "the view files is of an archive"),
        ({"damage": "report"}, "damage is about an archive's files"),
        ({"fs.region": "x"}, "fs.region is about an archive's files"),
        ({"pd-urls": "127.0.0.1:2379"}, "both path and pd-urls are given"),
        ({"ssl-cert": "node.pem"}, "ssl-cert without ssl-ca"),
        ({"begin": "1"}, "there is no option 'begin'"),
    ],
)
def test_what_makes_no_sense_for_pumps_is_refused(options: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        PumpSource({"path": "pumps://127.0.0.1:2379", **options})
