"""`pump`: read the configuration, put the rooms together, run, end with an exit code.

Start   lock the directory, connect the upstream, open storage (everything stored is sorted by then), listen,
        register, tell the drainers, accept prewrites
Stop    refuse prewrites, end the pull streams, finish writes and index, say paused (or offline) in the
        registry, close

Exit codes: 0 graceful stop; 1 wrong configuration; 2 start failed, or an internal failure; 3 a peer cannot
be reached at start; 5 another process has this node id; 6 the value log is damaged; 8 a port is taken; 9 the
directory is in use; 10 it belongs to another cluster.
"""

from __future__ import annotations

import asyncio
import functools
from dataclasses import dataclass
from typing import NoReturn

from common import config, daemon, etcd, health, listener, log, node, version
from common.clock import Clock, SystemClock
from common.door import Routes
from common.errors import Unavailable
from common.listener import Listener
from common.port import split_address
from common.registry import Registry
from common.tls import TlsConfig
from common.upstream import Upstream
from common.upstream.standalone import StandaloneUpstream
from pump import fake_binlog
from pump.config import ENV_PREFIX, PumpConfig, read_environment
from pump.data_dir import DataDir
from pump.disk_guard import DiskGuard
from pump.idle_watermark import IdleWatermark
from pump.presence import Presence
from pump.puller import Pullers
from pump.resolve_schedule import ResolveSchedule
from pump.resolver import Resolver
from pump.server import PumpServer
from pump.status import StatusRoutes
from pump.storage import Limits, Storage

_FLUSH_DEADLINE_S = 20.0
_CALLS_END_S = 2.0

logger = log.get("pump")


@dataclass(slots=True)
class Opened:
    """What was opened, in order; closed in the reverse order, also when the start fails half way."""

    data_dir: DataDir | None = None
    upstream: Upstream | None = None
    registry: Registry | None = None
    storage: Storage | None = None
    listener: Listener | None = None


async def open_all(settings: PumpConfig, opened: Opened, tls: TlsConfig | None, clock: Clock) -> str:
    """Directory, upstream, registry, storage; returns the node id."""
    opened.data_dir = data_dir = DataDir(settings.data_dir)
    node_id, ignored = data_dir.node_id(settings.node_id, settings.default_node_id)
    if ignored:
        logger.warning("node-id is ignored, the data directory has one", node_id=node_id)
    opened.upstream = upstream = await StandaloneUpstream.connect(settings.endpoints, tls=tls)
    data_dir.adopt_cluster(upstream.cluster_id)
    opened.registry = await etcd.connect(settings.endpoints, tls=tls)
    limits = Limits(
        write_queue_bytes_max=settings.write_queue_bytes,
        index_queue_bytes_max=settings.index_queue_bytes,
        recent_bytes_max=settings.recent_bytes,
        segment_bytes_max=settings.segment_bytes,
    )
    opened.storage = await Storage.open(
        data_dir,
        clock=clock,
        limits=limits,
        sync=settings.sync_log,
        loss_accepted=settings.loss_accepted,
        write_buffer_bytes=settings.write_buffer_bytes,
        cache_bytes=settings.cache_bytes,
    )
    return node_id


async def close_all(opened: Opened) -> None:
    """Close what is open, the newest first."""
    if opened.listener is not None:
        await opened.listener.stop(_CALLS_END_S)
    if opened.storage is not None:
        await opened.storage.close()
        opened.storage = None
    if opened.registry is not None:
        await opened.registry.close()
    if opened.upstream is not None:
        await opened.upstream.close()
    if opened.data_dir is not None:
        opened.data_dir.close()


async def start(settings: PumpConfig, process: daemon.Daemon) -> None:
    """Set everything up; on failure what was opened is closed by the last stop phase."""
    clock = SystemClock()
    tls = settings.tls
    opened = Opened()
    listener.check_free(settings)  # before anything is touched: this is the commonest mistake
    try:
        node_id = await open_all(settings, opened, tls, clock)
        await serve(settings, process, opened, node_id, tls, clock)
    except BaseException:
        await close_all(opened)
        raise


@dataclass(frozen=True, slots=True)
class Rooms:
    """The rooms of a running pump."""

    storage: Storage
    upstream: Upstream
    registry: Registry
    idle: IdleWatermark
    pullers: Pullers
    disk_guard: DiskGuard
    clock: Clock


async def serve(
    settings: PumpConfig,
    process: daemon.Daemon,
    opened: Opened,
    node_id: str,
    tls: TlsConfig | None,
    clock: Clock,
) -> None:
    """From open storage to a pump that accepts prewrites."""
    storage, upstream, registry = opened.storage, opened.upstream, opened.registry
    assert storage is not None
    assert upstream is not None
    assert registry is not None
    idle = IdleWatermark(upstream.oracle, lambda: storage.watermark, storage.mark)
    pullers = Pullers(storage, idle, upstream.cluster_id)
    disk_guard = DiskGuard(settings.data_dir, settings.stop_write_at_bytes)
    await disk_guard.look()
    rooms = Rooms(storage, upstream, registry, idle, pullers, disk_guard, clock)

    state: list[Presence] = []  # filled below: the real port belongs into the registry entry
    server = PumpServer(
        storage,
        pullers,
        disk_guard,
        upstream.cluster_id,
        lambda: state[0].state if state else node.OFFLINE,
        clock,
    )
    routes = Routes()
    health.add_health(routes, lambda: unready(storage, state))
    opened.listener = await listener.listen(settings, server.services(), routes)
    advertised_host, advertised_port = split_address("advertise-addr", settings.advertised)
    presence = Presence(
        registry,
        node_id,
        f"{advertised_host}:{advertised_port or opened.listener.port}",
        watermark=lambda: storage.watermark,
        heartbeat_s=settings.heartbeat_interval_s,
        clock=clock,
        tls=tls,
    )
    state.append(presence)
    start_rooms(settings, process, rooms)
    await presence.enter(await upstream.oracle.timestamp())
    # Whoever sees /status answer may count on this pump: it is registered and known to the drainers.
    add_routes(settings, process, rooms, presence, routes)
    stop_phases(process, opened, presence, pullers)
    daemon.settle()
    logger.info(
        "pump is up",
        node_id=node_id,
        addr=settings.listen,
        port=opened.listener.port,
        cluster_id=upstream.cluster_id,
        watermark=storage.watermark,
    )


def start_rooms(settings: PumpConfig, process: daemon.Daemon, rooms: Rooms) -> None:
    """The tasks behind the services."""
    storage, pullers, idle = rooms.storage, rooms.pullers, rooms.idle
    resolver = Resolver(
        storage,
        rooms.upstream.transactions,
        ResolveSchedule(waited_after_s=settings.resolve_after_s),
        rooms.clock,
        lambda: idle.somebody_waits,
    )
    marks = fake_binlog.run(
        storage,
        rooms.upstream.oracle,
        lambda: pullers.old_streams > 0 or pullers.new_streams == 0,
        settings.gen_binlog_interval_s,
    )
    process.task("indexer", storage.run())
    process.task("disk-guard", rooms.disk_guard.run())
    process.task("idle-watermark", idle.run())
    process.task("resolver", resolver.run())
    process.task("fake-binlog", marks)


def unready(storage: Storage, state: list[Presence]) -> str:
    """Why this pump takes no prewrites; "" if it does."""
    if storage.write_failure is not None:
        return str(storage.write_failure)
    if not state or state[0].state != node.ONLINE:
        return state[0].state if state else health.STARTING
    return ""


def add_routes(
    settings: PumpConfig, process: daemon.Daemon, rooms: Rooms, presence: Presence, routes: Routes
) -> None:
    """The HTTP routes of a pump that is up."""

    async def leave(event: str) -> None:
        await presence.begin_leaving(event)
        asyncio.get_running_loop().call_soon(process.stop)

    status = StatusRoutes(
        rooms.storage, rooms.pullers, presence, rooms.registry, rooms.upstream.oracle, rooms.clock, leave
    )
    status.bind_gauges()
    status.add_routes(routes, debug=settings.debug_routes)


def stop_phases(process: daemon.Daemon, opened: Opened, presence: Presence, pullers: Pullers) -> None:
    """Beat from now on, and what to do at the end."""
    beating = process.task("heartbeat", presence.run())

    async def leave_registry() -> None:
        beating.cancel()
        try:
            await presence.leave()
        except Unavailable as error:
            logger.warning("the registry does not hear that this pump leaves", error=error)

    async def end_streams() -> None:
        pullers.end()

    process.on_stop("leave", leave_registry, 6.0)
    process.on_stop("streams", end_streams, 1.0)
    process.on_stop("close", functools.partial(close_all, opened), _FLUSH_DEADLINE_S)


async def run(argv: list[str]) -> int:
    settings = config.load(PumpConfig, argv, read_environment(), program="pump", env_prefix=ENV_PREFIX)
    log.setup(settings.log_level, settings.log_file, settings.log_format)
    logger.info("Welcome to Pump", **version.fields())
    logger.info("start pump...", config=config.describe(settings))
    return await daemon.Daemon("pump", logger).run(functools.partial(start, settings))


def main() -> NoReturn:
    daemon.main("pump", run)


if __name__ == "__main__":
    main()
