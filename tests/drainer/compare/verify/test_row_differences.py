"""Rows of both sides as a multiset: what is missing, one too many, changed."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from drainer.changes import canonical
from drainer.compare.verify.column_pairs import ColumnPair
from drainer.compare.verify.result import Kind, RowDifference
from drainer.compare.verify.row_differences import RowComparison, literal


def column(name: str, form: str) -> ColumnPair:
    quoted = b"`%b`" % name.encode()
    return ColumnPair(name, (quoted, quoted), form, (quoted, quoted))


KEYED = RowComparison([column("id", canonical.INTEGER), column("t", canonical.TEXT)], (0,))
KEYLESS = RowComparison([column("t", canonical.TEXT)], ())


def test_rows_are_matched_by_their_key() -> None:
    found = KEYED.differences(
        [(b"1", b"a"), (b"2", b"b"), (b"3", b"c")], [(b"2", b"B"), (b"3", b"c"), (b"4", b"d")]
    )
    assert found == [
        RowDifference((b"1",), Kind.MISSING, (b"1", b"'a'"), None),
        RowDifference((b"2",), Kind.CHANGED, (b"2", b"'b'"), (b"2", b"'B'"), ("t",)),
        RowDifference((b"4",), Kind.EXTRA, None, (b"4", b"'d'")),
    ]


def test_null_is_no_empty_text() -> None:
    (found,) = KEYED.differences([(b"1", None)], [(b"1", b"")])
    assert (found.upstream, found.downstream) == ((b"1", b"NULL"), (b"1", b"''"))


def test_a_row_without_a_key_counts_as_often_as_it_is_there() -> None:
    (found,) = KEYLESS.differences([(b"a",)] * 3 + [(b"b",)], [(b"b",), (b"a",)])
    assert (found.kind, found.copies, found.rows) == (Kind.MISSING, (3, 1), 2)


def test_a_key_that_is_there_twice_is_one_row_too_many() -> None:
    (found,) = KEYED.differences([(b"1", b"a")], [(b"1", b"a"), (b"1", b"a")])
    assert (found.kind, found.copies, found.rows) == (Kind.EXTRA, (1, 2), 1)


def test_another_text_of_the_same_value_is_no_difference() -> None:
    table = RowComparison([column("d", canonical.DECIMALS), column("j", canonical.DOCUMENT)], ())
    assert not table.differences([(b"1.50", b'{"a":1,"b":2}')], [(b"1.5", b'{"b": 2, "a": 1}')])


Rows = st.lists(
    st.tuples(st.sampled_from([b"1", b"2", b"3"]), st.sampled_from([b"a", b"b", None])), max_size=8
)


@given(Rows, Rows)
def test_it_finds_as_many_as_multisets_differ(
    here: list[tuple[bytes, bytes | None]], there: list[tuple[bytes, bytes | None]]
) -> None:
    rows: list[tuple[bytes | None, ...]] = [*here]
    others: list[tuple[bytes | None, ...]] = [*there]
    found = RowComparison([column("id", canonical.INTEGER), column("t", canonical.TEXT)], ()).differences(
        rows, others
    )
    one, other = Counter(here), Counter(there)
    assert sum(each.rows for each in found) == sum(((one - other) + (other - one)).values())
    keyed = KEYED.differences(rows, others)
    assert bool(keyed) == bool(found)
    changed = [each for each in keyed if each.kind is Kind.CHANGED]
    assert sum(each.rows for each in keyed) == sum(each.rows for each in found) - len(changed)


def test_values_are_literals() -> None:
    assert literal(b"it's", canonical.TEXT) == b"'it''s'"
    assert literal(b"\0\xff", canonical.BINARY) == b"x'00ff'"
    assert literal(b"-1.50", canonical.DECIMALS) == b"-1.50"
    assert literal(b"2023-01-01", canonical.TIMES) == b"'2023-01-01'"
