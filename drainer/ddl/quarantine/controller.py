"""Quarantine controller: whether a DDL of the stream runs or waits, and what an operator decides about it.

Owns    the order between them: an entry is durable before the stream continues after its DDL; a decision is
        durable before anything is done about it
Holds   the checkpoint stays at or below `floor` while anything waits
Stops   `stop` ends release at its next item; what waits is stored, and comes again with the next start

For the applier, with all lanes drained: `judge` a DDL, call `refused` when it was, and `pause` when
`wants_pause` says so. For every transaction: `divert`, and wait for `has_room`.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from drainer import metrics
from drainer.ddl.derive.derive import same_names
from drainer.ddl.derive.values import Route
from drainer.ddl.policy import Policy, Ruling
from drainer.ddl.quarantine import decisions
from drainer.ddl.quarantine.entry import RETRY, Decision, Entry, Floor
from drainer.ddl.quarantine.load_entry import LoadAsked, load_entry
from drainer.ddl.quarantine.log import Directory, Frozen, KeptDdl, QuarantineLog, Schema
from drainer.ddl.quarantine.queue_state import QueueEvent, QueueState, allows
from drainer.ddl.quarantine.release import Release, ReleaseDependencies, entry_of
from drainer.ddl.quarantine.store import Decided, QuarantineTable
from drainer.ddl.quarantine.waiting_tables import Below, DdlClass, Quarantine, Queue
from drainer.ddl.rules import SKIP, STOP, Rule
from drainer.mysql.rows.change import Position
from drainer.txn import Ddl, Transaction
from tidb_binlog.errors import Conflict, DownstreamError, Rejected
from tidb_binlog.observe import log
from tidb_binlog.tso import Ts

logger = log.get("drainer.quarantine_controller")

KEPT: Final = "kept"
"""Besides the policy's actions: it waits, or was done when it waited before the start."""
PASSED: Final = "passed"
"""It was done, or passed over, before the drainer started."""
RETRY_S: Final = 10.0
CLOSE_S: Final = 5.0
DECISIONS_SHOWN: Final = 50
BYTES_MAX: Final = 4 << 30
"""For what waited before the start already, where nothing more may wait."""


async def unlogged(_ddl: Ddl) -> None:
    """Without a relay log."""


class QuarantineController:
    """`quarantine`: with what a start finds; `last_number` of the decisions. `route`: where tables go now.
    `on_change`: the stream may continue. `log_kept` is awaited with a DDL that waits, before it is stored.
    """

    def __init__(
        self,
        table: QuarantineTable,
        last_number: int,
        quarantine: Quarantine,
        schema: Schema,
        dependencies: Callable[[Callable[[], None], itertools.count[int]], ReleaseDependencies],
        policy: Policy,
        data_dir: str,
        bytes_max: int,
        route: Callable[[], Route] = lambda: same_names,
        on_change: Callable[[], None] = lambda: None,
        log_kept: Callable[[Ddl], Awaitable[None]] = unlogged,
    ) -> None:
        self._route = route
        self.may_wait = bytes_max > 0
        self._directory = Directory(Path(data_dir) / "quarantine", bytes_max or BYTES_MAX)
        self._quarantine = quarantine
        self._logs = {queue.number: QuarantineLog(self._directory) for queue in self._quarantine.queues}
        self._table = table
        self._schema = schema
        self._policy = policy
        self.numbers = itertools.count(last_number + 1)
        self.dependencies = dependencies(self._freed, self.numbers)
        self._keeper = self.dependencies.keeper
        self._release = Release(self._quarantine, self.dependencies, lambda: self._policy)
        self._releasing = asyncio.Lock()
        self._deciding = asyncio.Lock()
        self._wake = asyncio.Event()
        self._full = False
        self._load_asked: LoadAsked | None = None
        self._load_begins = False  # it is being stored
        self.load_begun = asyncio.Event()
        self.load_says: Callable[[], str] = lambda: ""
        """How far the rows of tables that join are."""
        self.on_change = on_change
        self._log_kept = log_kept
        self._count()

    # -- what the applier asks ----------------------------------------------------------------------

    @property
    def waits(self) -> bool:
        """Whether anything waits."""
        return not self._quarantine.is_empty

    @property
    def floor(self) -> Floor | None:
        """The checkpoint must not be stored above it: neither its commit_ts nor its schema version."""
        return self._quarantine.floor

    def waits_for(self, schema: str, table: str) -> bool:
        """Whether a table of the upstream waits."""
        return self._quarantine.waits_for(schema, table)

    @property
    def has_room(self) -> bool:
        if self._quarantine.is_empty or self._directory.has_room:
            self._full = False
            return True
        if not self._full:
            self._full = True
            logger.warning(
                "no space for rows that wait: the stream waits for a decision",
                reason=self._directory.trouble or "quarantine-size is used up",
                jobs=[entry.job_id for entry in self._quarantine.entries],
            )
        return False

    async def judge(self, ddl: Ddl, schema_version: int) -> Ruling:
        """What to do with the next DDL of the stream: a ruling, KEPT or PASSED. All lanes are drained.

        `schema_version`: as it was before the DDL. Raises `DownstreamError` where a rule says stop.
        """
        if ddl.skip and self._quarantine.queue_of(ddl.job_id) is None:
            return Ruling(SKIP, ddl.skip)
        if self._quarantine.joins(ddl):
            async with self._releasing:  # two queues become one
                classified = self._quarantine.classify(ddl)
        else:
            classified = self._quarantine.classify(ddl)
        if classified.ddl_class is DdlClass.FREE:
            return self._rule(ddl)
        if classified.ddl_class is not DdlClass.KEPT:
            return Ruling(PASSED, "done before the last stop")
        queue = classified.queue
        assert queue is not None
        await self._log_kept(ddl)
        log_of = self._logs[queue.number]
        for other in classified.absorbed:
            log_of.absorb(self._logs.pop(other.number))
        log_of.append(KeptDdl(ddl, schema_version, Frozen(self._schema, ddl, self._route())))
        if (changed := classified.changed) is not None:
            await self._keeper.call(
                functools.partial(
                    self._keeper.store.together,
                    lambda connection: self._table.put_tables(connection, changed),
                    lanes_at=ddl.commit_ts,
                )
            )
        queue.on(QueueEvent.KEPT)  # release may have reached the end since it was classified
        self._ask(queue)
        self._count()
        waits_for = queue.waits_for
        reason = f"its tables wait for DDL job {waits_for.job_id}" if waits_for else "its tables catch up"
        logger.info("DDL waits", job_id=ddl.job_id, commit_ts=ddl.commit_ts, reason=reason)
        return Ruling(KEPT, reason)

    def _rule(self, ddl: Ddl) -> Ruling:
        ruling = self._policy.rule(ddl)
        if ruling.action == STOP:
            raise DownstreamError(
                f"DDL job {ddl.job_id} at commit_ts {ddl.commit_ts} stops the drainer: {ruling.reason};"
                f" {ddl.statement}",
                hint="change the rule and start again; the checkpoint is before the statement",
            )
        return ruling

    async def refused(
        self, ddl: Ddl, schema_version: int, before: Mapping[str, str | None], reason: str
    ) -> None:
        """Neither the DDL nor anything derived from it could be run: its tables wait from now on.

        All lanes are drained; durable when it returns, and the intent is cleared. `DownstreamError` where
        nothing may wait.
        """
        if not self.may_wait:
            raise DownstreamError(
                f"DDL job {ddl.job_id} at commit_ts {ddl.commit_ts}: {reason}",
                hint="write a rule for it (syncer.ddl-rule), or let its tables wait (syncer.quarantine-size)",
            )
        entry = entry_of(ddl, schema_version, reason, before, self.dependencies.clock)
        await self._begin(entry, ddl)
        logger.warning(
            "DDL was refused: its tables wait, all others are replicated",
            job_id=ddl.job_id,
            commit_ts=ddl.commit_ts,
            tables=[".".join(name) for name in sorted(entry.tables)],
            reason=reason,
            hint=f"`binlogctl ddl show {ddl.job_id}`, then retry, skip or rewrite it",
        )

    async def run_beside(self, ddl: Ddl, schema_version: int, reason: str) -> None:
        """It takes long: its tables wait while release runs it, others go on. As `refused`, and decided."""
        decision = Decision(RETRY, "", next(self.numbers))
        entry = entry_of(ddl, schema_version, reason, {}, self.dependencies.clock).decided(decision)
        decided = Decided(decision.number, ddl.job_id, entry.since_ms, "drainer", RETRY, "")
        queue = await self._begin(entry, ddl, decided)
        self._ask(queue)
        logger.info("DDL runs beside the stream", job_id=ddl.job_id, commit_ts=ddl.commit_ts, reason=reason)

    async def _begin(self, entry: Entry, ddl: Ddl, decided: Decided | None = None) -> Queue:
        def work(connection: Any) -> None:
            self._table.put(connection, entry)
            if decided is not None:
                self._table.decided(connection, decided)

        store = self._keeper.store
        await self._keeper.call(
            functools.partial(store.together, work, lanes_at=ddl.commit_ts, clear_intent=True)
        )
        queue = self._quarantine.begin(entry, ddl)
        kept = self._logs[queue.number] = QuarantineLog(self._directory)
        kept.append(KeptDdl(ddl, entry.floor.schema_version, Frozen(self._schema, ddl, self._route())))
        self._count()
        return queue

    def divert(self, transaction: Transaction) -> Transaction:
        """What is left for the lanes; rows of tables that wait are kept."""
        if self._quarantine.is_empty:
            return transaction
        rest, parts = self._quarantine.divert(transaction)
        for queue, part in parts:
            self._logs[queue.number].append(part)
            if queue.state is QueueState.WAITING and queue.waits_for is None:
                self._ask(queue)
        return rest

    def wants_pause(self, at_ts: Ts) -> bool:
        """Whether `pause` would bring tables back, or run a DDL that must be alone, with everything up to
        `at_ts` handed over."""
        self._quarantine.saw(at_ts)
        return not self._releasing.locked() and bool(self._wanting(at_ts))

    def _wanting(self, at_ts: Ts) -> list[Queue]:
        return [
            queue
            for queue in self._quarantine.queues
            if queue.wants_pause or (queue.state.has_caught_up and self._quarantine.is_ripe(queue, at_ts))
        ]

    async def pause(self, at_ts: Ts) -> None:
        """All lanes are drained, everything at or below `at_ts` is applied but for what waits.

        Queues that have little left are brought to their end, and end. Between whole transactions only.
        """
        async with self._releasing:
            while wanting := self._wanting(at_ts):
                for queue in wanting:
                    await self._step(queue, paused=True)
                    if self._quarantine.may_close(queue, at_ts):
                        await self._close(queue, at_ts)

    async def finish(self, at_ts: Ts) -> None:
        """The stream is over at `at_ts`, all lanes are drained: do what is decided, close what is at its end.
        What stays in `documents` waits for a decision."""
        self._quarantine.saw(at_ts)
        async with self._releasing:
            for queue in tuple(self._quarantine.queues):
                await self._step(queue, paused=True)
                while queue.state is QueueState.READY and not queue.loading:  # after a DDL that ran alone
                    await self._step(queue, paused=True)
                if self._quarantine.may_close(queue, at_ts):
                    await self._close(queue, at_ts)

    async def _close(self, queue: Queue, at_ts: Ts) -> None:
        jobs = list(queue.entries)
        self._quarantine.close(queue, at_ts)
        await self._keeper.together(
            lambda connection: self._table.remove(connection, jobs), lanes_at=at_ts, upto_ts=at_ts
        )
        self._logs.pop(queue.number).remove()
        if self._quarantine.is_empty:
            self._directory.forget()
        self._count()
        logger.info("tables that waited are replicated with all others again", jobs=jobs, commit_ts=at_ts)

    # -- release ------------------------------------------------------------------------------------

    def _ask(self, queue: Queue) -> None:
        queue.on(QueueEvent.ASKED)
        self._wake.set()

    def _freed(self) -> None:
        self.on_change()

    def try_again(self) -> None:
        """An operator lets all go on."""
        for queue in self._quarantine.queues:
            self._ask(queue)

    async def run(self) -> None:
        """Task of the daemon: release what is decided, see what was brought about downstream by hand."""
        now_s = asyncio.get_running_loop().time
        due_s = now_s() + RETRY_S
        while not self._release.stopping:
            self._wake.clear()
            for queue in self._quarantine.queues:
                if queue.state is QueueState.READY and not queue.loading:
                    await self._try(queue)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(due_s):
                    await self._wake.wait()
            if now_s() >= due_s:  # whatever woke it meanwhile
                due_s = now_s() + RETRY_S
                for kept in self._logs.values():
                    kept.flush()
                self.on_change()
                for queue in self._quarantine.queues:
                    queue.on(QueueEvent.ASKED)

    async def _try(self, queue: Queue) -> None:
        async with self._releasing:
            if queue in self._quarantine.queues and queue.state is QueueState.READY:
                await self._step(queue)

    async def _step(self, queue: Queue, *, paused: bool = False) -> None:
        if queue.loading or not allows(queue.state, QueueEvent.STARTED):
            queue.wants_pause = False  # a decision is being stored, and it is tried after that
            return
        queue.on(QueueEvent.STARTED)
        try:
            await self._release.run(queue, self._logs[queue.number], paused=paused)
        finally:
            queue.on(QueueEvent.STOPPED)
            if queue.state is QueueState.READY:
                self._wake.set()
            self._count()
            self.on_change()

    # -- tables that join -----------------------------------------------------------------------------

    @property
    def loading(self) -> Entry | None:
        """The tables whose rows are to be loaded."""
        return next((queue.loading for queue in self._quarantine.queues if queue.loading), None)

    async def ask_load(self, asked: LoadAsked, wait_s: float) -> Entry:
        """Have tables wait from the next place between two transactions on. Durable when it returns.

        Of several who ask for the same tables in the same moment each gets the one load. Raises `Rejected`,
        `Conflict`: nothing has changed.
        """
        if (loading := self.loading) is not None and asked.names <= loading.tables.keys():
            return loading
        pending = self._load_asked
        if loading is not None or (pending is not None and not asked.names <= pending.names):
            raise Conflict("rows of other tables are loaded", hint="wait for their end: `binlogctl ddl list`")
        if not self.may_wait:
            raise Rejected(
                "syncer.quarantine-size is 0: rows that come while others are loaded have no place",
                hint="set it, and start the drainer again",
            )
        asked = self._load_asked = pending or asked
        try:
            async with asyncio.timeout(wait_s):
                return await asyncio.shield(asked.begun)
        except TimeoutError:
            if self._load_asked is asked and not self._load_begins:
                self._load_asked = None
                asked.begun.set_exception(
                    Rejected(
                        f"the drainer came to no place between two transactions within {wait_s:.0f} s",
                        hint="try again; `/status` shows what it waits for",
                    )
                )
            return await asyncio.shield(asked.begun)

    @property
    def wants_load(self) -> bool:
        """Whether `begin_load` has something to do."""
        return self._load_asked is not None and not self._load_begins and not self._releasing.locked()

    async def begin_load(self, at_ts: Ts) -> None:
        """All lanes are drained, everything at or below `at_ts` is applied but for what waits. Nothing is
        done where `wants_load` ended meanwhile: who asked waits no longer, or release began."""
        asked = self._load_asked
        if asked is None or not self.wants_load:
            return
        self._load_begins = True
        try:
            async with self._releasing:
                asked.begun.set_result(await self._begin_load(asked, at_ts))
        except (Conflict, Rejected) as error:
            asked.begun.set_exception(error)
        except BaseException:
            asked.begun.set_exception(Rejected("the drainer stops", hint="ask it again"))
            raise
        finally:
            self._load_asked, self._load_begins = None, False

    async def _begin_load(self, asked: LoadAsked, at_ts: Ts) -> Entry:
        queues = self._quarantine.waiting_with(asked.names)
        number = next(self.numbers)
        place = Floor(at_ts, self._keeper.schema_version)
        now_ms = self._release.now_ms()
        entry = load_entry(number, asked.names, asked.left, place, queues, now_ms, asked.rate_rows)
        old = [job for queue in queues for job in queue.entries]

        def work(connection: Any) -> None:
            asked.also(connection)
            self._table.put(connection, entry, old)
            decided = Decided(number, entry.job_id, entry.since_ms, asked.asked_from, "load")
            self._table.decided(connection, decided)

        await self._keeper.together(work, lanes_at=at_ts, upto_ts=at_ts)
        queue = self._quarantine.begin_load(entry, queues)
        self.load_begun.set()
        kept = self._logs[queue.number] = QuarantineLog(self._directory)
        for other in queues:
            kept.absorb(self._logs.pop(other.number))
        self._count()
        tables = [".".join(name) for name in sorted(entry.tables)]
        logger.info("tables join: their rows are loaded", job_id=entry.job_id, tables=tables, commit_ts=at_ts)
        return entry

    def below(self, ts: Ts) -> Below | None:
        """What a load at `ts` is of; None before the stream is there."""
        return self._quarantine.below(ts)

    async def loaded(self, jobs: Sequence[int], ts: Ts, also: Callable[[Any], None]) -> None:
        """Downstream the tables of these entries are as upstream at `ts`: release goes on from
        there. Stored in one transaction with `also`."""

        def work(connection: Any) -> None:
            also(connection)
            self._table.advance(connection, jobs, Position(ts))

        await self._keeper.call(self._keeper.store.together, work)
        for job in jobs:
            queue = self._owner(job)
            self._quarantine.change(queue.entries[job], position=Position(ts))
            self._logs[queue.number].free(ts, is_read=False)
            self._ask(queue)
        self.on_change()  # there may be room
        logger.info("rows of tables that join are loaded", jobs=list(jobs), ts=ts)

    @property
    def stream_ts(self) -> Ts:
        """Where the stream is."""
        return self._quarantine.seen_ts

    async def give_up_load(self, entry: Entry, also: Callable[[Any], bool], asked_from: str) -> bool:
        """The rows of its tables are not to be loaded. `also` is stored with that, and says whether what they
        have downstream was touched: if not, release goes on with what waited, as if nothing had been asked.

        Raises what `also` does, and `Unavailable`."""
        job_id, done_ts = entry.job_id, entry.position.complete_ts
        decided = Decided(next(self.numbers), job_id, self._release.now_ms(), asked_from, "give up")
        touched = True

        def work(connection: Any) -> None:
            nonlocal touched
            if not (touched := also(connection)):
                self._table.put_commit_ts(connection, job_id, done_ts)
            self._table.decided(connection, decided)

        await self._keeper.call(self._keeper.store.together, work)
        if not touched:
            queue = self._owner(job_id)
            self._quarantine.change(queue.entries[job_id], commit_ts=done_ts)
            self._ask(queue)
        return touched

    def stop(self) -> None:
        self._release.stop()
        self._wake.set()

    async def close(self) -> None:
        """After `stop`: wait for release, not for a long DDL of its, and give up its thread."""
        try:
            async with asyncio.timeout(CLOSE_S):
                await self._releasing.acquire()
        except TimeoutError:
            logger.warning("release did not end in time, its entries say how far it came")
        self._release.close()
        for kept in self._logs.values():
            kept.remove()

    # -- what an operator asks ------------------------------------------------------------------------

    def set_rules(self, rules: Sequence[Rule]) -> None:
        """Other rules, for every DDL from now on."""
        self._policy = Policy(rules)
        for queue in self._quarantine.queues:
            self._ask(queue)

    async def decide(self, job_id: int, action: str, text: str, asked_from: str) -> dict[str, Any]:
        """Decide about a waiting DDL: durable when it returns, carried out soon after.

        Raises `Rejected` (no such job waits, or the decision makes no sense), `Conflict` (too late).
        """
        async with self._deciding:
            queue = self._quarantine.queue_of(job_id)
            if queue is not None and queue.state.is_releasing and not self._release.doing:
                async with self._releasing:  # the downstream's schema is being read
                    queue = self._quarantine.queue_of(job_id)
            if queue is None:
                raise Rejected(f"DDL job {job_id} does not wait", hint="`binlogctl ddl list` shows what does")
            decisions.check(queue, queue.entries[job_id], action=action, text=text)
            queue.on(QueueEvent.DECISION_BEGUN)
            try:
                entry = await self._store_decision(queue.entries[job_id], action, text, asked_from)
            except BaseException:
                self._owner(job_id).on(QueueEvent.DECISION_FAILED)
                raise
            queue = self._owner(job_id)
            queue.on(QueueEvent.DECISION_STORED)
        self._wake.set()
        metrics.QUARANTINE_DECISIONS.labels(action).inc()
        logger.info("DDL decided", job_id=job_id, decision=action, text=text, asked_from=asked_from)
        return self._document(queue, entry)

    async def _store_decision(self, waiting: Entry, action: str, text: str, asked_from: str) -> Entry:
        job_id = waiting.job_id
        decision = Decision(action, text, next(self.numbers))
        decided = Decided(decision.number, job_id, self._release.now_ms(), asked_from, action, text)
        stored = waiting.decided(decision)

        def work(connection: Any) -> None:
            self._table.put_decision(connection, stored)
            self._table.decided(connection, decided)

        await self._keeper.call(self._keeper.store.together, work)
        return self._quarantine.decide(job_id, decision)

    def _owner(self, job_id: int) -> Queue:
        """A queue with a decision under way does not close, but it may have become part of another one."""
        queue = self._quarantine.queue_of(job_id)
        assert queue is not None
        return queue

    def documents(self) -> list[dict[str, Any]]:
        """What waits, in stream order."""
        numbered = [
            (entry.commit_ts, self._document(queue, entry))
            for queue in self._quarantine.queues
            for entry in queue.entries.values()
        ]
        return [document for _, document in sorted(numbered, key=lambda pair: pair[0])]

    def tables(self) -> tuple[str, ...]:
        """The tables that wait, under their names upstream; of a whole database its name."""
        return tuple(sorted({name for document in self.documents() for name in document["tables"]}))

    def _document(self, queue: Queue, entry: Entry) -> dict[str, Any]:
        doing = self._release.doing if queue.state.is_releasing else ""
        if queue.loading is entry:
            doing = self.load_says()
        return decisions.document(queue, entry, doing=doing, kept_bytes=self._logs[queue.number].size_bytes)

    async def decisions(self) -> list[Decided]:
        """The newest ones, newest first."""
        decisions: list[Decided] = []

        def work(connection: Any) -> None:
            decisions[:] = self._table.decisions(connection, DECISIONS_SHOWN)

        await self._keeper.call(self._keeper.store.together, work)
        return decisions

    def rules(self) -> list[dict[str, Any]]:
        return self._policy.documents()

    def explain(self, action: int, names: Sequence[tuple[str, str]], query: str) -> Ruling:
        return self._policy.explain(action, names, query)

    def document(self) -> dict[str, Any]:
        """For `/status`."""
        floor = self._quarantine.floor
        return {
            "waiting": self.documents(),
            "held_at": floor.commit_ts if floor else 0,
            "kept_bytes": self._directory.size_bytes,
            "full": not self.has_room,
        }

    def _count(self) -> None:
        undecided = (e for e in self._quarantine.entries if e.decision is None and not e.is_load)
        metrics.QUARANTINE_TABLES.set(sum(len(entry.tables) for entry in undecided))
        metrics.QUARANTINE_BYTES.set(self._directory.size_bytes)
