"""Health: the two questions of what supervises a node.

GET /healthz   200 as long as the process answers at all
GET /readyz    200 when the node does its work, else 503 with the reason

Tests  tests/pump/membership/test_lifecycle.py
"""

from __future__ import annotations

from collections.abc import Callable

from tidb_binlog.door.http.routes import Response, Routes

STARTING = "starting"


def add_health(routes: Routes, unready: Callable[[], str]) -> None:
    """`unready` gives the reason why this node does not do its work; "" if it does."""

    async def healthz(_: dict[str, str]) -> Response:
        return Response(200, b"ok\n")

    async def readyz(_: dict[str, str]) -> Response:
        reason = unready()
        return Response(503, f"{reason}\n".encode()) if reason else Response(200, b"ok\n")

    routes.add("GET", "/healthz", healthz)
    routes.add("GET", "/readyz", readyz)
