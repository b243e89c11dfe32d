"""Joining: tables join a Drainer that runs, with the rows that they have upstream.

Drives  the passes of a load for these tables alone; the quarantine, in which they wait meanwhile
Order   1. what can be refused is refused
        2. between two transactions of the stream it is stored that the tables wait, to be loaded
        3. a snapshot is opened at T, the stream comes to T: now it is known which DDL of the tables T has,
           and under which names they are there. They are made and copied as by a load that begins anew
        4. that they are applied up to T is stored in the transaction in which the progress goes. Release
           brings what came after T, in order, and they are like all others
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
from collections.abc import Collection, Iterable, Sequence
from fnmatch import fnmatchcase
from typing import Any, Final

from drainer.checkpoint.load_progress import JOINING, LoadProgress, LoadState
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
from drainer.points.load.upstream_schema import UpstreamTables
from drainer.stream.schema.tracker import SchemaTracker
from drainer.stream.translate.translator import Translator
from tidb_binlog.backoff import Backoff
from tidb_binlog.clock import Clock, look_later
from tidb_binlog.cluster.registry import Registry
from tidb_binlog.errors import BinlogError, Rejected
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
    """`guard`: of sessions that run DDL for it. Loads what the quarantine says is to be loaded, one after the
    other (`run`), and takes orders for more (`ask`)."""

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
    ) -> None:
        self._settings = settings
        self._upstream = upstream
        self._nodes = nodes
        self._tracker = tracker
        self._translator = translator
        self._quarantine = quarantine
        self._guard = guard
        self._clock = clock
        self._target = target_of(settings)
        self._progress = LoadProgress(settings.checkpoint_schema, upstream.cluster_id)
        self._counters = Counters()
        self._trouble = ""
        self._last: dict[str, Any] = {}
        quarantine.load_says = self._says

    # -- what an operator asks ------------------------------------------------------------------------

    async def ask(self, patterns: Sequence[str], *, replacing: bool, asked_from: str) -> Entry:
        """Tables whose names upstream match join. Those that are loaded already go on.

        `replacing`: rows that are downstream may go. Raises `Rejected`, `Conflict`, `ConfigError`,
        `Unavailable`, `DownstreamError`.
        """
        contents = contents_of(self._tracker, self._translator.rules)
        chosen = contents.only(functools.partial(_matches, patterns))
        names = frozenset(name_of(*name) for source in chosen.all for name in (source.name, source.target))
        if (loading := self._quarantine.loading) is not None and names <= loading.tables.keys():
            return loading
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

        return await self._quarantine.ask_load(LoadAsked(names, begin, asked_from), ASK_WAIT_S)

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
        share = "" if now.share is None else f", {now.share:.0%}"
        note = self._trouble or now.note
        return f"{now.rows:,} rows{share}" + (f": {note}" if note else "")

    # -- beside the stream ----------------------------------------------------------------------------

    async def run(self) -> None:
        """Task of the daemon."""
        backoff = Backoff(1.0, 30.0)
        while True:
            entry = self._quarantine.loading
            if entry is None:
                self._quarantine.load_begun.clear()
                await self._quarantine.load_begun.wait()
                continue
            self._counters = Counters()
            self._counters.say(PREPARING, self._trouble)
            try:
                await self._load(entry)
            except BinlogError as error:
                self._trouble = str(error)
                logger.failure("rows of tables that join are not loaded yet", error, job_id=entry.job_id)
                await look_later(backoff.next_s())
            else:
                backoff, self._trouble = Backoff(1.0, 30.0), ""

    async def _load(self, entry: Entry) -> None:
        settings, session = self._settings, DownstreamSession(self._target)
        began_s = self._clock.monotonic_s()
        job = Job(
            settings,
            self._upstream,
            self._nodes,
            self._translator.rules,
            self._target,
            upstream_target_of(settings),
            session,
            self._progress,
            await self._upstream.oracle.timestamp(),
            Mode.REPLACE,
            0,
            min(WORKERS_MAX, settings.worker_count),
            self._counters,
            self._clock,
        )
        try:
            stored = await blocking(self._target, self._stored, session)
            done = await passes(job, _Part(job, self._quarantine, self._guard), stored)
        finally:
            await asyncio.to_thread(session.close)
        rows = self._counters.view().rows
        seconds = round(self._clock.monotonic_s() - began_s, 3)
        self._last = {"job_id": entry.job_id, "ts": done.ts, "tables": done.tables, "rows": rows}
        self._last |= {"seconds": seconds, "missing": list(done.missing)}
        logger.info("loaded beside the stream", **self._last)

    def _stored(self, session: DownstreamSession) -> LoadState | None:
        with session.connection() as connection:
            state = self._progress.state(connection)
            connection.rollback()
        return state


class _Part:
    """Scope of a load: tables that wait, beside the stream that others go on with."""

    phase: str = JOINING

    def __init__(self, job: Job, quarantine: QuarantineController, guard: Guard) -> None:
        self._job = job
        self._quarantine = quarantine
        self.guard: Guard | None = guard
        self.hold_name = f"binlog_join_{job.settings.name}"
        self._jobs: Sequence[int] = ()

    async def contents(self, tracker: SchemaTracker, ts: Ts) -> Contents:
        self._job.counters.say(PREPARING, "the stream comes to the timestamp of the copy")
        while (below := self._quarantine.below(ts)) is None:
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
        await self._quarantine.loaded(self._jobs, ts, self._job.progress.clear)


def _matches(patterns: Iterable[str], source: Source) -> bool:
    name = source.label.lower()
    return any(fnmatchcase(name, pattern.lower()) for pattern in patterns)


def _waits(names: Collection[Name], source: Source) -> bool:
    """Whether its rows are kept where these names wait: by its name, its target's, or their databases."""
    of_source = [name_of(*name) for name in (source.name, source.target)]
    return any(name in names or (name[0], "") in names for name in of_source)
