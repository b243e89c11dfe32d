"""`pump`: read the configuration, put the pump together, run, end with an exit code.

Start   lock the directory, listen (showing what is waited for), wait for etcd, open storage, register, notify
        the drainers, accept prewrites
Close   refuse prewrites, publish that, wait until every drainer has read everything, then stop
Reload  on SIGHUP, once the pump is up: see "Live options" below
Stop    refuse prewrites, publish paused (or, after a close, offline), end the streams, finish writes
        and index, close everything

Exit codes: 0 graceful stop; 1 wrong configuration; 2 start failed, an internal failure, or a damaged index
(the next start builds it anew); 3 a peer cannot be reached at start; 5 another process has this node id; 6
the value log is damaged; 8 a port is taken; 9 the directory is in use; 10 it belongs to another cluster.

Tests  tests/pump/test_process.py
"""

from __future__ import annotations

import asyncio
import functools
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import NoReturn

from pump.config import ENV_PREFIX, PumpConfig, read_environment
from pump.membership import score
from pump.membership.closing import Closing
from pump.membership.registration import Registration, check_new, place_of
from pump.pull.puller import Pullers
from pump.retention.age_clock import AgeClock
from pump.retention.purger import Purger, conditions
from pump.server import PumpServer, services_before_start
from pump.status import StatusRoutes
from pump.storage.data_dir import DataDir
from pump.storage.opening import StorageLimits
from pump.storage.storage import Storage
from pump.watermark.idle import IdleWatermark, write_fake_binlogs
from pump.watermark.resolve_schedule import ResolveSchedule
from pump.watermark.resolver import Resolver
from pump.watermark.stall_monitor import StallMonitor
from pump.watermark.trace_hold import TraceHold
from pump.write.disk_guard import DiskGuard
from tidb_binlog import mount, version
from tidb_binlog.clock import Clock, SystemClock, boot_s
from tidb_binlog.cluster import node
from tidb_binlog.cluster.registry import PUMPS, NodeEntry, Registry
from tidb_binlog.config import loading
from tidb_binlog.door.http.routes import Routes
from tidb_binlog.etcd.registry import connect_registry
from tidb_binlog.late_dataclass import dataclass, field
from tidb_binlog.net.tls import TlsConfig
from tidb_binlog.notify.notifier import Notifier
from tidb_binlog.observe import log, metrics_push
from tidb_binlog.observe.recent_events import Recorder
from tidb_binlog.process import daemon, process_identity
from tidb_binlog.serving import listener
from tidb_binlog.serving.listener import Listener
from tidb_binlog.serving.notify_options import notifying, tell_of
from tidb_binlog.serving.reload import Commit, Reload, add_logging
from tidb_binlog.serving.starting import Starting, add_health
from tidb_binlog.serving.status_page import StatusPage
from tidb_binlog.status.pump import PumpDocument
from tidb_binlog.status.pump_conditions import stopped_pump
from tidb_binlog.tso import Ts
from tidb_binlog.upstream import choice
from tidb_binlog.upstream.upstream_time import UpstreamTime
from tidb_binlog.upstream_port import Upstream

_FLUSH_DEADLINE_S = 20.0
_CALLS_END_S, _RELEASE_S = 2.0, 1.0

logger = log.get("pump")


@dataclass(slots=True)
class StartedParts:
    """What was opened, in order; closed in the reverse order, also when the start fails half way."""

    data_dir: DataDir | None = None
    listener: Listener | None = None
    upstream: Upstream | None = None
    registry: Registry | None = None
    storage: Storage | None = None
    server: PumpServer | None = None
    registration: Registration | None = None
    notifier: Notifier | None = None
    beating: asyncio.Task[None] | None = None
    hold: TraceHold | None = None
    holding: asyncio.Task[None] | None = None
    document: Callable[[], PumpDocument] | None = None
    log_readers: list[asyncio.Task[None]] = field(default_factory=list)
    """Tasks that read the log; they end before it is closed."""

    @property
    def state(self) -> str:
        return node.OFFLINE if self.registration is None else self.registration.state


async def close_all(opened: StartedParts) -> None:
    """Close what is open, the newest first."""
    if opened.listener is not None:
        await opened.listener.stop(_CALLS_END_S)
    for part in (opened.storage, opened.registry, opened.upstream):
        if part is not None:
            await part.close()
    if opened.data_dir is not None:
        opened.data_dir.close()


async def start(
    settings: PumpConfig, read: Callable[[], PumpConfig], recorder: Recorder, process: daemon.Daemon
) -> None:
    """Set everything up; the stop phases close what was opened, also when this fails. `read`: again."""
    clock = SystemClock()
    tls = settings.tls
    opened = StartedParts()
    opened.notifier = notifying(settings, "pump", settings.node_id or settings.default_node_id, process)
    stop_phases(process, opened)
    starting = Starting(settings.start_wait_s, clock, process.status)
    listener.check_free(settings)  # before anything is touched: this is the commonest mistake
    opened.data_dir = data_dir = DataDir(settings.data_dir)
    node_id, has_log = "", data_dir.has_log
    if data_dir.has_node_id:
        node_id, ignored = data_dir.node_id(settings.node_id, "")
        if ignored:
            logger.warning("node-id is ignored, the data directory has one", node_id=node_id)
    routes, page = first_routes(opened, starting, clock, recorder, tls)
    opened.listener = await listener.listen(settings, services_before_start(starting), routes)
    process.task("history", page.watch(settings.data_dir))
    opened.upstream = upstream = await starting.wait_for(
        lambda: choice.connect(choice.check_kind(settings.upstream), settings.endpoints, tls=tls)
    )
    data_dir.adopt_cluster(upstream.cluster_id)
    registry = await starting.wait_for(lambda: connect_registry(settings.endpoints, tls=tls))
    opened.registry = registry
    page.know(registry)
    time = UpstreamTime(upstream.oracle, clock)
    await starting.wait_for(time.draw)
    address = settings.address(opened.listener.port)
    if not node_id:
        pumps = (await starting.wait_for(registry.view)).pumps
        node_id, _ = data_dir.node_id(identity(settings, pumps, address, has_log=has_log), "")
    opened.storage = storage = await open_storage(
        settings, data_dir, clock, time.limit_ts, upstream.transactions.clients_know
    )
    idle = IdleWatermark(time, lambda: storage.watermark, storage.mark)
    pullers = Pullers(
        storage,
        idle,
        upstream.cluster_id,
        clock,
        time,
        streams_max=settings.pull_streams,
        connection_streams_max=settings.pull_streams_per_connection,
    )
    disk_guard = DiskGuard(settings.data_dir, settings.stop_write_at_bytes)
    await disk_guard.refresh()
    closing = Closing(storage, registry, upstream.oracle, clock, process.status)
    services = PumpServices(storage, upstream, registry, idle, pullers, disk_guard, closing, clock, time)
    opened.server = server = PumpServer(
        storage, pullers, disk_guard, upstream.cluster_id, lambda: opened.state, clock, time
    )
    opened.listener.offer(server.services())
    background = start_background(settings, process, opened, services, node_id)
    await register(settings, process, opened, services, starting, node_id, address)
    show_and_reload(settings, read, process, opened, services, background, routes, page)
    push = metrics_push.run(settings.metrics_addr, node_id, settings.metrics_interval_s)
    process.task("metrics-push", push)
    daemon.settle()
    process.ready(f"online as {node_id}")
    logger.info(
        "pump is up",
        node_id=node_id,
        addr=settings.listen,
        port=opened.listener.port,
        cluster_id=upstream.cluster_id,
        watermark=storage.watermark,
    )


def identity(settings: PumpConfig, pumps: Mapping[str, NodeEntry], address: str, *, has_log: bool) -> str:
    """Node id of a pump whose directory has none. Raises what `place_of` and `check_new` raise."""
    node_id = settings.node_id or settings.default_node_id
    place = None if settings.node_id else place_of(pumps, address, node_id, has_log=has_log)
    if place is not None:
        logger.warning("taking the place of the pump that is registered at this address", node_id=place)
        return place
    if not has_log:
        check_new(pumps, node_id, settings.data_dir)
    return node_id


def first_routes(
    opened: StartedParts, starting: Starting, clock: Clock, recorder: Recorder, tls: TlsConfig | None
) -> tuple[Routes, StatusPage]:
    """What a pump answers from its first moment on."""
    routes = Routes()
    add_health(routes, lambda: unready(opened, starting))
    starting.add_status(routes)
    return routes, StatusPage(PUMPS, routes, starting, clock, recorder, tls)


async def open_storage(
    settings: PumpConfig, data_dir: DataDir, clock: Clock, limit_ts: Ts, clients_know: bool
) -> Storage:
    """What is stored, ready for more of it."""
    limits = StorageLimits(
        write_queue_bytes_max=settings.write_queue_bytes,
        index_queue_bytes_max=settings.index_queue_bytes,
        recent_bytes_max=settings.recent_bytes,
        segment_bytes_max=settings.segment_bytes,
    )
    return await Storage.open(
        data_dir,
        clock=clock,
        limits=limits,
        sync=settings.sync_log,
        accept_loss=settings.accept_loss,
        index_backend=settings.index_backend,
        write_buffer_bytes=settings.write_buffer_bytes,
        cache_bytes=settings.cache_bytes,
        limit_ts=limit_ts,
        clients_know=clients_know,
    )


@dataclass(frozen=True, slots=True)
class PumpServices:
    """What a running pump is made of."""

    storage: Storage
    upstream: Upstream
    registry: Registry
    idle: IdleWatermark
    pullers: Pullers
    disk_guard: DiskGuard
    closing: Closing
    clock: Clock
    time: UpstreamTime


async def register(
    settings: PumpConfig,
    process: daemon.Daemon,
    opened: StartedParts,
    services: PumpServices,
    starting: Starting,
    node_id: str,
    address: str,
) -> None:
    """From services that run to a pump that every drainer knows and that accepts prewrites."""
    assert opened.data_dir is not None
    opened.registration = registration = Registration(
        services.registry,
        services.time,
        node_id,
        address,
        watermark=lambda: services.storage.watermark,
        last_commit_ts=lambda: services.closing.last_commit_ts,
        heartbeat_s=settings.heartbeat_interval_s,
        clock=services.clock,
        tls=settings.tls,
        confirmation=opened.data_dir,
        labels=settings.labels,
        score=score.of_pump(services.storage, lambda: services.disk_guard.disk, services.clock),
    )
    await starting.wait_for(registration.register)
    opened.beating = process.task("heartbeat", registration.run())
    await registration.go_online(starting.waits)


@dataclass(frozen=True, slots=True)
class Background:
    """Tasks beside the services, as far as /status shows them."""

    watch: StallMonitor
    purger: Purger


def start_background(
    settings: PumpConfig, process: daemon.Daemon, opened: StartedParts, services: PumpServices, node_id: str
) -> Background:
    """Start the tasks that serve no call."""
    storage, pullers, idle, closing = services.storage, services.pullers, services.idle, services.closing
    storage.on_committed = idle.given
    resolver = Resolver(
        storage,
        services.upstream.transactions,
        ResolveSchedule(waited_after_s=settings.resolve_after_s),
        services.clock,
        lambda: idle.is_awaited or closing.waits_for_prewrites,
    )
    marks = write_fake_binlogs(
        storage,
        services.time,
        lambda: pullers.old_streams > 0 or pullers.new_streams == 0,
        settings.gen_binlog_interval_s,
    )
    process.task("indexer", storage.run())
    process.task("disk-guard", services.disk_guard.run())
    process.task("upstream-time", services.time.run())
    process.task("idle-watermark", idle.run())
    process.task("fake-binlog", marks)
    process.task("pull-places", pullers.keep_places(services.registry.view))
    opened.hold = hold = TraceHold(services.upstream.garbage, node_id, storage, services.time)
    opened.holding = process.task("trace-hold", hold.run())
    watch = StallMonitor(storage, resolver, services.clock)
    data_dir = opened.data_dir
    assert data_dir is not None
    purger = Purger(
        storage,
        services.upstream.oracle,
        services.registry,
        services.disk_guard.free_bytes,
        settings.retention_policy,
        services.clock,
        ages=AgeClock(data_dir.age_anchor, process_identity.boot()),
        keep_anchor=data_dir.keep_age_anchor,
        boot_s=boot_s,
    )
    opened.log_readers += [
        process.task("resolver", resolver.run()),
        process.task("watch", watch.run()),
        process.task("retention", purger.run()),
    ]
    return Background(watch, purger)


def unready(opened: StartedParts, starting: Starting) -> str:
    """Why this pump takes no prewrites; "" if it does."""
    if opened.document is not None and (stopped := stopped_pump(opened.document())):
        return stopped
    if opened.state == node.OFFLINE:
        return starting.reason
    return "" if opened.state == node.ONLINE else opened.state


def add_routes(
    settings: PumpConfig,
    process: daemon.Daemon,
    services: PumpServices,
    registration: Registration,
    routes: Routes,
    background: Background,
    reload: Reload[PumpConfig],
) -> Callable[[], PumpDocument]:
    """The HTTP routes of a pump that is up; what it says of itself."""
    closing = services.closing

    async def close() -> None:
        await closing.run()
        await registration.retire()
        process.stop()

    async def leave(event: str, force: bool) -> None:
        if event == "close" and force and registration.state == node.CLOSING:
            closing.force()
            return
        if event == "close" and not force and registration.state == node.ONLINE:
            await closing.check()
        await registration.begin_leaving(event)
        if event == "close":
            if force:
                closing.force()
            process.task("closing", close())
        else:
            asyncio.get_running_loop().call_soon(process.stop)

    status = StatusRoutes(
        services.storage,
        services.pullers,
        registration,
        services.registry,
        services.time,
        services.clock,
        leave,
        closing.facts,
        watch=background.watch,
        retention=background.purger,
        disk=lambda: services.disk_guard.disk,
        idle=services.idle,
        cluster_id=services.upstream.cluster_id,
        configuration=lambda: reload.status,
    )
    status.bind_gauges()
    status.add_routes(routes, debug=settings.debug_routes)
    return status.own


def show_and_reload(
    settings: PumpConfig,
    read: Callable[[], PumpConfig],
    process: daemon.Daemon,
    opened: StartedParts,
    services: PumpServices,
    background: Background,
    routes: Routes,
    page: StatusPage,
) -> None:
    """What operators see and change: a pump whose /status answers is registered and known to the drainers."""
    assert opened.registration is not None
    assert opened.listener is not None
    reload = Reload(settings, read, services.clock)
    opened.document = add_routes(settings, process, services, opened.registration, routes, background, reload)
    page.show(opened.document)
    take_reloads(reload, opened.listener, background.purger, services.disk_guard, services.pullers)
    process.on_reload(reload.on_signal)
    tell_of(opened.notifier, opened.registration.node_id, lambda: conditions(background.purger.facts()))


def stop_phases(process: daemon.Daemon, opened: StartedParts) -> None:
    """What to do at the end, as far as the start had come."""

    async def leave_registry() -> None:
        if opened.beating is not None:
            opened.beating.cancel()
        if opened.hold is not None and opened.holding is not None:
            opened.holding.cancel()
            with suppress(TimeoutError):
                async with asyncio.timeout(_RELEASE_S):
                    await opened.hold.leave()
        if opened.registration is not None:
            await opened.registration.leave()

    async def end_streams() -> None:
        for task in opened.log_readers:
            task.cancel()
        if opened.server is not None:
            opened.server.end_streams()

    process.on_stop("leave", leave_registry, 6.0)
    process.on_stop("streams", end_streams, 1.0)
    process.on_stop("close", functools.partial(close_all, opened), _FLUSH_DEADLINE_S)


async def run(argv: list[str]) -> int:
    def read(*, again: bool = True) -> PumpConfig:
        environ = read_environment()
        return loading.load(PumpConfig, argv, environ, program="pump", env_prefix=ENV_PREFIX, again=again)

    settings = read(again=False)
    os.umask(0o077)  # LevelDB gives its files no mode of their own, and rows are in them
    remarks = mount.check_local("data-dir", settings.data_dir, mount.on_path(settings.data_dir))
    log.setup(settings.log_level, settings.log_file, settings.log_format)
    with Recorder() as recorder:
        logger.info("Welcome to Pump", **version.fields())
        for remark in (*settings.remarks(), *remarks):
            logger.warning(remark)
        logger.info("start pump...", config=loading.describe(settings))
        process = daemon.Daemon("pump", logger, reloads=True)
        return await process.run(functools.partial(start, settings, read, recorder))


def main() -> NoReturn:
    daemon.main("pump", run)


# Live options: how a reload changes a running pump. All others are named, and need a restart.

RETENTION_FIELDS = (
    "gc_s",
    "retention_bytes",
    "retention_free_bytes",
    "retention_protects",
    "retention_alarm_s",
)


def take_reloads(
    reload: Reload[PumpConfig],
    listener: Listener,
    purger: Purger,
    disk_guard: DiskGuard,
    pullers: Pullers,
) -> None:
    """Put in place what a reload brings, from now on."""

    def retention(fresh: PumpConfig) -> Commit:
        policy = fresh.retention_policy
        return lambda: purger.change_policy(policy)

    def floor(fresh: PumpConfig) -> Commit:
        return lambda: disk_guard.change_floor(fresh.stop_write_at_bytes)

    def streams(fresh: PumpConfig) -> Commit:
        return lambda: pullers.change_limits(fresh.pull_streams, fresh.pull_streams_per_connection)

    add_logging(reload)
    listener.take_reloads(reload)
    reload.add(RETENTION_FIELDS, retention)
    reload.add(["stop_write_at_bytes"], floor)
    reload.add(["pull_streams", "pull_streams_per_connection"], streams)
