"""Audit as a whole: clean archives equal their databases; faults are found in chains and contents, by key.

What Spark's executors find, this process finds too.
"""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet
from pyspark.sql import SparkSession

from binlog_playground.cluster.mariadb import MariaDbServer
from drainer.mysql.connection import Target
from drainer.points.image.manifest import Manifest
from drainer.spark import image
from drainer.spark.audit import report
from drainer.spark.audit.auditing import Outcome, audit
from drainer.spark.audit.checks.chain_rule import BROKEN, LOST
from drainer.spark.audit.checks.findings import CHAINS, CONTENTS, COVERAGE, exit_code
from drainer.spark.audit.document import document
from tests.drainer.support import apply_life
from tests.spark.support.audit_world import (
    FileRecord,
    files,
    records,
    rewrite,
    without_indexes,
    write_archive,
)
from tidb_binlog.wire import pb_binlog_pb2 as pb

WHOLE = 8 << 20
SCENARIOS = ("types", "ddl", "keys", "multi-pump")
CREATION = (b"CREATE DATABASE `mp`", b"use `mp`; CREATE TABLE `t`")
NOW_S = 1_700_000_000.0


@dataclass(frozen=True)
class World:
    """Several recorded scenarios in one archive, and a database that has them applied."""

    archive: Path
    target: Target


@pytest.fixture(scope="module")
def world(mariadb: MariaDbServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    target = Target(mariadb.host, mariadb.port, mariadb.user, mariadb.password, mariadb.socket)

    async def live() -> None:
        for scenario in SCENARIOS:
            assert await apply_life.Life(apply_life.read(scenario), target).run()

    asyncio.run(live())
    yield World(write_archive(tmp_path_factory.mktemp("archive"), SCENARIOS, WHOLE), target)
    apply_life.clean(target)


def agreed(spark: SparkSession, world: World, **more: Any) -> Outcome:
    """Of executors, after this process found the same."""
    there = audit(spark, str(world.archive), chunks=8, small_bytes=0, **more)
    here = audit(None, str(world.archive), chunks=8, **more)
    assert document(here, NOW_S) == document(there, NOW_S)
    return there


def findings_of(outcome: Outcome, check: str) -> set[tuple[str, str, str]]:
    return {(one.kind, one.place, one.key) for one in outcome.findings[check].listed}


def updates(message: pb.Binlog) -> list[pb.Event]:
    return [event for event in message.dml_data.events if event.tp == pb.Update]


def altered(record: FileRecord) -> FileRecord:
    """The same with another number in the image after its last update, in the last integer column."""
    message = record.message
    event = updates(message)[-1]
    for place in reversed(range(len(event.row))):
        column = pb.Column.FromString(event.row[place])
        if column.mysql_type in ("int", "bigint") and column.changed_value[:1] == b"\x08":
            other = b"\x08\x80\x02", b"\x08\x82\x02"
            column.changed_value = other[column.changed_value == other[0]]
            event.row[place] = column.SerializeToString()
            return FileRecord(message.SerializeToString())
    raise AssertionError("no integer column")


def edit(directory: Path, change: Callable[[pa.Table], pa.Table]) -> None:
    (path,) = (one for one in sorted(directory.glob("*.parquet")) if parquet.read_metadata(one).num_rows > 9)
    parquet.write_table(change(parquet.read_table(path)), path)
    made = Manifest.load(str(directory.parent))
    unchecked = tuple(replace(one, files={}) for one in made.tables)
    replace(made, tables=unchecked).store(str(directory.parent))


def three_faults(table: pa.Table) -> pa.Table:
    """The first row is lost, the second one altered, one is added."""
    values = table.column("v").to_pylist()
    values[1] = (values[1] or 0) + 1
    place = table.schema.get_field_index("v")
    other = table.set_column(
        place, table.schema.field(place), pa.array(values, table.schema.field(place).type)
    )
    added = other.slice(2, 1).set_column(
        0, table.schema.field(0), pa.array([1 << 30], table.schema.field(0).type)
    )
    return pa.concat_tables([other.slice(1), added])


@pytest.fixture(scope="module")
def made(spark: SparkSession, world: World, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An image of one table, twenty changes before the archive's end."""
    found = [one.message for one in records(files(world.archive)[0])]
    updated_ts = [message.commit_ts for message in found if updates(message)]
    directory = tmp_path_factory.mktemp("image")
    options = {"stop": str(updated_ts[-20]), "tables": "mp.t"}
    (table,) = image.make(spark, str(world.archive), str(directory), options).tables
    assert table.rows > 100
    return directory


def test_an_image_is_compared_with_the_archive_at_its_moment(
    spark: SparkSession, world: World, made: Path, tmp_path: Path
) -> None:
    other = shutil.copytree(made, tmp_path / "other")
    edit(other / "mp.t", three_faults)
    compared = agreed(spark, world, options={"tables": "mp.t"}, image=str(other))
    assert compared.at_ts == image.Manifest.load(str(made)).commit_ts < compared.figures.last_ts
    kinds = [kind for kind, _, _ in sorted(findings_of(compared, CONTENTS))]
    assert kinds == ["row differs", "row is missing", "row too many"]
    assert ("row too many", "mp.t", f"id={1 << 30}") in findings_of(compared, CONTENTS)
    assert compared.contents is not None
    assert compared.contents.tables[0].states["equal"] > 100
    assert "the image" in report.html(compared, NOW_S)


def test_faults_are_found_by_key_and_nothing_else(spark: SparkSession, world: World, made: Path) -> None:
    """In one database of many: in the others archive and database are equal. The archive does not have the
    creation of the table with the faults: an image is its beginning."""
    archive, target = world.archive, world.target
    without_indexes(archive)
    (file,) = files(archive)
    found = records(file)
    places = [
        n for n, one in enumerate(found) if {event.schema_name for event in updates(one.message)} == {"mp"}
    ]
    dropped, changed = places[10], places[60]
    rewrite(
        file,
        lambda all_of_them: [
            altered(one) if n == changed else one
            for n, one in enumerate(all_of_them)
            if n != dropped and not one.message.ddl_query.startswith(CREATION)
        ],
    )
    ((first, last),) = apply_life.run(target, "SELECT MIN(id), MAX(id) FROM mp.t")
    apply_life.run(
        target,
        f"DELETE FROM mp.t WHERE id={first}",
        f"INSERT INTO mp.t SELECT id + 1000000, v, s FROM mp.t WHERE id={last}",
        f"UPDATE mp.t SET v=v+1 WHERE id={last}",
        "SELECT 1",
    )
    outcome = agreed(spark, world, target=target, image=str(made))
    assert findings_of(outcome, COVERAGE) == set()
    assert {kind for kind, _, _ in findings_of(outcome, CHAINS)} <= {BROKEN, LOST}
    contents = findings_of(outcome, CONTENTS)
    assert ("row is missing", "mp.t", f"id={first}") in contents
    assert ("row too many", "mp.t", f"id={last + 1000000}") in contents
    assert ("row differs", "mp.t", f"id={last}") in contents
    assert {place for check in (CHAINS, CONTENTS) for _, place, _ in findings_of(outcome, check)} <= {
        "mp.t",
        "mp.u",
    }
    assert exit_code(outcome.findings) == 16 + 2 + 4
    assert outcome.chains is not None
    assert outcome.chains.links > 500
    assert outcome.contents is not None
    (table,) = (one for one in outcome.contents.tables if one.table == "mp.t")
    assert table.whole
    assert outcome.findings[CONTENTS].total == 3
    equal = [one for one in outcome.contents.tables if not one.table.startswith("mp.")]
    assert all(one.expected_sum == one.actual_sum for one in equal)
    assert len(equal) > 60
    page = report.html(outcome, NOW_S)
    assert "<script" not in page
    assert f"id={last + 1000000}" in page
    facts = json.loads(json.dumps(document(outcome, NOW_S)))
    assert facts["exit_code"] == 22
