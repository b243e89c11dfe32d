"""Some seconds of the campaign against a real TiDB.

`BINLOG_PEERS` names a directory with tidb-server, pd-server, unistore-server, and Go's pump and drainer.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.rig.runs import run
from tests.rig.runs import scratch as scratch

pytestmark = pytest.mark.integration


@pytest.fixture
def peers() -> str:
    """The directory of the programs."""
    named = os.environ.get("BINLOG_PEERS")
    if not named:
        pytest.skip("no TiDB to start: BINLOG_PEERS names no directory with its programs")
    return named


def test_random_sql_of_a_real_tidb_is_equal_downstream(scratch: Path, peers: str) -> None:
    faults = ("--seconds", "15", "--seed", "1", "--kills", "--go-pump")
    status, out, err = run(scratch, "tests.rig.tidb", "--peers", peers, *faults)
    assert status == 0, f"{out}\n{err}"
    *_, result = out.splitlines()
    assert " 0 differences" in result
    if "{}, 0 differences, 0 DDL waited" in result:  # else `verify` tells of limits, or leaves tables out
        assert "verify: 0" in out
    assert list(scratch.iterdir()) == []


def test_a_directory_without_the_programs_is_named(scratch: Path) -> None:
    status, _, err = run(scratch, "tests.rig.tidb", "--peers", str(scratch))
    assert status == 2
    assert "has no tidb-server, pd-server, unistore-server, pump, drainer" in err
