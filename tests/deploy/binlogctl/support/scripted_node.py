"""A port that answers like a node: what a Go node says, or one of ours, without its process."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from tidb_binlog.door.http.routes import Response, Routes, json_response
from tidb_binlog.door.server.listener import serve
from tidb_binlog.net.tls import ServerTls


@dataclass
class ScriptedNode:
    """`status` is its /status, `answer` its word to every PUT; `asked` what was put."""

    status: dict[str, Any] | None = None
    answer: Response = field(default_factory=lambda: said("apply action pause success!"))
    asked: list[str] = field(default_factory=list)


def said(message: str, code: int = 200, status: int = 200) -> Response:
    """A body as both kinds of nodes write it."""
    return json_response({"message": message, "code": code, "data": None}, indent=2, status=status)


@contextlib.asynccontextmanager
async def listening(node: ScriptedNode, tls: ServerTls | None = None) -> AsyncIterator[str]:
    """Its address."""
    routes = Routes()

    async def status(_: dict[str, str]) -> Response:
        return Response(404, b"") if node.status is None else json_response(node.status)

    async def state(params: dict[str, str]) -> Response:
        force = "?force=" + params["force"] if "force" in params else ""
        node.asked.append(f"/state/{params['node_id']}/{params['action']}{force}")
        return node.answer

    async def apply(params: dict[str, str]) -> Response:
        node.asked.append(f"/apply/{params['action']}")
        return node.answer

    async def decide(params: dict[str, str]) -> Response:
        node.asked.append(f"/transactions/{params['start_ts']}/{params['end']}")
        return node.answer

    routes.add("GET", "/status", status)
    routes.add("PUT", "/transactions/{start_ts}/{end}", decide)
    routes.add("PUT", "/state/{node_id}/{action}", state)
    routes.add("PUT", "/apply/{action}", apply)
    server = await serve([], routes, "127.0.0.1", 0, tls=tls)
    try:
        yield f"127.0.0.1:{server.port}"
    finally:
        await server.stop(0.1)
