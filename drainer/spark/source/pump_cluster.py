"""Pump cluster: what a driver asks of upstream, registry and Pumps, for a stream or for a range.

Out     `Bound`: where the next batch ends, and how it is cut for tasks; a range as `Bound`s
Holds   the reader's name is ours from the beginning to the end: Pumps keep what is not done, and those that
        join wait until the survey has them. Without a name nothing is kept: what is purged is an error
Stops   the end of the `async with`; a reader whose name was taken, or that was told to end, raises it at the
        next `bound`
Tests   tests/spark/live/test_stream.py, tests/spark/source/test_pump_source.py
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
from collections import deque
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any, Self

from drainer.config.cluster import cluster
from drainer.config.options import DrainerConfig
from drainer.reading.subscribe.named_reader import NamedReader, ReaderAddress, open_reader
from drainer.reading.subscribe.stream_start import asks_pumps, first_position
from drainer.stream.pull import range_cuts
from drainer.stream.pull.collector import Collector
from drainer.stream.pull.merged import Merged
from drainer.stream.pull.pump_source import PullChoice
from drainer.stream.pull.range_cuts import Part
from drainer.stream.pull.range_reader import PumpSet
from drainer.stream.pull.spill import SpillDirectory
from tidb_binlog import rpc
from tidb_binlog.backoff import Backoff
from tidb_binlog.binlog import NO_TABLE
from tidb_binlog.clock import Clock
from tidb_binlog.cluster import node
from tidb_binlog.cluster.registry import Registry
from tidb_binlog.door.http.routes import Routes
from tidb_binlog.errors import Conflict, Unavailable
from tidb_binlog.late_dataclass import dataclass
from tidb_binlog.observe import log
from tidb_binlog.tso import TS_MAX, Ts
from tidb_binlog.upstream.upstream_time import UpstreamTime
from tidb_binlog.upstream_port import Upstream

logger = log.get("drainer.live_cluster")


@dataclass(frozen=True, slots=True)
class Bound:
    """A batch: everything up to `stop_ts`. `ddl`: the finished DDL that ends it, with its job; `more`: Pumps
    have what comes next already."""

    stop_ts: Ts
    parts: tuple[Part, ...]
    ddl: Merged | None
    more: bool


class PumpCluster:
    """`settings`: where the cluster is, TLS; large DDL never lie on disk, but what Go Pumps send besides may,
    in its data-dir. `name`: of the reader, "" for none. `part_bytes`: about so much is a task's."""

    upstream: Upstream
    registry: Registry
    pumps: PumpSet
    """As the registry has them now."""

    def __init__(
        self,
        settings: DrainerConfig,
        name: str,
        listen: str,
        clock: Clock,
        part_bytes: int = range_cuts.TASK_BYTES,
    ) -> None:
        self._settings = settings
        self._name = name
        self._address = ReaderAddress(listen)
        self._clock = clock
        self._part_bytes = part_bytes
        self._ends = contextlib.AsyncExitStack()
        self._reader: NamedReader | None = None  # of a stream with a name, from the beginning on
        self._collector: Collector | None = None  # from `begin` on
        self._beside: Collector | None = None
        self._running: asyncio.Future[Any] | None = None  # collector and reader; never ends by itself
        # What the collector has given: everything at or below `_watermark` has been looked at, `_ddl` are the
        # finished DDL of it that no batch has reached, in order.
        self._watermark = 0
        self._ddl: deque[Merged] = deque()
        self._moved = asyncio.Event()  # `_watermark` has risen

    @property
    def shown(self) -> str:
        """What it is called in messages, and in the downstream's record of jobs."""
        return f"pumps://{self.upstream.cluster_id}"

    async def __aenter__(self) -> Self:
        try:
            await self._open()
        except BaseException:
            await self._ends.aclose()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._ends.aclose()

    async def _open(self) -> None:
        settings, tls = self._settings, self._settings.tls
        self.upstream, self.registry = await self._ends.enter_async_context(cluster(settings))
        self._time = UpstreamTime(self.upstream.oracle, self._clock)
        await self._time.draw()
        if not self._name:
            return
        self._reader = await open_reader(
            self._name,
            self.registry,
            settings.pd_urls,
            now_ts=lambda: self._time.now_ts,
            clock=self._clock,
            doing=lambda: self._collector.waits_for if self._collector is not None else "its checkpoint",
            address=self._address,
            tls=tls,
        )
        self._ends.push_async_callback(self._reader.close)

    async def now_ts(self) -> Ts:
        """A timestamp of the upstream."""
        return await self._time.draw()

    async def drainer_at(self, name: str) -> Ts:
        """Where the Drainer of a node id stopped, 0 where there is none. Raises `Conflict` while it runs."""
        entry = (await self.registry.view()).drainers.get(name)
        if entry is None or entry.status.is_reader:
            return 0
        if entry.alive:
            raise Conflict(f"drainer {name} is running and writes there", hint="stop it first")
        return entry.status.max_commit_ts

    async def is_alive(self, name: str) -> bool:
        """Whether a node of that name holds its lease."""
        entry = (await self.registry.view()).drainers.get(name)
        return entry is not None and entry.alive is True

    @property
    def stored_ts(self) -> Ts:
        """Up to where a reader of this name was done before; 0 for none."""
        return self._reader.stored_ts if self._reader is not None else 0

    async def first_position(self, after_ts: Ts | None) -> Ts:
        """`after_ts`, or for None the oldest position. Raises `BinlogsLost` where Pumps have less."""
        view = await self.registry.view()
        return await first_position(view, asks_pumps(self._settings.tls), after_ts, "no start")

    async def begin(self, after_ts: Ts) -> None:
        """The stream goes on after a commit_ts, or has begun already. DDL alone is pulled here: the rows are
        read by tasks."""
        if self._collector is not None:
            return
        settings, reader = self._settings, self._reader
        self._collector = collector = Collector(
            self.registry,
            self.upstream.history,
            cluster_id=self.upstream.cluster_id,
            after_ts=after_ts,
            clock=self._clock,
            queue_bytes_max=settings.pull_bytes,
            spill=SpillDirectory(os.path.join(settings.data_dir, "spill")),
            connect=functools.partial(rpc.Client, tls=settings.tls),
            unbroken=self.unbroken,
            choice=PullChoice(table_ids=(NO_TABLE,)),
        )
        self._watermark = after_ts
        runs = [collector.run(), self._time.run(), self._take(collector)]
        if reader is not None:
            reader.begin(after_ts, self._notify)
            runs.append(reader.run())
        running = asyncio.gather(*runs)
        self._running = running
        running.add_done_callback(lambda _: self._moved.set())  # who waits for more is to hear of it
        self._ends.push_async_callback(_end, running)

    @property
    def clock(self) -> Clock:
        """The upstream's."""
        return self._time.clock

    def unbroken(self) -> int | None:
        """For who pulls in the reader's name: see `NamedReader.unbroken`."""
        return self._reader.unbroken if self._reader is not None else 0

    def show(self, facts: Callable[[], dict[str, Any]]) -> None:
        """What of a stream the reader's status has besides."""
        if self._reader is not None:
            self._reader.facts = facts

    def offer(self, add: Callable[[Routes], None]) -> None:
        """Routes of the reader's address."""
        if self._reader is not None:
            self._reader.offer(add)

    @contextlib.contextmanager
    def beside(self, collector: Collector) -> Iterator[None]:
        """Meanwhile a Pump that joins takes nothing before this one waits for it, too."""
        self._beside = collector
        try:
            yield
        finally:
            self._beside = None

    async def _notify(self) -> None:
        for collector in (self._collector, self._beside):
            if collector is not None:
                await collector.notify()

    async def _take(self, collector: Collector) -> None:
        async for batch in collector.batches():
            self._ddl.extend(entry for entry in batch.entries if entry.job is not None)
            self._watermark = max(self._watermark, batch.watermark)
            self._moved.set()

    async def see_pumps(self) -> None:
        """Look at the registry. Raises `Unavailable`."""
        view = await self.registry.view()
        here = {name: entry for name, entry in view.pumps.items() if entry.status.state != node.OFFLINE}
        self.pumps = PumpSet(self.upstream.cluster_id, here, self._settings.tls)

    async def _shared_out(self, position: Ts, stop_ts: Ts) -> list[Part]:
        """The range as parts, of the Pumps of now. What is away is waited for: nobody else has what comes
        next."""
        backoff = Backoff(0.1, 5.0)
        while True:
            self.check()
            try:
                await self.see_pumps()
                return await range_cuts.parts(self.pumps, position, stop_ts, self._part_bytes)
            except Unavailable as error:
                if not backoff.attempts:
                    logger.warning("waiting for registry or pumps", reason=error.message)
                await asyncio.sleep(backoff.next_s())

    # -- batches -----------------------------------------------------------------------------------

    async def bound(self, position: Ts, bytes_max: int, wait_s: float, end_ts: Ts = TS_MAX) -> Bound | None:
        """The next batch after a position, which lies before `end_ts`; None where nothing has come within
        that time. Raises why the stream cannot go on."""
        self.check()
        if self._watermark <= position:
            self._moved.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._moved.wait()
            self.check()
        watermark = self._watermark
        if watermark <= position:
            return None
        return await self._bound(position, min(watermark, end_ts), bytes_max)

    async def bound_at(self, position: Ts, stop_ts: Ts) -> Bound:
        """A batch as it was, when it was begun: it is read again."""
        await self._reach(stop_ts)
        bound = await self._bound(position, stop_ts, 0)
        assert bound.stop_ts == stop_ts, (bound.stop_ts, stop_ts)
        return bound

    async def bounds(self, position: Ts, stop_ts: Ts, wait_s: float) -> list[Bound]:
        """A whole range. Raises `Unavailable` where Pumps or registry do not answer in that time."""
        bounds = list[Bound]()
        try:
            async with asyncio.timeout(wait_s):
                await self._reach(stop_ts)
                while position < stop_ts:
                    bounds.append(await self._bound(position, stop_ts, 0))
                    position = bounds[-1].stop_ts
        except TimeoutError:
            raise Unavailable(
                f"the range up to {stop_ts} waits for {self._waits_for()}",
                hint="`binlogctl nodes` shows the state of each Pump",
            ) from None
        return bounds

    def _waits_for(self) -> str:
        assert self._collector is not None
        away = sorted(name for name, pump in self._collector.states().items() if not pump.connected)
        return f"pump {', '.join(away)}, not reachable" if away else self._collector.waits_for or "the pumps"

    async def _reach(self, stop_ts: Ts) -> None:
        """Everything up to there has been looked at."""
        while self._watermark < stop_ts:
            self.check()
            self._moved.clear()
            await self._moved.wait()

    async def _bound(self, position: Ts, stop_ts: Ts, bytes_max: int) -> Bound:
        while self._ddl and self._ddl[0].commit_ts <= position:
            self._ddl.popleft()
        ddl = self._ddl[0] if self._ddl and self._ddl[0].commit_ts <= stop_ts else None
        rows_stop = ddl.commit_ts - 1 if ddl is not None else stop_ts
        parts = await self._shared_out(position, rows_stop)
        kept, size = list[Part](), 0
        for part in parts:
            if kept and bytes_max and size + part.size > bytes_max:
                return Bound(kept[-1].until_ts, tuple(kept), None, more=True)
            kept.append(part)
            size += part.size
        end_ts = ddl.commit_ts if ddl is not None else stop_ts
        return Bound(end_ts, tuple(kept), ddl, more=self._watermark > end_ts)

    def check(self) -> None:
        """Raises why the stream cannot go on."""
        if self._running is not None and self._running.done():
            self._running.result()

    def done(self, commit_ts: Ts) -> None:
        """Everything up to there is downstream: Pumps need not keep it, as a beat says."""
        if self._reader is not None:
            self._reader.passed(commit_ts)

    async def store(self) -> None:
        """Say now what is done, for a process that may be killed before the next beat."""
        if self._reader is not None:
            await self._reader.store()


async def _end(running: asyncio.Future[Any]) -> None:
    running.cancel()
    await asyncio.wait({running})
    if not running.cancelled():
        running.exception()  # it was raised, or the stream has ended
