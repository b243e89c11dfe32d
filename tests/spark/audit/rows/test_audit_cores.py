"""Audit, cores: lineages, canonical forms, chains. Recorded scenarios give no finding, a planted one does."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.rowcodec.put import put_int
from common.rowcodec.varint import put_svarint
from common.table_info import (
    DECIMAL,
    LONG,
    LONGLONG,
    STRING,
    VARCHAR,
    Column,
    FieldType,
    TableInfo,
)
from drainer.spark.audit.checks.chain_rule import BROKEN, KEPT, LOST
from drainer.spark.audit.checks.findings import (
    CHAINS,
    CONTENTS,
    COVERAGE,
    LISTED_MAX,
    Finding,
    Findings,
    exit_code,
)
from drainer.spark.audit.rows import canonical
from drainer.spark.audit.rows.lineage import DROPS, EMPTIES, ENDS, MOVES, Effect, Lineages, Statement, effects
from drainer.spark.audit.rows.projection import Projections, keeps_values
from drainer.spark.audit.rows.row_steps import RowStep
from drainer.txn import TableVersion
from tests.spark.support.audit_world import Walk, walk

T, U = ("d", "t"), ("d", "u")


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("CREATE TABLE IF NOT EXISTS t (a INT)", [Effect(EMPTIES, T)]),
        ("create table `d`.`T` like u", [Effect(EMPTIES, T)]),
        ("DROP TABLE IF EXISTS t, `d`.u", [Effect(DROPS, T), Effect(DROPS, U)]),
        ("TRUNCATE t", [Effect(EMPTIES, T)]),
        ("use `d`; TRUNCATE TABLE t;", [Effect(EMPTIES, T)]),
        ("RENAME TABLE t TO x.y, u TO t", [Effect(MOVES, T, ("x", "y")), Effect(MOVES, U, T)]),
        ("ALTER TABLE t RENAME AS u", [Effect(MOVES, T, U)]),
        ("ALTER TABLE t RENAME COLUMN a TO b, RENAME INDEX i TO j", []),
        ("ALTER TABLE t ADD COLUMN (a INT, b INT DEFAULT 5), DROP COLUMN c", []),
        ("ALTER TABLE t EXCHANGE PARTITION p WITH TABLE u", [Effect(ENDS, T), Effect(ENDS, U)]),
        ("ALTER TABLE t TRUNCATE PARTITION p0, p1", [Effect(ENDS, T)]),
        ("ALTER TABLE t ADD INDEX i (a) COMMENT 'DROP PARTITION'", []),
        ("FLASHBACK TABLE t TO u", [Effect(ENDS, T), Effect(ENDS, U)]),
        ("FLASHBACK DATABASE x TO y", [Effect(ENDS, ("x", "")), Effect(ENDS, ("y", ""))]),
        ("FLASHBACK CLUSTER TO TIMESTAMP '2023-01-01'", [Effect(ENDS, ("", ""))]),
        ("DROP DATABASE x", [Effect(DROPS, ("x", ""))]),
        ("CREATE OR REPLACE VIEW t AS SELECT 1", []),
        ("CREATE UNIQUE INDEX i ON t (a)", []),
        ("FROBNICATE TABLE t", [Effect(ENDS, ("d", ""))]),
    ],
)
def test_what_a_statement_does_to_rows(query: str, expected: list[Effect]) -> None:
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


# -- canonical ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("form", "image", "shown"),
    [
        (canonical.DECIMALS, "-10.50", "-10.5000"),
        (canonical.DECIMALS, "0.00", "-0.0"),
        (canonical.DECIMALS, "7", b"0007"),
        (canonical.DOUBLES, -0.0, "0"),
        (canonical.DOUBLES, 1.100000023841858, "1.100000023841858"),
        (canonical.MOMENT, "2023-01-01 00:00:00.500000", "2023-01-01 00:00:00.5"),
        (canonical.MOMENT, "0000-00-00 00:00:00.000", "0000-00-00 00:00:00"),
        (canonical.MOMENT, "-838:59:59", "-838:59:59.000000"),
        (canonical.CHAR, "a  ", b"a"),
        (canonical.PADDED, b"a\0\0", b"a"),
        (canonical.UNSIGNED, 18446744073709551615, "18446744073709551615"),
        (canonical.DOCUMENT, '{"b": [1, 2.0], "a": "\u00e9"}', b'{"a":"\\u00e9","b":[1.0,2]}'),
        (canonical.DOCUMENT, "1e400x", b"1e400x"),
    ],
)
def test_an_image_and_a_server_show_one_value_alike(form: str, image: object, shown: str | bytes) -> None:
    assert canonical.OF_IMAGE[form](image) == canonical.of_server(shown, form)


@pytest.mark.parametrize(
    ("form", "one", "other"),
    [
        (canonical.TEXT, "a ", "a"),
        (canonical.BINARY, b"a\0", b"a"),
        (canonical.DECIMALS, "100", "1"),
        (canonical.MOMENT, "2023-01-10", "2023-01-1"),
        (canonical.DOCUMENT, '{"a": "1"}', '{"a": 1}'),
        (canonical.DOCUMENT, "123456789012345678", "123456789012345679"),
    ],
)
def test_different_values_stay_different(form: str, one: object, other: object) -> None:
    assert canonical.OF_IMAGE[form](one) != canonical.OF_IMAGE[form](other)


@given(st.lists(st.one_of(st.none(), st.binary(max_size=12)), max_size=6))
def test_a_packed_row_is_taken_apart_as_it_was(values: list[bytes | None]) -> None:
    assert canonical.unpack(canonical.pack(values)) == values


def text(tp: int, flen: int) -> FieldType:
    return FieldType(tp, 0, flen, charset="utf8mb4", collate="utf8mb4_bin")


@pytest.mark.parametrize(
    ("old", "new", "kept"),
    [
        (FieldType(LONG), FieldType(LONGLONG), True),
        (FieldType(LONG), text(VARCHAR, 9), False),
        (text(VARCHAR, 9), text(VARCHAR, 5), True),
        (text(VARCHAR, 9), text(STRING, 9), False),
        (FieldType(DECIMAL, decimal=2), FieldType(DECIMAL, decimal=4), True),
        (FieldType(DECIMAL, decimal=4), FieldType(DECIMAL, decimal=2), False),
    ],
)
def test_which_changes_of_a_type_keep_every_value(old: FieldType, new: FieldType, kept: bool) -> None:
    assert keeps_values(old, new) is kept


# -- chains ---------------------------------------------------------------------------------------------


def guessed(*names: str) -> TableVersion:
    """As of a Go drainer's record: ids are places."""
    columns = tuple(
        Column(place + 1, name, place, FieldType(LONGLONG, 0, 20)) for place, name in enumerate(names)
    )
    return TableVersion(TableInfo(0, "t", columns), "d", "t", 0)


def test_columns_of_guessed_definitions_are_told_by_their_names() -> None:
    written, wanted = guessed("id", "a", "b"), guessed("new", "b", "a", "id")
    image = b"".join(b"\x08" + put_svarint(n) + put_int(10 * n, unsigned=False) for n in (1, 2, 3))
    projection = Projections().of(written, wanted)
    assert projection is not None
    assert projection.values(image) == [None, b"30", b"20", b"10"]
    assert projection.unknown == {0}


def test_a_lost_an_altered_and_a_doubled_change_break_chains() -> None:
    whole = walk("multi-pump")
    update = next(
        n for n, one in enumerate(whole.steps) if one.before and one.after and _later(whole, n) is not None
    )
    lost = replace(whole, steps=[*whole.steps[:update], *whole.steps[update + 1 :]])
    assert [kind for _, kind in lost.wrong()] == [BROKEN]
    insert = next(n for n, one in enumerate(whole.steps) if one.before is None and _later(whole, n))
    unborn = replace(whole, steps=[*whole.steps[:insert], *whole.steps[insert + 1 :]])
    assert [kind for _, kind in unborn.wrong()] == [LOST]
    again = whole.steps[insert]._replace(commit_ts=whole.steps[insert].commit_ts + 1)
    doubled = replace(whole, steps=[*whole.steps[: insert + 1], again, *whole.steps[insert + 1 :]])
    assert [kind for _, kind in doubled.wrong()] == [KEPT]


def _later(whole: Walk, place: int) -> RowStep | None:
    """A later step of the same row that finds it there."""
    one = whole.steps[place]
    later = (each for each in whole.steps[place + 1 :] if (each.table, each.key) == (one.table, one.key))
    found = next(later, None)
    return found if found is not None and found.before != one.before else None


# -- findings -------------------------------------------------------------------------------------------


def test_findings_are_all_counted_and_listed_up_to_a_limit() -> None:
    found = Findings()
    found.extend(Finding(CHAINS, BROKEN, "d.t", "", str(n)) for n in range(LISTED_MAX + 7))
    assert (found.total, len(found.listed)) == (LISTED_MAX + 7, LISTED_MAX)


def test_the_exit_code_says_which_checks_found_something() -> None:
    wrong = Findings()
    wrong.add(Finding(CHAINS, BROKEN, "d.t", ""))
    assert exit_code({COVERAGE: Findings(), CHAINS: Findings()}) == 0
    assert exit_code({COVERAGE: Findings(), CHAINS: wrong}) == 18
    assert exit_code({COVERAGE: wrong, CHAINS: wrong, CONTENTS: wrong}) == 23
