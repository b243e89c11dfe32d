"""The alert rules that are shipped speak of metrics that a pump exports, with labels that they have."""

from __future__ import annotations

import re
import subprocess
import sys
from functools import cache

from tests.architecture.source import ROOT

RULES = ROOT / "deploy" / "prometheus" / "pump-rules.yml"
SCRIPT = """
import pump.__main__
from common import metrics
print(metrics.exposition().decode())
"""


@cache
def exposition() -> str:
    result = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True)
    return result.stdout


def expressions() -> dict[str, str]:
    """Expression by name of the alert; every alert has one."""
    text = RULES.read_text()
    found = dict(re.findall(r"- alert: (\w+)\n +expr: (.+)\n", text))
    assert len(found) == text.count("- alert: ") == text.count("summary: ") == text.count("action: ")
    return found


def test_every_metric_of_a_rule_is_declared() -> None:
    declared = set(re.findall(r"^# HELP (\S+) ", exposition(), re.MULTILINE))
    for alert, expression in expressions().items():
        (name,) = re.findall(r"\bbinlog_\w+", expression)
        assert name in declared or (
            name.endswith("_bucket") and f"# TYPE {name.removesuffix('_bucket')} histogram" in exposition()
        ), f"{alert}: {name}"


def test_the_rules_of_older_pumps_and_the_states_that_need_a_person_are_there() -> None:
    rules = expressions()
    assert rules["BinlogPumpStorageError"] == "changes(binlog_pump_storage_error_count[1m]) > 0"
    assert 'type="available"' in rules["BinlogPumpSpaceLow"]
    assert {"BinlogPumpWriterFailed", "BinlogPumpTransactionStuck", "BinlogPumpDrainerWouldLose"} <= set(
        rules
    )


def test_series_of_a_rule_that_watches_for_a_change_exist_from_the_start() -> None:
    assert 'binlog_pump_storage_error_count{type="write_binlog_batch"} 0.0' in exposition()


def test_the_file_keeps_its_form() -> None:
    """No YAML parser is at hand: two blanks a level, no tabs, braces and quotes closed on their line."""
    for line in RULES.read_text().splitlines():
        indent = len(line) - len(line.lstrip(" "))
        assert indent % 2 == 0, line
        assert "\t" not in line
        assert line.count('"') % 2 == 0, line
        assert line.count("{") == line.count("}"), line
