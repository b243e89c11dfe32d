"""Keys in, view out: orders, a window that never leaves the page, keys that come in pieces."""

from __future__ import annotations

from dataclasses import replace

import pytest

from binlogctl.cluster import top_view
from binlogctl.cluster.top_view import SORTS, View, keys, pressed
from tidb_binlog.cluster.overview import NodeLine, Overview
from tidb_binlog.cluster.registry import DRAINERS, PUMPS
from tidb_binlog.status.troubles import ERROR, WARNING, Trouble


def node(
    name: str,
    address: str,
    behind_s: float | None,
    *,
    state: str = "online",
    alive: bool = True,
    answers: bool = True,
) -> NodeLine:
    return NodeLine(PUMPS, name, address, state, alive, answers, 1, behind_s, {}, "")


NODES = (
    node("c", "h:1", 5.0),
    node("a", "h:3", None, answers=False),
    node("d", "h:4", 0.0, alive=False),
    node("b", "h:2", 90.0, state="pausing"),
    node("e", "h:5", 5.0),
)


@pytest.mark.parametrize(
    ("sort", "order"),
    [("name", "abcde"), ("address", "cbade"), ("state", "dabce"), ("behind", "bceda")],
)
def test_orders(sort: str, order: str) -> None:
    seen = Overview(1, NODES, ())
    found = top_view.ordered(seen, View(sort))
    assert "".join(line.node_id for line in found.nodes) == order
    found = top_view.ordered(seen, View(sort, is_reversed=True))
    assert "".join(line.node_id for line in found.nodes) == order[::-1]


def test_s_goes_through_all_orders_and_r_turns_one_round() -> None:
    view, passed = View(), []
    for _ in range(len(SORTS) + 1):
        passed.append(view.sort)
        view = pressed(view, "s", 10, 5)
    assert passed == [*SORTS, next(iter(SORTS))]
    turned = pressed(view, "r", 10, 5)
    assert turned.is_reversed
    assert not pressed(turned, "r", 10, 5).is_reversed
    assert not pressed(turned, "s", 10, 5).is_reversed


@pytest.mark.parametrize(
    ("typed", "first"),
    [
        ("j", 1),
        ("jjk", 1),
        ("k", 0),
        ("\x1b[B\x1bOB", 2),
        (" ", 9),
        ("\x1b[6~", 9),
        ("\x1b[6~\x1b[5~j", 1),
        ("G", 20),
        ("\x1b[F", 20),
        ("Gj", 20),
        ("Gb", 11),
        ("Gg", 0),
        ("\x1b[4~\x1b[1~", 0),
        ("  x", 18),
        ("   ", 20),
    ],
)
def test_scrolling_a_page_of_30_lines_in_a_window_of_10(typed: str, first: int) -> None:
    found, rest = keys(typed)
    assert rest == ""
    view = View()
    for key in found:
        view = pressed(view, key, 30, 10)
    assert view.first == first


def test_the_window_stays_on_a_page_that_became_shorter() -> None:
    assert top_view.within(View(first=20), 12, 10).first == 2
    assert top_view.within(View(first=20), 4, 10).first == 0
    assert pressed(View(), "down", 4, 10).first == 0


def test_a_key_may_come_in_pieces() -> None:
    assert keys("j\x1b[") == (["down"], "\x1b[")
    assert keys("\x1b[6~") == (["page down"], "")
    assert keys("\x1b") == ([], "\x1b")
    assert keys("\x1b[") == ([], "\x1b[")
    assert keys("\x1b[5") == ([], "\x1b[5")
    assert keys("\x1b[1;5Cq") == (["\x1b[1;5C", "q"], ""), "a key without a meaning, whole"
    assert keys("") == ([], "")


def test_q_ends() -> None:
    assert pressed(View(), "q", 1, 1).is_over
    assert not pressed(View(), "x", 1, 1).is_over


def test_the_bar_says_the_order_and_what_is_seen() -> None:
    assert top_view.bar(View(), None, 5, 10).startswith("by name  s: sort")
    assert top_view.bar(View("behind", is_reversed=True, first=20), None, 30, 10).startswith(
        "lines 21-30 of 30, by behind, reversed"
    )


def test_the_bar_says_what_is_wrong_where_it_is_out_of_sight() -> None:
    troubles = [Trouble(severity, "n", "is wrong") for severity in (ERROR, WARNING, ERROR)]
    seen = Overview(1, NODES, tuple(troubles))
    assert top_view.bar(View(), seen, 5, 10).startswith("2 errors, 1 warning, by name  s: sort")


def test_the_past_of_a_drainer_is_a_curve_as_long_as_it_is_there() -> None:
    past = top_view.Past()
    for behind_s, rows_per_s in ((0.0, 0.0), (40.0, 100.0), (80.0, 2000.0)):
        drainer = replace(node("d", "h:1", behind_s), kind=DRAINERS, rows_per_s=rows_per_s)
        past.note(Overview(1, (drainer, node("p", "h:2", 5.0)), ()))
    assert past.curves() == [("d", "▁▄█", "80 s", "▁▁█", "2,000")]
    for _ in range(99):
        past.note(Overview(1, (drainer,), ()))
    assert len(past.curves()[0][1]) == top_view.CURVE
    calm = replace(drainer, behind_s=1.0)
    for _ in range(top_view.CURVE):
        past.note(Overview(1, (calm,), ()))
    assert past.curves()[0][2] == "1.0 s", "what is not shown is forgotten"
    past.note(Overview(1, (), ()))
    assert past.curves() == []
