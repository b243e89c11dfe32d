"""Status: the HTTP routes of a pump.

    GET  /                          a page for people (`tidb_binlog.serving.status_page`)
    GET  /cluster                   all nodes for people (`tidb_binlog.serving.cluster_page`)
    GET  /status                    all pumps as the registry has them, a fresh timestamp, and this pump
    GET  /drainers                  all drainers as the registry has them
    PUT  /state/{node_id}/{action}  pause, close; close?force=true does not wait
    POST /debug/gc/trigger          purge what is old now
    GET  /debug/binlog/{ts}         one stored record: start_ts of a prewrite, else commit_ts (debug-routes)
    GET  /metrics

`/status` has the shape of the Go pump's with one key more, `pump`. It answers within two seconds whatever
the registry does, and with 200: this pump's own facts are right then too, and `ErrMsg` says what is missing.
Anyone may ask, so no timestamp is drawn for it: `CommitTS` is what `upstream_time` knows.

Texts are those of the Go pump, which answers 200 whatever happened. Here a refusal has a status of its own:
binlogctl reads neither status nor body, TiUP reads the status first, scripts either. `/debug/pprof` and
`/debug/vars` show Go's runtime and are not there.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

from pump import metrics as pump_metrics
from pump.membership.registration import Registration
from pump.pull.puller import Pullers
from pump.storage.storage import Storage
from pump.watermark.idle import IdleWatermark
from pump.watermark.stall_monitor import StallMonitor
from pump.write.admission import Disk
from tidb_binlog import binlog, time_text, tso, version
from tidb_binlog.clock import Clock
from tidb_binlog.cluster import node
from tidb_binlog.cluster.registry import Registry
from tidb_binlog.door.http.metrics_route import add_metrics_route
from tidb_binlog.door.http.routes import Response, Routes, json_response
from tidb_binlog.errors import BinlogError, Rejected
from tidb_binlog.status.codec import plain
from tidb_binlog.status.pump import (
    DiskStatus,
    LeavingStatus,
    PumpDocument,
    PumpStatus,
    RecentCommitsStatus,
    StreamsStatus,
)
from tidb_binlog.status.reload import ReloadStatus
from tidb_binlog.upstream.upstream_time import UpstreamTime

if TYPE_CHECKING:
    from pump.retention.purger import Purger


_ANSWER_S: Final = 2.0
_CODE_OK: Final = 200
_CODE_OTHER: Final = 3


class StatusRoutes:
    """What an operator sees. `leave` is called with `pause` or `close` and whether it is forced, and
    ends the process later. `leaving` says what a close waits for, None while the pump stays."""

    def __init__(
        self,
        storage: Storage,
        pullers: Pullers,
        registration: Registration,
        registry: Registry,
        time: UpstreamTime,
        clock: Clock,
        leave: Callable[[str, bool], Awaitable[None]],
        leaving: Callable[[], LeavingStatus | None],
        *,
        watch: StallMonitor,
        disk: Callable[[], Disk],
        idle: IdleWatermark,
        retention: Purger | None = None,
        cluster_id: int | None = None,
        configuration: Callable[[], ReloadStatus] = ReloadStatus,
    ) -> None:
        self._storage = storage
        self._pullers = pullers
        self._registration = registration
        self._registry = registry
        self._time = time
        self._clock = clock
        self._leave = leave
        self._leaving = leaving
        self._watch = watch
        self._disk = disk
        self._idle = idle
        self._retention = retention
        self._cluster_id = cluster_id
        self._configuration = configuration
        self._began_s = clock.monotonic_s()

    def add_routes(self, routes: Routes, *, debug: bool) -> None:
        """`debug`: serve what shows stored binlogs."""
        routes.add("GET", "/status", self._status)
        routes.add("GET", "/drainers", self._drainers)
        routes.add("PUT", "/state/{node_id}/{action}", self._state, guarded=True)
        routes.add("PUT", "/transactions/{start_ts}/{end}", self._decide, guarded=True)
        routes.add("POST", "/debug/gc/trigger", self._trigger_gc, guarded=True)
        routes.add("GET", "/debug/binlog/{ts}", self._binlog if debug else _debug_is_off, guarded=True)
        add_metrics_route(routes)

    def pump(self) -> PumpStatus:
        """This pump, from memory alone."""
        storage = self._storage
        oldest = self._watch.oldest()
        failure, disk = storage.write_failure, self._disk()
        time = self._time.facts()
        time.error = self._oracle_trouble or None
        return PumpStatus(
            version=version.release(),
            cluster_id=self._cluster_id,
            time_s=round(self._clock.wall_s(), 3),
            upstream_time=time,
            uptime_s=round(self._clock.monotonic_s() - self._began_s, 3),
            node_id=self._registration.node_id,
            state=self._registration.state,
            watermark=storage.watermark,
            open_prewrites=storage.open_count,
            oldest_open=oldest[0] if oldest else None,
            oldest=oldest,
            stages=self._watch.stages(),
            resolver=self._watch.resolver.facts(),
            index_lag_bytes=storage.index_lag_bytes,
            slow_chaser=storage.is_chasing,
            late=storage.late,
            index_error=None if storage.index_trouble is None else str(storage.index_trouble),
            writer="ok" if failure is None else "failed",
            writer_error=None if failure is None else str(failure),
            write_queue_bytes=storage.write_queue_bytes,
            gc_ts=storage.gc_ts,
            recent_commits=RecentCommitsStatus(bytes=storage.recent_bytes, floor=storage.recent_floor),
            streams=StreamsStatus(entity=self._pullers.old_streams, batch=self._pullers.new_streams),
            pullers=self._pullers.facts(),
            disk=DiskStatus(available=disk.available, floor=disk.floor),
            retention=None if self._retention is None else self._retention.facts(),
            leaving=self._leaving(),
            configuration=self._configuration(),
        )

    @property
    def _oracle_trouble(self) -> str:
        """Why no timestamp could be drawn at the last try; "" if one could."""
        return self._idle.trouble or self._time.trouble

    def bind_gauges(self) -> None:
        """Let the gauges read the state whenever they are scraped."""
        storage = self._storage
        self._watch.bind_gauges()

        def oldest_start_ms() -> float:
            oldest = next(storage.open_prewrites(), None)
            return 0.0 if oldest is None else float(oldest.start_ts >> 18)

        pump_metrics.MAX_COMMIT_TS.set_function(lambda: storage.watermark >> 18)
        pump_metrics.GC_TS.set_function(lambda: storage.gc_ts >> 18)
        pump_metrics.OPEN_PREWRITES.set_function(lambda: storage.open_count)
        pump_metrics.OLDEST_OPEN_START_TS.set_function(oldest_start_ms)
        pump_metrics.INDEX_LAG_BYTES.set_function(lambda: storage.index_lag_bytes)
        pump_metrics.CHASING.set_function(lambda: float(storage.is_chasing))
        pump_metrics.WRITE_QUEUE_BYTES.set_function(lambda: storage.write_queue_bytes)
        pump_metrics.WRITER_FAILED.set_function(lambda: float(storage.write_failure is not None))
        pump_metrics.RECENT_BYTES.set_function(lambda: storage.recent_bytes)

    def own(self) -> PumpDocument:
        """The document as far as this pump knows it by itself."""
        commit_ts = max(self._time.now_ts, self._storage.watermark)
        return PumpDocument(commit_ts=commit_ts, error=self._oracle_trouble, pump=self.pump())

    async def _status(self, _: dict[str, str]) -> Response:
        document = PumpDocument()
        try:
            async with asyncio.timeout(_ANSWER_S):
                view = await self._registry.view()
            document.status = {
                node_id: json.loads(entry.status.to_json()) for node_id, entry in view.pumps.items()
            }
            document.commit_ts = max(self._time.now_ts, self._storage.watermark)
            document.error = self._oracle_trouble
        except BinlogError as error:
            document.error = str(error)
        except TimeoutError:
            document.error = f"registry does not answer within {_ANSWER_S:g} s"
        document.pump = self.pump()
        return json_response(plain(document))

    async def _drainers(self, _: dict[str, str]) -> Response:
        try:
            async with asyncio.timeout(_ANSWER_S):
                view = await self._registry.view()
        except (BinlogError, TimeoutError) as error:
            why = str(error) or f"registry does not answer within {_ANSWER_S:g} s"
            return Response(503, f"{why}\n".encode())
        return json_response([json.loads(entry.status.to_json()) for entry in view.drainers.values()] or None)

    async def _state(self, params: dict[str, str]) -> Response:
        node_id, action = params["node_id"], params["action"]
        force = params.get("force") == "true"
        own, state = self._registration.node_id, self._registration.state
        if node_id != own:
            return _reply(404, f"invalide nodeID {node_id}, this pump's nodeID is {own}")
        # A close that waits already may be asked to wait no longer.
        if state != node.ONLINE and not (force and (action, state) == ("close", node.CLOSING)):
            return _reply(409, f"this pump's state is {state}, apply {action} failed!")
        if action not in ("pause", "close"):
            return _reply(400, f"invalide action {action}")
        try:
            await self._leave(action, force)
        except Rejected as error:
            return _reply(409, error.message)
        return _reply(200, f"apply action {action} success!")

    async def _decide(self, params: dict[str, str]) -> Response:
        """An operator says what became of a transaction: `rolled-back`, or its commit_ts."""
        start, end = params["start_ts"], "0" if params["end"] == "rolled-back" else params["end"]
        if not tso.is_number(start) or not tso.is_number(end):
            return _reply(400, f"{start}/{params['end']}: not a start_ts and rolled-back or a commit_ts")
        if not self._storage.is_open(int(start)):
            return _reply(404, f"transaction {start} is not open at this pump")
        try:
            if int(end) and int(end) > (now_ts := await self._time.draw()):
                raise Rejected(
                    f"{end} ({time_text.utc(int(end))}) cannot be its commit_ts: the upstream is at {now_ts}",
                    hint="what lies in the future would hide all that is committed until then",
                )
            await self._watch.resolver.decide(int(start), int(end))
        except BinlogError as error:
            return _reply(409, str(error))
        return _reply(200, f"transaction {start} is decided")

    async def _trigger_gc(self, _: dict[str, str]) -> Response:
        if self._retention is None:
            return Response(503, b"nothing is purged by this pump\n")
        return Response(200, b"trigger gc success\n" if self._retention.trigger() else b"gc is working\n")

    async def _binlog(self, params: dict[str, str]) -> Response:
        text = params["ts"]
        if not tso.is_number(text):
            return Response(400, f"invalid parameter ts: {text}\n".encode())
        try:
            payload = await self._storage.find(int(text))
            if payload is None:
                return Response(404, f"fail read binlog by ts: {text}: leveldb: not found\n".encode())
            message = binlog.parse(payload)
        except BinlogError as error:
            return Response(500, f"fail read binlog by ts: {text}: {error}\n".encode())
        # Rows stay out: a reader of a node's state need not be allowed to see data.
        lines = {
            "tp": message.tp,
            "start_ts": message.start_ts,
            "commit_ts": message.commit_ts,
            "ddl_job_id": message.ddl_job_id,
            "ddl_schema_state": message.ddl_schema_state,
            "ddl_query": message.ddl_query.decode(errors="replace"),
            "prewrite_key": message.prewrite_key.hex(),
            "prewrite_value_bytes": len(message.prewrite_value),
        }
        return Response(200, "".join(f"{key}: {value}\n" for key, value in lines.items()).encode())


async def _debug_is_off(_: dict[str, str]) -> Response:
    return Response(403, b"off: it shows what is stored; set debug-routes = true to have it\n")


def _reply(status: int, message: str) -> Response:
    code = _CODE_OK if status == 200 else _CODE_OTHER
    return json_response({"message": message, "code": code, "data": None}, indent=2, status=status)
