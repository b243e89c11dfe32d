"""A first copy into a lake, from what answers as a TiDB at a timestamp, and the stream after it."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from binlog_playground.cluster.mariadb import MariaDbServer
from drainer.config.options import DrainerConfig
from drainer.lake.changelog import schema_of
from drainer.lake.delta import DeltaChangelog, DeltaLake
from drainer.lake.iceberg import IcebergChangelog, IcebergLake
from drainer.lake.warehouse import LakePosition, lake_of
from drainer.mysql.connection import Connection
from drainer.points.load.load import Loaded
from drainer.points.snapshot.sessions import SnapshotTooOld
from drainer.points.snapshot.tidb import TidbSnapshot
from drainer.spark.live import copy_task, first_copy
from drainer.spark.live.downstream import LiveSettings
from drainer.spark.live.first_copy import LakeCopy
from drainer.spark.live.mirror import ICEBERG_CONNECTOR
from drainer.spark.live.stream import PumpStream
from drainer.spark.source.pump_cluster import PumpCluster
from pumpclient import Publisher, column, open_publisher
from tests.contract.lake_beds import BEDS, LakeBed
from tests.fakes.tidb_sql import tidb_sql
from tests.pump.conftest import pump as pump
from tests.pump.support.process import Start
from tests.spark.support import spark_versions
from tests.spark.support.first_copy_world import VERSIONED, app, change
from tests.spark.support.mirror_lives import Lives
from tests.spark.support.mirror_lives import lives as lives
from tidb_binlog.clock import SystemClock
from tidb_binlog.cluster.node import NodeStatus
from tidb_binlog.cluster.registry import DRAINERS
from tidb_binlog.errors import Conflict, DownstreamError
from tidb_binlog.etcd.registry import connect_registry

pytestmark = [pytest.mark.integration, pytest.mark.timeout(spark_versions.MAKING_S + 600)]
ROWS = 3_000
TABLES = ("keyed", "plain", "named")


class Killed(BaseException):
    pass


@pytest.fixture
async def publisher(pump: Start, etcd_clean: str, connection: Connection) -> Publisher:
    connection.run(b"DROP DATABASE IF EXISTS m_app")
    await pump("-node-id=p1", "-heartbeat-interval=200ms").start_and_wait()
    return await open_publisher(etcd_clean)


@pytest.fixture(params=BEDS)
def bed(request: pytest.FixtureRequest, tmp_path: Path) -> LakeBed:
    return BEDS[request.param](tmp_path)


@pytest.fixture
def settings(etcd_clean: str, bed: LakeBed, tmp_path: Path, mariadb: MariaDbServer) -> Iterator[LiveSettings]:
    with tidb_sql(mariadb) as upstream:
        drainer = replace(
            DrainerConfig(),
            pd_urls=etcd_clean,
            data_dir=str(tmp_path),
            db_type="delta" if bed.joins else "iceberg",
            warehouse=str(bed.warehouse),
            **{f"from_{key}": getattr(upstream, key) for key in ("host", "port", "user", "password")},
        )
        yield LiveSettings(drainer, "spark", once=True, interval_s=0.05)


async def copied(settings: LiveSettings, spark: SparkSession, **more: Any) -> Loaded | None:
    async with PumpCluster(settings.drainer, settings.name, "", SystemClock()) as cluster:
        return await LakeCopy(settings, lambda: spark, cluster, **more).run()


async def followed(settings: LiveSettings) -> None:
    await asyncio.to_thread(PumpStream(settings, None).wait)


def rows(bed: LakeBed, table: str) -> Counter[tuple[Any, ...]]:
    """At the end of a changelog."""
    there: Counter[tuple[Any, ...]] = Counter()
    for each in sorted(bed.changes(table, "m_app"), key=lambda each: (each["_commit_ts"], each["_seq"])):
        assert each["_invalid"] is None
        if each["before"] is not None:
            there[tuple(each["before"].values())] -= 1
        if each["after"] is not None:
            there[tuple(each["after"].values())] += 1
    return +there


def upstream_rows(connection: Connection, table: str) -> Counter[tuple[Any, ...]]:
    return Counter(map(tuple, connection.rows(f"SELECT * FROM m_app.{table}".encode())))


def is_equal(bed: LakeBed, connection: Connection) -> bool:
    return all(rows(bed, table) == upstream_rows(connection, table) for table in TABLES)


def noted(warehouse: Path) -> dict[str, Any]:
    """How far a copy is."""
    (file,) = (warehouse / "_tidb-binlog").glob("*.copy")
    document: dict[str, Any] = json.loads(file.read_text())
    return document


def dying(monkeypatch: pytest.MonkeyPatch, where: object, name: str, calls: int) -> None:
    """After so many calls."""
    work, left = getattr(where, name), calls

    def mortal(*arguments: Any) -> Any:
        nonlocal left
        if not left:
            raise Killed
        left -= 1
        return work(*arguments)

    monkeypatch.setattr(where, name, mortal)


@pytest.mark.parametrize(
    ("dies", "bed"),
    [("among the files", "delta"), ("between two tables", "iceberg"), ("before the position", "delta")],
    indirect=["bed"],
)
async def test_each_row_once_wherever_the_copy_dies(
    dies: str,
    publisher: Publisher,
    connection: Connection,
    settings: LiveSettings,
    bed: LakeBed,
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(copy_task, "FILE_ROWS_MAX", 400)
    monkeypatch.setattr(first_copy, "CHUNKS_A_SLOT", 2)
    await app(publisher, connection, ROWS)
    with monkeypatch.context() as patch:
        if dies == "among the files":
            dying(patch, LakePosition, "store_copy", 3)
        elif dies == "between two tables":
            dying(patch, DeltaChangelog if bed.joins else IcebergChangelog, "add", 1)
        else:
            dying(patch, LakePosition, "store", 0)
        with pytest.raises(Killed):
            await copied(settings, spark)
    stored = noted(bed.warehouse)
    assert stored["ts"]
    assert stored["is_written"] is (dies != "among the files")
    for number in range(1, 20):
        await change(publisher, connection, number)
    done = await copied(settings, spark)
    assert done is not None
    assert done.ts == stored["ts"]
    if dies == "among the files":
        assert 0 < done.rows < 2 * ROWS + 500, "what was written is not written again"
    else:
        assert done.rows == 0
    await followed(settings)
    assert is_equal(bed, connection)
    assert await copied(settings, spark, is_replacing=True) is None, "a copy is not copied over"
    for number in range(20, 30):
        await change(publisher, connection, number)
    await followed(settings)
    assert is_equal(bed, connection)
    assert {each["_kind"] for each in bed.changes("keyed", "m_app")} == {"snapshot", "insert", "update"}
    await publisher.close()


@pytest.mark.parametrize("bed", ["delta"], indirect=True)
async def test_a_timestamp_that_is_collected_is_given_up_before_any_table_is_made(
    publisher: Publisher,
    connection: Connection,
    settings: LiveSettings,
    bed: LakeBed,
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    await app(publisher, connection, ROWS)
    with monkeypatch.context() as patch:
        dying(patch, LakePosition, "store_copy", 2)
        with pytest.raises(Killed):
            await copied(settings, spark)
    for number in range(1, 5):
        await change(publisher, connection, number)
    lost = noted(bed.warehouse)["ts"]
    check = TidbSnapshot.check

    def too_old(self: TidbSnapshot) -> None:
        if self.ts == lost:
            raise SnapshotTooOld("collected", hint="later")
        check(self)

    monkeypatch.setattr(TidbSnapshot, "check", too_old)
    done = await copied(settings, spark)
    assert done is not None
    assert done.ts > lost
    assert done.rows == 2 * ROWS + 500 + 4
    assert is_equal(bed, connection)
    await publisher.close()


async def test_what_is_there_stays_unless_it_is_to_go(
    publisher: Publisher, connection: Connection, settings: LiveSettings, bed: LakeBed, spark: SparkSession
) -> None:
    await app(publisher, connection, 100)
    first = replace(settings, name="other")
    assert await copied(first, spark) is not None
    with pytest.raises(Conflict, match=r"has tables already: m_app\.keyed, m_app\.named, m_app\.plain"):
        await copied(settings, spark)
    await change(publisher, connection, 1)
    assert await copied(settings, spark, is_replacing=True) is not None
    assert is_equal(bed, connection)
    keyless = replace(settings, name="mirror", mode="mirror")
    with pytest.raises(DownstreamError, match=r"table m_app\.plain has no key"):
        await copied(keyless, spark)
    await publisher.close()


@pytest.fixture
def lake(settings: LiveSettings, bed: LakeBed) -> DeltaLake | IcebergLake:
    """As another program has it."""
    lake = lake_of(replace(settings.drainer, node_id="another"), 1)
    lake.open()
    return lake


async def test_tables_that_a_changelog_went_on_in_go_with_it(
    publisher: Publisher,
    connection: Connection,
    settings: LiveSettings,
    bed: LakeBed,
    lake: DeltaLake | IcebergLake,
    spark: SparkSession,
) -> None:
    """The stream would go on in the last of them, behind rows that the copy has again."""
    await app(publisher, connection, 100)
    columns = schema_of({"id": pa.int32(), "v": pa.string()})
    for name in ("keyed", "keyed__v2", "keyed__v3", "plain__v2"):
        lake.create(("m_app", name), columns, "{}")
    with pytest.raises(Conflict, match=r"m_app\.keyed, m_app\.keyed__v2, m_app\.keyed__v3, m_app\.plain__v2"):
        await copied(settings, spark)
    assert await copied(settings, spark, is_replacing=True) is not None
    await change(publisher, connection, 1)
    await followed(settings)
    assert is_equal(bed, connection)
    lake.close()
    await publisher.close()


@pytest.mark.parametrize("bed", ["delta"], indirect=True)
async def test_a_copy_that_goes_on_with_other_rules_begins_anew(
    publisher: Publisher,
    connection: Connection,
    settings: LiveSettings,
    bed: LakeBed,
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of a table that joins, no file is there; of one that goes elsewhere, all are in another place."""
    await app(publisher, connection, 100)
    without = ({"db-name": "m_app", "tbl-name": "named"},)
    with monkeypatch.context() as patch:
        dying(patch, DeltaChangelog, "add", 0)
        with pytest.raises(Killed):
            await copied(replace(settings, drainer=replace(settings.drainer, ignore_table=without)), spark)
    assert noted(bed.warehouse)["is_written"]
    with pytest.raises(Conflict, match=r"has tables already: m_app\.keyed"):
        await copied(settings, spark)
    assert await copied(settings, spark, is_replacing=True) is not None
    assert is_equal(bed, connection)
    await publisher.close()


@pytest.mark.parametrize("bed", ["delta"], indirect=True)
async def test_who_writes_the_same_tables_meanwhile_is_not_taken_for_the_copy(
    publisher: Publisher,
    connection: Connection,
    settings: LiveSettings,
    bed: LakeBed,
    etcd_clean: str,
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    await app(publisher, connection, 100)
    settings = replace(settings, drainer=replace(settings.drainer, node_id="d1"))
    registry = await connect_registry(etcd_clean)
    announced = await registry.announce(DRAINERS, "d1", 600)
    try:
        await registry.put(DRAINERS, NodeStatus("d1", "127.0.0.1:1", "online"), None)
        with pytest.raises(Conflict, match="drainer d1 is running and writes there"):
            await copied(settings, spark)
    finally:
        await announced.withdraw()
        await registry.close()
    with monkeypatch.context() as patch:
        dying(patch, LakePosition, "store", 0)
        with pytest.raises(Killed):
            await copied(settings, spark)
    async with PumpCluster(settings.drainer, "", "", SystemClock()) as cluster:
        lake = lake_of(settings.drainer, cluster.upstream.cluster_id)
    table = lake.load(("m_app", "plain"))
    assert table is not None
    table.append(schema_of(table.columns).empty_table().to_reader(), table.position + 1)
    with pytest.raises(Conflict, match=r"m_app\.plain was changed by another program"):
        await copied(settings, spark)
    assert await copied(settings, spark, is_replacing=True) is not None
    assert is_equal(bed, connection)
    await publisher.close()


KINDS = [
    ("tiny", "tinyint", "TINYINT", -7),
    ("wide", "bigint unsigned", "BIGINT UNSIGNED", 2**64 - 1),
    ("price", "decimal(12,3)", "DECIMAL(12,3)", "-1.500"),
    ("ratio", "double", "DOUBLE", 0.1),
    ("day", "date", "DATE", "2024-02-29"),
    ("at", "datetime(6)", "DATETIME(6)", "2024-02-29 12:00:00.000001"),
    ("seen", "timestamp", "TIMESTAMP NULL", "2024-02-29 12:00:00"),
    ("span", "time(3)", "TIME(3)", "-12:34:56.700"),
    ("name", "varchar(20)", "VARCHAR(20)", "gru\u00df"),
    ("raw", "varbinary(8)", "VARBINARY(8)", b"\x00\xff"),
    ("size", "enum('s','m')", "ENUM('s','m')", "m"),
    ("tags", "set('a','b')", "SET('a','b')", "a,b"),
    ("nothing", "int", "INT", None),
]


@pytest.mark.parametrize("bed", ["delta"], indirect=True)
async def test_a_row_is_copied_as_its_insert_would_be(
    publisher: Publisher, connection: Connection, settings: LiveSettings, bed: LakeBed, spark: SparkSession
) -> None:
    connection.run(b"CREATE DATABASE m_app")
    connection.run(b"SET time_zone = '+00:00'")
    await publisher.create_database("m_app")
    columns = [column("id", "int", nullable=False), *(column(name, kind) for name, kind, _, _ in KINDS)]
    made = ", ".join(f"{name} {kind}" for name, _, kind, _ in KINDS)
    connection.run(f"CREATE TABLE m_app.kinds (id INT PRIMARY KEY, {made}) {VERSIONED}".encode())
    await publisher.create_table("m_app.kinds", columns, primary_key=["id"])
    literals = ", ".join(
        "NULL" if value is None else f"x'{value.hex()}'" if isinstance(value, bytes) else repr(value)
        for *_, value in KINDS
    )
    connection.run(f"INSERT INTO m_app.kinds VALUES (1, {literals})".encode())
    connection.commit()
    assert await copied(settings, spark) is not None
    async with publisher.transaction() as txn:
        txn.insert("m_app.kinds", {"id": 2, **{name: value for name, _, _, value in KINDS}})
    await followed(settings)
    one, other = sorted((each["after"] for each in bed.changes("kinds", "m_app")), key=lambda row: row["id"])
    assert {**one, "id": 2} == other
    assert one["price"] is not None
    await publisher.close()


@pytest.mark.parametrize("lives", [ICEBERG_CONNECTOR], indirect=True, ids=["iceberg"])
async def test_a_mirror_begins_with_what_is_there(
    lives: Lives,
    pump: Start,
    etcd_clean: str,
    mariadb: MariaDbServer,
    connection: Connection,
    tmp_path: Path,
) -> None:
    """One command copies and follows; it goes on with the stream, and that changes rows that were copied."""
    connection.run(b"DROP DATABASE IF EXISTS shop")
    await pump("-node-id=p1", "-heartbeat-interval=200ms").start_and_wait()
    publisher = await open_publisher(etcd_clean)
    await publisher.create_database("shop")
    columns = [column("id", "int", nullable=False), column("v", "varchar(60)"), column("d", "datetime(3)")]
    await publisher.create_table("shop.orders", columns, primary_key=["id"])
    connection.run(b"CREATE DATABASE shop")
    created = f"CREATE TABLE shop.orders (id INT PRIMARY KEY, v VARCHAR(60), d DATETIME(3)) {VERSIONED}"
    connection.run(created.encode())
    day = "2024-01-01 00:00:00.125"
    connection.run(f"INSERT INTO shop.orders SELECT seq, 'x', '{day}' FROM m.seq_1_to_1000".encode())
    connection.commit()
    try:
        with tidb_sql(mariadb) as upstream:
            url = f"tidb://{upstream.user}@127.0.0.1:{upstream.port}/"
            secret = tmp_path / "password"
            secret.write_text(upstream.password)
            more = ("--from", url, "--from-password-file", str(secret))
            code, said = await asyncio.to_thread(lives.load, etcd_clean, *more)
            assert code == 0, said
            assert len(lives.rows("orders")) == 1000
            async with publisher.transaction() as txn:
                txn.update("shop.orders", {"id": 5, "v": "x", "d": day}, {"id": 5, "v": "y", "d": day})
                txn.delete("shop.orders", {"id": 6, "v": "x", "d": day})
                txn.insert("shop.orders", {"id": 2000, "v": "new", "d": None})
            await publisher.add_column("shop.orders", column("note", "varchar(10)"))
            async with publisher.transaction() as txn:
                txn.insert("shop.orders", {"id": 2001, "v": "new", "d": None, "note": "n"})
            code, said = await asyncio.to_thread(lives.load, etcd_clean, *more)
            assert code == 0, said
            assert "nothing to copy" in said
        there = {row[0]: (row[1], row[4]) for row in lives.rows("orders")}
        assert len(there) == 1001
        assert 6 not in there
        assert (there[5], there[7]) == (("y", None), ("x", None))
        assert (there[2000], there[2001]) == (("new", None), ("new", "n"))
        assert noted(lives.warehouse)["is_done"] is True
    finally:
        connection.run(b"DROP DATABASE IF EXISTS shop")
        await publisher.close()
