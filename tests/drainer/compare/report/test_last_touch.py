"""Last touch: the commit_ts of a recorded stream's last change of a row, found by key and without one."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

import drainer
from drainer.changes.sql_literal import sql_literal
from drainer.compare.report.last_touch import comparable, with_last_touch
from drainer.compare.verify.result import (
    ComparedColumn,
    Kind,
    RowDifference,
    State,
    TableResult,
    Verification,
)
from tests.drainer.compare.report.results import SOUND
from tests.drainer.reading.archive.support import corpus
from tests.drainer.support.relay_world import items

SCENARIOS = ("keys", "types", "basic")


@pytest.fixture(scope="module", params=SCENARIOS)
def archive(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> drainer.Archive:
    made = corpus.our_archive(items(request.param), tmp_path_factory.mktemp("archive"))
    return drainer.open_archive(made.uri)


def literals(values: Iterable[object]) -> tuple[bytes, ...]:
    return tuple(sql_literal(value).encode() for value in values)


def verification(ts: int, *tables: TableResult) -> Verification:
    return Verification("up", "down", ts, 0, SOUND.began_s, SOUND.ended_s, tables)


def test_every_row_has_its_last_change(archive: drainer.Archive) -> None:
    last: dict[tuple[str, str, tuple[bytes, ...]], int] = {}
    shapes: dict[tuple[str, str], drainer.Table] = {}
    for item in archive:
        if isinstance(item, drainer.Transaction):
            for row in item.rows:
                if row.table.key:
                    name = (row.table.schema, row.table.name)
                    shapes[name] = row.table
                    for image in filter(None, (row.before, row.after)):
                        key = literals(image[column] for column in row.table.key)
                        last[*name, key] = item.commit_ts
    assert shapes
    tables = []
    for name, shape in shapes.items():
        columns = tuple(ComparedColumn(one, is_key=True) for one in shape.key)
        keys = [key for schema, table, key in last if (schema, table) == name]
        rows = tuple(RowDifference(key, Kind.EXTRA, None, key) for key in keys)
        tables.append(TableResult((name,), name, State.DIFFERS, columns=columns, differences=rows))
    found = with_last_touch(verification(1 << 62, *tables), archive)
    touched = {
        (*table.downstream, row.key): row.commit_ts for table in found.tables for row in table.differences
    }
    assert touched == last


def test_nothing_after_the_moment_counts_and_what_is_not_there_has_none(archive: drainer.Archive) -> None:
    transactions = (item for item in archive if isinstance(item, drainer.Transaction))
    first, row = next((item, row) for item in transactions for row in item.rows if row.table.key)
    name = (row.table.schema, row.table.name)
    columns = tuple(ComparedColumn(one, is_key=True) for one in row.table.key)
    keys = [literals(row.key_values), tuple(b"-987654" for _ in row.table.key)]
    rows = tuple(RowDifference(key, Kind.EXTRA, None, key) for key in keys)
    sources = (("other", "name"), name)
    here = TableResult(sources, ("routed", "to"), State.DIFFERS, columns=columns, differences=rows)
    found = with_last_touch(verification(first.commit_ts, here), archive)
    assert [one.commit_ts for one in found.tables[0].differences] == [first.commit_ts, 0]


def test_a_table_that_the_archive_does_not_have_is_no_error(archive: drainer.Archive) -> None:
    row = RowDifference((b"1",), Kind.EXTRA, None, (b"1",))
    name = ("no", "such")
    columns = (ComparedColumn("id", is_key=True),)
    table = TableResult((name,), name, State.DIFFERS, columns=columns, differences=(row,))
    assert with_last_touch(verification(1 << 60, table), archive).tables == (table,)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (b"1.50", b"1.5"),
        (b"15e-1", b"1.5"),
        (b"x'41'", b"'A'"),
        (b"_binary'A'", b"'A'"),
        (b"'it''s'", rb"'it\'s'"),
        (rb"'a\0\n'", b"'a\0\n'"),
        (b"'2023-01-02 03:04:05.500000'", b"'2023-01-02 03:04:05.5'"),
        (b"'2023-01-02 03:04:05.000'", b"'2023-01-02 03:04:05'"),
        (b"0/*enum*/", b"''"),
    ],
)
def test_literals_of_one_value_are_comparable(one: bytes, other: bytes) -> None:
    assert comparable(one) == comparable(other)


def test_literals_of_two_values_are_not() -> None:
    values = [b"NULL", b"''", b"'NULL'", b"0", b"'0'", b"'00'", b"'a'", b"'A'", b"'a '", b"'1.50'", b"'1.5'"]
    assert len({comparable(one) for one in values}) == len(values)
