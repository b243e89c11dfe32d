"""The apply side on recorded TiDB binlogs and a real MariaDB: contents, crashes, DDL, take-over."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import gzip
import json
import random
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from common import binlog
from common.clock import SystemClock
from common.errors import Corruption, DownstreamError
from common.rowcodec.encoder import RowEncoder, prewrite_value
from common.table_info import FLAG_NOT_NULL, FLAG_PRIMARY, LONG, VARCHAR, Column, FieldType, TableInfo
from common.wire import binlog_pb2
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
from drainer.txn import INSERT
from pumpclient import create_table_job

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
        self.start: Start = self.store.start(lanes, 0, recording.entries[-1].commit_ts)
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

    async def run(
        self, *, size: int = 50, seconds: float | None = None, dies_at_ts: int | None = None
    ) -> bool:
        """Apply everything and stop gracefully, or stop dead after `seconds` or once `dies_at_ts` is applied.

        True if it got through.
        """
        tasks = [
            asyncio.create_task(self.applier.run(self.batches(size))),
            asyncio.create_task(self.applier.watch()),
            asyncio.create_task(self.applier.keep_checkpoint()),
        ]
        if dies_at_ts is not None:
            tasks.append(asyncio.create_task(self._reached(dies_at_ts)))
        done, _ = await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        ended = False
        try:
            for task in done:
                task.result()
            if tasks[0] in done and dies_at_ts is None:
                ended = await self.applier.stop(60.0)
                assert ended
            return ended
        finally:
            if not ended:
                self.die()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _reached(self, ts: int) -> None:
        while self.applier.resolved_ts < ts:
            await asyncio.sleep(0)

    def die(self) -> None:
        """What kill -9 leaves: lanes end with whatever they had in hand uncommitted."""
        for lane in self.applier._lanes._lanes:
            lane.abandon()
            connection = lane._connection
            if connection is not None:
                connection._force_close()
        for lane in self.applier._lanes._lanes:
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


def crafted(recording: Recording, after: int, value: bytes) -> Recording:
    """The recording up to its `after`-th row transaction, then one whose prewrite value is `value`."""
    rows = [index for index, entry in enumerate(recording.entries) if entry.job is None]
    kept = recording.entries[: rows[after] + 1]
    last_ts = kept[-1].commit_ts
    payload = binlog.join(
        binlog.prewrite(last_ts + 1, b"k", value), binlog.commit(last_ts + 1, last_ts + 2, b"k")
    )
    return Recording(recording.cluster_id, recording.jobs, [*kept, Merged(last_ts + 2, payload)])


def stored_ts(target: mysql.Target) -> int:
    connection = mysql.connect(target)
    ((text,),) = mysql.rows(connection, b"SELECT checkPoint FROM tidb_binlog.checkpoint")
    connection.close()
    return int(json.loads(text)["commitTS"])


UNKNOWN_TABLE = prewrite_value(48, [(999_999, [INSERT], [bytes.fromhex("08020804020261")])])


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (b"\x12\x7f\x08", "commit_ts"),
        (UNKNOWN_TABLE, "table id 999999"),
    ],
)
async def test_bad_binlogs_stop_before_them(target: mysql.Target, value: bytes, text: str) -> None:
    recording = crafted(read("basic"), 3, value)
    with pytest.raises(Corruption, match=text) as raised:
        await Life(recording, target).run(size=1)
    assert raised.value.exit_code == 6
    assert stored_ts(target) < recording.entries[-1].commit_ts


async def test_a_row_that_cannot_be_decoded_names_its_column(target: mysql.Target) -> None:
    recording = read("basic")
    (at,) = [i for i, entry in enumerate(recording.entries) if entry.job is None][:1]
    message = binlog.parse(recording.entries[at].payload)
    value = binlog_pb2.PrewriteValue.FromString(message.prewrite_value)
    mutation = value.mutations[0]
    mutation.inserted_rows[0] = mutation.inserted_rows[0][:-1]
    message.prewrite_value = value.SerializeToString()
    # The last of the recording: an image that a later one replaces is never rendered.
    recording.entries[at:] = [Merged(recording.entries[at].commit_ts, message.SerializeToString())]
    with pytest.raises(Corruption, match="column") as raised:
        await Life(recording, target).run(size=1)
    assert "customer" in str(raised.value)
    assert stored_ts(target) < recording.entries[at].commit_ts


async def test_half_a_transaction_is_never_applied(target: mysql.Target) -> None:
    """The second row's key cannot be read: the first row, in a table without key, must not be there."""
    keyless = TableInfo(7, "t", (column(1, "a", LONG), column(2, "b", VARCHAR)))
    keyed = TableInfo(8, "k", (column(1, "id", LONG, FLAG_NOT_NULL | FLAG_PRIMARY),), pk_is_handle=True)
    jobs = [create_job(keyless), create_job(keyed, job_id=10, schema_version=2)]
    good = RowEncoder(keyless).insert({"a": 1, "b": "x"}, rowid=1)
    value = prewrite_value(2, [(7, [INSERT], [good]), (8, [INSERT], [b"\x08"])])
    payload = binlog.join(binlog.prewrite(2000, b"k", value), binlog.commit(2000, 2001, b"k"))
    entries = [created(job, ts) for job, ts in zip(jobs, (900, 950), strict=True)]
    recording = Recording(4711, [json.dumps(job).encode() for job in jobs], [*entries, Merged(2001, payload)])
    life = Life(recording, target)
    run = asyncio.create_task(life.applier.run(life.batches(50)))
    with pytest.raises(Corruption):
        await run
    assert await life.applier.stop(10.0)
    connection = mysql.connect(target)
    assert mysql.rows(connection, b"SELECT * FROM d.t") == []
    connection.close()
    assert stored_ts(target) < 2001


async def test_a_refused_ddl_stops_and_goes_on_when_an_equivalent_was_run(target: mysql.Target) -> None:
    recording = read("ddl-flashback-db")
    with pytest.raises(DownstreamError, match="FLASHBACK DATABASE") as raised:
        await Life(recording, target).run()
    assert raised.value.exit_code == 7
    refused = next(e for e in recording.entries if e.job and e.job["query"].startswith("FLASHBACK"))
    assert stored_ts(target) < refused.commit_ts
    with pytest.raises(DownstreamError, match="FLASHBACK DATABASE"):
        await Life(recording, target).run()
    connection = mysql.connect(target)
    mysql.run(connection, b"CREATE DATABASE d3new")
    connection.close()
    life = Life(recording, target)
    assert life.start.intent is not None
    with contextlib.suppress(DownstreamError):  # the table inside is missing: its rows stop it next
        await life.run()
    assert stored_ts(target) >= refused.commit_ts


async def test_keyless_rows_are_neither_lost_nor_doubled(target: mysql.Target) -> None:
    """60,000 rows into a table without a key, ended dead ten times at random moments."""
    table = TableInfo(7, "t", (column(1, "a", LONG), column(2, "b", VARCHAR)))
    encoder = RowEncoder(table)
    job = create_job(table)
    entries = [created(job)]
    for number in range(300):
        rows = [
            encoder.insert({"a": number * 200 + i, "b": "x" * 40}, rowid=number * 200 + i + 1)
            for i in range(200)
        ]
        value = prewrite_value(1, [(7, [INSERT] * 200, rows)])
        ts = 1000 + 10 * number
        payload = binlog.join(binlog.prewrite(ts, b"k", value), binlog.commit(ts, ts + 1, b"k"))
        entries.append(Merged(ts + 1, payload))
    recording = Recording(4711, [json.dumps(job).encode()], entries)
    rng = random.Random(1)
    for dies_at_ts in sorted(rng.sample(range(1000, 4000), 10)):
        life = Life(recording, target, batch_rows=400)
        assert not await life.run(size=5, dies_at_ts=dies_at_ts)
    assert await Life(recording, target).run()
    connection = mysql.connect(target)
    ((count, distinct),) = mysql.rows(connection, b"SELECT COUNT(*), COUNT(DISTINCT a) FROM d.t")
    connection.close()
    assert (count, distinct) == (60_000, 60_000)


def column(number: int, name: str, tp: int, flag: int = 0) -> Column:
    charset = "utf8mb4" if tp == VARCHAR else "binary"
    kind = FieldType(tp, flag, 64, charset=charset, collate=f"{charset}_bin")
    return Column(number, name, number - 1, kind)


def create_job(table: TableInfo, *, job_id: int = 9, schema_version: int = 1) -> dict[str, Any]:
    """The DDL job of `CREATE TABLE` in database d."""
    job: dict[str, Any] = json.loads(create_table_job(job_id, 5, "d", table, schema_version=schema_version))
    parts = [f"`{each.name}` {'INT' if each.type.tp == LONG else 'VARCHAR(64)'}" for each in table.columns]
    job["query"] = f"CREATE TABLE `{table.name}` ({', '.join(parts)})"
    return job


def created(job: dict[str, Any], commit_ts: int = 900) -> Merged:
    """The DDL binlog of a job."""
    prewrite = binlog.prewrite_ddl(commit_ts - 10, b"m", job["query"], job_id=job["id"])
    return Merged(commit_ts, binlog.join(prewrite, binlog.commit(commit_ts - 10, commit_ts, b"m")), job)
