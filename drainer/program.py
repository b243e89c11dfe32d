"""`drainer`: read the configuration, build the pipeline, run, end with an exit code.

Start   the port, the peers, the name in the registry (a standby waits here for its turn), and last the
        checkpoint: a second process with the same name or port is refused before it could fence off the first
Reload  on SIGHUP, from the first moment on: `tidb_binlog.serving.reload`; rules at a drained point of the
        stream
Stop    rows that were begun are committed, the checkpoint is stored, then the registry shows the last state

Exit codes: see `drainer.config.options.EXIT_CODES`, which `-h` shows.

Tests  tests/integration/test_drainer_process.py
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import sys
from collections.abc import Callable
from typing import IO, NoReturn

from drainer.app.build import BuildContext, build, rehearse
from drainer.app.operations import Operating
from drainer.app.pipeline import Built, Pipeline
from drainer.app.start_wait import Summary, reach
from drainer.config.options import ENV_PREFIX, DrainerConfig
from drainer.operate.control.http import notify_service
from drainer.operate.control.standby import TOLD_TO_LEAVE, lease_s
from drainer.stream.rules.rule_set import read_rules
from drainer.stream.schema.upstream_schema import CheckpointHold
from tidb_binlog.clock import SystemClock
from tidb_binlog.cluster import node, registry
from tidb_binlog.cluster.heartbeat import Heartbeat
from tidb_binlog.cluster.node import NodeStatus
from tidb_binlog.config import loading
from tidb_binlog.door.http.routes import Routes
from tidb_binlog.errors import Unavailable
from tidb_binlog.etcd.registry import connect_registry
from tidb_binlog.filesystem import make_directory, unusable
from tidb_binlog.observe import log, metrics_push, trace
from tidb_binlog.observe.recent_events import Recorder
from tidb_binlog.process import daemon
from tidb_binlog.serving import listener
from tidb_binlog.serving.notify_options import notifying
from tidb_binlog.serving.reload import add_logging
from tidb_binlog.serving.starting import Starting
from tidb_binlog.serving.status_page import StatusPage
from tidb_binlog.upstream import choice
from tidb_binlog.upstream.upstream_time import UpstreamTime
from tidb_binlog.upstream_port import Upstream

logger = log.get("drainer")

STOP_DEADLINE_S = 10.0


class Process:
    """One drainer process: set-up and end in order. `read` loads the configuration again."""

    def __init__(
        self,
        settings: DrainerConfig,
        process: daemon.Daemon,
        read: Callable[[], DrainerConfig],
        recorder: Recorder,
    ) -> None:
        self._settings = settings
        self._process = process
        self._clock = SystemClock()
        self._routes = Routes()
        self._starting = Starting(settings.start_wait_s, self._clock, process.status)
        self._operating = Operating(
            settings, read, process, self._routes, self._clock, settings.tls, self._starting
        )
        self._page = StatusPage(
            registry.DRAINERS, self._routes, self._starting, self._clock, recorder, settings.tls
        )
        self._page.show(self._operating.document)
        self._state = self._operating.state
        self._pipeline: asyncio.Future[Pipeline] = asyncio.get_running_loop().create_future()
        self._stored_ts = 0

    async def start(self) -> None:
        settings, process = self._settings, self._process
        process.on_stop("drain", self._drain, STOP_DEADLINE_S + 5)
        ends = contextlib.AsyncExitStack()
        process.on_stop("close", ends.aclose, 10)
        tls = settings.tls
        reload = self._operating.reload
        notifier = notifying(settings, "drainer", settings.name, process)
        if notifier is not None:
            self._operating.notify(notifier)
        add_logging(reload, log_stream(settings))
        process.on_reload(reload.on_signal)
        listener.check_free(settings)
        server = await listener.listen(settings, [notify_service(self._notify)], self._routes)
        ends.push_async_callback(server.stop, 1.0)
        process.task("history", self._page.watch(settings.relay_log_dir or settings.data_dir))
        server.take_reloads(reload)
        upstream = await self._reach_upstream()
        ends.push_async_callback(upstream.close)
        self._time = time = UpstreamTime(upstream.oracle, self._clock)
        await self._starting.wait_for(time.draw)
        process.task("upstream-time", time.run())
        self._operating.know_time(time)
        nodes = await self._starting.wait_for(lambda: connect_registry(settings.pd_urls, tls=tls))
        ends.push_async_callback(nodes.close)
        self._page.know(nodes)
        if settings.load and settings.to_database:
            from drainer.app.first_load import load_first  # once in a drainer's life

            await load_first(settings, upstream, nodes, self._starting, self._page)
        self._heartbeat = Heartbeat(
            nodes,
            registry.DRAINERS,
            self._entry,
            settings.heartbeat_interval_s,
            self._clock,
            lease_s=lease_s(settings.heartbeat_interval_s),
            on_left=self._know_left,
        )
        await self._operating.take_name(
            nodes, self._heartbeat, functools.partial(rehearse, settings, upstream)
        )
        ends.push_async_callback(self._leave)
        self._beating = process.task("heartbeat", self._heartbeat.run())

        pipeline = Pipeline(
            process,
            self._operating,
            self._heartbeat,
            functools.partial(self._build, upstream, nodes),
            self._clock,
            cluster_id=upstream.cluster_id,
            stored_ts=self._stored_ts,
        )
        ends.push_async_callback(pipeline.close)
        await pipeline.start()
        self._pipeline.set_result(pipeline)
        if settings.load_schema_snapshot:
            hold = CheckpointHold(upstream.garbage, lambda: pipeline.stored_ts, time)
            process.task("garbage-hold", hold.run())
            ends.push_async_callback(self._let_go, hold)
        if settings.verify_every_s:
            self._verify_periodically()
        process.task(
            "metrics-push",
            metrics_push.run(settings.metrics_addr, settings.name, settings.metrics_interval_s),
        )
        daemon.settle()
        process.ready(f"online as {settings.name}")
        logger.info("drainer is up", node_id=settings.name, addr=settings.addr, port=server.port)

    async def _build(
        self, upstream: Upstream, nodes: registry.Registry, ends: contextlib.AsyncExitStack, again: bool
    ) -> Built:
        async with self._operating.reload.kept_out() as settings:
            # A server that has nothing is not the one that an earlier life has written to. Of one address it
            # may be emptied: where to begin is to be said then.
            is_told = settings.initial_commit_ts != -1 and not settings.has_several_downstreams
            again = again or (self._stored_ts > 0 and not is_told)
            context = BuildContext(settings, upstream, nodes, ends, self._operating, again=again)
            return await build(context, self._settings.tls, self._unbroken)

    def _verify_periodically(self) -> None:
        from drainer.app.periodic_verify import PeriodicVerify  # only for who wants it
        from drainer.config.downstream import at_place_in_use

        operating = self._operating
        verify = PeriodicVerify(
            lambda: at_place_in_use(operating.reload.settings),
            operating.control.hold,
            self._clock,
            operating.behind_s,
        )
        operating.verify = lambda: verify.status
        self._process.task("verify", verify.run())

    async def _reach_upstream(self) -> Upstream:
        settings = self._settings

        async def connect() -> Upstream:
            kind = choice.check_kind(settings.upstream)
            return await choice.connect(kind, settings.pd_urls, tls=settings.tls)

        recovers = settings.relay_log_dir and settings.to_database and not settings.standby
        return await reach(connect, self._recover if recovers else None, self._starting)

    async def _recover(self) -> Summary:
        from drainer.app import relay_setup  # a client of databases, which other sinks do not need

        return await relay_setup.recover(self._settings, self._operating.findings)

    async def _notify(self) -> None:
        await (await asyncio.shield(self._pipeline)).notify()

    def _unbroken(self) -> int | None:
        return self._heartbeat.unbroken

    def _know_left(self, left: NodeStatus) -> None:
        """As of now, however long this process stood by: pumps take a drainer whose checkpoint is lower than
        what they have purged for lost, and keep nothing for it."""
        self._stored_ts = left.max_commit_ts

    def _entry(self) -> NodeStatus:
        settings = self._settings
        stored_ts = self._pipeline.result().stored_ts if self._pipeline.done() else self._stored_ts
        now_ts = self._time.now_ts
        label = TOLD_TO_LEAVE if self._state.told_to_leave else None
        return NodeStatus(
            settings.name, settings.advertised, self._state.state, stored_ts, now_ts, label=label
        )

    async def _drain(self) -> None:
        if not self._pipeline.done():
            return
        if self._state.state != node.ONLINE:
            with contextlib.suppress(Unavailable):
                await self._heartbeat.change_state(self._state.state)
        await self._pipeline.result().drain(STOP_DEADLINE_S)

    async def _let_go(self, hold: CheckpointHold) -> None:
        """A drainer that only stops comes back, and finds the schema at the checkpoint still held."""
        if self._state.state == node.CLOSING:
            await hold.release()

    async def _leave(self) -> None:
        """The last state is shown after the lanes are drained, not before."""
        self._beating.cancel()
        self._state.apply("stop")
        with contextlib.suppress(Unavailable):
            await self._heartbeat.leave(self._state.state)


async def serve(
    settings: DrainerConfig, read: Callable[[], DrainerConfig], recorder: Recorder, process: daemon.Daemon
) -> None:
    await Process(settings, process, read, recorder).start()


def make_data_dir(path: str) -> None:
    try:
        make_directory(path, 0o700)
    except OSError as error:
        raise unusable(f"data directory {path} cannot be made", error, "choose another --data-dir") from None


def log_stream(settings: DrainerConfig) -> IO[str] | None:
    """Where the log goes without a file: standard output may be the rows'."""
    return sys.stderr if settings.to_stdout else None


async def run(argv: list[str]) -> int:
    def read(*, again: bool = True) -> DrainerConfig:
        return loading.load(
            DrainerConfig, argv, os.environ, program="drainer", env_prefix=ENV_PREFIX, again=again
        )

    settings = read(again=False)
    read_rules(settings)  # a rule that cannot be right is refused before any server is asked
    log.setup(settings.log_level, settings.log_file, settings.log_format, stream=log_stream(settings))
    make_data_dir(settings.data_dir)
    logger.info(
        "drainer starts", **{key: value for key, value in loading.describe(settings).items() if value != ""}
    )
    process = daemon.Daemon("drainer", logger, reloads=True)
    with trace.writing(settings.trace, "drainer"), Recorder() as recorder:
        return await process.run(functools.partial(serve, settings, read, recorder))


def main() -> NoReturn:
    daemon.main("drainer", run)
