"""docs/binlogctl.md: its commands are understood, its keys do what it says."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

import pytest

from binlogctl.cli import command_line, parsers
from binlogctl.cluster import top_view
from binlogctl.cluster.top_view import SORTS, View
from tests.waiting import PATIENCE_S

PAGE = (Path(__file__).parents[3] / "docs" / "binlogctl.md").read_text(encoding="utf-8")
LINES = [
    line for block in re.findall(r"^```\w*sh\n(.*?)^```$", PAGE, re.M | re.S) for line in block.splitlines()
]
CALLS = sorted(
    {found.strip() for found in re.findall(r"(?:^|\(|`)binlogctl ([^)`>\n]+)", PAGE, re.M)} - {"COMMAND -h"}
)


@pytest.mark.parametrize("call", CALLS)
def test_every_call_is_understood(call: str) -> None:
    assert command_line.parse(shlex.split(call), {})


def test_every_line_is_one_of_a_shell() -> None:
    assert len(LINES) >= 7
    subprocess.run(["bash", "-n", "-c", "\n".join(LINES)], check=True, timeout=PATIENCE_S)


def test_the_environment_that_it_names_is_read() -> None:
    (line,) = re.findall(r"^export (\w+)=(\S+)$", PAGE, re.M)
    call = command_line.parse(["status"], dict([line]))
    assert isinstance(call, command_line.Call)
    assert call.settings.pd_urls == line[1]


def test_the_keys_do_what_the_page_says() -> None:
    rows = dict(re.findall(r"^\| (.+?) \| (.+?) \|$", PAGE.partition("## top")[2], re.M))
    named = {key for keys in rows for key in re.findall(r"`(\w)`", keys)}
    assert {one for one in top_view.SEQUENCES if len(one) == 1} - {" "} | {"s", "r", "q"} == named
    assert f"next of {', '.join(SORTS)}" in rows["`s`"]
    view = View(first=5)
    for key, first in (("j", 6), ("k", 4), (" ", 14), ("b", 0), ("g", 0), ("G", 90)):
        assert top_view.pressed(view, top_view.keys(key)[0][0], 100, 10).first == first
    assert "-sort" in parsers.tree()["top"].format_help()
