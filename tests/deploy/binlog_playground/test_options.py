"""Rates, quantiles, result lines and the command line."""

from __future__ import annotations

import pytest

from binlog_playground import program
from binlog_playground.check.live_view import LiveView, Snapshot
from binlog_playground.check.statistics import Statistics, quantile
from binlog_playground.check.verify import Difference, Report
from binlog_playground.options import OF_A_CHECKOUT, Options, parse


@pytest.mark.parametrize(
    ("values", "share", "wanted"),
    [
        ([], 0.5, 0.0),
        ([5.0], 0.99, 5.0),
        ([1.0, 2.0, 3.0, 4.0], 0.5, 2.0),
        ([float(i) for i in range(1, 101)], 0.99, 99.0),
        ([float(i) for i in range(1, 101)], 1.0, 100.0),
    ],
)
def test_quantile(values: list[float], share: float, wanted: float) -> None:
    assert quantile(values, share) == wanted


def test_rates_of_the_last_seconds_and_of_all() -> None:
    statistics = Statistics(started_s=10.0, ended_s=20.0)
    assert statistics.rates(10.0) == (0.0, 0.0)
    for _ in range(30):
        statistics.committed(4)
    assert statistics.rates(13.0) == (10.0, 40.0)
    assert statistics.rates(17.0) == (0.0, 0.0)
    assert statistics.overall_rates() == (3.0, 12.0)


def test_the_last_lines_of_an_equal_run() -> None:
    statistics = Statistics(transactions=100, rows=300, ended_s=2.0, lag_s=[0.02, 0.1], first_row_s=3.2)
    text = program.lines(Report(tables=12, rows_identical=345), statistics)
    assert text[-2] == "verified: 12 tables, 345 rows identical"
    assert text[-1].startswith("summary: 100 transactions (50/s), 300 row changes (150/s)")
    assert "lag p50 20 ms, p99 100 ms" in text[-1]


def test_differences_limits_and_views_are_printed() -> None:
    report = Report(tables=1, differences=[Difference("db.t", "row is missing downstream", "(1)", ("1",))])
    report.limited["text outside the character set"] = 2
    report.not_compared = ["db.v (view)"]
    reasons = {"text outside the character set": "it has no such letter"}
    text = "\n".join(program.lines(report, Statistics(), reasons))
    assert "db.t: row is missing downstream, key (1)" in text
    assert "limit of the downstream, 2 rows: text outside the character set (it has no such letter)" in text
    assert "not compared: 1 views and sequences: db.v (view)" in text
    assert "DIFFERENT: 1 differences" in text
    assert "verified:" not in text


def test_json_result() -> None:
    document = program.document(Report(tables=2, rows_identical=3), Statistics(), 9)
    assert document["equal"] is True
    assert (document["tables"], document["rows_identical"], document["seed"]) == (2, 3, 9)


def test_options() -> None:
    assert parse([]) == Options()
    assert Options().seconds == 20
    assert parse(["--json", "--seed", "4"]) == Options(json=True, seed=4)
    assert parse(["--seconds", "120", "--keep", "--rate", "0", "--sessions", "2"]) == Options(
        seconds=120, keep=True, rate=0, sessions=2
    )


@pytest.mark.parametrize(
    "argv",
    [["--sessions", "0"], ["--seconds", "-1"], ["--rate", "x"], ["--no"], *([f] for f in OF_A_CHECKOUT)],
)
def test_wrong_options_end_with_status_2(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        parse(argv)
    assert stopped.value.code == 2
    said = capsys.readouterr().err
    assert "usage: binlog-playground" in said
    assert ("of the checkout: .venv/bin/python -m tests.rig" in said) is (argv[0] in OF_A_CHECKOUT)


def test_plain_lines_come_every_two_seconds(capsys: pytest.CaptureFixture[str]) -> None:
    with LiveView(quiet=False) as view:
        for elapsed_s in (0.5, 2.0, 2.5, 4.1):
            view.show(
                Snapshot("random workload", elapsed_s, processes={"pump-1": "running", "drainer": "killed"})
            )
        view.say("a line")
    printed = capsys.readouterr().out.splitlines()
    assert len(printed) == 3
    assert "lag p50" in printed[0]
    assert "drainer:killed" in printed[0]
    assert printed[-1] == "a line"


def test_json_prints_nothing_on_the_way(capsys: pytest.CaptureFixture[str]) -> None:
    with LiveView(quiet=True) as view:
        view.show(Snapshot("x", 10.0))
        view.say("y")
    assert capsys.readouterr().out == ""
