"""The schema of programs that publish, at T: every change with a commit_ts up to it, and none above."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from types import SimpleNamespace

import pytest

from drainer.points.load.upstream_schema import catalog_of, newest_version, published_at
from drainer.points.snapshot.sessions import SnapshotLost
from tidb_binlog.ddl_job import ActionType, DdlJob, database_info
from tidb_binlog.errors import ConfigError
from tidb_binlog.upstream_port import SchemaHistory

T = 500


class History:
    """Databases, one a job; what the fence lets in comes before it is read again."""

    def __init__(self) -> None:
        self.jobs: list[bytes] = []
        self.before_fence: Callable[[], None] = lambda: None

    def create(self, name: str, finished_ts: int) -> None:
        number = len(self.jobs) + 1
        info = database_info(number + 100, name)
        job = DdlJob(
            number,
            ActionType.CREATE_SCHEMA,
            schema_id=number + 100,
            schema_name=name,
            schema_version=number,
            db_info=info,
        )
        self.jobs.append(job.to_json(finished_ts))

    async def pages(self, after_id: int = 0) -> AsyncIterator[list[bytes]]:
        yield self.jobs[after_id:]

    async def fence(self) -> None:
        self.before_fence()

    async def schemas(self, version_before: int) -> set[str]:
        history: SchemaHistory = self  # type: ignore[assignment]
        tracker = await published_at(history, self, T, version_before)
        return {name for name in ("old", "late", "later", "known") if tracker.database_collation(name)}


@pytest.fixture
def history() -> History:
    made = History()
    made.create("old", 100)
    return made


async def test_what_was_under_way_when_t_was_drawn_is_seen_behind_the_fence(history: History) -> None:
    history.before_fence = lambda: history.create("late", T - 1)
    assert await history.schemas(1) == {"old", "late"}


async def test_what_was_committed_above_t_is_the_streams(history: History) -> None:
    history.create("later", T + 1)
    assert await history.schemas(1) == {"old"}


async def test_a_job_that_does_not_say_when_it_was_finished(history: History) -> None:
    history.create("known", 0)
    before = await newest_version(history)  # type: ignore[arg-type]
    assert await history.schemas(before) == {"old", "known"}
    history.create("below or above", 0)
    with pytest.raises(SnapshotLost, match="DDL job 3 was published while the timestamp was drawn"):
        await history.schemas(before)


def test_a_tidb_has_no_programs_that_publish() -> None:
    with pytest.raises(ConfigError, match="outcome-table") as raised:
        catalog_of(SimpleNamespace())  # type: ignore[arg-type]
    assert "pd-urls" in raised.value.hint
