"""The rules and dashboards that are shipped, read once, and the programs of Prometheus that try them."""

from __future__ import annotations

import json
import shutil
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

import yaml

from tests.waiting import PATIENCE_S

ROOT: Final = Path(__file__).resolve().parents[3]
DIRECTORY: Final = ROOT / "deploy" / "prometheus"
DASHBOARDS: Final = {
    path.stem: json.loads(path.read_text("utf-8"))
    for path in sorted((ROOT / "deploy" / "grafana" / "dashboards").iterdir())
}
"""As Grafana loads them, by name."""
RULE_FILES: Final = sorted(DIRECTORY.glob("*-rules.yml"))
INSTALL: Final = "apt-get install -y --no-install-recommends prometheus, or: sh deploy/install.sh spark"


@dataclass(frozen=True)
class Alert:
    name: str
    expression: str
    labels: dict[str, str]
    annotations: dict[str, str]


@cache
def _rules() -> list[dict[str, Any]]:
    groups = [group for path in RULE_FILES for group in yaml.safe_load(path.read_text())["groups"]]
    return [rule for group in groups for rule in group["rules"]]


@cache
def alerts() -> dict[str, Alert]:
    """By name; each name once."""
    rules = [rule for rule in _rules() if "alert" in rule]
    alerts = {
        rule["alert"]: Alert(rule["alert"], rule["expr"], rule["labels"], rule["annotations"])
        for rule in rules
    }
    assert len(alerts) == len(rules)
    return alerts


@cache
def records() -> dict[str, str]:
    """Expressions of recording rules by the name of their series."""
    return {rule["record"]: rule["expr"] for rule in _rules() if "record" in rule}


def panels(dashboard: str) -> list[dict[str, Any]]:
    """Panels of a dashboard without the rows that they stand in."""
    return [panel for panel in DASHBOARDS[dashboard]["panels"] if panel["type"] != "row"]


def panel_queries() -> dict[str, dict[str, Any]]:
    """Queries of all panels by dashboard, title and legend."""
    return {
        f"{name}: {panel['title']}: {target['legendFormat']}": target
        for name in DASHBOARDS
        for panel in panels(name)
        for target in panel["targets"]
    }


def program(name: str) -> str:
    """Where `prometheus` or `promtool` is."""
    path = shutil.which(name)
    assert path is not None, f"{name} is not installed: {INSTALL}"
    return path


def promtool(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [program("promtool"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
