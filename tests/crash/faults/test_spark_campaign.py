"""What a campaign of streams of Spark is asked for, and what it adds up."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import pytest

from binlog_playground.program import INTERRUPTED
from tests.crash.faults import spark_campaign
from tests.rig.runs import processes_of, start
from tests.rig.runs import scratch as scratch
from tests.waiting import until_here


@pytest.mark.parametrize(
    "option", ["--runs=0", "--runs=-1", "--seconds=0", "--rate=0", "--kinds=mariadb", "--kinds="]
)
def test_a_campaign_that_would_test_nothing_is_refused(
    option: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["spark_campaign", option])
    monkeypatch.setattr(spark_campaign, "run", lambda *_: pytest.fail("a run began"))
    with pytest.raises(SystemExit) as end:
        spark_campaign.main()
    assert end.value.code == 2
    assert f"argument {option.partition('=')[0]}" in capsys.readouterr().err


def test_kinds_take_turns_and_one_that_was_not_equal_is_the_exit_status(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = ["spark_campaign", "--runs=3", "--seed=7", "--kinds=delta-mirror,mariadb-tasks"]
    counts = {"ddl": 2, "transactions": 5, "rows": 9, "rows_identical": 4}
    told = {
        7: counts | {"kills": {"task": 1}, "ddl": {"add column": 2}},
        8: counts | {"faults": {"kill -9 of executor": 2}},
        9: None,
    }
    monkeypatch.setattr(sys, "argv", argv)
    monkeypatch.setattr(spark_campaign, "run", lambda kind, seed, seconds, rate: told[seed])
    assert spark_campaign.main() == 1
    lines = capsys.readouterr().out.splitlines()
    counted = "equal 1, ddl 2, transactions 5, rows 9, rows_identical 4"
    assert lines[-3:-1] == [
        f"delta-mirror: {counted}, kill -9 of task 1, not equal 1",
        f"mariadb-tasks: {counted}, kill -9 of executor 2",
    ]
    assert lines[-1].startswith("all: equal 2, ddl 4, transactions 10")


@pytest.mark.integration
@pytest.mark.parametrize("kind", ["delta-changelog", "mariadb-driver"])
def test_a_signal_ends_it_with_all_processes_of_the_run(kind: str, scratch: Path) -> None:
    campaign = start(scratch, "tests.crash.faults.spark_campaign", "--runs=1", f"--kinds={kind}")
    try:
        until_here(lambda: any("drainer.spark stream" in line for line in processes_of(scratch)))
    finally:
        campaign.send_signal(signal.SIGTERM)
        said, _ = campaign.communicate()
    assert campaign.returncode == INTERRUPTED
    assert said.splitlines()[-1] == "all: "
    assert processes_of(scratch) == []
