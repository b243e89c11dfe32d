"""Lakes in a real drainer that dies over and over: every change is there once."""

from __future__ import annotations

import random
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog

from tests.benchmarks.drainer import workloads
from tests.benchmarks.drainer.file_sink import verify
from tests.integration.sinks.pump_scene import PumpScene, killed, on, stored, through
from tests.waiting import PATIENCE_S, until_here

pytestmark = pytest.mark.integration
TRANSACTIONS = 1500


@pytest.fixture
def scene(etcd_clean: str, free_port: Callable[[], int], tmp_path: Path) -> Iterator[PumpScene]:
    processes = PumpScene(etcd_clean, tmp_path, free_port)
    yield processes
    processes.end()


def delta(path: Path) -> list[dict[str, Any]]:
    return (
        list(DeltaTable(str(path)).to_pyarrow_table().to_pylist()) if (path / "_delta_log").exists() else []
    )


def iceberg(path: Path) -> list[dict[str, Any]]:
    catalog = load_catalog("lake", type="sql", uri=f"sqlite:///{path.parents[1]}/catalog.db")
    name = path.parent.name, path.name
    try:
        if not catalog.table_exists(name):
            return []
        return list(catalog.load_table(name).scan().to_arrow().to_pylist())
    finally:
        catalog.close()


@pytest.mark.parametrize(("db_type", "read"), [("delta", delta), ("iceberg", iceberg)])
async def test_kills(
    etcd_clean: str,
    scene: PumpScene,
    tmp_path: Path,
    db_type: str,
    read: Callable[[Path], list[dict[str, Any]]],
) -> None:
    scenario = await stored(etcd_clean, tmp_path, workloads.hot(TRANSACTIONS))
    lake, rng = tmp_path / "lake", random.Random(5)
    syncer = (
        f'db-type = "{db_type}"\n[syncer.to]\nwarehouse = "{lake}"\ncommit-interval = "100ms"\n'
        'commit-size = "32 KiB"\ncompact-interval = "300ms"\n'
    )
    scene.start_pump()

    def tables() -> list[Path]:
        return [path for path in lake.glob("*/*") if path.is_dir()]

    def count() -> int:
        return sum(len(read(path)) for path in tables())

    for _ in range(3):
        process, url = scene.start_sink(syncer)
        until_here(on(count, url, scenario))
        killed(process, rng)
    process, url = scene.start_sink(syncer)
    until_here(through(url, scenario))
    process.send_signal(signal.SIGTERM)
    assert process.wait(PATIENCE_S) == 0
    contents: dict[str, dict[str, tuple[Any, ...]]] = {}
    for path in tables():
        changes = sorted(read(path), key=lambda each: (each["_commit_ts"], each["_seq"]))
        places = [(each["_commit_ts"], each["_seq"]) for each in changes]
        assert len(set(places)) == len(places) > 0, "nothing is there twice"
        rows = contents.setdefault(path.name, {})
        for each in changes:
            if each["before"] is not None:
                assert rows.pop(str(next(iter(each["before"].values())))) == tuple(each["before"].values())
            if each["after"] is not None:
                values = tuple(each["after"].values())
                rows[str(values[0])] = values
    verify(contents, scenario.checksums)
