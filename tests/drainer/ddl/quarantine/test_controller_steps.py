"""Controller of the quarantine, step by step: what is durable before the stream goes on, and what is told."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from drainer.ddl.policy import Policy, Ruling
from drainer.ddl.quarantine import controller as controller_module
from drainer.ddl.quarantine.controller import (
    CLOSE_S,
    DECISIONS_SHOWN,
    KEPT,
    PASSED,
    RETRY_S,
    QuarantineController,
)
from drainer.ddl.quarantine.entry import LOADS, RETRY, Decision, Entry, Floor
from drainer.ddl.quarantine.load_entry import LoadAsked
from drainer.ddl.quarantine.log import QuarantineLog
from drainer.ddl.quarantine.queue_state import QueueState
from drainer.ddl.quarantine.release import entry_of
from drainer.ddl.quarantine.store import Decided
from drainer.ddl.quarantine.waiting_tables import Quarantine, Queue
from drainer.ddl.rules import APPLY, SKIP, parse
from drainer.mysql.rows.change import Position
from drainer.txn import Ddl, Tracked
from tests.drainer.ddl.quarantine.parts import BEFORE, DDL, NOW_MS, RULES, Parts, row
from tests.drainer.ddl.quarantine.stage import NoCollations, T, U, ddl
from tests.fakes.virtual_time import passes, run
from tidb_binlog.clock import ManualClock
from tidb_binlog.errors import Conflict, DownstreamError, Rejected, Unavailable

NO_SPACE = "no space for rows that wait: the stream waits for a decision"
SHARED = replace(DDL, targets=(("d", "all"),), shared=(Tracked("d", "u", U.info.to_json()),), apart=True)
OF_U = ddl(20, "ALTER TABLE u ADD b INT", "u")


class Desk:
    """A controller, and what it told."""

    def __init__(
        self,
        path: Path,
        *entries: Entry,
        rules: Any = (),
        bytes_max: int = 1 << 20,
        highest_ts: int = 0,
        **answers: Any,
    ) -> None:
        self.parts = Parts(**answers)
        self.quarantine = Quarantine(entries, highest_ts)
        self.logged: list[Ddl] = []
        self.changed = 0
        self.controller = QuarantineController(
            cast(Any, self.parts),
            49,
            self.quarantine,
            NoCollations(),
            self.parts.dependencies,
            Policy(parse(rules)),
            str(path),
            bytes_max,
            on_change=self.note_change,
            log_kept=self.log_kept,
        )
        self.said = self.parts.said

    def note_change(self) -> None:
        self.changed += 1

    async def log_kept(self, ddl: Ddl) -> None:
        self.logged.append(ddl)
        self.said.append("logged")

    async def refuse(self, ddl: Ddl = DDL) -> Queue:
        await self.controller.refused(ddl, 3, BEFORE, "refused")
        queue = self.quarantine.queue_of(ddl.job_id)
        assert queue is not None
        return queue

    def take(self) -> list[Any]:
        said = list(self.said)
        self.said.clear()
        return said

    @property
    def queue(self) -> Queue:
        (queue,) = self.quarantine.queues
        return queue

    @property
    def entry(self) -> Entry:
        (entry,) = self.quarantine.entries
        return entry


def stored(ts: int, **more: Any) -> Any:
    return ("stores", ("lanes_at", ts), *more.items())


# -- a DDL of the stream -----------------------------------------------------------------------------


async def test_what_concerns_nothing_that_waits_is_ruled_on(tmp_path: Path) -> None:
    desk = Desk(tmp_path, rules=[{"kind": "add column", "tbl-name": "u", "action": "stop"}], highest_ts=15)
    assert (await desk.controller.judge(DDL, 3)).action == PASSED, "before the start"
    late = replace(DDL, commit_ts=16)
    assert (await desk.controller.judge(late, 3)).action == APPLY
    assert await desk.controller.judge(replace(late, skip="not here"), 3) == Ruling(SKIP, "not here")
    with pytest.raises(DownstreamError, match="DDL job 20 at commit_ts 20 stops the drainer: ddl-rule 1"):
        await desk.controller.judge(OF_U, 3)
    assert (desk.said, desk.controller.waits, desk.controller.floor) == ([], False, None)


async def test_a_refused_ddl_is_durable_with_the_lanes_after_it(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    queue = await desk.refuse()
    entry = entry_of(DDL, 3, "refused", BEFORE, ManualClock())
    assert desk.take() == [stored(10, clear_intent=True), ("put", entry)]
    assert (desk.controller.waits, desk.controller.floor) == (True, Floor(9, 3))
    assert desk.controller.waits_for("d", "T")
    assert not desk.controller.waits_for("d", "u")
    assert queue.state is QueueState.WAITING
    assert desk.controller.documents()[0]["kept_bytes"] > 0


async def test_a_ddl_of_a_table_that_waits_is_kept_after_it(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    await desk.refuse()
    desk.take()
    second = replace(ddl(12, "ALTER TABLE t ADD c INT"), tables=(("d", "t"), ("d", "u")))
    assert await desk.controller.judge(second, 4) == Ruling(KEPT, "its tables wait for DDL job 10")
    assert desk.take() == ["logged", stored(12), ("put_tables", desk.entry)]
    assert desk.entry.tables == {("d", "t"): 10, ("d", "u"): 12}
    assert desk.queue.state is QueueState.READY, "release may come further"
    assert await desk.controller.judge(ddl(13, "ALTER TABLE t ADD d INT"), 4)
    assert desk.take() == ["logged"], "no table came in"


async def test_two_queues_that_a_ddl_joins_are_read_as_one(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    await desk.refuse()
    await desk.refuse(OF_U)
    desk.controller.divert(row(21, T))
    desk.controller.divert(row(22, U))
    desk.take()
    both = replace(ddl(30, "RENAME TABLE", "t", "u"), after=())
    async with desk.controller._releasing:
        judging = asyncio.create_task(desk.controller.judge(both, 3))
        for _ in range(9):
            await asyncio.sleep(0)
        assert not judging.done(), "release is at work on one of them"
        assert len(desk.quarantine.queues) == 2
    assert (await judging).action == KEPT
    (kept,) = desk.controller._logs.values()
    cursor = kept.cursor()
    assert [item.commit_ts for item in iter(cursor.next, None)] == [10, 20, 21, 22, 30]
    cursor.close()


async def test_release_may_reach_the_end_while_a_ddl_is_being_kept(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    queue = await desk.refuse()

    async def ends(_: Ddl) -> None:
        queue.state = QueueState.CAUGHT_UP

    desk.controller._log_kept = ends
    await desk.controller.judge(ddl(12, "ALTER TABLE t ADD c INT"), 4)
    assert queue.state is QueueState.READY


async def test_a_ddl_that_waits_is_not_passed_over_for_a_filter_of_now(tmp_path: Path) -> None:
    desk = Desk(tmp_path, entry_of(DDL, 3, "refused", BEFORE, ManualClock()), highest_ts=30)
    assert (await desk.controller.judge(replace(DDL, skip="left out"), 3)).action == KEPT


async def test_after_a_start_what_waited_comes_again(tmp_path: Path) -> None:
    entry = replace(entry_of(DDL, 3, "refused", BEFORE, ManualClock()), position=Position(12))
    desk = Desk(tmp_path, entry, highest_ts=30)
    assert (await desk.controller.judge(DDL, 3)) == Ruling(PASSED, "done before the last stop")
    assert (await desk.controller.judge(ddl(13, "ALTER TABLE t"), 3)) == Ruling(KEPT, "its tables catch up")
    assert desk.take() == ["logged"]


async def test_where_nothing_may_wait_a_refusal_stops_the_drainer(tmp_path: Path) -> None:
    desk = Desk(tmp_path, bytes_max=0)
    with pytest.raises(DownstreamError, match="DDL job 10 at commit_ts 10: refused"):
        await desk.refuse()
    assert not desk.controller.may_wait
    assert (desk.said, desk.controller.waits) == ([], False)
    assert desk.controller.has_room


async def test_what_takes_long_runs_beside_the_stream(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    await desk.controller.run_beside(DDL, 3, "9 rows")
    decision = Decision(RETRY, "", 50)
    entry = entry_of(DDL, 3, "9 rows", {}, ManualClock()).decided(decision)
    decided = Decided(50, 10, NOW_MS, "drainer", RETRY, "")
    assert desk.take() == [stored(10, clear_intent=True), ("put", entry), ("decided", decided)]
    assert desk.queue.state is QueueState.READY


# -- rows of the stream ------------------------------------------------------------------------------


async def test_rows_of_what_waits_are_kept_and_others_go_on(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    before = row(9, T, U)
    assert desk.controller.divert(before) is before
    await desk.refuse()
    rest = desk.controller.divert(row(11, T, U))
    assert [events.table for events in rest.tables] == [U]
    assert desk.queue.state is QueueState.WAITING, "a decision is missing"
    desk.quarantine.decide(10, Decision(SKIP))
    desk.controller.divert(row(12, U))
    assert desk.queue.state is QueueState.WAITING
    desk.controller.divert(row(13, T))
    assert desk.queue.state is QueueState.READY


async def test_when_the_disk_is_used_up_that_is_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    desk = Desk(tmp_path, bytes_max=60)
    await desk.refuse()
    desk.controller.divert(row(11, T))
    with caplog.at_level(logging.WARNING):
        assert not desk.controller.has_room
        assert not desk.controller.has_room
    assert [record.message for record in caplog.records].count(NO_SPACE) == 1
    assert desk.controller.document()["full"]
    desk.controller._logs[desk.queue.number].remove()
    assert desk.controller.has_room
    desk.controller.divert(row(12, T))
    desk.controller.divert(row(13, T))
    with caplog.at_level(logging.WARNING):
        assert not desk.controller.has_room
    assert [record.message for record in caplog.records].count(NO_SPACE) == 2, "it is news again"


# -- decisions -----------------------------------------------------------------------------------------


async def test_a_decision_is_durable_before_anything_is_done_about_it(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    queue = await desk.refuse()
    desk.take()
    states: list[QueueState] = []
    desk.parts.answers["put_decision"] = None
    together = desk.parts.together

    def noted(work: Callable[[Any], None], **more: Any) -> None:
        states.append(queue.state)
        together(work, **more)

    desk.parts.together = noted  # type: ignore[method-assign]
    document = await desk.controller.decide(10, "rewrite", "ALTER x", "there")
    decision = Decision("rewrite", "ALTER x", 50)
    assert desk.take() == [
        "stores",
        ("put_decision", desk.entry),
        ("decided", Decided(50, 10, NOW_MS, "there", "rewrite", "ALTER x")),
    ]
    assert (desk.entry.decision, states, queue.state) == (decision, [QueueState.DECIDING], QueueState.READY)
    assert (document["decision"], document["text"], document["state"]) == ("rewrite", "ALTER x", "decided")


async def test_what_could_not_be_stored_is_not_decided(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    queue = await desk.refuse()
    desk.parts.answers["put_decision"] = Unavailable("away")
    with pytest.raises(Unavailable):
        await desk.controller.decide(10, SKIP, "", "there")
    assert (desk.entry.decision, queue.state) == (None, QueueState.READY)
    with pytest.raises(Rejected, match="DDL job 11 does not wait"):
        await desk.controller.decide(11, SKIP, "", "there")


@pytest.mark.parametrize("doing", ["", "running"])
async def test_while_release_only_looks_a_decision_waits_for_it(tmp_path: Path, doing: str) -> None:
    desk = Desk(tmp_path)
    queue = await desk.refuse()
    queue.state = QueueState.RELEASING
    desk.controller._release.doing = doing
    await desk.controller._releasing.acquire()
    deciding = asyncio.create_task(desk.controller.decide(10, SKIP, "", "there"))
    for _ in range(9):
        await asyncio.sleep(0)
    assert deciding.done() is bool(doing)
    queue.state = QueueState.WAITING
    desk.controller._releasing.release()
    if doing:
        with pytest.raises(Conflict, match="is being carried out"):
            await deciding
        assert "state" in desk.controller.documents()[0]
    else:
        assert (await deciding)["decision"] == SKIP


async def test_other_rules_are_for_what_waits_too(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    queue = await desk.refuse()
    desk.controller.set_rules(parse(RULES))
    assert queue.state is QueueState.READY
    assert (await desk.controller.judge(OF_U, 3)).action == SKIP
    assert [rule["action"] for rule in desk.controller.rules()] == [SKIP]
    assert desk.controller.explain(5, [("d", "u")], "ALTER").action == SKIP


async def test_an_operator_reads_what_waits_in_the_order_of_the_stream(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    await desk.refuse(OF_U)
    queue = await desk.refuse()
    assert [document["job_id"] for document in desk.controller.documents()] == [10, 20]
    assert desk.controller.tables() == ("d.t", "d.u")
    assert desk.controller.document()["held_at"] == 9
    desk.controller._release.doing = "running"
    queue.state = QueueState.RELEASING
    assert [document["state"] for document in desk.controller.documents()] == [
        "running",
        "waiting for a decision",
    ]
    empty = Desk(tmp_path / "other")
    assert empty.controller.document() == {"waiting": [], "held_at": 0, "kept_bytes": 0, "full": False}
    empty.parts.answers["decisions"] = [[Decided(1, 2, 3, "", SKIP)]]
    assert await empty.controller.decisions() == [Decided(1, 2, 3, "", SKIP)]
    assert empty.take() == ["stores", ("decisions", DECISIONS_SHOWN)]


# -- release -------------------------------------------------------------------------------------------


def in_time(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    run(work())


def test_what_is_decided_is_released_and_its_tables_come_back_at_a_drained_point(tmp_path: Path) -> None:
    async def main() -> None:
        desk = Desk(tmp_path)
        await desk.refuse()
        desk.controller.divert(row(11, T))
        running = asyncio.create_task(desk.controller.run())
        await passes(1.0)
        assert not desk.controller.wants_pause(11)
        await desk.controller.decide(10, SKIP, "", "there")
        desk.take()
        await passes(1.0)
        assert desk.take() == [
            "stores", ("advance", [10], Position(10)), ("outcome", 50, "skipped: decision 50"),
            "lanes", 11, ("end", True),
        ]  # fmt: skip
        assert desk.queue.state is QueueState.CAUGHT_UP
        assert not desk.controller.wants_pause(10)
        assert desk.controller.wants_pause(11)
        assert desk.controller.stream_ts == 11
        changed = desk.changed
        await desk.controller.pause(11)
        assert desk.take() == [("stores", 11, 11), ("remove", [10])]
        assert (desk.controller.waits, desk.controller.document()["kept_bytes"]) == (False, 0)
        assert list((tmp_path / "quarantine").iterdir()) == []
        assert desk.controller._directory.tables == []
        assert desk.changed > changed
        desk.controller.stop()
        await running

    in_time(main)


def test_what_is_over_is_not_forgotten_while_something_waits(tmp_path: Path) -> None:
    async def main() -> None:
        desk = Desk(tmp_path)
        await desk.refuse()
        await desk.refuse(OF_U)
        desk.controller.divert(row(21, T))
        desk.controller.divert(row(21, U))
        await desk.controller.decide(10, SKIP, "", "there")
        await desk.controller.finish(21)
        assert [entry.job_id for entry in desk.quarantine.entries] == [20]
        assert desk.controller._directory.tables == [T, U]

    in_time(main)


def test_what_follows_a_queue_at_its_end_is_released_at_a_drained_point_alone(tmp_path: Path) -> None:
    async def main() -> None:
        desk = Desk(tmp_path)
        await desk.refuse()
        await desk.controller.decide(10, SKIP, "", "there")
        running = asyncio.create_task(desk.controller.run())
        await passes(1.0)
        desk.controller.divert(row(11, T))
        await passes(1.0)
        assert 11 not in desk.take()
        assert desk.controller.wants_pause(11)
        async with desk.controller._releasing:
            assert not desk.controller.wants_pause(11)
        await desk.controller.pause(11)
        assert 11 in desk.take()
        assert not desk.controller.waits
        desk.controller.stop()
        await running

    in_time(main)


def test_at_the_end_what_is_decided_is_done_and_the_rest_waits(tmp_path: Path) -> None:
    async def main() -> None:
        desk = Desk(tmp_path)
        await desk.refuse()
        await desk.refuse(OF_U)
        desk.controller.divert(row(21, T, U))
        await desk.controller.decide(20, SKIP, "", "there")
        desk.take()
        await desk.controller.finish(22)
        said = desk.take()
        assert said[-2:] == [("stores", 22, 22), ("remove", [20])]
        assert [document["job_id"] for document in desk.controller.documents()] == [10]
        assert desk.controller.stream_ts == 22

    in_time(main)


async def test_at_the_end_what_was_done_by_hand_is_found(tmp_path: Path) -> None:
    desk = Desk(tmp_path, before={}, already_done=True)
    await desk.refuse()
    await desk.controller.finish(11)
    assert not desk.controller.waits


async def test_at_the_end_ddl_of_shared_tables_run_one_after_the_other(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    await desk.refuse(SHARED)
    desk.controller.divert(row(11, T))
    second = replace(SHARED, commit_ts=12, job_id=12)
    assert (await desk.controller.judge(second, 3)).action == KEPT
    await desk.controller.decide(10, RETRY, "", "there")
    desk.take()
    await desk.controller.finish(13)
    said = desk.take()
    assert [said.index(step) for step in (("run", SHARED), 11, ("run", second))] == sorted(
        said.index(step) for step in (("run", SHARED), 11, ("run", second))
    )
    assert not desk.controller.waits


def test_a_ddl_of_a_shared_table_has_the_stream_pause(tmp_path: Path) -> None:
    async def main() -> None:
        desk = Desk(tmp_path)
        await desk.refuse(SHARED)
        running = asyncio.create_task(desk.controller.run())
        await desk.controller.decide(10, RETRY, "", "there")
        await passes(1.0)
        assert ("run", SHARED) not in desk.take()
        assert desk.controller.wants_pause(11)
        await desk.controller.pause(11)
        assert ("run", SHARED) in desk.take()
        desk.controller.stop()
        await running

    in_time(main)


def test_there_is_room_as_soon_as_something_is_applied(tmp_path: Path) -> None:
    async def main() -> None:
        desk = Desk(tmp_path)
        desk.parts.held = desk.parts.full = True
        await desk.refuse()
        for ts in (11, 12):
            desk.controller.divert(row(ts, T))
        running = asyncio.create_task(desk.controller.run())
        await desk.controller.decide(10, SKIP, "", "there")
        await passes(1.0)
        changed = desk.changed
        desk.parts.commit()
        await passes(1.0)
        assert desk.queue.state.is_releasing
        assert desk.changed > changed
        desk.parts.commit()
        desk.controller.stop()
        await running

    in_time(main)


def test_what_is_kept_while_release_ends_is_taken_at_once(tmp_path: Path) -> None:
    async def main() -> None:
        desk = Desk(tmp_path)
        end = desk.parts.end

        async def slowly(*, drained: bool) -> None:
            await passes(1.0)
            await end(drained=drained)

        desk.parts.end = slowly  # type: ignore[method-assign]
        await desk.refuse()
        desk.controller.divert(row(11, T))
        running = asyncio.create_task(desk.controller.run())
        await desk.controller.decide(10, SKIP, "", "there")
        await passes(0.5)
        assert desk.queue.state is QueueState.ENDING
        desk.controller.divert(row(12, T))
        await passes(1.0)
        assert 12 in desk.take()
        await passes(1.0)
        desk.controller.stop()
        await running

    in_time(main)


def test_a_disk_that_has_room_again_is_noticed_though_nothing_is_released(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flushed: list[QuarantineLog] = []

    async def main() -> None:
        desk = Desk(tmp_path)
        queue = await desk.refuse()
        queue.state, changed = QueueState.HALTED, desk.changed
        monkeypatch.setattr(QuarantineLog, "flush", lambda kept: not flushed.append(kept))
        running = asyncio.create_task(desk.controller.run())
        await passes(RETRY_S + 1.0)
        assert (desk.changed, len(flushed)) == (changed + 1, 1)
        desk.controller.stop()
        await running

    in_time(main)


def test_every_while_it_looks_at_what_was_done_by_hand(tmp_path: Path) -> None:
    async def main() -> None:
        desk = Desk(tmp_path, before={}, already_done=[False, False, True])
        await desk.refuse()
        running = asyncio.create_task(desk.controller.run())
        await passes(RETRY_S - 1.0)
        assert ("already_done", DDL) not in desk.said
        desk.controller.set_rules(())
        await passes(0.5)
        desk.controller.set_rules(())
        await passes(0.4)
        assert desk.said.count(("already_done", DDL)) == 2
        changed = desk.changed
        await passes(0.2)
        assert desk.said.count(("already_done", DDL)) == 3
        assert desk.changed > changed
        assert desk.queue.state is QueueState.CAUGHT_UP
        desk.controller.stop()
        await running

    in_time(main)


def test_it_ends_when_it_is_told_to_and_not_later_than_its_limit(tmp_path: Path) -> None:
    async def main() -> None:
        desk = Desk(tmp_path)
        await desk.refuse()
        running = asyncio.create_task(desk.controller.run())
        await passes(1.0)
        desk.controller.stop()
        await asyncio.wait_for(running, 0.1)
        began_s, closed = asyncio.get_running_loop().time(), list[bool]()
        desk.controller._release.close = lambda: closed.append(True)  # type: ignore[method-assign]
        async with desk.controller._releasing:
            await desk.controller.close()
        assert asyncio.get_running_loop().time() - began_s == CLOSE_S
        assert list((tmp_path / "quarantine").iterdir()) == []
        assert closed == [True]

    in_time(main)


async def test_a_queue_whose_decision_is_being_stored_is_not_released(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    queue = await desk.refuse()
    desk.take()
    queue.state, queue.wants_pause = QueueState.DECIDING, True
    await desk.controller.pause(20)
    assert (desk.take(), queue.wants_pause, queue.state) == ([], False, QueueState.DECIDING)


# -- tables that join ------------------------------------------------------------------------------------


def asked(*names: str, said: list[Any] | None = None, rate_rows: int = 0) -> LoadAsked:
    said = [] if said is None else said
    tables = frozenset(("d", name) for name in names)
    return LoadAsked(
        tables,
        frozenset({("d", "t"), ("d", "u")}) - tables,
        lambda _: said.append("also"),
        "there",
        rate_rows,
    )


async def test_a_load_begins_between_two_transactions_and_is_durable(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    await desk.refuse()
    desk.controller.divert(row(11, T))
    desk.take()
    assert not desk.controller.wants_load
    assert desk.controller.loading is None
    asking = asyncio.create_task(desk.controller.ask_load(asked("t", said=desk.said, rate_rows=9), 60.0))
    await asyncio.sleep(0)
    assert desk.controller.wants_load
    assert not desk.controller.load_begun.is_set()
    await desk.controller.begin_load(12)
    entry = await asking
    assert (entry.job_id, entry.rate_rows, entry.floor) == (LOADS + 50, 9, Floor(9, 3))
    assert desk.take() == [
        ("stores", 12, 12), "also", ("put", entry, [10]),
        ("decided", Decided(50, LOADS + 50, NOW_MS, "there", "load")),
    ]  # fmt: skip
    assert desk.controller.load_begun.is_set()
    assert desk.controller.loading is entry
    assert not desk.controller.wants_load
    assert (await desk.controller.ask_load(asked("t"), 60.0)) is entry
    with pytest.raises(Conflict, match="rows of other tables are loaded"):
        await desk.controller.ask_load(asked("u"), 60.0)
    assert desk.controller.documents()[0]["kept_bytes"] > 0, "what waited is in its log"
    desk.controller.load_says = lambda: "half of it"
    assert desk.controller.documents()[0]["state"] == "half of it"
    await desk.controller.begin_load(13)
    assert desk.take() == []


async def test_where_nothing_may_wait_nothing_joins(tmp_path: Path) -> None:
    desk = Desk(tmp_path, bytes_max=0)
    with pytest.raises(Rejected, match="quarantine-size is 0"):
        await desk.controller.ask_load(asked("t"), 60.0)


async def test_of_several_who_ask_each_gets_the_one_load(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    tasks = [asyncio.create_task(desk.controller.ask_load(asked(*names), 60.0)) for names in ("tu", "t")]
    await asyncio.sleep(0)
    again = asyncio.create_task(desk.controller.ask_load(asked("t", "u"), 60.0))
    await asyncio.sleep(0)
    with pytest.raises(Conflict):
        await desk.controller.ask_load(asked("v"), 60.0)
    await desk.controller.begin_load(12)
    first, second, same = await asyncio.gather(*tasks, again)
    assert first is second is same
    assert first.tables == {("d", "t"): 13, ("d", "u"): 13}


def test_who_finds_no_place_is_told_after_a_while_and_nothing_begins(tmp_path: Path) -> None:
    async def main() -> None:
        desk = Desk(tmp_path)
        with pytest.raises(Rejected, match="between two transactions within 5 s"):
            await desk.controller.ask_load(asked("t"), 5.0)
        assert not desk.controller.wants_load
        await desk.controller.begin_load(12)
        assert desk.said == []
        asking = asyncio.create_task(desk.controller.ask_load(asked("t"), 5.0))
        await passes(1.0)
        async with desk.controller._releasing:
            assert not desk.controller.wants_load, "release is at work"
            await desk.controller.begin_load(12)
        assert desk.said == []
        assert desk.controller.wants_load
        await desk.controller.begin_load(12)
        assert (await asking).is_load

    in_time(main)


def test_a_load_that_is_being_stored_is_waited_for(tmp_path: Path) -> None:
    async def main() -> None:
        desk = Desk(tmp_path)
        together = desk.parts.keeper.together

        async def slow(*of: Any, **more: Any) -> None:
            await passes(9.0)
            assert not desk.controller.wants_load
            await desk.controller.begin_load(13)
            await together(*of, **more)

        desk.parts.keeper.together = slow  # type: ignore[method-assign]
        asking = asyncio.create_task(desk.controller.ask_load(asked("t"), 5.0))
        await passes(1.0)
        await desk.controller.begin_load(12)
        assert (await asking).commit_ts == 13
        assert [said[0] for said in desk.take()] == ["stores", "put", "decided"]

    in_time(main)


@pytest.mark.parametrize(
    ("error", "told"), [(Conflict("decided"), Conflict), (RuntimeError("unexpected"), Rejected)]
)
async def test_who_asks_hears_why_it_did_not_begin(
    tmp_path: Path, error: Exception, told: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = Desk(tmp_path)

    def fails(*_: Any) -> Entry:
        raise error

    monkeypatch.setattr(controller_module, "load_entry", fails)
    asking = asyncio.create_task(desk.controller.ask_load(asked("t"), 60.0))
    await asyncio.sleep(0)
    if told is Rejected:
        with pytest.raises(RuntimeError, match="unexpected"):
            await desk.controller.begin_load(12)
    else:
        await desk.controller.begin_load(12)
    with pytest.raises(told):
        await asking
    assert not desk.controller.wants_load
    monkeypatch.undo()
    again = asyncio.create_task(desk.controller.ask_load(asked("t"), 60.0))
    await asyncio.sleep(0)
    await desk.controller.begin_load(12)
    assert (await again).is_load


async def joining(path: Path) -> Desk:
    desk = Desk(path)
    asking = asyncio.create_task(desk.controller.ask_load(asked("t"), 60.0))
    await asyncio.sleep(0)
    await desk.controller.begin_load(12)
    await asking
    desk.controller.divert(row(14, T))
    desk.take()
    return desk


async def test_release_goes_on_from_the_rows_that_were_loaded(tmp_path: Path) -> None:
    desk = await joining(tmp_path)
    assert desk.controller.stream_ts == 14
    assert desk.controller.below(15) is None
    below = desk.controller.below(14)
    assert below is not None
    assert below.jobs == (LOADS + 50,)
    changed = desk.changed
    await desk.controller.finish(14)
    assert desk.take() == [], "nothing before the rows are there"
    await desk.controller.loaded(below.jobs, 14, lambda _: desk.said.append("also"))
    assert desk.take() == ["stores", "also", ("advance", below.jobs, Position(14))]
    assert (desk.entry.position, desk.controller.loading) == (Position(14), None)
    assert desk.changed > changed
    assert desk.controller.documents()[0]["kept_bytes"] == 0
    assert desk.queue.state is QueueState.READY
    await desk.controller.finish(14)
    assert not desk.controller.waits


@pytest.mark.parametrize("touched", [True, False])
async def test_a_load_that_is_given_up_goes_on_with_what_waited_if_it_wrote_nothing(
    tmp_path: Path, touched: bool
) -> None:
    desk = await joining(tmp_path)
    entry = desk.entry
    assert await desk.controller.give_up_load(entry, lambda _: touched, "there") is touched
    decided = ("decided", Decided(51, entry.job_id, NOW_MS, "there", "give up"))
    untouched = [] if touched else [("put_commit_ts", entry.job_id, 12)]
    assert desk.take() == ["stores", *untouched, decided]
    assert (desk.entry.commit_ts, desk.entry.done) == ((13, False) if touched else (12, True))
    assert desk.queue.state is (QueueState.WAITING if touched else QueueState.READY)
