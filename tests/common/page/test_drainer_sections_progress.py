"""Progress on the page: each chunk of a comparison, each table of a load."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.common.page.support.reading import Element, read
from tidb_binlog.cluster.registry import DRAINERS
from tidb_binlog.page import drainer_sections
from tidb_binlog.page.status_page import Shown, html
from tidb_binlog.status.drainer import ChunkGrid, DrainerDocument, LoadedTable, LoadStatus, VerifyStatus

LOAD = LoadStatus(
    stage="copying",
    rows=350,
    rows_expected=1000,
    table_count=4,
    tables=[
        LoadedTable(table="shop.a", rows=250, rows_expected=500),
        LoadedTable(table="shop.b", rows=700, rows_expected=500),
        LoadedTable(table="shop.c", rows=90, rows_expected=100, done=True),
    ],
)


def figures(html_text: str) -> list[Element]:
    return read(html_text).named("figure")


def test_a_grid_has_a_square_for_each_cell_and_says_how_many() -> None:
    cells = "=" * 30 + "!" + "." * 9
    table = ChunkGrid(table="shop.a", cells=cells, chunks=80, rows=900, rows_expected=2000)
    (figure,) = figures(drainer_sections.grids([table]))
    said = "shop.a: 80 chunks so far, 2 a square: equal 30, differs 1, left 9"
    assert figure.named("svg")[0].attributes["aria-label"] == said
    drawn = {one.attributes["class"]: one.attributes["d"] for one in figure.named("path")}
    assert {name: path.count("M") for name, path in drawn.items()} == {"equal": 30, "differs": 1, "left": 9}
    assert drawn["differs"] == "M5 1h.85v.85h-.85z"
    assert "80 chunks so far, 2 a square; 900 rows of about 2,0001 to be looked at again" in figure.text


def test_a_bar_is_as_long_as_the_share_and_full_at_the_end() -> None:
    text = drainer_sections.load(LOAD)
    widths = [one.named("rect")[1].attributes["width"] for one in figures(text)]
    assert widths == ["50.0", "100.0", "100.0"]
    assert [one.named("p")[0].text for one in figures(text)] == [
        "250 rows of about 500",
        "700 rows of about 500",
        "90 rows, done",
    ]
    assert "copying: 350 rows of about 1,000" in read(text).text
    assert "1 more table, done or not begun." in read(text).text


@pytest.mark.parametrize("document", [None, DrainerDocument(state="online", load=LOAD)])
def test_a_load_is_on_the_page_before_the_drainer_is_up_and_beside_the_stream(
    document: DrainerDocument | None,
) -> None:
    shown = Shown(DRAINERS, document, "", None, "", [], 1.7e9)
    assert "Load" not in [one.text for one in read(html(replace(shown, document=None))).named("h2")]
    top = read(html(shown if document else replace(shown, load=LOAD)))
    assert "Load" in [one.text for one in top.named("h2")]
    assert len([one for one in top.named("figure") if "shop." in one.text]) == 3


def test_a_comparison_is_on_the_page_while_it_runs() -> None:
    running = VerifyStatus(running_since_s=1.7e9, grid=[ChunkGrid(table="shop.a", cells="=", chunks=1)])

    def names(verify: VerifyStatus) -> list[str]:
        shown = Shown(DRAINERS, DrainerDocument(verify=verify), "", None, "", [], 1.7e9)
        return [one.text for one in read(html(shown)).named("figcaption")]

    assert names(running) == ["shop.a"]
    assert names(VerifyStatus(grid=running.grid)) == []
