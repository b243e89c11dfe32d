"""Pages that open a publisher, a client or a stream show it with asyncio and without, and both forms run."""

from __future__ import annotations

import re

import pytest

from binlog_testing import BinlogCluster
from tests.cases import case
from tests.docs.pages import PAGES, Page

ENDPOINT = "127.0.0.1:2379"
OPENED = re.compile(r"\b(open_publisher|connect|subscribe)(_sync)?\(")
BLOCKING_DATABASE = {"docs/load.md"}
"""Its program says in words what asyncio is about."""


def test_a_page_shows_both_forms_of_what_it_opens() -> None:
    pages = 0
    for path in sorted({"README.md", *PAGES} - BLOCKING_DATABASE):
        text = "\n".join(Page(path).blocks("python")).replace("pymysql.connect(", "")
        text = text.replace("sqlite3.connect(", "").replace("binlog_cluster.", "")
        forms = set(OPENED.findall(text))
        with case(path):
            assert {name for name, sync in forms if sync} == {name for name, sync in forms if not sync}
        pages += bool(forms)
    assert pages >= 7


@pytest.mark.parametrize("path", ["README.md", "docs/install.md", "docs/quick-start.md", "docs/publish.md"])
def test_both_forms_run_one_after_the_other(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    programs = [block for block in Page(path).blocks("python") if "pymysql" not in block]
    assert [("asyncio" in program) for program in programs] == [False, True] * (len(programs) // 2)
    cluster = BinlogCluster()
    cluster.endpoint = ENDPOINT
    with cluster:
        for program in programs:
            assert ENDPOINT in program
            exec(program, {"__name__": "page"})
        rows = sum(1 for change in cluster.changes() for _ in getattr(change, "rows", ()))
    assert rows in (2, 3)
    assert "committed at" in capsys.readouterr().out
