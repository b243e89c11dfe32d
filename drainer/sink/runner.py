"""Runner: ordered binlogs in, calls of one sink out. Every kind of downstream is driven by it.

Owns    the wait for the next batch, what is held back by operators, the counters of what was taken
Holds   a sink is called as `drainer.sink` says: in order, one call at a time, and not after its end
Stops   `stop` takes no further item, lets the sink finish what was begun within a limit of time and close

Tests  tests/contract/test_sink.py
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any, Final, Generic, Protocol, TypeVar

from drainer import metrics
from drainer.operate.control.pause_and_reload import Control
from drainer.sink import Sink
from drainer.sink.findings import Findings
from drainer.sink.traced_items import TRACK, ItemSource, TracedItems, traced
from drainer.stream.pull.merged import MergedBatch, Spilled
from drainer.stream.rules.rule_history import RuleChange
from drainer.stream.rules.rule_set import Rules
from drainer.txn import INSERT, Ddl, LargeTransaction, Transaction
from tidb_binlog.clock import SystemClock, look_later
from tidb_binlog.errors import ConfigError, Rejected, Unavailable
from tidb_binlog.observe import log, trace
from tidb_binlog.status.drainer import LaneStatus, MismatchStatus
from tidb_binlog.status.troubles import STUCK_S
from tidb_binlog.tso import Ts

logger = log.get("drainer.applier")

HELD: Final = "held back by the operator"
HELD_TO_COMPARE: Final = "held still for a moment, for snapshots of the downstream"
IN_SNAPSHOT: Final = "sending the rows of the snapshot"
S = TypeVar("S", bound=Sink)


class TakeRows(Protocol):
    """Give rows of a snapshot to the sink, which stores them; `count` of them."""

    async def __call__(self, rows: LargeTransaction, count: int, *, is_end: bool) -> None: ...


class First(Protocol):
    """Rows of a snapshot, which come before the stream."""

    @property
    def ts(self) -> Ts:
        """The stream follows it."""
        ...

    async def give(self, take: TakeRows, save: Callable[[], Awaitable[None]]) -> None:
        """All of them, or until `close`. `save` stores the checkpoint behind them."""
        ...

    async def close(self) -> None:
        """Idempotent."""
        ...


class Runner(Generic[S]):
    """`control`: what operators hold back. `rules`: of a stream whose filters and routes may change.
    `interval_s` between checkpoints. `first`: what is given before the stream. `findings`: of the process."""

    def __init__(
        self,
        sink: S,
        items: ItemSource,
        control: Control | None = None,
        *,
        rules: RuleChange | None = None,
        interval_s: float = 0.5,
        first: First | None = None,
        findings: Findings | None = None,
    ) -> None:
        self.sink = sink
        self._first = first
        self._interval_s = interval_s
        self._traced = TracedItems(items) if trace.is_on() else None
        self._items: ItemSource = self._traced or items
        self._control = control or Control(SystemClock())
        self._control.on_change = sink.background.wake
        self._control.on_resume = sink.try_again
        self._hold = hold = self._control.hold
        hold.on_change = self._wake
        hold.place_ts, hold.doing = lambda: self.handed_over_ts, lambda: self.doing
        self.rules = RuleTaking(
            rules or RuleChange(None, Rules(), None), sink, self._wake, lambda: self.doing
        )
        self.on_wake: Callable[[], None] = lambda: None
        """Called when somebody waits for the stream to come to a place (a hold, other rules)."""
        self._taking = BatchTaking()
        self._finished = asyncio.Event()
        self._broken = False
        self._doing = "starting"
        self._saving_since_s: float | None = None
        self._kinds: list[int] = []  # of the row events taken since the last flush
        self._findings = findings or Findings(self._control.clock)
        self.transactions = self.rows = self.ddl = 0

    # -- what the status shows ---------------------------------------------------------------------

    @property
    def stored_ts(self) -> Ts:
        return self.sink.stored_ts

    @property
    def after_ts(self) -> Ts:
        """From where to pull."""
        return self._first.ts if self._first is not None else self.sink.start_ts

    @property
    def resolved_ts(self) -> Ts:
        return self.sink.resolved_ts

    @property
    def handed_over_ts(self) -> Ts:
        return self.sink.handed_over_ts

    def lane_states(self) -> list[LaneStatus]:
        return self.sink.lane_states()

    def mismatches(self) -> MismatchStatus:
        return self._findings.drift.status()

    def facts(self) -> dict[str, Any]:
        return self._findings.early_rows.facts | self.sink.facts()

    @property
    def doing(self) -> str:
        return self.sink.held_up or self.sink.doing or self._doing

    @property
    def held_up(self) -> str:
        """What keeps the sink from writing, "" while nothing does: also a downstream that never answers.
        While it does something that takes its time, a DDL, storing waits for that."""
        began_s = None if self.sink.doing else self._saving_since_s
        unsaved_s = 0.0 if began_s is None else asyncio.get_running_loop().time() - began_s
        unsaved = f"the checkpoint is not stored, for {unsaved_s:.0f} s" if unsaved_s >= STUCK_S else ""
        return self.sink.held_up or unsaved

    def _wake(self) -> None:
        self._taking.wake()
        self.sink.background.wake()
        self.on_wake()

    # -- tasks of the daemon ---------------------------------------------------------------------

    async def run(self, batches: AsyncIterator[MergedBatch]) -> None:
        """Apply until stopped. Raises what made it impossible to go on."""
        self.sink.start()
        if self.sink.can_be_held:
            self._hold.state.open(self.sink.equal_from_ts)
        try:
            if self._first is not None:
                self._doing = IN_SNAPSHOT
                await self._first.give(self._take_rows, self.sink.save)
            while (batch := await self._next_batch(batches)) is not None:
                with traced(batch):
                    await self._apply(batch)
        except BaseException as error:
            # A transaction may be cut half: what was not flushed stays out, the next start brings it.
            self._broken = True
            await self.sink.failed(error)
            raise
        finally:
            self._hold.end("the stream ended")
            self._finished.set()

    async def _next_batch(self, batches: AsyncIterator[MergedBatch]) -> MergedBatch | None:
        self._doing = self._doing if self._taking.is_stopping() else "waiting for binlogs"
        with trace.span("waits for binlogs", TRACK):
            return await self._taking.take(batches)

    async def watch(self) -> None:
        """Ends with the first error of what works beside the stream."""
        await self.sink.background.watch()

    async def keep_checkpoint(self) -> None:
        """Store the checkpoint whenever it has moved, at most once an interval."""
        while True:
            await look_later(self._interval_s)
            self._saving_since_s = asyncio.get_running_loop().time()
            await self.sink.save()
            self._saving_since_s = None

    def change_interval(self, interval_s: float) -> None:
        """Between checkpoints, from the next one on."""
        self._interval_s = interval_s

    async def stop(self, deadline_s: float) -> bool:
        """Finish what was begun. True if the downstream now has what the stored checkpoint says, no more.

        A transaction that came in pieces is not finished. Raises what made it impossible to finish, after
        everything is closed.
        """
        sink, finished = self.sink, False
        self._taking.stop()
        if self._first is not None:
            await self._first.close()
        self._control.let_go()
        sink.stop()
        sink.background.wake()
        try:
            async with asyncio.timeout(deadline_s):
                await self._finished.wait()
                await sink.finish(broken=self._broken)
                finished = True
        except TimeoutError:
            logger.warning("the sink did not finish in time, its position is kept", deadline_s=deadline_s)
        except Exception as error:
            logger.failure("the sink could not finish", error)
            sink.background.fail(error)
        whole = await sink.close(finished=finished)
        if not finished and sink.background.failure.done():
            await sink.background.failure
        return whole

    # -- the stream --------------------------------------------------------------------------------

    async def _apply(self, batch: MergedBatch) -> None:
        sink, control, rules, hold = self.sink, self._control, self.rules, self._hold.state
        self._doing = sink.verb
        for merged in batch.entries:
            while merged.commit_ts > hold.boundary_ts:
                await self._stand_still()
            if merged.commit_ts > rules.boundary_ts:
                await rules.leave_past()
            if control.holds and control.paused:
                await self._pause()
                if control.paused:
                    break  # let go since it ends: the next start goes on from here
            if merged.spilled is not None:
                await self._apply_large(merged.spilled)
            else:
                item = self._items.translate(merged)
                if isinstance(item, Ddl):
                    await self._apply_ddl(item)
                else:
                    self._findings.early_rows.note_rows(item)
                    if control.holds:
                        await self._admit(item)
                        if control.paused:
                            break
                    self._count(await sink.take(item))
                    if len(self._kinds) >= sink.flush_rows:
                        await self._flush()
                        await sink.ready()
            if self._taking.is_stopping():
                break
        else:
            while sink.handed_over_ts >= hold.boundary_ts:
                await self._stand_still()
            if batch.watermark > sink.handed_over_ts:
                sink.watermark(batch.watermark)
        await self._flush()
        await sink.ready()
        if not self._taking.is_stopping():
            await self._between_batches()

    async def _between_batches(self) -> None:
        rules = self.rules
        if self.sink.handed_over_ts >= rules.boundary_ts:
            await rules.leave_past()
        if rules.pending:
            await rules.take()
        while self.sink.handed_over_ts >= self._hold.state.boundary_ts:
            await self._stand_still()
        await self.sink.between_batches()

    async def _stand_still(self) -> None:
        """For who compares the downstream, until he has seen it."""
        await self._flush()
        self._doing = HELD_TO_COMPARE
        await self._hold.keep(self.sink.hold_point, self.sink.background.until)
        self._doing = self.sink.verb

    async def _apply_large(self, spilled: Spilled) -> None:
        """Piece by piece; reading the file and translating it is done on a thread."""
        self._doing = f"{self.sink.verb} the large transaction of commit_ts {spilled.commit_ts}"
        if self.sink.reads_large:
            await self._apply_whole(spilled)
            return
        await self.sink.begin_large(spilled, self._pieces(spilled))
        async for piece in self._pieces(spilled):
            self._findings.early_rows.note_rows(piece)
            if self._control.holds:
                await self._admit(piece)
                if self._control.paused:
                    return
            self._count(await self.sink.take_piece(piece))
            self._publish_count()
        self._doing = self.sink.verb

    async def _take_rows(self, rows: LargeTransaction, count: int, *, is_end: bool) -> None:
        """Of a snapshot."""
        if self._control.holds:
            self._doing = HELD
            await self._control.admit(count, rows.size_bytes)
            if self._control.paused:
                raise Unavailable("the stream stops, and these rows were not to go out yet")
            self._doing = IN_SNAPSHOT
        await self.sink.take_snapshot(rows, is_end=is_end)
        self.transactions += 1
        self.rows += count
        metrics.ROW_EVENTS[INSERT].inc(count)

    async def _apply_whole(self, spilled: Spilled) -> None:
        """The sink reads it; what it read last is counted."""
        await self._flush()
        note = self._findings.early_rows.note_rows
        reading = LargeReading(self._items, spilled, self._taking.is_stopping, note)
        if self._control.holds:
            await self._control.admit(0, spilled.size)
        await self.sink.take_large(
            LargeTransaction(spilled.start_ts, spilled.commit_ts, spilled.size, reading.pieces)
        )
        self.transactions += 1
        self.rows += sum(reading.counts)
        for count, metric in zip(reading.counts, metrics.ROW_EVENTS, strict=True):
            metric.inc(count)
        if self._control.holds:
            await self._control.admit(sum(reading.counts), 0)
        self._doing = self.sink.verb

    async def _pieces(self, spilled: Spilled) -> AsyncIterator[Transaction]:
        """Ends early when the stream is to stop."""
        pieces = await asyncio.to_thread(self._items.pieces, spilled)
        while (
            piece := await asyncio.to_thread(next, pieces, None)
        ) is not None and not self._taking.is_stopping():
            yield piece

    async def _apply_ddl(self, ddl: Ddl) -> None:
        await self._flush()
        if self._control.holds:
            self._doing = HELD
            await self._control.admit(1, len(ddl.query))
        if self._taking.is_stopping():
            return
        self._findings.early_rows.note_ddl(ddl)
        await self.sink.take_ddl(ddl)
        self.ddl += not ddl.skip
        self._doing = self.sink.verb

    async def _pause(self) -> None:
        """Nothing is translated meanwhile: other rules may come."""
        await self._flush()
        self._doing = HELD
        control, rules, hold = self._control, self.rules, self._hold.state

        def is_wanted() -> bool:
            return rules.pending or self.sink.handed_over_ts >= hold.boundary_ts

        while control.holds and control.paused:
            if rules.pending:
                await rules.take()
            if self.sink.handed_over_ts >= hold.boundary_ts:
                await self._stand_still()
                self._doing = HELD
            await self.sink.background.until(lambda: is_wanted() or not (control.holds and control.paused))
        self._doing = self.sink.verb

    async def _admit(self, transaction: Transaction) -> None:
        """What was taken before goes out; then wait for leave."""
        await self._flush()
        self._doing = HELD
        rows = sum(len(events.rows) for events in transaction.tables)
        await self._control.admit(rows, transaction.size_bytes)
        self._doing = self.sink.verb

    async def _flush(self) -> None:
        if self._traced is not None:
            self._traced.flushed()
        self._publish_count()
        with trace.span("hands over", TRACK):
            await self.sink.flush()

    def _count(self, taken: Transaction | None) -> None:
        if taken is None:
            return
        if taken.last:
            self.transactions += 1
        for events in taken.tables:
            self.rows += len(events.rows)
            self._kinds += events.kinds

    def _publish_count(self) -> None:
        if self._kinds:
            for kind, metric in enumerate(metrics.ROW_EVENTS):
                metric.inc(self._kinds.count(kind))
            self._kinds.clear()


class LargeReading:
    """One large transaction, for a sink that reads it on a thread of its own. `counts`: its rows by kind."""

    def __init__(
        self,
        items: ItemSource,
        spilled: Spilled,
        is_stopping: Callable[[], bool],
        note: Callable[[Transaction], None],
    ) -> None:
        self._items = items
        self._spilled = spilled
        self._is_stopping = is_stopping
        self._note = note
        self.counts = [0, 0, 0]

    def pieces(self) -> Iterator[Transaction]:
        """From its beginning. Raises `Unavailable` when the stream is to stop."""
        self.counts = counts = [0, 0, 0]
        for piece in self._items.pieces(self._spilled):
            if self._is_stopping():
                raise Unavailable(f"the stream stops within the transaction of {piece.commit_ts}")
            self._note(piece)
            for events in piece.tables:
                for kind in range(3):
                    counts[kind] += events.kinds.count(kind)
            yield piece


class BatchTaking:
    """The merged stream, a batch at a time, for one consumer: `stop` ends the wait for the next batch, `wake`
    interrupts it (the batch comes with the next take). Cancelling for another reason passes through."""

    def __init__(self) -> None:
        self._stopping = False
        self._next: asyncio.Future[MergedBatch] | None = None
        self._woken = asyncio.Event()

    def is_stopping(self) -> bool:
        return self._stopping

    async def take(self, batches: AsyncIterator[MergedBatch]) -> MergedBatch | None:
        """The next batch, an empty one after `wake`; None when there is none or the taker is to stop."""
        if self.is_stopping():
            return None
        following = self._next or asyncio.ensure_future(anext(batches))
        if following is not self._next:
            self._next = following
            following.add_done_callback(lambda _done: self._woken.set())
        try:
            await self._woken.wait()
            self._woken.clear()
            if not following.done():
                return MergedBatch([], 0)
            self._next = None
            return following.result()
        except StopAsyncIteration:
            return None
        except asyncio.CancelledError:
            if self.is_stopping():
                return None
            self._cancel()
            raise

    def wake(self) -> None:
        """Let a wait for a batch end with an empty one."""
        self._woken.set()

    def stop(self) -> None:
        """No batch from now on; a wait for one ends."""
        self._stopping = True
        self._cancel()

    def _cancel(self) -> None:
        if self._next is not None:
            self._next.cancel()


# Rule taking: when rules that are due come into force, put through like a DDL.
# Owns    whether what an earlier life may have dispatched has gone by
# Order   everything given is done; position and rules are stored together; the rules are taken; the reload
#         that waits for them is answered
# Stops   a reload that finds no place between two transactions in time is refused, and nothing has changed

NEVER: Final = 1 << 63


class RuleTaking:
    """`wake` lets the stream ask `wanted`, `doing` says what it is at."""

    def __init__(
        self, change: RuleChange, sink: Sink, wake: Callable[[], None], doing: Callable[[], str]
    ) -> None:
        self._change = change
        self._sink = sink
        self._wake = wake
        self._doing = doing
        self.boundary_ts = NEVER if sink.past_ts is None else sink.past_ts
        """Before the first row above it, `leave_past`; `NEVER` afterwards."""

    # -- what a reload asks ---------------------------------------------------------------------------

    @property
    def made_of(self) -> dict[str, str]:
        """Digests of the files that rules name, as they were taken last."""
        return self._change.made_of

    def at(self, ts: Ts) -> Rules:
        """Those by which a transaction of the stream goes out."""
        return self._change.at(ts)

    def check(self, rules: Rules) -> None:
        """Raises `ConfigError`, `Rejected` for rules that cannot be taken."""
        self._change.check(rules, self._sink.waits_for)

    def check_start(self) -> None:
        """Raises `ConfigError` for rules of the configuration that cannot follow those of before."""
        try:
            self._change.check_wanted(self._sink.waits_for)
        except Rejected as error:
            raise ConfigError(error.message, hint=error.hint) from None

    async def change(self, rules: Rules) -> int:
        """Have rules taken that `check` let pass; the commit_ts after which they are in force. Raises
        `Rejected`: nothing has changed."""
        return await self._change.asked_for(rules, self._wake, self._doing)

    # -- the stream, between two transactions ---------------------------------------------------------

    @property
    def pending(self) -> bool:
        """Whether a reload waits for `take`."""
        return self._change.asked and self.boundary_ts == NEVER

    async def leave_past(self) -> None:
        """All that an earlier life may have dispatched has gone by: what comes goes out as things are now."""
        self.boundary_ts = NEVER
        self._sink.leave_past()
        if self._change.due:
            await self.take()

    async def take(self) -> None:
        """Put the rules that are due in force here."""
        with self._change.taking(self._sink.place_ts, self._sink.floor_ts) as history:
            await self._sink.store_rules(history.to_json())
            self._change.take(history)
