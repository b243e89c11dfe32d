"""Template: one file that needs nothing beside it; a title cannot break out of its place."""

from __future__ import annotations

from tidb_binlog.page.template import moment, page, security_policy, table_of
from tidb_binlog.quantities import count, size


def test_a_page_needs_nothing_beside_it() -> None:
    text = page("a < b", ["<p>x</p>"])
    assert "<title>a &lt; b</title>" in text
    assert "<p>x</p>" in text
    for needed in ("src=", "href=", "<script"):
        assert needed not in text
    assert "script-src 'none'" in security_policy()


def test_it_can_be_read_in_the_dark_and_the_title_is_a_text() -> None:
    text = page("a\u202e\ud800", [])
    assert "<title>a\\u202e\\ud800</title>" in text
    assert "prefers-color-scheme:dark" in text
    text.encode()


def test_cells_and_figures() -> None:
    assert table_of(("one",), "<tr><td>1</td></tr>").count("<tr>") == 2
    assert (count(1, "row"), count(2, "row"), count(0, "row")) == ("1 row", "2 rows", "0 rows")
    assert (size(17), size(3 << 20)) == ("17 B", "3.0 MiB")
    assert moment(0) == "-"
    assert moment(1_700_000_000_000 << 18) == "2023-11-14T22:13:20.000Z"
