"""Rows that exist are loaded beside random transactions and DDL; the load is killed, and started again."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.deploy.binlog_playground.test_run import run
from tests.deploy.binlog_playground.test_run import scratch as scratch

pytestmark = pytest.mark.integration


def test_what_exists_is_loaded_while_it_is_written_to_and_killed(scratch: Path) -> None:
    few = ("--seconds", "2", "--rate", "40", "--sessions", "4", "--seed", "5")
    status, out, err = run(scratch, "--load", "--kills", "3", *few)
    assert status == 0, f"{out}\n{err}"
    there = re.search(r"^(\d+) tables with (\d+) rows that nobody published$", out, re.M)
    loaded = re.search(
        r"^loaded in .*, killed (\d) times, beside (\d+) transactions and (\d+) DDL$", out, re.M
    )
    verified = re.search(r"^verified: (\d+) tables, (\d+) rows identical$", out, re.M)
    assert there is not None
    assert loaded is not None
    assert verified is not None
    assert int(there[2]) > 5000
    assert int(loaded[1]) > 0
    assert int(loaded[3]) > int(there[1]), "a DDL more than those that made the tables"
    assert int(verified[2]) > 1000
    assert list(scratch.iterdir()) == []
