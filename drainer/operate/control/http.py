"""HTTP: what others may ask of a running Drainer, over gRPC (`binlog.Cistern`) and HTTP.

    GET /                          a page for people (`tidb_binlog.serving.status_page`)
    GET /cluster                   all nodes for people (`tidb_binlog.serving.cluster_page`)
    GET /status                    JSON of the Go drainer (PumpPos, Synced, LastTS, TsMap) plus our own keys
    GET /commit_ts                 the stored checkpoint
    GET /metrics                   for Prometheus: text, or OpenMetrics if Accept names it
    PUT /state/{node_id}/{action}  pause or close this node

The Go drainer answers logical errors with HTTP 200 and a code in the body; so do these. Ours, which change a
drainer while it goes on, answer with a status of its own:

    PUT /apply/pause, /apply/resume   hold rows and DDL back, or let them go
    PUT /apply/rate?rows=N&bytes=M    at most so many a second; 0: unlimited, one left out stays as it is
    PUT /reload                       read the configuration file again, as SIGHUP does: see docs/reload.md.
                                      Other rules (filters, routes, columns) are in force after the
                                      `commit_ts` of the answer
    GET /config                       the configuration, secrets masked
    PUT /apply/hold                   hold the stream still between two transactions, at `ts` of the answer:
                                      the downstream has exactly what was committed up to there. It goes on
                                      after limit_ms= by itself; wait_ms= bounds how long it may take to stand
    PUT /apply/hold?arm               the same, answered at once with the token alone: timestamps drawn from
                                      now on lie above the place where it will stand
    PUT /apply/hold?token=T&at=TS     let it go on to exactly TS, and hold it there
    PUT /apply/release?token=T        let it go on. `valid`: it was held all the time until now

Everything but GET /, /cluster, /status, /commit_ts and /metrics is for this host, `admin-from` and mutual TLS
only.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final, Protocol

from drainer.operate.control import hold as holding
from drainer.operate.control.hold import Held, Hold
from drainer.operate.control.pause_and_reload import Control
from drainer.operate.control.rate_limit import Limits
from tidb_binlog.cluster import node
from tidb_binlog.door.http.metrics_route import add_metrics_route
from tidb_binlog.door.http.routes import Response, Routes, json_response
from tidb_binlog.errors import ConfigError, Conflict, Rejected, Unavailable
from tidb_binlog.late_dataclass import dataclass
from tidb_binlog.net.permission import Permission
from tidb_binlog.quantities import size_bytes
from tidb_binlog.rpc import Service
from tidb_binlog.serving.reload import Reloaded
from tidb_binlog.status.codec import plain
from tidb_binlog.tso import Ts
from tidb_binlog.wire import drainer_pb2

CODE_OK: Final = 200
CODE_OTHER: Final = 3


class StatusSource(Protocol):
    """What the routes show."""

    def document(self) -> dict[str, Any]: ...

    @property
    def stored_ts(self) -> Ts: ...


class Shown:
    """A `StatusSource` that may be another one later: a standby's first, then the active drainer's."""

    def __init__(self, source: StatusSource) -> None:
        self.source = source

    def document(self) -> dict[str, Any]:
        """Gives the document of `/status`."""
        return self.source.document()

    @property
    def stored_ts(self) -> Ts:
        """The checkpoint's commit_ts."""
        return self.source.stored_ts


@dataclass(slots=True)
class NodeState:
    """This node's id and lifecycle state; `apply` moves along `tidb_binlog.cluster.node.LIFECYCLE`."""

    node_id: str
    state: str
    told_to_leave: bool = False

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

    return Service(name="binlog.Cistern", unary={"Notify": handle}, permissions={"Notify": Permission.WRITE})


def add_routes(routes: Routes, source: StatusSource, state: NodeState, stop: Callable[[], None]) -> None:
    """The HTTP routes of a drainer that is up."""

    async def status(_params: dict[str, str]) -> Response:
        return json_response(source.document())

    async def commit_ts(_params: dict[str, str]) -> Response:
        return _answer("get drainer's latest ts success!", CODE_OK, {"ts": source.stored_ts})

    async def change_state(params: dict[str, str]) -> Response:
        asked, action = params["node_id"], params["action"]
        if asked != state.node_id:
            return _answer(f"invalid nodeID {asked}, this pump's nodeID is {state.node_id}", CODE_OTHER)
        if state.state != node.ONLINE:
            return _answer(f"this pump's state is {state.state}, apply {action} failed!", CODE_OTHER)
        if action not in ("pause", "close"):
            return _answer(f"invalid action {action}", CODE_OTHER)
        state.apply(action)
        state.told_to_leave = True
        stop()
        return _answer(f"apply action {action} success!", CODE_OK)

    routes.add("GET", "/status", status)
    routes.add("GET", "/commit_ts", commit_ts)
    add_metrics_route(routes)
    routes.add("PUT", "/state/{node_id}/{action}", change_state, guarded=True)


def add_control_routes(
    routes: Routes,
    control: Control,
    reload: Callable[[], Awaitable[Reloaded]],
    configuration: Callable[[], dict[str, Any]],
) -> None:
    """`reload` raises `ConfigError`, `Rejected`. `configuration` is masked."""

    async def pause(_: dict[str, str]) -> Response:
        control.pause()
        return _answer("applying is paused", CODE_OK, plain(control.facts()))

    async def resume(_: dict[str, str]) -> Response:
        control.resume()
        return _answer("applying is resumed", CODE_OK, plain(control.facts()))

    async def rate(params: dict[str, str]) -> Response:
        before = control.limits
        try:
            rows = int(params.get("rows", before.rows))
            size = size_bytes(params["bytes"]) if "bytes" in params else before.size
        except ValueError as error:
            return _answer(f"rows and bytes are numbers: {error}", CODE_OTHER, status=400)
        if rows < 0 or not {"rows", "bytes"} & params.keys():
            return _answer("give rows=N, bytes=M or both; 0 is unlimited", CODE_OTHER, status=400)
        control.change_rate(Limits(rows, size))
        return _answer("rate limit changed", CODE_OK, plain(control.facts()))

    async def read_again(_: dict[str, str]) -> Response:
        try:
            reloaded = await reload()
        except ConfigError as error:
            return _answer(str(error), CODE_OTHER, status=400)
        except Rejected as error:
            return _answer(str(error), CODE_OTHER, status=409)
        data: dict[str, Any] = {"changed": reloaded.keys, "needs_restart": reloaded.needs_restart}
        if reloaded.commit_ts is not None:
            data["commit_ts"] = reloaded.commit_ts
        return _answer("configuration read again", CODE_OK, data)

    async def show(_: dict[str, str]) -> Response:
        return json_response(configuration(), indent=2)

    routes.add("PUT", "/apply/pause", pause, guarded=True)
    routes.add("PUT", "/apply/resume", resume, guarded=True)
    routes.add("PUT", "/apply/rate", rate, guarded=True)
    routes.add("PUT", "/reload", read_again, guarded=True)
    routes.add("GET", "/config", show, guarded=True)


def add_hold_routes(routes: Routes, hold: Hold) -> None:
    """For who compares the downstream with the upstream. 409: another one holds it, or the hold is over; 503:
    it could not be held in time."""

    async def keep(params: dict[str, str]) -> Response:
        try:
            limit_s = _milliseconds(params, "limit_ms", holding.LIMIT_S, holding.LIMIT_MAX_S)
            wait_s = _milliseconds(params, "wait_ms", holding.WAIT_S, holding.WAIT_MAX_S)
            at_ts = int(params.get("at", 0))
            if at_ts <= 0 if "token" in params else at_ts:
                raise ValueError("token=T&at=TS go together")
        except ValueError as error:
            return _answer(f"hold: {error}", CODE_OTHER, status=400)
        try:
            if "arm" in params:
                token = hold.arm(limit_s=limit_s, wait_s=wait_s)
                return _answer("the stream is about to be held", CODE_OK, {"token": token})
            if "token" in params:
                held = await hold.go_on(params["token"], at_ts, wait_s=wait_s)
            else:
                held = await hold.ask(limit_s=limit_s, wait_s=wait_s)
        except (Conflict, Rejected) as error:
            return _answer(str(error), CODE_OTHER, status=409)
        except Unavailable as error:
            return _answer(str(error), CODE_OTHER, status=503)
        return _answer("the stream is held", CODE_OK, _held(held))

    async def release(params: dict[str, str]) -> Response:
        try:
            released = hold.release(params.get("token", ""))
        except Rejected as error:
            return _answer(str(error), CODE_OTHER, status=409)
        data = {"held_ms": round(released.held_s * 1000, 3), "valid": released.valid, "why": released.why}
        return _answer("the stream goes on", CODE_OK, data)

    routes.add("PUT", "/apply/hold", keep, guarded=True)
    routes.add("PUT", "/apply/release", release, guarded=True)


def _milliseconds(params: dict[str, str], name: str, default_s: float, max_s: float) -> float:
    """In seconds. Raises `ValueError`."""
    if name not in params:
        return default_s
    seconds = int(params[name]) / 1000
    if not 0 < seconds <= max_s:
        raise ValueError(f"{name} is from 1 to {max_s * 1000:.0f}")
    return seconds


def _held(held: Held) -> dict[str, Any]:
    hold_point = held.hold_point
    return {
        "token": held.token,
        "ts": hold_point.ts,
        "cluster_id": hold_point.cluster_id,
        "epoch": hold_point.epoch,
        "waiting": list(hold_point.waiting),
        "held_ms": round(held.held_s * 1000, 3),
    }


def _answer(message: str, code: int, data: Any = None, *, status: int = 200) -> Response:
    return json_response({"message": message, "code": code, "data": data}, indent=2, status=status)
