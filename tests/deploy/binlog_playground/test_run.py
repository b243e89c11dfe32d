"""The command as a user types it: real etcd, Pumps, Drainer and MariaDB; nothing is left behind."""

from __future__ import annotations

import gzip
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from drainer.operate.status.lag import IDLE_S

pytestmark = pytest.mark.integration

ROOT = Path(__file__).resolve().parents[3]
CORPUS = ROOT / "tests" / "golden" / "corpus"
COMMAND = [sys.executable, "-m", "binlog_playground"]
DEADLINE_S = 240


@pytest.fixture
def scratch(tmp_path: Path) -> Iterator[Path]:
    """For everything temporary: what a run leaves behind is seen there, and by its path in /proc."""
    # A path of pytest's own is too long for MariaDB's Unix socket.
    directory = Path(f"/tmp/pg-{os.getpid()}-{time.monotonic_ns() % 10**9}")
    directory.mkdir()
    try:
        yield directory
        assert processes_of(directory) == []
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def processes_of(directory: Path) -> list[str]:
    """Command lines of all running processes that mention the directory."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
            if str(directory) in line:
                found.append(line)
    return found


def start(scratch: Path, *arguments: str, **environ: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*COMMAND, *arguments],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(scratch), **environ},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run(scratch: Path, *arguments: str, **environ: str) -> tuple[int, str, str]:
    process = start(scratch, *arguments, **environ)
    try:
        out, err = process.communicate(timeout=DEADLINE_S)
    except subprocess.TimeoutExpired:
        process.terminate()
        out, err = process.communicate()
        raise AssertionError(f"no end after {DEADLINE_S} s: {out}\n{err}") from None
    return process.returncode, out, err


@pytest.mark.parametrize(
    ("name", "kill"),
    [("orphans", False), ("multi-pump", True), ("ddl", True)],
)
def test_a_replayed_scenario_is_identical_downstream(scratch: Path, name: str, kill: bool) -> None:
    """By processes; test_mysql_sink_mariadb.py replays every scenario without them."""
    status, out, err = run(scratch, "--replay", str(CORPUS / name), *(["--kill"] if kill else []))
    assert status == 0, f"{out}\n{err}"
    *_, verified, summary = out.splitlines()
    expected = json.loads(gzip.decompress((CORPUS / name / "expected.json.gz").read_bytes()))["tidb"]
    tables = [
        table
        for database in expected.values()
        for table in database["tables"].values()
        if table["kind"] == "BASE TABLE"
    ]
    rows = sum(len(table["rows"]) for table in tables)
    assert verified == f"verified: {len(tables)} tables, {rows} rows identical"
    assert summary.startswith("summary: ")
    assert ("times kill -9" in summary) is kill
    assert list(scratch.iterdir()) == []


def test_the_demo_verifies(scratch: Path) -> None:
    status, out, err = run(scratch, "--seconds", "5", "--seed", "7", "--rate", "50", "--subscriber")
    assert status == 0, f"{out}\n{err}"
    lines = out.splitlines()
    verified = re.fullmatch(r"verified: \d+ tables, (\d+) rows identical", lines[-3])
    subscribed = re.match(r"subscriber verified: \d+ tables, (\d+) rows identical after \d+ row", lines[-2])
    assert verified is not None
    assert subscribed is not None
    assert verified[1] == subscribed[1]
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


def test_chaos_verifies_and_json_is_all_that_is_printed(scratch: Path) -> None:
    faults = ("--seconds", "35", "--seed", "2", "--rate", "50", "--sessions", "4", "--chaos")
    status, out, err = run(scratch, *faults, "--json", "--subscriber")
    assert status == 0, f"{out}\n{err}"
    result = json.loads(out)
    assert result["equal"] is True
    assert result["subscriber"]["equal"] is True
    assert result["subscriber"]["rows_identical"] == result["rows_identical"]
    assert result["kills"] >= 1
    assert sum(result["faults"].values()) >= 6
    assert len(result["faults"]) >= 3
    assert result["transactions"] > 100
    assert result["ddl"] > 9
    assert result["type_changes"] > 1
    assert result["shard_ddl"] > 1
    assert result["rolled_back"] > 0
    assert result["first_row_s"] > 0


def test_a_difference_is_printed_with_table_key_and_both_rows(scratch: Path, tmp_path: Path) -> None:
    changed = tmp_path / "changed"
    shutil.copytree(CORPUS / "basic", changed)
    expected = json.loads(gzip.decompress((changed / "expected.json.gz").read_bytes()))
    expected["tidb"]["shop"]["tables"]["customer"]["rows"][0][1] = "SOMEBODY ELSE"
    (changed / "expected.json.gz").unlink()
    (changed / "expected.json.gz").write_bytes(gzip.compress(json.dumps(expected).encode()))
    status, out, err = run(scratch, "--replay", str(changed))
    assert status == 1, (out, err)
    assert "shop.customer: row differs in name, key (1)" in out
    assert "upstream:   (1, SOMEBODY ELSE, none@example.com, 130.15)" in out
    assert "downstream: (1, CUSTOMER 0, none@example.com, 130.15)" in out
    assert "DIFFERENT: 1 differences in 2 tables, 29 rows identical" in out
    (logs,) = re.findall(r"logs: (.*)", err)
    assert (Path(logs) / "drainer.log").exists()


def test_a_drainer_that_stops_is_told_with_its_reason(scratch: Path) -> None:
    status, out, err = run(scratch, "--replay", str(CORPUS / "ddl-flashback-db"))
    if status == 0:  # the statement can be carried out by now
        assert "verified:" in out
        return
    assert status == 2
    assert "drainer ended by itself" in err
    assert "FLASHBACK DATABASE" in err


@pytest.mark.parametrize(
    ("number", "moment"), [(signal.SIGTERM, "starting etcd"), (signal.SIGINT, "random workload")]
)
def test_ctrl_c_leaves_nothing_behind(scratch: Path, number: signal.Signals, moment: str) -> None:
    process = start(scratch, "--seconds", "60", "--rate", "20")
    assert process.stdout is not None
    for line in process.stdout:
        if moment in line:
            break
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert err.splitlines() == ["interrupted: ending all processes"]
    assert processes_of(scratch) == []
    assert list(scratch.iterdir()) == []


def test_a_killed_playground_takes_its_processes_along(scratch: Path) -> None:
    process = start(scratch, "--seconds", "60", "--rate", "20")
    assert process.stdout is not None
    for line in process.stdout:
        if "first replicated row" in line:
            break
    assert len(processes_of(scratch)) >= 5
    process.kill()
    process.communicate()
    end = time.monotonic() + 10
    while processes_of(scratch):
        assert time.monotonic() < end, processes_of(scratch)
        time.sleep(0.05)


def test_keep_leaves_everything_running_until_it_is_told_to_end(scratch: Path) -> None:
    process = start(scratch, "--replay", str(CORPUS / "basic"), "--keep")
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
        with urllib.request.urlopen(page[1], timeout=10) as answer:
            assert f"{kind}</h1>" in answer.read().decode()
    assert len(processes_of(scratch)) >= 4
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 0


def test_without_mariadb_it_says_what_to_install(scratch: Path) -> None:
    status, out, err = run(scratch, PATH="/nonexistent")
    assert (status, out) == (2, "")
    assert err == "binlog-playground: mariadb-install-db is not installed (apt-get install mariadb-server)\n"
    assert list(scratch.iterdir()) == []


def test_a_directory_that_is_no_scenario(scratch: Path) -> None:
    status, _, err = run(scratch, "--replay", str(scratch / "none"))
    assert (status, err) == (
        2,
        f"binlog-playground: {scratch}/none is not a directory (give a recorded scenario)\n",
    )
    status, _, err = run(scratch, "--replay", str(scratch))
    assert status == 2
    assert "has no written*.jsonl.gz (give a directory with meta.json" in err
