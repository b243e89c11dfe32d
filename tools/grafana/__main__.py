"""`python -m tools.grafana`: writes the dashboards that Grafana loads, `deploy/grafana/dashboards/*.json`.

Tests  tests/deploy/prometheus/test_dashboards.py says when they are to be written anew
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tidb_binlog.observe import show
from tools.grafana.cluster import CLUSTER
from tools.grafana.drainer import DRAINER
from tools.grafana.panels import Dashboard, document
from tools.grafana.pump import PUMP
from tools.grafana.spark import SPARK

DIRECTORY: Final = Path(__file__).parent / "dashboards"
DASHBOARDS: Final = {"cluster": CLUSTER, "pump": PUMP, "drainer": DRAINER, "spark": SPARK}


def text(dashboard: Dashboard) -> str:
    """What is in its file."""
    return show.json_text(document(dashboard))


def main() -> None:
    for name, dashboard in DASHBOARDS.items():
        path = DIRECTORY / f"{name}.json"
        path.write_text(text(dashboard), encoding="utf-8")
        show.print_lines(f"{path}: {len(dashboard.panels)} panels")


if __name__ == "__main__":
    main()
