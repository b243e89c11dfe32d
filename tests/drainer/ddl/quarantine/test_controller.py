"""The quarantine on a real MariaDB: what waits is stored, decided and released, while others are applied."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from drainer.checkpoint.keeper import PURGE_S, CheckpointUpkeep
from drainer.ddl import rules as ddl_rules
from drainer.ddl.quarantine.controller import KEPT, PASSED
from drainer.ddl.quarantine.entry import RETRY, Entry
from drainer.ddl.quarantine.load_entry import LoadAsked
from drainer.ddl.quarantine.queue_state import QueueState
from drainer.ddl.quarantine.release import Release
from drainer.ddl.rules import APPLY, REWRITE, SKIP
from drainer.mysql.connection import Target
from drainer.txn import INSERT, Ddl, TableEvents, TableVersion, Tracked, Transaction
from tests.drainer.ddl.quarantine.stage import T_WIDE, Stage, T, U, ddl, info
from tests.waiting import PATIENCE_S
from tidb_binlog.clock import ManualClock
from tidb_binlog.errors import Conflict, DownstreamError, Rejected
from tidb_binlog.rowcodec.encoder import RowEncoder

pytestmark = pytest.mark.integration


def row(commit_ts: int, *versions: TableVersion) -> Transaction:
    """One row in each of the tables; every column holds the commit_ts."""
    events = tuple(
        TableEvents(
            version,
            (INSERT,),
            [
                RowEncoder(version.info).insert(
                    {c.name: commit_ts for c in version.info.columns}, rowid=commit_ts
                )
            ],
            ordinal,
        )
        for ordinal, version in enumerate(versions)
    )
    return Transaction(commit_ts - 1, commit_ts, events, 10 * len(events))


MakeStage = Callable[..., Stage]


@pytest.fixture
async def stage(target: Target, tmp_path: Path) -> AsyncIterator[MakeStage]:
    made: list[Stage] = []

    def make(**options: Any) -> Stage:
        made.append(Stage(target, tmp_path, **options))
        if len(made) == 1:
            made[0].sql(
                "CREATE DATABASE d", "CREATE TABLE d.t (a INT)", "CREATE TABLE d.u (a INT)", "SHOW DATABASES"
            )
        return made[-1]

    yield make
    for each in made:
        await each.close()


async def test_a_rule_stops_the_drainer_before_the_statement(stage: MakeStage) -> None:
    s = stage(rules=[{"kind": "add column", "action": "stop"}, {"tbl-name": "u", "action": "skip"}])
    with pytest.raises(DownstreamError, match=r"DDL job 200 .* ddl-rule 1 \(kind = 'add column'") as caught:
        await s.controller.judge(ddl(200, "ALTER TABLE t ADD b INT"), 1)
    assert caught.value.exit_code == 7
    other = ddl(201, "ALTER TABLE u ADD KEY (a)", "u", action=7)
    assert (await s.controller.judge(other, 1)).action == SKIP
    s.controller.set_rules(())
    assert (await s.controller.judge(other, 1)).action == APPLY
    assert (await s.controller.judge(ddl(200, "ALTER TABLE t ADD b INT"), 1)).action == APPLY


async def test_what_was_done_by_hand_is_looked_at_however_often_the_desk_is_woken(
    stage: MakeStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("drainer.ddl.quarantine.controller.RETRY_S", 0.05)
    s = stage()
    calls: list[bool] = []
    s.controller.on_change = lambda: calls.append(True)
    while not calls:
        s.controller._wake.set()
        await asyncio.sleep(0)


async def loading(s: Stage) -> Entry:
    """Rows of `d.t` are to be loaded from 200 on."""
    asked = LoadAsked(frozenset({("d", "t")}), frozenset(), lambda connection: None, "test")
    asking = asyncio.create_task(s.controller.ask_load(asked, 10.0))
    while not s.controller.wants_load:
        await asyncio.sleep(0)
    await s.controller.begin_load(200)
    return await asking


async def test_nothing_is_released_before_the_rows_of_tables_that_join_are_there(
    stage: MakeStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However often it is looked at, and at the stream's end."""
    monkeypatch.setattr("drainer.ddl.quarantine.controller.RETRY_S", 0.02)
    s = stage()
    entry = await loading(s)
    s.controller.divert(row(210, T))
    looks: list[bool] = []
    s.controller.on_change = lambda: looks.append(True)
    await s.until(lambda: len(looks) > 3)
    await s.controller.finish(220)
    assert s.values("t") == []
    assert s.controller.loading is entry
    s.sql("INSERT INTO d.t VALUES (205)", "SHOW DATABASES")
    await s.controller.loaded([entry.job_id], 205, lambda connection: None)
    await s.until(lambda: sorted(s.values("t")) == [205, 210])
    await s.finish(230)
    assert not s.controller.waits


async def test_who_asks_for_the_same_load_in_the_same_moment_gets_the_same(stage: MakeStage) -> None:
    s = stage()
    stored: list[str] = []

    def ask(who: str, *names: str, wait_s: float = 10.0) -> asyncio.Task[Entry]:
        of = frozenset(("d", name) for name in names)
        asked = LoadAsked(of, frozenset(), lambda connection: stored.append(who), who)
        return asyncio.create_task(s.controller.ask_load(asked, wait_s))

    async def refused(*names: str) -> None:
        with pytest.raises(Conflict, match="rows of other tables are loaded"):
            await ask("other", *names)

    first, second = ask("first", "t", "u"), ask("second", "t")
    while not s.controller.wants_load:
        await asyncio.sleep(0)
    await refused("v")
    begins = asyncio.create_task(s.controller.begin_load(200))
    await asyncio.sleep(0)
    assert not s.controller.wants_load, "it begins once"
    third = ask("third", "u")
    await refused("v")
    await begins
    entries = [await first, await second, await third, await ask("fourth", "t")]
    assert entries == [s.controller.loading] * 4
    assert stored == ["first"]
    await refused("v")


async def test_who_waits_for_a_place_with_others_is_told_with_them_that_there_was_none(
    stage: MakeStage,
) -> None:
    s = stage()
    of = frozenset({("d", "t")})
    asks = [
        asyncio.create_task(s.controller.ask_load(LoadAsked(of, frozenset(), lambda _: None, "test"), wait_s))
        for wait_s in (0.01, 1000.0)
    ]
    for ask in asks:
        with pytest.raises(Rejected, match="no place between two transactions"):
            await ask
    assert not s.controller.wants_load
    await s.controller.begin_load(200)  # lanes were drained for it, which took longer
    assert not s.controller.waits


async def test_no_load_begins_while_release_works_though_lanes_were_drained_for_it(stage: MakeStage) -> None:
    s = stage()
    asked = LoadAsked(frozenset({("d", "t")}), frozenset(), lambda connection: None, "test")
    ask = asyncio.create_task(s.controller.ask_load(asked, 1000.0))
    while not s.controller.wants_load:
        await asyncio.sleep(0)
    async with s.controller._releasing:
        begins = asyncio.create_task(s.controller.begin_load(200))
        await asyncio.sleep(0)
        assert begins.done(), "the stream does not stand still for it"
    await s.controller.begin_load(210)
    assert (await ask).position.commit_ts == 210


async def test_a_load_that_wrote_nothing_and_is_given_up_is_as_if_it_had_not_been_asked_for(
    stage: MakeStage,
) -> None:
    s = stage()
    entry = await loading(s)
    s.controller.divert(row(210, T))
    assert not await s.controller.give_up_load(entry, lambda connection: False, "here")
    await s.until(lambda: s.values("t") == [210])
    await s.finish(230)
    assert not s.controller.waits
    newest = (await s.controller.decisions())[0]
    assert (newest.job_id, newest.action, newest.asked_from) == (entry.job_id, "give up", "here")


async def test_what_was_decided_about_a_load_is_what_the_next_start_finds(stage: MakeStage) -> None:
    s = stage()
    entry = await loading(s)
    s.controller.divert(row(210, T))
    assert await s.controller.give_up_load(entry, lambda connection: True, "here")
    assert s.controller.loading == entry, "it ends once its tables are made anew"
    s = stage()
    assert s.controller.loading == entry
    await s.controller.give_up_load(entry, lambda connection: False, "here")
    s = stage()
    assert s.controller.loading is None
    s.controller.divert(row(210, T))
    await s.until(lambda: s.values("t") == [210])


async def test_what_is_kept_up_to_the_copy_gives_its_room_back(stage: MakeStage) -> None:
    """A stream that waits for room comes to no place at which release could give it back."""
    s = stage(bytes_max=1)
    entry = await loading(s)
    s.controller.divert(row(210, T))
    assert not s.controller.has_room
    calls: list[bool] = []
    s.controller.on_change = lambda: calls.append(s.controller.has_room)
    await s.controller.loaded([entry.job_id], 210, lambda connection: None)
    assert calls[0]


async def test_the_table_waits_and_others_go_on_until_the_downstream_was_changed_by_hand(
    stage: MakeStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("drainer.ddl.quarantine.controller.RETRY_S", 0.05)
    s = stage()
    await s.refuse(ddl(200, "ALTER TABLE t FROBNICATE b"))
    assert s.controller.floor == (199, 1)
    both = row(210, T_WIDE, U)
    assert [events.table for events in s.controller.divert(both).tables] == [U]
    await asyncio.sleep(0.3)
    (waiting,) = s.controller.documents()
    assert (waiting["state"], waiting["tables"], waiting["kept_bytes"] > 0) == (
        "waiting for a decision", ["d.t"], True,
    )  # fmt: skip
    assert s.values("t") == []
    s.sql("ALTER TABLE d.t ADD COLUMN b INT", "SHOW DATABASES")
    await s.until(lambda: s.values("t") == [210])
    assert [events.table for events in s.controller.divert(row(220, T_WIDE, U)).tables] == [U]
    await s.finish(230)
    assert sorted(s.values("t")) == [210, 220]
    after = row(240, T_WIDE, U)
    assert s.controller.divert(after) is after
    (decided,) = await s.controller.decisions()
    assert (decided.job_id, decided.asked_from, decided.outcome) == (
        200,
        "downstream",
        "downstream has it already",
    )


@pytest.mark.parametrize("action", [RETRY, SKIP, REWRITE])
async def test_decisions_are_stored_and_survive_a_restart(stage: MakeStage, action: str) -> None:
    s = stage()
    asked = ddl(200, "ALTER TABLE t FROBNICATE b")
    if action == RETRY:
        asked = replace(
            ddl(200, "CREATE TABLE made (a INT)", "made", action=3), tables=(("d", "t"), ("d", "made"))
        )
    await s.refuse(asked)
    s.controller.divert(row(210, T, U))
    s.controller.stop()  # nothing is carried out any more in this life
    await s.task
    text = "CREATE TABLE d.other (a INT)" if action == REWRITE else ""
    await s.controller.decide(200, action, text, "192.0.2.1")

    later = stage()
    assert later.controller.floor == (199, 1)
    assert (await later.controller.judge(asked, 1)).action == KEPT
    later.controller.divert(row(210, T, U))
    await later.until(lambda: later.values("t") == [210])
    await later.finish(220)
    made = [name for (name,) in later.sql("SHOW TABLES FROM d")]
    assert made == {RETRY: ["made", "t", "u"], SKIP: ["t", "u"], REWRITE: ["other", "t", "u"]}[action]
    (decided,) = await later.controller.decisions()
    assert (decided.action, decided.text, decided.asked_from) == (action, text, "192.0.2.1")
    assert decided.outcome.startswith("skipped" if action == SKIP else "ran")
    with pytest.raises(Conflict):
        await s.controller.decide(200, SKIP, "", "")  # the old life is fenced off


@pytest.mark.parametrize("again", [False, True])
async def test_a_rule_that_was_written_since_decides(stage: MakeStage, again: bool) -> None:
    """At a reload, or at the next start."""
    s = stage()
    query = "ALTER TABLE t FROBNICATE b"
    await s.refuse(ddl(200, query))
    rules = [{"action": "rewrite", "sql": "FROBNICATE", "text": "CREATE TABLE {db}.other (a INT)"}]
    if again:
        s.controller.stop()
        await s.task
        s = stage(rules=rules)
        assert (await s.controller.judge(ddl(200, query), 1)).action == KEPT
    else:
        s.controller.set_rules(ddl_rules.parse(rules))
    s.controller.divert(row(210, T))
    await s.until(lambda: s.values("t") == [210])
    await s.finish(220)
    assert ("other",) in s.sql("SHOW TABLES FROM d")
    (decided,) = await s.controller.decisions()
    assert (decided.action, decided.asked_from) == (REWRITE, "rule 1")


async def test_a_rule_whose_text_is_refused_is_tried_once(stage: MakeStage) -> None:
    s = stage()
    await s.refuse(ddl(200, "ALTER TABLE t FROBNICATE b"))
    s.controller.set_rules(
        ddl_rules.parse([{"action": "rewrite", "sql": "FROBNICATE", "text": "NO STATEMENT"}])
    )
    for _ in range(3):
        await s.controller.finish(210)
    (decided,) = await s.controller.decisions()
    assert decided.outcome.startswith("refused")
    assert s.controller.waits


async def test_rows_that_are_refused_halt_only_their_queue(stage: MakeStage) -> None:
    s = stage()
    await s.refuse(ddl(200, "ALTER TABLE t FROBNICATE b"))
    s.controller.divert(row(210, T))
    s.controller.divert(row(220, T_WIDE))
    await s.controller.decide(200, SKIP, "", "here")
    await s.until(lambda: "rows were refused" in s.controller.documents()[0]["state"])
    assert "b" in s.controller.documents()[0]["state"]
    with pytest.raises(Rejected, match="rows after it were refused"):
        await s.controller.decide(200, SKIP, "", "here")
    s.sql("ALTER TABLE d.t ADD COLUMN b INT", "SHOW DATABASES")
    await s.controller.decide(200, RETRY, "", "here")
    await s.until(lambda: sorted(s.values("t")) == [210, 220])
    await s.finish(230)


async def test_a_ddl_that_touches_another_table_takes_it_in(stage: MakeStage) -> None:
    s = stage()
    await s.refuse(ddl(200, "ALTER TABLE t FROBNICATE b"))
    assert s.controller.divert(row(205, U)).tables
    rename = ddl(210, "RENAME TABLE `u` TO `w`, `t` TO `u`", "u", "w", "t", action=47)
    assert (await s.controller.judge(rename, 3)).action == KEPT
    assert not s.controller.divert(row(220, T, U)).tables
    stored = s.sql("SELECT `tables` FROM tidb_binlog.quarantine")
    assert '"w", 210' in stored[0][0]

    later = stage()  # after a kill the tables are known, and since when
    assert (await later.controller.judge(ddl(200, "ALTER TABLE t FROBNICATE b"), 1)).action == KEPT
    assert later.controller.divert(row(205, U)).tables
    elsewhere = ddl(207, "ALTER TABLE v ADD c INT", "v")
    assert (await later.controller.judge(elsewhere, 2)).action == PASSED
    assert (await later.controller.judge(rename, 3)).action == KEPT
    assert not later.controller.divert(row(220, T, U)).tables
    await later.controller.decide(200, SKIP, "", "here")
    await later.until(lambda: [name for (name,) in later.sql("SHOW TABLES FROM d")] == ["u", "w"])


async def test_when_the_disk_is_used_up_the_stream_waits_until_something_is_released(
    stage: MakeStage,
) -> None:
    s = stage(bytes_max=300)
    await s.refuse(ddl(200, "ALTER TABLE t FROBNICATE b"))
    calls: list[None] = []
    s.controller.on_change = lambda: calls.append(None)
    commit_ts = 200
    while s.controller.has_room:
        commit_ts += 1
        s.controller.divert(row(commit_ts, T))
    assert commit_ts < 220
    assert s.controller.document()["full"]
    calls.clear()
    await s.controller.decide(200, SKIP, "", "here")
    await s.until(lambda: bool(calls) and len(s.values("t")) == commit_ts - 200)
    await s.finish(commit_ts)
    assert s.controller.has_room


async def test_decisions_that_make_no_sense_are_refused(stage: MakeStage) -> None:
    s = stage()
    await s.refuse(ddl(200, "ALTER TABLE t FROBNICATE b"))
    for job_id, action, text, says in (
        (7, SKIP, "", "job 7 does not wait"),
        (200, "forget", "", "'forget' is no decision"),
        (200, REWRITE, "", "needs the text"),
        (200, RETRY, "DO 0", "takes no text"),
    ):
        with pytest.raises(Rejected, match=says):
            await s.controller.decide(job_id, action, text, "here")
    assert await s.controller.decisions() == []


async def test_nothing_may_wait(stage: MakeStage) -> None:
    s = stage(bytes_max=0)
    with pytest.raises(DownstreamError, match=r"DDL job 200 .* refused by the test"):
        await s.refuse(ddl(200, "ALTER TABLE t FROBNICATE b"))
    assert not s.controller.waits


async def test_what_another_program_went_on_from_is_given_up(stage: MakeStage) -> None:
    s = stage()
    await s.refuse(ddl(200, "ALTER TABLE t FROBNICATE b"))
    go = '{"consistent":false,"commitTS":400,"ts-map":{},"schema-version":3}'
    s.sql(f"UPDATE tidb_binlog.checkpoint SET checkPoint='{go}'", "SHOW DATABASES")
    later = stage()
    assert not later.controller.waits
    assert later.sql("SELECT COUNT(*) FROM tidb_binlog.quarantine") == [(0,)]


async def test_a_later_ddl_that_was_under_way_is_not_run_again(
    stage: MakeStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It swaps names: a second time would bring back what was. Killed before its end is stored."""
    s = stage()
    s.sql("INSERT INTO d.t VALUES (1)", "INSERT INTO d.u VALUES (2)", "COMMIT", "SHOW DATABASES")
    first = ddl(200, "ALTER TABLE t FROBNICATE b", "t", "u", "x")
    swap = replace(
        ddl(210, "RENAME TABLE t TO x, u TO t, x TO u", "t", "x", "u", action=47),
        before=(Tracked("d", "t", T.info.to_json()), Tracked("d", "u", U.info.to_json())),
        after=(Tracked("d", "u", T.info.to_json()), Tracked("d", "t", U.info.to_json())),
    )
    await s.refuse(first)
    assert (await s.controller.judge(swap, 2)).action == KEPT
    killed = asyncio.Event()
    finish = Release._finish

    async def dies(self: Release, queue: Any, of: Ddl, *rest: Any) -> None:
        if of.job_id == 210:
            killed.set()
            await asyncio.Event().wait()
        await finish(self, queue, of, *rest)

    with monkeypatch.context() as patched:
        patched.setattr(Release, "_finish", dies)
        await s.controller.decide(200, SKIP, "", "here")
        await asyncio.wait_for(killed.wait(), PATIENCE_S)
        s.task.cancel()
        await asyncio.wait([s.task])
    assert s.values("t") == [2]

    later = stage()
    assert (await later.controller.judge(first, 1)).action == PASSED
    await later.until(lambda: all(queue.state.has_caught_up for queue in later.controller._quarantine.queues))
    for at_ts in (205, 209):
        assert not later.controller.wants_pause(at_ts), "the queue ends with the intent in it"
    assert (await later.controller.judge(swap, 2)).action == KEPT
    await later.finish(220)
    assert (later.values("t"), later.values("u")) == ([2], [1])


async def test_where_rows_of_others_go_to_the_same_table_a_ddl_runs_while_they_do_not(
    stage: MakeStage,
) -> None:
    """Their lanes know the table as it was, and values that are converted must not come in meanwhile."""
    s = stage()
    other = Tracked("d", "v", info(3).to_json())
    of_shard = replace(
        ddl(200, "ALTER TABLE t FROBNICATE b"), shared=(other,), targets=(("d", "all"),), apart=True
    )
    await s.refuse(of_shard)
    s.controller.divert(row(210, T))
    await s.controller.decide(200, REWRITE, "ALTER TABLE d.t ADD COLUMN b INT", "here")
    await s.until(lambda: s.controller.wants_pause(220))
    columns = "SELECT column_name FROM information_schema.columns WHERE table_schema='d' AND table_name='t'"
    assert s.sql(columns) == [("a",)]
    await s.controller.pause(220)
    assert s.sql(columns) == [("a",), ("b",)]
    assert s.values("t") == [], "rows after it are not waited for"
    await s.finish(230)
    assert s.values("t") == [210]


async def test_what_was_released_stands_as_long_as_an_operator_has_paused(stage: MakeStage) -> None:
    s = stage()
    await s.refuse(ddl(200, "ALTER TABLE t FROBNICATE b"))
    s.controller.divert(row(210, T))
    s.held = True
    await s.controller.decide(200, REWRITE, "ALTER TABLE d.t ADD COLUMN b INT", "here")
    (queue,) = s.controller._quarantine.queues
    await s.until(lambda: queue.state is QueueState.WAITING)
    columns = "SELECT column_name FROM information_schema.columns WHERE table_schema='d' AND table_name='t'"
    assert (s.sql(columns), s.values("t")) == ([("a",)], [])
    s.held = False
    s.controller.try_again()
    assert queue.state is QueueState.READY, "at once"
    await s.finish(220)
    assert (s.sql(columns), s.values("t")) == ([("a",), ("b",)], [210])


async def test_what_was_dropped_before_a_ddl_that_waits_is_kept_for_it(stage: MakeStage) -> None:
    """A FLASHBACK that waits brings back a table that was dropped long ago by the time of the stream."""
    s, clock, purged = stage(), ManualClock(), list[int]()
    upkeep = CheckpointUpkeep(s.keeper, purged.append, clock)
    await s.refuse(ddl(200, "ALTER TABLE t FROBNICATE b"))
    await s.keeper.save(900)
    clock.advance(PURGE_S)
    await upkeep.run_due()
    await s.controller.decide(200, SKIP, "", "here")
    await s.finish(900)
    clock.advance(PURGE_S)
    await upkeep.run_due()
    assert purged == [199, 900]
