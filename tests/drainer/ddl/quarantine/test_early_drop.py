"""Rows that break a key which the upstream is giving up: the key goes first, once; the DDL comes later."""

from __future__ import annotations

import json
from contextlib import closing
from dataclasses import replace

import pytest

from drainer.ddl import rules as ddl_rules
from drainer.ddl.quarantine.entry import RETRY
from drainer.mysql.connection import Target, connect
from drainer.sink.mysql.lane import LaneSettings
from drainer.sink.mysql.mysql_sink import MysqlSink
from drainer.stream.rules.name_pattern import Source
from drainer.stream.rules.rule_set import Rules
from drainer.stream.rules.table_rules import EventFilter, EventRule
from drainer.stream.schema.given_up import Constraint, Kind, Later, is_given_up
from tests.crash.small_run import Statement
from tests.drainer.ddl.quarantine.early_drops import (
    CREATE,
    DROP_INDEX,
    EARLY,
    FREE,
    FULL,
    HALF,
    ID,
    NARROW,
    ON_U,
    WINDOW,
    History,
    U,
    V,
    contents,
    decided,
    keys,
    later,
    recording,
)
from tests.drainer.support.apply_life import Life, Recording, column, run
from tests.drainer.support.waiting_life import live
from tidb_binlog.ddl_job import ActionType
from tidb_binlog.errors import DownstreamError
from tidb_binlog.table_info import (
    FLAG_NOT_NULL,
    LONG,
    Index,
    IndexColumn,
    TableInfo,
)
from tidb_binlog.upstream_port import UnderWay

ON_UV = Index(2, "uv", (IndexColumn("u", 1), IndexColumn("v", 2)), unique=True, primary=False)
DELETE_ONLY = replace(ON_U, state=1)

DROP_COLUMN = Statement(6, "ALTER TABLE `t` DROP COLUMN `u`", NARROW)
ADD_INDEX = Statement(7, "ALTER TABLE `t` ADD INDEX `v` (`v`)", FULL)


@pytest.mark.integration
@pytest.mark.parametrize("ddl", [DROP_INDEX, DROP_COLUMN], ids=["drop index", "drop column"])
@pytest.mark.parametrize("lanes", [1, 3])
async def test_it_goes_before_its_ddl_and_nothing_is_lost(target: Target, ddl: Statement, lanes: int) -> None:
    found = recording(*WINDOW, ddl, [(6, 2, 6)] if ddl is DROP_INDEX else [(6, 6)])
    history = History(found.jobs)
    assert await Life(found, target, lanes, history=history).run(size=1)
    assert contents(target) == [(number, number) for number in range(1, 7)]
    assert keys(target) == {"PRIMARY"}
    assert decided(target) == EARLY
    assert history.asked == 1, "once"


NOT_NULL = (
    CREATE[0],
    Statement(
        3,
        "CREATE TABLE `t` (`id` INT PRIMARY KEY, `u` INT NOT NULL, `v` INT, UNIQUE KEY `k` (`u`))",
        replace(FULL, columns=(ID, column(2, "u", LONG, FLAG_NOT_NULL), V)),
    ),
)


@pytest.mark.integration
@pytest.mark.parametrize("half", [(), (HALF,)], ids=["rows say it", "the binlog says it"])
async def test_rows_without_the_column_that_is_on_its_way_out(
    target: Target, half: tuple[object, ...]
) -> None:
    """They are written with its zero, and all the same."""
    steps = ([(1, 1, 1)], *half, [(2, 2)], [(3, 3), (4, 4)], [(5, 5)], DROP_COLUMN, [(6, 6)])
    found = recording(*steps, create=NOT_NULL)
    history = History(found.jobs)
    if half:
        window = Recording(found.cluster_id, found.jobs, found.entries[:4])
        assert await Life(window, target, history=history).run(size=1)
        assert keys(target) == {"PRIMARY"}, "at the binlog"
    assert await Life(found, target, history=history).run(size=1)
    assert contents(target) == [(number, number) for number in range(1, 7)]
    assert len(decided(target)) == 1


@pytest.mark.integration
@pytest.mark.parametrize("why", ["sync-ddl", "ddl-rule", "binlog-filter-rule"])
async def test_a_statement_that_is_not_to_run_takes_nothing_early(target: Target, why: str) -> None:
    found = recording(*WINDOW, DROP_INDEX)
    first = Recording(found.cluster_id, found.jobs, found.entries[:2])
    assert await Life(first, target).run(size=1)
    rules = Rules(sync_ddl=why != "sync-ddl")
    if why == "binlog-filter-rule":
        rules = Rules(events=EventFilter([(Source.of("*", "*"), EventRule.of("keep", ["alter table"], []))]))
    life = Life(found, target, rules=rules, history=History(found.jobs))
    if why == "ddl-rule":
        life.sink.quarantine.set_rules(ddl_rules.parse([{"action": "skip", "kind": "drop index"}]))
    if why == "binlog-filter-rule":  # of such a table rows meet old ones, counted
        assert await life.run(size=1)
    else:
        with pytest.raises(DownstreamError, match="1062"):
            await life.run(size=1)
    assert keys(target) == {"PRIMARY", "k"}


@pytest.mark.integration
@pytest.mark.parametrize("dies_at", [1031, 1041, 1051, 1061, 1071])
async def test_over_a_death_at_any_place(target: Target, dies_at: int) -> None:
    found = recording(*WINDOW, DROP_INDEX, [(6, 2, 6)])
    await Life(found, target, 3, history=History(found.jobs)).run(size=1, dies_at_ts=dies_at)
    assert await Life(found, target, 3, history=History(found.jobs)).run(size=1)
    assert contents(target) == [(number, number) for number in range(1, 7)]
    assert decided(target) == EARLY


@pytest.mark.integration
async def test_of_a_job_that_is_still_under_way(target: Target) -> None:
    """It is past the point from which it could be rolled back: the key is not public."""
    found = recording(*WINDOW)
    half = replace(FULL, indexes=(DELETE_ONLY,))
    job = {"id": 7, "type": 8, "state": 1, "schema_state": 1, "table_id": 101, "schema_id": 5}
    now = UnderWay(json.dumps(job).encode(), json.dumps(half.to_json()).encode())
    assert await Life(found, target, history=History(found.jobs, now)).run(size=1)
    assert contents(target) == [(number, number) for number in range(1, 6)]
    whole = recording(*WINDOW, DROP_INDEX)
    assert await Life(whole, target, history=History(whole.jobs)).run(size=1)
    assert keys(target) == {"PRIMARY"}
    assert decided(target) == EARLY


@pytest.mark.integration
@pytest.mark.parametrize(
    "steps", [(), (ADD_INDEX, DROP_INDEX)], ids=["nothing drops it", "something else comes first"]
)
async def test_what_is_not_given_up_stays_refused(target: Target, steps: tuple[Statement, ...]) -> None:
    found = recording(*WINDOW, *steps)
    with pytest.raises(DownstreamError, match="1062"):
        await Life(found, target, history=History(found.jobs)).run(size=1)
    assert keys(target) == {"PRIMARY", "k"}
    assert decided(target) == []


@pytest.mark.integration
async def test_a_key_that_something_needs_becomes_a_plain_one(target: Target) -> None:
    found = recording(*WINDOW, DROP_INDEX)
    first = Recording(found.cluster_id, found.jobs, found.entries[:2])
    assert await Life(first, target).run(size=1)
    run(target, "ALTER TABLE d.t MODIFY u INT NOT NULL AUTO_INCREMENT", "SELECT 1")
    window = Recording(found.cluster_id, found.jobs, found.entries[:-1])
    assert await Life(window, target, history=History(found.jobs)).run(size=1)
    assert contents(target) == [(number, number) for number in range(1, 6)]
    assert keys(target) == {"PRIMARY", "k"}


@pytest.mark.integration
async def test_a_check_that_ends(target: Target) -> None:
    ends = Statement(44, "ALTER TABLE `t` DROP CONSTRAINT `c`", FULL)
    found = recording([(1, 1, 1)], [(2, 2, 2)], ends)
    first = Recording(found.cluster_id, found.jobs, found.entries[:2])
    assert await Life(first, target).run(size=1)
    run(target, "ALTER TABLE d.t ADD CONSTRAINT c CHECK (v < 2)", "SELECT 1")
    assert await Life(found, target, history=History(found.jobs)).run(size=1)
    assert contents(target) == [(1, 1), (2, 2)]
    assert decided(target) == [(5, "early", "ran, before its job's DDL")]


def unique(*columns: str) -> Constraint:
    return Constraint(Kind.UNIQUE, "x", frozenset(columns))


RENAMED = replace(
    FULL, columns=(ID, replace(U, name="w"), V), indexes=(replace(ON_U, columns=(IndexColumn("w", 1),)),)
)


@pytest.mark.parametrize(
    ("columns", "before", "after", "given_up"),
    [
        (("u",), FULL, FREE, True),
        (("u",), FULL, replace(FULL, indexes=(DELETE_ONLY,)), True),
        (("u",), FULL, replace(FULL, indexes=(replace(ON_U, state=2),)), True),
        (("u",), FULL, FULL, False),
        (("u",), FULL, replace(FULL, indexes=(replace(ON_U, id=9, name="new"),)), False),
        (("u",), FULL, replace(FULL, indexes=(replace(ON_U, unique=False),)), True),
        (("u",), FULL, replace(FULL, indexes=(ON_UV,)), True),
        (("u", "v"), FULL, replace(FULL, indexes=(ON_UV,)), False),
        (("u", "v"), FULL, FREE, True),
        (("u", "id"), FULL, FREE, False),
        (("u",), FULL, RENAMED, False),
        (("u",), RENAMED, FULL, False),
        (("v",), FULL, FREE, False),
        (("id",), FULL, replace(FREE, pk_is_handle=False), True),
    ],
)
def test_what_is_given_up(
    columns: tuple[str, ...], before: TableInfo, after: TableInfo, given_up: bool
) -> None:
    assert is_given_up(unique(*columns), before, later(after)) is given_up


def test_keys_with_expressions_go_by_name_and_checks_by_kind_of_job() -> None:
    by_name = Constraint(Kind.UNIQUE, "K")
    assert is_given_up(by_name, FULL, later(FREE))
    assert not is_given_up(by_name, FULL, later(FULL))
    assert not is_given_up(Constraint(Kind.UNIQUE, "other"), FULL, later(FREE))
    check = Constraint(Kind.CHECK, "c")
    assert is_given_up(check, FULL, later(FULL, 44))
    assert not is_given_up(check, FULL, later(FULL, 8))
    for state, enforced, given_up in ((5, True, False), (5, False, True), (2, True, True)):
        one = {"constraint_name": {"O": "C"}, "state": state, "enforced": enforced}
        document = {**FULL.to_json(), "constraint_info": [one]}
        assert is_given_up(check, FULL, Later(7, ActionType.MULTI_SCHEMA_CHANGE, document)) is given_up


NONCLUSTERED = Index(1, "PRIMARY", (IndexColumn("id", 0),), unique=True, primary=True)
LOOSE = replace(FULL, indexes=(NONCLUSTERED, replace(ON_U, id=2)), pk_is_handle=False)
KEYLESS = replace(FULL, indexes=(replace(ON_U, id=2),), pk_is_handle=False)
SIMPLE = replace(LOOSE, indexes=(NONCLUSTERED,))


@pytest.mark.integration
@pytest.mark.parametrize("size", [1, 10], ids=["one by one", "in one batch"])
@pytest.mark.parametrize(
    ("table", "text"),
    [
        (SIMPLE, "CREATE TABLE `t` (`id` INT PRIMARY KEY, `u` INT, `v` INT)"),
        (LOOSE, "CREATE TABLE `t` (`id` INT PRIMARY KEY, `u` INT, `v` INT, UNIQUE KEY (`u`))"),
    ],
    ids=["one key", "two keys"],
)
async def test_rows_of_which_one_would_take_the_others_place_are_refused(
    target: Target, table: TableInfo, text: str, size: int
) -> None:
    """The job ends the key by which they are told apart."""
    create = (CREATE[0], Statement(3, text, table))
    keyless = replace(table, indexes=table.indexes[1:])
    ends = Statement(33, "ALTER TABLE `t` DROP PRIMARY KEY", keyless)
    found = recording([(1, 1, 1)], [(1, 2, 2)], [(1, 3, 3)], ends, create=create, full=table)
    with pytest.raises(DownstreamError, match=r"by which rows of .* are told apart"):
        await Life(found, target, history=History(found.jobs)).run(size=size)
    assert contents(target) in ([], [(1, 1)])
    # Nor are they tried again, neither by a later life, which repeats rows, nor by a decision.
    (waiting,) = await live(found, target, size=size, history=History(found.jobs), correct=lambda _: None)
    assert "rows were refused" in waiting["state"]
    assert contents(target) in ([], [(1, 1)])


@pytest.mark.integration
@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        (([(1, 1, 1)], [(1, 2, 2)]), [(1, 1)]),
        # What waits first does so for a row that can be corrected: the key is met where rows are tried again.
        (([(1, 1, 1)], [(2, 1, 2)], [(3, 7, 7)], [(3, 8, 8)]), [(1, 1), (2, 2), (3, 7)]),
    ],
    ids=["at once", "behind another"],
)
async def test_a_life_that_repeats_rows_knows_of_the_key_as_well(
    target: Target, rows: tuple[list[tuple[int, ...]], ...], expected: list[tuple[int, int]]
) -> None:
    create = (
        CREATE[0],
        Statement(3, "CREATE TABLE `t` (`id` INT PRIMARY KEY, `u` INT UNIQUE, `v` INT)", LOOSE),
    )
    ends = Statement(33, "ALTER TABLE `t` DROP PRIMARY KEY", replace(LOOSE, indexes=LOOSE.indexes[1:]))
    found = recording(*rows, ends, create=create, full=LOOSE)

    def correct(_: object) -> None:
        with closing(connect(target)) as connection:
            connection.run(b"UPDATE d.t SET u = 5 WHERE id = 1")
            connection.commit()

    again = correct if len(rows) > 2 else None
    assert await live(found, target, 1, size=1, batch_rows=1, history=History(found.jobs), correct=again)
    assert contents(target) == expected

    async def retry(sink: MysqlSink) -> None:
        (waiting,) = await sink.finish_waiting()
        assert contents(target) == expected
        await sink.quarantine.decide(waiting["job_id"], RETRY, "", "test")
        assert len(await sink.finish_waiting()) == 1

    lane = LaneSettings(batch_rows=1, rows_may_wait=True)
    repeating = Life(found, target, 1, history=History(found.jobs), lane=lane, safe_mode=True)
    await repeating.run(size=1, at_end=retry)
    assert contents(target) == expected


@pytest.mark.integration
async def test_rows_that_were_there_already_are_counted_where_nothing_ends(
    target: Target, caplog: pytest.LogCaptureFixture
) -> None:
    text = "CREATE TABLE `t` (`id` INT PRIMARY KEY, `u` INT, `v` INT)"
    create = (CREATE[0], Statement(3, text, SIMPLE))
    found = recording([(1, 1, 1)], [(1, 2, 2)], [(2, 2, 2)], ADD_INDEX, create=create, full=SIMPLE)
    for upto in (3, 5):  # the rows of one key in two batches
        life = Life(replace(found, entries=found.entries[:upto]), target, history=History(found.jobs))
        assert await life.run(size=1)
    assert contents(target) == [(1, 2), (2, 2)]
    assert "downstream rows were not as expected" in caplog.text


@pytest.mark.integration
async def test_a_transaction_that_is_cut_overwrites_no_row_of_the_window(target: Target) -> None:
    """Its parts go out in forms that meet old rows; a REPLACE would take one away by the key that ends."""
    rows = [(number, number // 2, number) for number in range(7000)]
    found = recording(rows, DROP_INDEX, [(7000, 1, 7000)])
    assert await Life(found, target, 1, history=History(found.jobs)).run(size=1)
    assert contents(target) == [(number, number) for number in range(7001)]
