"""Server: what others may ask of a running Drainer, over gRPC (`binlog.Cistern`) and HTTP.

    GET /status                    JSON of the Go drainer (PumpPos, Synced, LastTS, TsMap) plus our own keys
    GET /commit_ts                 the stored checkpoint
    GET /metrics                   Prometheus text
    PUT /state/{node_id}/{action}  pause or close this node

The Go drainer answers logical errors with HTTP 200 and a code in the body; so does this.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol

from common import metrics, node
from common.door import Response, Routes, json_response
from common.rpc import Service
from common.wire import drainer_pb2

CODE_OK: Final = 200
CODE_OTHER: Final = 3


class StatusSource(Protocol):
    """What the routes show."""

    def document(self) -> dict[str, Any]: ...

    @property
    def stored_ts(self) -> int: ...


@dataclass(slots=True)
class NodeState:
    """This node's id and lifecycle state; `apply` moves along `common.node.LIFECYCLE`."""

    node_id: str
    state: str

    def apply(self, event: str) -> bool:
        """Take the transition if there is one; False leaves everything as it was."""
        following = node.LIFECYCLE.get((self.state, event))
        if following is None:
            return False
        self.state = following
        return True


def notify_service(notify: Callable[[], Awaitable[None]]) -> Service:
    """`binlog.Cistern`: answers once the collector has seen every pump that is registered now."""

    async def handle(request: bytes) -> bytes:
        await notify()
        return drainer_pb2.NotifyResp().SerializeToString()

    return Service(name="binlog.Cistern", unary={"Notify": handle})


def add_routes(routes: Routes, source: StatusSource, state: NodeState, stop: Callable[[], None]) -> None:
    """The HTTP routes of a drainer that is up."""

    async def status(_params: dict[str, str]) -> Response:
        return json_response(source.document())

    async def commit_ts(_params: dict[str, str]) -> Response:
        return _answer("get drainer's latest ts success!", CODE_OK, {"ts": source.stored_ts})

    async def exposition(_params: dict[str, str]) -> Response:
        return Response(200, metrics.exposition(), metrics.CONTENT_TYPE)

    async def change_state(params: dict[str, str]) -> Response:
        asked, action = params["node_id"], params["action"]
        if asked != state.node_id:
            return _answer(f"invalid nodeID {asked}, this pump's nodeID is {state.node_id}", CODE_OTHER)
        if state.state != node.ONLINE:
            return _answer(f"this pump's state is {state.state}, apply {action} failed!", CODE_OTHER)
        if action not in ("pause", "close"):
            return _answer(f"invalid action {action}", CODE_OTHER)
        state.apply(action)
        stop()
        return _answer(f"apply action {action} success!", CODE_OK)

    routes.add("GET", "/status", status)
    routes.add("GET", "/commit_ts", commit_ts)
    routes.add("*", "/metrics", exposition)
    routes.add("PUT", "/state/{node_id}/{action}", change_state, guarded=True)


def _answer(message: str, code: int, data: Any = None) -> Response:
    return json_response({"message": message, "code": code, "data": data}, indent=2)
