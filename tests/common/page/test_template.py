"""Page: one file that needs nothing beside it; a title cannot break out of its place."""

from __future__ import annotations

from common.page.template import count, moment, page, size, table_of


def test_a_page_needs_nothing_beside_it() -> None:
    text = page("a < b", ["<p>x</p>"])
    assert "<title>a &lt; b</title>" in text
    assert "<p>x</p>" in text
    for needed in ("src=", "href=", "<script"):
        assert needed not in text


def test_cells_and_figures() -> None:
    assert table_of(("one",), "<tr><td>1</td></tr>").count("<tr>") == 2
    assert (count(1, "row"), count(2, "row"), count(0, "row")) == ("1 row", "2 rows", "0 rows")
    assert (size(17), size(3 << 20)) == ("17 B", "3.0 MiB")
    assert moment(0) == "-"
    assert moment(1_700_000_000_000 << 18) == "2023-11-14T22:13:20.000Z"
