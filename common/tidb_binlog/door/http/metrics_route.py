"""`/metrics`: this process's metrics, in the form that the request asks for.

Tests  tests/common/door/server/test_listener_http.py, tests/common/observe/test_metrics.py
"""

from __future__ import annotations

from tidb_binlog.door.http.routes import Request, Response, Routes
from tidb_binlog.observe import metrics


def add_metrics_route(routes: Routes) -> None:
    """For Prometheus: OpenMetrics if `Accept` names it, else the text form."""
    routes.add_for("*", "/metrics", _answer)


async def _answer(request: Request, _params: dict[str, str]) -> Response:
    body, content_type = metrics.answer(request.accept)
    return Response(200, body, content_type)
