"""Alert rules: writes the rules of Prometheus that are made from the tables of conditions.

    python -m tools.alert_rules    after a change of a condition; the test says when it was forgotten

Tests  tests/architecture/test_generated_pages.py
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from tidb_binlog.observe import show
from tidb_binlog.status import drainer_conditions, pump_conditions, series_conditions
from tidb_binlog.status.troubles import ERROR, Condition

ROOT: Final = Path(__file__).parents[1]
_SEVERITIES: Final = {ERROR: "critical"}
_OF_ALL: Final = "BinlogNode"
_PUMP: Final[tuple[Condition[Any], ...]] = (*pump_conditions.CONDITIONS, *series_conditions.PUMP)
_DRAINER: Final[tuple[Condition[Any], ...]] = (*drainer_conditions.CONDITIONS, *series_conditions.DRAINER)
GROUPS: Final[dict[str, tuple[Condition[Any], ...]]] = {
    "node": (
        *series_conditions.NODE,
        *(condition for condition in pump_conditions.CONDITIONS if condition.name.startswith(_OF_ALL)),
    ),
    "pump": tuple(condition for condition in _PUMP if not condition.name.startswith(_OF_ALL)),
    "drainer": tuple(condition for condition in _DRAINER if not condition.name.startswith(_OF_ALL)),
    "spark": series_conditions.SPARK,
}
"""Conditions by the file of their rules."""


def files() -> dict[str, str]:
    """Texts by path below the root of the project."""
    return {
        f"deploy/prometheus/{of}-rules.yml": "\n".join(_lines(of, conditions)) + "\n"
        for of, conditions in GROUPS.items()
    }


def _lines(of: str, conditions: Iterable[Condition[Any]]) -> Iterator[str]:
    yield "# Made from the tables of conditions in tidb_binlog.status: docs/alerts.md says what to do."
    yield "# Add this file and recording-rules.yml to `rule_files` of Prometheus; `severity` is for routes of"
    yield "# Alertmanager as its users have them, `level` for routes that were made for TiDB's own rules."
    yield "groups:"
    yield f"  - name: binlog-{of}"
    yield "    rules:"
    for condition in conditions:
        if (rule := condition.rule) is None:
            continue
        severity = _SEVERITIES.get(condition.severity, condition.severity)
        yield f"      - alert: {condition.name}"
        yield f"        expr: {rule.expression}"
        if rule.pause:
            yield f"        for: {rule.pause}"
        yield f"        labels: {{severity: {severity}, level: {rule.level or severity}}}"
        yield "        annotations:"
        yield f"          summary: {json.dumps(condition.means)}"
        yield f"          description: {json.dumps(f'{{{{ $labels.{rule.of} }}}}: {rule.description}')}"
        yield f'          runbook_url: "docs/alerts.md#{condition.name.lower()}"'


def main() -> None:
    """Write what differs."""
    for name, text in files().items():
        path = ROOT / name
        if not path.exists() or path.read_text() != text:
            path.write_text(text)
            show.print_lines(name)


if __name__ == "__main__":
    main()
