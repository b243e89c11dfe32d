"""The rig as it is typed: recordings, faults, a program that subscribes, a load; nothing is left behind."""

from __future__ import annotations

import gzip
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.rig import ROOT
from tests.rig.runs import RIG, run
from tests.rig.runs import scratch as scratch

pytestmark = pytest.mark.integration
LONG = pytest.mark.timeout(1700)

CORPUS = ROOT / "tests" / "golden" / "corpus"


def test_a_replayed_scenario_is_identical_downstream(scratch: Path) -> None:
    """By processes, which are killed; test_readme.py has one without kills, test_mysql_sink_mariadb.py has
    every scenario without processes."""
    scenario = CORPUS / "multi-pump"
    status, out, err = run(scratch, RIG, "--replay", str(scenario), "--kill")
    assert status == 0, f"{out}\n{err}"
    *_, verified, summary = out.splitlines()
    expected = json.loads(gzip.decompress((scenario / "expected.json.gz").read_bytes()))["tidb"]
    tables = [
        table
        for database in expected.values()
        for table in database["tables"].values()
        if table["kind"] == "BASE TABLE"
    ]
    rows = sum(len(table["rows"]) for table in tables)
    assert verified == f"verified: {len(tables)} tables, {rows} rows identical"
    assert summary.startswith("summary: ")
    assert "times kill -9" in summary
    assert list(scratch.iterdir()) == []


def eventful(
    scratch: Path, seconds: int, enough: Callable[[dict[str, Any]], bool], *arguments: str
) -> dict[str, Any]:
    """What a run tells in which enough has happened: a busy machine needs a longer one for that."""
    for longer in (1, 4, 12):
        chosen = ("--seconds", str(longer * seconds), "--sessions", "4", "--chaos", "--json", *arguments)
        status, out, err = run(scratch, RIG, *chosen)
        assert status == 0, f"{out}\n{err}"
        result: dict[str, Any] = json.loads(out)
        assert result["equal"] is True
        if enough(result):
            return result
    raise AssertionError(f"too little has happened: {result}")


@LONG
def test_chaos_verifies_and_json_is_all_that_is_printed(scratch: Path) -> None:
    def enough(result: dict[str, Any]) -> bool:
        faults = result["faults"]
        return (
            (result["kills"] >= 1 and sum(faults.values()) >= 6 and len(faults) >= 3)
            and (result["transactions"] > 100 and result["ddl"] > 9 and result["type_changes"] > 1)
            and (result["shard_ddl"] > 1 and result["rolled_back"] > 0)
        )

    result = eventful(scratch, 35, enough, "--seed", "2", "--rate", "40", "--subscriber")
    assert result["subscriber"]["equal"] is True
    assert result["subscriber"]["rows_identical"] == result["rows_identical"]
    assert result["first_row_s"] > 0


@LONG
def test_tables_join_beside_faults(scratch: Path) -> None:
    def enough(result: dict[str, Any]) -> bool:
        joined = result["faults"].pop("joined", 0)  # each of those that were there before
        return joined >= 8 and sum(result["faults"].values()) >= 1 and result["rows_identical"] > 5000

    eventful(scratch, 20, enough, "--seed", "1", "--rate", "20", "--load")


@LONG
def test_a_stream_of_spark_takes_the_place_of_the_drainer(scratch: Path) -> None:
    """Its batches are small enough to be done without Spark; tests/spark/live has them in tasks."""
    eventful(
        *(scratch, 15, lambda result: result["ddl"] > 5 and sum(result["faults"].values()) >= 1),
        *("--seed", "4", "--rate", "15", "--spark", "8MiB"),
    )


def test_a_difference_is_printed_with_table_key_and_both_rows(scratch: Path, tmp_path: Path) -> None:
    changed = tmp_path / "changed"
    shutil.copytree(CORPUS / "basic", changed)
    expected = json.loads(gzip.decompress((changed / "expected.json.gz").read_bytes()))
    expected["tidb"]["shop"]["tables"]["customer"]["rows"][0][1] = "SOMEBODY ELSE"
    (changed / "expected.json.gz").unlink()
    (changed / "expected.json.gz").write_bytes(gzip.compress(json.dumps(expected).encode()))
    status, out, err = run(scratch, RIG, "--replay", str(changed))
    assert status == 1, (out, err)
    assert "shop.customer: row differs in name, key (1)" in out
    assert "upstream:   (1, SOMEBODY ELSE, none@example.com, 130.15)" in out
    assert "downstream: (1, CUSTOMER 0, none@example.com, 130.15)" in out
    assert "DIFFERENT: 1 differences in 2 tables, 29 rows identical" in out
    (logs,) = re.findall(r"logs: (.*)", err)
    assert (Path(logs) / "drainer.log").exists()


def test_a_drainer_that_stops_is_told_with_its_reason(scratch: Path) -> None:
    status, out, err = run(scratch, RIG, "--replay", str(CORPUS / "ddl-flashback-db"))
    if status == 0:  # the statement can be carried out by now
        assert "verified:" in out
        return
    assert status == 2
    assert "drainer ended by itself" in err
    assert "FLASHBACK DATABASE" in err


def test_a_directory_that_is_no_scenario(scratch: Path) -> None:
    status, _, err = run(scratch, RIG, "--replay", str(scratch / "none"))
    assert (status, err) == (
        2,
        f"binlog-playground: {scratch}/none is not a directory (give a recorded scenario)\n",
    )
    status, _, err = run(scratch, RIG, "--replay", str(scratch))
    assert status == 2
    assert "has no written*.jsonl.gz (give a directory with meta.json" in err


def test_what_exists_is_loaded_while_it_is_written_to_and_killed(scratch: Path) -> None:
    few = ("--seconds", "2", "--rate", "40", "--sessions", "4", "--seed", "5")
    status, out, err = run(scratch, RIG, "--load", "--kills", "3", *few)
    assert status == 0, f"{out}\n{err}"
    filled = re.search(r"^(\d+) tables with (\d+) rows that nobody published$", out, re.M)
    loaded = re.search(
        r"^loaded in .*, killed (\d) times, beside (\d+) transactions and (\d+) DDL$", out, re.M
    )
    verified = re.search(r"^verified: (\d+) tables, (\d+) rows identical$", out, re.M)
    assert filled is not None
    assert loaded is not None
    assert verified is not None
    assert int(filled[2]) > 5000
    assert int(loaded[1]) > 0
    assert int(loaded[3]) > int(filled[1]), "a DDL more than those that made the tables"
    assert int(verified[2]) > 1000
    assert list(scratch.iterdir()) == []
