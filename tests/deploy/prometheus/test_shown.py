"""Each alert that fires shows in `binlogctl status`, doctor and the node's page, or here is why it cannot."""

from __future__ import annotations

from typing import Any

import pytest

from binlogctl.doctor.gather.answers import read_drainer
from tests.deploy.prometheus.rules import alerts
from tidb_binlog.status.codec import read
from tidb_binlog.status.drainer import DrainerDocument
from tidb_binlog.status.pump import PumpDocument
from tidb_binlog.status.troubles import ERROR, WARNING, Trouble, of_drainer, of_pump

NOW_S = 1_700_000_000.0
GIB = 1 << 30

# Alert -> what the node's /status says then, and how it is said.
PUMP: dict[str, tuple[dict[str, Any], str, str]] = {
    "BinlogPumpStorageError": ({"index_error": "EIO"}, ERROR, "its index fails"),
    "BinlogPumpWriterFailed": ({"writer": "failed", "writer_error": "EIO"}, ERROR, "stores nothing"),
    "BinlogPumpSpaceLow": ({"disk": {"available": 19 * GIB, "floor": 10 * GIB}}, WARNING, "19.0 GiB free"),
    "BinlogPumpRefusesWrites": (
        {"disk": {"available": 9 * GIB, "floor": 10 * GIB}},
        ERROR,
        "refuses prewrites: 9.0 GiB",
    ),
    "BinlogPumpTransactionStuck": ({"oldest": [{"start_ts": 7, "age_s": 61.0}]}, ERROR, "has been open for"),
    "BinlogPumpUpstreamSilent": ({"resolver": {"unavailable_s": 31.0}}, ERROR, "no answer from the upstream"),
    "BinlogPumpIndexBehind": ({"stages": {"indexed": {"lag_s": 61.0}}}, WARNING, "its index is 61 s behind"),
    "BinlogPumpLateCommit": (
        {"time_s": NOW_S, "late": {"commits": 2, "last_s": NOW_S - 9}},
        ERROR,
        "took 2 commits below its watermark",
    ),
    "BinlogPumpDrainerWouldLose": (
        {"retention": {"drainers": [{"node_id": "d", "left_s": 1800.0}]}},
        WARNING,
        "has not applied in 0.5 h",
    ),
    "BinlogPumpDrainerHasLost": (
        {"retention": {"drainers": [{"node_id": "d", "lost": True}]}},
        ERROR,
        "has purged",
    ),
    "BinlogNodeReloadFailed": (
        {"configuration": {"ok": False, "error": "x.toml: gc"}},
        WARNING,
        "x.toml: gc",
    ),
}
DRAINER: dict[str, tuple[dict[str, Any], str, str]] = {
    "BinlogDrainerDdlWaits": ({"DDL": {"waiting": [{"job_id": 4}]}}, ERROR, "wait for a decision: job 4"),
    "BinlogDrainerSinkHeld": ({"Sink": {"name": "m:C", "held": True, "error": "no"}}, ERROR, "m:C holds"),
    "BinlogDrainerBehind": ({"Lag": {"total_s": 301.0, "eta_s": 9.0}}, WARNING, "is 301 s behind"),
    "BinlogDrainerNeverCatchesUp": ({"Lag": {"total_s": 301.0, "eta_s": None}}, ERROR, "is 301 s behind"),
    "BinlogDrainerSortWait": ({"Lag": {"total_s": 61.0, "eta_s": None}}, ERROR, "is 61 s behind"),
    "BinlogDrainerCheckpointHighDelay": (
        {"Lag": {"total_s": 3601.0, "eta_s": 9.0}},
        WARNING,
        "3601 s behind",
    ),
    "BinlogDrainerCheckpointStands": (
        {"HeldUp": "the checkpoint is not stored, for 61 s", "HeldUpS": 61.0},
        WARNING,
        "the checkpoint is not stored",
    ),
    "BinlogDrainerDownstreamWentBack": ({"WentBack": [{"time": NOW_S - 9, "why": "w"}]}, ERROR, "lost what"),
    "BinlogDrainerPaused": ({"Control": {"paused": True}}, ERROR, "holds applying back"),
    "BinlogDrainerDownstreamRetries": (
        {"HeldUp": "lane 0: read-only", "HeldUpS": 11.0},
        WARNING,
        "for 11 s: lane 0: read-only",
    ),
    "BinlogDrainerDrift": ({"Drift": {"Rows": {"a.b": 3}, "LastS": NOW_S - 9}}, ERROR, "a.b (3)"),
    "BinlogDrainerTextLost": ({"Drift": {"Texts": {"a.b": {"c": 2}}}}, WARNING, "some texts of a.b.c"),
    "BinlogDrainerDownstreamDiffers": ({"Verify": {"state": "differs", "wrong": 2}}, ERROR, "in 2 rows"),
    "BinlogDrainerNotVerified": ({"Verify": {"failures": 3, "trouble": "t"}}, WARNING, "could not compare"),
    "BinlogDrainerStandbyCannot": (
        {"Standby": {"trouble": "no rights"}},
        WARNING,
        "could not take over",
    ),
}
ELSEWHERE: dict[str, str] = {
    **dict.fromkeys(
        ["BinlogPumpDown", "BinlogDrainerDown"], "the node does not answer, which overview and doctor say"
    ),
    **dict.fromkeys(
        ["BinlogDrainerUndecodable", "BinlogDrainerDisorder"], "the drainer ends: it does not answer then"
    ),
    **dict.fromkeys(
        ["BinlogDrainerExecuteSlow", "BinlogPumpWriteRpcSlow", "BinlogPumpWriteSlow"],
        "a quantile of the last minutes, which only a series of scrapes has",
    ),
    **dict.fromkeys(
        [
            "BinlogNodeRestarts",
            "BinlogNodeHandshakesFail",
            "BinlogNodeLimitsReached",
            "BinlogNodeEventsLost",
            "BinlogPumpSpaceRunsOut",
            "BinlogPumpPurgeFails",
            "BinlogDrainerRelayDamaged",
            "BinlogDrainerStandbyLost",
        ],
        "an increase or a trend of some minutes, which only a series of scrapes has",
    ),
    **dict.fromkeys(["BinlogSparkJobFailed", "BinlogSparkStreamBehind"], "of jobs, which have no /status"),
}


def test_each_alert_is_here() -> None:
    assert PUMP.keys() | DRAINER.keys() | ELSEWHERE.keys() == alerts().keys()
    assert not ELSEWHERE.keys() & (PUMP.keys() | DRAINER.keys())


@pytest.mark.parametrize("name", PUMP)
def test_what_fires_for_a_pump_is_said(name: str) -> None:
    says, severity, text = PUMP[name]
    assert of_pump(read({"pump": {}}, PumpDocument), "p") == []
    (trouble,) = of_pump(read({"pump": says}, PumpDocument), "p")
    assert trouble.severity == severity
    assert text in trouble.text


def test_a_disk_with_room_is_no_trouble_wherever_its_floor_is() -> None:
    says = {"pump": {"disk": {"available": 50 * GIB, "floor": 30 * GIB}}}
    assert of_pump(read(says, PumpDocument), "p") == []


def troubles(**says: Any) -> list[Trouble]:
    return of_drainer(read({"Time": NOW_S, **says}, DrainerDocument), "d", "d")


@pytest.mark.parametrize("name", DRAINER)
def test_what_fires_for_a_drainer_is_said(name: str) -> None:
    says, severity, text = DRAINER[name]
    (trouble,) = troubles(**says)
    assert trouble.severity == severity
    assert text in trouble.text


def test_a_reload_that_a_drainer_refused_is_said() -> None:
    (trouble,) = troubles(Configuration={"ok": False, "error": "d.toml: syncer.to"})
    assert (trouble.severity, "d.toml: syncer.to" in trouble.text) == (WARNING, True)


def test_a_late_commit_is_told_as_long_as_the_pump_runs() -> None:
    says = {"pump": {"time_s": NOW_S, "late": {"commits": 1, "last_s": NOW_S - 3600}}}
    assert [one.severity for one in of_pump(read(says, PumpDocument), "p")] == [WARNING]


def test_what_is_long_past_is_told_until_a_comparison_is_equal() -> None:
    drift = {"Rows": {"a.b": 3}, "LastS": NOW_S - 3600}
    assert [one.severity for one in troubles(Drift=drift)] == [WARNING]
    equal = {"state": "equal", "began_s": NOW_S - 3700}
    assert [one.severity for one in troubles(Drift=drift, Verify=equal)] == [WARNING]
    assert troubles(Drift=drift, Verify=equal | {"began_s": NOW_S - 3500}) == []
    assert troubles(WentBack=[{"time": NOW_S - 3600, "why": "w"}]) == []


def test_doctor_says_the_same() -> None:
    body = b'{"LastTS":1,"NodeID":"d","Time":%d,"Drift":{"Rows":{"a.b":3},"LastS":%d}}' % (NOW_S, NOW_S - 9)
    answer = read_drainer(body)
    assert answer is not None
    assert list(answer.troubles) == troubles(Drift={"Rows": {"a.b": 3}, "LastS": NOW_S - 9})
