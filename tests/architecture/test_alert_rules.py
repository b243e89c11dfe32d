"""Alerts, recording rules and dashboards that are shipped speak of metrics that the daemons export.

What they say when is tried in tests/deploy/prometheus.
"""

from __future__ import annotations

import re

import pytest

from drainer.mysql.errors import Trouble
from drainer.operate.status.lag import STAGES
from pump.write.admission import Reason
from tests.architecture.source import ROOT
from tests.cases import case
from tests.deploy.prometheus import exported
from tests.deploy.prometheus.rules import Alert, alerts, panel_queries, records

RUNBOOK = "docs/alerts.md"
each_alert = pytest.mark.parametrize("alert", alerts().values(), ids=alerts())


def known() -> dict[str, frozenset[str]]:
    """Labels by name of series, those of recording rules among them."""
    recorded = {name: frozenset({"job", "instance"}) for name in records()}
    return {**exported.series(), **recorded}


def check(expression: str) -> frozenset[str]:
    """The labels of the series in an expression, all of which exist."""
    asked = exported.asked_for(expression)
    assert asked, expression
    assert asked <= known().keys()
    for name, chosen in exported.selectors(expression).items():
        assert chosen <= known()[name], name
    own = frozenset().union(*(known()[name] for name in asked))
    assert exported.grouped(expression) <= own
    return own


@each_alert
def test_every_series_of_an_alert_exists_with_its_labels(alert: Alert) -> None:
    own = check(alert.expression)
    assert set(re.findall(r"\$labels\.(\w+)", alert.annotations["description"])) <= own


@pytest.mark.parametrize("record", records())
def test_every_series_of_a_recording_rule_exists_with_its_labels(record: str) -> None:
    check(records()[record])


def test_every_series_of_a_panel_exists_with_its_labels() -> None:
    for query in panel_queries().values():
        with case(query):
            own = check(query["expr"].replace("$__rate_interval", "1m"))
            assert set(re.findall(r"\{\{(\w+)\}\}", query["legendFormat"])) <= own


@each_alert
def test_an_alert_says_how_bad_it_is_and_what_to_do(alert: Alert) -> None:
    assert alert.labels["severity"] in ("critical", "warning")
    assert alert.labels["level"] in ("emergency", "critical", "warning")
    assert set(alert.annotations) == {"summary", "description", "runbook_url"}
    assert "{{" not in alert.annotations["summary"]
    assert "{{ $labels." in alert.annotations["description"]
    assert alert.annotations["runbook_url"] == f"{RUNBOOK}#{alert.name.lower()}"


def test_the_page_has_each_alert_once_and_no_other() -> None:
    """An anchor is the heading in lower case, in MkDocs and where Markdown is shown beside the code."""
    headings = re.findall(r"^### (\w+)$", (ROOT / RUNBOOK).read_text(), re.MULTILINE)
    assert sorted(headings) == sorted(alerts())


def test_alerts_of_older_nodes_keep_their_expressions() -> None:
    rules = {name: alert.expression for name, alert in alerts().items()}
    assert rules["BinlogPumpStorageError"] == "changes(binlog_pump_storage_error_count[1m]) > 0"
    assert 'type="available"' in rules["BinlogPumpSpaceLow"]
    assert rules["BinlogDrainerCheckpointHighDelay"].startswith(
        "(time() - binlog_drainer_checkpoint_tso / 1000) > 3600"
    )
    assert rules["BinlogDrainerCheckpointStands"].startswith("changes(binlog_drainer_checkpoint_tso[1m]) < 1")
    assert "binlog_drainer_execute_duration_time_bucket" in rules["BinlogDrainerExecuteSlow"]


def test_series_of_an_alert_that_watches_for_a_change_exist_from_the_start() -> None:
    """One that begins with its first error is no change to Prometheus: such an alert looks for new ones."""
    text = exported.exposition()
    for alert in alerts().values():
        for name in re.findall(r"(?:changes|increase)\((binlog_\w+)", alert.expression):
            if f"{name} offset" not in alert.expression:
                assert re.search(rf"^{name}(\{{.*\}})? 0\.0$", text, re.MULTILINE), alert.name


def test_stages_and_reasons_that_an_alert_names_exist() -> None:
    text = "\n".join(alert.expression for alert in alerts().values())
    named = set(re.findall(r'stage="(\w+)"', text))
    assert named
    assert named <= {*STAGES, "indexed"}
    (chosen,) = re.findall(r'admission_refused_total\{reason=~"([^"]+)"', text)
    assert {Reason(one) for one in chosen.split("|")} == set(Reason) - {
        Reason.CLUSTER,
        Reason.PAYLOAD,
        Reason.STATE,
    }
    refused = set(re.findall(r'refused_total\{reason="(\w+)"\} 0\.0', exported.exposition()))
    assert refused == {one.value for one in Reason}
    assert set(re.findall(r'reason!="([^"]+)"', text)) == {Trouble.LOCK.value}
