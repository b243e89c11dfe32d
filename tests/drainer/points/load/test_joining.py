"""Tables that join a running drainer: what is refused before anything is stored, and what a copy is of."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from binlog_playground.cluster.mariadb import MariaDbServer
from drainer.checkpoint.load_progress import (
    GIVEN_UP,
    JOINING,
    ChunkState,
    LoadedTable,
    LoadProgress,
    LoadState,
    TableState,
)
from drainer.ddl.quarantine.entry import Entry, Floor
from drainer.ddl.quarantine.load_entry import LoadAsked, load_entry
from drainer.ddl.quarantine.waiting_tables import Below
from drainer.points.load.counters import Counters
from drainer.points.load.join_routes import add_refusals, add_routes
from drainer.points.load.joining import Joining, _Part
from drainer.points.load.table_copy import NotAsPublished
from drainer.points.load.timestamp_pass import Passed
from drainer.stream.rules.rule_set import Rules, read_rules
from drainer.stream.schema.tracker import SchemaTracker
from drainer.stream.schema.upstream_schema import read_whole
from drainer.stream.translate.translator import Translator
from drainer.txn import Ddl, Tracked
from tests.drainer.points.load.load_bed import CLUSTER, COPY, SCHEMA, Bed
from tidb_binlog.clock import SystemClock
from tidb_binlog.ddl_job import ActionType
from tidb_binlog.door.http.routes import Peer, Request, Routes
from tidb_binlog.errors import ConfigError, Conflict, Rejected, Unavailable
from tidb_binlog.late_dataclass import replace

pytestmark = pytest.mark.integration

ID = [("id", "int")]


@pytest.fixture
def bed(mariadb: MariaDbServer) -> Iterator[Bed]:
    bed = Bed(mariadb)
    yield bed
    bed.clean()


class Waiting:
    """A quarantine that takes what it is asked for at once."""

    def __init__(self) -> None:
        self.loading: Entry | None = None
        self.load_says = lambda: ""
        self.asked: list[LoadAsked] = []

    async def ask_load(self, asked: LoadAsked, wait_s: float) -> Entry:
        self.asked.append(asked)
        self.loading = load_entry(1, asked.names, asked.left, Floor(100, 1), (), 0, asked.rate_rows)
        return self.loading

    def documents(self) -> list[dict[str, Any]]:
        return [{"job_id": 1, "loads": False}, {"job_id": 2, "loads": True}]


async def joining(
    bed: Bed, waiting: Waiting, rules_at: Callable[[int], Rules] | None = None, **options: Any
) -> Joining:
    bed.options |= options
    settings = bed.settings()
    tracker: SchemaTracker = await read_whole(bed.upstream.history, 0, 1 << 62)
    translator = Translator(tracker, read_rules(settings))
    quarantine: Any = waiting
    return Joining(
        settings,
        bed.upstream,
        bed.nodes,
        tracker,
        translator,
        quarantine,
        lambda _: None,
        SystemClock(),
        rules_at or (lambda ts: translator.rules),
    )


def two_tables(bed: Bed) -> None:
    for name in ("orders", "items"):
        bed.publish(name, ID, ("id",))
        bed.run(f"CREATE TABLE {SCHEMA}.{name} (id INT PRIMARY KEY)")


async def test_tables_are_named_by_patterns_and_wait_under_their_names_on_both_sides(bed: Bed) -> None:
    two_tables(bed)
    waiting = Waiting()
    joins = await joining(bed, waiting)
    entry = await joins.ask([f"{SCHEMA.upper()}.ord*"], replacing=False, asked_from="here")
    (asked,) = waiting.asked
    assert asked.names == {(SCHEMA, "orders"), (COPY, "orders")} == entry.tables.keys()
    connection = bed.connect()
    asked.also(connection)
    state = LoadProgress("tidb_binlog", CLUSTER).state(connection)
    connection.close()
    assert state is not None
    assert (state.phase, state.is_unfinished) == (JOINING, False)
    assert await joins.ask([f"{SCHEMA}.orders"], replacing=False, asked_from="here") is entry
    assert len(waiting.asked) == 1, "the same ones are loaded already"
    assert waiting.asked[0].left == {(SCHEMA, "items"), (COPY, "items")}
    assert [entry["job_id"] for entry in joins.document()["joining"]] == [2]


async def test_the_load_that_is_given_up_is_the_one_under_way_by_then(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may end while the upstream is asked for a timestamp, and another one begin."""
    two_tables(bed)
    waiting = Waiting()
    joins = await joining(bed, waiting)
    await joins.ask([f"{SCHEMA}.orders"], replacing=False, asked_from="here")

    async def timestamp() -> int:
        waiting.loading = None
        return 1

    monkeypatch.setattr(bed.upstream.oracle, "timestamp", timestamp)
    with pytest.raises(Rejected, match="no rows of tables that join are loaded"):
        await joins.give_up(asked_from="here")


async def test_what_cannot_be_loaded_is_refused_before_anything_is_stored(bed: Bed) -> None:
    two_tables(bed)
    waiting = Waiting()
    joins = await joining(bed, waiting)

    async def refused(*patterns: str, replacing: bool = False) -> str:
        with pytest.raises(Rejected) as raised:
            await joins.ask(patterns, replacing=replacing, asked_from="here")
        return str(raised.value)

    assert "no table upstream that is replicated is called shop.*" in await refused("shop.*")
    bed.run(f"CREATE DATABASE {COPY}", f"CREATE TABLE {COPY}.orders AS SELECT 1 AS id")
    assert f"has rows already in {COPY}.orders" in await refused(f"{SCHEMA}.*")
    bed.run(f"DROP TABLE {SCHEMA}.items", f"DROP TABLE {COPY}.orders")
    with pytest.raises(NotAsPublished, match=r"the upstream.s database has no table load_app\.items"):
        await joins.ask([f"{SCHEMA}.*"], replacing=False, asked_from="here")
    assert waiting.asked == []


async def test_all_tables_of_one_target_join_together(bed: Bed) -> None:
    two_tables(bed)
    merged = ({"source": {"schema": SCHEMA}, "target": {"schema": COPY, "table": "all"}},)
    waiting = Waiting()
    joins = await joining(bed, waiting, table_migrate_rule=merged)
    with pytest.raises(Rejected, match=rf"{SCHEMA}\.items goes to the same table downstream, {COPY}\.all"):
        await joins.ask([f"{SCHEMA}.orders"], replacing=False, asked_from="here")
    await joins.ask([f"{SCHEMA}.*"], replacing=False, asked_from="here")
    assert (COPY, "all") in waiting.asked[0].names


async def test_a_copy_is_of_what_waits_at_its_timestamp_and_of_nothing_else(bed: Bed) -> None:
    """Names that DDL up to it has left are removed downstream, unless another table has them."""
    two_tables(bed)
    bed.publish("other", ID, ("id",))
    settings = bed.settings()
    tracker = await read_whole(bed.upstream.history, 0, 1 << 62)
    before = tuple(Tracked(SCHEMA, name, {"id": 1}) for name in ("gone", "items"))
    rename = Ddl(110, 9, ActionType.RENAME_TABLE, SCHEMA, "", ((SCHEMA, "gone"),), 3, before=before)
    found = [None, Below(frozenset({(SCHEMA, "orders"), (SCHEMA, "gone")}), (5,), (rename,))]
    loaded: list[tuple[Any, ...]] = []

    async def note(*parts: Any) -> None:
        loaded.append(parts)

    quarantine: Any = SimpleNamespace(below=lambda ts: found.pop(0), loaded=note, has_room=True)
    progress = LoadProgress("tidb_binlog", CLUSTER)
    job: Any = SimpleNamespace(
        settings=settings, rules=read_rules(settings), counters=Counters(), progress=progress, run=7
    )
    part = _Part(job, quarantine, lambda _: None)
    contents = await part.contents(tracker, 120)
    assert [source.label for source in contents.all] == [f"{SCHEMA}.orders"]
    assert contents.databases == ((SCHEMA, COPY),)
    assert contents.gone == ((COPY, "gone"),)
    await part.end(120, tracker)
    ((jobs, ts, end),) = loaded
    assert (jobs, ts, end.func, end.keywords) == ((5,), 120, progress.end, {"run": 7})


async def test_a_load_does_not_wait_for_a_stream_that_waits_for_it(bed: Bed) -> None:
    two_tables(bed)
    tracker = await read_whole(bed.upstream.history, 0, 1 << 62)
    quarantine: Any = SimpleNamespace(below=lambda ts: None, has_room=False)
    job: Any = SimpleNamespace(settings=bed.settings(), counters=Counters())
    with pytest.raises(Rejected, match="quarantine-size is used up before the stream has come"):
        await _Part(job, quarantine, lambda _: None).contents(tracker, 120)


class Fails:
    def __init__(self, error: Exception | None) -> None:
        self._error = error

    async def ask(self, patterns: list[str], *, replacing: bool, asked_from: str, rate_rows: int) -> Any:
        if self._error is not None:
            raise self._error
        return SimpleNamespace(job_id=len(patterns) + 10 * replacing + 100 * rate_rows)

    async def give_up(self, *, asked_from: str) -> Any:
        if self._error is not None:
            raise self._error
        return SimpleNamespace(job_id=5), asked_from == "127.0.0.1"


def answered(routes: Routes, method: str, path: str, body: bytes | None = None) -> tuple[int, Any]:
    request = Request(method, path, "h", None, Peer("127.0.0.1"), body)
    guard: Any = SimpleNamespace(refusal=lambda _: None)
    answer = asyncio.run(routes.answer(request, guard))
    if method != "GET":
        refuses: Any = SimpleNamespace(refusal=lambda _: answer)
        assert asyncio.run(routes.answer(request, refuses)) is answer, "administrators alone"
    document = json.loads(answer.body)
    assert document["code"] == answer.status
    return answer.status, document


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (Conflict("later"), 409),
        (Rejected("no"), 400),
        (ConfigError("no [syncer.from]"), 400),
        (Unavailable("away"), 503),
        (None, 200),
    ],
)
def test_answers(error: Exception | None, status: int) -> None:
    routes = Routes()
    serves: Any = Fails(error)
    add_routes(routes, lambda: serves)
    got, document = answered(routes, "PUT", "/load?replace=1&rate=5", b" shop.a, shop.b,")
    assert (got, document["data"]) == (status, None if error else {"job_id": 512})
    got, document = answered(routes, "DELETE", "/load", b"")
    assert (got, document["data"]) == (status, None if error else {"job_id": 5, "made_anew": True})


@pytest.mark.parametrize("rate", ["-5", "x", "1.5", "9999999999", ""])
def test_a_rate_is_rows_a_second(rate: str) -> None:
    routes = Routes()
    serves: Any = Fails(None)
    add_routes(routes, lambda: serves)
    got, document = answered(routes, "PUT", f"/load?rate={rate}&replace=1", b"shop.a")
    assert (got == 400) == bool(rate), "an empty one is none"
    assert rate == "" or "rows a second" in document["message"]


def test_where_nothing_can_join_is_said_to_whoever_asks() -> None:
    routes = Routes()
    add_refusals(routes, lambda: "kafka")
    for method in ("GET", "PUT", "DELETE"):
        got, document = answered(routes, method, "/load", b"shop.a")
        assert got == 400
        assert "db-type is 'kafka'" in document["message"]
        assert "binlogctl load -to archive" in document["message"]


async def test_a_load_is_gone_on_with_at_its_rate_and_at_no_other(bed: Bed) -> None:
    two_tables(bed)
    waiting = Waiting()
    joins = await joining(bed, waiting)

    async def ask(rate_rows: int) -> Entry:
        return await joins.ask([f"{SCHEMA}.*"], replacing=False, asked_from="here", rate_rows=rate_rows)

    entry = await ask(500)
    assert (entry.rate_rows, entry.query) == (500, "-rate 500")
    assert await ask(-1) is await ask(500) is entry
    with pytest.raises(Conflict, match=r"another rate, 500 rows a second"):
        await ask(0)


@pytest.mark.parametrize("changed_ts", [99, 101])
async def test_a_copy_by_rules_of_before_is_not_gone_on_with_by_those_of_now(
    bed: Bed, monkeypatch: pytest.MonkeyPatch, changed_ts: int
) -> None:
    """What waits since its timestamp went out by the rules of then: rows that these left out would stay as
    they were at that timestamp."""
    two_tables(bed)
    begun: list[tuple[str, bool]] = []

    async def notes(job: Any, scope: Any, stored: LoadState | None, *, later: bool) -> Passed:
        assert stored is not None
        begun.append((job.rules.text, later))
        return Passed(stored.ts, 1, ())

    monkeypatch.setattr("drainer.points.load.joining.passes", notes)
    now, waiting = replace(read_rules(bed.settings()), text="now"), Waiting()
    joins = await joining(bed, waiting, lambda ts: now if ts > changed_ts else replace(now, text="before"))
    entry = await joins.ask([f"{SCHEMA}.*"], replacing=False, asked_from="here")
    connection = bed.connect()
    waiting.asked[0].also(connection)
    state = LoadState(1, JOINING, 100, "replace", "drainer")
    LoadProgress("tidb_binlog", CLUSTER).put_state(connection, state)
    connection.commit()
    connection.close()
    await joins._load(entry)
    assert begun == [("now", changed_ts > 100)]


async def test_a_load_that_was_given_up_stores_nothing_any_more(bed: Bed) -> None:
    progress = LoadProgress("tidb_binlog", CLUSTER)
    connection = bed.connect()
    progress.create(connection)
    began = LoadState(5, JOINING, 4, "replace", "drainer")
    table = LoadedTable(1, (SCHEMA, "a"), (COPY, "a"), "", True, TableState.READY)

    def refused(run: int, phase: str) -> None:
        with pytest.raises(Conflict, match="took over"):
            progress.take_over(connection, replace(began, run=run, phase=phase))

    with pytest.raises(Rejected, match="loaded already"):
        progress.give_up(connection, 6)
    refused(5, JOINING)
    progress.put_state(connection, began)
    assert not progress.give_up(connection, 6), "no table was begun"
    assert progress.state(connection) is None
    progress.put_state(connection, began)
    progress.put_tables(connection, [table])
    progress.put_chunks(connection, 1, 5, [(1, "")])
    assert progress.give_up(connection, 6)
    assert progress.state(connection) == replace(began, run=6, phase=GIVEN_UP)
    assert progress.tables(connection) == []
    refused(5, JOINING)
    with pytest.raises(Conflict, match="took over"):
        progress.set_chunk(connection, 1, 1, 5, ChunkState.COPIED, ts=4, rows=1)
    with pytest.raises(Conflict, match="took over"):
        progress.end(connection, 5)
    assert progress.give_up(connection, 7), "once more"
    progress.take_over(connection, replace(began, run=8, phase=GIVEN_UP))
    progress.end(connection, 8)
    assert progress.state(connection) is None
    connection.close()
