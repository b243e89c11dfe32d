"""Where the schema of a start comes from: the snapshot, what the history has since, or the whole history."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from drainer.app.load_schema import TrackedSchema, open_schema
from drainer.checkpoint.resume import Start
from drainer.checkpoint.schema_snapshot import LOOK_BACK, StoredSchema
from drainer.checkpoint.store import CheckpointStore
from drainer.checkpoint.value import Checkpoint
from drainer.mysql.connection import Target, connect
from drainer.mysql.literal.quoting import string_literal
from drainer.stream.schema.tracker import SchemaTracker
from tests.drainer.support import recorded
from tests.fakes.cluster import FakeCluster
from tests.fakes.memory import Memory
from tests.fakes.meta import committed_jobs, load_history
from tidb_binlog import ddl_job
from tidb_binlog.errors import Unavailable
from tidb_binlog.upstream_port import SchemaAt, UnderWay

CLUSTER = 7710435644538274663
NOW = 480_000_000_000_000_000
SCENARIO = "ddl"

pytestmark = pytest.mark.integration


class History:
    """Jobs in memory, and from where on they were asked for."""

    def __init__(self, jobs: list[bytes]) -> None:
        self.contents = jobs
        self.asked: list[int] = []

    async def job(self, job_id: int) -> bytes | None:
        return next((job for job in self.contents if ddl_job.parse(job).id == job_id), None)

    async def pages(self, after_id: int = 0) -> AsyncIterator[list[bytes]]:
        self.asked.append(after_id)
        found = [job for job in self.contents if ddl_job.parse(job).id > after_id]
        for at in range(0, len(found), 7):
            yield found[at : at + 7]

    async def under_way(self, *, table_id: int = 0, job_id: int = 0) -> UnderWay | None:
        return None

    async def schema_at(self, ts: int) -> SchemaAt | None:
        return None


def finished() -> list[ddl_job.DdlJob]:
    jobs = [ddl_job.parse(job) for job in recorded.jobs(SCENARIO)]
    return sorted((job for job in jobs if job.took_effect), key=lambda job: job.schema_version)


async def opened(target: Target, history: History) -> tuple[CheckpointStore, Start, TrackedSchema]:
    store = CheckpointStore(target, CLUSTER)
    start = store.start(2, 1, NOW)

    async def load() -> StoredSchema | None:
        return store.load_schema(start)

    return store, start, await open_schema(store, start, start.floor_ts, history, load)


def contents(tracker: SchemaTracker) -> dict[str, Any]:
    """Everything that it would store, without the order in which jobs came."""
    rows = {row["key"]: row["value"] for row in tracker.dump()}
    return {name: sorted(value) if isinstance(value, list) else value for name, value in rows.items()}


async def test_a_snapshot_and_the_rest_of_the_history_make_what_the_whole_history_makes(
    target: Target,
) -> None:
    jobs = finished()
    raw = [json.dumps(job.document).encode() for job in jobs]
    middle = len(jobs) // 2
    history = History(raw[:middle])
    store, _, schema = await opened(target, history)
    for job in jobs[:middle]:  # as their binlogs come
        schema.tracker.apply(job)
        schema.keep(job.finished_ts)
    version = jobs[middle - 1].schema_version
    store.end_ddl(Checkpoint(jobs[middle - 1].finished_ts, False, version, store.epoch))
    store.close()

    history.contents = raw
    store, _, schema = await opened(target, history)
    assert history.asked == [0, max(0, max(job.id for job in jobs[:middle]) - LOOK_BACK)]
    assert schema.tracker.version == version, "what is after the checkpoint waits for its binlog"
    expected = SchemaTracker.from_history(raw[:middle], schema_version=version)
    assert contents(schema.tracker) == contents(expected)
    for job in jobs[middle:]:
        schema.tracker.apply(job)
        schema.keep(job.finished_ts)
    store.settle(Checkpoint(jobs[-1].finished_ts, True, jobs[-1].schema_version, store.epoch))
    store.close()

    store, _, schema = await opened(target, History([]))
    whole = SchemaTracker.from_history(raw, schema_version=jobs[-1].schema_version)
    assert schema.tracker.version == whole.version
    assert contents(schema.tracker) == contents(whole)
    store.close()


async def test_a_foreign_checkpoint_takes_the_whole_history_up_to_it(target: Target) -> None:
    jobs = finished()
    history = History([json.dumps(job.document).encode() for job in jobs])
    store, _, schema = await opened(target, history)
    for job in jobs:
        schema.tracker.apply(job)
        schema.keep(job.finished_ts)
    store.settle(Checkpoint(jobs[-1].finished_ts, True, jobs[-1].schema_version, store.epoch))
    store.close()
    reached = jobs[3]
    connection = connect(target)
    row = Checkpoint(reached.finished_ts, False, reached.schema_version).to_json()
    connection.run(b"UPDATE tidb_binlog.checkpoint SET checkPoint=" + string_literal(row))
    connection.commit()
    connection.close()
    store, start, schema = await opened(target, history)
    assert start.foreign
    assert history.asked == [0, 0]
    assert schema.tracker.version == reached.schema_version
    store.close()


async def test_the_first_snapshot_is_stored_with_the_first_checkpoint(target: Target) -> None:
    jobs = finished()
    raw = [json.dumps(job.document).encode() for job in jobs]
    store = CheckpointStore(target, CLUSTER)
    store.start(2, 1, NOW)
    store.save(Checkpoint(jobs[-1].finished_ts, False, jobs[-1].schema_version, store.epoch))
    store.close()
    store, start, schema = await opened(target, History(raw))
    assert store.load_schema(start) is None
    store.save(Checkpoint(jobs[-1].finished_ts, False, jobs[-1].schema_version, store.epoch))
    store.close()
    store, start, again = await opened(target, History([]))
    assert contents(again.tracker) == contents(schema.tracker)
    store.close()


async def test_without_a_stored_schema_it_is_that_of_the_moment(
    target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the upstream, and where that cannot tell or must not be asked, of the whole history."""
    cluster = FakeCluster()
    load_history(cluster, SCENARIO)
    job, commit_ts = committed_jobs(SCENARIO)[100]
    store = CheckpointStore(target, CLUSTER)
    start = store.start(2, commit_ts, NOW)
    memory = Memory(cluster)

    async def load() -> None:
        return None

    async def read(**options: bool) -> tuple[SchemaTracker, bool]:
        memory.held.clear()
        schema = await open_schema(store, start, commit_ts, memory.history(), load, **options)
        return schema.tracker, bool(memory.held)

    by_moment, was_held = await read()
    assert was_held
    assert by_moment.version == job["binlog"]["SchemaVersion"]
    by_history, was_held = await read(from_snapshot=False)
    assert not was_held
    by_history.catch_up(commit_ts + 1000, job["binlog"]["SchemaVersion"])  # finished only after its binlog
    names = sorted(by_moment.names())
    assert names == sorted(by_history.names())
    memory.floor_ts = commit_ts + 1
    assert sorted((await read())[0].names()) == sorted((await read(from_snapshot=False))[0].names())
    memory.floor_ts = 0

    async def collected(tracker: SchemaTracker, schema: SchemaAt) -> None:
        raise Unavailable("collected while it was read")

    monkeypatch.setattr("drainer.stream.schema.upstream_schema._take", collected)
    assert sorted((await read())[0].names()) == sorted((await read(from_snapshot=False))[0].names())
    store.close()
