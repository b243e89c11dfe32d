"""Join routes: tables join a running Drainer, over HTTP.

    GET /load               what joins, and how far its rows are
    PUT /load[?replace=1]   tables join: the body has their names upstream, `schema.table` with `*` for any,
                            separated by commas; `replace`: rows that are downstream may go

Answers are `{"message", "code", "data"}`, the code is also the HTTP status: 200 done, 400 refused, 409 not
just now, 413 too many names, 503 a server does not answer, or nothing is applied just now. Only an
administrator of this node may load.

Tests   tests/drainer/points/load/test_joining.py
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from drainer.points.load.joining import Joining
from tidb_binlog.door.http.routes import Request, Response, Routes, json_response
from tidb_binlog.errors import BinlogError, Conflict, Unavailable


def add_routes(routes: Routes, joining_now: Callable[[], Joining]) -> None:
    """`joining_now` raises `Unavailable` while there is none."""

    async def show(_params: dict[str, str]) -> Response:
        try:
            return _answer(200, "tables that join", joining_now().document())
        except Unavailable as error:
            return _answer(503, str(error))

    async def load(request: Request, params: dict[str, str]) -> Response:
        if request.body is None:
            return _answer(413, "too many names: use *")
        names = [name.strip() for name in request.body.decode("utf-8", "replace").split(",")]
        patterns = [name for name in names if name]
        asked_from = request.peer.address or "local"
        try:
            entry = await joining_now().ask(
                patterns, replacing=params.get("replace") == "1", asked_from=asked_from
            )
        except Conflict as error:
            return _answer(409, str(error))
        except Unavailable as error:
            return _answer(503, str(error))
        except BinlogError as error:
            return _answer(400, str(error))
        return _answer(200, "their rows are loaded", {"job_id": entry.job_id})

    routes.add("GET", "/load", show)
    routes.add_change("PUT", "/load", load)


def _answer(code: int, message: str, data: Any = None) -> Response:
    return json_response({"message": message, "code": code, "data": data}, indent=2, status=code)
