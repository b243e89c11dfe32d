"""Timestamp pass: one timestamp T from the snapshot that is opened to the checkpoint that is stored.

Drives  the upstream's snapshot and history, `preparing`, `copying`, `store_checkpoint`
Holds   what is refused is refused before anything is written. From then on the registry has the Drainer's
        name, paused at T: pumps keep what it will need, and one that leaves waits for it
Stops   when it is cancelled: workers roll back what they have begun
`Scope` is what a load before a Drainer's start, and one of some tables beside it, do differently
Tests   tests/drainer/points/load/test_load.py
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from drainer.checkpoint.load_progress import LOADING, LoadState
from drainer.ddl.run.connection import Guard
from drainer.ddl.run.runner import DdlRunner
from drainer.mysql.connection import Connection
from drainer.mysql.errors import SessionError
from drainer.mysql.rows.column_match import FULL, DownstreamTable
from drainer.mysql.rows.table_target import missing as no_table
from drainer.mysql.session import DownstreamSession
from drainer.mysql.table_reader import read_table
from drainer.points.load.contents import Contents, contents_of
from drainer.points.load.copying import Copying
from drainer.points.load.counters import FINISHING
from drainer.points.load.job import Job, blocking, insist, said
from drainer.points.load.preparing import Definitions, Preparing, Stored, copied, look
from drainer.points.load.reconcile import Mode, Reconciled
from drainer.points.load.store_checkpoint import forget_checkpoint, keep_from, store_end
from drainer.points.load.table_copy import TableCopy
from drainer.points.load.upstream_schema import UpstreamTables, snapshot_with_schema
from drainer.points.snapshot.sessions import UpstreamSnapshot, read_beside
from drainer.stream.schema.tracker import SchemaTracker
from tidb_binlog.late_dataclass import dataclass
from tidb_binlog.observe import log
from tidb_binlog.tso import Ts

logger = log.get("load")


@dataclass(frozen=True, slots=True)
class Passed:
    """`missing`: what the downstream could not have, one line each."""

    ts: Ts
    tables: int
    missing: tuple[str, ...]


class Scope(Protocol):
    """What is loaded, and what it is a part of. `phase`: as it is stored; `hold_name`: under which a TiDB's
    garbage is held; `guard`: of sessions that run DDL."""

    @property
    def phase(self) -> str: ...

    @property
    def hold_name(self) -> str: ...

    @property
    def guard(self) -> Guard | None: ...

    async def contents(self, tracker: SchemaTracker, ts: Ts) -> Contents:
        """What there is at `ts`."""
        ...

    async def begin(self, ts: Ts) -> None:
        """Before anything is written at that T."""
        ...

    async def end(self, ts: Ts, tracker: SchemaTracker) -> None:
        """Everything is downstream."""
        ...


class Everything:
    """All that replicates, before the Drainer's start: at its end there is a checkpoint."""

    phase: str = LOADING
    guard: Guard | None = None

    def __init__(self, job: Job) -> None:
        self._job = job
        self.hold_name = f"binlog_load_{job.settings.name}"

    async def contents(self, tracker: SchemaTracker, ts: Ts) -> Contents:
        return contents_of(tracker, self._job.rules)

    async def begin(self, ts: Ts) -> None:
        await keep_from(self._job.settings, self._job.nodes, ts, self._job.reader)

    async def end(self, ts: Ts, tracker: SchemaTracker) -> None:
        job = self._job
        state = LoadState(job.run, self.phase, ts, job.mode.value, job.settings.name)
        now_ts = await job.upstream.oracle.timestamp()
        nodes = (await job.nodes.view()).drainers
        living = [name for name, entry in nodes.items() if entry.alive]
        cluster_id = job.upstream.cluster_id
        try:
            await asyncio.to_thread(
                store_end, job.settings, cluster_id, job.target, tracker, state, now_ts, living
            )
        except SessionError as error:
            raise said(job.target, error) from None


class TimestampPass:
    """`stored_ts`: what is stored was copied at, 0: nothing is. `forget`: an old checkpoint goes first."""

    def __init__(self, job: Job, scope: Scope, stored_ts: Ts, *, forget: bool) -> None:
        self._job = job
        self._scope = scope
        self._stored_ts = stored_ts
        self._forget = forget

    async def run(self, at_ts: Ts) -> Passed:
        """`at_ts`: at that timestamp again; 0: now. Raises as `Load.run`, and `SnapshotLost`,
        `SnapshotTooOld`, `NotAsPublished`: not at this T."""
        job = self._job
        async with snapshot_with_schema(
            job.settings,
            job.upstream,
            job.workers + 1,
            at_ts=at_ts,
            hold_name=self._scope.hold_name,
        ) as (snapshot, tracker):
            passed = await self._load(snapshot.ts, tracker, snapshot)
            await self._scope.end(snapshot.ts, tracker)
            return passed

    async def run_without_rows(self, ts: Ts, tracker: SchemaTracker) -> Passed:
        """Tables are made as they are at `ts`. Raises as `Load.run`."""
        passed = await self._load(ts, tracker, None)
        await self._scope.end(ts, tracker)
        return passed

    async def _load(self, ts: Ts, tracker: SchemaTracker, snapshot: UpstreamSnapshot | None) -> Passed:
        job = self._job
        contents = await self._scope.contents(tracker, ts)
        state = LoadState(job.run, self._scope.phase, ts, job.mode.value, job.settings.name)
        runner = DdlRunner(job.target, tracker, job.rules.router.route, self._scope.guard)
        try:
            reconciled = await blocking(job.target, self._look, contents, ts)
            definitions = Definitions(runner, tracker.version, job.findings)
            preparing = Preparing(job.session, job.progress, definitions, state, reconciled)
            await self._scope.begin(ts)
            await blocking(job.target, definitions.open)
            await blocking(job.target, preparing.store, self._replace)
            for target in contents.gone:
                await blocking(job.target, definitions.drop, target)
            await blocking(job.target, preparing.make_databases, contents, tracker)
            await blocking(job.target, preparing.make_tables)
            if snapshot is not None:
                await self._copy(snapshot, tracker, copied(reconciled.all), preparing)
            job.counters.say(FINISHING)
            await blocking(job.target, preparing.make_views)
            missing = await blocking(job.target, definitions.missing, contents.all)
        finally:
            await asyncio.to_thread(runner.close)
        return Passed(ts, len(contents.tables), missing)

    def _look(self, contents: Contents, ts: Ts) -> Reconciled:
        job = self._job
        with job.session.connection() as connection:
            same_ts = ts == self._stored_ts
            return look(connection, job.progress, contents, job.mode, same_ts=same_ts)

    def _replace(self, connection: Connection) -> None:
        if self._forget:
            forget_checkpoint(self._job.settings, self._job.upstream.cluster_id, connection)
            self._job.progress.clear(connection)

    # -- rows -----------------------------------------------------------------------------------------

    async def _copy(
        self,
        snapshot: UpstreamSnapshot,
        tracker: SchemaTracker,
        pairs: Sequence[Stored],
        preparing: Preparing,
    ) -> None:
        job = self._job
        spread = job.spread(job, snapshot.ts, tracker) if job.spread and snapshot.reopens else None
        copying = Copying(
            snapshot,
            job.target,
            job.progress,
            job.run,
            job.counters,
            workers=job.workers,
            rate_rows=job.rate_rows,
            log_values=job.settings.log_values,
            clock=job.clock,
            spread=spread,
        )

        def work() -> None:
            with contextlib.closing(UpstreamTables(job.source, snapshot)) as upstream:
                ordered = self._sized(upstream, snapshot.ts, pairs, copying.wait)
                copying.run(ordered, lambda table: preparing.begin_anew(table.number))

        await read_beside(blocking(job.target, work, tries=1), snapshot, copying.stop)

    def _sized(
        self, upstream: UpstreamTables, ts: Ts, pairs: Sequence[Stored], wait: Callable[[float], bool]
    ) -> Iterator[TableCopy]:
        """The largest first: at the end no worker is alone with it."""
        job = self._job
        sizes = {table.number: insist(upstream.size, source.name, wait=wait) for source, table in pairs}
        job.counters.begin(ts, {source.label: sizes[table.number].rows for source, table in pairs})
        session = DownstreamSession(job.target)
        try:
            for source, table in sorted(pairs, key=lambda pair: -sizes[pair[1].number].size_bytes):
                downstream = insist(_read, session, table.target, wait=wait)
                if downstream is None:
                    raise no_table(source.version)
                here = insist(upstream.table, source.name, wait=wait)
                sync_mode = job.settings.to_sync_mode or FULL
                size, has_others = sizes[table.number], job.mode is Mode.APPEND and not table.is_new
                yield TableCopy.of(
                    table.number, source, here, downstream, size, sync_mode, has_others=has_others
                )
        finally:
            session.close()


def _read(session: DownstreamSession, name: tuple[str, str]) -> DownstreamTable | None:
    with session.connection() as connection:
        return read_table(connection, *name)
