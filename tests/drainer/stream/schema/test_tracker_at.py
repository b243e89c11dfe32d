"""The schema at a timestamp, from the meta keys, is what the binlogs up to there tell: every scenario."""

from __future__ import annotations

import json
from typing import Any

import pytest

from drainer.stream.rules.table_rules import TableFilter
from drainer.stream.schema.tracker import SchemaTracker
from drainer.stream.schema.upstream_schema import read_at
from drainer.stream.translate.translator import Translator
from drainer.txn import DELETE, INSERT, UPDATE, Ddl
from tests.drainer.support import recorded
from tests.fakes.cluster import FakeCluster
from tests.fakes.memory import Memory
from tests.fakes.meta import Kind, committed_jobs, load_history
from tidb_binlog.ddl_job import ActionType, DdlJob
from tidb_binlog.rowcodec.plan import compile_table
from tidb_binlog.wire import binlog_pb2


def loaded(scenario: str, kind: Kind | None = None) -> Memory:
    cluster = FakeCluster()
    load_history(cluster, scenario, kind)
    return Memory(cluster)


class Contents:
    """What a tracker knows of tables and databases; a definition is a number, the same for the same JSON."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._known: dict[Any, tuple[int, Any]] = {}

    def of(self, tracker: SchemaTracker) -> Any:
        catalog = tracker._catalog
        tables = {
            table.id: (table.schema_id, *table.key, self._number(table.current.source))
            for table in catalog.tables.values()
        }
        databases = {
            number: one for number, one in catalog.databases.items() if number != 1
        }  # no job made it
        return tables, databases, {key: catalog.table_named(*key).id for key in tracker.names()}  # type: ignore[union-attr]

    def _number(self, source: Any) -> int:
        key = id(source) if isinstance(source, dict) else source
        known = self._known.get(key)
        if known is None:
            document = source if isinstance(source, dict) else json.loads(source)
            number = self._numbers.setdefault(json.dumps(document, sort_keys=True), len(self._numbers))
            known = self._known[key] = number, source  # kept, so that its id stays its own
        return known[0]


@pytest.mark.parametrize("scenario", recorded.SCENARIOS)
async def test_the_schema_at_every_moment_is_what_the_binlogs_up_to_it_tell(scenario: str) -> None:
    """At every commit of every step of every job, so also in the middle of jobs."""
    memory, contents = loaded(scenario), Contents()
    history = memory.history()
    jobs = [(DdlJob.from_document(job), ts) for job, ts in committed_jobs(scenario)]
    told = SchemaTracker()
    expected = contents.of(told)
    done = 0
    for ts in _moments(memory, jobs):
        before = done
        while done < len(jobs) and jobs[done][1] <= ts:
            told.apply(jobs[done][0])
            done += 1
        if done != before:
            expected = contents.of(told)
        tracker = await read_at(history, ts)
        assert tracker is not None
        assert contents.of(tracker) == expected, f"at {ts}, after job {done and jobs[done - 1][0].id}"
        waiting = [job.id for job, _ in jobs[done:] if job.took_effect]
        following = next((job for job, _ in jobs[done:] if job.took_effect), None)
        assert tracker.version >= told.version
        if following is not None and following.action != ActionType.MULTI_SCHEMA_CHANGE:
            assert tracker.version < following.schema_version
        assert sorted(tracker._pending) == sorted(waiting), "what comes later is waited for, nothing else"
        assert all(tracker.is_truncated(number) for number in told._catalog.truncated), "late rows"
    assert done == len(jobs)
    assert memory.held[-1] == (ts, 0), "the hold is let go"


def _moments(memory: Memory, jobs: list[tuple[DdlJob, int]]) -> list[int]:
    """When something was committed; fewer while the cluster was founded, and of very many a fifth."""
    rows = memory.cluster.mvcc.rows.values()
    found = sorted({write.commit_ts for row in rows for write in row.writes})
    begin = jobs[40][1]
    early, late = [ts for ts in found if ts < begin], [ts for ts in found if ts >= begin]
    return [*early[::10], *late[:: 5 if len(late) > 300 else 1], found[-1]]


@pytest.mark.parametrize("scenario", recorded.SCENARIOS)
async def test_rows_behind_any_ddl_and_any_of_its_steps_decode_the_same(scenario: str) -> None:
    stream = recorded.merged(scenario)
    whole = SchemaTracker.from_history(recorded.jobs(scenario))
    translator = Translator(whole, TableFilter())
    expected = [_rows(translator.translate(entry)) for entry in stream]
    history = loaded(scenario).history()
    cuts = [index for index, entry in enumerate(stream) if entry.job is not None]
    cuts += [index + 1 for index in cuts]
    cuts += [index for index, entry in enumerate(stream) if _is_delete_only(entry.payload)]
    contents = Contents()
    for index in sorted(cuts)[84 :: max(1, len(cuts) // 8)]:
        tracker = await read_at(history, stream[index - 1].commit_ts)
        assert tracker is not None
        translator = Translator(tracker, TableFilter())
        for place in range(index, len(stream)):
            assert _rows(translator.translate(stream[place])) == expected[place]
        assert contents.of(tracker) == contents.of(whole)


def _is_delete_only(payload: bytes) -> bool:
    return binlog_pb2.Binlog.FromString(payload).ddl_schema_state == 1


_plans: dict[Any, Any] = {}


def _rows(item: Any) -> Any:
    """Names and decoded rows."""
    if isinstance(item, Ddl):
        return item.job_id, bool(item.skip), item.tables, item.schema, item.before, item.after
    found = []
    for one in item.tables:
        plan = _plans.get(one.table.info)
        if plan is None:
            plan = _plans[one.table.info] = compile_table(one.table.info)
        decode = {INSERT: plan.decode_insert, UPDATE: plan.decode_update, DELETE: plan.decode_delete}
        rows = [decode[kind](row) for kind, row in zip(one.kinds, one.rows, strict=True)]
        found.append((one.table.schema, one.table.name, one.kinds, rows))
    return found
