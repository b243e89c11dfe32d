"""Mirrors in an object store, by the connector and a file system of Spark; one is killed on the way."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog

from drainer.spark.live.mirror import DELTA_CONNECTOR, ICEBERG_CONNECTOR
from pumpclient import Publisher, column
from tests.integration.support.subscribed_shop import shop, write
from tests.object_store import SECRET, ObjectStore
from tests.pump.conftest import pump as pump
from tests.pump.support.process import Start
from tests.spark.support import spark_versions
from tests.spark.support.spark_command import SparkCommand
from tests.waiting import PATIENCE_S, until

pytestmark = [pytest.mark.integration, pytest.mark.timeout(spark_versions.MAKING_S + 600)]


class Mirror:
    """A command that keeps one, as often as it is begun. Iceberg's catalog is a database of its own."""

    def __init__(self, form: str, store: ObjectStore, endpoint: str, port: int, directory: Path) -> None:
        self._form, self._store = form, store
        self.log = directory / "log"
        self._config = directory / "stream.toml"
        self._catalog: dict[str, Any] = {}
        connector = DELTA_CONNECTOR if form == "delta" else ICEBERG_CONNECTOR
        packages = (*connector.packages, spark_versions.FILE_SYSTEMS[form])
        self._settings = spark_versions.or_skip(lambda: spark_versions.jars("4.1", *packages))
        self._settings |= {"spark.driver.memory": "1g", "spark.sql.shuffle.partitions": "2"}
        s3 = store.environ["AWS_ENDPOINT_URL"]
        if form == "delta":
            self._settings |= {
                "spark.hadoop.fs.s3.impl": "org.apache.hadoop.fs.s3a.S3AFileSystem",
                "spark.hadoop.fs.s3a.endpoint": s3,
                "spark.hadoop.fs.s3a.path.style.access": "true",
            }
        else:
            self._catalog = {"type": "sql", "uri": f"sqlite:///{directory}/catalog.db", "s3.endpoint": s3}
            of_catalog = {
                "type": "jdbc",
                "uri": f"jdbc:sqlite:{directory}/catalog.db",
                "jdbc.schema-version": "V1",
                "warehouse": store.uri("lake"),
                "io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
                "s3.endpoint": s3,
                "s3.path-style-access": "true",
            }
            self._settings |= {f"spark.sql.catalog.lake.{key}": text for key, text in of_catalog.items()}
        lines = [
            f'addr = "127.0.0.1:{port}"',
            f'pd-urls = "{endpoint}"',
            f'data-dir = "{directory}/stream"',
            "initial-commit-ts = 0",
        ]
        lines += ["[syncer]", f'db-type = "{form}"', "[syncer.to]", f'warehouse = "{store.uri("lake")}"']
        lines += ["[syncer.to.catalog]"] * bool(self._catalog)
        lines += [f'"{key}" = "{text}"' for key, text in self._catalog.items()]
        self._config.write_text("\n".join(lines))

    def begin(self, *more: str) -> SparkCommand:
        argv = ["stream", "--config", str(self._config), "--mode", "mirror", "--interval", "50ms"]
        argv += ["--master", "local[2]", *more]
        argv += [f"--conf={key}={text}" for key, text in self._settings.items()]
        variables = {**spark_versions.environ("4.1"), **self._store.environ, "AWS_ALLOW_HTTP": "true"}
        return SparkCommand(argv, self.log, variables=variables)

    def rows(self, table: str) -> list[dict[str, Any]]:
        """As another program sees them, by key."""
        if self._form == "delta":
            place = self._store.uri(f"lake/shop/{table}")
            arrow = DeltaTable(place).to_pyarrow_table() if DeltaTable.is_deltatable(place) else None
        else:
            with contextlib.closing(load_catalog("lake", **self._catalog)) as catalog:
                there = catalog.table_exists(("shop", table))
                arrow = catalog.load_table(("shop", table)).scan().to_arrow() if there else None
        return sorted(arrow.to_pylist(), key=lambda row: int(row["id"])) if arrow is not None else []


async def change(publisher: Publisher, count: int) -> dict[int, str]:
    """What `orders` are after it, of rows 0 to `count` that were written."""
    rows = {number: f"pen {number}" for number in range(count)}
    for number in range(0, count, 3):
        async with publisher.transaction() as txn:
            old = {"id": number, "item": rows.pop(number)}
            if number % 2:
                txn.delete("shop.orders", old)
            else:
                rows[number] = "ink"
                txn.update("shop.orders", old, {"id": number, "item": "ink"})
    return rows


@pytest.mark.parametrize(("form", "is_killed"), [("delta", True), ("iceberg", False)])
async def test_a_mirror_in_an_object_store(
    form: str,
    is_killed: bool,
    pump: Start,
    etcd_clean: str,
    s3: ObjectStore,
    tmp_path: Path,
    free_port: Callable[[], int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    await pump("-node-id=p1", "-heartbeat-interval=200ms").start_and_wait()
    publisher = await shop(etcd_clean)
    mirror = Mirror(form, s3, etcd_clean, free_port(), tmp_path)
    await write(publisher, *range(10))
    if is_killed:
        command = mirror.begin()
        try:
            await until(lambda: command.process.poll() is not None or mirror.rows("orders"))
            assert command.process.poll() is None, mirror.log.read_text()[-4000:]
            rows = await change(publisher, 10)
        finally:
            command.kill_all()
    else:
        rows = await change(publisher, 10)
    await publisher.add_column("shop.orders", column("n", "int", default="7"))
    await write(publisher, 1, 2, table="items")
    again = mirror.begin("--once")
    try:
        assert await asyncio.to_thread(again.process.wait, PATIENCE_S) == 0, mirror.log.read_text()[-4000:]
    finally:
        again.kill_all()
    assert mirror.rows("orders") == [
        {"id": number, "item": rows[number], "n": 7, "_invalid": None} for number in sorted(rows)
    ]
    assert [row["id"] for row in mirror.rows("items")] == [1, 2]
    assert SECRET not in mirror.log.read_text()
    await publisher.close()
