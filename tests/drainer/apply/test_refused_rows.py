"""Refused rows: both are named, their table waits, and all is there once an operator corrected it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from common import binlog
from common.clock import SystemClock
from common.errors import DownstreamError
from common.rowcodec.encoder import prewrite_value
from common.table_info import LONG, VARCHAR, Index, IndexColumn, TableInfo
from drainer.apply.lane import LaneSettings
from drainer.apply.row_mismatch import Drift
from drainer.pull.merged import Merged
from drainer.sink.mysql.connection import Target
from tests.crash.small_run import KEY, Event, Statement, job_of, row_of
from tests.drainer.support.apply_life import Life, Recording, column, run
from tests.drainer.support.waiting_life import Document, live

COLUMNS = (column(1, "id", LONG, KEY), column(2, "u", VARCHAR), column(3, "v", LONG))
ON_U = Index(1, "k", (IndexColumn("u", 1),), unique=True, primary=False)
ON_UV = Index(1, "k", (IndexColumn("u", 1), IndexColumn("v", 2)), unique=True, primary=False)
ONE = TableInfo(101, "t", COLUMNS, indexes=(ON_U,), pk_is_handle=True)
TWO = replace(ONE, indexes=(ON_UV,))
SPREAD = replace(ONE, indexes=())
DATABASE = Statement(1, "CREATE DATABASE `d`", None)
CREATE = "CREATE TABLE `t` (`id` INT PRIMARY KEY, `u` VARCHAR(64), `v` INT"


def recording(*steps: Statement | list[Event]) -> Recording:
    """Each step in a transaction of its own, 1011, 1021, ..."""
    jobs: list[bytes] = []
    entries: list[Merged] = []
    for number, step in enumerate(steps, start=1):
        ts = 1000 + 10 * number
        commit = binlog.commit(ts, ts + 1, b"k")
        if isinstance(step, Statement):
            jobs.append(job_of(number, step))
            payload = binlog.join(binlog.prewrite_ddl(ts, b"k", step.text, job_id=number), commit)
            entries.append(Merged(ts + 1, payload, json.loads(jobs[-1])))
            continue
        rows = [row_of(event) for event in step]
        value = prewrite_value(len(jobs), [(101, [kind for kind, _ in rows], [row for _, row in rows])])
        entries.append(Merged(ts + 1, binlog.join(binlog.prewrite(ts, b"k", value), commit)))
    return Recording(4712, jobs, entries)


def inserts(table: TableInfo, *rows: tuple[Any, ...]) -> list[Event]:
    return [(table, None, row) for row in rows]


def contents(target: Target) -> list[Any]:
    return sorted(run(target, "SELECT id, u, v FROM d.t"))


BOTH = recording(
    DATABASE,
    Statement(3, f"{CREATE}, UNIQUE KEY `k` (`u`))", ONE),
    inserts(ONE, (1, "a", 1), (2, "b", 2)),
    [(ONE, (1, "a", 1), (1, "c", 1)), *inserts(ONE, (3, "a", 3))],
    inserts(ONE, (4, "d", 4), (5, "x\x1b[2J", 5)),
    [(ONE, (5, "x\x1b[2J", 5), (5, "e", 6))],
)
EVERYTHING = [(1, "c", 1), (2, "b", 2), (3, "a", 3), (4, "d", 4), (5, "e", 6)]


def begin(found: Recording, upto: int) -> Recording:
    return replace(found, entries=found.entries[:upto])


async def refused(target: Target, found: Recording, upto: int, by_hand: str, **settings: Any) -> str:
    """The reason of a table that waits."""
    assert await Life(begin(found, upto), target).run(size=1)
    run(target, by_hand, "SELECT 1")
    ((document,),) = [await live(found, target, **settings)]
    assert document["state"].startswith("rows were refused: ")
    return str(document["reason"])


@pytest.mark.integration
@pytest.mark.parametrize("size", [1, 10], ids=["one by one", "in one batch"])
async def test_both_rows_are_named(target: Target, size: int) -> None:
    """Not the one that had the value before the batch and gives it up in it."""
    reason = await refused(target, BOTH, 3, "INSERT INTO d.t VALUES (77, 'd', 0)", size=size)
    assert "d.t (key id)" in reason
    assert "1062" in reason
    if size == 1:
        assert "the row (id=4) of transaction with commit_ts 1051 is refused" in reason
    assert "(id=4) of transaction" in reason
    assert reason.endswith(": the row (id=77) is there with the same values under the key k (u)"), reason


@pytest.mark.integration
async def test_without_leave_no_value_is_shown(target: Target) -> None:
    reason = await refused(target, BOTH, 3, "INSERT INTO d.t VALUES (77, 'd', 0)", log_values=False, size=1)
    assert "77" not in reason
    assert "'d'" not in reason
    assert "of a row of transaction with commit_ts 1051 a row that is there has its values" in reason
    assert reason.endswith("under the key k (u); with syncer.log-values = true both are named")


@pytest.mark.integration
async def test_nothing_in_it_steers_a_terminal(target: Target) -> None:
    wide = replace(ONE, columns=(column(1, "id", VARCHAR, KEY), *COLUMNS[1:]), pk_is_handle=False)
    primary = Index(2, "PRIMARY", (IndexColumn("id", 0),), unique=True, primary=True)
    table = replace(wide, indexes=(ON_UV, primary), is_common_handle=True)
    text = (
        "CREATE TABLE `t` (`id` VARCHAR(64) PRIMARY KEY, `u` VARCHAR(64), `v` INT, UNIQUE KEY `k` (`u`,`v`))"
    )
    found = recording(
        DATABASE,
        Statement(3, text, table),
        inserts(table, ("a", "a", 1)),
        inserts(table, ("\x1b[2J" * 16, "b", 2)),
    )
    reason = await refused(target, found, 3, "INSERT INTO d.t VALUES ('\x1b]0;x\x07\n', 'b', 2)")
    assert r"(id='\x1b]0;x\x07')" in reason
    assert r"\x1b[2J\x1b[2J')" in reason
    assert reason.endswith("under the key k (u, v)")
    assert reason.count("\x1b") == 0


@pytest.mark.integration
async def test_it_goes_on_once_the_row_in_the_way_is_gone(target: Target) -> None:
    assert await Life(begin(BOTH, 3), target).run(size=1)
    run(target, "INSERT INTO d.t VALUES (77, 'd', 0)", "SELECT 1")

    def correct(document: Document) -> None:
        assert "(id=77)" in document["reason"]
        run(target, "DELETE FROM d.t WHERE id=77", "SELECT 1")

    assert await live(BOTH, target, correct=correct) == []
    assert contents(target) == EVERYTHING


SEVERAL = recording(
    DATABASE,
    Statement(3, f"{CREATE})", SPREAD),
    inserts(SPREAD, *((number, "a", number) for number in (*range(8), *range(100, 112)))),
    [(SPREAD, (number, "a", number), (number, "b", number + 10)) for number in range(8)],
    [
        (SPREAD, (1, "b", 11), None),
        (SPREAD, (2, "b", 12), (20, "b", 2)),
        (SPREAD, (3, "b", 13), (3, "b", 99)),
    ],
    [(SPREAD, (number, "a", number), None) for number in range(100, 112)],
    [*inserts(SPREAD, (1, "c", 1)), (SPREAD, (20, "b", 2), (2, "c", 2)), (SPREAD, (4, "b", 14), None)],
    [(SPREAD, (number, "b", number + 10), (number, "z", number)) for number in (5, 6, 7)],
)
SEVERAL_END = [
    (0, "b", 10), (1, "c", 1), (2, "c", 2), (3, "b", 99), (5, "z", 5), (6, "z", 6), (7, "z", 7)
]  # fmt: skip


@pytest.mark.integration
@pytest.mark.parametrize("size", [1, 2, 10])
async def test_a_table_that_goes_through_several_lanes_waits_as_well(target: Target, size: int) -> None:
    """Other lanes have applied what is after the refused row: that comes again, and leads to the same."""
    assert await Life(begin(SEVERAL, 3), target, 3).run(size=1)
    run(target, "ALTER TABLE d.t ADD CONSTRAINT c CHECK (v <> 99)", "SELECT 1")
    seen: list[str] = []

    def correct(document: Document) -> None:
        seen.append(document["reason"])
        run(target, "ALTER TABLE d.t DROP CONSTRAINT c", "SELECT 1")

    drift = Drift(SystemClock())
    assert await live(SEVERAL, target, 3, batch_rows=1, size=size, correct=correct, drift=drift) == []
    assert contents(target) == SEVERAL_END
    assert drift.rows() == {}, "what comes again is distinguished from what others did"
    assert "it is the row (id=3) of transaction" in seen[0]


@pytest.mark.integration
async def test_strict_ends_with_both_rows_named(target: Target) -> None:
    assert await Life(begin(BOTH, 3), target).run(size=1)
    run(target, "INSERT INTO d.t VALUES (77, 'd', 0)", "SELECT 1")
    life = Life(BOTH, target, lane=LaneSettings(strict=True, log_values=True))
    with pytest.raises(DownstreamError, match=r"\(id=4\) .*\(id=77\)") as raised:
        await life.run(size=1)
    assert "start the drainer again" in raised.value.hint
