"""A stream from real Pumps into tables of a lake, in this process and in Spark, over several lives."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import duckdb
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog
from pyspark.sql import SparkSession

from drainer.app import build_mysql
from drainer.config.options import DrainerConfig
from drainer.lake.delta import DeltaChangelog
from drainer.lake.iceberg import IcebergChangelog
from drainer.spark.live.changelog import Changelogs
from drainer.spark.live.downstream import LiveSettings
from drainer.spark.live.stream import PumpStream
from drainer.spark.replay.stream_jobs import Batch
from pumpclient import Publisher, column
from tests.contract.lake_beds import BEDS, LakeBed
from tests.forked import Forked
from tests.integration.support.drainer_command import command, ended
from tests.integration.support.subscribed_shop import publish_job, shop, write
from tests.object_store import SECRET, ObjectStore
from tests.pump.conftest import pump as pump
from tests.pump.support.process import Start, start_two
from tests.waiting import PATIENCE_S, until
from tidb_binlog.ddl_job import ActionType
from tidb_binlog.errors import Conflict, Unavailable

pytestmark = pytest.mark.integration


@pytest.fixture
async def publisher(pump: Start, etcd_clean: str) -> Publisher:
    await start_two(pump)
    return await shop(etcd_clean)


@pytest.fixture(params=BEDS)
def bed(request: pytest.FixtureRequest, tmp_path: Path) -> LakeBed:
    return BEDS[request.param](tmp_path)


@pytest.fixture
def settings(etcd_clean: str, bed: LakeBed, tmp_path: Path) -> LiveSettings:
    drainer = replace(
        DrainerConfig(),
        pd_urls=etcd_clean,
        data_dir=str(tmp_path),
        initial_commit_ts=0,
        db_type="delta" if bed.joins else "iceberg",
        warehouse=str(bed.warehouse),
    )
    return LiveSettings(drainer, "spark", once=True, interval_s=0.05)


async def life(settings: LiveSettings, spark: SparkSession | None = None) -> list[Batch]:
    batches: list[Batch] = []
    stream = PumpStream(settings, (lambda: spark) if spark else None, on_batch=batches.append)
    await asyncio.to_thread(stream.wait)
    return batches


def rows(bed: LakeBed, table: str) -> list[tuple[Any, Any, Any]]:
    """(kind, before, after) in the order of the stream; a change that is there twice shows."""
    ordered = sorted(bed.changes(table, "shop"), key=lambda each: (each["_commit_ts"], each["_seq"]))
    assert all(each["_invalid"] is None for each in ordered)
    return [(each["_kind"], each["before"], each["after"]) for each in ordered]


def ids(bed: LakeBed, table: str = "orders") -> list[int]:
    return [after["id"] for _, _, after in rows(bed, table)]


async def test_each_change_once_over_lives_in_which_columns_change(
    publisher: Publisher, settings: LiveSettings, bed: LakeBed, spark: SparkSession
) -> None:
    """Written by Spark's tasks, and by the driver alone; a table that was not known, one whose columns are
    more by now."""
    in_tasks = replace(settings, small_bytes=0)
    prices = [column("id", "int"), column("price", "decimal(10,2)"), column("at", "datetime(3)")]
    await publisher.create_table("shop.prices", prices, primary_key=["id"])
    for number in range(20):
        async with publisher.transaction() as txn:
            txn.insert("shop.orders", {"id": number, "item": "x"})
            txn.insert("shop.prices", {"id": number, "price": "1.50", "at": "2024-05-06 07:08:09.123"})
    await life(in_tasks, spark)
    await publisher.add_column("shop.orders", column("note", "varchar(10)"))
    async with publisher.transaction() as txn:
        txn.update("shop.orders", {"id": 3, "item": "x"}, {"id": 3, "item": "y", "note": "new"})
    await life(settings)
    await publisher.drop_column("shop.orders", "item")
    async with publisher.transaction() as txn:
        txn.delete("shop.orders", {"id": 4, "note": None})
    await life(in_tasks, spark)
    was = {"id": 3, "item": "x", "note": None}
    assert rows(bed, "orders") == [
        *(("insert", None, {"id": number, "item": "x", "note": None}) for number in range(20)),
        ("update", was, {"id": 3, "item": "y", "note": "new"}),
        ("delete", {"id": 4, "item": None, "note": None}, None),
    ]
    price = rows(bed, "prices")[7][2]
    assert (price["id"], str(price["price"]), str(price["at"])) == (7, "1.50", "2024-05-06 07:08:09.123000")
    await publisher.close()


@pytest.mark.parametrize("bed", ["delta"], indirect=True)
async def test_rows_around_a_ddl_that_took_a_partition_are_told(
    publisher: Publisher, settings: LiveSettings, etcd_clean: str, free_port: Callable[[], int]
) -> None:
    """TiDB may have lost those of a transaction that began before it; of others that come after, nothing."""
    address = f"127.0.0.1:{free_port()}"
    stream = PumpStream(replace(settings, once=False, listen=address), None)
    running = asyncio.create_task(asyncio.to_thread(stream.wait))

    def told() -> list[list[str]]:
        with urlopen(f"http://{address}/status", timeout=PATIENCE_S) as reply:
            return [early["tables"] for early in json.load(reply)["EarlyRows"]]

    try:
        for table, begins_before in (("items", False), ("orders", True)):
            query = f"ALTER TABLE shop.{table} TRUNCATE PARTITION p0"
            of_table = (publisher, etcd_clean, ActionType.TRUNCATE_TABLE_PARTITION, query, table)
            if not begins_before:
                await publish_job(*of_table)
            async with publisher.transaction() as txn:
                txn.insert(f"shop.{table}", {"id": 1, "item": "x"})
                if begins_before:
                    await publish_job(*of_table)
        await until(
            lambda: asyncio.to_thread(lambda: stream.findings.early_rows.told and told() == [["shop.orders"]])
        )
    finally:
        stream.stop()
        await running
    await publisher.close()


@pytest.mark.parametrize("bed", ["delta"], indirect=True)
async def test_the_next_life_knows_which_tables_lost_a_partition(
    publisher: Publisher, settings: LiveSettings, etcd_clean: str
) -> None:
    """Rows of a transaction that began before that may come after it, and what was told stays told."""
    query = "ALTER TABLE shop.orders TRUNCATE PARTITION p0"
    async with publisher.transaction() as txn:
        txn.insert("shop.orders", {"id": 1, "item": "x"})
        await publish_job(publisher, etcd_clean, ActionType.TRUNCATE_TABLE_PARTITION, query, "orders")
        await life(settings)
    for _ in range(2):
        stream = PumpStream(settings, None)
        await asyncio.to_thread(stream.wait)
        assert [told.tables for told in stream.findings.early_rows.told] == [["shop.orders"]]
    await publisher.close()


async def test_who_does_not_know_where_the_stream_was_does_not_begin_now(
    publisher: Publisher,
    settings: LiveSettings,
    bed: LakeBed,
    etcd_clean: str,
    free_port: Callable[[], int],
    tmp_path: Path,
) -> None:
    """What came in between would be in no table: neither a stream nor a Drainer of the node id does."""
    settings = replace(settings, drainer=replace(settings.drainer, node_id="drainer-under-test"))
    from_now = replace(settings, drainer=replace(settings.drainer, initial_commit_ts=-1))
    await write(publisher, 1)
    await life(settings)
    await life(from_now)
    shutil.rmtree(bed.warehouse / "_tidb-binlog")
    await write(publisher, 2)
    refused = r"shop\.orders in the warehouse has rows up to \d+, but where their writer was is not known"
    for _ in range(2):
        with pytest.raises(Conflict, match=refused):
            await life(from_now)
    toml = f'pd-urls = "{etcd_clean}"\n[syncer]\ndb-type = "{settings.drainer.db_type}"\n'
    toml += f'[syncer.to]\nwarehouse = "{bed.warehouse}"\n'
    drainer = command(tmp_path, etcd_clean, free_port(), toml)
    for _ in range(2):
        code, line = ended(drainer)
        assert (code, "where their writer was is not known" in line) == (5, True), line
    await life(settings)
    assert ids(bed) == [1, 2]
    await publisher.close()


@pytest.mark.parametrize(
    ("dies", "bed"),
    [
        ("before the first table", "delta"),
        ("between two tables", "delta"),
        ("between two tables", "iceberg"),
        ("before the position", "iceberg"),
    ],
    indirect=["bed"],
)
async def test_a_death_between_files_and_commits_neither_loses_nor_doubles(
    dies: str,
    publisher: Publisher,
    settings: LiveSettings,
    bed: LakeBed,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And the batch of the next life is a longer one: tables pass over what they have."""

    class Killed(BaseException):
        pass

    await life(settings)
    await write(publisher, 1, 2)
    await write(publisher, 1, table="items")
    changelog: Any = DeltaChangelog if bed.joins else IcebergChangelog
    add, left = changelog.add, 0 if dies == "before the first table" else 1

    def mortal(self: Any, *arguments: Any) -> None:
        nonlocal left
        if not left:
            raise Killed
        left -= 1
        add(self, *arguments)

    def never(self: object, commit_ts: int) -> None:
        raise Killed

    if dies == "before the position":
        monkeypatch.setattr(Changelogs, "reach", never)
    else:
        monkeypatch.setattr(changelog, "add", mortal)
    with pytest.raises(Killed):
        await life(settings)
    monkeypatch.undo()
    await write(publisher, 3)
    await write(publisher, 3, table="items")
    await life(settings)
    assert (ids(bed), ids(bed, "items")) == ([1, 2, 3], [1, 3])
    await publisher.close()


async def test_a_drainer_and_a_stream_take_turns_over_the_same_tables(
    publisher: Publisher,
    settings: LiveSettings,
    bed: LakeBed,
    etcd_clean: str,
    free_port: Callable[[], int],
    tmp_path: Path,
) -> None:
    """Under its node id each goes on where the other stopped; while it runs the stream is refused."""
    settings = replace(settings, drainer=replace(settings.drainer, node_id="drainer-under-test"))
    toml = f'initial-commit-ts = 0\npd-urls = "{etcd_clean}"\n[syncer]\n'
    toml += f'db-type = "{settings.drainer.db_type}"\n[syncer.to]\nwarehouse = "{bed.warehouse}"\n'
    toml += 'commit-interval = "100ms"\n'
    drainer = command(tmp_path, etcd_clean, free_port(), toml)
    written: list[int] = []

    async def write_some() -> None:
        for _ in range(10):
            written.append(len(written))
            await write(publisher, written[-1])

    for _ in range(2):
        process = Forked("drainer", drainer)
        await write_some()
        await until(lambda: ids(bed) == written)
        with pytest.raises(Conflict, match="drainer drainer-under-test is running"):
            await life(settings)
        process.terminate()
        assert await asyncio.to_thread(process.wait, PATIENCE_S) == 0
        await write_some()
        await life(settings)
        assert ids(bed) == written
    await publisher.close()


async def test_of_two_streams_for_one_node_id_the_second_is_refused(
    publisher: Publisher, settings: LiveSettings, bed: LakeBed
) -> None:
    """They have names of their own, and one position."""
    first = replace(settings, drainer=replace(settings.drainer, node_id="drainer-under-test"), once=False)
    other = replace(first, name="other", once=True)
    await life(replace(first, once=True))  # makes the catalog, which whoever looks would make as well
    stream = PumpStream(first, None)
    running = asyncio.create_task(asyncio.to_thread(stream.wait))
    try:
        await write(publisher, 1)
        await until(lambda: ids(bed) == [1])
        with pytest.raises(Conflict, match="the stream spark is running and writes to"):
            await life(other)
    finally:
        stream.stop()
        await running
    await write(publisher, 2)
    await life(other)
    assert ids(bed) == [1, 2]
    await publisher.close()


async def test_tables_that_others_changed(publisher: Publisher, settings: LiveSettings, bed: LakeBed) -> None:
    """One that is none of ours, and one that somebody of our name wrote meanwhile."""
    bed.make_other("t")
    await publisher.create_database("d")
    await publisher.create_table("d.t", [column("id", "int", nullable=False)], primary_key=["id"])
    async with publisher.transaction() as txn:
        txn.insert("d.t", {"id": 1})
    with pytest.raises(Conflict, match=r"d\.t in the warehouse is no changelog"):
        await life(settings)
    bed.remove("t")
    await life(settings)
    assert [each["after"] for each in bed.changes("t")] == [{"id": 1}]
    await publisher.close()


@pytest.mark.parametrize("bed", ["delta"], indirect=True)
async def test_an_object_store(
    publisher: Publisher,
    settings: LiveSettings,
    s3: ObjectStore,
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Files are where vacuum finds those that nobody committed; a store that refuses is said."""
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    settings = replace(settings, small_bytes=0, drainer=replace(settings.drainer, warehouse=s3.uri("lake")))
    with s3.asking_for_keys(), pytest.raises(Unavailable, match="lake cannot be read: ACCESS") as raised:
        await life(settings)
    assert SECRET not in str(raised.value)
    for turn in range(2):
        await write(publisher, *range(turn * 10, turn * 10 + 10))
        await life(settings, spark)
    table = DeltaTable(s3.uri("lake/shop/orders"))
    files = duckdb.from_arrow(table.to_pyarrow_table())
    assert files.aggregate("count(*), count(DISTINCT after.id), min(_commit_ts) > 0").fetchall() == [
        (20, 20, True)
    ]
    s3.client().put_object(Bucket=s3.bucket, Key="lake/shop/orders/data/part-orphan.parquet", Body=b"x")
    left = table.vacuum(0, dry_run=True, enforce_retention_duration=False, full=True)
    assert left == ["data/part-orphan.parquet"]
    await publisher.close()


def as_a_reader(s3: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on this process has the keys of a user who may only read."""
    iam = s3.client("iam")
    iam.create_user(UserName=s3.bucket)
    statement = {"Effect": "Allow", "Action": ["s3:Get*", "s3:List*"], "Resource": "*"}
    policy = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
    iam.put_user_policy(UserName=s3.bucket, PolicyName="reads", PolicyDocument=policy)
    key = iam.create_access_key(UserName=s3.bucket)["AccessKey"]
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", key["AccessKeyId"])
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", key["SecretAccessKey"])


def in_s3(settings: LiveSettings, s3: ObjectStore, tmp_path: Path) -> LiveSettings:
    drainer = replace(settings.drainer, warehouse=s3.uri("lake"))
    if drainer.db_type == "iceberg":
        endpoint = s3.environ["AWS_ENDPOINT_URL"]
        catalog = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db", "s3.endpoint": endpoint}
        drainer = replace(drainer, catalog=catalog)
    return replace(settings, drainer=drainer)


def ids_in_s3(settings: LiveSettings) -> list[int]:
    """Of all inserts; one that is there twice shows."""
    drainer = settings.drainer
    if drainer.db_type == "delta":
        table = DeltaTable(f"{drainer.warehouse}/shop/orders").to_pyarrow_table()
    else:
        with contextlib.closing(load_catalog("lake", **drainer.catalog)) as catalog:
            table = catalog.load_table(("shop", "orders")).scan().to_arrow()
    return sorted(row["id"] for row in table.column("after").to_pylist())


async def test_a_bucket_that_nobody_may_write_any_more_loses_nothing(
    publisher: Publisher,
    settings: LiveSettings,
    s3: ObjectStore,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Rows are tried again, a position for a while. What is said names the place, and no key."""
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    monkeypatch.setattr(build_mysql, "START_DEADLINE_S", 0.0)
    settings = in_s3(settings, s3, tmp_path)
    await write(publisher, 1, 2)
    await life(settings)
    await write(publisher, 3)
    stream = PumpStream(settings, None)
    with monkeypatch.context() as patch:
        as_a_reader(s3, patch)
        with s3.asking_for_keys():
            running = asyncio.create_task(asyncio.to_thread(stream.wait))
            try:
                await until(lambda: running.done() or "batch is tried again" in caplog.text)
                assert ids_in_s3(settings) == [1, 2]
            finally:
                if not running.done():
                    stream.stop()  # who stops it hears what it waits for
            with pytest.raises(Unavailable, match=r"lake.*(ACCESS|Access)") as raised:
                await running
        assert os.environ["AWS_SECRET_ACCESS_KEY"] not in f"{raised.value} {caplog.text}"
    await write(publisher, 4)
    await life(settings)
    assert ids_in_s3(settings) == [1, 2, 3, 4]
    await publisher.close()


async def test_a_bucket_that_is_not_there(
    publisher: Publisher,
    settings: LiveSettings,
    s3: ObjectStore,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    monkeypatch.setattr(build_mysql, "START_DEADLINE_S", 0.0)
    settings = in_s3(settings, replace(s3, bucket="no-such-bucket"), tmp_path)
    with pytest.raises(Unavailable, match=r"no-such-bucket.*(NoSuchBucket|NO_SUCH_BUCKET)") as raised:
        await life(settings)
    assert "check the bucket" in raised.value.hint
    await publisher.close()


@pytest.mark.parametrize("bed", ["iceberg"], indirect=True)
async def test_a_catalog_that_is_away(
    publisher: Publisher, settings: LiveSettings, free_port: Callable[[], int]
) -> None:
    """It is said before anything is read; the position stays."""
    address = f"http://127.0.0.1:{free_port()}"
    drainer = replace(settings.drainer, catalog={"type": "rest", "uri": address})
    with pytest.raises(Unavailable, match="the catalog cannot be reached") as raised:
        await life(replace(settings, drainer=drainer))
    assert "check catalog" in raised.value.hint
    await write(publisher, 1)
    await life(settings)
    assert ids(BEDS["iceberg"](Path(settings.drainer.warehouse).parent)) == [1]
    await publisher.close()
