"""Build of a MySQL sink: from the configuration to a drainer that starts at the stored checkpoint.

Order   what is stored is read, the relay log opened and the schema read at that position; only then the
        checkpoint is taken over (older drainers are fenced off), and the pipeline is built from there;
        nothing is written downstream but the checkpoint's own tables
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from drainer import metrics
from drainer.app.build import BuildContext, not_ahead
from drainer.app.load_schema import TrackedSchema, open_schema
from drainer.checkpoint.inspection import Inspection, inspect
from drainer.checkpoint.load_progress import refuse_unfinished
from drainer.checkpoint.resume import Start, StarterInfo, resume_point
from drainer.checkpoint.savepoint import adopt_cluster
from drainer.checkpoint.store import CheckpointStore
from drainer.checkpoint.stream_row import StreamRow, stream_name
from drainer.checkpoint.value import DEFAULT_TABLE
from drainer.config.downstream import row_target_of, target_of
from drainer.config.options import DrainerConfig
from drainer.ddl import rules as ddl_rules
from drainer.ddl.policy import Policy
from drainer.ddl.quarantine import http_routes
from drainer.ddl.quarantine.early_drop import UpstreamJobs
from drainer.ddl.run.recycle_bin import KeepDropped
from drainer.ddl.run.runner import DdlRunner
from drainer.mysql.connection import Target
from drainer.mysql.errors import SessionError, StatementRefused, final_error, passing_error
from drainer.mysql.mark_table import close_marks, open_marks
from drainer.mysql.session_lock import JOIN, RELEASE
from drainer.operate.control.pause_and_reload import Control
from drainer.points.load import join_routes
from drainer.points.load.joining import Joining
from drainer.relay.relay_log import RelayLog
from drainer.sink.findings import Findings
from drainer.sink.mysql.mysql_sink import MysqlSink, mysql_sink
from drainer.sink.mysql.quarantine_setup import QuarantineSetup, load_waiting
from drainer.sink.mysql.settings import applier_settings
from drainer.sink.runner import Runner
from drainer.stream.rules.rule_history import RuleChange
from drainer.stream.rules.rule_set import read_rules
from drainer.stream.schema.tracker import SchemaTracker
from drainer.stream.translate.translator import Translator
from tidb_binlog.backoff import Backoff
from tidb_binlog.clock import SystemClock
from tidb_binlog.cluster.registry import Registry
from tidb_binlog.errors import BinlogError, Conflict, Unavailable
from tidb_binlog.late_dataclass import dataclass
from tidb_binlog.observe import log
from tidb_binlog.serving.reload import Commit
from tidb_binlog.serving.starting import WaitFor, at_once
from tidb_binlog.status.drainer import LackStatus
from tidb_binlog.tso import Ts
from tidb_binlog.upstream_port import Upstream

logger = log.get("drainer.assembly")

START_DEADLINE_S: Final = 60.0
T = TypeVar("T")


Prepare = Callable[[CheckpointStore, Start, bool], Awaitable[None]]
"""(store, what a start would find now, whether a DDL waits): before anything is written."""


async def _nothing(_store: CheckpointStore, _start: Start, _waits: bool) -> None:
    pass


async def open_checkpoint(
    settings: DrainerConfig,
    upstream: Upstream,
    nodes: Registry,
    target: Target,
    *,
    again: bool = False,
    prepare: Prepare = _nothing,
    wait_for: WaitFor = at_once,
) -> tuple[CheckpointStore, Start]:
    """Find out where to continue, `prepare` for it, and only then fence off older drainers: a process that
    could not continue fences off none. `again`: a checkpoint must be there. `wait_for`: the upstream, where
    it is away."""
    adopt_cluster(settings.data_dir, upstream.cluster_id)
    living = [name for name, entry in (await wait_for(nodes.view)).drainers.items() if entry.alive]
    store = _store_of(settings, upstream.cluster_id, target)
    drawn: list[int] = []  # a timestamp that no start has had

    async def starter() -> StarterInfo:
        now_ts = drawn.pop() if drawn else await wait_for(upstream.oracle.timestamp)
        is_given = settings.initial_commit_ts != -1
        return StarterInfo(
            upstream.cluster_id,
            1 if settings.dispatches_whole else settings.worker_count,
            settings.initial_commit_ts if is_given else now_ts,
            now_ts,
            is_given,
            settings.name,
            living,
        )

    async def see() -> tuple[Start, bool]:
        inspection = await patiently(lambda: seen(settings, upstream.cluster_id), lambda: None)
        refuse_unfinished(inspection.load)
        if again and inspection.is_empty:
            raise Conflict(
                f"downstream {target!r} has nothing of cluster {upstream.cluster_id}, and there was before:"
                " it was emptied, went back to before the first start, or is another server",
                hint="restore its checkpoint's schema with its rows; or begin anew: initial-commit-ts says"
                " where, or another node-id",
            )
        starting = await starter()
        start = resume_point(inspection.stored, starting)
        drawn.append(starting.now_ts)
        return start, inspection.waits

    async def begin() -> Start:
        starting = await starter()
        return await patiently(
            lambda: store.start(
                starting.lane_count,
                starting.initial_ts,
                starting.now_ts,
                initial_is_given=starting.initial_is_given,
                living=living,
            ),
            store.close,
        )

    await prepare(store, *await not_ahead(see))
    start = await not_ahead(begin)
    logger.info(
        "checkpoint",
        cluster_id=upstream.cluster_id,
        positions=[f"{place.commit_ts}:{place.rows}" for place in start.positions],
        epoch=start.epoch,
        safe_until=start.safe_mode.until_ts,
        lanes=len(start.positions),
    )
    return store, start


def _store_of(settings: DrainerConfig, cluster_id: int, target: Target) -> CheckpointStore:
    return CheckpointStore(
        target,
        cluster_id,
        schema=settings.checkpoint_schema,
        table=settings.checkpoint_table if settings.checkpoint_type else DEFAULT_TABLE,
        row_target=row_target_of(settings, target),
        owner=settings.name,
    )


def seen(settings: DrainerConfig, cluster_id: int) -> Inspection:
    """What is stored downstream, and who works there. Blocks; writes nothing."""
    target = target_of(settings)
    table = settings.checkpoint_table if settings.checkpoint_type else DEFAULT_TABLE
    row_target = row_target_of(settings, target)
    return inspect(target, settings.checkpoint_schema, cluster_id, table=table, row_target=row_target)


async def patiently(function: Callable[[], T], reset: Callable[[], None]) -> T:
    """Run on a thread; a downstream that is away is waited for, not for ever: it may be a wrong port."""
    backoff = Backoff(0.1, 1.0)
    clock = SystemClock()
    end_s = clock.monotonic_s() + START_DEADLINE_S
    while True:
        try:
            return await asyncio.to_thread(function)
        except (Unavailable, SessionError) as error:
            reset()
            if isinstance(error, StatementRefused):
                raise final_error(error, "opening the checkpoint") from None
            if clock.monotonic_s() > end_s:
                away = isinstance(error, Unavailable)
                raise error if away else passing_error(error, "opening the checkpoint") from None
            if not backoff.attempts:
                logger.warning("waiting for the downstream", reason=str(error))
            await asyncio.sleep(backoff.next_s())


async def prepare_marks(target: Target, lanes: int, ends: contextlib.AsyncExitStack) -> None:
    """The marks of two-way replication are ready downstream, until all has ended."""
    await patiently(lambda: open_marks(target, lanes), lambda: None)
    ends.push_async_callback(asyncio.to_thread, close_marks, target)


async def open_relay(
    settings: DrainerConfig,
    cluster_id: int,
    clock: SystemClock,
    after_ts: Ts,
    ends: contextlib.AsyncExitStack,
) -> RelayLog | None:
    """The relay log, its last record whole, for a stream after `after_ts`; None if none is wanted."""
    path, size, form = settings.relay_log_dir, settings.relay_max_file_size, settings.relay_format
    if not path:
        return None
    relay = await asyncio.to_thread(
        RelayLog.open, path, size, clock, form=form, cluster_id=cluster_id, after_ts=after_ts
    )
    ends.push_async_callback(relay.let_go)
    return relay


async def rehearse(settings: DrainerConfig, cluster_id: int) -> None:
    """See `Builder`."""
    try:
        inspection = await asyncio.to_thread(seen, settings, cluster_id)
    except SessionError as error:
        raise final_error(error, "reading the checkpoint") from None
    refuse_unfinished(inspection.load)


def ddl_runners(
    settings: DrainerConfig, store: CheckpointStore, target: Target, missing: deque[LackStatus]
) -> Callable[..., DdlRunner]:
    """Makes DDL runners of a schema, routes and a guard of their sessions. `missing` grows by what the
    downstream lacks of DDL."""
    lanes, seconds = store.lane_table(), settings.keep_dropped_s
    keep = KeepDropped(lanes.schema, lanes.cluster_id, seconds) if seconds else None
    mode = settings.ddl_conversions
    return lambda schema, route, guard: DdlRunner(target, schema, route, guard, keep, mode, missing)


class _Ready:
    """What a start needs besides the checkpoint, got before any drainer is fenced off for it: the relay log,
    and the schema at where it will begin."""

    def __init__(
        self,
        settings: DrainerConfig,
        upstream: Upstream,
        clock: SystemClock,
        wait_for: WaitFor,
        ends: contextlib.AsyncExitStack,
    ) -> None:
        self._settings = settings
        self._ends = ends
        self._wait_for = wait_for
        self._upstream = upstream
        self._clock = clock
        self._schema: tuple[tuple[object, ...], TrackedSchema] | None = None
        self.relay: RelayLog | None = None

    async def prepare(self, store: CheckpointStore, start: Start, waits: bool) -> None:
        self.relay = await open_relay(
            self._settings, self._upstream.cluster_id, self._clock, start.floor_ts, self._ends
        )
        await self.schema_at(store, start, waits)

    async def schema_at(self, store: CheckpointStore, start: Start, waits: bool) -> TrackedSchema:
        """`waits`: the stream begins at the checkpoint then, else after the lanes. Read anew only where a
        drainer has gone on since it was prepared."""
        place = (start.checkpoint, start.positions, start.foreign, waits)
        if self._schema is None or self._schema[0] != place:
            load = functools.partial(patiently, lambda: store.load_schema(start), store.close)
            after_ts = start.floor_ts if waits else min(place.complete_ts for place in start.positions)
            schema = await self._wait_for(
                functools.partial(
                    open_schema,
                    store,
                    start,
                    after_ts,
                    self._upstream.history,
                    load,
                    from_snapshot=self._settings.load_schema_snapshot,
                )
            )
            self._schema = place, schema
        return self._schema[1]


@dataclass(frozen=True, slots=True)
class Assembled:
    """A stream into the checkpoint's downstream, and what it is made of."""

    runner: Runner[MysqlSink]
    store: CheckpointStore
    tracker: SchemaTracker
    translator: Translator


async def assemble(
    settings: DrainerConfig,
    upstream: Upstream,
    nodes: Registry,
    ends: contextlib.AsyncExitStack,
    control: Control,
    findings: Findings,
    *,
    again: bool = False,
    wait_for: WaitFor = at_once,
) -> Assembled:
    """Take over the checkpoint and build the pipeline from there. `again`: see `open_checkpoint`."""
    clock = SystemClock()
    target = target_of(settings)
    rules = read_rules(settings)
    ready = _Ready(settings, upstream, clock, wait_for, ends)
    store, start = await open_checkpoint(
        settings, upstream, nodes, target, again=again, prepare=ready.prepare, wait_for=wait_for
    )
    waiting = await patiently(lambda: load_waiting(store, foreign=start.foreign), store.close)
    await prepare_marks(target, max(len(start.positions), settings.worker_count), ends)
    schema = await ready.schema_at(store, start, bool(waiting.entries))
    began_ts = min(position.complete_ts for position in start.positions)
    translator = Translator(schema.tracker, rules, began_ts)
    if ready.relay is not None:
        ready.relay.rules_now = lambda: translator.rules.text
    changes = RuleChange(translator, rules, start.basis)
    release_guard = functools.partial(store.guard_ddl, role=RELEASE)
    runner_for = ddl_runners(settings, store, target, findings.missing)
    sink = mysql_sink(
        start,
        store,
        target,
        runner_for(schema.tracker, translator.route, store.guard_ddl),
        applier_settings(settings, schema.keep, findings.drift),
        clock,
        QuarantineSetup(
            waiting,
            Policy(ddl_rules.parse(settings.ddl_rules)),
            schema.tracker,
            lambda frozen: runner_for(frozen, frozen.route, release_guard),
            settings.data_dir,
            settings.quarantine_bytes,
            UpstreamJobs(
                upstream.history,
                lambda: schema.tracker.last_job_id,
                translator.replicated,
                translator.runs,
            ),
            lambda: translator.rules.router.route,
            translator.sharing,
            lambda: control.paused,
        ),
        relay=ready.relay,
    )
    runner = Runner(
        sink,
        translator,
        control,
        rules=changes,
        interval_s=settings.checkpoint_interval_s,
        findings=findings,
    )
    runner.rules.check_start()
    return Assembled(runner, store, schema.tracker, translator)


def joining_of(assembled: Assembled, settings: DrainerConfig, upstream: Upstream, nodes: Registry) -> Joining:
    """What loads tables that join it; whoever asks for it runs it."""
    return Joining(
        settings,
        upstream,
        nodes,
        assembled.tracker,
        assembled.translator,
        assembled.runner.sink.quarantine,
        functools.partial(assembled.store.guard_ddl, role=JOIN),
        SystemClock(),
        assembled.runner.rules.at,
    )


async def _hand_on(findings: Callable[[], None]) -> None:
    """To a stream of Spark, or from one: it takes over from a Drainer that was stopped, and the reverse."""
    try:
        await asyncio.to_thread(findings)
    except BinlogError as error:  # no reason to end: data-dir has them
        logger.warning("what is told of the downstream is not handed on", reason=error)


async def build(context: BuildContext) -> Runner[MysqlSink]:
    """What `assemble` makes, with what a daemon offers besides."""
    settings, upstream, operating = context.settings, context.upstream, context.operating
    assembled = await assemble(
        settings,
        upstream,
        context.nodes,
        context.ends,
        operating.control,
        operating.findings,
        again=context.again,
        wait_for=operating.wait_for,
    )
    row = StreamRow(target_of(settings), stream_name(upstream.cluster_id, settings.checkpoint_schema))

    def take() -> None:
        operating.findings.load(row.load())

    def leave() -> None:
        if operating.findings.is_empty:
            return
        row.begin()
        take()  # another one may have taken over meanwhile
        row.store(operating.findings.document())

    await _hand_on(take)
    context.ends.push_async_callback(_hand_on, leave)
    runner, translator = assembled.runner, assembled.translator
    sink = runner.sink
    metrics.LOOPBACK_TRANSACTIONS.set_function(lambda: float(translator.looped))

    def batch_rows(fresh: DrainerConfig) -> Commit:
        return lambda: sink.lanes.change_batch_rows(fresh.txn_batch)

    operating.reload.add(["txn_batch"], batch_rows)
    operating.offer(http_routes.add_routes, sink.quarantine)
    joining = joining_of(assembled, settings, upstream, context.nodes)
    sink.beside["load"] = joining.run
    operating.offer(join_routes.add_routes, joining)
    operating.load = joining.status
    return runner
