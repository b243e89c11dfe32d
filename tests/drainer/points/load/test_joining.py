"""Tables that join a running drainer: what is refused before anything is stored, and what a copy is of."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from binlog_playground.cluster.mariadb import MariaDbServer
from drainer.checkpoint.load_progress import JOINING, LoadProgress
from drainer.ddl.quarantine.entry import Entry, Floor
from drainer.ddl.quarantine.load_entry import LoadAsked, load_entry
from drainer.ddl.quarantine.waiting_tables import Below
from drainer.points.load.counters import Counters
from drainer.points.load.join_routes import add_routes
from drainer.points.load.joining import Joining, _Part
from drainer.points.load.table_copy import NotAsPublished
from drainer.stream.rules.rule_set import read_rules
from drainer.stream.schema.tracker import SchemaTracker
from drainer.stream.schema.upstream_schema import read_whole
from drainer.stream.translate.translator import Translator
from drainer.txn import Ddl, Tracked
from tests.drainer.points.load.load_bed import CLUSTER, COPY, SCHEMA, Bed
from tidb_binlog.clock import SystemClock
from tidb_binlog.ddl_job import ActionType
from tidb_binlog.door.http.routes import Peer, Request, Routes
from tidb_binlog.errors import ConfigError, Conflict, Rejected

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
        self.loading = load_entry(1, asked.names, Floor(100, 1), (), 0)
        return self.loading

    def documents(self) -> list[dict[str, Any]]:
        return [{"job_id": 1, "loads": False}, {"job_id": 2, "loads": True}]


async def joining(bed: Bed, waiting: Waiting, **options: Any) -> Joining:
    bed.options |= options
    settings = bed.settings()
    tracker: SchemaTracker = await read_whole(bed.upstream.history, 0, 1 << 62)
    translator = Translator(tracker, read_rules(settings))
    quarantine: Any = waiting
    return Joining(
        settings, bed.upstream, bed.nodes, tracker, translator, quarantine, lambda _: None, SystemClock()
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
    assert [entry["job_id"] for entry in joins.document()["joining"]] == [2]


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

    quarantine: Any = SimpleNamespace(below=lambda ts: found.pop(0), loaded=note)
    progress = LoadProgress("tidb_binlog", CLUSTER)
    job: Any = SimpleNamespace(
        settings=settings, rules=read_rules(settings), counters=Counters(), progress=progress
    )
    part = _Part(job, quarantine, lambda _: None)
    contents = await part.contents(tracker, 120)
    assert [source.label for source in contents.all] == [f"{SCHEMA}.orders"]
    assert contents.databases == ((SCHEMA, COPY),)
    assert contents.gone == ((COPY, "gone"),)
    await part.end(120, tracker)
    assert loaded == [((5,), 120, progress.clear)]


class Fails:
    def __init__(self, error: Exception | None) -> None:
        self._error = error

    async def ask(self, patterns: list[str], *, replacing: bool, asked_from: str) -> Any:
        if self._error is not None:
            raise self._error
        return SimpleNamespace(job_id=len(patterns) + 10 * replacing)


@pytest.mark.parametrize(
    ("error", "status"),
    [(Conflict("later"), 409), (Rejected("no"), 400), (ConfigError("no [syncer.from]"), 400), (None, 200)],
)
def test_answers(error: Exception | None, status: int) -> None:
    routes, fails = Routes(), Fails(error)
    serves: Any = fails
    add_routes(routes, lambda: serves)
    request = Request("PUT", "/load?replace=1", "h", None, Peer("127.0.0.1"), b" shop.a, shop.b,")
    guard: Any = SimpleNamespace(refusal=lambda _: None)
    answer = asyncio.run(routes.answer(request, guard))
    assert answer.status == status
    document = json.loads(answer.body)
    assert document["code"] == status
    assert document["data"] == (None if error else {"job_id": 12})
    refuses: Any = SimpleNamespace(refusal=lambda _: answer)
    assert asyncio.run(routes.answer(request, refuses)) is answer, "administrators alone"
