"""Refused rows: both are named, their table waits, and all is there once an operator corrected it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from drainer.ddl.quarantine.entry import RETRY
from drainer.mysql.connection import Target
from drainer.mysql.refusal import RowsRefused
from drainer.sink.mysql.lane import LaneSettings
from drainer.sink.mysql.mysql_sink import MysqlSink
from drainer.sink.row_mismatch import Drift
from tests.crash.small_run import KEY, Statement
from tests.drainer.support.apply_life import Life, Recording, column, run
from tests.drainer.support.made_recording import inserts, recording
from tests.drainer.support.refused_rows import (
    BOTH,
    COLUMNS,
    CREATE,
    DATABASE,
    EVERYTHING,
    ON_U,
    ONE,
    begin,
    contents,
)
from tests.drainer.support.waiting_life import Document, live
from tidb_binlog.clock import SystemClock
from tidb_binlog.ddl_job import ActionType
from tidb_binlog.errors import DownstreamError
from tidb_binlog.table_info import VARCHAR, Index, IndexColumn, TableInfo

ON_UV = Index(1, "k", (IndexColumn("u", 1), IndexColumn("v", 2)), unique=True, primary=False)
TWO = replace(ONE, indexes=(ON_UV,))
SPREAD = replace(ONE, indexes=())


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
async def test_both_are_named_beside_a_row_that_is_there_before_it_comes(target: Target) -> None:
    """It goes first, and is not what the batch is refused for."""
    reason = await refused(target, BOTH, 3, "INSERT INTO d.t VALUES (3, 'there', 0), (77, 'd', 0)", size=10)
    assert "(id=4) of transaction" in reason
    assert "the row (id=77) is there with the same values under the key k (u)" in reason


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


OTHER = TableInfo(102, "o", COLUMNS, pk_is_handle=True)
UNFIT = [
    pytest.param("MODIFY u VARCHAR(8)", (4, "123456789", 4), 1406, id="too long"),
    pytest.param("MODIFY v TINYINT", (4, "2024", 300), 1264, id="out of range"),
    pytest.param("MODIFY u DATE", (4, "2024-13-45", 4), 1292, id="no date"),
    pytest.param("MODIFY u INT", (4, "four", 4), 1366, id="no number"),
    pytest.param("MODIFY v INT NOT NULL", (4, "2024", None), 1048, id="null"),
    pytest.param("MODIFY v INT AUTO_INCREMENT, ADD KEY (v)", (4, "2024", None), 0, id="a number for null"),
    pytest.param("ADD CONSTRAINT c CHECK (v <> 99)", (4, "2024", 99), 4025, id="check"),
    pytest.param("ADD g DOUBLE AS (POW(10, v)) STORED", (4, "2024", 400), 1690, id="computed"),
    pytest.param("PARTITION BY RANGE (id) (PARTITION p VALUES LESS THAN (4))", (4, "a", 4), 1526, id="place"),
    pytest.param("DROP COLUMN v", (4, "2024", 4), 0, id="no column"),
    pytest.param("RENAME TO d.gone", (4, "2024", 4), 0, id="no table"),
    pytest.param("ENGINE=MyISAM, DROP PRIMARY KEY, DROP COLUMN id", (4, "2024", 4), 0, id="no key"),
]


def two_tables(row: tuple[Any, ...]) -> Recording:
    """Both in each transaction. `row` is the one that does not fit, in the middle of a statement."""
    return recording(
        DATABASE,
        Statement(3, f"{CREATE})", SPREAD),
        Statement(3, f"{CREATE})".replace("`t`", "`o`"), OTHER),
        [*inserts(SPREAD, (1, "20240101", 60)), *inserts(OTHER, (1, "a", 1))],
        [*inserts(SPREAD, (2, "20240102", 61), row), *inserts(OTHER, (2, "a", 1))],
        [*inserts(SPREAD, (5, "20240105", 65)), *inserts(OTHER, (3, "a", 1))],
    )


@pytest.mark.integration
@pytest.mark.parametrize("size", [1, 10], ids=["one by one", "in one batch"])
@pytest.mark.parametrize(("change", "row", "code"), UNFIT)
async def test_what_does_not_fit_lets_its_table_wait_whatever_the_code(
    target: Target, change: str, row: tuple[Any, ...], code: int, size: int
) -> None:
    """Others get what is theirs, of the same transactions, too; a restart finds it waiting."""
    found = two_tables(row)
    assert await Life(begin(found, 3), target).run(size=1)
    run(target, "CREATE TABLE d.kept LIKE d.t", f"ALTER TABLE d.t {change}", "SELECT 1")

    def correct(document: Document) -> None:
        assert document["tables"] == ["d.t"]
        assert document["state"].startswith("rows were refused: ")
        assert document["possible"]
        if code:
            assert f"downstream says {code}: " in document["reason"]
            assert "it is the row (id=4) of transaction" in document["reason"]
        else:
            assert "d.t" in document["reason"]
        assert [one[0] for one in run(target, "SELECT id FROM d.o ORDER BY id")] == [1, 2, 3]

    for _ in range(2):
        ((document,),) = [await live(found, target, size=size)]
        correct(document)

    def widen(document: Document) -> None:
        correct(document)
        run(target, *rebuilt(target), "SELECT 1")

    assert await live(found, target, size=size, correct=widen) == []
    assert contents(target) == [(1, "20240101", 60), (2, "20240102", 61), row, (5, "20240105", 65)]


def rebuilt(target: Target) -> list[str]:
    """An operator gives the table its shape back, with the rows that it has."""
    names = {name for (name,) in run(target, "SHOW TABLES FROM d")}
    there = "t" if "t" in names else "gone"
    columns = {name for name, *_ in run(target, f"SHOW COLUMNS FROM d.{there}")}
    values = "id, REPLACE(u, '-', ''), v"
    whole = [f"INSERT INTO d.kept SELECT {values} FROM d.{there}"] if {"id", "v"} <= columns else []
    return [*whole, f"DROP TABLE d.{there}", "RENAME TABLE d.kept TO d.t"]


@pytest.mark.integration
async def test_a_row_that_needs_a_larger_packet_lets_its_table_wait(target: Target) -> None:
    ((limit,),) = run(target, "SELECT @@global.max_allowed_packet")
    found = two_tables((4, "x" * (2 << 20), 4))
    assert await Life(begin(found, 3), target).run(size=1)
    try:
        run(target, "ALTER TABLE d.t MODIFY u LONGTEXT", "SET GLOBAL max_allowed_packet=1048576", "SELECT 1")

        def correct(document: Document) -> None:
            assert "max_allowed_packet of the downstream is 1048576" in document["reason"]
            assert len(run(target, "SELECT id FROM d.o")) == 3
            run(target, "SET GLOBAL max_allowed_packet=8388608", "SELECT 1")

        assert await live(found, target, correct=correct) == []
    finally:
        run(target, f"SET GLOBAL max_allowed_packet={limit}", "SELECT 1")
    assert [(one[0], len(one[1])) for one in contents(target)] == [(1, 8), (2, 8), (4, 2 << 20), (5, 8)]


@pytest.mark.integration
async def test_a_right_that_one_table_lacks_lets_that_table_wait(target: Target) -> None:
    found = two_tables((4, "2024", 4))
    assert await Life(begin(found, 3), target).run(size=1)
    poor = replace(target, user="poor", password="poor")
    run(target, "CREATE OR REPLACE USER poor IDENTIFIED BY 'poor'", "SELECT 1")
    for on in ("ALL ON tidb_binlog.*", "ALL ON d.o", "SELECT ON d.t"):
        run(target, f"GRANT {on} TO poor", "SELECT 1")

    def correct(document: Document) -> None:
        assert document["tables"] == ["d.t"]
        assert "downstream says 1142: " in document["reason"]
        assert [one[0] for one in run(target, "SELECT id FROM d.o ORDER BY id")] == [1, 2, 3]
        run(target, "GRANT ALL ON d.t TO poor", "SELECT 1")

    assert await live(found, poor, correct=correct) == []
    assert [one[0] for one in contents(target)] == [1, 2, 4, 5]
    run(target, "DROP USER poor", "SELECT 1")


@pytest.mark.integration
async def test_where_nothing_may_wait_it_ends(target: Target) -> None:
    found = two_tables((4, "2024", 300))
    assert await Life(begin(found, 3), target).run(size=1)
    run(target, "ALTER TABLE d.t MODIFY v TINYINT", "SELECT 1")
    with pytest.raises(DownstreamError, match="1264") as raised:
        await Life(found, target, lane=LaneSettings()).run()
    assert not isinstance(raised.value, RowsRefused)
    run(target, "ALTER TABLE d.t DROP COLUMN v", "SELECT 1")
    with pytest.raises(DownstreamError, match="no column v") as raised:
        await Life(found, target, lane=LaneSettings()).run()
    assert not isinstance(raised.value, RowsRefused)


@pytest.mark.integration
async def test_a_dropped_table_comes_back_with_its_rows_after_its_drop_waited(target: Target) -> None:
    """Under another name, which no table of the queue had."""
    back = replace(SPREAD, name="t2")
    found = recording(
        DATABASE,
        Statement(3, f"{CREATE})", SPREAD),
        inserts(SPREAD, (1, "a", 1)),
        Statement(7, "ALTER TABLE `t` ADD UNIQUE KEY `k` (`u`)", ONE),
        Statement(4, "DROP TABLE `t`", ONE),
        Statement(ActionType.RECOVER_TABLE, "FLASHBACK TABLE `t` TO `t2`", replace(back, indexes=(ON_U,))),
        inserts(replace(back, indexes=(ON_U,)), (2, "b", 2)),
    )
    assert await Life(begin(found, 3), target).run(size=1)
    run(target, "INSERT INTO d.t VALUES (77, 'a', 0)", "SELECT 1")

    async def skip(sink: MysqlSink) -> None:
        ((document,),) = [await sink.finish_waiting()]
        assert document["tables"] == ["d.t", "d.t2"]
        run(target, "DELETE FROM d.t WHERE id=77", "SELECT 1")
        await sink.quarantine.decide(document["job_id"], RETRY, "", "test")
        assert await sink.finish_waiting() == []

    assert await Life(found, target).run(size=1, at_end=skip)
    assert run(target, "SELECT id FROM d.t2 ORDER BY id") == [(1,), (2,)]
