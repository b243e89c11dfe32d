"""Drainer turn: what a stream cannot do itself, the Drainer's own sink does, until none of it is left.

Drives  the pipeline of a Drainer (`build_mysql.assemble`), with all that the Pumps have, in this process
Why     while a DDL waits, rows of its tables are kept apart and all others go on: that is what a Drainer is
        for. So is what one leaves that was killed, that has tables waiting, or tables that join
Owns    the checkpoint meanwhile, in the stream's name: no Drainer starts. Killed, the same stream goes on
Stops   at `stopping`, or at `end_ts`: what still waits is left as a Drainer leaves it, which may take over
Tests   tests/spark/live/test_drainer_turn.py
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import AsyncIterator, Callable
from typing import Final

from drainer.app.build import open_collector
from drainer.app.build_mysql import assemble, joining_of, patiently
from drainer.ddl.quarantine import http_routes
from drainer.mysql.refusal import RowsRefused
from drainer.operate.control.pause_and_reload import Control
from drainer.points.load import join_routes
from drainer.points.load.joining import Joining
from drainer.sink.findings import Findings
from drainer.sink.mysql.bounded_stream import run_to_end
from drainer.sink.mysql.mysql_sink import MysqlSink
from drainer.spark.live.downstream import LiveSettings
from drainer.spark.source.pump_cluster import PumpCluster
from drainer.stream.pull.collector import Collector
from drainer.stream.pull.merged import MergedBatch
from tidb_binlog.clock import SystemClock, look_later
from tidb_binlog.errors import Rejected, Unavailable
from tidb_binlog.late_dataclass import dataclass, replace
from tidb_binlog.observe import log
from tidb_binlog.tso import Ts

logger = log.get("drainer.pump_stream")

LOOK_S: Final = 0.1
STOP_S: Final = 10.0


class Unfinished(Exception):
    """A stream cannot begin at the checkpoint, which is at `floor_ts`; a Drainer can."""

    def __init__(self, floor_ts: Ts, reason: str) -> None:
        super().__init__(reason)
        self.floor_ts = floor_ts


@dataclass(frozen=True, slots=True)
class Turn:
    """`goes_on`: a stream is to go on from there, or another turn; else all ends, and something waits."""

    start_ts: Ts
    stop_ts: Ts
    rows: int
    ddl: int
    drift: int
    goes_on: bool


async def take_turn(
    settings: LiveSettings,
    cluster: PumpCluster,
    reason: str,
    past_ts: Ts,
    end_ts: Ts,
    stopping: asyncio.Event,
    findings: Findings,
) -> Turn:
    """Up to a place from `past_ts` on where nothing waits. `end_ts`: at most up to there, 0: no end.
    `findings` grow by what DDL and rows bring to light.

    Raises what ends a Drainer.
    """
    logger.warning("works as a drainer does, one process for all rows", reason=reason)
    drainer = replace(settings.drainer, node_id=settings.owner, relay_log_dir="")
    async with contextlib.AsyncExitStack() as ends:
        control = Control(SystemClock())
        assembled = await assemble(drainer, cluster.upstream, cluster.registry, ends, control, findings)
        joining = joining_of(assembled, drainer, cluster.upstream, cluster.registry)
        runner, sink = assembled.runner, assembled.runner.sink
        drift_before = findings.drift.total
        start_ts = runner.after_ts
        collector = open_collector(
            drainer,
            cluster.upstream,
            cluster.registry,
            start_ts,
            cluster.unbroken,
            cluster.clock,
            drainer.tls,
        )
        runner.on_wake = collector.asking.hurry
        ends.enter_context(cluster.beside(collector))
        _offer(cluster, joining, lambda: sink.quarantine, lambda: joining)
        ends.callback(_offer, cluster, joining, _none_waits, _none_joins)
        stop = asyncio.Event()
        watching = asyncio.create_task(_watch(sink, past_ts, stopping, stop))
        ends.callback(watching.cancel)
        try:
            waiting, _ = await run_to_end(
                runner,
                _upto(collector, end_ts),
                collector.run(),
                *sink.lanes.tasks().values(),
                joining.run(),
                stop=stop,
                deadline_s=STOP_S,
                stores_refused=True,
            )
        except RowsRefused as refused:
            logger.failure("rows were refused: their table waits, and all others continue", refused)
            return Turn(start_ts, max(start_ts, sink.stored_ts), runner.rows, runner.ddl, 0, goes_on=True)
        goes_on = not waiting and not (stopping.is_set() and sink.quarantine.waits)
        if not goes_on:
            store = assembled.store
            await patiently(store.let_go, store.close)
            await asyncio.to_thread(store.close)
        rows = findings.drift.total - drift_before
        return Turn(start_ts, sink.handed_over_ts, runner.rows, runner.ddl, rows, goes_on)


def _offer(
    cluster: PumpCluster,
    last: Joining,
    controller_now: Callable[[], http_routes.DdlDecider],
    joining_now: Callable[[], Joining],
) -> None:
    """`last`: what it did is shown to who waited for it."""
    cluster.offer(functools.partial(http_routes.add_routes, controller_now=controller_now))
    show = functools.partial(join_routes.add_routes, joining_now=joining_now, document_now=last.document)
    cluster.offer(show)


def _none_waits() -> http_routes.DdlDecider:
    raise Unavailable("no DDL waits: the stream runs each as it comes", hint="ask again when it says so")


def _none_joins() -> Joining:
    raise Rejected(
        "no tables join just now, and a stream has none begin",
        hint="stop it, start a Drainer and ask that one; a stream may then go on with the load",
    )


async def _watch(sink: MysqlSink, past_ts: Ts, stopping: asyncio.Event, stop: asyncio.Event) -> None:
    past_ts = max(past_ts, sink.start_at.past_ts)
    while not stopping.is_set() and (sink.quarantine.waits or sink.handed_over_ts < past_ts):
        await look_later(LOOK_S)
    stop.set()


async def _upto(collector: Collector, end_ts: Ts) -> AsyncIterator[MergedBatch]:
    async for batch in collector.batches():
        yield batch
        if end_ts and batch.watermark >= end_ts:
            return
