"""A history read by its heads, page by page, gives the schema that the jobs give one after the other."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from drainer.stream.schema import history_reader as schema_reading
from drainer.stream.schema.history_reader import Until
from drainer.stream.schema.tracker import SchemaTracker
from tests.cases import case
from tests.drainer.stream.schema.upstream_jobs import Upstream, database, table, with_default
from tests.drainer.support import recorded
from tidb_binlog import ddl_job
from tidb_binlog.ddl_job import DdlJob
from tidb_binlog.errors import Corruption
from tidb_binlog.upstream_port import SchemaAt, SchemaPage

ALL = Until(1 << 60)


def texts(jobs: list[DdlJob]) -> list[bytes]:
    """As TiDB writes them: no spaces."""
    return [json.dumps(job.document, separators=(",", ":")).encode() for job in jobs]


def one_by_one(jobs: list[DdlJob]) -> SchemaTracker:
    tracker = SchemaTracker()
    for job in sorted(jobs, key=lambda job: (job.schema_version, job.id)):
        tracker.apply(job)
    return tracker


def read(pages: list[list[bytes]], until: Until = ALL) -> SchemaTracker:
    tracker = SchemaTracker()
    reading = tracker.read_history(until)
    for page in pages:
        reading.take(page)
    tracker.end_history(reading)
    return tracker


def contents(tracker: SchemaTracker) -> Any:
    rows = {row["key"]: row["value"] for row in tracker.dump()}
    return rows, tracker.version, sorted(tracker.names())


def in_pages(jobs: list[bytes], size: int) -> list[list[bytes]]:
    return [jobs[at : at + size] for at in range(0, len(jobs), size)]


def made_up(seed: int, count: int) -> list[DdlJob]:
    """Jobs on few names, each kind often; versions are those of the job ids."""
    up, pick = Upstream(), random.Random(seed)
    jobs = [up.create_database(1000, "a"), up.create_database(2000, "b")]
    living: dict[int, tuple[int, str, int]] = {}  # id -> (database, name, columns)
    for number in range(count):
        free = [name for name in "tuvw" if name not in {name for _, name, _ in living.values()}]
        kind = pick.choice(["create", "drop", "truncate", "add", "default", "rename", "failed", "view"])
        if kind in ("create", "view") or not living:
            if free:
                living[number + 10] = pick.choice((1000, 2000)), free[0], 1
                home, name, _ = living[number + 10]
                view = {"view": {}} if kind == "view" else {}
                jobs.append(up.job(21 if view else 3, schema_id=home, info=table(number + 10, name, **view)))
            continue
        table_id = pick.choice(list(living))
        home, name, columns = living[table_id]
        cols = [f"c{one}" for one in range(columns + 1)]
        if kind == "drop":
            del living[table_id]
            jobs.append(up.job(4, schema_id=home, table_id=table_id, info=table(table_id, name, *cols[1:])))
        elif kind == "truncate":
            del living[table_id]
            living[number + 10] = home, name, columns
            info = table(number + 10, name, *cols[1:])
            jobs.append(up.job(11, schema_id=home, table_id=table_id, info=info))
        elif kind == "rename":
            living[table_id] = 3000 - home, name, columns
            jobs.append(up.job(14, schema_id=3000 - home, info=table(table_id, name, *cols[1:])))
        elif kind == "failed":
            jobs.append(up.job(5, schema_id=home, info=table(table_id, name, *cols), state=3))
        else:
            living[table_id] = home, name, columns + 1
            info = table(table_id, name, *cols)
            if kind == "default":
                info = {**with_default(table_id, str(number), *cols), "name": info["name"]}
            jobs.append(up.job(5, schema_id=home, info=info))
    return jobs


@pytest.mark.parametrize("seed", range(60))
def test_pages_make_what_single_jobs_make(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Old defaults, names, dropped and truncated ids included; whatever the sizes of window and page are."""
    pick = random.Random(seed)
    monkeypatch.setattr(schema_reading, "WINDOW", pick.choice((1, 5, 1000)))
    monkeypatch.setattr(schema_reading, "FRESH_MAX", pick.choice((0, 3, 1000)))
    jobs = made_up(seed, 60)
    tracker = read(in_pages(texts(jobs), pick.choice((1, 7, 100))))
    assert contents(tracker) == contents(one_by_one(jobs))


def test_databases_without_a_job_are_called_as_the_tables_jobs_say() -> None:
    """Their CREATE DATABASE never came into the history."""
    for seed in range(20):
        for known in [0, 1]:
            with case(seed, known):
                jobs = [*made_up(seed, 60)[:known], *made_up(seed, 60)[2:]]
                names = {1000: "a", 2000: "b"}
                for job in jobs:
                    job.document["schema_name"] = names[job.schema_id]
                jobs = [DdlJob.from_document(job.document) for job in jobs]
                tracker = read(in_pages(texts(jobs), 7))
                assert contents(tracker) == contents(one_by_one(jobs))
                assert {schema for schema, _ in tracker.names()} <= {"a", "b"}


@pytest.mark.parametrize("seed", range(20))
def test_jobs_that_end_later_than_others_begin_are_put_into_their_place(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ids and versions in different orders, within what a window mends."""
    monkeypatch.setattr(schema_reading, "WINDOW", 20)
    jobs, pick = made_up(seed, 60), random.Random(seed)
    order = sorted(range(len(jobs)), key=lambda place: place + pick.uniform(0, 15))
    shuffled = texts([jobs[place] for place in order])
    tracker = read(in_pages(shuffled, 10))
    assert contents(tracker) == contents(one_by_one(jobs))


def test_what_a_window_cannot_mend_changes_nothing_newer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema_reading, "WINDOW", 20)
    up = Upstream()
    up.create_database()
    up.create(table(1, "t"))
    older = up.job(5, info=table(1, "t", "id", "a"))
    newer = up.job(5, info=table(1, "t", "id", "a", "b"))
    others = [up.create(table(number, f"x{number}")) for number in range(2, 3 * schema_reading.WINDOW)]
    jobs = [job for job in up.jobs if job not in (older, newer)]
    assert len(others) > 2 * schema_reading.WINDOW
    tracker = read([texts([*jobs[:2], newer, *jobs[2:]]), texts([older])])
    assert len(tracker.table_for(1, 1 << 40).info.columns) == 3


@pytest.mark.parametrize("scenario", recorded.SCENARIOS)
def test_recorded_histories_give_the_same_at_every_position(scenario: str) -> None:
    raw = recorded.jobs(scenario)
    jobs = sorted((ddl_job.parse(job) for job in raw), key=lambda job: job.schema_version)
    for place in range(40, len(jobs), max(1, len(jobs) // 9)):
        version = jobs[place].schema_version
        tracker = read(in_pages(raw, 11), Until(version))
        assert contents(tracker) == contents(
            one_by_one([job for job in jobs if job.schema_version <= version])
        )
        later = [job for job in jobs if job.schema_version > version and job.took_effect]
        assert list(tracker._pending) == [job.id for job in later]


def test_definitions_that_tidb_would_not_write_are_read_as_a_whole() -> None:
    """With spaces, with escapes in the name, with keys in another order."""
    up = Upstream()
    up.create_database()
    up.create(table(1, 'quo"ted'))
    up.create({"name": {"O": "later", "L": "later"}, "cols": [], "id": 2})
    spaced = [json.dumps(job.document).encode() for job in up.jobs]
    for form in (spaced, texts(up.jobs)):
        assert sorted(read([form]).names()) == [("Db", "later"), ("Db", 'quo"ted')]


@pytest.mark.parametrize("broken", [b"{}", b"nothing", b'{"id":"x","type":3}', b"\xff\xfe"])
def test_a_job_that_cannot_be_read_is_corruption(broken: bytes) -> None:
    with pytest.raises(Corruption):
        read([[broken]])


def test_a_schema_page_with_a_table_of_no_database_is_corruption() -> None:
    text = json.dumps(table(7, "t")).encode()
    with pytest.raises(Corruption, match="table 7 is in database 9, which is not there"):
        SchemaTracker().take_schema(SchemaPage((), ((9, text),)), 1)
    with pytest.raises(Corruption, match="cannot be read"):
        SchemaTracker().take_schema(SchemaPage((), ((1, b"{}"),)), 1)


def test_the_place_in_the_history_is_known_although_no_job_was_read() -> None:
    async def nothing() -> Any:
        yield SchemaPage((), ())

    tracker = SchemaTracker()
    home = json.dumps(database(5, "d")).encode()
    tracker.take_schema(SchemaPage((home,), ((5, json.dumps(table(7, "t")).encode()),)), 30)
    reading = tracker.read_since(SchemaAt(30, nothing(), history_after=900))
    tracker.end_history(reading)
    assert (tracker.version, tracker.last_job_id, tracker.names()) == (30, 900, [("d", "t")])
