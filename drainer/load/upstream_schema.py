"""Upstream schema of a load: the tracked schema at T, where the history is all that knows it, too.

Drives  the upstream's history
In      T; which schema version the history had before T was drawn
Out     the tracker as a Drainer has it that begins after T
Why     jobs that a program wrote itself (`Publisher.ddl`) do not say when they were finished. Those that were
        in the history before T was drawn committed before T; those that say when are compared with T.
        Versions rise with commit_ts, so the highest one that is certain says where T is
Never   misses a change under way: it is committed in the history only after its commit_ts was drawn, so the
        history is asked again at the end of the load (`is_still`)
Tests   tests/drainer/load/test_load.py
"""

from __future__ import annotations

from common import ddl_job
from common.upstream_port import SchemaHistory
from drainer.schema.tracker import SchemaTracker
from drainer.schema.upstream_schema import read_at, read_whole


async def newest_version(history: SchemaHistory, *, finished_ts: int | None = None) -> int:
    """The highest schema version of all jobs, or of those that say that they were finished by then; 0: none
    was."""
    newest = 0
    async for page in history.pages():
        for source in page:
            job = ddl_job.head(source) or ddl_job.parse(source)
            if finished_ts is None or 0 < job.finished_ts <= finished_ts:
                newest = max(newest, job.effective_version)
    return newest


async def schema_at(history: SchemaHistory, ts: int, version_before: int) -> SchemaTracker:
    """As it was at `ts`. `version_before`: `newest_version` as it was before `ts` was drawn."""
    if (found := await read_at(history, ts)) is not None:
        return found
    version = max(version_before, await newest_version(history, finished_ts=ts))
    return await read_whole(history, version, ts)


async def is_still(history: SchemaHistory, tracker: SchemaTracker, ts: int) -> bool:
    """Whether what the history says now of `ts` is what the tracker has. Called so long after `ts` was drawn
    that no change with an earlier commit_ts can be under way any more."""
    return await newest_version(history, finished_ts=ts) <= tracker.version
