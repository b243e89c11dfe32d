"""A command that keeps a mirror, as often as it is begun in one process."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog

from drainer.spark.live.mirror import DELTA_CONNECTOR, ICEBERG_CONNECTOR
from tests.architecture.source import ROOT
from tests.spark.support import spark_versions

LIVES = """
import json, sys
from drainer.lake.changelog import schema_of
from drainer.lake.delta import DeltaLake
from drainer.places.place import Place
from drainer.spark.live.mirror import Mirrors
from drainer.spark.program import run
from pyspark import SparkContext
from tidb_binlog.errors import BinlogError

class Killed(BaseException):
    pass

async def never(self, commit_ts):
    if self.tracker.names() and commit_ts > dies_after:
        raise Killed
    await reach(self, commit_ts)

reach, dies_after = Mirrors.reach, 0
for line in sys.stdin:
    argv, dies_after = json.loads(line)
    if not argv:
        stages = map(SparkContext.getOrCreate().statusTracker().getStageInfo, range(500))
        print("code", max(stage.numTasks for stage in stages if stage), flush=True)
        continue
    Mirrors.reach = never if dies_after else reach
    try:
        code = run(argv)
    except Killed:
        code = -9
    except BinlogError as error:
        code = 1
        print(error, file=sys.stderr, flush=True)
    print("code", code, flush=True)
"""


@dataclass
class Lives:
    """A process that runs the command as often as it is told, in one session of Spark."""

    form: str
    warehouse: Path
    process: subprocess.Popen[str]
    log: Path

    def run(self, endpoint: str, *more: str, dies_after: int = 0) -> tuple[int, str]:
        """Its code, and what it said meanwhile."""
        argv = ["stream", "--from", f"pumps://{endpoint}", "--start", "1", *more]
        return self._told(argv, dies_after)

    def load(self, endpoint: str, *more: str) -> tuple[int, str]:
        """As `run`, with a first copy."""
        return self._told(["load", "--pumps", f"pumps://{endpoint}", *more], 0)

    def most_tasks(self) -> int:
        """Of one stage of a job."""
        return self._said([], 0)[0]

    def _told(self, argv: list[str], dies_after: int) -> tuple[int, str]:
        argv += ["--to", f"{self.form}://{self.warehouse}", "--mode", "mirror", "--once"]
        return self._said([*argv, "--interval", "50ms", "--master", "local[2]"], dies_after)

    def _said(self, argv: list[str], dies_after: int) -> tuple[int, str]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        lines = []
        before = self.log.stat().st_size
        self.process.stdin.write(json.dumps([argv, dies_after]) + "\n")
        self.process.stdin.flush()
        for line in self.process.stdout:
            if line.startswith("code "):
                return int(line.split()[1]), "".join(lines) + self.log.read_text()[before:]
            lines.append(line)
        raise AssertionError(self.log.read_text()[-4000:])

    def catalog(self) -> contextlib.closing[Any]:
        """Iceberg's."""
        uri = f"sqlite:///{self.warehouse}/catalog.db"
        return contextlib.closing(load_catalog("lake", type="sql", uri=uri))

    def rename(self, table: str, name: str) -> None:
        """As another program does."""
        if self.form == "delta":
            (self.warehouse / "shop" / table).rename(self.warehouse / "shop" / name)
        else:
            with self.catalog() as catalog:
                catalog.rename_table(("shop", table), ("shop", name))

    def rows(self, table: str) -> list[tuple[Any, ...]]:
        """As another program sees them, by key."""
        if self.form == "delta":
            relation = DeltaTable(str(self.warehouse / "shop" / table)).to_pyarrow_table()
        else:
            with self.catalog() as catalog:
                relation = catalog.load_table(("shop", table)).scan().to_arrow()
        return duckdb.from_arrow(relation).order("id").fetchall()


@pytest.fixture(params=[DELTA_CONNECTOR, ICEBERG_CONNECTOR], ids=["delta", "iceberg"])
def lives(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Lives]:
    settings = {
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.memory": "1g",
        **spark_versions.or_skip(lambda: spark_versions.jars("4.1", *request.param.packages)),
    }
    child = LIVES.replace("run(argv)", f"run([*argv, *{[f'--conf={k}={v}' for k, v in settings.items()]!r}])")
    log = tmp_path / "lives.log"
    with log.open("w") as errors:
        process = subprocess.Popen(
            [sys.executable, "-c", child],
            env=spark_versions.environ("4.1"),
            cwd=ROOT,
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
        )
    with process:
        yield Lives(request.node.callspec.id, tmp_path / "lake", process, log)
