"""Audit as a whole: clean archives equal their databases; faults are found in chains and contents, by key."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from common.wire import pb_binlog_pb2 as pb
from drainer.sink import mysql
from drainer.spark.audit import report
from drainer.spark.audit.auditing import Outcome, audit
from drainer.spark.audit.chains import BROKEN, LOST
from drainer.spark.audit.finding import CHAINS, CONTENTS, COVERAGE, exit_code
from tests.drainer import apply_life
from tests.spark.audit_world import FileRecord, files, records, rewrite, without_indexes, write_archive

WHOLE = 8 << 20
NOW_S = 1_700_000_000.0


def applied(directory: Path, scenario: str, target: mysql.Target) -> Path:
    """The archive of a scenario, and a database that has it applied."""

    async def live() -> None:
        assert await apply_life.Life(apply_life.read(scenario), target).run()

    asyncio.run(live())
    return write_archive(directory, scenario, WHOLE)


def told(outcome: Outcome, check: str) -> set[tuple[str, str, str]]:
    return {(one.kind, one.place, one.key) for one in outcome.findings[check].listed}


@pytest.mark.parametrize("scenario", ["types", "ddl", "keys"])
def test_a_clean_archive_equals_its_database(
    spark: SparkSession, target: mysql.Target, tmp_path: Path, scenario: str
) -> None:
    archive = applied(tmp_path, scenario, target)
    outcome = audit(spark, str(archive), target=target, chunks=8)
    assert [one for found in outcome.findings.values() for one in found.listed] == []
    assert exit_code(outcome.findings) == 0
    assert outcome.chains is not None
    assert outcome.chains.links > 50
    assert outcome.contents is not None
    assert all(table.expected_sum == table.actual_sum for table in outcome.contents.tables)
    equal = sum(table.states.get("equal", 0) for table in outcome.contents.tables)
    assert equal > 90


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


def test_faults_are_found_by_key(spark: SparkSession, target: mysql.Target, tmp_path: Path) -> None:
    archive = applied(tmp_path, "multi-pump", target)
    without_indexes(archive)
    (file,) = files(archive)
    found = records(file)
    places = [n for n, one in enumerate(found) if updates(one.message)]
    dropped, changed = places[10], places[60]
    rewrite(
        file,
        lambda all_of_them: [
            altered(one) if n == changed else one for n, one in enumerate(all_of_them) if n != dropped
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
    outcome = audit(spark, str(archive), target=target, chunks=8)
    assert told(outcome, COVERAGE) == set()
    assert {kind for kind, _, _ in told(outcome, CHAINS)} <= {BROKEN, LOST}
    contents = told(outcome, CONTENTS)
    assert ("row is missing", "mp.t", f"id={first}") in contents
    assert ("row too many", "mp.t", f"id={last + 1000000}") in contents
    assert ("row differs", "mp.t", f"id={last}") in contents
    assert exit_code(outcome.findings) == 16 + 2 + 4
    page = report.html(outcome, NOW_S)
    assert "<script" not in page
    assert f"id={last + 1000000}" in page
    document = json.loads(json.dumps(report.document(outcome, NOW_S)))
    assert document["exit_code"] == 22
