"""`drainer`: read the configuration, put the rooms together, run, end with an exit code.

Exit codes: 0 graceful stop; 1 wrong configuration; 2 internal failure or wrong flag; 3 a peer cannot be
reached at start; 4 refused; 5 another drainer took over; 6 damaged or inconsistent binlogs; 7 the downstream
refused a login or a statement; 8 a port is taken.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import sys
from pathlib import Path
from typing import NoReturn

from common import config, daemon, etcd, health, listener, log, metrics_push, node, registry, tso
from common.clock import SystemClock
from common.door import Routes
from common.errors import ConfigError, Unavailable
from common.heartbeat import Heartbeat
from common.node import NodeStatus
from common.upstream.standalone import StandaloneUpstream
from drainer.applier import Applier
from drainer.assembly import build
from drainer.collector import Collector
from drainer.config import ENV_PREFIX, DrainerConfig
from drainer.server import NodeState, add_routes, notify_service
from drainer.status import Status

logger = log.get("drainer")

STOP_DEADLINE_S = 10.0


class Process:
    """One drainer process: set-up and end in order.

    Its port and its name in the registry come first: a second process with the same name or port is
    refused before it could fence off the first one.
    """

    def __init__(self, settings: DrainerConfig, process: daemon.Daemon) -> None:
        self._settings = settings
        self._process = process
        self._clock = SystemClock()
        self._state = NodeState(settings.name, node.ONLINE)
        self._collector: asyncio.Future[Collector] = asyncio.get_running_loop().create_future()
        self._applier: Applier | None = None
        self._stored_ts = 0

    async def start(self) -> None:
        settings, process = self._settings, self._process
        process.on_stop("drain", self._drain, STOP_DEADLINE_S + 5)
        ends = contextlib.AsyncExitStack()
        process.on_stop("close", ends.aclose, 10)
        tls = settings.tls
        listener.check_free(settings)
        upstream = await StandaloneUpstream.connect(settings.pd_urls, tls=tls)
        ends.push_async_callback(upstream.close)
        nodes = await etcd.connect(settings.pd_urls, tls=tls)
        ends.push_async_callback(nodes.close)
        routes = Routes()
        health.add_health(routes, self._unready)
        server = await listener.listen(settings, [notify_service(self._notify)], routes)
        ends.push_async_callback(server.stop, 1.0)
        self._heartbeat = Heartbeat(
            nodes, registry.DRAINERS, self._entry, settings.heartbeat_interval_s, self._clock
        )
        known = (await nodes.view()).drainers.get(settings.name)
        self._stored_ts = known.status.max_commit_ts if known else 0
        await self._heartbeat.register(node.ONLINE)
        ends.push_async_callback(self._leave)
        self._beating = process.task("heartbeat", self._heartbeat.run())

        self._applier, collector = await build(settings, upstream, nodes, tls, ends)
        status = Status(self._applier, collector, self._state, self._clock, settings.synced_check_time * 60.0)
        add_routes(routes, status, self._state, process.stop)
        self._collector.set_result(collector)
        process.task("collector", collector.run())
        process.task("lanes", self._applier.watch())
        process.task("applier", self._applier.run(collector.batches()))
        process.task("checkpoint", self._applier.keep_checkpoint())
        process.task("status", status.run())
        process.task(
            "metrics-push",
            metrics_push.run(settings.metrics_addr, settings.name, settings.metrics_interval_s),
        )
        daemon.settle()
        process.ready(f"online as {settings.name}")
        logger.info("drainer is up", node_id=settings.name, addr=settings.addr, port=server.port)

    def _unready(self) -> str:
        if self._applier is None:
            return health.STARTING
        return "" if self._state.state == node.ONLINE else self._state.state

    async def _notify(self) -> None:
        await (await asyncio.shield(self._collector)).notify()

    def _entry(self) -> NodeStatus:
        settings = self._settings
        stored_ts = self._applier.stored_ts if self._applier else self._stored_ts
        now_ts = tso.from_wall_s(self._clock.wall_s())
        return NodeStatus(settings.name, settings.advertised, self._state.state, stored_ts, now_ts)

    async def _drain(self) -> None:
        if self._applier is None:
            return
        if self._state.state != node.ONLINE:
            with contextlib.suppress(Unavailable):
                await self._heartbeat.change_state(self._state.state)
        await self._applier.stop(STOP_DEADLINE_S)

    async def _leave(self) -> None:
        """The last state is shown after the lanes are drained, not before."""
        self._beating.cancel()
        self._state.apply("stop")
        with contextlib.suppress(Unavailable):
            await self._heartbeat.leave(self._state.state)


async def serve(settings: DrainerConfig, process: daemon.Daemon) -> None:
    await Process(settings, process).start()


def make_data_dir(path: str) -> None:
    try:
        Path(path).mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"data directory {path} cannot be made: {error.strerror}", hint="choose another --data-dir"
        ) from None


async def run(argv: list[str]) -> int:
    settings = config.load(DrainerConfig, argv, os.environ, program="drainer", env_prefix=ENV_PREFIX)
    log.setup(settings.log_level, settings.log_file, settings.log_format)
    make_data_dir(settings.data_dir)
    logger.info(
        "drainer starts", **{key: value for key, value in config.describe(settings).items() if value != ""}
    )
    process = daemon.Daemon("drainer", logger)
    return await process.run(functools.partial(serve, settings))


def main() -> NoReturn:
    daemon.main("drainer", run)


if __name__ == "__main__":
    sys.exit(main())
