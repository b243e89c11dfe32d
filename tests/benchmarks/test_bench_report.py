"""The report's form, and that every promised benchmark exists. Nothing here depends on speed."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from binlog_playground.scenario import Scenario
from tests.benchmarks import __main__ as command
from tests.benchmarks.catalog import BENCHMARKS
from tests.benchmarks.drainer import ready_made, sysbench_like, workloads
from tests.benchmarks.measure import peak_rss_mib, percentile
from tests.benchmarks.peer.programs import missing
from tests.benchmarks.report import (
    Calibration,
    Result,
    Theirs,
    number,
    peer_table,
    plain_table,
    print_report,
    print_table,
    to_json,
)
from tests.benchmarks.settings import Settings
from tidb_binlog import binlog

PROMISED_NAMES = {
    "rowcodec.decode",
    "pump.write.unary.64",
    "pump.start.clean",
    "pump.start.killed",
    "pump.pull.batch",
    "pump.memory.peak",
    "pump.memory.open",
    "pump.delivery",
    "pump.idle",
    "drainer.idle",
    "pump.index.catchup",
    "drain.sysbench",
    "drain.inserts",
    "drain.durable",
    "drain.keyless",
    "drain.hot",
    "drain.wide",
    "drain.collation",
    "drain.relay",
    "drain.ddl",
    "drain.rules",
    "drain.start",
    "drain.memory",
    "lag.idle.1",
    "lag.idle.2",
    "lag.load",
    "demo.first_row",
    "door.write.unary.1",
    "door.write.unary.8",
    "door.write.unary.64",
    "door.write.unary.256",
    "door.write.tls.64",
    "door.empty.unary.64",
    "door.message.1gib",
    "door.stream.64k",
    "door.idle.1000",
    "door.hostile",
}
PROMISED_KEYS = [
    "name",
    "value",
    "unit",
    "cpu_us_per_unit",
    "p50_ms",
    "p99_ms",
    "peak_rss_mib",
    "compared_to",
    "ratio",
]
RESULT = Result(
    name="a.b",
    value=31234.5,
    unit="changes/s",
    cpu_us_per_unit=8.25,
    peak_rss_mib=92.7,
    compared_to="the limit, 60,000/s",
    ratio=0.52,
    note="a note",
)


def test_every_promised_benchmark_exists() -> None:
    assert set(BENCHMARKS) >= PROMISED_NAMES


def test_json_is_a_list_of_objects_with_the_promised_keys() -> None:
    (document,) = json.loads(to_json([RESULT]))
    assert list(document)[: len(PROMISED_KEYS)] == PROMISED_KEYS
    assert document["value"] == 31234.5
    assert document["p50_ms"] is None


def test_plain_table_has_a_line_each_and_notes_below() -> None:
    lines = plain_table([RESULT, replace(RESULT, name="longer.name", note="")]).split("\n")
    assert lines[0].startswith("benchmark")
    assert lines[1].split()[:3] == ["a.b", "31,234", "changes/s"]
    assert "0.52" in lines[1]
    assert lines[1].endswith("the limit, 60,000/s")
    assert lines[2].startswith("longer.name")
    assert lines[3:] == ["a.b: a note"]


def test_no_escape_codes_where_there_is_no_terminal() -> None:
    out = io.StringIO()
    print_table([RESULT], Console(file=out, width=200))
    assert "\x1b" not in out.getvalue()
    assert "a.b" in out.getvalue()


def test_a_terminal_gets_every_figure_too() -> None:
    out = io.StringIO()
    print_table([RESULT], Console(file=out, force_terminal=True, width=200))
    assert "\x1b" in out.getvalue()
    for text in ("a.b", "31,234", "8.25", "92.7", "0.52", "a note"):
        assert text in out.getvalue()


@pytest.mark.parametrize(
    ("value", "text"), [(None, "-"), (0.0123, "0.0123"), (3.456, "3.46"), (123.4, "123"), (56789.0, "56,789")]
)
def test_numbers(value: float | None, text: str) -> None:
    assert number(value) == text


def test_percentile_is_a_value_that_was_measured() -> None:
    assert percentile([5, 1, 4, 2, 3], 0.5) == 3
    assert percentile(range(1, 101), 0.99) == 99
    assert percentile([7], 0.99) == 7


def test_the_peak_of_a_child_is_its_own() -> None:
    ours = bytearray(b"x") * (128 << 20)
    code = "from tests.benchmarks.measure import peak_rss_mib; print(peak_rss_mib('self'))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert peak_rss_mib("self") > len(ours) >> 20
    assert float(done.stdout) < 64


def test_an_unknown_name_is_refused_with_the_known_ones(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as raised:
        command.parse(["drain.sysbnch"])
    assert raised.value.code == 2
    assert "there are rowcodec.decode, " in capsys.readouterr().err


def test_a_peer_is_a_directory_with_programs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--peer", str(tmp_path)]
    (tmp_path / "pump").write_text("no program")
    with pytest.raises(SystemExit) as raised:
        command.parse(arguments)
    assert raised.value.code == 2
    assert f"--peer: {tmp_path} has none of pump, drainer, reparo, binlogctl" in capsys.readouterr().err
    (tmp_path / "reparo").touch(0o755)
    assert command.parse(arguments).peer == tmp_path
    assert missing(tmp_path) == ["pump", "drainer", "binlogctl"]


def test_ours_theirs_and_limit_of_what_was_measured_in_turns() -> None:
    beside = replace(RESULT, name="beside", theirs=Theirs(15617.25, 16.5))
    rate_only = replace(RESULT, name="rate.only", theirs=Theirs(62469.0))
    heading, first, second = peer_table([RESULT, beside, rate_only]).split("\n")
    assert " ".join(heading.split()) == "benchmark unit ours theirs ratio CPU us theirs ratio to limit limit"
    ours = ["changes/s", "31,234"]
    limit = ["0.52", "the", "limit,", "60,000/s"]
    assert first.split() == ["beside", *ours, "15,617", "2", "8.25", "16.5", "0.5", *limit]
    assert second.split() == ["rate.only", *ours, "62,469", "0.5", "8.25", "-", "-", *limit]


def test_the_report_ends_with_theirs_only_where_there_is_one() -> None:
    for theirs, lines in ((None, 5), (Theirs(1.0), 8)):
        out = io.StringIO()
        taken = Calibration(10.0, 2.0, 0.125)
        result = replace(RESULT, theirs=theirs, calibration=taken)
        slower = replace(result, calibration=replace(taken, python_ms=20.0), note="")
        print_report([result, slower], Console(file=out, width=200))
        text = out.getvalue().rstrip().split("\n")
        assert "calibration: python 10-20 ms, mariadb 2-2 ms, fdatasync 0.125-0.125 ms" in text
        assert len(text) == lines


def test_a_failed_benchmark_is_named_and_does_not_stop_the_others(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(settings: Settings) -> Result:
        raise OSError("no disk")

    monkeypatch.setitem(BENCHMARKS, "a.fails", fails)
    other = replace(RESULT, name="a.b.more")
    monkeypatch.setitem(BENCHMARKS, "a.b", lambda _: [RESULT, other])
    taken = Calibration(10.0, 2.0, 0.1)
    results, failed = command.run_all(["a.fails", "a.b"], Settings(), lambda: taken)
    assert (results, failed) == ([replace(one, calibration=taken) for one in (RESULT, other)], 1)
    assert "a.fails: no disk" in capsys.readouterr().err


def test_rowcodec_decode_runs() -> None:
    result = BENCHMARKS["rowcodec.decode"](Settings(seconds=0.01))
    assert isinstance(result, Result)
    assert result.name == "rowcodec.decode"
    assert result.value > 0
    assert result.ratio > 0
    assert "json.loads" in result.compared_to


def test_the_made_up_workload_is_one_that_a_drainer_understands() -> None:
    scenario = sysbench_like.make(transactions=40)
    (records,) = scenario.files
    assert [record.tp for record in records] == [binlog.PREWRITE, binlog.COMMIT] * (len(records) // 2)
    timestamps = [record.ts for record in records]
    assert timestamps == sorted(set(timestamps))
    plan = ready_made.prepare(scenario)
    assert plan.rows == 4 * 5000 + 4 * 40
    assert sum(len(stretch.ddl) for stretch in plan.stretches) == 5
    assert all(batch for stretch in plan.with_rows for lane in stretch.lanes for batch in lane)


@pytest.mark.parametrize(
    ("scenario", "rows"),
    [
        (workloads.inserts(250), 250),
        (workloads.keyless(20, 10), 20 + 3 * 10),
        (workloads.hot(10), 1 + 2 * 10),
        (workloads.wide(5, 3), 5 + 4 * 3),
    ],
    ids=lambda value: value.name if isinstance(value, Scenario) else "",
)
def test_workloads_are_what_a_drainer_understands(scenario: Scenario, rows: int) -> None:
    (records,) = scenario.files
    timestamps = [record.ts for record in records]
    assert timestamps == sorted(set(timestamps))
    plan = ready_made.prepare(scenario)
    assert plan.rows == rows
    (table,) = scenario.checksums
    assert table.columns[0] == "id", "contents are compared in its order"


def test_a_backlog_is_as_large_as_asked_and_goes_on_where_its_schema_ends() -> None:
    backlog = workloads.Backlog(1 << 21)
    records = list(backlog)
    assert sum(len(record.payload) for record in records) == pytest.approx(1 << 21, rel=0.1)
    assert records[0].start_ts > backlog.scenario.last_commit_ts
    assert records[-1].commit_ts == backlog.last_ts
    assert len(records) == 2 * backlog.transactions
