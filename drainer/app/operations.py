"""Operating: what people see of a drainer and may change while it runs, put together.

Owns    the HTTP routes, the health answers, the node's lifecycle state
Order   `take_name` before the checkpoint is opened, `show` once there is a pipeline
Holds   /status answers while a standby waits, and of an active drainer as soon as rows can be applied

Tests  tests/integration/test_standby.py, tests/integration/test_back_in_time.py
"""

from __future__ import annotations

import asyncio
import functools
import os
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final, TypeVar

from drainer.config import remarks
from drainer.config.options import DrainerConfig
from drainer.ddl import rules as ddl_rules
from drainer.operate.control.http import NodeState, Shown, add_control_routes, add_hold_routes, add_routes
from drainer.operate.control.pause_and_reload import Control, add_rate, rate_of
from drainer.operate.control.standby import STANDBY, Standby, StandbyStatus
from drainer.operate.status import document
from drainer.operate.status.conditions import conditions, took_over
from drainer.operate.status.document import ApplierFacts, CollectorFacts, Status, View
from drainer.sink.findings import Findings
from drainer.sink.runner import Runner
from drainer.stream.rules.rule_set import RULE_FIELDS, read_rules
from tidb_binlog.clock import Clock
from tidb_binlog.cluster import node
from tidb_binlog.cluster.heartbeat import Heartbeat
from tidb_binlog.cluster.registry import Registry
from tidb_binlog.config import loading
from tidb_binlog.door.http.routes import Routes
from tidb_binlog.errors import Unavailable
from tidb_binlog.filesystem import replace_file
from tidb_binlog.foreign_document import left_in
from tidb_binlog.net.tls import TlsConfig
from tidb_binlog.notify.events import Condition
from tidb_binlog.notify.notifier import Notifier
from tidb_binlog.observe import log
from tidb_binlog.process import daemon
from tidb_binlog.serving.reload import Commit, Reload
from tidb_binlog.serving.starting import Starting, WaitFor, add_health
from tidb_binlog.status.codec import own, plain
from tidb_binlog.status.drainer import DrainerDocument, LoadStatus, VerifyStatus, WentBackStatus
from tidb_binlog.status.drainer_conditions import stopped_drainer
from tidb_binlog.upstream.upstream_time import UpstreamTime

WENT_BACK_SHOWN: Final = 10
T = TypeVar("T")

_logger = log.get("operating")


class Interrupted:
    """`/status` while all is built anew from what is downstream: the Go drainer's keys, and why."""

    stored_ts = 0

    def __init__(self, node_id: str, state: NodeState, reason: str, went_back: list[WentBackStatus]) -> None:
        self._node_id = node_id
        self._reason = reason
        self._state = state
        self._went_back = went_back

    def document(self) -> dict[str, Any]:
        shown = DrainerDocument(
            last_ts=self.stored_ts,
            node_id=self._node_id,
            state=self._state.state,
            doing=self._reason,
            went_back=self._went_back,
        )
        document: dict[str, Any] = plain(shown)
        return document


class Operating:
    """`read` loads the configuration again. `state` is this node's lifecycle state. Raises `ConfigError`."""

    def __init__(
        self,
        settings: DrainerConfig,
        read: Callable[[], DrainerConfig],
        process: daemon.Daemon,
        routes: Routes,
        clock: Clock,
        tls: TlsConfig | None,
        starting: Starting,
    ) -> None:
        self._settings = settings
        self._process = process
        self._routes = routes
        self._clock = clock
        self._tls = tls
        self._starting = starting
        self._standby: Standby | None = None
        self._shown: Shown | None = None
        self._running = False
        self._status: Status | None = None
        self._status_task: asyncio.Task[None] | None = None
        self._served: dict[Callable[..., None], Any] = {}  # by what adds its routes
        self._interrupted = ""
        self._time: UpstreamTime | None = None
        self.notifier: Notifier | None = None
        """Of who is told of events, if anybody is."""
        self.verify: Callable[[], VerifyStatus | None] = lambda: None
        """What the comparisons of this drainer have found; None where it makes none."""
        self.load: Callable[[], LoadStatus | None] = lambda: None
        """How far rows of tables are that join."""
        self.went_back: list[WentBackStatus] = []
        """When the downstream went back in time, and what showed it; the newest last."""
        self.state = NodeState(settings.name, node.ONLINE)
        self.control = Control(clock, rate_of(settings))
        self.findings = Findings(clock)
        if not settings.standby:
            self._keep_findings()
        self.reload = Reload(settings, read, clock)
        add_rate(self.reload, self.control)
        self._check_what_is_not_built()
        add_health(routes, self.unready)
        starting.add_status(routes)
        # From the first moment on: who asks a drainer that starts is to ask again, and not to take it for one
        # that cannot hold its stream.
        add_hold_routes(routes, self.control.hold)
        # Wrong rules are refused before anything is touched.
        read_rules(settings)
        ddl_rules.parse(settings.ddl_rules)
        for remark in (*settings.remarks(), *remarks.on_mounts(settings)):
            _logger.warning(remark)

    def know_time(self, time: UpstreamTime) -> None:
        """Of the upstream; to be called before `show`."""
        self._time = time

    @property
    def upstream_clock(self) -> Clock:
        """What lag is measured by."""
        return self._clock if self._time is None else self._time.clock

    @property
    def wait_for(self) -> WaitFor:
        """For whatever a start asks of others."""
        return self._starting.wait_for

    def end(self) -> None:
        """The process stops as if it were asked to."""
        self._process.stop()

    async def take_name(
        self, nodes: Registry, heartbeat: Heartbeat, rehearse: Callable[[], Awaitable[None]]
    ) -> None:
        """Register; as a standby, when its turn has come. Raises what `Heartbeat.register` raises.

        `rehearse` does without writing what a takeover will have to do.
        """
        if not self._settings.standby:
            await self._starting.wait_for(lambda: heartbeat.register(node.ONLINE))
            return
        name = self._settings.name
        self._standby = standby = Standby(nodes, name, self._clock, rehearse)
        self.state.state = STANDBY
        self._shown = Shown(StandbyStatus(standby, name))
        add_routes(self._routes, self._shown, self.state, self._process.stop)
        self._process.ready(f"standing by for {name}")
        await standby.wait_and_register(lambda: heartbeat.register(node.ONLINE))
        self._keep_findings()
        self.state.state = node.ONLINE
        self._process.status(f"taking over as {name}")
        if self.notifier is not None:
            self.notifier.happened(took_over(name))

    def _keep_findings(self) -> None:
        """Where this process is the only one: what a standby read before its turn would be old by then."""
        path = os.path.join(self._settings.data_dir, "findings.json")
        self.findings.keep_in(lambda: left_in(path), functools.partial(replace_file, path))

    def _check_what_is_not_built(self) -> None:
        """While there is no stream, a reload only checks what one will be built with."""

        def rules(fresh: DrainerConfig) -> Commit:
            read_rules(fresh)
            return lambda: None

        def ddl(fresh: DrainerConfig) -> Commit:
            ddl_rules.parse(fresh.ddl_rules)
            return lambda: None

        self.reload.add(RULE_FIELDS, rules)
        self.reload.add(["ddl_rules"], ddl)
        self.reload.add(["checkpoint_interval_s"], lambda _: lambda: None)
        self.reload.add(["txn_batch"], lambda _: lambda: None)

    def follow(self, runner: Runner[Any]) -> None:
        """Let a reload reach the stream and its sink."""

        def rules(fresh: DrainerConfig) -> Commit:
            rules_now = read_rules(fresh)
            runner.rules.check(rules_now)
            return lambda: runner.rules.change(rules_now)

        def stale(fresh: DrainerConfig) -> list[str]:
            return ["syncer.row-rule"] if runner.rules.made_of != read_rules(fresh).rows.made_of else []

        def ddl(fresh: DrainerConfig) -> Commit:
            rules_now = ddl_rules.parse(fresh.ddl_rules)
            return lambda: runner.sink.set_ddl_rules(rules_now)

        def pace(fresh: DrainerConfig) -> Commit:
            return lambda: runner.change_interval(fresh.checkpoint_interval_s)

        self.reload.add(RULE_FIELDS, rules, placed=True, stale=stale)
        self.reload.add(["ddl_rules"], ddl)
        self.reload.add(["checkpoint_interval_s"], pace)

    def offer(self, add_routes: Callable[[Routes, Callable[[], T]], None], served: T) -> None:
        """Routes about something that is gone while the pipeline is interrupted."""

        def now() -> T:
            if add_routes not in self._served:
                raise Unavailable(f"nothing is applied just now: {self._interrupted}", hint="ask again")
            offered: T = self._served[add_routes]
            return offered

        add_routes(self._routes, now)
        self._served[add_routes] = served

    def show(self, applier: ApplierFacts, collector: CollectorFacts, cluster_id: int | None = None) -> None:
        """The pipeline is there: its status, gauges and controls, from now on, in place of any before."""
        settings = self._settings
        status = Status(
            applier,
            collector,
            self.state,
            self._clock,
            settings.synced_check_time * 60.0,
            control=self.control,
            tls=self._tls,
            more=lambda: {
                **applier.facts(),
                "WentBack": self.went_back,
                "UpstreamTime": None if self._time is None else self._time.facts(),
                "Verify": self.verify(),
                "Load": self.load(),
                "Configuration": self.reload.status,
            },
            cluster_id=cluster_id,
            upstream_s=None if self._time is None else self._time.now_s,
            heard=(lambda _: None) if self._time is None else self._time.heard,
        )
        status.bind_gauges()
        self.control.hold.reason = lambda: status.view().reason
        first, self._status = self._status is None, status
        if self._shown is None:
            self._shown = Shown(status)
            add_routes(self._routes, self._shown, self.state, self._process.stop)
        else:
            self._shown.source = status
        if first:
            self._begin_showing()
        self._status_task = self._process.task("status", status.run())
        self._running, self._interrupted = True, ""

    def _begin_showing(self) -> None:
        self.control.bind_gauges()
        add_control_routes(
            self._routes, self.control, self.reload.run, lambda: loading.describe(self.reload.settings)
        )
        line = document.run(
            self._view, self._clock, on_terminal=document.fits_terminal(self._settings.log_file)
        )
        self._process.task("progress-line", line)

    def _view(self) -> View:
        assert self._status is not None
        return self._status.view()

    def document(self) -> DrainerDocument | None:
        """What /status shows; None while there is nothing but what is waited for."""
        return None if self._shown is None else own(self._shown.document(), DrainerDocument)

    def notify(self, notifier: Notifier) -> None:
        """Let the notifier see what holds while rows are applied."""
        self.notifier = notifier
        notifier.look = self._conditions

    def _conditions(self) -> Iterable[Condition] | None:
        """None while it is not known: what held before may hold still."""
        status = self._status
        return conditions(status.document()) if status is not None and self._running else None

    def behind_s(self) -> float:
        """How far what is applied is behind the upstream; 0 while nothing is known."""
        return 0.0 if self._status is None else self._status.view().lag_s

    def interrupt(self, reason: str, *, went_back: bool) -> None:
        """Nothing is applied until `show` is called again; `went_back`: because the downstream did."""
        if went_back:
            noted = WentBackStatus(time=self._clock.wall_s(), why=reason)
            self.went_back = [*self.went_back[1 - WENT_BACK_SHOWN :], noted]
        self._running, self._interrupted, self._served = False, reason, {}
        self._check_what_is_not_built()
        self._starting.begin_again()
        if self._status_task is not None:
            self._status_task.cancel()
        if self._shown is not None:
            self._shown.source = Interrupted(self._settings.name, self.state, reason, self.went_back)

    def unready(self) -> str:
        """Why this process does not replicate; "" if it does."""
        if self._standby is not None and self._standby.waiting:
            return self._standby.unready()
        if not self._running:
            return self._interrupted or self._starting.reason
        if self.state.state != node.ONLINE:
            return self.state.state
        document = self.document()
        return "" if document is None else stopped_drainer(document)
