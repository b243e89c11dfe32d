"""What statements do to rows, and which rows are of one lineage."""

from __future__ import annotations

import pytest

from drainer.spark.audit.rows.lineage import (
    DROPS,
    EMPTIES,
    ENDS,
    MOVES,
    Lineages,
    Statement,
    TableEffect,
    effects,
)

T, U = ("d", "t"), ("d", "u")


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("CREATE TABLE IF NOT EXISTS t (a INT)", [TableEffect(EMPTIES, T)]),
        ("create table `d`.`T` like u", [TableEffect(EMPTIES, T)]),
        ("DROP TABLE IF EXISTS t, `d`.u", [TableEffect(DROPS, T), TableEffect(DROPS, U)]),
        ("TRUNCATE t", [TableEffect(EMPTIES, T)]),
        ("use `d`; TRUNCATE TABLE t;", [TableEffect(EMPTIES, T)]),
        ("RENAME TABLE t TO x.y, u TO t", [TableEffect(MOVES, T, ("x", "y")), TableEffect(MOVES, U, T)]),
        ("ALTER TABLE t RENAME AS u", [TableEffect(MOVES, T, U)]),
        ("ALTER TABLE t RENAME COLUMN a TO b, RENAME INDEX i TO j", []),
        ("ALTER TABLE t ADD COLUMN (a INT, b INT DEFAULT 5), DROP COLUMN c", []),
        ("ALTER TABLE t EXCHANGE PARTITION p WITH TABLE u", [TableEffect(ENDS, T), TableEffect(ENDS, U)]),
        ("ALTER TABLE t TRUNCATE PARTITION p0, p1", [TableEffect(ENDS, T)]),
        ("ALTER TABLE t ADD INDEX i (a) COMMENT 'DROP PARTITION'", []),
        ("FLASHBACK TABLE t TO u", [TableEffect(ENDS, T), TableEffect(ENDS, U)]),
        ("FLASHBACK DATABASE x TO y", [TableEffect(ENDS, ("x", "")), TableEffect(ENDS, ("y", ""))]),
        ("FLASHBACK CLUSTER TO TIMESTAMP '2023-01-01'", [TableEffect(ENDS, ("", ""))]),
        ("DROP DATABASE x", [TableEffect(DROPS, ("x", ""))]),
        ("CREATE OR REPLACE VIEW t AS SELECT 1", []),
        ("CREATE UNIQUE INDEX i ON t (a)", []),
        ("FROBNICATE TABLE t", [TableEffect(ENDS, ("d", ""))]),
    ],
)
def test_what_a_statement_does_to_rows(query: str, expected: list[TableEffect]) -> None:
    assert effects(Statement(10, "d", query)) == expected


def test_a_lineage_goes_with_a_swap_of_names_and_ends_with_its_table() -> None:
    found = Lineages.of(
        [
            Statement(10, "d", "CREATE TABLE t (a INT)"),
            Statement(20, "d", "RENAME TABLE t TO x, u TO t, x TO u"),
            Statement(30, "d", "DROP TABLE t"),
        ]
    )
    created = found.lineage_at(T, 15)
    assert created.born_ts == 10
    assert found.lineage_at(U, 25) == created
    assert found.lineage_at(T, 25) == found.lineage_at(U, 5)
    assert found.lineage_at(T, 25).born_ts is None
    assert found.lineage_at(T, 10).born_ts is None, "what was committed up to the DDL is from before it"
    assert found.lineage_at(T, 31).gone
    spans = [span for span in found.spans([U]) if span.first_ts <= 25 <= span.last_ts]
    assert [span.lineage for span in spans] == [created.number]
