"""`spark.mirror`: folded effects go into Delta mirrors by `MERGE INTO`, beside the same MERGE of Parquet.

A million changes of 100,000 keys go into tables of five million rows, in whose files those keys are spread.
The rate is row changes by the time from the first byte of an archive to the last commit; the ratio is what is
left of the rate of a MERGE whose rows lie there as Parquet. Both in turns in one session of Spark 4.1, into
tables of the same rows; contents are verified. `python -m tests.benchmarks.spark.mirror` is that session.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable, write_deltalake

from drainer.config.options import DrainerConfig
from drainer.ddl.policy import Policy
from drainer.lake import mirror
from drainer.lake.delta import DeltaLake
from drainer.lake.warehouse import MIRROR, LakePosition
from drainer.places.place import Place
from drainer.reading.archive.decode.definitions import of_archive
from drainer.reading.archive.decode.reading import FAIL
from drainer.reading.archive.files.segments import survey
from drainer.reading.archive.files.selection import Selection
from drainer.spark.effects.blocks import FOLDED, by_bucket, folded
from drainer.spark.effects.fold import Reading
from drainer.spark.live.lake import LakeStart
from drainer.spark.live.mirror import DELTA_CONNECTOR, Mirrors, decoded, session_settings
from drainer.spark.replay.plan import buckets_of, shares
from drainer.spark.session import session
from drainer.stream.rules.rule_set import Rules
from drainer.stream.schema.tracker import SchemaTracker
from drainer.txn import TableVersion
from tests.architecture.source import ROOT
from tests.benchmarks.report import Result
from tests.benchmarks.settings import Settings
from tests.benchmarks.spark.rows import SCHEMA, TABLES, WORKLOADS, Row, write
from tests.benchmarks.spark.rows import Rows as Workload
from tests.spark.support import spark_versions

CHANGES: Final = 1_000_000
ROWS: Final = 5_000_000
ROUNDS: Final = 2
FIRST_OTHER: Final = 10_000_000
"""Id of the first row that nothing changes."""
FILE_BYTES: Final = 8 << 20
LAST_TS: Final = (1 << 62) - 1
_APP: Final = "benchmark"


class Bench:
    """A session, an archive, tables that are filled anew before each round."""

    def __init__(self, directory: Path, conf: dict[str, str]) -> None:
        self._directory = directory
        self.rows = Workload()
        archive = directory / "archive"
        write(archive, self.rows, WORKLOADS["fold10"](self.rows, CHANGES))
        self._settings = DrainerConfig(db_type="delta", warehouse=str(directory / "lake"))
        self._spark = session("benchmark", "local[2]", {**session_settings(self._settings), **conf})
        surveyed = survey(Place(str(archive)), "auto")
        self._definitions = of_archive(surveyed.location, surveyed)
        parts = tuple(surveyed.plan(Selection(), 2 << 20))
        buckets = buckets_of(sum(part.size for part in parts))
        grouped = shares(parts, 2)
        self._reading = Reading(
            surveyed.location, grouped, Selection(), self._definitions, frozenset(), buckets, FAIL
        )
        lake = DeltaLake(Place(self._settings.warehouse), _APP)
        start = LakeStart(LakePosition(self._settings, 1, MIRROR), 0, SchemaTracker(), Policy())
        self._mirrors = Mirrors(start, lake, lambda: self._spark, Rules())

        for version, rows in zip(self.rows.versions, self.rows.before, strict=True):
            self._make(version, list(rows.values()))

    def _make(self, version: TableVersion, rows: list[Row]) -> None:
        """A table as it is before a round."""
        schema = mirror.schema_of(version)
        columns = [pa.array(column) for column in zip(*rows, strict=True)]
        more = ROWS // TABLES - len(rows)
        picked = np.random.default_rng(1).integers(len(rows), size=more)
        others = [np.arange(FIRST_OTHER, FIRST_OTHER + more), *(one.take(picked) for one in columns[1:])]
        order = np.random.default_rng(2).permutation(len(rows) + more)
        arrays = [
            pa.concat_arrays([one.cast(field.type), pa.array(other).cast(field.type)]).take(order)
            for one, other, field in zip(columns, others, schema, strict=False)
        ]
        arrays.append(pa.nulls(len(order), schema.field(len(columns)).type))
        made = pa.Table.from_arrays(arrays, schema=schema)
        write_deltalake(
            str(self._directory / "before" / SCHEMA / version.name), made, target_file_size=FILE_BYTES
        )

    def fill(self) -> None:
        Place(self._settings.warehouse).clear()
        shutil.copytree(self._directory / "before", self._settings.warehouse)
        jvm: Any = self._spark.sparkContext._jvm
        jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()

    def _path(self, table: str) -> str:
        return f"{self._settings.warehouse}/{SCHEMA}/{table}"

    def of_effects(self) -> float:
        """Seconds of the way from the archive."""
        self.fill()
        began_s = time.monotonic()
        self._mirrors.merge(self._reading, LAST_TS)
        return time.monotonic() - began_s

    def of_parquet(self) -> float:
        """Seconds of the MERGEs alone, of rows that lie there."""
        frame = by_bucket(self._spark, self._reading, 4).mapInArrow(folded, FOLDED).persist()
        for version in self.rows.versions:
            path = self._directory / "ready" / version.name
            if not path.exists():
                number = self._definitions.number_of(self._definitions.of_upstream(version))
                decoded(frame, number, self._definitions).write.parquet(str(path))
        frame.unpersist()
        self.fill()
        began_s = time.monotonic()
        for version in self.rows.versions:
            ready = self._spark.read.parquet(str(self._directory / "ready" / version.name))
            self._mirrors.merge_rows(ready, version, LAST_TS)
        return time.monotonic() - began_s

    def check(self) -> None:
        for version, rows in zip(self.rows.versions, self.rows.tables, strict=True):
            there = DeltaTable(self._path(version.name)).to_pyarrow_table(columns=["id", "k", "c", "pad"])
            assert there.num_rows == ROWS // TABLES, version.name
            there = there.filter(pc.less(there.column("id"), FIRST_OTHER))
            found = sorted(zip(*(column.to_pylist() for column in there.columns), strict=True))
            assert found == sorted(rows.values()), version.name


def main(conf: str) -> None:
    with tempfile.TemporaryDirectory() as directory:
        bench = Bench(Path(directory), json.loads(conf))
        times = []
        for _ in range(ROUNDS):
            round_s = []
            for way in (bench.of_effects, bench.of_parquet):
                round_s.append(way())
                bench.check()
            times.append(round_s)
        ours, ready = (min(column) for column in zip(*times, strict=True))
        print(json.dumps([bench.rows.changes, ours, ready]))


def run(settings: Settings) -> Result:
    conf = {
        "spark.driver.memory": "2g",
        "spark.sql.shuffle.partitions": "4",
        **spark_versions.jars("4.1", *DELTA_CONNECTOR.packages),
    }
    argv = [sys.executable, "-m", "tests.benchmarks.spark.mirror", json.dumps(conf)]
    done = subprocess.run(
        argv, env=spark_versions.environ("4.1"), cwd=ROOT, text=True, stdout=subprocess.PIPE, check=True
    )
    changes, ours, ready = json.loads(done.stdout.splitlines()[-1])
    return Result(
        name="spark.mirror",
        value=changes / ours,
        unit="changes/s",
        compared_to=f"MERGE of ready Parquet, {changes / ready:,.0f}/s",
        ratio=ready / ours,
        note=f"{changes:,} changes, ten of a key, into 4 Delta tables of {ROWS:,} rows, {ours:.1f} s and"
        f" {ready:.1f} s",
    )


if __name__ == "__main__":
    main(sys.argv[1])
