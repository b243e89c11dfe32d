"""Collector: all pumps of the cluster as one ordered stream of batches.

Owns     the watch on the registry, the source tasks, a queue bounded in bytes, the directory where large
         transactions wait
Holds    nothing is emitted before the first listing of pumps has succeeded, and a listing adds all its pumps
         in one step, so no pump's binlogs can be overtaken. A pump leaves the merge only when the registry
         says `offline`: one that is paused, dead or has lost its entry holds the stream at its position.
         A new pump tells every drainer with a lease before it takes prewrites: after a time in which ours may
         have run out, nothing goes out before another listing.
         No pump tells a reader that is not in the registry. It looks itself (`finds_pumps`): nothing goes out
         above what was known when a listing began. A pump that is not in that listing registered later, took
         its first prewrite after that, and got the commit_ts later still; the oracle gave everything that was
         known before. So it can only commit above what goes out
         A binlog that can go out is in `batches()` within the same few turns of the event loop; a pump that
         holds one back is asked for its watermark at once, and told what waits, which saves it a draw. Idle
         or not, the pumps that the position rests on are asked for a higher one (`IdleAsking`).
Waits    for the job of a DDL binlog, which TiDB writes after the binlog
Stops    by cancellation; what is in the queue is abandoned, it lies above the checkpoint
Tests    tests/drainer/stream/pull/pump_model.py
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, Final, Generic, Protocol, TypeVar

from drainer.metrics import note_arrival
from drainer.stream.pull.merged import Merged, MergedBatch
from drainer.stream.pull.merger import Merger
from drainer.stream.pull.pull_message import Arrival, DdlMark
from drainer.stream.pull.pump_source import BinlogsGone, PullChoice, PullClient, PumpSource
from drainer.stream.pull.spill import SpillDirectory
from tidb_binlog import binlog, ddl_job, rpc, tso
from tidb_binlog.clock import Clock, look_at
from tidb_binlog.cluster import node
from tidb_binlog.cluster.registry import ClusterView, NodeEntry
from tidb_binlog.errors import Unavailable
from tidb_binlog.observe import log, metrics, trace
from tidb_binlog.status.drainer import SourceStatus
from tidb_binlog.table_info import SchemaState
from tidb_binlog.tso import Ts

PAUSE_FIRST_S: Final = 0.01
PAUSE_MAX_S: Final = 1.0

_logger = log.get("collector")


class PumpListing(Protocol):
    """What a collector needs of the registry."""

    async def view(self) -> ClusterView: ...

    def watch(self) -> AsyncIterator[ClusterView]: ...


class JobHistory(Protocol):
    """What it needs of the upstream's DDL history."""

    async def job(self, job_id: int) -> bytes | None: ...


class JobReader:
    """The job document of a DDL binlog, from the upstream's history; one at a time.

    `waits_for` says what is waited for, "" while nothing is.
    """

    def __init__(self, history: JobHistory) -> None:
        self._history = history
        self.waits_for = ""

    async def read(self, mark: DdlMark) -> dict[str, Any]:
        """The job of a DDL binlog."""
        pause_s = PAUSE_FIRST_S
        reason = "it is not in the DDL history yet"
        while True:
            try:
                data = await self._history.job(mark.job_id)
            except Unavailable as error:
                data, reason = None, str(error)
            if data is not None:
                if self.waits_for:
                    _logger.info("DDL job is there", job_id=mark.job_id)
                self.waits_for = ""
                return ddl_job.decode(data)
            if pause_s >= PAUSE_MAX_S and not self.waits_for:
                _logger.warning(
                    "waiting for a DDL job", job_id=mark.job_id, commit_ts=mark.commit_ts, reason=reason
                )
                self.waits_for = f"DDL job {mark.job_id} of commit_ts {mark.commit_ts}: {reason}"
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, PAUSE_MAX_S)


ASK_S: Final = 0.5
QUIET_ASK_S: Final = 1.5
QUIET_AFTER_S: Final = 10.0


class IdleAsking:
    """Pumps that the position rests on are asked (`ask`) for a higher one, even if nothing is written.

    Every `ask_s` while binlogs come and for ten seconds after the last of them, and while a pump closes:
    it leaves when the checkpoint has passed what it has. Then every `QUIET_ASK_S`; at once by `hurry`.
    What pumps say to show that they live resets nothing. Each question costs a pump a timestamp of the
    upstream, and us a message, a turn of the stream and a checkpoint: most of what nodes spend that have
    nothing to do. No row waits for it, nor is a quiet stream ever shown as one that is behind
    (`lag.IDLE_S`).
    """

    def __init__(self, ask: Callable[[], None], ask_s: float) -> None:
        self._ask = ask
        self._closing = False
        self._ask_s = ask_s
        self._time = asyncio.get_running_loop().time
        self._busy_s = self._time()
        self._hurry = asyncio.Event()

    def busy(self) -> None:
        """Binlogs arrived."""
        self._busy_s = self._time()

    def hurry(self) -> None:
        """Somebody waits for the stream to move on, and not for its rows."""
        self._busy_s = self._time()
        self._hurry.set()

    def close(self, closing: bool) -> None:
        """Whether a pump is about to leave."""
        if closing and not self._closing:
            self.hurry()
        self._closing = closing

    async def run(self) -> None:
        """Ask again and again; until cancelled."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(look_at(self._pause_s())):
                    await self._hurry.wait()
            self._hurry.clear()
            self._ask()

    def _pause_s(self) -> float:
        quiet = self._time() - self._busy_s >= QUIET_AFTER_S and not self._closing
        return max(self._ask_s, QUIET_ASK_S) if quiet else self._ask_s


__all__ = ["Collector", "Merged", "MergedBatch"]

BATCH_BYTES_MAX: Final = 1 << 20
BATCHES_QUEUED_MAX: Final = 1024
CREDIT_BYTES_MIN: Final = 1 << 20
RELIST_S: Final = 0.05
LIST_GAP_S: Final = 0.008
"""Between two listings of a reader that finds pumps itself: what arrives meanwhile goes out together."""

_logger = log.get("collector")

PUMP_POSITION: Final = metrics.gauge(
    "binlog_drainer_pump_position",
    "Physical milliseconds up to which everything of a pump has arrived.",
    ["nodeID"],
)
PUMP_HELD_BYTES: Final = metrics.gauge(
    "binlog_drainer_collector_held_bytes", "Binlogs of a pump that wait for other pumps.", ["nodeID"]
)
PULLED_BINLOGS: Final = metrics.counter(
    "binlog_drainer_collector_binlogs_total", "Binlogs that arrived from a pump.", ["nodeID"]
)
PULLED_BYTES: Final = metrics.counter(
    "binlog_drainer_collector_pulled_bytes_total", "Payload bytes that arrived from a pump.", ["nodeID"]
)
DDL_JOBS: Final = metrics.counter("binlog_drainer_ddl_jobs_total", "DDL passed on with its job.")


T = TypeVar("T")


class QueueClosed(Exception):
    """The queue was closed: nothing will come, nothing is taken any more."""


class BoundedQueue(Generic[T]):
    """First in, first out, from one task to one other; bounded in bytes and in items.

    An item larger than the whole queue passes alone, when the queue is empty: it must not block for ever.
    Closing wakes both: the reader gets what is left and then `QueueClosed`, the writer `QueueClosed` at once.
    """

    def __init__(self, *, bytes_max: int, items_max: int) -> None:
        assert bytes_max > 0
        assert items_max > 0
        self._bytes_max = bytes_max
        self._items_max = items_max
        self._entries: deque[tuple[T, int]] = deque()
        self._bytes = 0  # the sum of what is in `_entries`
        self._closed = False
        # The reader waits for an empty queue to change, the writer for a full one: never both.
        self._changed = asyncio.Event()

    def __len__(self) -> int:
        return len(self._entries)

    async def put(self, item: T, size: int) -> None:
        """Append, waiting for room; `size` in bytes. Raises `QueueClosed`."""
        while self._entries and not self._closed and not self._has_room(size):
            self._changed.clear()
            await self._changed.wait()
        if self._closed:
            raise QueueClosed
        self._entries.append((item, size))
        self._bytes += size
        self._changed.set()

    def _has_room(self, size: int) -> bool:
        return self._bytes + size <= self._bytes_max and len(self._entries) < self._items_max

    async def get(self) -> T:
        """The oldest item, waiting for one. Raises `QueueClosed` when closed and empty."""
        while not self._entries:
            if self._closed:
                raise QueueClosed
            self._changed.clear()
            await self._changed.wait()
        item, size = self._entries.popleft()
        self._bytes -= size
        self._changed.set()
        return item

    def close(self) -> None:
        """Take nothing more. Idempotent."""
        self._closed = True
        self._changed.set()


class Collector:
    """`after_ts`: everything at or below it is applied. `queue_bytes_max` bounds what waits for the applier;
    a pump may send a quarter of it ahead of the others. `compressor`: "zstd" or "gzip", what pumps are asked
    to compress with; "": with nothing. `history`: None where nobody needs the jobs of DDL."""

    def __init__(
        self,
        registry: PumpListing,
        history: JobHistory | None,
        *,
        cluster_id: int,
        after_ts: Ts,
        clock: Clock,
        queue_bytes_max: int,
        spill: SpillDirectory,
        connect: Callable[[str], PullClient] = rpc.Client,
        idle_ask_s: float = ASK_S,
        unbroken: Callable[[], int | None] = lambda: 0,
        finds_pumps: bool = False,
        compressor: str = "",
        choice: PullChoice = PullChoice(),  # noqa: B008 -- it is frozen
    ) -> None:
        self._registry = registry
        self._jobs = JobReader(history) if history is not None else None
        self._clock = clock
        self._spill = spill
        self.asking = IdleAsking(self._ask_idle, idle_ask_s)
        # A number that changes when the lease may have run out, None until the registry hears from us again;
        # `_listed_while`: of the last listing. Nothing goes out while the two differ.
        self._unbroken = unbroken
        self._listed_while = 0
        # A reader without a lease: before the merger's ceiling rises, pumps are listed, from `_list_due_s`
        # on the loop's clock; `_list_trouble` is why that fails now, "" if it does not.
        self._finds_pumps = finds_pumps
        self._list_due_s = 0.0
        self._list_trouble = ""
        # Offline pumps of which nothing is missing, with the revision of the entry that says so.
        self._accounted: dict[str, int] = {}
        self._make_source = functools.partial(
            PumpSource,
            cluster_id=cluster_id,
            credit_bytes=max(CREDIT_BYTES_MIN, queue_bytes_max // 4),
            connect=connect,
            spill=spill,
            compressor=compressor,
            choice=choice,
        )
        self._queue: BoundedQueue[MergedBatch] = BoundedQueue(
            bytes_max=queue_bytes_max, items_max=BATCHES_QUEUED_MAX
        )
        self._merger = Merger(after_ts, ceiling=after_ts if finds_pumps else tso.TS_MAX)
        self._announced_ts = after_ts  # the watermark of the last batch that was queued; never falls
        # A stream is what the merger knows: the node id, or after a comeback a name of its own, numbered by
        # `_joined`. Sources and tasks are by stream and have the same keys, the values of `_streams`, whose
        # keys are node ids. A stream may stay in the merger after its source is gone.
        self._sources: dict[str, PumpSource] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._streams: dict[str, str] = {}
        self._joined = 0
        self._ddl: dict[int, DdlMark] = {}  # that arrived and were not emitted, by commit_ts
        # The registry as it was seen last, at its revision (-1: never). `_missing`: pumps that are waited for
        # and have no entry.
        self._pumps: Mapping[str, NodeEntry] = {}
        self._revision = -1
        self._missing: set[str] = set()
        self._group: asyncio.TaskGroup | None = None  # of `run`; None: no source is started
        self._ready = asyncio.Event()  # `run` has begun
        self._wake = asyncio.Event()  # the merger may have more to give

    # -- for the daemon -------------------------------------------------------------------------------

    async def run(self) -> None:
        """Collect until cancelled. Raises the first error that makes it impossible to continue."""
        self._spill.clean()
        try:
            async with asyncio.TaskGroup() as group:
                self._group = group
                self._ready.set()
                group.create_task(self._discover(), name="discover pumps")
                group.create_task(self._merge(), name="merge")
                group.create_task(self.asking.run(), name="ask idle pumps")
        except BaseExceptionGroup as errors:
            raise _first(errors) from None
        finally:
            self._group = None
            self._queue.close()

    async def batches(self) -> AsyncIterator[MergedBatch]:
        """The merged stream. A batch without entries says that the watermark rose. Ends with `run`.

        Who asks for the next batch needs the files of the one before no more.
        """
        while (batch := await self.next_batch()) is not None:
            yield batch
            for entry in batch.entries:
                if entry.spilled is not None:
                    entry.spilled.release()

    async def next_batch(self) -> MergedBatch | None:
        """The next one of `batches`, None at its end; releasing files is up to the caller."""
        try:
            return await self._queue.get()
        except QueueClosed:
            return None

    async def notify(self) -> None:
        """Read the registry now; when this returns, every pump in it is waited for by the merge.

        Raises `Unavailable` when the registry does not answer.
        """
        await self._ready.wait()
        await self._look()

    # -- for the status -------------------------------------------------------------------------------

    def positions(self) -> dict[str, int]:
        """By pump, the timestamp up to which everything of it has arrived."""
        return {node_id: self._sources[stream].position for node_id, stream in self._streams.items()}

    def states(self) -> dict[str, SourceStatus]:
        """By pump, what it is and what it is doing; `holds` says that the stream waits for it."""
        now_s = self._clock.wall_s()
        awaited = self._merger.awaits()
        states: dict[str, SourceStatus] = {}
        for node_id, stream in self._streams.items():
            source, entry = self._sources[stream], self._pumps.get(node_id)
            states[node_id] = SourceStatus(
                state=entry.status.state if entry else "gone from the registry",
                alive=entry.alive if entry else None,
                address=source.address,
                position=source.position,
                lag_s=round(max(0.0, tso.age_s(source.position, now_s)), 3),
                connected=source.connected,
                protocol="PullBatches" if source.speaks_batches else "PullBinlogs",
                compression=source.compression,
                held_bytes=source.held_bytes,
                spilled_bytes=source.spilled_bytes,
                waits_for_start_ts=source.waits_for_start_ts,
                holds=stream in awaited,
                error=source.error,
            )
        return states

    @property
    def queued_batches(self) -> int:
        """Batches that wait for the applier."""
        return len(self._queue)

    @property
    def waits_for(self) -> str:
        """What the stream waits for, in words; "" while it flows."""
        if self._revision < 0:
            return "the first listing of pumps from the registry"
        if self._unbroken() is None:
            return "the registry: until it hears from us, pumps may join without telling us"
        if self._list_trouble:
            return f"the registry, for pumps that may have joined: {self._list_trouble}"
        if self._jobs is not None and self._jobs.waits_for:
            return self._jobs.waits_for
        if self._spill.waiting:
            return self._spill.waiting
        if not self._sources:
            return "a pump: none is registered"
        awaited = self._merger.awaits()
        down = [stream for stream in awaited if not self._sources[stream].connected]
        if down:
            return f"pump {', '.join(sorted(down))}, not reachable; `binlogctl -cmd pumps` shows its state"
        if awaited:
            return "the watermark of pump " + ", ".join(map(self._held_by, sorted(awaited)))
        return ""

    def _held_by(self, stream: str) -> str:
        start_ts = self._sources[stream].waits_for_start_ts
        return f"{stream} (open transaction with start_ts {start_ts})" if start_ts else stream

    # -- discovery ------------------------------------------------------------------------------------

    async def _discover(self) -> None:
        views = self._registry.watch()
        try:
            async for view in views:
                self._see(view)
        finally:
            close = getattr(views, "aclose", None)
            if close is not None:
                await close()

    async def _look(self) -> None:
        """See the registry as it is now. Raises `Unavailable`.

        Of two answers the older one may come last. But one that is older than what was known when it was
        asked for is of a registry that was put back.
        """
        revision = self._revision
        view = await self._registry.view()
        self._see(view, fresh=self._revision == revision)

    def _see(self, view: ClusterView, *, fresh: bool = False) -> None:
        """Make the sources those of the view, in one step. An older one may come after a younger."""
        if view.revision < self._revision and not fresh:
            return
        before, self._pumps, self._revision = self._pumps, view.pumps, view.revision
        streams = dict(self._streams)
        for node_id, entry in view.pumps.items():
            stream = self._streams.get(node_id)
            gone = entry.status.state == node.OFFLINE
            if gone and self._finds_pumps:
                self._account(node_id, entry)
            if stream is None:
                if not gone:
                    self._join(node_id, entry)
            elif gone:
                self._leave(node_id, stream)
            else:
                source = self._sources[stream]
                source.move_to(entry.status.host)
                last = before.get(node_id)
                if last is None or last.status.state != entry.status.state or last.alive != entry.alive:
                    source.retry_now()
        missing = {node_id for node_id in self._streams if node_id not in view.pumps}
        for node_id in missing - self._missing:
            _logger.warning(
                "pump has lost its registry entry and is still waited for",
                pump=node_id,
                hint="if it is gone for good, set it offline with `binlogctl -cmd update-pump`",
            )
        self._missing = missing
        self.asking.close(any(entry.status.state == node.CLOSING for entry in view.pumps.values()))
        if self._streams != streams:  # most views are heartbeats
            self._wake.set()

    def _account(self, node_id: str, entry: NodeEntry) -> None:
        """A pump that left has waited for drainers, not for us. Raises `BinlogsGone`."""
        if self._accounted.get(node_id) == entry.mod_revision:
            return
        stream = self._streams.get(node_id)
        position = self._merger.position if stream is None else self._sources[stream].position
        if position < entry.status.max_commit_ts:
            raise BinlogsGone(
                f"pump {node_id} has left the cluster with binlogs up to commit_ts "
                f"{entry.status.max_commit_ts}; of it only those up to {position} were read",
                lowest=entry.status.max_commit_ts,
                hint=f"read the tables anew and start at {entry.status.max_commit_ts} or later; a reader"
                " with a name is waited for",
            )
        self._accounted[node_id] = entry.mod_revision

    def _join(self, node_id: str, entry: NodeEntry) -> None:
        group = self._group
        if group is None:
            return
        stream = node_id
        while stream in self._merger.source_ids:  # what it sent before it left is not merged yet
            self._joined += 1
            stream = f"{node_id} (again {self._joined})"
        position = self._merger.position

        def deliver(arrival: Arrival) -> None:
            if self._sources.get(stream) is source:  # else it went offline while this was on its way
                self._deliver(stream, source, arrival)

        source = self._make_source(node_id, entry.status.host, after_ts=position, deliver=deliver)
        self._merger.add_source(stream, position)
        self._sources[stream] = source
        self._streams[node_id] = stream
        self._tasks[stream] = group.create_task(source.run(), name=f"pump {node_id}")
        PUMP_POSITION.labels(node_id).set_function(lambda: tso.physical_ms(source.position))
        PUMP_HELD_BYTES.labels(node_id).set_function(lambda: source.held_bytes)
        _logger.info(
            "pump joins", pump=node_id, address=entry.status.host, state=entry.status.state, after_ts=position
        )

    def _leave(self, node_id: str, stream: str) -> None:
        source = self._sources.pop(stream)
        del self._streams[node_id]
        self._tasks.pop(stream).cancel()
        self._merger.end(stream)
        for metric in (PUMP_POSITION, PUMP_HELD_BYTES):
            metric.remove(node_id)
        _logger.info("pump leaves, it is offline", pump=node_id, position=source.position)

    # -- merging --------------------------------------------------------------------------------------

    def _deliver(self, stream: str, source: PumpSource, arrival: Arrival) -> None:
        changed = self._merger.push(stream, arrival.entries, arrival.watermark)
        for mark in arrival.ddl:
            self._ddl[mark.commit_ts] = mark
        if arrival.entries:
            self.asking.busy()
            sizes = [spilled.size if spilled else len(payload) for _, payload, _, spilled in arrival.entries]
            note_arrival(source.node_id, sizes, arrival.entries[-1].commit_ts, self._clock.wall_s())
            PULLED_BINLOGS.labels(source.node_id).inc(len(arrival.entries))
            PULLED_BYTES.labels(source.node_id).inc(sum(sizes))
        if changed:  # a sign of life says nothing new
            self._wake.set()

    async def _merge(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while True:
                if self._unbroken() != self._listed_while:
                    await self._list_again()
                with trace.span("merges", "merge"):
                    popped = self._merger.pop(BATCH_BYTES_MAX)
                for stream, size in popped.released.items():
                    if stream in self._sources:
                        self._sources[stream].release(size)
                for stream, watermark in self._merger.awaits().items():
                    self._sources[stream].ask(watermark)
                newest = self._merger.newest_waiting
                for source in self._sources.values():
                    source.tell(newest)
                if not popped.entries and popped.watermark <= self._announced_ts:
                    if self._merger.is_held_by_ceiling:
                        await self._raise_ceiling()
                        continue
                    break
                await self._emit(popped.entries, popped.watermark)

    async def _list_again(self) -> None:
        """A pump that joined while we had no lease did not wait for us: find it before anything goes out."""
        while (now := self._unbroken()) != self._listed_while:
            try:
                if now is not None:
                    await self._look()
                    self._listed_while = now
                    continue
            except Unavailable:
                pass
            await asyncio.sleep(RELIST_S)

    async def _raise_ceiling(self) -> None:
        """Find the pumps that there are; what was known before may go out."""
        loop = asyncio.get_running_loop()
        await asyncio.sleep(max(0.0, self._list_due_s - loop.time()))
        while True:
            positions = (source.position for source in self._sources.values())
            reached_ts = max(*positions, self._merger.reach, 0)
            try:
                await self._look()
            except Unavailable as error:
                self._list_trouble = error.message
                await asyncio.sleep(RELIST_S)
                continue
            self._list_trouble = ""
            self._list_due_s = loop.time() + LIST_GAP_S
            self._merger.ceiling = reached_ts
            return

    def _ask_idle(self) -> None:
        """Let the watermark follow the clock where nothing is written: lag and checkpoint are of now. Asked
        for is more than any quiet pump has: each would take what another drew a question ago."""
        position = self._merger.position
        near_ms = tso.physical_ms(position) + round(QUIET_ASK_S * 2000)
        near = [source for source in self._sources.values() if tso.physical_ms(source.position) <= near_ms]
        for source in near:
            source.ask(max(other.position for other in near) + 1)

    async def _emit(self, entries: list[Merged], watermark: int) -> None:
        """Queue entries; a DDL gets its job, what lies before it does not wait for that."""
        if self._ddl:
            begin = 0
            for index, entry in enumerate(entries):
                mark = self._ddl.pop(entry.commit_ts, None)
                if mark is None:
                    continue
                await self._put(entries[begin:index], entry.commit_ts - 1)
                begin = index + 1
                if mark.query.startswith(binlog.SEQUENCE_VALUE):
                    continue  # a sequence's value moved: its job does not exist, nothing runs downstream
                job = None
                if self._jobs is not None and mark.schema_state != SchemaState.DELETE_ONLY:  # else under way
                    with trace.span("reads a DDL job", "merge", job_id=mark.job_id):
                        job = await self._jobs.read(mark)
                    DDL_JOBS.inc()
                await self._put([entry._replace(job=job)], entry.commit_ts)
            entries = entries[begin:]
        await self._put(entries, watermark)

    async def _put(self, entries: list[Merged], watermark: int) -> None:
        if entries or watermark > self._announced_ts:
            self._announced_ts = max(self._announced_ts, watermark)
            size = sum(len(entry.payload) for entry in entries)
            batch = MergedBatch(entries, self._announced_ts)
            if trace.is_on():
                trace.moment("merged", "merge", **batch.facts())
            with trace.span("waits for room", "merge"):
                await self._queue.put(batch, size)


def _first(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    """The first cause, out of nested groups."""
    error: BaseException = errors
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
