"""A cluster that speaks TLS alone: driver and tasks of frames and streams read it by certificates."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from binlog_playground.cluster.etcd_server import EtcdServer
from pumpclient import column, open_publisher
from tests import certificates
from tests.pump.support.process import PumpProcess
from tests.waiting import until
from tidb_binlog.etcd.registry import connect_registry
from tidb_binlog.net.tls import TlsConfig

pytestmark = pytest.mark.integration


@pytest.fixture
def tls(tmp_path: Path) -> TlsConfig:
    authority = certificates.authority()
    return certificates.write(tmp_path / "tls", ca=[authority], node=certificates.leaf("node", ca=authority))


@pytest.fixture
def endpoint(tls: TlsConfig, free_port: Callable[[], int], tmp_path: Path) -> Iterator[str]:
    """An etcd with a Pump: neither takes who shows no certificate."""
    server = EtcdServer.start(tmp_path / "etcd", tls=tls)
    flags = [f"-ssl-ca={tls.ca}", f"-ssl-cert={tls.cert}", f"-ssl-key={tls.key}", "-node-id=p1"]
    process = PumpProcess(tmp_path / "pump", server.endpoint, free_port, *flags)
    process.start()
    yield server.endpoint
    process.end()
    server.stop()


async def filled(endpoint: str, tls: TlsConfig) -> None:
    registry = await connect_registry(endpoint, tls=tls)

    async def is_up() -> bool:
        return any(entry.alive for entry in (await registry.view()).pumps.values())

    await until(is_up)
    await registry.close()
    async with await open_publisher(endpoint, tls=tls) as publisher:
        await publisher.create_database("shop")
        await publisher.create_table("shop.orders", [column("id", "int", nullable=False)], primary_key=["id"])
        for number in range(5):
            async with publisher.transaction() as txn:
                txn.insert("shop.orders", {"id": number})


async def test_certificates_are_options(
    endpoint: str, tls: TlsConfig, tmp_path: Path, spark: SparkSession
) -> None:
    await filled(endpoint, tls)
    options = {"ssl-ca": tls.ca, "ssl-cert": tls.cert, "ssl-key": tls.key, "table": "shop.orders"}
    expected = list(range(5))

    def read() -> None:
        frame = spark.read.format("binlog").options(**options).load(f"pumps://{endpoint}")
        assert sorted(row.after.id for row in frame.select("after").collect()) == expected
        with pytest.raises(AnalysisException, match="https without TLS files"):
            spark.read.format("binlog").option("table", "shop.orders").load(f"pumps://{endpoint}").count()

        stream = spark.readStream.format("binlog").options(**options, name="frames")
        rows, files = tmp_path / "rows", tmp_path / "files"
        query = stream.load(f"pumps://{endpoint}").writeStream.format("parquet")
        query = query.option("checkpointLocation", str(files)).trigger(availableNow=True)
        query.start(str(rows)).awaitTermination()
        assert sorted(row.after.id for row in spark.read.parquet(str(rows)).collect()) == expected

    await asyncio.to_thread(read)


async def test_a_stream_has_them_of_its_configuration(endpoint: str, tls: TlsConfig, tmp_path: Path) -> None:
    await filled(endpoint, tls)
    config, lake = tmp_path / "drainer.toml", tmp_path / "lake"
    config.write_text(
        f'pd-urls = "{endpoint}"\naddr = "127.0.0.1:0"\ninitial-commit-ts = 0\n'
        f'[security]\nssl-ca = "{tls.ca}"\nssl-cert = "{tls.cert}"\nssl-key = "{tls.key}"\n'
    )
    argv = ["stream", "--config", str(config), "--to", f"delta://{lake}", "--once", "--small", "0"]
    argv += ["--master", "local[2]", "--conf", "spark.driver.memory=1g"]
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "drainer.spark", *argv, stderr=asyncio.subprocess.PIPE
    )
    _, said = await child.communicate()
    assert child.returncode == 0, said.decode()[-2000:]
    rows = DeltaTable(str(lake / "shop" / "orders")).to_pyarrow_table().column("after").to_pylist()
    assert sorted(row["id"] for row in rows) == list(range(5))
