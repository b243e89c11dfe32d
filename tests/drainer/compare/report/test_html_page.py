"""HTML page: everything of the result is on it, as text."""

from __future__ import annotations

from drainer.compare.report.html_page import html
from tests.drainer.compare.report.results import FAULTY, SOUND


def test_the_page_of_a_faulty_comparison() -> None:
    page = html(FAULTY)
    assert "<script" not in page
    assert "<b>xxx" not in page
    assert "&lt;b&gt;xxx" in page
    assert 'class="verdict bad">6 rows differ in 2 of 4 tables' in page
    for said in (
        "4 of 6 are listed",
        "it waits: a DDL was refused",
        "users and grants are not compared",
        "left out by a column rule",
        "JSON is compared by meaning",
        "no key: 1 upstream, 3 downstream",
        "apply was held for 3.2 ms",
    ):
        assert said in page, said


def test_equal_sides_are_said_in_green() -> None:
    page = html(SOUND)
    assert 'class="verdict good">downstream equals upstream' in page
    assert "Rows that differ" not in page
