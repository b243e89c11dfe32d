"""What Pumps, Drainers and jobs export: names of series and their labels, as their code declares them."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from functools import cache
from typing import Final

PROGRAMS: Final = {
    "pump": "pump.program",
    "drainer": "drainer.program",
    "spark": "drainer.spark.replay.job_metrics",
}
OF_PROMETHEUS: Final = {
    "up": {"job", "instance"},
    "ALERTS": {"alertname", "alertstate", "instance"},
    "tidb_server_critical_error_total": {"instance"},  # TiDB's own
    **{
        f"process_{name}": {"job", "instance"}
        for name in (
            "start_time_seconds",
            "cpu_seconds_total",
            "resident_memory_bytes",
            "open_fds",
            "max_fds",
        )
    },
}
"""Of Prometheus itself, of TiDB, and of every process that prometheus_client watches."""
SCRIPT: Final = """
import importlib, json, sys
importlib.import_module(sys.argv[1])
from tidb_binlog.observe import metrics
labels = {}
for collector in metrics.REGISTRY._collector_to_names:
    family = collector._make() if hasattr(collector, "_make") else collector
    if hasattr(family, "_labelnames"):
        (described, *_) = [family] if hasattr(collector, "_make") else family.describe()
        name = described.name if described.name in metrics.declared() else f"{described.name}_total"
        labels[name] = list(family._labelnames)
print(json.dumps([metrics.exposition().decode(), labels]))
"""


@cache
def _asked(program: str) -> tuple[str, dict[str, list[str]]]:
    command = [sys.executable, "-c", SCRIPT, PROGRAMS[program]]
    text, labels = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    return text, labels


def exposition() -> str:
    """Of all programs, before anything has happened."""
    return "\n".join(_asked(program)[0] for program in PROGRAMS)


@cache
def series() -> dict[str, frozenset[str]]:
    """Labels by name of series, histograms in full."""
    found: dict[str, frozenset[str]] = {name: frozenset(labels) for name, labels in OF_PROMETHEUS.items()}
    histograms = set(re.findall(r"^# TYPE (\S+) histogram$", exposition(), re.MULTILINE))
    for program in PROGRAMS:
        for name, labels in _asked(program)[1].items():
            own = frozenset({*labels, "job", "instance"})
            if name in histograms:
                found[f"{name}_bucket"] = own | {"le"}
                found[f"{name}_sum"] = found[f"{name}_count"] = own
            else:
                found[name] = own
    return found


_NAME: Final = re.compile(
    r"\b((?:instance|job):binlog_\w+:\w+|(?:binlog|process|tidb)_\w+|up|ALERTS)\b(?=[{\[) ]|$)"
)
_SELECTOR: Final = re.compile(r"([a-zA-Z_:][\w:]*)\{([^}]*)\}")


def asked_for(expression: str) -> set[str]:
    """Names of series that an expression asks for."""
    bare = re.sub(r"\b(?:by|on)\s*\([^)]*\)", "", re.sub(r'"[^"]*"', '""', expression))
    return set(_NAME.findall(bare))


def selectors(expression: str) -> dict[str, set[str]]:
    """Names of labels that an expression chooses by, by name of the series."""
    found: dict[str, set[str]] = {}
    for name, inner in _SELECTOR.findall(expression):
        found.setdefault(name, set()).update(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", inner))
    return found


def grouped(expression: str) -> set[str]:
    """Names of labels that an expression sums up or matches by."""
    inner = ", ".join(re.findall(r"\b(?:by|on)\s*\(([^)]*)\)", expression))
    return {name.strip() for name in inner.split(",") if name.strip()}
