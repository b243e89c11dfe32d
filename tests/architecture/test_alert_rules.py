"""The alert rules that are shipped speak of metrics that the daemons export, with labels that they have."""

from __future__ import annotations

import re
import subprocess
import sys
from functools import cache

import pytest

from drainer.sink.mysql.transient import Trouble
from drainer.status.lag import STAGES
from tests.architecture.source import ROOT

DAEMONS = ("pump", "drainer")
SCRIPT = """
import importlib, sys
importlib.import_module(sys.argv[1] + ".__main__")
from common.observe import metrics
print(metrics.exposition().decode())
"""


def text_of(daemon: str) -> str:
    return (ROOT / "deploy" / "prometheus" / f"{daemon}-rules.yml").read_text()


@cache
def exposition(daemon: str) -> str:
    command = [sys.executable, "-c", SCRIPT, daemon]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def expressions(daemon: str) -> dict[str, str]:
    """Expression by name of the alert; every alert has one."""
    text = text_of(daemon)
    found = dict(re.findall(r"- alert: (\w+)\n +expr: (.+)\n", text))
    assert len(found) == text.count("- alert: ") == text.count("summary: ") == text.count("action: ")
    return found


@pytest.mark.parametrize("daemon", DAEMONS)
def test_every_metric_of_a_rule_is_declared(daemon: str) -> None:
    text = exposition(daemon)
    declared = set(re.findall(r"^# HELP (\S+) ", text, re.MULTILINE))
    for alert, expression in expressions(daemon).items():
        (name,) = re.findall(r"\bbinlog_\w+", expression)
        assert name in declared or (
            name.endswith("_bucket") and f"# TYPE {name.removesuffix('_bucket')} histogram" in text
        ), f"{alert}: {name}"


def test_the_rules_of_older_pumps_and_the_states_that_need_a_person_are_there() -> None:
    rules = expressions("pump")
    assert rules["BinlogPumpStorageError"] == "changes(binlog_pump_storage_error_count[1m]) > 0"
    assert 'type="available"' in rules["BinlogPumpSpaceLow"]
    assert {"BinlogPumpWriterFailed", "BinlogPumpTransactionStuck", "BinlogPumpDrainerWouldLose"} <= set(
        rules
    )


def test_series_of_a_rule_that_watches_for_a_change_exist_from_the_start() -> None:
    assert 'binlog_pump_storage_error_count{type="write_binlog_batch"} 0.0' in exposition("pump")


def test_the_rules_of_older_drainers_keep_their_expressions() -> None:
    rules = expressions("drainer")
    assert rules["BinlogDrainerCheckpointHighDelay"] == (
        "(time() - binlog_drainer_checkpoint_tso / 1000) > 3600"
    )
    assert rules["BinlogDrainerCheckpointStands"] == "changes(binlog_drainer_checkpoint_tso[1m]) < 1"
    assert "binlog_drainer_execute_duration_time_bucket" in rules["BinlogDrainerExecuteSlow"]


def test_stages_and_reasons_that_a_rule_names_exist() -> None:
    named = set(re.findall(r'stage="(\w+)"', text_of("drainer")))
    assert named
    assert named <= set(STAGES)
    reasons = set(re.findall(r'reason!="([^"]+)"', text_of("drainer")))
    assert reasons == {Trouble.LOCK.value}


@pytest.mark.parametrize("daemon", DAEMONS)
def test_the_file_keeps_its_form(daemon: str) -> None:
    """No YAML parser is at hand: two blanks a level, no tabs, braces and quotes closed on their line."""
    for line in text_of(daemon).splitlines():
        indent = len(line) - len(line.lstrip(" "))
        assert indent % 2 == 0, line
        assert "\t" not in line
        assert line.count('"') % 2 == 0, line
        assert line.count("{") == line.count("}"), line
