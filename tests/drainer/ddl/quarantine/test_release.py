"""Release, step by step: what is stored before what is done, and where it stops."""

from __future__ import annotations

import asyncio
import itertools
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from drainer.checkpoint.store import SIDE_LANES
from drainer.ddl.policy import Policy
from drainer.ddl.quarantine.entry import LOADS, RETRY, ROWS, SAME_KEY, SHARED, Decision, Entry, Floor
from drainer.ddl.quarantine.log import Directory, Frozen, KeptDdl, QuarantineLog
from drainer.ddl.quarantine.queue_state import QueueEvent, QueueState
from drainer.ddl.quarantine.release import Release, entry_of, may_repeat
from drainer.ddl.quarantine.store import Decided
from drainer.ddl.quarantine.waiting_tables import Quarantine
from drainer.ddl.rules import REWRITE, SKIP, parse
from drainer.ddl.run.execution import Ran
from drainer.mysql.rows.causality import Spread
from drainer.mysql.rows.change import Position
from drainer.mysql.rows.table_target import target_of
from drainer.txn import Ddl, Tracked, Transaction
from tests.drainer.ddl.quarantine.parts import BEFORE, DDL, INTENT, NOW_MS, Parts, row
from tests.drainer.ddl.quarantine.stage import NoCollations, T, U, ddl
from tests.fakes.virtual_time import run
from tests.waiting import settle, until
from tidb_binlog.clock import ManualClock
from tidb_binlog.errors import DownstreamError

RULES = [{"kind": "add column", "action": "skip"}]


class Stage:
    """A queue whose first DDL waits, a log of what came after it, and release."""

    def __init__(
        self,
        path: Path,
        parts: Parts,
        *kept: Transaction | Ddl,
        entry: Entry | None = None,
        decision: Decision | None = None,
        rules: Any = (),
        in_the_way: str = "",
        first: Ddl = DDL,
    ) -> None:
        self.parts = parts
        self.quarantine = Quarantine()
        entry = entry or entry_of(first, 3, "refused", BEFORE, ManualClock())
        if decision:
            entry = entry.decided(decision)
        self.queue = self.quarantine.begin(entry, first)
        self.directory = Directory(path, 1 << 20)
        self.kept = QuarantineLog(self.directory)
        self.freed = 0
        self.policy = Policy(parse(rules))
        if not (entry.is_rows or entry.is_load):
            self.keep(first)
        for item in kept:
            self.keep(item)
        dependencies = parts.dependencies(self.note_freed, itertools.count(50), in_the_way)
        self.release = Release(self.quarantine, dependencies, lambda: self.policy)

    def note_freed(self) -> None:
        self.freed += 1

    def keep(self, item: Transaction | Ddl) -> None:
        if isinstance(item, Transaction):
            _, parts = self.quarantine.divert(item)
            self.kept.append(parts[0].part)
            return
        if item is not self.queue.ddls[0]:
            self.quarantine.classify(item)
        self.kept.append(KeptDdl(item, 3, Frozen(NoCollations(), item, lambda *name: name)))

    async def run(self, *, paused: bool = False) -> list[Any]:
        """What was said, without what each DDL begins with and ends with."""
        self.queue.on(QueueEvent.STARTED)
        self.parts.said.clear()
        await self.release.run(self.queue, self.kept, paused=paused)
        self.queue.on(QueueEvent.STOPPED)
        assert self.release.doing == ""
        return self.parts.said

    @property
    def entry(self) -> Entry:
        return next(iter(self.queue.entries.values()))

    def close(self) -> None:
        self.release.close()
        self.kept.remove()


RETRIED = Decision(RETRY, "", 5)


def over(outcome: str, *, number: int | None = 5, jobs: tuple[int, ...] = (10,), ts: int = 10) -> list[Any]:
    told = [] if number is None else [("outcome", number, outcome)]
    return ["stores", ("advance", list(jobs), Position(ts)), *told]


async def test_a_ddl_that_is_decided_runs_and_then_what_was_kept_after_it(tmp_path: Path) -> None:
    stage = Stage(tmp_path, Parts(), row(11), row(12, T, rows=2), decision=RETRIED)
    said = await stage.run()
    intended = replace(stage.entry, intent_ts=10, intent=BEFORE, position=Position(9))
    assert said == [
        ("before", DDL), "stores", ("put_intent", intended),
        ("run", DDL), *over("ran: ALTER"), "lanes", 11, 12, ("end", True),
    ]  # fmt: skip
    assert stage.queue.state is QueueState.CAUGHT_UP
    assert (stage.entry.position, stage.entry.intent_ts) == (Position(12), 0)
    (table,) = stage.parts.tables
    assert (table.schema, table.cluster_id, table.epoch) == ("s", 1, 7)
    assert table.entries == [(10, Position(10))]
    stage.close()


async def test_a_ddl_comes_after_all_rows_before_it_and_lanes_look_at_tables_anew(tmp_path: Path) -> None:
    second = ddl(12, "ALTER TABLE t ADD c INT")
    stage = Stage(tmp_path, Parts(), row(11), second, row(13), decision=RETRIED, rules=RULES)
    stage.parts.held = True
    running = asyncio.create_task(stage.run())
    await until(lambda: stage.parts.said[-1:] == [11], beside=[running])
    await settle()
    assert stage.parts.said[-1] == 11
    assert stage.entry.position == Position(10)
    assert stage.release.doing == "applying rows that waited, commit_ts 11"
    stage.policy = Policy()
    stage.parts.commit()
    await until(lambda: stage.parts.said[-1:] == [13], beside=[running])
    stage.parts.commit()
    said = await running
    at = said.index(11)
    position = replace(stage.entry, intent_ts=12, intent=BEFORE, position=Position(11))
    assert said[at + 1 :] == [
        ("before", second), "stores", ("put_intent", position), ("run", second),
        *over("", number=None, ts=12), "forget", 13, ("end", True),
    ]  # fmt: skip
    assert stage.parts.tables[0].committed.of(SIDE_LANES) == Position(12)
    assert stage.freed == 2
    stage.close()


@pytest.mark.parametrize(
    ("decision", "answers", "end", "reached"),
    [
        (Decision(SKIP, "", 5), {}, over("skipped: decision 5"), 10),
        (
            Decision(REWRITE, "ALTER x", 5), {"run": Ran(("a", "b"), ("a key",))},
            [("run", DDL, "ALTER x"), *over("ran: a ; b; missing downstream: a key")], 10,
        ),
        (
            RETRIED, {"run": DownstreamError("no"), "had_run": True},
            [("run", DDL), ("had_run", INTENT, DDL), *over("had run")], 10,
        ),
        (
            RETRIED, {"run": DownstreamError("no"), "had_run": False},
            [("run", DDL), ("had_run", INTENT, DDL), "again", "stores", ("outcome", 5, "refused: no")], 9,
        ),
        (
            RETRIED, {"run": DownstreamError("no"), "had_run": DownstreamError("away")},
            [("run", DDL), ("had_run", INTENT, DDL), "again", "stores", ("outcome", 5, "refused: no")], 9,
        ),
    ],
)  # fmt: skip
async def test_what_becomes_of_a_decision(
    tmp_path: Path, decision: Decision, answers: dict[str, Any], end: list[Any], reached: int
) -> None:
    stage = Stage(tmp_path, Parts(**answers), decision=decision)
    said = await stage.run()
    intent = [] if decision.action == SKIP else said[:3]
    assert [step if isinstance(step, str) else step[0] for step in intent] in (
        [],
        ["before", "stores", "put_intent"],
    )
    waits = entry_of(DDL, 3, "no", BEFORE, ManualClock())
    again = ["stores", ("put", replace(waits, tables=stage.entry.tables), [])]
    assert said[len(intent) :] == [step for one in end for step in (again if one == "again" else [one])]
    assert stage.entry.position == Position(reached)
    if reached == 9:
        assert (stage.entry.reason, stage.entry.decision, stage.entry.since_ms) == ("no", None, NOW_MS)
        assert stage.entry.before == BEFORE
        assert stage.queue.state is QueueState.WAITING
    stage.close()


@pytest.mark.parametrize(("had_run", "ran"), [(True, []), (False, [("run", DDL)])])
async def test_a_ddl_whose_intent_is_stored_is_looked_for_before_it_runs_again(
    tmp_path: Path, had_run: bool, ran: list[Any]
) -> None:
    entry = replace(entry_of(DDL, 3, "refused", {}, ManualClock()), intent_ts=10, intent=BEFORE)
    stage = Stage(tmp_path, Parts(had_run=had_run), entry=entry, decision=RETRIED)
    outcome = "had run before the last stop" if had_run else "ran: ALTER"
    assert await stage.run() == [("had_run", INTENT, DDL), *ran, *over(outcome)]
    stage.close()


async def test_what_cannot_be_looked_at_is_refused_without_a_shape(tmp_path: Path) -> None:
    stage = Stage(tmp_path, Parts(before=DownstreamError("away")), decision=RETRIED)
    assert (await stage.run())[0] == ("before", DDL)
    assert (stage.entry.reason, stage.entry.before) == ("away", {})
    stage.close()


@pytest.mark.parametrize(
    ("answers", "done", "said"),
    [
        ({"before": BEFORE}, False, [("before", DDL)]),
        ({"before": {}, "already_done": False}, False, [("before", DDL), ("already_done", DDL)]),
        ({"before": DownstreamError("away")}, False, [("before", DDL)]),
        (
            {"before": {}, "already_done": DownstreamError("away")},
            False,
            [("before", DDL), ("already_done", DDL)],
        ),
        ({"before": {}, "already_done": True}, True, [("before", DDL), ("already_done", DDL)]),
    ],
)
async def test_what_was_done_by_hand_is_found(
    tmp_path: Path, answers: dict[str, Any], done: bool, said: list[Any]
) -> None:
    stage = Stage(tmp_path, Parts(**answers), row(11))
    decided = Decided(50, 10, NOW_MS, "downstream", SKIP)
    end = [
        "stores",
        ("decided", decided),
        *over("downstream has it already", number=50),
        "lanes",
        11,
        ("end", True),
    ]
    assert await stage.run() == [*said, *(end if done else [])]
    assert stage.queue.state is (QueueState.CAUGHT_UP if done else QueueState.WAITING)
    assert not stage.queue.shards
    stage.close()


async def test_a_shape_that_nobody_looked_at_is_not_compared(tmp_path: Path) -> None:
    stage = Stage(tmp_path, Parts(), entry=entry_of(DDL, 3, "refused", {}, ManualClock()))
    assert await stage.run() == []
    stage.close()


@pytest.mark.parametrize("action", [SKIP, REWRITE])
async def test_a_rule_decides_each_once(tmp_path: Path, action: str) -> None:
    """One that is refused is not tried again, another text is."""
    text = {"text": "ALTER TABLE {db}.{table} ADD c INT"} if action == REWRITE else {}
    ran = "ALTER TABLE `d`.`t` ADD c INT" if action == REWRITE else ""
    stage = Stage(tmp_path, Parts(had_run=False), rules=[{"kind": "add column", "action": action, **text}])
    if action == REWRITE:
        stage.parts.answers["run"] = DownstreamError("no")
    said = await stage.run()
    decision = Decision(action, ran, 50)
    assert said[0] == "stores"
    assert (said[1][0], said[1][1].decision) == ("put_decision", decision)
    assert said[2] == ("decided", Decided(50, 10, NOW_MS, "rule 1", action, ran))
    if action == SKIP:
        assert said[3:] == over("skipped: decision 50", number=50)
    else:
        assert ("run", DDL, ran) in said
        assert said[-1] == ("outcome", 50, "refused: no")
        assert [one[0] for one in await stage.run()] == ["before"]
    stage.close()


async def test_a_rule_that_stops_keeps_what_comes_after_it_waiting(tmp_path: Path) -> None:
    second = ddl(12, "ALTER TABLE t ADD c INT")
    rules = [{"kind": "add column", "action": "stop"}]
    stage = Stage(tmp_path, Parts(), row(11), second, row(13), decision=RETRIED, rules=rules)
    said = await stage.run()
    assert list(stage.queue.entries) == [12], "one entry for all before it"
    assert (said[-3], said[-2][0], said[-2][2], said[-1]) == ("stores", "put", [10], ("end", True))
    assert stage.entry.reason.startswith("stopped by ddl-rule 1 ")
    assert stage.entry.position == Position(11)
    assert stage.entry.floor == Floor(11, 3)
    assert ("outcome", 5, "ran: ALTER") in said
    stage.close()


@pytest.mark.parametrize(
    ("second", "in_the_way", "reason"),
    [
        (replace(ddl(12, "ALTER"), refused="a key"), "", "a key"),
        (ddl(12, "ALTER"), "u has the column", "u has the column"),
    ],
)
async def test_what_rows_would_be_lost_by_waits_anew_unless_it_is_skipped(
    tmp_path: Path, second: Ddl, in_the_way: str, reason: str
) -> None:
    skipped = Decision(SKIP, "", 5)
    stage = Stage(tmp_path, Parts(), second, decision=skipped, in_the_way=in_the_way)
    await stage.run()
    assert (stage.entry.job_id, stage.entry.reason, stage.entry.before) == (12, reason, {})
    assert stage.queue.state is QueueState.WAITING
    stage.close()


async def test_what_waited_for_other_tables_runs_when_they_are_so_far(tmp_path: Path) -> None:
    entry = entry_of(DDL, 3, f"{SHARED} u", BEFORE, ManualClock())
    stage = Stage(tmp_path, Parts(), entry=entry)
    assert (await stage.run())[-3:] == [("run", DDL), *over("", number=None)]
    assert stage.queue.shards == ""
    waits = Stage(tmp_path, Parts(), entry=entry, in_the_way="u is behind")
    assert await waits.run() == [("before", DDL)]
    assert waits.queue.shards == "u is behind"
    stage.close()


@pytest.mark.parametrize("paused", [False, True])
async def test_a_ddl_of_a_shared_table_runs_while_rows_of_the_others_stand_still(
    tmp_path: Path, paused: bool
) -> None:
    shared = replace(DDL, targets=(("d", "all"),), shared=(Tracked("d", "u", U.info.to_json()),), apart=True)
    stage = Stage(tmp_path, Parts(), row(11), decision=RETRIED, first=shared)
    stage.queue.wants_pause = True
    said = await stage.run(paused=paused)
    ran = ("run", shared) in said
    assert (ran, stage.queue.wants_pause) == (paused, not paused)
    assert 11 not in said, "what is after it waits until the others go on"
    assert stage.queue.state is (QueueState.READY if paused else QueueState.WAITING)
    assert 11 in await stage.run() or not paused
    stage.close()


async def test_a_ddl_of_a_shared_table_runs_at_once_where_all_of_its_target_wait(tmp_path: Path) -> None:
    shared = replace(DDL, targets=(("d", "all"),), shared=(Tracked("d", "u", U.info.to_json()),))
    other = Stage(tmp_path, Parts(), row(11), decision=RETRIED, first=shared)
    assert 11 in await other.run()
    assert not other.queue.wants_pause
    other.close()


async def test_a_large_transaction_is_taken_piece_by_piece(tmp_path: Path) -> None:
    pieces = row(11, rows=2, last=False), row(11, rows=3, first=2, last=False), row(11, rows=1, first=5)
    stage = Stage(tmp_path, Parts(), *pieces, decision=Decision(SKIP, "", 5))
    reached = list[tuple[int, bool]]()
    hand_over = stage.parts.hand_over

    def noted(upto_ts: int) -> None:
        reached.append((upto_ts, stage.release._reached == Position(11, 2)))
        hand_over(upto_ts)

    stage.parts.hand_over = noted  # type: ignore[method-assign]
    await stage.run()
    assert reached == [(10, True), (10, False), (11, False)]
    assert stage.entry.position == Position(11)
    stage.close()


async def test_what_release_had_applied_is_not_given_again(tmp_path: Path) -> None:
    entry = replace(entry_of(DDL, 3, "x", {}, ManualClock()), position=Position(12, 1))
    stage = Stage(tmp_path, Parts(), entry=entry, decision=Decision(SKIP, "", 5))
    for item in (row(11), row(12, rows=3)):
        stage.kept.append(item)
    assert await stage.run() == ["lanes", 12, ("end", True)]
    (events,) = stage.parts.given[0].tables
    assert (events.first_ordinal, len(events.rows)) == (1, 2)
    stage.close()


async def test_a_lane_that_is_full_is_waited_for_and_gives_room(tmp_path: Path) -> None:
    stage = Stage(tmp_path, Parts(), row(11), row(12), decision=Decision(SKIP, "", 5))
    stage.parts.held = stage.parts.full = True
    running = asyncio.create_task(stage.run())
    await until(lambda: stage.parts.said[-1:] == [11], beside=[running])
    await settle()
    assert stage.parts.said[-1] == 11
    assert stage.freed == 0
    stage.parts.commit()
    await until(lambda: stage.parts.said[-1:] == [12], beside=[running])
    assert stage.freed == 1
    stage.parts.commit()
    await running
    stage.close()


@pytest.mark.parametrize("full", [False, True])
async def test_told_to_stop_it_ends_without_what_is_not_committed(tmp_path: Path, full: bool) -> None:
    stage = Stage(tmp_path, Parts(), row(11), ddl(12, "ALTER"), row(13), decision=Decision(SKIP, "", 5))
    stage.parts.held, stage.parts.full = True, full
    running = asyncio.create_task(stage.run())
    await until(lambda: stage.parts.said[-1:] == [11], beside=[running])
    stage.release.stop()
    assert (await running)[-1] == ("end", False)
    assert stage.entry.position == Position(10)
    assert stage.queue.state is QueueState.WAITING
    assert await stage.run() == [], "it is over"
    stage.close()


async def test_rows_that_are_refused_halt_the_queue_where_its_lane_came_to(tmp_path: Path) -> None:
    stage = Stage(
        tmp_path, Parts(positions=[[Position(11), Position(11, 2)]]), row(11), row(12), decision=RETRIED
    )
    stage.parts.held = True
    running = asyncio.create_task(stage.run())
    await until(lambda: stage.parts.said[-1:] == [12], beside=[running])
    await settle()
    stage.parts.failed(DownstreamError("a row"))
    stage.parts.failed(DownstreamError("later"))
    assert (await running)[-4:] == [12, ("end", False), "stores", ("positions", [10])]
    assert stage.queue.state is QueueState.HALTED
    assert stage.queue.refusal == "a row"
    assert stage.entry.position == Position(11, 2)
    stage.queue.on(QueueEvent.DECISION_BEGUN)
    stage.queue.on(QueueEvent.DECISION_STORED)
    again = asyncio.create_task(stage.run())
    await until(lambda: stage.parts.said[-1:] == [12], beside=[again])
    await settle()
    stage.parts.commit()
    assert (await again)[-1] == ("end", True), "the failure of before counts no more"
    assert [table.committed.of(SIDE_LANES) for table in stage.parts.tables] == [None, None]
    assert stage.queue.state is QueueState.CAUGHT_UP
    stage.close()


async def test_a_lane_that_fails_otherwise_ends_release(tmp_path: Path) -> None:
    stage = Stage(tmp_path, Parts(), row(11), decision=RETRIED)
    stage.parts.held = True
    running = asyncio.create_task(stage.run())
    await until(lambda: stage.parts.said[-1:] == [11], beside=[running])
    stage.parts.failed(RuntimeError("unexpected"))
    with pytest.raises(RuntimeError, match="unexpected"):
        await running
    stage.close()


async def test_rows_whose_key_the_upstream_has_given_up_wait_for_a_load_in_later_lives_too(
    tmp_path: Path,
) -> None:
    stage = Stage(tmp_path, Parts(positions=[[Position(10)]]), row(11), decision=RETRIED)
    stage.parts.held = True
    running = asyncio.create_task(stage.run())
    await until(lambda: stage.parts.said[-1:] == [11], beside=[running])
    stage.parts.failed(DownstreamError(f"t: {SAME_KEY}"))
    said = await running
    assert said[-2:] == ["stores", ("put", stage.entry)]
    assert stage.entry.reason == f"t: {SAME_KEY}"
    again = Stage(tmp_path, Parts(), row(11), entry=stage.entry)
    assert await again.run() == []
    assert (again.queue.state, again.queue.refusal) == (QueueState.HALTED, f"t: {SAME_KEY}")
    stage.close()


@pytest.mark.parametrize(("job_id", "repeats"), [(ROWS + 1, True), (LOADS + 1, True), (7, False)])
@pytest.mark.parametrize("with_others", [False, True])
async def test_rows_that_lanes_may_have_applied_may_repeat(
    tmp_path: Path, job_id: int, repeats: bool, with_others: bool
) -> None:
    entry = replace(entry_of(DDL, 3, "x", {}, ManualClock()), job_id=job_id, position=Position(10))
    stage = Stage(tmp_path, Parts(), row(11), entry=entry)
    if with_others:
        stage.queue.entries[8] = replace(entry, job_id=8, tables={("d", "v"): 10})
        stage.quarantine.change(entry)
    stage.parts.spread = Spread.BY_KEY
    await stage.run()
    assert [target.repeats for target in stage.parts.known] == [repeats]
    stage.close()


def test_what_went_through_one_lane_does_not_repeat() -> None:
    one, several = target_of(T, 1), replace(target_of(U, 1), spread=Spread.BY_KEY)
    one = replace(one, spread=Spread.BY_TABLE)
    assert [target.repeats for target in may_repeat([one, several])] == [False, True]


async def test_what_the_disk_has_not_taken_is_not_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = Stage(tmp_path, Parts(), row(11), decision=Decision(SKIP, "", 5))
    monkeypatch.setattr(stage.kept, "flush", lambda: False)
    await stage.run()
    assert stage.queue.state is QueueState.WAITING
    stage.close()


async def test_an_entry_has_all_names_in_lower_case_from_its_ddl_on() -> None:
    mixed = replace(DDL, tables=(("D", "T"),), targets=(("All", "X"),))
    entry = entry_of(mixed, 3, "why", BEFORE, ManualClock())
    assert entry == Entry(
        10, 10, Floor(9, 3), {("d", "t"): 10, ("all", "x"): 10}, Position(9), DDL.query, "why", NOW_MS,
        before=BEFORE,
    )  # fmt: skip


def test_others_have_their_turns_between_rows(tmp_path: Path) -> None:
    async def main() -> None:
        loop, turns = asyncio.get_running_loop(), 0
        stage = Stage(tmp_path, Parts(), *(row(ts) for ts in range(11, 31)), decision=RETRIED)

        async def other() -> None:
            nonlocal turns
            while stage.queue.state is not QueueState.CAUGHT_UP:
                turns += 1
                await asyncio.sleep(0)

        beside = asyncio.create_task(other())
        await stage.run()
        await beside
        assert (turns >= 20, loop.time()) == (True, 0.0)
        stage.close()

    run(main())


def test_its_end_does_not_wait_for_a_long_ddl(tmp_path: Path) -> None:
    async def main() -> Release:
        return Stage(tmp_path, Parts()).release

    release, goes_on = asyncio.run(main()), threading.Event()
    running = release._thread.submit(goes_on.wait)
    release.close()
    assert not running.done()
    with pytest.raises(RuntimeError, match="after shutdown"):
        release._thread.submit(print)
    goes_on.set()
    assert running.result()


async def test_what_a_long_ddl_says_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage(tmp_path, Parts(), decision=RETRIED)
    seen = list[str]()

    def run(*of: Any) -> Ran:
        seen.append(stage.release.doing)
        return Ran()

    monkeypatch.setattr(stage.parts, "run", run, raising=False)
    await stage.run()
    assert seen == ["running DDL job 10, which waited"]
    stage.close()
