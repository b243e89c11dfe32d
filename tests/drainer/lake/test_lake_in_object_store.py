"""Changelogs in an object store: exactly once there too, and no secret in what is said of a failure."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog

from drainer.lake.delta import DeltaLake
from drainer.lake.iceberg import IcebergLake
from drainer.lake.lake_table import Lake
from drainer.places.place import Place
from drainer.txn import INSERT
from tests.drainer.support.lake_world import change, column, give, sink_of, transaction, version_of
from tests.object_store import SECRET, ObjectStore
from tidb_binlog.errors import Unavailable
from tidb_binlog.table_info import VARCHAR

pytestmark = pytest.mark.integration
APP = "tidb-binlog-1-a"
TABLE = version_of(column(1, "id"), column(2, "v", VARCHAR, flen=64))
STREAM = [transaction(ts, change(TABLE, INSERT, (ts, "a"))) for ts in range(10, 60, 10)]


@pytest.fixture(autouse=True)
def _without_tls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")


def _catalog(s3: ObjectStore, directory: Path) -> dict[str, str]:
    endpoint = s3.environ["AWS_ENDPOINT_URL"]
    return {"type": "sql", "uri": f"sqlite:///{directory}/catalog.db", "s3.endpoint": endpoint}


def lake_of(form: str, s3: ObjectStore, directory: Path) -> Lake:
    place = Place(s3.uri("lake"))
    return DeltaLake(place, APP) if form == "delta" else IcebergLake(place, APP, _catalog(s3, directory))


def delta(s3: ObjectStore, directory: Path) -> list[dict[str, Any]]:
    return list(DeltaTable(s3.uri("lake/d/t")).to_pyarrow_table().to_pylist())


def iceberg(s3: ObjectStore, directory: Path) -> list[dict[str, Any]]:
    catalog = load_catalog("lake", **_catalog(s3, directory))
    try:
        return list(catalog.load_table("d.t").scan().to_arrow().to_pylist())
    finally:
        catalog.close()


@pytest.mark.parametrize("read", [delta, iceberg])
def test_each_change_once(
    read: Callable[[ObjectStore, Path], list[dict[str, Any]]], s3: ObjectStore, tmp_path: Path
) -> None:
    for count in (2, 3, 5):
        sink = sink_of(lake_of(read.__name__, s3, tmp_path), compact_s=0.0)
        for item in STREAM[:count]:
            give(sink, [item])
        sink.close()
    assert sorted(row["_commit_ts"] for row in read(s3, tmp_path)) == [10, 20, 30, 40, 50]
    assert all(key.startswith("lake/d/t/") for key in s3.objects())


@pytest.mark.parametrize("form", ["delta", "iceberg"])
def test_a_store_that_refuses_is_tried_again_and_no_secret_is_told(
    form: str, s3: ObjectStore, tmp_path: Path
) -> None:
    sink = sink_of(lake_of(form, s3, tmp_path))
    with s3.asking_for_keys(), pytest.raises(Unavailable) as raised:
        give(sink, STREAM[:1])
    assert SECRET not in str(raised.value)
    sink.close()
    sink.open()
    give(sink, STREAM[:2])
    sink.close()
