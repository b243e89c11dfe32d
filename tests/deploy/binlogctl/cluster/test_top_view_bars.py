"""Bars, curves and places: as wide as asked for, and nothing that is there is left out."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from binlogctl.cluster.top_view import between, curve, stacked

SECONDS = st.floats(0, 1e6)


def test_a_bar_has_a_column_for_whatever_is_there() -> None:
    assert stacked({"write": 0.0, "pull": 1.0, "apply": 3.0}, 8) == [("pull", 2), ("apply", 6)]
    assert stacked({"write": 0.01, "apply": 99.0}, 10) == [("write", 1), ("apply", 9)]
    assert stacked({"write": 0.0}, 8) == []


@given(st.dictionaries(st.sampled_from("abcde"), SECONDS), st.integers(5, 60))
def test_a_bar_is_no_wider_than_it_may_be(parts: dict[str, float], width: int) -> None:
    columns = dict(stacked(parts, width))
    assert sum(columns.values()) <= width
    assert all(number > 0 for number in columns.values())
    if sum(parts.values()) > 0:
        assert columns.keys() == {name for name, part in parts.items() if part > 0}


def test_a_curve_reaches_from_nothing_to_its_highest_value() -> None:
    assert curve([0.0, 50.0, 100.0, 12.5], 30) == "▁▄█▁"
    assert curve([9.0, 1.0, 1.0], 2) == "██"
    assert curve([0.0, 0.0], 30) == "▁▁"
    assert curve([], 30) == ""


def test_a_place_is_as_near_to_an_end_as_it_is() -> None:
    assert between(0.0, 5.0, 5) == "◆────"
    assert between(5.0, 0.0, 5) == "━━━━◆"
    assert between(1.0, 1.0, 5) == "━━◆──"
    assert between(-1.0, 5.0, 5) == "◆────"
    assert between(0.0, 0.0, 5) == "━━━━◆"
