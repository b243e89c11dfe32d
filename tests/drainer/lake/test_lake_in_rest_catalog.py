"""Changelogs whose catalog is a REST server, which dies and comes back: each change is there once."""

from __future__ import annotations

import contextlib
from collections import Counter
from pathlib import Path

import pytest
from pyiceberg.catalog import load_catalog

from drainer.lake.iceberg import IcebergLake
from drainer.places.place import Place
from drainer.txn import INSERT
from tests.drainer.support.lake_world import change, column, give, sink_of, transaction, version_of
from tests.rest_catalog import RestCatalog
from tests.rest_catalog import rest_catalog as rest_catalog
from tests.spark.support import spark_versions
from tidb_binlog.errors import Unavailable
from tidb_binlog.table_info import VARCHAR

pytestmark = [pytest.mark.integration, pytest.mark.timeout(spark_versions.FEW_S + 600)]
TABLE = version_of(column(1, "id"), column(2, "v", VARCHAR, flen=64))
WIDER = version_of(column(1, "id"), column(2, "v", VARCHAR, flen=64), column(3, "w"))
STREAM = [
    *(transaction(ts, change(TABLE, INSERT, (ts, "a"))) for ts in (10, 20, 30)),
    *(transaction(ts, change(WIDER, INSERT, (ts, "a", 7))) for ts in (40, 50)),
]


def test_each_change_once(rest_catalog: RestCatalog, tmp_path: Path) -> None:
    properties = {"type": "rest", "uri": rest_catalog.uri}

    def life(count: int) -> None:
        lake = IcebergLake(Place(str(tmp_path / "lake")), "tidb-binlog-1-a", properties)
        with contextlib.closing(sink_of(lake, compact_s=0.0)) as sink:
            for item in STREAM[:count]:
                give(sink, [item])

    life(2)
    rest_catalog.go_down()
    with pytest.raises(Unavailable, match="the catalog cannot be reached"):
        life(3)
    rest_catalog.come_up()
    for count in (3, 5):
        life(count)
    with contextlib.closing(load_catalog("lake", **properties)) as catalog:
        rows = catalog.load_table("d.t").scan().to_arrow().to_pylist()
    assert Counter((row["_commit_ts"], row["after"]["w"]) for row in rows) == Counter(
        [(10, None), (20, None), (30, None), (40, 7), (50, 7)]
    )
