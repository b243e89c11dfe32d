"""Join routes: tables join a running Drainer, over HTTP.

    GET /load               what joins, and how far its rows are
    PUT /load               tables join: the body has their names upstream, `schema.table` with `*` for any,
                            separated by commas. `?replace=1`: rows that are downstream may go. `?rate=5000`:
                            so many rows a second at most
    DELETE /load            the load is given up: tables that it has begun to write are made anew, without
                            rows, others are as they were

Answers are `{"message", "code", "data"}`, the code is also the HTTP status: 200 done, 400 refused, 409 not
just now, 413 too many names, 503 a server does not answer, or nothing is applied just now. Only an
administrator of this node may load.

Tests   tests/drainer/points/load/test_joining.py
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tidb_binlog.door.http.routes import Request, Response, Routes, json_response
from tidb_binlog.errors import BinlogError, Conflict, Rejected, Unavailable

if TYPE_CHECKING:
    from drainer.points.load.joining import Joining


def add_refusals(routes: Routes, db_type_now: Callable[[], str]) -> None:
    """Of a Drainer that writes into no database."""

    def refuse() -> Joining:
        raise Rejected(
            f"db-type is {db_type_now()!r}: tables join a Drainer that writes into a database alone",
            hint="`binlogctl load -to archive -dir DIR` writes what the upstream has as an image beside an"
            " archive, from which restore and Spark begin; other places have the stream alone",
        )

    add_routes(routes, refuse)


def add_routes(
    routes: Routes,
    joining_now: Callable[[], Joining],
    document_now: Callable[[], dict[str, Any]] | None = None,
) -> None:
    """`joining_now` raises why there is none: `Unavailable`, `Rejected`. `document_now`: what is shown then,
    too."""

    async def show(_params: dict[str, str]) -> Response:
        try:
            document = document_now() if document_now is not None else joining_now().document()
            return _answer(200, "tables that join", document)
        except BinlogError as error:
            return _refused(error)

    async def load(request: Request, params: dict[str, str]) -> Response:
        if request.body is None:
            return _answer(413, "too many names: use *")
        names = [name.strip() for name in request.body.decode("utf-8", "replace").split(",")]
        patterns = [name for name in names if name]
        rate = params.get("rate", "-1")
        if rate != "-1" and not (rate.isascii() and rate.isdigit() and len(rate) < 10):
            return _answer(400, "rate: rows a second, 0 for no limit")
        try:
            entry = await joining_now().ask(
                patterns,
                replacing=params.get("replace") == "1",
                asked_from=_asked_from(request),
                rate_rows=int(rate),
            )
        except BinlogError as error:
            return _refused(error)
        return _answer(200, "their rows are loaded", {"job_id": entry.job_id})

    async def give_up(request: Request, _params: dict[str, str]) -> Response:
        try:
            entry, has_begun = await joining_now().give_up(asked_from=_asked_from(request))
        except BinlogError as error:
            return _refused(error)
        what = "its tables are made anew, without rows" if has_begun else "its tables are as they were"
        return _answer(200, f"given up: {what}", {"job_id": entry.job_id, "made_anew": has_begun})

    routes.add("GET", "/load", show)
    routes.add_change("PUT", "/load", load)
    routes.add_change("DELETE", "/load", give_up)


def _asked_from(request: Request) -> str:
    return request.peer.address or "local"


def _refused(error: BinlogError) -> Response:
    code = 409 if isinstance(error, Conflict) else 503 if isinstance(error, Unavailable) else 400
    return _answer(code, str(error))


def _answer(code: int, message: str, data: Any = None) -> Response:
    return json_response({"message": message, "code": code, "data": data}, indent=2, status=code)
