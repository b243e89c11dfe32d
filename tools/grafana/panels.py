"""Panels: what a dashboard shows, and the JSON that Grafana loads it from.

In     a `Dashboard`: rows of panels, each with title, description, unit, queries and thresholds
Out    a document as Grafana 9 and later save it, laid out three to a row of the grid
Why    eighty panels of forty lines of JSON each hide what differs between them: title, unit and query
Holds  the data source is a variable, so the file loads anywhere; ids and places follow from the order

Tests  tests/deploy/prometheus/test_dashboards.py
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

TAG: Final = "tidb-binlog"
SOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}
WIDTH: Final = 24
PANEL_WIDTH: Final = 8
PANEL_HEIGHT: Final = 8
SCHEMA: Final = 37

GREEN: Final = "green"
ORANGE: Final = "orange"
RED: Final = "red"

LINES: Final = "timeseries"
NUMBER: Final = "stat"
TABLE: Final = "table"


@dataclass(frozen=True)
class Query:
    """`legend` may name labels: `{{instance}}`."""

    expression: str
    legend: str = "{{instance}}"


@dataclass(frozen=True)
class Panel:
    """`orange`, `red`: from which value on it is coloured so, with `falls` below which. `stacked`: series add
    up."""

    title: str
    description: str
    unit: str
    queries: Sequence[Query]
    kind: str = LINES
    orange: float | None = None
    red: float | None = None
    falls: bool = False
    stacked: bool = False


@dataclass(frozen=True)
class Row:
    title: str
    panels: Sequence[Panel]


@dataclass(frozen=True)
class Dashboard:
    """`variables`: query variables by name, each with the query of its values."""

    uid: str
    title: str
    description: str
    rows: Sequence[Row]
    variables: dict[str, str] = field(default_factory=dict)

    @property
    def panels(self) -> list[Panel]:
        return [panel for row in self.rows for panel in row.panels]


def document(dashboard: Dashboard) -> dict[str, Any]:
    """As Grafana loads it."""
    return {
        "uid": dashboard.uid,
        "title": dashboard.title,
        "description": dashboard.description,
        "tags": [TAG],
        "schemaVersion": SCHEMA,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "timezone": "browser",
        "time": {"from": "now-1h", "to": "now"},
        "links": [
            {
                "type": "dashboards",
                "title": "TiDB Binlog",
                "tags": [TAG],
                "asDropdown": True,
                "includeVars": False,
                "keepTime": True,
            }
        ],
        "annotations": {"list": [_alerts()]},
        "templating": {"list": [_source(), *map(_variable, dashboard.variables.items())]},
        "panels": _laid_out(dashboard.rows),
    }


def _alerts() -> dict[str, Any]:
    return {
        "name": "Alerts",
        "datasource": SOURCE,
        "enable": True,
        "expr": 'ALERTS{alertname=~"Binlog.*", alertstate="firing"}',
        "iconColor": RED,
        "titleFormat": "{{alertname}}",
        "textFormat": "{{instance}}",
    }


def _source() -> dict[str, Any]:
    return {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"}


def _variable(given: tuple[str, str]) -> dict[str, Any]:
    name, query = given
    return {
        "name": name,
        "label": name.replace("_", " ").capitalize(),
        "type": "query",
        "datasource": SOURCE,
        "query": {"query": query, "refId": name},
        "definition": query,
        "refresh": 2,
        "sort": 1,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"selected": True, "text": ["All"], "value": ["$__all"]},
    }


def _laid_out(rows: Sequence[Row]) -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = []
    y = 0
    for row in rows:
        place = {"h": 1, "w": WIDTH, "x": 0, "y": y}
        made.append(
            {
                "id": len(made) + 1,
                "type": "row",
                "title": row.title,
                "gridPos": place,
                "collapsed": False,
                "panels": [],
            }
        )
        y += 1
        for number, panel in enumerate(row.panels):
            line, column = divmod(number, WIDTH // PANEL_WIDTH)
            place = {
                "h": PANEL_HEIGHT,
                "w": PANEL_WIDTH,
                "x": column * PANEL_WIDTH,
                "y": y + line * PANEL_HEIGHT,
            }
            made.append({"id": len(made) + 1, **_panel(panel), "gridPos": place})
        y += -(-len(row.panels) * PANEL_WIDTH // WIDTH) * PANEL_HEIGHT
    return made


def _panel(panel: Panel) -> dict[str, Any]:
    return {
        "type": panel.kind,
        "title": panel.title,
        "description": panel.description,
        "datasource": SOURCE,
        "fieldConfig": {"defaults": _defaults(panel), "overrides": []},
        "options": _options(panel.kind),
        "targets": [
            {
                "refId": chr(ord("A") + number),
                "datasource": SOURCE,
                "expr": query.expression,
                "legendFormat": query.legend,
                "instant": panel.kind == TABLE,
                "range": panel.kind != TABLE,
                **({"format": "table"} if panel.kind == TABLE else {}),
            }
            for number, query in enumerate(panel.queries)
        ],
    }


def _defaults(panel: Panel) -> dict[str, Any]:
    found: dict[str, Any] = {"unit": panel.unit, "thresholds": _thresholds(panel)}
    if panel.kind == LINES:
        shown = panel.orange is not None or panel.red is not None
        found["custom"] = {
            "drawStyle": "line",
            "lineWidth": 1,
            "fillOpacity": 30 if panel.stacked else 5,
            "showPoints": "never",
            "spanNulls": False,
            "stacking": {"mode": "normal" if panel.stacked else "none", "group": "A"},
            "thresholdsStyle": {"mode": "dashed" if shown else "off"},
        }
    else:
        found["color"] = {"mode": "thresholds"}
    return found


def _thresholds(panel: Panel) -> dict[str, Any]:
    given = [(panel.orange, ORANGE), (panel.red, RED)]
    bounds = [(value, colour) for value, colour in given if value is not None]
    if panel.falls:  # below the lowest one it is worst, above the highest one well
        colours = [colour for _, colour in reversed(bounds)] + [GREEN]
        steps = list(zip([None, *sorted(value for value, _ in bounds)], colours, strict=True))
    else:
        steps = [(None, GREEN), *bounds]
    return {"mode": "absolute", "steps": [{"value": value, "color": colour} for value, colour in steps]}


def _options(kind: str) -> dict[str, Any]:
    if kind == LINES:
        return {
            "legend": {
                "displayMode": "table",
                "placement": "bottom",
                "showLegend": True,
                "calcs": ["lastNotNull", "max"],
            },
            "tooltip": {"mode": "multi", "sort": "desc"},
        }
    if kind == NUMBER:
        return {
            "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
            "colorMode": "value",
            "graphMode": "area",
            "textMode": "auto",
        }
    return {"showHeader": True}
