"""The command as a user types it: real etcd, Pumps, Drainer and MariaDB; nothing is left behind."""

from __future__ import annotations

import json
import re
import signal
import urllib.request
from pathlib import Path

import pytest

from drainer.operate.status.lag import IDLE_S
from tests.rig.runs import PLAYGROUND, processes_of, run, start
from tests.rig.runs import scratch as scratch
from tests.waiting import PATIENCE_S, until_here

pytestmark = pytest.mark.integration


def test_the_demo_verifies(scratch: Path) -> None:
    status, out, err = run(scratch, PLAYGROUND, "--seconds", "5", "--seed", "7", "--rate", "50")
    assert status == 0, f"{out}\n{err}"
    lines = out.splitlines()
    verified = re.fullmatch(r"verified: \d+ tables, (\d+) rows identical", lines[-2])
    assert verified is not None
    assert int(verified[1]) > 30, "more than the recording has"
    assert re.match(
        r"summary: 184 recorded binlogs in \S+ s, \d+ transactions \(\d+/s\), \d+ row changes \(\d+/s\), ",
        lines[-1],
    )
    assert re.search(r"lag p50 \d+ ms, p99 \d+ ms", lines[-1])
    quiet = re.search(r"quiet: ([\d.]+) s behind", lines[-1])
    assert quiet is not None
    assert float(quiet[1]) < IDLE_S, "who has nothing to do is not behind"
    assert any("first replicated row after" in line for line in lines)
    shown = lines.index("binlogctl tail -tables 'playground.*' -from -5s")
    for line in lines[shown + 1 : shown + 4]:
        assert re.match(r"  \d{4}-\S+ [\d:.]+  playground\.\w+  (insert|update|delete) ", line), line
    assert any(re.search(r"txn/s .* lag p50 .* checkpoint \d+", line) for line in lines)
    assert list(scratch.iterdir()) == []


@pytest.mark.parametrize(
    ("number", "moment"), [(signal.SIGTERM, "starting etcd"), (signal.SIGINT, "random workload")]
)
def test_ctrl_c_leaves_nothing_behind(scratch: Path, number: signal.Signals, moment: str) -> None:
    process = start(scratch, PLAYGROUND, "--seconds", "60", "--rate", "20")
    assert process.stdout is not None
    for line in process.stdout:
        if moment in line:
            break
    process.send_signal(number)
    _, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130, err
    assert err.splitlines() == ["interrupted: ending all processes"]
    assert processes_of(scratch) == []
    assert list(scratch.iterdir()) == []


def test_a_killed_playground_takes_its_processes_along(scratch: Path) -> None:
    process = start(scratch, PLAYGROUND, "--seconds", "60", "--rate", "20")
    assert process.stdout is not None
    for line in process.stdout:
        if "first replicated row" in line:
            break
    assert len(processes_of(scratch)) >= 5
    process.kill()
    process.communicate()
    until_here(lambda: not processes_of(scratch), "they end")


def test_keep_leaves_everything_running_and_json_is_all_that_is_printed(scratch: Path) -> None:
    process = start(scratch, PLAYGROUND, "--seconds", "4", "--keep", "--json")
    assert process.stderr is not None
    told = []
    for line in process.stderr:
        told.append(line)
        if "Ctrl-C ends everything" in line:
            break
    text = "".join(told)
    for what in (r"MariaDB:  mariadb -h 127\.0\.0\.1 -P \d+ -u", r"etcd: ", r"pump-1: ", r"drainer: "):
        assert re.search(what, text), text
    for kind in ("pump-1", "drainer"):
        page = re.search(rf"^{kind}: .*, status page (http://\S+/)$", text, re.M)
        assert page, text
        with urllib.request.urlopen(page[1], timeout=PATIENCE_S) as answer:
            assert f"{kind}</h1>" in answer.read().decode()
    assert len(processes_of(scratch)) >= 4
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0
    result = json.loads(out)
    assert result["equal"] is True
    assert result["transactions"] > 0
    assert result["ddl"] > 0
    assert result["first_row_s"] > 0


def test_without_mariadb_it_says_what_to_install(scratch: Path) -> None:
    status, out, err = run(scratch, PLAYGROUND, PATH="/nonexistent")
    assert (status, out) == (2, "")
    assert err == "binlog-playground: mariadb-install-db is not installed (apt-get install mariadb-server)\n"
    assert list(scratch.iterdir()) == []
