"""Pipeline: what flows from the pumps to the downstream, and what happens when that goes back in time.

Owns    what one build of them leaves to be undone
Holds   where any module finds that the downstream does not have what it had confirmed (`fencing.WentBack`),
        all of them end without storing anything; then everything is built anew from what is stored there now,
        and pulled again from there. Not before this process is sure that the node id is still its own: a
        standby may have gone on from there. Where rows of a table are refused for good, the same is done once
        it is stored that the table waits
Stops   `drain` applies what was begun and stores the checkpoint

Tests  tests/integration/test_back_in_time.py, tests/integration/test_refused_rows.py
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final

from drainer import metrics
from drainer.app.operations import Operating
from drainer.checkpoint.fencing import WentBack
from drainer.sink.runner import Runner
from drainer.stream.pull.collector import Collector
from drainer.stream.pull.merger import OrderBroken
from drainer.stream.pull.pull_message import Undecodable
from tidb_binlog.backoff import Backoff
from tidb_binlog.clock import Clock
from tidb_binlog.errors import BinlogError
from tidb_binlog.observe import log
from tidb_binlog.process import daemon
from tidb_binlog.tso import Ts

if TYPE_CHECKING:
    from tidb_binlog.cluster.heartbeat import Heartbeat


logger = log.get("drainer.pipeline")

PAUSE_S: Final = 0.2
PAUSE_MAX_S: Final = 2.0

Built = tuple[Runner[Any], Collector]
Build = Callable[[contextlib.AsyncExitStack, bool], Awaitable[Built]]
"""(what is to be undone, whether a checkpoint must be there already)"""


class Pipeline:
    """`stored_ts`: of the registry, until there is a checkpoint."""

    def __init__(
        self,
        process: daemon.Daemon,
        operating: Operating,
        heartbeat: Heartbeat,
        build: Build,
        clock: Clock,
        *,
        cluster_id: int,
        stored_ts: Ts,
    ) -> None:
        self._process = process
        self._operating = operating
        self._heartbeat = heartbeat
        self._build = build
        self._clock = clock
        self._cluster_id = cluster_id
        self._stored_ts = stored_ts
        self._runner: Runner[Any] | None = None
        self._collector: asyncio.Future[Collector] = asyncio.get_running_loop().create_future()
        self._ends = contextlib.AsyncExitStack()
        self._running: list[asyncio.Task[None]] = []
        self._begins_again = False

    @property
    def stored_ts(self) -> Ts:
        """The stored checkpoint, as far as it is known."""
        return self._runner.stored_ts if self._runner is not None else self._stored_ts

    async def notify(self) -> None:
        """As of the collector, which may still be on its way."""
        await (await asyncio.shield(self._collector)).notify()

    async def start(self) -> None:
        await self._open(again=False)

    async def drain(self, deadline_s: float) -> None:
        if self._runner is not None:
            await self._runner.stop(deadline_s)

    async def close(self) -> None:
        await self._ends.aclose()

    async def _open(self, *, again: bool) -> None:
        runner, collector = await self._build(self._ends, again)
        self._runner = runner
        runner.on_wake = collector.asking.hurry
        self._operating.show(runner, collector, self._cluster_id)
        if self._collector.done():
            self._collector = asyncio.get_running_loop().create_future()
        self._collector.set_result(collector)
        works: dict[str, Coroutine[Any, Any, None]] = {
            "collector": collector.run(),
            "lanes": runner.watch(),
            "applier": runner.run(collector.batches()),
            "checkpoint": runner.keep_checkpoint(),
            **runner.sink.tasks(),
        }
        after = runner.sink.rebuilt_after
        self._running = [self._process.task(name, self._watched(work, after)) for name, work in works.items()]

    async def _watched(
        self, work: Coroutine[Any, Any, None], rebuilt_after: tuple[type[BinlogError], ...]
    ) -> None:
        try:
            await _counted(work)
        except rebuilt_after as error:
            if self._process.stopping:
                raise
            if not self._begins_again:
                self._begins_again = True
                self._process.task("begin again", self._begin_again(error))

    async def _begin_again(self, error: BinlogError) -> None:
        if isinstance(error, WentBack):
            metrics.WENT_BACK.inc()
            logger.error(
                "the downstream went back in time: all stops, and continues from what it has", error=error
            )
        else:
            logger.failure("rows were refused: their table waits, and all others continue", error)
        self._operating.interrupt(error.message, went_back=isinstance(error, WentBack))
        runner, self._runner = self._runner, None
        assert runner is not None
        for task in self._running:
            task.cancel()
        await asyncio.wait(self._running)
        await runner.sink.abandon(error)
        await self._ends.aclose()
        while True:
            await self._still_named()
            try:
                await self._open(again=True)
                break
            except WentBack as once_more:
                logger.error("the downstream went back in time once more", error=once_more)
                await self._ends.aclose()
                await asyncio.sleep(PAUSE_S)
        self._begins_again = False
        logger.warning("going on from what the downstream has", checkpoint=self.stored_ts)

    async def _still_named(self) -> None:
        """Raises `Conflict` when the node id is another's; waits while the registry is away."""
        backoff = Backoff(PAUSE_S, PAUSE_MAX_S)
        while True:
            if await self._heartbeat.beat():
                return
            await asyncio.sleep(backoff.next_s())


async def _counted(work: Coroutine[Any, Any, None]) -> None:
    """Errors that the Go drainer counts; there it drops what is out of order, here both end the process."""
    try:
        await work
    except OrderBroken:
        metrics.DISORDER.inc()
        raise
    except Undecodable:
        metrics.UNDECODABLE.inc()
        raise
