"""Mirrors of real Pumps by Spark's connectors, in the release that they are for, read without Spark."""

from __future__ import annotations

import asyncio
import datetime
import json
import shlex
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from binlog_playground.cluster.mariadb import MariaDbServer
from binlogctl.cli.commands import DIFFERS, DONE
from drainer.config.options import DrainerConfig
from drainer.lake.changelog import schema_of
from drainer.lake.delta import DeltaLake
from drainer.mysql.connection import Target, connect
from drainer.places.place import Place
from drainer.spark.live import mirror
from drainer.spark.live.downstream import LiveSettings
from drainer.spark.live.mirror import DELTA_CONNECTOR
from drainer.spark.live.stream import PumpStream
from drainer.spark.replay.stream_jobs import Batch
from pumpclient import column
from tests.architecture.source import ROOT
from tests.deploy.binlogctl.conftest import Ctl
from tests.deploy.binlogctl.conftest import ctl as ctl
from tests.docs.pages import Page
from tests.integration.support.subscribed_shop import publish_job, shop, write
from tests.pump.conftest import pump as pump
from tests.pump.support.process import Start
from tests.rig.workload.application import Application
from tests.spark.support import spark_versions
from tests.spark.support.mirror_lives import Lives
from tests.spark.support.mirror_lives import lives as lives
from tidb_binlog.ddl_job import ActionType

pytestmark = [pytest.mark.integration, pytest.mark.timeout(spark_versions.MAKING_S + 600)]

READS = """
import sys
from pyspark.sql import SparkSession
from drainer.lake.changelog import schema_of
from drainer.lake.delta import DeltaLake
from drainer.places.place import Place
from drainer.spark.live.mirror import DELTA_CONNECTOR
builder = SparkSession.builder.master("local[1]").config("spark.sql.extensions", DELTA_CONNECTOR.extension)
own = [("spark.jars", sys.argv[2]), ("spark.sql.session.timeZone", "UTC")]
for key, value in [*DELTA_CONNECTOR.settings, *own]:
    builder = builder.config(key, value)
frame = builder.getOrCreate().read.format("delta").load(sys.argv[1])
print(frame.selectExpr("_commit_ts", "after.*").collect())
"""


def test_a_changelog_is_read_by_the_connector(tmp_path: Path) -> None:
    """With columns of a type for which the table asks more of readers."""
    at = datetime.datetime(2024, 2, 29, 12)
    schema = schema_of({"id": pa.int64(), "at": pa.timestamp("us")})
    row = {"_commit_ts": 5, "_seq": 0, "_kind": "insert", "after": {"id": 1, "at": at}}
    table = DeltaLake(Place(str(tmp_path)), "app").create(("shop", "orders"), schema, "")
    table.append(pa.Table.from_pylist([row], schema).to_reader(), 5)
    jars = spark_versions.or_skip(lambda: spark_versions.jars("4.1", *DELTA_CONNECTOR.packages))["spark.jars"]
    said = subprocess.run(
        [sys.executable, "-c", READS, str(tmp_path / "shop" / "orders"), jars],
        env=spark_versions.environ("4.1"),
        cwd=ROOT,
        text=True,
        capture_output=True,
        check=False,
    )
    assert said.returncode == 0, said.stderr[-4000:]
    assert eval(said.stdout, {"Row": dict, "datetime": datetime}) == [{"_commit_ts": 5, "id": 1, "at": at}]


async def test_ddl_alone_is_no_job_of_spark(
    pump: Start, etcd_clean: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A burst of them is done in seconds; the session here can do nothing."""
    await pump("-node-id=p1", "-heartbeat-interval=200ms").start_and_wait()
    publisher = await shop(etcd_clean)
    for number in range(5):
        await publisher.add_column("shop.orders", column(f"c{number}", "int"))
    await publisher.close()
    drainer = replace(
        DrainerConfig(), pd_urls=etcd_clean, data_dir=str(tmp_path), db_type="delta", initial_commit_ts=0
    )
    drainer = replace(drainer, warehouse=str(tmp_path / "lake"))
    monkeypatch.setattr(mirror, "require", lambda spark, connector: None)
    batches: list[Batch] = []
    settings = LiveSettings(drainer, "spark", once=True, mode="mirror")
    stream = PumpStream(settings, object, on_batch=batches.append)  # type: ignore[arg-type]
    await asyncio.to_thread(stream.wait)
    assert sum(batch.ddl for batch in batches) == 8


PROGRAM = """
CREATE TABLE shop.orders (id INT PRIMARY KEY, note VARCHAR(10), price DECIMAL(6,2));
INSERT INTO shop.orders VALUES (0, NULL, 1.5), (4, 'n', 2), (5, NULL, 1.5), (10, NULL, 1.5), (11, 'm', 1.5);
CREATE TABLE shop.codes (id VARCHAR(10) COLLATE utf8mb4_general_ci PRIMARY KEY, n INT);
INSERT INTO shop.codes VALUES ('a', 0), ('b', 3);
CREATE TABLE shop.things (id INT PRIMARY KEY, item VARCHAR(40));
INSERT INTO shop.things VALUES (8, 'z');
"""


async def verified(lives: Lives, endpoint: str, mariadb: MariaDbServer, ctl: Ctl) -> None:
    """By the commands of docs/verify.md, beside a database with what the program has by now."""
    connection = connect(Target("127.0.0.1", mariadb.port, mariadb.user, mariadb.password))
    file = lives.log.with_name("drainer.toml")
    file.write_text(
        f'pd-urls = "{endpoint}"\ndata-dir = "{file.parent}/drainer"\n[syncer]\ndb-type = "file"\n'
        f'[syncer.from]\nhost = "127.0.0.1"\nport = {mariadb.port}\nuser = "{mariadb.user}"\n'
        f'password = "{mariadb.password}"\noutcome-table = "shop.binlog_outcome"\n'
    )
    place = f"{lives.form}://{lives.warehouse}"
    try:
        Application(mariadb, "shop").create()
        for statement in filter(None, PROGRAM.split(";\n")):
            connection.run(statement.encode())
        connection.commit()
        (line,) = [line for line in Page("docs/verify.md").commands() if f"-mirror {lives.form}://" in line]
        line = line.replace("drainer.toml", str(file)).replace(f"{lives.form}:///lake/shop", place)
        argv = [*shlex.split(line)[1:], "-at-rest"]
        done = await ctl(*argv)
        assert done.code == DONE, (done.out, done.err)
        if "json" in argv:
            assert {table["state"] for table in json.loads(done.out)["tables"]} == {"equal"}
        else:
            assert "downstream equals upstream: 3 tables" in done.out
        connection.run(b"UPDATE shop.codes SET n = 4 WHERE id = 'b'")
        connection.commit()
        done = await ctl(*argv)
        assert done.code == DIFFERS, (done.out, done.err)
    finally:
        connection.run(b"DROP DATABASE IF EXISTS shop")
        connection.close()


async def test_a_mirror_is_what_the_tables_upstream_are(
    lives: Lives, pump: Start, etcd_clean: str, mariadb: MariaDbServer, ctl: Ctl
) -> None:
    await pump("-node-id=p1", "-heartbeat-interval=200ms").start_and_wait()
    publisher = await shop(etcd_clean)
    for number in range(6):
        async with publisher.transaction() as txn:
            txn.insert("shop.orders", {"id": number, "item": "x"})
            txn.insert("shop.items", {"id": number, "item": "x"})
    async with publisher.transaction() as txn:
        txn.update("shop.orders", {"id": 0, "item": "x"}, {"id": 0, "item": "y"})
        txn.update("shop.orders", {"id": 1, "item": "x"}, {"id": 10, "item": "moved"})
        txn.delete("shop.orders", {"id": 2, "item": "x"})
        txn.insert("shop.orders", {"id": 7, "item": "short"})
    async with publisher.transaction() as txn:
        txn.delete("shop.orders", {"id": 7, "item": "short"})
    dies = int(txn.commit_ts) - 1
    code, said = await asyncio.to_thread(lives.run, etcd_clean, dies_after=dies)
    assert code == -9, said
    async with publisher.transaction() as txn:
        txn.delete("shop.orders", {"id": 3, "item": "x"})
    code, said = await asyncio.to_thread(lives.run, etcd_clean)
    assert code == 0, said
    assert lives.rows("orders") == [
        *((0, "y", None), (4, "x", None), (5, "x", None), (10, "moved", None)),
    ]
    assert lives.rows("items") == [(number, "x", None) for number in range(6)]
    assert lives.most_tasks() <= 8, "a small batch has few tasks"

    text = column("id", "varchar(10) collate utf8mb4_general_ci", nullable=False)
    await publisher.create_table("shop.codes", [text, column("n", "int")], primary_key=["id"])
    for number, (before, after) in enumerate([("A", "a"), ("b", "B"), ("B", "b")]):
        async with publisher.transaction() as txn:
            if number < 2:
                txn.insert("shop.codes", {"id": before, "n": number}, rowid=number)
            else:  # what is there for longer than the batch
                code, said = await asyncio.to_thread(lives.run, etcd_clean)
                assert code == 0, said
            rowid = min(number, 1)
            txn.update("shop.codes", {"id": before, "n": rowid}, {"id": after, "n": number}, rowid=rowid)
    code, said = await asyncio.to_thread(lives.run, etcd_clean)
    assert code == 0, said
    assert lives.rows("codes") == [("a", 0, None), ("b", 2, None)], "one key, in other letters"

    async with publisher.transaction() as txn:
        txn.update("shop.codes", {"id": "b", "n": 2}, {"id": "b", "n": 3}, rowid=1)
    lives.rename("codes", "hidden")  # as another program may, between two lives
    code, said = await asyncio.to_thread(lives.run, etcd_clean)
    assert code == 1
    assert "the mirror shop.codes is gone: another program has removed it" in said
    lives.rename("hidden", "codes")
    code, said = await asyncio.to_thread(lives.run, etcd_clean)
    assert code == 0, said
    assert lives.rows("codes") == [("a", 0, None), ("b", 3, None)]

    await publisher.add_column("shop.orders", column("note", "varchar(10)"))
    async with publisher.transaction() as txn:  # in one batch with the DDL after it
        txn.insert("shop.orders", {"id": 11, "item": "x", "note": "m"})
    await publisher.add_column("shop.orders", column("price", "decimal(6,2)", default="1.50"))
    await publisher.drop_column("shop.orders", "item")
    await publisher.truncate_table("shop.items")
    await publisher.rename_table("shop.items", "things")
    async with publisher.transaction() as txn:
        txn.update(
            "shop.orders", {"id": 4, "note": None, "price": "1.50"}, {"id": 4, "note": "n", "price": "2"}
        )
        txn.insert("shop.things", {"id": 8, "item": "z"})
    code, said = await asyncio.to_thread(lives.run, etcd_clean)
    assert code == 0, said
    assert [(key, note, str(price)) for key, note, price, _ in lives.rows("orders")] == [
        *((0, None, "1.50"), (4, "n", "2.00"), (5, None, "1.50"), (10, None, "1.50")),
        (11, "m", "1.50"),
    ]
    assert lives.rows("things") == [(8, "z", None)]
    await verified(lives, etcd_clean, mariadb, ctl)

    await publisher.drop_table("shop.things")
    await publisher.create_table("shop.log", [column("line", "varchar(40)")], primary_key=[])
    async with publisher.transaction() as txn:
        txn.insert("shop.log", {"line": "the same"}, rowid=1)
    code, said = await asyncio.to_thread(lives.run, etcd_clean)
    assert code == 1
    assert "table shop.log has no key: a mirror cannot tell its rows apart" in said
    assert not (lives.warehouse / "shop" / "things" / "_delta_log").exists()
    await publisher.close()


ROUTES = """
[[syncer.table-migrate-rule]]
source = { schema = "shop", table = "orders*" }
target = { schema = "shop", table = "all" }
"""


def name(of: str) -> dict[str, object]:
    return {"name": {"O": of, "L": of}}


async def test_rows_that_a_mirror_took_for_gone_for_others_or_for_the_same(
    lives: Lives, pump: Start, etcd_clean: str, tmp_path: Path
) -> None:
    """A table that tools made anew beside it, partitions of one, keys that no column can hold, two tables
    that go into one."""
    await pump("-node-id=p1", "-heartbeat-interval=200ms").start_and_wait()
    publisher = await shop(etcd_clean)
    days = [
        column("id", "char(4)", nullable=False),
        column("day", "date", nullable=False),
        column("n", "int"),
    ]
    await publisher.create_table("shop.days", days, primary_key=["id", "day"])
    await write(publisher, 1)
    await write(publisher, 2, table="items")
    async with publisher.transaction() as txn:
        txn.insert("shop.days", {"id": "a ", "day": "0000-05-06", "n": 1}, rowid=1)
        txn.insert("shop.days", {"id": "b", "day": "0000-01-01", "n": 2}, rowid=2)
    code, said = await asyncio.to_thread(lives.run, etcd_clean)
    assert code == 0, said
    async with publisher.transaction() as txn:
        was = {"id": "a", "day": "0000-05-06", "n": 1}
        txn.update("shop.days", was, was | {"n": 3}, rowid=1)
        txn.delete("shop.days", {"id": "b", "day": "0000-01-01", "n": 2}, rowid=2)
        txn.insert("shop.days", {"id": "b", "day": "0000-02-02", "n": 4}, rowid=3)
    query = "RENAME TABLE shop.orders TO shop.orders_old, shop.items TO shop.orders"
    names = {"orders": name("orders_old"), "items": name("orders")}
    await publish_job(publisher, etcd_clean, ActionType.RENAME_TABLES, query, "orders", "items", **names)
    query, other_id = "ALTER TABLE shop.days PARTITION BY KEY (id) PARTITIONS 2", {"id": 7777}
    await publish_job(
        publisher, etcd_clean, ActionType.ALTER_TABLE_PARTITIONING, query, "days", days=other_id
    )
    async with publisher.transaction() as txn:
        txn.insert("shop.orders", {"id": 3, "item": "of the same table"})
    code, said = await asyncio.to_thread(lives.run, etcd_clean)
    assert code == 0, said
    assert lives.rows("orders_old") == [(1, "pen 1", None), (3, "of the same table", None)]
    assert lives.rows("orders") == [(2, "pen 2", None)]
    assert lives.rows("days") == [
        ("a", None, 3, '{"day": "0000-05-06"}'),
        ("b", None, 4, '{"day": "0000-02-02"}'),
    ]

    async with publisher.transaction() as txn:
        txn.insert("shop.orders", {"id": 4, "item": "x"})
        txn.insert("shop.items", {"id": 5, "item": "x"})
    file = tmp_path / "routes.toml"
    file.write_text('addr = "127.0.0.1:0"\n' + ROUTES)
    code, said = await asyncio.to_thread(lives.run, etcd_clean, "--config", str(file))
    assert code == 1
    assert "several tables are routed to shop.all" in said
    await publisher.close()
