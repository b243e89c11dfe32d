"""Release: what a queue of the quarantine keeps, replayed in order until a decision is missing.

Drives  one lane whose position is that of the queue's entries, a DDL runner on a thread of its own
Owns    that thread; one queue at a time
Holds   rows and their position commit in one transaction, as in any lane; a DDL has its intent and the shape
        before it stored in the entry first, and after a kill the shape decides whether it had run. The stream
        continues meanwhile and adds to the queue's end
Stops   at a DDL without a decision, at one that is refused again, at rows that the downstream refuses
        (the queue is halted until an operator decides to retry), and at the end of what is kept
Tests   tests/drainer/ddl/quarantine/test_release.py, tests/drainer/ddl/quarantine/test_controller.py
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, Protocol, TypeVar

from drainer.checkpoint.keeper import CheckpointKeeper
from drainer.checkpoint.lane_table import Committed
from drainer.checkpoint.store import SIDE_LANES
from drainer.checkpoint.value import Intent
from drainer.ddl.policy import Policy, Ruling
from drainer.ddl.quarantine.entry import SAME_KEY, Decision, Entry, Floor
from drainer.ddl.quarantine.log import Frozen, KeptDdl, QuarantineLog
from drainer.ddl.quarantine.queue_state import QueueEvent
from drainer.ddl.quarantine.store import Decided, QuarantineTable, ReleaseTable
from drainer.ddl.quarantine.waiting_tables import Quarantine, Queue
from drainer.ddl.rules import APPLY, REWRITE, SKIP, STOP
from drainer.ddl.run.progress import told
from drainer.ddl.run.runner import DdlRunner
from drainer.mysql.rows.causality import Spread
from drainer.mysql.rows.change import Position, TableTarget
from drainer.txn import Ddl, TableVersion, Transaction
from tidb_binlog.clock import Clock
from tidb_binlog.errors import DownstreamError
from tidb_binlog.late_dataclass import dataclass, replace
from tidb_binlog.observe import log
from tidb_binlog.tso import Ts

logger = log.get("drainer.quarantine_release")
_BY_RULE: Final = (SKIP, REWRITE)
T = TypeVar("T")


class ReleaseLanes(Protocol):
    """A lane set of one lane."""

    def start(self) -> None: ...
    def unknown(self, transaction: Transaction) -> list[TableVersion]: ...
    def learn(self, targets: Iterable[TableTarget]) -> None: ...
    def forget(self) -> object: ...
    def dispatch(self, transaction: Transaction) -> int: ...
    def hand_over(self, upto_ts: Ts) -> None: ...
    @property
    def has_room(self) -> bool: ...
    @property
    def drained(self) -> bool: ...
    @property
    def resolved_ts(self) -> Ts: ...
    async def end(self, *, drained: bool) -> None: ...


MakeLanes = Callable[
    [Position, ReleaseTable, Callable[[], None], Callable[[BaseException], None]], ReleaseLanes
]
"""(position, its table, on progress, on failure): the callbacks are called on the event loop."""


@dataclass(frozen=True, slots=True)
class ReleaseDependencies:
    """What release works with. `targets` blocks; `runner_for` takes the tracked schema after a DDL."""

    keeper: CheckpointKeeper
    table: QuarantineTable
    make_lanes: MakeLanes
    targets: Callable[[list[TableVersion], int], list[TableTarget]]
    runner_for: Callable[[Frozen], DdlRunner]
    clock: Clock
    numbers: Iterator[int]  # of decisions
    on_freed: Callable[[], None]  # there may be space on the disk
    in_the_way: Callable[[Ddl], str]  # of other tables with the same target
    held: Callable[[], bool] = lambda: False  # an operator has paused all that is written


class Release:
    """`policy` gives the rules in force for DDL that waited after the one that was decided."""

    def __init__(
        self, quarantine: Quarantine, dependencies: ReleaseDependencies, policy: Callable[[], Policy]
    ) -> None:
        self._quarantine = quarantine
        self._dependencies = dependencies
        self._keeper = dependencies.keeper
        self._table = dependencies.table
        self._numbers = dependencies.numbers
        self._clock = dependencies.clock
        self._policy = policy
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="release")
        self._changed = asyncio.Event()
        self._failure: BaseException | None = None
        self._lanes: ReleaseLanes | None = None
        self._reached: Position | None = None
        self._committed = Committed()
        self._tried: set[tuple[int, str, str]] = set()  # rulings on DDL that were refused
        self._paused = False
        self.stopping = False
        self.doing = ""

    def stop(self) -> None:
        """End at the next item."""
        self.stopping = True
        self._changed.set()

    def close(self) -> None:
        self._thread.shutdown(wait=False)

    async def run(self, queue: Queue, kept: QuarantineLog, *, paused: bool = False) -> None:
        """Apply what may be applied; `queue` says afterwards where it stands. `paused`: nothing else is.

        Raises `Conflict` when another drainer took over.
        """
        self._paused, queue.wants_pause = paused, False
        if hopeless := [entry.reason for entry in queue.entries.values() if entry.is_for_a_load]:
            queue.refusal = hopeless[0]
            queue.on(QueueEvent.ROWS_REFUSED)
            return
        cursor = kept.cursor()
        try:
            while not (self.stopping or self._dependencies.held()):
                item = cursor.next()
                if not isinstance(item, Transaction) and not await self._drain(queue, kept):
                    return
                item = item or cursor.next()
                if item is None:
                    if kept.flush():
                        queue.on(QueueEvent.END_REACHED)
                    return
                if isinstance(item, Transaction):
                    await self._take(queue, kept, self._quarantine.rest_of(item))
                elif not self._quarantine.is_done(item.ddl) and not await self._handle_ddl(queue, item):
                    return
        except DownstreamError as error:
            queue.refusal = str(error)
            queue.on(QueueEvent.ROWS_REFUSED)
            logger.failure("waiting rows were refused", error, jobs=sorted(queue.entries))
        finally:
            cursor.close()
            await self._end_lanes(queue)
            self.doing = ""
        if SAME_KEY in queue.refusal and queue.state.is_halted:
            await self._keep_for_a_load(queue)

    async def _keep_for_a_load(self, queue: Queue) -> None:
        """A later life may repeat rows: it has to know that these must not be."""
        entry = replace(next(iter(queue.entries.values())), reason=queue.refusal)
        await self._store(lambda connection: self._table.put(connection, entry))
        self._quarantine.change(entry, reason=queue.refusal)

    # -- rows -----------------------------------------------------------------------------------------

    async def _take(self, queue: Queue, kept: QuarantineLog, part: Transaction) -> None:
        if not part.tables:
            return
        self.doing = f"applying rows that waited, commit_ts {part.commit_ts}"
        lanes = self._lanes or self._begin_lanes(queue)
        unknown = lanes.unknown(part)
        if unknown:
            targets = await self._blocking(self._dependencies.targets, unknown, 1)
            lanes.learn(may_repeat(targets) if any(map(_may_repeat, queue.entries.values())) else targets)
        lanes.dispatch(part)
        last = part.tables[-1]
        end = last.first_ordinal + len(last.rows)
        self._reached = Position(part.commit_ts) if part.last else Position(part.commit_ts, end)
        lanes.hand_over(self._reached.complete_ts)
        if not lanes.has_room:
            await self._until(lambda: lanes.has_room)
            self._free(kept, lanes.resolved_ts)
        else:
            await asyncio.sleep(0)

    def _begin_lanes(self, queue: Queue) -> ReleaseLanes:
        store = self._keeper.store.lane_table()
        entries = [(entry.job_id, entry.position) for entry in queue.entries.values()]
        self._committed = Committed()
        table = ReleaseTable(
            store.schema, store.cluster_id, store.epoch, self._table, entries, committed=self._committed
        )
        self._failure = None
        # What is applied already is left out before it comes here.
        self._lanes = self._dependencies.make_lanes(Position(0), table, self._changed.set, self._fail)
        self._lanes.start()
        return self._lanes

    def _fail(self, error: BaseException) -> None:
        self._failure = self._failure or error
        self._changed.set()

    async def _drain(self, queue: Queue, kept: QuarantineLog) -> bool:
        """Whether everything taken is committed; false where release is to stop first."""
        lanes = self._lanes
        if lanes is None or self._reached is None:
            return True
        await self._until(lambda: lanes.drained)
        if not lanes.drained:
            return False
        self._quarantine.advance(queue, self._reached)
        self._free(kept, self._reached.complete_ts)
        return True

    def _free(self, kept: QuarantineLog, applied_ts: Ts) -> None:
        kept.free(applied_ts)
        self._dependencies.on_freed()

    async def _until(self, condition: Callable[[], bool]) -> None:
        """Until it holds, or release is to stop."""
        while not condition() and not self.stopping:
            if self._failure is not None:
                raise self._failure
            self._changed.clear()
            await self._changed.wait()

    async def _end_lanes(self, queue: Queue) -> None:
        """What was taken is committed first; after a failure the entries' rows say how far the lane came."""
        lanes, reached = self._lanes, self._reached
        self._lanes = self._reached = None
        if lanes is None:
            return
        with contextlib.suppress(DownstreamError):
            await self._until(lambda: lanes.drained)
        drained = lanes.drained
        await lanes.end(drained=drained)
        if drained and reached is not None:
            self._quarantine.advance(queue, reached)
        elif isinstance(self._failure, DownstreamError):
            positions = await self._keeper.call(self._read_positions, list(queue.entries))
            self._quarantine.advance(queue, min(positions, key=Position.order_key))

    def _read_positions(self, jobs: list[int]) -> list[Position]:
        positions: list[Position] = []
        self._keeper.store.together(
            lambda connection: positions.extend(self._table.positions(connection, jobs))
        )
        return positions

    # -- DDL ------------------------------------------------------------------------------------------

    async def _handle_ddl(self, queue: Queue, kept: KeptDdl) -> bool:
        """Whether it is over, and release continues after it."""
        ddl = kept.ddl
        entry = queue.entries.get(ddl.job_id)
        if entry is not None and entry.decision is None:
            entry = await self._decide_by_rule(entry, ddl)
        if entry is not None and entry.decision is None:
            if self._quarantine.entries_before(queue, ddl):
                await self._stop_at(queue, kept, entry)
            queue.shards = self._dependencies.in_the_way(ddl)
            if entry.waits_for_shards and not queue.shards:
                return await self._run(queue, kept, None, None)
            if not await self._found_downstream(entry, kept):  # nor brought there by that of another table
                return False
            number = next(self._numbers)
            decided = Decided(number, ddl.job_id, self.now_ms(), "downstream", SKIP)
            await self._store(lambda connection: self._table.decided(connection, decided))
            await self._finish(queue, ddl, Decision(SKIP, "", number), "downstream has it already")
            return True
        decision = entry.decision if entry is not None else None
        ruling = self._ruling(ddl, decision)
        if ruling.action == STOP or (ruling.action == APPLY and ddl.refused):
            await self._refuse(queue, kept, ddl.refused or f"stopped by {ruling.reason}", {})
            return False
        if ruling.action == APPLY and (reason := self._dependencies.in_the_way(ddl)):
            await self._refuse(queue, kept, reason, {})
            return False
        if ruling.action == SKIP:
            await self._finish(queue, ddl, decision, f"skipped: {ruling.reason}")
            return True
        return await self._run(queue, kept, decision, ruling.text or None)

    async def _decide_by_rule(self, entry: Entry, ddl: Ddl) -> Entry:
        """A rule that skips or rewrites it, each once: it may have been written since the DDL was refused."""
        ruling = self._policy().rule(ddl)
        tried = (ddl.job_id, ruling.action, ruling.text)
        if not ruling.rule or ruling.action not in _BY_RULE or tried in self._tried:
            return entry
        self._tried.add(tried)
        decision = Decision(ruling.action, ruling.text, next(self._numbers))
        stored = entry.decided(decision)
        decided = Decided(
            decision.number, ddl.job_id, self.now_ms(), f"rule {ruling.rule}", decision.action, decision.text
        )

        def work(connection: Any) -> None:
            self._table.put_decision(connection, stored)
            self._table.decided(connection, decided)

        await self._store(work)
        logger.info("DDL that waited is decided by a rule", job_id=ddl.job_id, rule=ruling.reason)
        return self._quarantine.decide(ddl.job_id, decision)

    def _ruling(self, ddl: Ddl, decision: Decision | None) -> Ruling:
        if decision is None:
            return self._policy().rule(ddl)
        by = f"decision {decision.number}"
        if decision.action in _BY_RULE:
            return Ruling(decision.action, by, decision.text)
        return Ruling(APPLY, by)

    async def _found_downstream(self, entry: Entry, kept: KeptDdl) -> bool:
        """Whether the tables were brought to where the DDL leads by hand, since it was refused."""
        if not entry.before:
            return False
        runner = self._dependencies.runner_for(kept.schema)
        try:
            if await self._blocking(runner.before, kept.ddl) == entry.before:
                return False
            return await self._blocking(runner.already_done, kept.ddl)
        except DownstreamError as error:
            logger.failure("shape of waiting tables cannot be read", error, job_id=entry.job_id)
            return False
        finally:
            await self._blocking(runner.close)

    async def _run(self, queue: Queue, kept: KeptDdl, decision: Decision | None, text: str | None) -> bool:
        """Where rows of other tables go to the same target it runs when they do not, and what is after it
        waits until they do again."""
        ddl = kept.ddl
        if ddl.shared and not all(self._quarantine.waits_for(*name) for name in ddl.targets):
            queue.wants_pause = not self._paused
            if queue.wants_pause:
                return False
            queue.on(QueueEvent.ASKED)
            await self._run_now(queue, kept, decision, text)
            return False
        return await self._run_now(queue, kept, decision, text)

    async def _run_now(
        self, queue: Queue, kept: KeptDdl, decision: Decision | None, text: str | None
    ) -> bool:
        ddl = kept.ddl
        doing = self.doing = f"running DDL job {ddl.job_id}, which waited"
        runner = self._dependencies.runner_for(kept.schema)
        intent: Intent | None = None

        def tell(said: str) -> None:
            self.doing = f"{doing}: {said}" if said else doing

        try:
            intent, again = await self._intent(queue, ddl, runner)
            if again and await self._blocking(runner.had_run, intent, ddl, text):
                await self._finish(queue, ddl, decision, "had run before the last stop")
                return True
            async with told(lambda: runner.progress(ddl), tell):
                ran = await self._blocking(runner.run, ddl, text)
        except DownstreamError as error:
            if intent is not None and await self._had_run(runner, intent, ddl, text):
                await self._finish(queue, ddl, decision, "had run")
                return True
            before = intent.before if intent is not None else {}
            await self._refuse(queue, kept, error.message, before)
            return False
        finally:
            await self._blocking(runner.close)
        missing = "".join(f"; missing downstream: {line}" for line in ran.missing)
        await self._finish(queue, ddl, decision, "ran: " + " ; ".join(ran.statements) + missing)
        if self._lanes is not None:
            self._lanes.forget()
        return True

    async def _had_run(self, runner: DdlRunner, intent: Intent, ddl: Ddl, text: str | None) -> bool:
        try:
            return await self._blocking(runner.had_run, intent, ddl, text)
        except DownstreamError:
            return False

    async def _intent(self, queue: Queue, ddl: Ddl, runner: DdlRunner) -> tuple[Intent, bool]:
        """The stored intent, and whether an earlier try had stored it."""
        holder = self._quarantine.holder_of(queue, ddl)
        if holder.intent_ts == ddl.commit_ts:
            return Intent(ddl.commit_ts, ddl.job_id, ddl.query, dict(holder.intent)), True
        before = await self._blocking(runner.before, ddl)
        intended = replace(holder, intent_ts=ddl.commit_ts, intent=before)
        await self._store(lambda connection: self._table.put_intent(connection, intended))
        self._quarantine.change(holder, intent_ts=ddl.commit_ts, intent=before)
        return Intent(ddl.commit_ts, ddl.job_id, ddl.query, before), False

    async def _finish(self, queue: Queue, ddl: Ddl, decision: Decision | None, outcome: str) -> None:
        """It is over: its queue's entries stand after it."""
        position = Position(ddl.commit_ts)
        jobs = [
            job for job, entry in queue.entries.items() if entry.position.order_key() < position.order_key()
        ]

        def work(connection: Any) -> None:
            self._table.advance(connection, jobs, position)
            if decision is not None:
                self._table.outcome(connection, decision.number, outcome)

        await self._store(work)
        self._committed.note(SIDE_LANES, position)
        self._quarantine.advance(queue, position)
        if ddl.shared:
            self._quarantine.shards_changed()
        logger.info("DDL that waited is over", job_id=ddl.job_id, commit_ts=ddl.commit_ts, outcome=outcome)

    async def _refuse(
        self, queue: Queue, kept: KeptDdl, reason: str, before: Mapping[str, str | None]
    ) -> None:
        """It waits for a decision, again or for the first time."""
        ddl = kept.ddl
        earlier = queue.entries.get(ddl.job_id)
        entry = entry_of(ddl, kept.version_before, reason, before, self._clock)
        logger.warning("DDL that waited was refused", job_id=ddl.job_id, reason=reason)
        await self._stop_at(queue, kept, entry)
        if earlier is not None and earlier.decision is not None:
            number = earlier.decision.number
            await self._store(
                lambda connection: self._table.outcome(connection, number, f"refused: {reason}")
            )

    async def _stop_at(self, queue: Queue, kept: KeptDdl, new: Entry) -> None:
        before = [entry.job_id for entry in self._quarantine.entries_before(queue, kept.ddl)]
        number = self._quarantine.stop_at(queue, kept.ddl, new).job_id
        # As it is then: a table may join it meanwhile.
        await self._store(lambda connection: self._table.put(connection, queue.entries[number], before))

    def now_ms(self) -> int:
        return int(self._clock.wall_s() * 1000)

    # -- threads --------------------------------------------------------------------------------------

    async def _store(self, work: Callable[[Any], None]) -> None:
        await self._keeper.call(self._keeper.store.together, work)

    async def _blocking(self, function: Callable[..., T], *arguments: Any) -> T:
        """On release's own thread: a long DDL keeps no other work waiting."""
        return await self._keeper.call(function, *arguments, thread=self._thread)


def _may_repeat(entry: Entry) -> bool:
    """A load has taken the place of whatever waited, and may have been given up."""
    return entry.is_rows or entry.is_load


def may_repeat(targets: Iterable[TableTarget]) -> list[TableTarget]:
    """For tables that wait since rows were refused: of what went through several lanes, some had applied
    a part of what waits."""
    return [
        target if target.spread is Spread.BY_TABLE else replace(target, repeats=True) for target in targets
    ]


def entry_of(
    ddl: Ddl, version_before: int, reason: str, before: Mapping[str, str | None], clock: Clock
) -> Entry:
    """An entry for a refused DDL whose tables wait from it on."""
    tables = {(schema.lower(), table.lower()): ddl.commit_ts for schema, table in ddl.own_names}
    return Entry(
        job_id=ddl.job_id,
        commit_ts=ddl.commit_ts,
        floor=Floor(ddl.commit_ts - 1, version_before),
        tables=tables,
        position=Position(ddl.commit_ts - 1),
        query=ddl.query,
        reason=reason,
        since_ms=int(clock.wall_s() * 1000),
        before=before,
    )
