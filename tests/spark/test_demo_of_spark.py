"""`make demo-spark`, as the README has it."""

from __future__ import annotations

import re
from pathlib import Path

from tests.docs.pages import run


def test_demo_of_spark(tmp_path: Path) -> None:
    report = tmp_path / "report.html"
    printed = run("make", "demo-spark", f"ARGS=--seconds 2 --report {report}")
    assert re.search(r"^verified: \d+ tables, \d+ rows identical$", printed, re.M)
    assert "<svg" in report.read_text()
