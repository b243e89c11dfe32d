"""Terminal: the sentence says what was found and what was not compared; values keep their differences."""

from __future__ import annotations

from dataclasses import replace

import pytest

from drainer.compare.report import shown
from drainer.compare.report.terminal import ROWS_MAX, difference_rows, print_verification, table_rows
from drainer.compare.verify.result import ComparedColumn, How, State, Verification
from tests.drainer.compare.report.results import EQUAL, FAULTY, ITEM, LOG, SOUND, WAITING


def test_one_sentence_for_each_state() -> None:
    assert shown.verdict(SOUND) == "downstream equals upstream: 1 table; compared 5 rows in 1 chunk"
    columns = tuple(ComparedColumn(name, How.NOT_COMPARED) for name in ("g", "own"))
    computed = replace(SOUND, tables=(replace(EQUAL, columns=columns, other_columns=("own",)),))
    assert shown.verdict(computed) == (
        "downstream equals upstream but for what was not compared (shop.ok.g): 1 table; compared 5 rows in 1"
        " chunk"
    )
    assert shown.verdict(FAULTY) == (
        "6 rows differ in 2 of 4 tables; 1 table could not be compared; compared 1,005 rows in 4 chunks"
    )
    one = replace(SOUND, tables=(replace(EQUAL, state=State.DIFFERS, extra=1, chunks=12, read_whole=3),))
    assert shown.verdict(one) == "1 row differs in 1 of 1 table; compared 5 rows in 12 chunks, 3 read whole"
    lacks = replace(SOUND, tables=(replace(EQUAL, state=State.DIFFERS),))
    assert shown.verdict(lacks) == "1 of 1 table differs; compared 5 rows in 1 chunk"
    both = replace(SOUND, tables=(EQUAL, WAITING))
    assert shown.verdict(both) == (
        "not wholly comparable: 1 of 2 tables are equal; 1 table could not be compared; compared 5 rows in 1"
        " chunk"
    )
    assert shown.verdict(replace(SOUND, tables=())).startswith("nothing was compared")


def test_tables_say_how_they_were_compared() -> None:
    item, log, equal, waiting = table_rows(FAULTY)
    assert item[0] == "shop.item, shop2.item -> all.item"
    assert item[1:] == (
        "differs",
        "1,000",
        "999",
        "3",
        "2 missing, 1 extra, 1 changed",
        "checksums; by value: body; not compared: secret (left out by a column rule)",
    )
    assert (log[5], log[6]) == ("2 extra", "row by row")
    assert (equal[0], equal[1], equal[5]) == ("shop.ok", "equal", "")
    assert waiting[6] == "it waits: a DDL was refused"


def test_rows_show_null_beside_an_empty_text() -> None:
    rows = list(difference_rows(FAULTY))
    assert rows[0] == ("all.item", "changed", "id=7", "note", "''", "NULL", "2023-11-14T22:13:19.000Z")
    assert [row[3] for row in rows[1:4]] == ["id", "note", "body"], "a missing row is shown whole"
    assert rows[2][:3] == ("", "", "")
    assert rows[2][4].endswith("... (305 bytes)")
    assert rows[5][5] == r"'\xff'"
    assert rows[-1][2] == "no key: 1 upstream, 3 downstream"


def test_what_is_printed_ends_with_the_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    print_verification(FAULTY)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "root@up:4000 -> app@down:3306"
    assert "apply was held for 3.2 ms, differences looked at 3 times" in lines[1]
    assert "note: users and grants are not compared" in lines
    assert lines[-1].endswith("could not be compared; compared 1,005 rows in 4 chunks (12 s)")


def test_more_rows_than_fit_are_said(capsys: pytest.CaptureFixture[str]) -> None:
    many = replace(LOG, differences=LOG.differences * (ROWS_MAX + 1), extra=99)
    found: Verification = replace(FAULTY, tables=(many, ITEM))
    assert len(list(difference_rows(found))) == ROWS_MAX
    print_verification(found)
    assert "20 of 103 rows are shown" in capsys.readouterr().out
