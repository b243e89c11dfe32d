"""`make demo-spark`, as the README has it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from drainer.spark.live.mirror import DELTA_CONNECTOR
from tests.docs.pages import run
from tests.rig import lake_mirror
from tests.spark.support import spark_versions

pytestmark = [pytest.mark.integration, pytest.mark.timeout(spark_versions.MAKING_S + 400)]


def test_demo_of_spark(tmp_path: Path) -> None:
    spark_versions.or_skip(lambda: spark_versions.jars("4.1", *DELTA_CONNECTOR.packages))
    report = tmp_path / "report.html"
    arguments = f"ARGS=--seconds 2 --report {report}"
    printed = run("make", "demo-spark", arguments, deadline_s=spark_versions.MAKING_S + 300)
    assert re.search(r"^verified: \d+ tables, \d+ rows identical$", printed, re.M)
    assert "<svg" in report.read_text()
    assert re.search(r"^batch \d+, [1-9]\d* rows, 1 DDL, ", printed, re.M), "rows, then the new column"
    assert lake_mirror.QUERY in printed
    assert re.search(r"^│ paid +│ +[1-9]", printed, re.M), "what DuckDB answers"
    assert re.search(r"^mirror verified row by row: changes 8,000, rows [1-9][\d,]+,", printed, re.M)
    mirror = json.loads(report.with_suffix(".json").read_text())["mirror"]
    assert (mirror["changes"], mirror["differences"]) == (lake_mirror.CHANGES, 0)
