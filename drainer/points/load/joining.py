"""Joining: tables join a Drainer that runs, with the rows that they have upstream.

Drives  the passes of a load for these tables alone; the quarantine, in which they wait meanwhile
Order   1. what can be refused is refused
        2. between two transactions of the stream it is stored that the tables wait, to be loaded
        3. a snapshot is opened at T, the stream comes to T: now it is known which DDL of the tables T has,
           and under which names they are there. They are made and copied as by a load that begins anew
        4. that they are applied up to T is stored in the transaction in which the progress goes. Release
           brings what came after T, in order, and they are like all others
        A load that is given up is one without rows: its T is where the stream is, the tables are made anew
        and stay empty. Where it has not begun to write them, release brings what waited, and nothing else is
        done
Holds   rows of other tables go on all the while. Killed anywhere, the next start goes on: the entry in the
        quarantine says that something is to be loaded, the stored progress how far that is
Why     what came up to T is in the copy, what came later waits: each change once, tables without a key too. A
        DDL up to T is in the copy as well; a later one waits for its turn after the rows before it

Tests   tests/integration/joining/test_joining.py, tests/drainer/points/load/test_joining.py
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import Callable, Collection, Iterable, Sequence
from fnmatch import fnmatchcase
from typing import Any, Final

from drainer.checkpoint.load_progress import GIVEN_UP, JOINING, LoadProgress, LoadState
from drainer.config.downstream import target_of, upstream_target_of
from drainer.config.options import DrainerConfig
from drainer.ddl.quarantine.controller import QuarantineController
from drainer.ddl.quarantine.entry import Entry, Name, name_of
from drainer.ddl.quarantine.load_entry import LoadAsked
from drainer.ddl.run.connection import Guard
from drainer.mysql.session import DownstreamSession
from drainer.points.load.contents import Contents, Source, contents_of
from drainer.points.load.counters import PREPARING, Counters
from drainer.points.load.job import Job, blocking
from drainer.points.load.load import passes
from drainer.points.load.preparing import look
from drainer.points.load.reconcile import Mode
from drainer.points.load.table_copy import check_columns
from drainer.points.load.timestamp_pass import Passed, TimestampPass
from drainer.points.load.upstream_schema import UpstreamTables, schema_at
from drainer.stream.rules.rule_set import Rules
from drainer.stream.schema.tracker import SchemaTracker
from drainer.stream.translate.translator import Translator
from tidb_binlog.backoff import Backoff
from tidb_binlog.clock import Clock, look_later
from tidb_binlog.cluster.registry import Registry
from tidb_binlog.errors import BinlogError, Conflict, Rejected
from tidb_binlog.late_dataclass import replace
from tidb_binlog.observe import log
from tidb_binlog.status.drainer import LoadStatus
from tidb_binlog.tso import Ts
from tidb_binlog.upstream_port import Upstream

logger = log.get("drainer.joining")

ASK_WAIT_S: Final = 20.0
LOOK_S: Final = 0.2
WORKERS_MAX: Final = 2
"""Tables that join are no reason for others to be late."""


class Joining:
    """`guard`: of sessions that run DDL for it; `rules_at`: by which the stream goes out. Loads what the
    quarantine says is to be loaded, one after the other (`run`), and takes orders for more (`ask`) and for
    less (`give_up`)."""

    def __init__(
        self,
        settings: DrainerConfig,
        upstream: Upstream,
        nodes: Registry,
        tracker: SchemaTracker,
        translator: Translator,
        quarantine: QuarantineController,
        guard: Guard,
        clock: Clock,
        rules_at: Callable[[Ts], Rules],
    ) -> None:
        self._settings = settings
        self._upstream = upstream
        self._nodes = nodes
        self._tracker = tracker
        self._translator = translator
        self._quarantine = quarantine
        self._guard = guard
        self._clock = clock
        self._rules_at = rules_at
        self._target = target_of(settings)
        self._progress = LoadProgress(settings.checkpoint_schema, upstream.cluster_id)
        self._counters = Counters()
        self._trouble = ""
        self._last: dict[str, Any] = {}
        self._not_wanted = asyncio.Event()  # the attempt that is under way
        self._left: set[asyncio.Task[None]] = set()
        self._backoff = Backoff(1.0, 30.0)
        self._gives_up = 0  # job_id of the load that is given up
        quarantine.load_says = self._says

    # -- what an operator asks ------------------------------------------------------------------------

    async def ask(
        self, patterns: Sequence[str], *, replacing: bool, asked_from: str, rate_rows: int = -1
    ) -> Entry:
        """Tables whose names upstream match join. Those that are loaded already go on.

        `replacing`: rows that are downstream may go. `rate_rows`: rows a second at most, 0: no limit, -1:
        none is asked for. Raises `Rejected`, `Conflict`, `ConfigError`, `Unavailable`, `DownstreamError`.
        """
        contents = contents_of(self._tracker, self._translator.rules)
        chosen = contents.only(functools.partial(_matches, patterns))
        names = _names(chosen.all)
        if (loading := self._quarantine.loading) is not None and names <= loading.tables.keys():
            return self._goes_on(loading, rate_rows)
        if not names:
            raise Rejected(
                f"no table upstream that is replicated is called {', '.join(patterns)}",
                hint="names are written schema.table, with * for any; a filter may leave the table out",
            )
        for source in contents.only(functools.partial(_waits, names)).all:
            if source not in chosen.all:
                raise Rejected(
                    f"{source.label} goes to the same table downstream, {'.'.join(source.target)}",
                    hint="name all tables that go there: they are loaded together",
                )
        await blocking(self._target, self._check, chosen, Mode.REPLACE if replacing else Mode.NEW)

        def begin(connection: Any) -> None:
            self._progress.clear(connection)
            state = LoadState(0, JOINING, 0, Mode.REPLACE.value, self._settings.name)
            self._progress.put_state(connection, state)

        left = _names(source for source in contents.all if source not in chosen.all)
        asked = LoadAsked(names, left, begin, asked_from, max(rate_rows, 0))
        return self._goes_on(await self._quarantine.ask_load(asked, ASK_WAIT_S), rate_rows)

    def _goes_on(self, entry: Entry, rate_rows: int) -> Entry:
        """What was asked for, if it is that. Raises `Conflict`."""
        if entry.job_id == self._gives_up:
            raise Conflict("the load of these tables is given up", hint="ask again once it is over")
        if rate_rows not in (-1, entry.rate_rows):
            raise Conflict(
                f"these tables are loaded at another rate, {entry.rate_rows} rows a second (0: no limit)",
                hint="give that load up first, or ask without a rate: it goes on then",
            )
        return entry

    async def give_up(self, *, asked_from: str) -> tuple[Entry, bool]:
        """The load that is under way is not gone on with; durable when it returns. True: it had begun to
        write its tables, which are made anew now, without rows. Raises `Rejected`, `Conflict`, `Unavailable`.
        """
        run = await self._upstream.oracle.timestamp()
        entry = self._quarantine.loading  # only now: it may have ended, and another one begun
        if entry is None:
            raise Rejected("no rows of tables that join are loaded", hint="there is nothing to give up")
        if entry.job_id == self._gives_up:
            return entry, True
        also = functools.partial(self._progress.give_up, run=run)
        has_begun = await self._quarantine.give_up_load(entry, also, asked_from)
        if has_begun:
            self._gives_up = entry.job_id
        else:
            self._done(entry, 0.0, given_up=True)
        self._not_wanted.set()
        self._backoff, self._trouble = Backoff(1.0, 30.0), ""
        logger.warning(
            "a load beside the stream is given up",
            job_id=entry.job_id,
            tables=[".".join(name) for name in sorted(entry.tables)],
            tables_are="made anew, without rows" if has_begun else "as they were",
        )
        return entry, has_begun

    def _check(self, chosen: Contents, mode: Mode) -> None:
        """Blocks. What a load would be refused for later."""
        session = DownstreamSession(self._target)
        try:
            with session.connection() as connection:
                look(connection, self._progress, chosen, mode, same_ts=True)
                self._progress.create(connection)
        finally:
            session.close()
        with contextlib.closing(UpstreamTables(upstream_target_of(self._settings), None)) as upstream:
            for source in chosen.tables:
                if source.copies:
                    check_columns(source, upstream.table(source.name))

    def document(self) -> dict[str, Any]:
        """What joins, until it is like all others, and what the last load of this process did."""
        now = self._counters.view()
        return {
            "joining": [entry for entry in self._quarantine.documents() if entry["loads"]],
            "stage": now.stage,
            "note": self._trouble or now.note,
            "table": now.table,
            "rows": now.rows,
            "rows_expected": now.rows_expected,
            "last": self._last,
        }

    def status(self) -> LoadStatus | None:
        """For the page; None while nothing joins."""
        return None if self._quarantine.loading is None else self._counters.status()

    def _says(self) -> str:
        now = self._counters.view()
        if self._gives_up:
            return f"the load is given up, the tables are made anew without rows: {self._trouble}".rstrip(
                ": "
            )
        share = "" if now.share is None else f", {now.share:.0%}"
        note = self._trouble or now.note
        return f"rows are loaded: {now.rows:,} rows{share}" + (f": {note}" if note else "")

    # -- beside the stream ----------------------------------------------------------------------------

    async def run(self) -> None:
        """Task of the daemon."""
        while True:
            entry = self._quarantine.loading
            if entry is None:
                self._quarantine.load_begun.clear()
                await self._quarantine.load_begun.wait()
                continue
            attempt = asyncio.create_task(self._try(entry))
            self._left.add(attempt)
            attempt.add_done_callback(self._left.discard)
            if await self._is_through(attempt):
                attempt.result()

    async def _is_through(self, attempt: asyncio.Task[None]) -> bool:
        """False where it was given up meanwhile: it ends once what it waits for answers, an upstream that
        hangs, say. Nothing of it is stored any more, and what it may run downstream is waited for."""
        self._not_wanted.clear()
        not_wanted = asyncio.create_task(self._not_wanted.wait())
        try:
            await asyncio.wait([attempt, not_wanted], return_when=asyncio.FIRST_COMPLETED)
            return attempt.done()
        finally:
            not_wanted.cancel()
            attempt.cancel()
            if not self._not_wanted.is_set():
                await asyncio.wait([attempt])

    async def _try(self, entry: Entry) -> None:
        """Once, and wait where something stands in the way. Cancelled when it is given up."""
        self._counters = Counters()
        self._counters.say(PREPARING, self._trouble)
        try:
            await self._load(entry)
        except BinlogError as error:
            self._trouble = str(error)
            logger.failure("rows of tables that join are not loaded yet", error, job_id=entry.job_id)
            await look_later(self._backoff.next_s())
        else:
            self._backoff, self._trouble = Backoff(1.0, 30.0), ""

    async def _load(self, entry: Entry) -> None:
        settings, session = self._settings, DownstreamSession(self._target)
        began_s, now_ts = self._clock.monotonic_s(), await self._upstream.oracle.timestamp()
        rules = self._rules_at(now_ts)
        job = Job(
            settings,
            self._upstream,
            self._nodes,
            rules,
            self._target,
            upstream_target_of(settings),
            session,
            self._progress,
            now_ts,
            Mode.REPLACE,
            entry.rate_rows,
            min(WORKERS_MAX, settings.worker_count),
            self._counters,
            self._clock,
        )
        try:
            stored = await blocking(self._target, self._stored, session)
            if stored is None:  # a pass would take it for the first one, which begins with a new checkpoint
                raise Conflict("nothing is stored of the load", hint="it is given up just now")
            if stored.phase == GIVEN_UP:
                self._gives_up = entry.job_id
                done = await self._make_anew(job, entry, stored)
            else:
                part = _Part(job, self._quarantine, self._guard)
                # What waits since then went out by other rules: it would not fit a copy by those of now.
                is_by_others = self._rules_at(stored.ts).text != rules.text
                done = await passes(job, part, stored, later=is_by_others)
        finally:
            await asyncio.to_thread(session.close)
        seconds = round(self._clock.monotonic_s() - began_s, 3)
        more = {"missing": list(done.missing)}
        self._done(entry, seconds, given_up=bool(self._gives_up), ts=done.ts, tables=done.tables, **more)
        self._gives_up = 0

    async def _make_anew(self, job: Job, entry: Entry, stored: LoadState) -> Passed:
        """Its tables as they are where the stream is, without rows."""
        while (ts := self._quarantine.stream_ts) < entry.commit_ts or self._quarantine.below(ts) is None:
            await look_later(LOOK_S)
        part = _Part(job, self._quarantine, self._guard, GIVEN_UP)
        tracker = await schema_at(self._upstream.history, ts)
        return await TimestampPass(job, part, stored.ts, forget=False).run_without_rows(ts, tracker)

    def _done(self, entry: Entry, seconds: float, **what: Any) -> None:
        rows = 0 if what["given_up"] else self._counters.view().rows
        self._last = {"job_id": entry.job_id, "rows": rows, "seconds": seconds, **what}
        logger.info("a load beside the stream is over", **self._last)

    def _stored(self, session: DownstreamSession) -> LoadState | None:
        with session.connection() as connection:
            state = self._progress.state(connection)
            connection.rollback()
        return state


class _Part:
    """Scope of a load: tables that wait, beside the stream that others go on with."""

    def __init__(
        self, job: Job, quarantine: QuarantineController, guard: Guard, phase: str = JOINING
    ) -> None:
        self.phase = phase
        self._job = job
        self._quarantine = quarantine
        self.guard: Guard | None = guard
        self.hold_name = f"binlog_join_{job.settings.name}"
        self._jobs: Sequence[int] = ()

    async def contents(self, tracker: SchemaTracker, ts: Ts) -> Contents:
        self._job.counters.say(PREPARING, "the stream comes to the timestamp of the copy")
        while (below := self._quarantine.below(ts)) is None:
            if not self._quarantine.has_room:  # the stream waits for the load, which would wait for it
                raise Rejected(
                    "quarantine-size is used up before the stream has come to the timestamp of the copy",
                    hint="give the load up, and ask for it once the drainer is less far behind, or with a"
                    " larger quarantine-size",
                )
            await look_later(LOOK_S)
        self._job.counters.say(PREPARING)
        self._jobs = below.jobs
        contents, route = contents_of(tracker, self._job.rules), self._job.rules.router.route
        targets = {source.target for source in contents.all}
        before = {route(table.schema, table.name) for ddl in below.ddls for table in ddl.before}
        gone = sorted(before - targets) if self._job.rules.sync_ddl else ()
        return replace(contents.only(functools.partial(_waits, below.names)), gone=tuple(gone))

    async def begin(self, ts: Ts) -> None:
        """The checkpoint stands below T: pumps keep what is needed."""

    async def end(self, ts: Ts, tracker: SchemaTracker) -> None:
        end = functools.partial(self._job.progress.end, run=self._job.run)
        await self._quarantine.loaded(self._jobs, ts, end)


def _names(sources: Iterable[Source]) -> frozenset[Name]:
    """Those upstream and those of their targets."""
    return frozenset(name_of(*name) for source in sources for name in (source.name, source.target))


def _matches(patterns: Iterable[str], source: Source) -> bool:
    name = source.label.lower()
    return any(fnmatchcase(name, pattern.lower()) for pattern in patterns)


def _waits(names: Collection[Name], source: Source) -> bool:
    """Whether its rows are kept where these names wait: by its name, its target's, or their databases."""
    of_source = [name_of(*name) for name in (source.name, source.target)]
    return any(name in names or (name[0], "") in names for name in of_source)
