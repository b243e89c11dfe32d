"""Alerts, recording rules and dashboards that are shipped speak of metrics that the daemons export.

What they say when is tried in tests/deploy/prometheus.
"""

from __future__ import annotations

import re
import subprocess
import sys
from functools import cache

import pytest

from drainer.sink.mysql.transient import Trouble
from drainer.status.lag import STAGES
from tests.architecture.source import ROOT
from tests.deploy.prometheus.rules import Alert, alerts, records

DAEMONS = ("pump", "drainer")
OF_PROMETHEUS = {"up", "process_start_time_seconds"}
RUNBOOK = "docs/alerts.md"
SCRIPT = """
import importlib, sys
importlib.import_module(sys.argv[1] + ".__main__")
from common.observe import metrics
print(metrics.exposition().decode())
"""
_SERIES = re.compile(r"\b((?:instance|job):binlog_\w+:\w+|binlog_\w+|up|process_\w+)\b(?=[{\[) ]|$)")
each_alert = pytest.mark.parametrize("alert", alerts().values(), ids=alerts())


@cache
def exposition(daemon: str) -> str:
    command = [sys.executable, "-c", SCRIPT, daemon]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@cache
def exported() -> frozenset[str]:
    """Names of series that Prometheus has of daemons, histograms in full."""
    text = "\n".join(exposition(daemon) for daemon in DAEMONS)
    found = set(re.findall(r"^# HELP (\S+) ", text, re.MULTILINE))
    for name in re.findall(r"^# TYPE (\S+) histogram$", text, re.MULTILINE):
        found |= {f"{name}_bucket", f"{name}_sum", f"{name}_count"}
    return frozenset(found)


def series(expression: str) -> set[str]:
    """Names of series that an expression asks for."""
    return set(_SERIES.findall(re.sub(r'"[^"]*"', '""', expression)))


@each_alert
def test_every_series_of_an_alert_is_exported_or_recorded(alert: Alert) -> None:
    asked = series(alert.expression)
    assert asked
    assert asked <= exported() | set(records()) | OF_PROMETHEUS


@pytest.mark.parametrize("record", records())
def test_every_series_of_a_recording_rule_is_exported(record: str) -> None:
    asked = series(records()[record])
    assert asked
    assert asked <= exported()


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
    text = "\n".join(exposition(daemon) for daemon in DAEMONS)
    for alert in alerts().values():
        for name in re.findall(r"(?:changes|increase)\((binlog_\w+)", alert.expression):
            if f"{name} offset" not in alert.expression:
                assert re.search(rf"^{name}(\{{.*\}})? 0\.0$", text, re.MULTILINE), alert.name


def test_stages_and_reasons_that_an_alert_names_exist() -> None:
    text = "\n".join(alert.expression for alert in alerts().values())
    named = set(re.findall(r'stage="(\w+)"', text))
    assert named
    assert named <= {*STAGES, "indexed"}
    assert set(re.findall(r'reason!="([^"]+)"', text)) == {Trouble.LOCK.value}
