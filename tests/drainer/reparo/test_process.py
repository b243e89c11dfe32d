"""The command `reparo`: what it prints, its last line, its exit code."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from drainer.reparo.ordered_records import Seen
from drainer.reparo.summary import Summary, shown
from tests import forked
from tests.spark.support.replay_world import SOURCES
from tidb_binlog.net.port import LOOPBACK, free_ports

ROOT = Path(__file__).resolve().parents[3]


def reparo(*argv: str) -> subprocess.CompletedProcess[str]:
    return forked.run("drainer.reparo", *argv, TZ="UTC")


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(SOURCES["go-events"]("basic", tmp_path_factory.mktemp("reparo") / "archive"))


def test_changes_are_on_standard_output_and_the_summary_beside_them(archive: str) -> None:
    done = reparo("-data-dir", archive, "-L", "warn", "-output", "json")
    assert done.returncode == 0
    assert done.stdout.startswith("DDL query: CREATE DATABASE IF NOT EXISTS `test`;;\n")
    assert "schema: shop; table: customer; type: Insert\nid(int): 1\n" in done.stdout
    summary = json.loads(done.stderr.splitlines()[-1])
    assert (summary["transactions"], summary["rows"], summary["ddl"]) == (47, 64, 5)
    assert summary["finished"] is True
    assert summary["first_time"] < summary["last_time"]


def test_a_dry_run_counts_by_table_and_asks_no_server(archive: str, tmp_path: Path) -> None:
    file = tmp_path / "reparo.toml"
    file.write_text(
        f'data-dir = "{archive}"\ndest-type = "mysql"\n[dest-db]\nhost = "nowhere.invalid"\n'
        '[[replicate-ignore-table]]\ndb-name = "shop"\ntbl-name = "customer"\n'
    )
    done = reparo("-config", str(file), "-dry-run", "-L", "warn")
    assert done.returncode == 0
    first, second, *tables = done.stdout.splitlines()
    assert "row changes, 3 DDL in" in first
    assert second.startswith("from commit_ts 4706")
    assert tables == [line for line in tables if line.startswith("shop.orders: ")]
    assert len(tables) == 1


def test_an_empty_range_is_no_error(archive: str) -> None:
    done = reparo("-data-dir", archive, "-stop-tso", "1", "-L", "warn")
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr.splitlines()[-1] == "the archive has nothing in this range"


def test_help_and_version() -> None:
    helped = reparo("-h")
    assert helped.returncode == 0
    assert all(
        flag in helped.stdout for flag in ("-data-dir", "-stop-tso", "-dry-run", "Exit codes:", "[dest-db]")
    )
    assert reparo("-V").stdout.startswith("Release Version: ")


WRONG = [
    (["-data-dir", "{tmp}/none"], 1, "none"),
    (["-data-dir", "{tmp}"], 1, "has no binlog files"),
    (["-foo"], 2, "flag provided but not defined: -foo"),
    (["-data-dir", "{archive}", "-start-tso", "x"], 2, "flag -start-tso: invalid value 'x'"),
    (["-data-dir", "{archive}", "-start-tso", "3", "-stop-tso", "2"], 1, "before it begins"),
    (["-data-dir", "{archive}", "-dest-type", "mysql"], 1, "does not say which server"),
    (["-config", "{tmp}/closed.toml"], 3, "cannot be reached"),
    (["-data-dir", "{tmp}/torn"], 6, "torn/binlog-0"),
]


@pytest.mark.parametrize(("argv", "code", "said"), WRONG)
def test_what_is_wrong_is_one_line_and_a_code(
    archive: str, tmp_path: Path, argv: list[str], code: int, said: str
) -> None:
    (tmp_path / "closed.toml").write_text(
        f'data-dir = "{archive}"\ndest-type = "tidb"\n'
        f'[dest-db]\nhost = "{LOOPBACK}"\nport = {free_ports(1)[0]}\n'
    )
    torn = tmp_path / "torn"
    torn.mkdir()
    (whole,) = Path(archive).iterdir()
    data = bytearray(whole.read_bytes())
    data[len(data) // 2] ^= 1
    (torn / whole.name).write_bytes(data)
    done = reparo("-L", "error", *(one.format(tmp=tmp_path, archive=archive) for one in argv))
    assert done.returncode == code
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("reparo: error: ")]
    assert said in line
    assert line == done.stderr.splitlines()[-1]


def test_who_reads_only_the_first_lines_sees_no_error(tmp_path: Path) -> None:
    large = SOURCES["go-events"]("txn", tmp_path / "archive")
    command = f"{sys.executable} -m drainer.reparo -data-dir {large} -L error | head -1"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.startswith("DDL query: ")
    assert done.stderr == ""


def test_a_run_that_was_stopped_says_what_to_do() -> None:
    lines = Summary("mysql", rows=10, transactions=2, seconds=2.0, last_ts=1 << 20, first_ts=1 << 18).lines()
    assert lines[0] == "2 transactions, 10 row changes, 0 DDL in 2.0 s, 5 row changes/s"
    assert lines[-1] == "stopped before the end: the same command goes on from here"
    done = Summary("mysql", finished=True, resumed_after_ts=9).lines()
    assert done[-1] == "nothing is left to do: all up to commit_ts 9 was done before"
    drift = Summary("mysql", finished=True, drift={"d.t": 3}).lines()
    assert drift[-1] == "d.t: 3 rows were not there as they should have been"
    lacks = Summary("mysql", finished=True, missing=["since job 7 (d.t): expression key k"]).lines()
    assert lacks[-1] == "missing at the destination since job 7 (d.t): expression key k"


def test_progress_says_how_far_it_is() -> None:
    seen = Seen(last_ts=470607831898259469, bytes=3 << 20, bytes_all=12 << 20)
    assert shown(seen, 5000, 2500.0) == (
        "reparo: 25 %, 3 of 12 MiB read, 5,000 row changes (2,500/s), at 2026-11-21 02:00:09.524Z"
    )
