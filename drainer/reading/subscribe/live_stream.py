"""Live stream: what the pumps of a cluster have, in order, as encoded transactions and DDL.

Drives  the collector (pull, merge), the translator (schema, rules), and the reader's presence in the registry
        before them the rows of a snapshot, which stood in the upstream at the position that follows them
Out     `next`: a `drainer.txn` transaction of which something is left after filters, a DDL that takes effect,
        or a `Large` one; None at the end
Holds   each commit_ts once, ascending; none missing that the rules let through. What ends the stream is said
        by every later call too. A call that is cancelled loses nothing: the next one gives what it would have
        A reader with a name counts as a Drainer: pumps that join wait for it. One without finds them itself
        (`drainer.stream.pull.collector`)
Stops   `close`, which leaves no task behind
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator
from typing import Final, Protocol

from drainer.points.rows.snapshot_position import SnapshotPosition
from drainer.reading.errors import BinlogsLost, OutOfOrder, StreamEnded, UpstreamWentBack
from drainer.stream.pull.collector import ASK_S, Collector, Merged, MergedBatch, PumpListing
from drainer.stream.pull.merger import OrderBroken
from drainer.stream.pull.pump_source import BinlogsGone, PullClient
from drainer.stream.pull.spill import SpillDirectory
from drainer.stream.translate.translator import Translator
from drainer.txn import Ddl, Transaction
from tidb_binlog.clock import Clock
from tidb_binlog.cluster import node
from tidb_binlog.errors import BinlogError, Corruption, Unavailable
from tidb_binlog.late_dataclass import dataclass
from tidb_binlog.process.loop_thread import require_loop
from tidb_binlog.tso import Ts
from tidb_binlog.upstream_port import Upstream

QUEUE_BYTES: Final = 32 << 20
ORACLE_S: Final = 2.0


class Presence(Protocol):
    """What a stream needs of the registry's entry for its reader. The name is taken when one of these exists;
    nothing has been given yet.

    A named reader has one (`named_reader`): its position holds the pumps' retention, pumps that join tell it.
    A reader without a name has none, and looks for pumps itself (`drainer.stream.pull.collector`).
    """

    @property
    def stored_ts(self) -> Ts:
        """Where an earlier life stopped: everything at or below it is done. 0: there was none."""
        ...

    @property
    def unbroken(self) -> int | None:
        """As of `tidb_binlog.cluster.heartbeat.Heartbeat`: pumps that join wait for who holds a lease."""
        ...

    @property
    def ended(self) -> BinlogError | None:
        """Why the program is to end, once `run` has raised it, or `store`."""
        ...

    @property
    def stored_snapshot(self) -> str:
        """How far an earlier life came in a snapshot, until the stream begins; "" if in none."""
        ...

    def begin(
        self, ts: Ts, notify: Callable[[], Awaitable[None]], snapshot: SnapshotPosition | None = None
    ) -> None:
        """The stream begins after `ts`, what is left of `snapshot` comes before. `notify` returns when it
        waits for every pump of the registry."""
        ...

    def given(self, ts: Ts, snapshot: SnapshotPosition | None = None) -> None:
        """The item of this commit_ts went to the program; rows of a snapshot up to that position."""
        ...

    def passed(self, ts: Ts) -> None:
        """Everything at or below it has been given."""
        ...

    def done(self, ts: Ts, snapshot: str = "") -> None:
        """The program has done what was given up to here. Raises `NotGiven` for what was not, and `ended`."""
        ...

    async def run(self) -> None:
        """Keep the entry true until cancelled. Raises when the name is another's, or an operator ends it."""
        ...

    async def store(self) -> bool:
        """Write the position now; False when the registry did not take it, `run` tries again."""
        ...

    async def close(self) -> None:
        """Store the position and leave the name to who comes next."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Large:
    """A transaction that lies on disk. `pieces` is read once, before the next item is asked for. `snapshot`:
    as of a transaction."""

    start_ts: Ts
    commit_ts: Ts
    pieces: Iterator[Transaction]
    snapshot: str = ""


Item = Transaction | Ddl | Large


class Before(Protocol):
    """Rows of a snapshot, which come before the stream (`first_rows`)."""

    @property
    def begin(self) -> SnapshotPosition:
        """Where they begin, or go on."""
        ...

    @property
    def is_empty(self) -> bool:
        """There are none, and no end of them."""
        ...

    async def next(self) -> tuple[Transaction | Large, SnapshotPosition] | None:
        """The next ones, and where they end; None behind the last. One that is cancelled loses nothing."""
        ...

    async def close(self) -> None:
        """Idempotent."""
        ...


class LiveStream:
    """`after_ts`: everything at or below it is not wanted. `stop_ts`: nor is anything above; None: no end.
    `before`: rows as they were at `after_ts`, which are given first."""

    def __init__(
        self,
        upstream: Upstream,
        registry: PumpListing,
        translator: Translator,
        *,
        after_ts: Ts,
        clock: Clock,
        connect: Callable[[str], PullClient],
        spill: SpillDirectory,
        presence: Presence | None = None,
        stop_ts: Ts | None = None,
        before: Before | None = None,
        queue_bytes: int = QUEUE_BYTES,
        idle_ask_s: float = ASK_S,
    ) -> None:
        self._upstream = upstream
        self._translator = translator
        self._presence = presence
        self._stop_ts = stop_ts
        self._collector = Collector(
            registry,
            upstream.history,
            cluster_id=upstream.cluster_id,
            after_ts=after_ts,
            clock=clock,
            queue_bytes_max=queue_bytes,
            spill=spill,
            connect=connect,
            idle_ask_s=idle_ask_s,
            unbroken=(lambda: presence.unbroken) if presence is not None else lambda: 0,
            finds_pumps=presence is None,
        )
        if presence is not None:
            rest = before.begin if before is not None else None
            presence.begin(after_ts, self._collector.notify, rest)
        self._before = before  # until all of it was given
        self._batch = MergedBatch([], after_ts)
        self._at = 0  # of the entry of the batch that comes next
        # Of a large transaction: it is checked; kept when the call that waits for it is cancelled.
        self._opening: asyncio.Task[Large | None] | None = None
        self._running: asyncio.Task[None] | None = None
        self._failure: BaseException | None = None  # what every later call raises
        self._ended = False  # closed
        self.position = after_ts if before is None else 0
        """Everything at or below it has been given; 0 while that is a part of a snapshot."""

    @property
    def waits_for(self) -> str:
        """What the stream waits for, in words; "" while it flows."""
        return "rows of the snapshot" if self._before is not None else self._collector.waits_for

    @property
    def absent(self) -> list[str]:
        """Pumps that hold the stream and, by the registry, do not run."""
        return [
            node_id
            for node_id, pump in self._collector.states().items()
            if pump.holds and not pump.connected and (pump.alive is False or pump.state == node.PAUSED)
        ]

    # -- life ------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Pull until `close`."""
        self._running = asyncio.create_task(self._run(), name="live stream")

    async def _run(self) -> None:
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._collector.run(), name="collector")
                if self._presence is not None:
                    tasks.create_task(self._presence.run(), name="presence")
        except BaseExceptionGroup as errors:
            cause: BaseException = errors
            while isinstance(cause, BaseExceptionGroup):
                cause = cause.exceptions[0]
            if self._failure is None:
                self._failure = await self._explained(cause)

    async def close(self) -> None:
        """End it. Idempotent."""
        self._ended = True
        for task in (self._running, self._opening):
            if task is not None:
                task.cancel()
                await asyncio.wait({task})
        if self._before is not None:
            await self._before.close()
        self._forget_batch()

    # -- items -----------------------------------------------------------------------------------------

    async def next(self) -> Item | None:
        """The next item; None when `stop_ts` is reached. Raises what ended the stream."""
        loop = self._running.get_loop() if self._running is not None else None
        require_loop(loop, "the stream", StreamEnded, "subscribe_sync")
        while True:
            item = self.ready()
            if item is None and self._before is not None:
                item = await self._next_before(self._before)
                if item is None:
                    continue
            if item is None and self._opening is not None:
                item = await self._opened()
            if item is not None:
                return item
            if self._is_over():
                return None
            batch = await self._collector.next_batch()
            if batch is None:
                await self._wait_end()
            else:
                self._forget_batch()
                self._batch, self._at = batch, 0

    def ready(self) -> Item | None:
        """The next item if it is here already. Raises what ended the stream."""
        if self._ended:
            raise StreamEnded("the stream is closed", position=self.position, hint="open another one")
        if self._failure is not None:
            raise self._failure
        if self._opening is not None or self._before is not None:
            return None
        batch, stop_ts = self._batch, self._stop_ts
        entries = batch.entries
        while self._at < len(entries):
            entry = entries[self._at]
            if stop_ts is not None and entry.commit_ts > stop_ts:
                self._passed(stop_ts)
                return None
            if entry.spilled is not None:
                self._opening = asyncio.create_task(self._open(entry), name="large transaction")
                return None
            item = self._translated(entry)
            self._at += 1
            if item is not None:
                self._gave(entry.commit_ts)
                return item
        self._passed(batch.watermark if stop_ts is None else min(batch.watermark, stop_ts))
        return None

    async def _next_before(self, before: Before) -> Item | None:
        """None behind the last one."""
        try:
            following = await before.next()
        except BinlogError as error:
            self._failure = error
            raise
        if following is None:
            self._before = None
            return None
        item, place = following
        if self._presence is not None:
            self._presence.given(item.commit_ts, place)
        if place.is_end:
            self.position = item.commit_ts
        return item

    def _translated(self, entry: Merged) -> Transaction | Ddl | None:
        try:
            item = self._translator.translate(entry)
        except BinlogError as error:
            self._failure = error
            raise
        if isinstance(item, Transaction):
            return item if item.tables else None
        return None if item.skip or item.half_done else item

    async def _open(self, entry: Merged) -> Large | None:
        """The whole payload is checked before its first piece: that takes a thread."""
        assert entry.spilled is not None
        pieces = self._translator.pieces(entry.spilled)
        first = await asyncio.to_thread(next, pieces, None)
        if first is None or (first.last and not first.tables):
            return None
        return Large(first.start_ts, first.commit_ts, _with_first(first, pieces))

    async def _opened(self) -> Large | None:
        """Of a call that was cancelled, the next one takes it up."""
        assert self._opening is not None
        try:
            item = await asyncio.shield(self._opening)
        except BinlogError as error:
            self._failure = error
            raise
        self._opening = None
        entry = self._batch.entries[self._at]
        self._at += 1
        if item is not None:
            self._gave(entry.commit_ts)
        return item

    def take_back(self, commit_ts: Ts, error: BinlogError) -> None:
        """The item that was given last cannot be read: it was not given, and ends the stream."""
        self.position = min(self.position, commit_ts - 1 if self._before is None else 0)
        self._failure = error

    def _gave(self, commit_ts: Ts) -> None:
        self.position = commit_ts
        if self._presence is not None:
            self._presence.given(commit_ts)

    def _passed(self, ts: Ts) -> None:
        if ts > self.position:
            self.position = ts
        if self._presence is not None:
            self._presence.passed(ts)

    def _is_over(self) -> bool:
        return self._stop_ts is not None and self.position >= self._stop_ts

    def _forget_batch(self) -> None:
        """Who asks for the next batch needs the files of the one before no more."""
        for entry in self._batch.entries:
            if entry.spilled is not None:
                entry.spilled.release()
        self._batch, self._at = MergedBatch([], self._batch.watermark), 0

    # -- the end ---------------------------------------------------------------------------------------

    async def _wait_end(self) -> None:
        """The collector has ended: say why."""
        if self._running is not None:
            await asyncio.wait({self._running})
        if self._failure is None:
            self._failure = StreamEnded("the stream is closed", position=self.position)
        raise self._failure

    async def _explained(self, error: BaseException) -> BaseException:
        """As a reader is told it."""
        position = self.position
        if isinstance(error, BinlogsGone):
            return BinlogsLost(error.message, position=position, lowest=error.lowest, hint=error.hint)
        if isinstance(error, OrderBroken):
            return OutOfOrder(error.message, position=position, hint=error.hint)
        if isinstance(error, Corruption):
            with contextlib.suppress(Unavailable, TimeoutError):
                async with asyncio.timeout(ORACLE_S):
                    now_ts = await self._upstream.oracle.timestamp()
                if now_ts < position:
                    return went_back(position, now_ts)
        return error


def went_back(position: int, now_ts: Ts) -> UpstreamWentBack:
    """For a position that the upstream has not reached."""
    return UpstreamWentBack(
        f"the position {position} lies in the future: the upstream is at {now_ts}; it went back in time, or"
        " is another one",
        position=position,
        hint="check the endpoint; after a restore of the upstream read the tables anew and start at its time",
    )


def _with_first(first: Transaction, pieces: Iterator[Transaction]) -> Iterator[Transaction]:
    yield first
    yield from pieces
