"""Which part of an archive is wanted: times, tables, kinds."""

from __future__ import annotations

import pickle

import pytest

from drainer.reading.archive.files.selection import Selection, parse_bound
from drainer.txn import DELETE, INSERT
from tidb_binlog import tso
from tidb_binlog.errors import ConfigError

SECOND_MS = 1_795_316_645_000  # 2026-11-22 03:04:05 UTC


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("2026-11-22 03:04:05", SECOND_MS),
        ("2026-11-22T03:04:05Z", SECOND_MS),
        ("2026-11-22 03:04:05.678901", SECOND_MS + 678),
        ("2026-11-22 03:04", SECOND_MS - 5000),
        ("2026-11-22", SECOND_MS - (3 * 3600 + 4 * 60 + 5) * 1000),
    ],
)
def test_a_time_is_a_millisecond_from_its_first_to_its_last_timestamp(text: str, milliseconds: int) -> None:
    first, last = parse_bound(text, end=False), parse_bound(text, end=True)
    assert first == tso.compose(milliseconds)
    assert last == tso.compose(milliseconds + 1) - 1


def test_digits_are_a_timestamp_and_nothing_is_no_bound() -> None:
    assert parse_bound(" 470607644560982029 ", end=True) == 470607644560982029
    assert parse_bound("", end=True) == 0


@pytest.mark.parametrize(
    "text", ["yesterday", "2026-02-30", "2026-11-22 24:00:00", "1969-01-01", "9" * 20, "-1"]
)
def test_what_is_no_moment_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="neither a commit_ts nor a time"):
        parse_bound(text, end=False)


@pytest.mark.parametrize(
    ("patterns", "wanted", "not_wanted"),
    [
        ("shop.orders", ["shop.orders", "Shop.ORDERS"], ["shop.order", "shop.orders2", "shops.orders"]),
        ("shop.*", ["shop.orders", "shop."], ["shop2.orders"]),
        ("shop", ["shop.orders", "shop."], ["shop2.orders"]),
        ("a.t_?, b.log_[0-9]", ["a.t_1", "b.log_7"], ["a.t_12", "b.log_x"]),
        (r"~^s.*\.(a|b)$", ["s1.a", "shop.b"], ["s1.ab", "x.a"]),
        (r"~^s\.t{1,2}$, u.v", ["s.t", "s.tt", "u.v"], ["s.ttt"]),
        ("", ["any.thing"], []),
    ],
)
def test_tables_are_wanted_by_pattern(patterns: str, wanted: list[str], not_wanted: list[str]) -> None:
    selection = pickle.loads(pickle.dumps(Selection.of(tables=patterns)))
    for name in (*wanted, *not_wanted):
        schema, _, table = name.partition(".")
        assert selection.wants_table(schema, table) == (name in wanted), name


@pytest.mark.parametrize("pattern", ["~(", "a*b.t", "s.t*x"])
def test_a_pattern_that_cannot_be_read_is_refused(pattern: str) -> None:
    with pytest.raises(ConfigError, match="the pattern of tables"):
        Selection.of(tables=pattern)


def test_bounds_are_inclusive() -> None:
    selection = Selection(10, 20)
    assert [ts for ts in (9, 10, 20, 21) if selection.wants_ts(ts)] == [10, 20]
    assert Selection(10).wants_ts(1 << 62)
    assert Selection(20, 10).is_empty
    with pytest.raises(ConfigError, match="before it begins"):
        Selection.of("20", "10")


def test_kinds_by_name() -> None:
    assert Selection.of(ops="Insert, delete").ops == (INSERT, DELETE)
    with pytest.raises(ConfigError, match="'upsert' is no kind of change"):
        Selection.of(ops="upsert")
