"""The apply side on recorded TiDB binlogs and a real MariaDB: contents, crashes, DDL, take-over."""

from __future__ import annotations

import asyncio
import base64
import gzip
import json
import random
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from common.clock import SystemClock
from deploy.playground.downstream import Downstream
from deploy.playground.limits import MARIADB
from deploy.playground.mariadb import MariaDbServer
from deploy.playground.scenario import load
from deploy.playground.verify import compare
from drainer.applier import Applier, ApplierSettings
from drainer.checkpoint import CheckpointStore, Start
from drainer.ddl_apply import DdlRunner
from drainer.lane import LaneSettings
from drainer.merger import Merged, MergedBatch
from drainer.schema import SchemaTracker
from drainer.sink import mysql
from drainer.table_filter import TableFilter
from drainer.translator import Translator

CORPUS = Path(__file__).resolve().parents[1] / "golden" / "corpus"
FINISHED = ("basic", "types", "keys", "txn", "orphans", "multi-pump")

pytestmark = pytest.mark.integration


@dataclass
class Recording:
    """What a pump served, ready for the applier."""

    cluster_id: int
    jobs: list[bytes]
    entries: list[Merged]

    def since(self, after_ts: int) -> list[Merged]:
        return [entry for entry in self.entries if entry.commit_ts > after_ts]


def read(name: str) -> Recording:
    directory = CORPUS / name
    jobs = {}
    with gzip.open(directory / "ddl_jobs.jsonl.gz") as lines:
        for line in lines:
            document = json.loads(line)
            jobs[document["id"]] = base64.b64decode(document["raw"])
    entries = []
    for path in directory.glob("pulled*.jsonl.gz"):
        with gzip.open(path) as lines:
            for line in lines:
                document = json.loads(line)
                job = jobs.get(document["ddl_job_id"]) if document["ddl_job_id"] else None
                entries.append(
                    Merged(
                        document["commit_ts"],
                        base64.b64decode(document["payload"]),
                        json.loads(job) if job else None,
                    )
                )
    cluster_id = int(json.loads((directory / "meta.json").read_text())["cluster_id"])
    return Recording(cluster_id, list(jobs.values()), sorted(entries, key=lambda entry: entry.commit_ts))


@pytest.fixture
def target(mariadb: MariaDbServer) -> Iterator[mysql.Target]:
    target = mysql.Target(mariadb.host, mariadb.port, mariadb.user, mariadb.password)
    clean(target)
    yield target
    clean(target)


def clean(target: mysql.Target) -> None:
    connection = mysql.connect(target)
    system = {"information_schema", "performance_schema", "mysql", "sys"}
    for (name,) in mysql.rows(connection, b"SHOW DATABASES"):
        if name not in system:
            mysql.run(connection, b"DROP DATABASE " + mysql.quote(name))
    connection.close()


class Life:
    """One run of the apply side, from taking over the checkpoint to its end."""

    def __init__(
        self, recording: Recording, target: mysql.Target, lanes: int = 2, batch_rows: int = 1600
    ) -> None:
        self.recording = recording
        self.store = CheckpointStore(target, recording.cluster_id)
        self.start: Start = self.store.start(lanes, 0, 0)
        version = self.start.checkpoint.schema_version if self.start.checkpoint else 0
        tracker = SchemaTracker.from_history(recording.jobs, schema_version=version)
        self.applier = Applier(
            self.start,
            self.store,
            target,
            Translator(tracker, TableFilter()),
            DdlRunner(target, tracker),
            ApplierSettings(LaneSettings(batch_rows=batch_rows), checkpoint_interval_s=0.05),
            SystemClock(),
        )

    async def batches(self, size: int) -> AsyncIterator[MergedBatch]:
        entries = self.recording.since(self.applier.start_ts)
        for at in range(0, len(entries), size):
            piece = entries[at : at + size]
            yield MergedBatch(piece, piece[-1].commit_ts)

    async def run(self, *, size: int = 50, seconds: float | None = None) -> bool:
        """Apply everything and stop gracefully, or stop dead after `seconds`. True if it got through."""
        tasks = [
            asyncio.create_task(self.applier.run(self.batches(size))),
            asyncio.create_task(self.applier.watch()),
            asyncio.create_task(self.applier.keep_checkpoint()),
        ]
        done, _ = await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        ended = False
        try:
            for task in done:
                task.result()
            if tasks[0] in done:
                ended = await self.applier.stop(60.0)
                assert ended
            return ended
        finally:
            if not ended:
                self.die()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def die(self) -> None:
        """What kill -9 leaves: lanes end with whatever they had in hand uncommitted."""
        for lane in self.applier._lanes:
            lane.abandon()
            connection = lane._connection
            if connection is not None:
                connection._force_close()
        for lane in self.applier._lanes:
            lane.join(10)
        self.store.close()


def differences(name: str, target: mysql.Target) -> list[str]:
    connection = mysql.connect(target)
    try:
        scenario = load(CORPUS / name)
        actual = Downstream(connection).contents(scenario.expected)
        return [str(found) for found in compare(scenario.expected, actual, MARIADB).differences]
    finally:
        connection.close()


@pytest.mark.parametrize("name", FINISHED)
async def test_contents_equal_tidb(name: str, target: mysql.Target) -> None:
    assert await Life(read(name), target).run()
    assert differences(name, target) == []


@pytest.mark.parametrize("name", ["basic", "keys"])
async def test_contents_equal_after_crashes_at_random_moments(name: str, target: mysql.Target) -> None:
    recording = read(name)
    rng = random.Random(name)
    for _ in range(12):
        if await Life(recording, target, batch_rows=3).run(size=3, seconds=rng.uniform(0.0, 0.4)):
            break
    assert await Life(recording, target, lanes=3).run()
    assert differences(name, target) == []


async def test_checkpoint_row_is_what_a_go_drainer_leaves(target: mysql.Target) -> None:
    recording = read("basic")
    await Life(recording, target).run()
    connection = mysql.connect(target)
    ((cluster_id, text),) = mysql.rows(connection, b"SELECT * FROM tidb_binlog.checkpoint")
    connection.close()
    recorded = json.loads((CORPUS / "basic" / "checkpoint.json").read_text())
    (row,) = recorded["mysql_checkpoint_rows_after_stop"]
    ours: dict[str, Any] = json.loads(text)
    theirs: dict[str, Any] = json.loads(row["checkPoint"])
    assert str(cluster_id) == row["clusterID"]
    assert list(ours)[: len(theirs)] == list(theirs)
    assert ours["consistent"] is theirs["consistent"] is True
    assert ours["schema-version"] == theirs["schema-version"]
    assert ours["commitTS"] == recording.entries[-1].commit_ts
