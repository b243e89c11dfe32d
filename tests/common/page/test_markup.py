"""Markup: no text becomes an element, whatever it is and wherever it is put."""

from __future__ import annotations

import pytest

from tests.common.page.support.hostile import ATTACK
from tests.common.page.support.reading import read
from tidb_binlog.page.markup import ROWS_MAX, TEXT_MAX, Markup, element, facts, join, table, text

SEEN = ATTACK.replace("\u202e", "\\u202e").replace("\x1b", "\\x1b").replace("\ud800", "\\ud800")


@pytest.mark.parametrize(
    "made",
    [
        text(ATTACK),
        join("a", ATTACK),
        element("p", ATTACK),
        element("p", element("b", ATTACK)),
        facts([(ATTACK, ATTACK)]),
        table(ATTACK, (ATTACK,), [(ATTACK,)], 1),
    ],
)
def test_a_text_is_seen_as_it_is(made: Markup) -> None:
    page = read(made)
    assert SEEN in page.text
    assert not page.named("script")
    assert not page.named("img")
    made.encode()  # also what no encoding has


def test_an_attribute_cannot_be_left() -> None:
    (made,) = read(element("a", "x", href=f'"{ATTACK}', class_="b", aria_label="c", title=None)).named("a")
    assert made.attributes == {"href": f'"{SEEN}', "class": "b", "aria-label": "c"}


def test_long_texts_and_tables_are_cut_and_say_so() -> None:
    assert len(text("x" * 10_000)) == TEXT_MAX
    assert text("x" * 10_000).endswith("…")
    page = read(table("t", ("n",), ((str(n),) for n in range(5000)), 5000))
    assert len(page.named("tr")) == 1 + ROWS_MAX
    assert f"{ROWS_MAX} of 5,000 are shown" in page.text
    assert "are shown" not in read(table("t", ("n",), [("1",)], 1)).text


def test_markup_goes_in_as_it_is_and_once() -> None:
    assert element("p", "a<", element("b", "&"), Markup("<i>x</i>")) == "<p>a&lt;<b>&amp;</b><i>x</i></p>"
