"""Each alert's scenario is raised; rules, `binlogctl status`, doctor, the node's page and /readyz are asked.

What a node's document cannot say has its reason in the table of conditions.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from binlogctl.doctor.checks.nodes import check_nodes
from binlogctl.doctor.checks.storage import check_disks
from binlogctl.doctor.facts import NodeFacts
from binlogctl.doctor.findings import Finding
from binlogctl.doctor.gather.answers import read_drainer, read_pump
from tests.deploy.prometheus.rules import alerts
from tidb_binlog import tso
from tidb_binlog.cluster.node import ONLINE
from tidb_binlog.cluster.overview import NodeSnapshot, build
from tidb_binlog.cluster.registry import DRAINERS, PUMPS
from tidb_binlog.page.status_page import Shown, html
from tidb_binlog.status.codec import read
from tidb_binlog.status.drainer import DrainerDocument
from tidb_binlog.status.drainer_conditions import of_drainer, stopped_drainer
from tidb_binlog.status.pump import PumpDocument
from tidb_binlog.status.pump_conditions import of_pump, stopped_pump
from tidb_binlog.status.troubles import ERROR, WARNING, Trouble
from tools import alert_rules

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
        ERROR,
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
    "BinlogDrainerSortWait": (
        {"Lag": {"total_s": 61.0, "sort_wait_s": 61.0, "pump": "p"}},
        ERROR,
        "waited 61 s for pump p",
    ),
    "BinlogDrainerCheckpointHighDelay": (
        {"LastTS": tso.from_wall_s(NOW_S - 7200), "Lag": {"total_s": 7200.0, "eta_s": 9.0}},
        ERROR,
        "its checkpoint is 2.0 h old",
    ),
    "BinlogDrainerDownstreamWentBack": ({"WentBack": [{"time": NOW_S - 9, "why": "w"}]}, ERROR, "lost what"),
    "BinlogDrainerPaused": ({"Control": {"paused": True}}, WARNING, "holds applying back"),
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
STOPS = {
    "BinlogPumpWriterFailed",
    "BinlogPumpRefusesWrites",
    "BinlogDrainerPaused",
    "BinlogDrainerSinkHeld",
    "BinlogDrainerDownstreamRetries",
}
"""While these hold a node is not ready: it does not do its work."""
CONDITIONS = {
    condition.name: condition
    for of in alert_rules.GROUPS.values()
    for condition in of
    if condition.rule is not None
}


def test_each_alert_is_here_or_says_why_no_document_has_it() -> None:
    assert CONDITIONS.keys() == alerts().keys()
    said = {name for name, condition in CONDITIONS.items() if condition.holds is not None}
    assert said == PUMP.keys() | DRAINER.keys()
    assert all(CONDITIONS[name].unsaid for name in CONDITIONS.keys() - said)


def pump_document(says: dict[str, Any]) -> dict[str, Any]:
    return {"CommitTS": 1, "Checkpoint": {}, "status": {"p": {}}, "pump": {"node_id": "p", **says}}


def drainer_document(says: dict[str, Any]) -> dict[str, Any]:
    return {"LastTS": 0, "NodeID": "d", "Time": NOW_S, **says}


def asked(kind: str, raw: dict[str, Any]) -> tuple[list[Trouble], list[Finding], str, str]:
    """What status says of the node, the doctor's findings, the page, and why it is not ready."""
    body = json.dumps(raw).encode()
    node_id = kind[0]
    seen = NodeSnapshot(kind, node_id, "h:1", ONLINE, True, 1, 1, raw)
    told = [one for one in build([seen], NOW_S).troubles if one.node != "cluster"]
    answer = read_pump(body) if kind == PUMPS else read_drainer(body)
    facts = NodeFacts(kind, node_id, "h:1", ONLINE, True, resolved=("10.0.0.1",), answer=answer)
    found = check_nodes([facts], None, NOW_S, one_host=False) + check_disks([facts])
    document: PumpDocument | DrainerDocument
    if kind == PUMPS:
        document = read(raw, PumpDocument)
        unready = stopped_pump(document)
    else:
        document = read(raw, DrainerDocument)
        unready = stopped_drainer(document)
    return told, found, html(Shown(kind, document, "", None, "", (), NOW_S)), unready


@pytest.mark.parametrize("name", [*PUMP, *DRAINER])
def test_all_five_say_the_same_of_what_fires(name: str) -> None:
    kind, (says, severity, text) = (PUMPS, PUMP[name]) if name in PUMP else (DRAINERS, DRAINER[name])
    told, found, page, unready = asked(kind, pump_document(says) if kind == PUMPS else drainer_document(says))
    assert alerts()[name].labels["severity"] == {ERROR: "critical", WARNING: "warning"}[severity]
    (trouble,) = told
    assert (trouble.name, trouble.severity) == (name, severity)
    assert text in trouble.text
    bad = [
        one for one in found if one.severity.value == severity and one.check in ("node.trouble", "pump.disk")
    ]
    assert len(bad) == 1
    assert text in bad[0].seen or bad[0].check == "pump.disk"
    assert f'class="verdict {"bad" if severity == ERROR else "part"}"' in page
    assert text[1:] in page
    assert bool(unready) == (name in STOPS)
    assert not unready or text in unready


def test_nothing_is_said_of_a_node_that_is_well() -> None:
    disk = {"disk": {"available": 3 * GIB, "floor": GIB}}
    for kind, raw in ((PUMPS, pump_document(disk)), (DRAINERS, drainer_document({}))):
        told, found, _, unready = asked(kind, raw)
        assert not told
        assert all(one.severity.value not in (ERROR, WARNING) for one in found if one.subject != "cluster")
        assert unready == ""


def troubles(**says: Any) -> list[Trouble]:
    return of_drainer(read({"Time": NOW_S, **says}, DrainerDocument), "d")


def test_a_reload_that_a_drainer_refused_is_said() -> None:
    (trouble,) = troubles(Configuration={"ok": False, "error": "d.toml: syncer.to"})
    assert (trouble.severity, "d.toml: syncer.to" in trouble.text) == (WARNING, True)


def test_tables_whose_rows_are_loaded_ask_nobody() -> None:
    assert troubles(DDL={"waiting": [{"job_id": 4, "loads": True}]}) == []
    halted = {"job_id": 4, "loads": True, "possible": ["skip"]}
    assert [one.severity for one in troubles(DDL={"waiting": [halted]})] == [ERROR]


def test_a_late_commit_is_told_as_long_as_the_pump_runs() -> None:
    says = {"pump": {"time_s": NOW_S, "late": {"commits": 1, "last_s": NOW_S - 3600}}}
    assert [one.severity for one in of_pump(read(says, PumpDocument), "p")] == [WARNING]


def test_what_is_long_past_is_told_until_a_comparison_is_equal() -> None:
    drift = {"Rows": {"a.b": 3}, "LastS": NOW_S - 3600}
    assert [one.severity for one in troubles(Drift=drift)] == [WARNING]
    equal = {"state": "equal", "began_s": NOW_S - 3700}
    assert [one.severity for one in troubles(Drift=drift, Verify=equal)] == [WARNING]
    assert troubles(Drift=drift, Verify=equal | {"began_s": NOW_S - 3500}) == []
    texts = {"Texts": {"a.b": {"c": 2}}, "TextsLastS": NOW_S - 3600}
    assert [one.severity for one in troubles(Drift=texts, Verify=equal)] == [WARNING]
    assert troubles(Drift=texts, Verify=equal | {"began_s": NOW_S - 3500}) == []
    assert troubles(WentBack=[{"time": NOW_S - 3600, "why": "w"}]) == []
    # The Drainer was behind: it took the DDL while the comparison ran, or after it.
    early = [
        {"job_id": 7, "commit_ts": tso.from_wall_s(NOW_S - 7200), "last_s": NOW_S - 3600, "tables": ["a.b"]}
    ]
    (told,) = troubles(EarlyRows=early)
    assert (told.severity, "a.b" in told.text) == (WARNING, True)
    assert len(troubles(EarlyRows=early, Verify=equal)) == 1
    assert troubles(EarlyRows=early, Verify=equal | {"began_s": NOW_S - 3500}) == []
