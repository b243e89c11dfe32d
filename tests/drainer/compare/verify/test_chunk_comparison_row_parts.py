"""Rows that do not fit into memory are compared as those that do, whatever differs."""

from __future__ import annotations

import random
from collections.abc import Iterable
from contextlib import closing
from io import BytesIO
from typing import Any

import pytest

from drainer.compare.verify import chunk_comparison
from drainer.compare.verify.chunk_comparison import Differing, PartedComparison, SideRows, part_of
from drainer.compare.verify.compared_table import ComparedTable, compared_table
from drainer.compare.verify.result import LISTED_MAX, Kind
from drainer.compare.verify.row_differences import Printed
from drainer.compare.verify.table_work import Request, TableWork
from drainer.mysql.chunks.chunk import Chunk
from drainer.mysql.literal.downstream_column import DownstreamColumn
from drainer.mysql.rows.column_match import DownstreamTable, KeyPart, UniqueKey
from drainer.mysql.rows.dialect import Dialect
from tidb_binlog.errors import DownstreamError

COLUMNS = (
    DownstreamColumn("id", "int", nullable=False),
    DownstreamColumn("v", "decimal", digits=2, nullable=True),
    DownstreamColumn("g", "varchar", length=9, nullable=True, generated=True),
)


def described(*, keyed: bool) -> ComparedTable:
    keys = (UniqueKey("PRIMARY", (KeyPart("id"),)),) if keyed else ()
    table = DownstreamTable("d", "t", COLUMNS, keys, dialect=Dialect.MARIADB)
    found = compared_table([table], table)
    assert isinstance(found, ComparedTable)
    return found


def compared(
    table: ComparedTable,
    upstream: Iterable[Printed],
    downstream: Iterable[Printed],
    *,
    keep_all: bool = True,
) -> Differing:
    with closing(SideRows(table)) as ours, closing(SideRows(table)) as theirs:
        ours.take(upstream)
        theirs.take(downstream)
        return PartedComparison(table, keep_all=keep_all).compare(ours, theirs)


def rows_at_random(chance: random.Random, count: int, *, keyed: bool) -> list[Printed]:
    found: list[Printed] = []
    for number in range(count):
        key = number if keyed else chance.randrange(count // 4 + 1)
        text = chance.choice([None, b"", b"x", b"y" * chance.randrange(400)])
        found.append((b"%d" % key, chance.choice([None, b"1.50", b"2.00"]), text))
    return found


@pytest.mark.parametrize("keyed", [True, False])
@pytest.mark.parametrize("seed", range(8))
def test_parts_find_what_the_whole_does(monkeypatch: pytest.MonkeyPatch, seed: int, *, keyed: bool) -> None:
    chance = random.Random(seed)
    table = described(keyed=keyed)
    upstream = rows_at_random(chance, chance.choice([0, 1, 50, 700]), keyed=keyed)
    downstream = [row for row in upstream if chance.random() > 0.1]
    for place in range(len(downstream)):
        if chance.random() < 0.3:
            key, value, text = downstream[place]
            downstream[place] = (key, chance.choice([value, b"9.00"]), chance.choice([text, b"z", None]))
    downstream += [(b"%d" % -number, None, None) for number in range(1, chance.randrange(1, 30))]
    chance.shuffle(downstream)
    whole = compared(table, upstream, downstream)
    monkeypatch.setattr(chunk_comparison, "MEMORY_BYTES", chance.choice([100, 3000, 50_000]))
    parted = compared(table, upstream, downstream)
    assert (parted.counts, parted.computed) == (whole.counts, whole.computed)
    every = sorted(parted.all(), key=repr)
    assert every == sorted(whole.all(), key=repr)
    assert len(parted.first) == min(len(every), LISTED_MAX)
    assert whole.counts[Kind.EXTRA] - whole.counts[Kind.MISSING] == len(downstream) - len(upstream)


@pytest.mark.parametrize("made", [0, 1, 100], ids=["none", "one", "all"])
def test_a_full_disk_is_told(monkeypatch: pytest.MonkeyPatch, made: int) -> None:
    class Full(BytesIO):
        def write(self, _: Any) -> int:
            raise OSError(28, "No space left on device")

    files = iter([*(Full() for _ in range(made)), *[OSError(24, "Too many open files")] * 100])

    def file() -> BytesIO:
        if isinstance(found := next(files), OSError):
            raise found
        return found

    monkeypatch.setattr(chunk_comparison.tempfile, "TemporaryFile", file)
    monkeypatch.setattr(chunk_comparison, "MEMORY_BYTES", 100)
    rows: list[Printed] = [(b"%d" % number, b"1.00", b"x" * 50) for number in range(20)]
    with pytest.raises(DownstreamError, match=r"cannot be kept in .*(No space left|Too many open)"):
        compared(described(keyed=True), rows, rows)


def test_each_row_is_put_into_a_file_once_a_level(monkeypatch: pytest.MonkeyPatch) -> None:
    """Time grows with the rows alone."""
    put = 0
    plain = SideRows._put

    def counted(self: SideRows, row: Printed) -> None:
        nonlocal put
        put += 1
        plain(self, row)

    monkeypatch.setattr(SideRows, "_put", counted)
    for number in (1000, 4000):
        rows: list[Printed] = [(b"%d" % one, b"1.00", b"x" * 50) for one in range(number)]
        monkeypatch.setattr(chunk_comparison, "MEMORY_BYTES", 4 * number)
        put = 0
        assert sum(compared(described(keyed=True), rows, rows).counts.values()) == 0
        assert put == 2 * 2 * number


def test_of_large_differences_few_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    table = described(keyed=True)
    wide: list[Printed] = [(b"%d" % number, None, b"x" * (1 << 20)) for number in range(12)]
    found = compared(table, wide, [])
    assert (found.counts[Kind.MISSING], len(found.first), len(list(found.all()))) == (12, 4, 12)
    work = TableWork(Request((("d", "t"),), ("d", "t")))
    work.take(table)
    for number in (3, 2, 1):
        work.add(Chunk(number), part_of(12, 0, compared(table, wide, [], keep_all=False)), 0.0)
    result = work.result()
    assert (result.missing, len(result.differences)) == (36, 4)
    few = [(b"%d" % -number, None, None) for number in range(1, 3)]
    work.add(Chunk(0), part_of(2, 0, compared(table, few, [])), 0.0)
    assert [one.key for one in work.result().differences][:2] == [(b"-1",), (b"-2",)], "in their order"
    work.look_again()
    assert work.result().differences == ()


def test_rows_that_are_all_equal_are_not_parted_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunk_comparison, "MEMORY_BYTES", 100)
    row: Printed = (b"1", b"1.50", b"x" * 50)
    found = compared(described(keyed=False), [row] * 300, [row] * 299)
    assert (found.counts[Kind.MISSING], found.first[0].copies) == (1, (300, 299))


def test_a_row_in_which_only_a_computed_column_differs_is_told_apart() -> None:
    found = compared(
        described(keyed=True),
        [(b"1", b"1", b"a"), (b"2", b"1", b"a")],
        [(b"1", b"1", b"b"), (b"2", b"2", b"b")],
    )
    assert (found.counts[Kind.CHANGED], found.computed) == (2, 1)
