"""A mirror whose catalog is a REST server: Spark is told of it by the configuration of the stream."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

import pytest
from pyiceberg.catalog import load_catalog

from drainer.config.options import DrainerConfig
from drainer.spark.live.mirror import ICEBERG_CONNECTOR, session_settings
from pumpclient import column
from tests.integration.support.subscribed_shop import shop, write
from tests.pump.conftest import pump as pump
from tests.pump.support.process import Start
from tests.rest_catalog import RestCatalog
from tests.rest_catalog import rest_catalog as rest_catalog
from tests.spark.support import spark_versions
from tests.spark.support.mirror_lives import Lives
from tests.spark.support.mirror_lives import lives as lives

pytestmark = [pytest.mark.integration, pytest.mark.timeout(spark_versions.MAKING_S + 600)]


@pytest.mark.parametrize("lives", [ICEBERG_CONNECTOR], ids=["iceberg"], indirect=True)
async def test_rows_and_columns_follow(
    lives: Lives, pump: Start, etcd_clean: str, rest_catalog: RestCatalog, tmp_path: Path
) -> None:
    await pump("-node-id=p1", "-heartbeat-interval=200ms").start_and_wait()
    publisher = await shop(etcd_clean)
    file = tmp_path / "stream.toml"
    file.write_text(
        f'data-dir = "{tmp_path}/stream"\naddr = "127.0.0.1:0"\n'
        f'[syncer.to.catalog]\ntype = "rest"\nuri = "{rest_catalog.uri}"\n'
    )

    async def life() -> None:
        code, said = await asyncio.to_thread(lives.run, etcd_clean, "--config", str(file))
        assert code == 0, said

    await write(publisher, 1, 2)
    await life()
    await publisher.add_column("shop.orders", column("n", "int", default="7"))
    await publisher.truncate_table("shop.items")
    async with publisher.transaction() as txn:
        txn.delete("shop.orders", {"id": 1, "item": "pen 1", "n": 7})
        txn.insert("shop.items", {"id": 3, "item": "x"})
    await life()
    properties = {"type": "rest", "uri": rest_catalog.uri}
    with contextlib.closing(load_catalog("lake", **properties)) as catalog:
        orders, items = (catalog.load_table(f"shop.{name}").scan().to_arrow() for name in ("orders", "items"))
    assert orders.to_pylist() == [{"id": 2, "item": "pen 2", "n": 7, "_invalid": None}]
    assert items.column("id").to_pylist() == [3]
    assert not (lives.warehouse / "catalog.db").exists()
    await publisher.close()


def test_a_secret_of_a_catalog_is_not_among_the_settings_of_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CATALOG_TOKEN", "words-that-nobody-reads")
    catalog = {"type": "rest", "uri": "https://catalog.example", "token": "env:CATALOG_TOKEN"}
    settings = session_settings(DrainerConfig(db_type="iceberg", warehouse="s3://lake/x", catalog=catalog))
    assert settings["spark.sql.catalog.lake.uri"] == "https://catalog.example"
    assert not any("words" in text or "token" in key for key, text in settings.items()), [*settings]
