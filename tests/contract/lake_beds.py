"""Lake sinks on warehouses of a test, read by programs that know the format only."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from pyiceberg.catalog import load_catalog

from drainer.lake.changelog import schema_of
from drainer.lake.delta import DeltaLake
from drainer.lake.iceberg import IcebergLake
from drainer.lake.lake_sink import LakeItems, LakeSink
from drainer.lake.lake_table import Lake
from drainer.places.place import Place
from drainer.testing.batch_bed import BatchBed
from drainer.testing.stream import Rows
from tidb_binlog.clock import SystemClock

APP = "tidb-binlog-4712-test"


class LakeBed(BatchBed):
    """What somebody has who plays a changelog from its beginning."""

    follows_ddl = False

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.warehouse = directory / "lake"

    def lake(self) -> Lake:
        raise NotImplementedError

    def changes(self, table: str, schema: str = "d") -> list[dict[str, Any]]:
        """All rows of the changelog."""
        raise NotImplementedError

    def tables(self) -> list[tuple[str, str]]:
        return sorted((path.parent.name, path.name) for path in self.warehouse.glob("*/*") if path.is_dir())

    joins = True
    """Small files can be joined."""

    def remove(self, table: str) -> None:
        """As another program does it."""
        raise NotImplementedError

    def make_other(self, table: str) -> None:
        """A table of the name that is no changelog."""
        raise NotImplementedError

    def files(self, table: str) -> int:
        """How many a reader reads."""
        raise NotImplementedError

    def versions(self, table: str) -> int:
        """How many files and snapshots are kept for readers of before."""
        raise NotImplementedError

    def append_by_another(self, table: str) -> None:
        """Rows of a program that is no drainer, at commit_ts 1."""
        raise NotImplementedError

    def sink(self) -> LakeSink:
        return LakeSink(self.lake(), SystemClock(), batch_bytes=1 << 20, batch_interval_s=0.0)

    def convert(self) -> LakeItems:
        return LakeItems()

    def rows(self, table: str) -> Rows:
        return list(played(self.changes(table)))


def played(changes: Iterable[dict[str, Any]]) -> Rows:
    """The rows at the end, of a table with key or without; a change that is there twice is seen."""
    rows: Rows = []
    for change in sorted(changes, key=lambda each: (each["_commit_ts"], each["_seq"])):
        if change["before"] is not None:
            rows.remove((change["before"]["id"], change["before"]["v"]))
        if change["after"] is not None:
            rows.append((change["after"]["id"], change["after"]["v"]))
    return rows


def others_row() -> pa.Table:
    schema = schema_of({"id": pa.int32(), "v": pa.string()})
    columns = {"_commit_ts": 1, "_seq": 0, "_kind": "insert", "before": None, "after": None, "_invalid": None}
    return pa.Table.from_pylist([columns], schema=schema)


class DeltaBed(LakeBed):
    def lake(self) -> Lake:
        return DeltaLake(Place(str(self.warehouse)), APP)

    def path(self, table: str, schema: str = "d") -> str:
        return str(self.warehouse / schema / table)

    def changes(self, table: str, schema: str = "d") -> list[dict[str, Any]]:
        if not DeltaTable.is_deltatable(self.path(table, schema)):
            return []
        return list(DeltaTable(self.path(table, schema)).to_pyarrow_table().to_pylist())

    def remove(self, table: str) -> None:
        shutil.rmtree(self.path(table))

    def make_other(self, table: str) -> None:
        write_deltalake(self.path(table), pa.table({"x": [1]}))

    def files(self, table: str) -> int:
        return len(DeltaTable(self.path(table)).file_uris())

    def versions(self, table: str) -> int:
        return len(list(Path(self.path(table)).glob("*.parquet")))

    def append_by_another(self, table: str) -> None:
        write_deltalake(self.path(table), others_row(), mode="append")


class IcebergBed(LakeBed):
    joins = False

    def lake(self) -> Lake:
        return IcebergLake(Place(str(self.warehouse)), APP, {})

    @contextlib.contextmanager
    def catalog(self) -> Iterator[Any]:
        """As a reader opens it, in a warehouse that may be empty yet."""
        self.warehouse.mkdir(exist_ok=True)
        catalog = load_catalog("lake", type="sql", uri=f"sqlite:///{self.warehouse}/catalog.db")
        try:
            yield catalog
        finally:
            catalog.close()

    def changes(self, table: str, schema: str = "d") -> list[dict[str, Any]]:
        with self.catalog() as catalog:
            if not catalog.table_exists((schema, table)):
                return []
            return list(catalog.load_table((schema, table)).scan().to_arrow().to_pylist())

    def remove(self, table: str) -> None:
        with self.catalog() as catalog:
            catalog.drop_table(("d", table))

    def make_other(self, table: str) -> None:
        with self.catalog() as catalog:
            catalog.create_namespace("d")
            location = (self.warehouse / "d" / table).as_uri()
            catalog.create_table(("d", table), pa.schema([("x", pa.int32())]), location=location)

    def files(self, table: str) -> int:
        with self.catalog() as catalog:
            return len(list(catalog.load_table(("d", table)).scan().plan_files()))

    def versions(self, table: str) -> int:
        with self.catalog() as catalog:
            return len(catalog.load_table(("d", table)).snapshots())

    def append_by_another(self, table: str) -> None:
        with self.catalog() as catalog:
            catalog.load_table(("d", table)).append(others_row())


BEDS: dict[str, Callable[[Path], LakeBed]] = {"delta": DeltaBed, "iceberg": IcebergBed}
