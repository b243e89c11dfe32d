"""DDL history and schema of a TiDB cluster: where jobs are looked for, and when the past cannot be told."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.drainer.support import recorded
from tests.fakes.cluster import FakeCluster
from tests.fakes.memory import Memory
from tests.fakes.meta import RUNNING, Kind, load_history, row_value
from tidb_binlog.errors import Corruption, Rejected, Unavailable
from tidb_binlog.rowcodec.keys import record_key
from tidb_binlog.upstream.tidb.meta import history as tidb_history
from tidb_binlog.upstream.tidb.meta import meta_keys
from tidb_binlog.upstream_port import SchemaAt


def world(kind: Kind | None = None, scenario: str = "ddl-multischema") -> Memory:
    cluster = FakeCluster()
    load_history(cluster, scenario, kind)
    return Memory(cluster)


def jobs(scenario: str = "ddl-multischema") -> list[dict[str, Any]]:
    return [json.loads(job) for job in recorded.jobs(scenario)]


async def tables(schema: SchemaAt | None) -> dict[int, Any]:
    assert schema is not None
    found = {}
    async for page in schema.pages:
        for _, text in page.tables:
            document = json.loads(text)
            found[document["id"]] = [column["name"]["O"] for column in document.get("cols", ())]
    return found


# -- jobs -------------------------------------------------------------------------------------------------


async def test_all_jobs_and_those_behind_an_id_come_ascending_in_pages(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tidb_history, "PAGE", 7)
    history, known = world().history(), jobs()
    pages = [page async for page in history.pages()]
    assert [json.loads(job) for page in pages for job in page] == sorted(known, key=lambda job: job["id"])
    assert [len(page) for page in pages] == [7] * (len(known) // 7) + [len(known) % 7] * (len(known) % 7 > 0)
    middle = known[len(known) // 2]["id"]
    later = [json.loads(job)["id"] async for page in history.pages(middle) for job in page]
    assert later == [job["id"] for job in known if job["id"] > middle]


async def test_the_next_page_is_read_while_the_consumer_works(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tidb_history, "PAGE", 10)
    memory = world()
    pages = memory.history().pages()
    await anext(pages)
    asked = memory.reads
    await tidb_history.asyncio.sleep(0)
    assert memory.reads == asked + 1, "one page ahead"
    await tidb_history.asyncio.sleep(0)
    assert memory.reads == asked + 1, "and no more"
    await pages.aclose()  # type: ignore[attr-defined]


@pytest.mark.parametrize("row_format", [1, 2])
async def test_a_job_that_the_meta_keys_do_not_have_is_in_the_table_of_jobs(
    row_format: int,
) -> None:
    memory = world(Kind(row_format=row_format))
    history = memory.history()
    job = jobs()[-1]
    assert json.loads(await history.job(job["id"]) or b"") == job
    memory.cluster.put(meta_keys.job_key(job["id"]), None, 1 << 61)
    assert json.loads(await history.job(job["id"]) or b"") == job
    assert await history.job(job["id"] + 1) is None


# -- the schema at a time --------------------------------------------------------------------------------


async def test_clusters_before_6_2_keep_running_jobs_in_lists() -> None:
    """What a job has changed half way is undone there as well."""
    old, new = world(Kind(tables=False)).history(), world().history()
    for job in jobs()[-6:]:
        began, finished = job["real_start_ts"], job["binlog"]["FinishedTS"]
        for part in range(12):
            ts = began + (finished - began) * part // 11
            first, second = await old.schema_at(ts), await new.schema_at(ts)
            assert first is not None
            assert second is not None
            assert (first.version, first.unfinished) == (second.version, second.unfinished)
            assert await tables(first) == await tables(second)


@pytest.mark.parametrize("tables", [True, False], ids=["in a table", "in lists"])
async def test_a_job_under_way_comes_with_the_definition_in_its_middle(
    tables: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At each step of a job that drops an index: the index as far as it is gone."""
    memory = world(Kind(tables=tables))
    history = memory.history()
    job = next(job for job in jobs() if "drop index" in job["query"].lower() and job["state"] in (3, 6))
    began, finished = job["real_start_ts"], job["binlog"]["FinishedTS"]
    seen = 0
    for part in range(13):
        now = began + (finished - began) * part // 12

        async def timestamp(now: int = now) -> int:
            return now

        monkeypatch.setattr(memory, "timestamp", timestamp)
        by_table = await history.under_way(table_id=job["table_id"])
        assert by_table == await history.under_way(job_id=job["id"])
        if by_table is not None:
            assert json.loads(by_table.job)["id"] == job["id"]
            assert json.loads(by_table.definition)["id"] == job["table_id"]
            seen += 1
        assert await history.under_way(table_id=job["table_id"] + 100_000) is None
    assert seen


async def test_a_job_that_rolls_back_gives_nothing_up() -> None:
    memory = world()
    job = {"id": 99_999, "type": 8, "schema_id": 1, "table_id": 77, "state": 1}
    for state, found in ((1, True), (2, False), (7, False), (4, True)):
        key = record_key(meta_keys.JOB_TABLE, 99_999)
        row = row_value({meta_keys.JOB_TABLE_META: json.dumps({**job, "state": state}).encode()}, 2)
        memory.cluster.put(key, row, (1 << 61) + state)
        memory.cluster.put(meta_keys.table_key(1, 77), b'{"id": 77}', 1 << 61)
        memory.keys = sorted(memory.cluster.mvcc.rows)

        async def timestamp(now: int = (1 << 61) + state) -> int:
            return now

        memory.timestamp = timestamp  # type: ignore[method-assign]
        assert (await memory.history().under_way(table_id=77) is not None) is found


async def test_a_moment_that_is_collected_is_not_told() -> None:
    memory = world()
    ts = jobs()[-1]["binlog"]["FinishedTS"] + 10
    memory.floor_ts = ts
    assert len(await tables(await memory.history().schema_at(ts))) > 40
    memory.floor_ts = ts + 1
    assert await memory.history().schema_at(ts) is None
    assert memory.held[-1] == (ts, 0), "let go"


async def test_a_job_that_began_before_what_is_kept_needs_the_history() -> None:
    """The definition before its first step is gone."""
    memory = world()
    job = next(job for job in jobs() if job["type"] == 61)
    ts = (job["real_start_ts"] + job["binlog"]["FinishedTS"]) // 2
    memory.floor_ts = job["real_start_ts"]
    assert job["id"] in (await memory.history().schema_at(ts)).unfinished  # type: ignore[union-attr]
    memory.floor_ts = job["real_start_ts"] + 1
    assert await memory.history().schema_at(ts) is None


async def test_what_is_collected_while_it_is_read_is_an_error() -> None:
    memory = world()
    schema = await memory.history().schema_at(1 << 61)
    assert schema is not None
    memory.floor_ts = (1 << 61) + 1
    with pytest.raises(Unavailable, match=r"was collected .* while it was read"):
        await tables(schema)
    assert memory.held[-1] == (1 << 61, 0)


async def test_a_cluster_without_safe_points_leaves_the_history(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    memory = world()

    async def refuse(name: str, ts: int, ttl_s: int) -> int:
        raise Rejected("service safe points are blocked")

    monkeypatch.setattr(memory, "hold", refuse)
    assert await memory.history().schema_at(1 << 61) is None


async def test_a_version_that_nobody_can_see_yet_is_not_the_version() -> None:
    memory = world()
    whole = await memory.history().schema_at(1 << 61)
    assert whole is not None
    memory.cluster.put(meta_keys.SCHEMA_VERSION, b"%d" % (whole.version + 1), 1 << 60)
    later = await Memory(memory.cluster).history().schema_at(1 << 61)
    assert later is not None
    assert later.version == whole.version
    memory.cluster.put(meta_keys.diff_key(whole.version + 1), b"{}", 1 << 60)
    later = await Memory(memory.cluster).history().schema_at(1 << 61)
    assert later is not None
    assert later.version == whole.version + 1


async def test_the_history_is_needed_from_before_the_oldest_job_under_way() -> None:
    memory = world()
    last = jobs()[-1]["id"]
    memory.cluster.put(meta_keys.NEXT_GLOBAL_ID, b"100000", 1 << 60)
    schema = await memory.history().schema_at(1 << 61)
    assert schema is not None
    assert schema.history_after == 100_000 - tidb_history.LOOK_BACK
    job = {"id": 50_000, "type": 7, "state": RUNNING, "schema_id": 1, "table_id": 4, "real_start_ts": 0}
    row = row_value({5: json.dumps(job).encode()}, 2)
    memory.cluster.put(meta_keys.running_range()[0] + b"\x80" + bytes(6) + b"\7", row, 1 << 60)
    schema = await Memory(memory.cluster).history().schema_at(1 << 61)
    assert schema is not None
    assert schema.history_after == 49_999 - tidb_history.LOOK_BACK > last
    assert schema.unfinished == {50_000}


async def test_a_running_job_that_cannot_be_read_stops() -> None:
    memory = world()
    row = row_value({5: b"[]"}, 2)
    memory.cluster.put(meta_keys.running_range()[0] + b"\x80" + bytes(6) + b"\7", row, 1 << 60)
    with pytest.raises(Corruption, match="a DDL job under way cannot be read"):
        await Memory(memory.cluster).history().schema_at(1 << 61)


async def test_a_schema_that_is_read_in_part_lets_go_of_its_hold() -> None:
    memory = world()
    schema = await memory.history().schema_at(1 << 61)
    assert schema is not None
    await anext(schema.pages)
    await schema.pages.aclose()
    assert memory.held[-1] == (1 << 61, 0)
