"""HTTP routes: what waits, why, and deciding about it, over HTTP.

    GET /ddl                       what waits, the last decisions, the rules
    GET /ddl/{job_id}              one DDL that waits, with its decisions
    GET /ddl-rule                  which rule would decide: ?kind=&db=&table=&sql=
    PUT /ddl/{job_id}/{decision}   retry, skip, or rewrite with the new text as the body

Answers are `{"message", "code", "data"}`, the code is also the HTTP status: 200 done, 400 a decision that
makes no sense, 404 no such DDL waits, 409 too late, 413 text too large, 503 nothing is applied just now. Only
an administrator of this node may decide.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import asdict
from typing import Any, Protocol

from drainer.ddl import rules as ddl_rules
from drainer.ddl.policy import Ruling
from drainer.ddl.quarantine.entry import DECISIONS
from drainer.ddl.quarantine.store import Decided
from tidb_binlog.door.http.routes import Request, Response, Routes, json_response
from tidb_binlog.errors import Conflict, Rejected, Unavailable

Handler = Callable[[dict[str, str]], Awaitable[Response]]


class DdlDecider(Protocol):
    """What the routes ask (`controller`)."""

    def documents(self) -> list[dict[str, Any]]: ...
    def rules(self) -> list[dict[str, Any]]: ...
    def explain(self, action: int, names: list[tuple[str, str]], query: str) -> Ruling: ...
    async def decisions(self) -> list[Decided]: ...
    async def decide(self, job_id: int, action: str, text: str, asked_from: str) -> dict[str, Any]: ...


def add_routes(routes: Routes, controller_now: Callable[[], DdlDecider]) -> None:
    """`controller_now` raises `Unavailable` while there is none."""

    async def everything(_params: dict[str, str]) -> Response:
        controller = controller_now()
        decisions = [asdict(decided) for decided in await controller.decisions()]
        document = {"waiting": controller.documents(), "decisions": decisions, "rules": controller.rules()}
        return _answer(200, "DDL", document)

    async def of_job(params: dict[str, str]) -> Response:
        controller = controller_now()
        job_id = _number(params["job_id"])
        waiting = next(
            (document for document in controller.documents() if document["job_id"] == job_id), None
        )
        decisions = [asdict(decided) for decided in await controller.decisions() if decided.job_id == job_id]
        if waiting is None and not decisions:
            return _answer(404, f"no DDL job {params['job_id']} waits")
        return _answer(200, "DDL", {"waiting": waiting, "decisions": decisions})

    async def explain(params: dict[str, str]) -> Response:
        kind = ddl_rules.kind_of(params.get("kind", ""))
        if kind not in ddl_rules.CODES:
            return _answer(400, "kind: name one kind of DDL, such as add-index")
        names = [(params.get("db", ""), params.get("table", ""))] if "db" in params else []
        ruling = controller_now().explain(ddl_rules.CODES[kind], names, params.get("sql", ""))
        return _answer(200, ruling.reason, asdict(ruling))

    async def decide(request: Request, params: dict[str, str]) -> Response:
        if request.body is None:
            return _answer(413, "the text is too large")
        try:
            text = request.body.decode().strip()
        except UnicodeDecodeError:
            return _answer(400, "the text is not UTF-8")
        decision = params["decision"]
        if decision not in DECISIONS:
            return _answer(400, "the decision is one of " + ", ".join(DECISIONS))
        controller = controller_now()
        try:
            decided = await controller.decide(
                _number(params["job_id"]), decision, text, request.peer.address or "local"
            )
        except Rejected as error:
            missing = all(
                document["job_id"] != _number(params["job_id"]) for document in controller.documents()
            )
            return _answer(404 if missing else 400, str(error))
        except Conflict as error:
            return _answer(409, str(error))
        return _answer(200, f"job {decided['job_id']}: {decision}", decided)

    async def decide_now(request: Request, params: dict[str, str]) -> Response:
        try:
            return await decide(request, params)
        except Unavailable as error:
            return _answer(503, str(error))

    def now(handler: Handler) -> Handler:
        async def answer(params: dict[str, str]) -> Response:
            try:
                return await handler(params)
            except Unavailable as error:
                return _answer(503, str(error))

        return answer

    routes.add("GET", "/ddl", now(everything))
    routes.add("GET", "/ddl-rule", now(explain))
    routes.add("GET", "/ddl/{job_id}", now(of_job))
    routes.add_change("PUT", "/ddl/{job_id}/{decision}", decide_now)


def _number(text: str) -> int:
    """-1, which no job has, for what is no number."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 20 else -1


def _answer(code: int, message: str, data: Any = None) -> Response:
    return json_response({"message": message, "code": code, "data": data}, indent=2, status=code)
