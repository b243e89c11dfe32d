"""Load: copies what the upstream has at one timestamp T, so that a Drainer goes on from there.

Order   1. what is stored downstream says whether this begins a load, goes on with one, or is refused
        2. T: the snapshot is opened, the schema at T read, what is there compared with what is wanted
        3. databases, sequences and tables are made; all chunks are copied; views are made
        4. the checkpoint at T is stored, in one transaction with the end of the load
Holds   killed at any point, the same command goes on. Where T is gone (a publisher's database shows it to one
        process only, a TiDB collects it), or a table was altered after T, another T takes its place: what was
        copied is compared with it, and copied anew where it differs
Never   runs beside a Drainer of the same name, or beside another load
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Final

from drainer.checkpoint.job_findings import JobFindings
from drainer.checkpoint.load_progress import LOAD_ROLE, LoadProgress, LoadState
from drainer.config.downstream import target_of, upstream_target_of
from drainer.config.options import DrainerConfig
from drainer.mysql.connection import Connection
from drainer.mysql.mark_table import open_marks
from drainer.mysql.session import DownstreamSession
from drainer.mysql.session_lock import ENDING_S, Claims, claim, holder_of
from drainer.points.load import upstream_schema
from drainer.points.load.contents import Contents, contents_of
from drainer.points.load.counters import PREPARING, Counters
from drainer.points.load.job import Job, SpreadOf, blocking
from drainer.points.load.preparing import copied, look
from drainer.points.load.reconcile import Mode
from drainer.points.load.store_checkpoint import to_go_on_with
from drainer.points.load.table_copy import NotAsPublished, check_columns, rows_wanted
from drainer.points.load.timestamp_pass import Everything, Passed, Scope, TimestampPass
from drainer.points.load.upstream_schema import UpstreamTables
from drainer.points.snapshot.sessions import SnapshotLost, SnapshotTooOld
from drainer.stream.rules.rule_set import read_rules
from tidb_binlog.clock import Clock, SystemClock
from tidb_binlog.cluster.registry import Registry
from tidb_binlog.errors import ConfigError, Conflict
from tidb_binlog.late_dataclass import dataclass
from tidb_binlog.observe import log
from tidb_binlog.tso import Ts
from tidb_binlog.upstream_port import Upstream

ROWS_A_SECOND: Final = 100_000
BYTES_A_SECOND: Final = 25_000_000
"""What a server on two cores takes in; a guess for the time."""


@dataclass(frozen=True, slots=True)
class TableEstimate:
    """`rows` and `size_bytes` as the upstream's statistics have them."""

    name: str
    target: str
    rows: int
    size_bytes: int
    chunks: int
    way: str


@dataclass(frozen=True, slots=True)
class Estimate:
    ts: Ts
    tables: tuple[TableEstimate, ...]
    views: int
    sequences: int
    seconds: float


async def estimate(
    settings: DrainerConfig, upstream: Upstream, nodes: Registry, *, mode: Mode, rate_rows: int = 0
) -> Estimate:
    """Raises as `Load.run`."""
    stored = await blocking(target_of(settings), to_go_on_with, settings, upstream.cluster_id, mode)
    if stored is not None and not stored.is_unfinished:
        return Estimate(stored.ts, (), 0, 0, 0.0)
    ts = await upstream.oracle.timestamp()
    version = await upstream_schema.newest_version(upstream.history) if settings.from_outcome_table else 0
    tracker = await upstream_schema.schema_at(upstream.history, ts, version)
    contents = contents_of(tracker, read_rules(settings))
    tables = await blocking(target_of(settings), _tables, settings, upstream.cluster_id, contents, mode)
    rows, size = sum(table.rows for table in tables), sum(table.size_bytes for table in tables)
    seconds = max(rows / (rate_rows or ROWS_A_SECOND), size / BYTES_A_SECOND)
    return Estimate(ts, tuple(tables), len(contents.views), len(contents.sequences), seconds)


def _tables(settings: DrainerConfig, cluster_id: int, contents: Contents, mode: Mode) -> list[TableEstimate]:
    progress = LoadProgress(settings.checkpoint_schema, cluster_id)
    session = DownstreamSession(target_of(settings))
    try:
        reconciled = look(session.open(), progress, contents, mode, same_ts=True)
    finally:
        session.close()
    listed = []
    with contextlib.closing(UpstreamTables(upstream_target_of(settings), None)) as upstream:
        for source, _ in copied(reconciled.all):
            check_columns(source, upstream.table(source.name))
            size = upstream.size(source.name)
            way = "by row rules" if source.edit is not None else ""
            listed.append(
                TableEstimate(
                    source.label,
                    ".".join(source.target),
                    size.rows,
                    size.size_bytes,
                    size.chunks(rows_wanted(size)),
                    way,
                )
            )
    return listed


logger = log.get("load")

LOSSES_MAX: Final = 50
"""Timestamps that may be lost in one run; each leaves less to do."""
PAUSE_S: Final = 0.5


@dataclass(frozen=True, slots=True)
class Loaded:
    """`rows` were copied by this run, `compared` were there already and are equal. `missing`: what the
    downstream could not have, one line each. `before`: an earlier run had done all of it."""

    ts: Ts
    tables: int
    rows: int
    compared: int
    seconds: float
    missing: tuple[str, ...] = ()
    before: bool = False


class Load:
    """One run. `rate_rows`: rows a second at most, 0: no limit. `spread`, `reader`: as `Job` has them. Raises
    `ConfigError`."""

    def __init__(
        self,
        settings: DrainerConfig,
        upstream: Upstream,
        nodes: Registry,
        *,
        mode: Mode = Mode.NEW,
        rate_rows: int = 0,
        counters: Counters | None = None,
        clock: Clock | None = None,
        spread: SpreadOf | None = None,
        reader: str = "",
    ) -> None:
        if not settings.to_database:
            raise ConfigError(
                f"db-type is {settings.db_type!r}: a load writes into a database",
                hint="-to archive writes an image; kafka and other sinks begin with the stream",
            )
        self.counters = counters or Counters()
        self._settings = settings
        self._upstream = upstream
        self._nodes = nodes
        self._mode = mode
        self._rate_rows = rate_rows
        self._clock = clock or SystemClock()
        self._spread = spread
        self._reader = reader
        self._rules = read_rules(settings)
        self._target = target_of(settings)
        self._source = upstream_target_of(settings)
        self._progress = LoadProgress(settings.checkpoint_schema, upstream.cluster_id)
        self._session = DownstreamSession(self._target, self._claim)

    async def run(self) -> Loaded:
        """Raises `Rejected`, `Conflict`, `DownstreamError`, `Unavailable`, `ConfigError`, `Corruption`."""
        began_s = self._clock.monotonic_s()
        try:
            stored = await blocking(self._target, self._begin)
            if stored is not None and not stored.is_unfinished:
                missing = await blocking(self._target, self._missing)
                return Loaded(stored.ts, 0, 0, 0, 0.0, missing, before=True)
            passed = await self._passes(stored, await self._upstream.oracle.timestamp())
        finally:
            await asyncio.to_thread(self._session.close)
        done = self.counters.view()
        seconds = self._clock.monotonic_s() - began_s
        return Loaded(passed.ts, passed.tables, done.rows_here, done.rows_compared, seconds, passed.missing)

    def _claim(self, connection: Connection) -> None:
        """Mark the session. Raises `Conflict`."""
        connection.keep_alive()
        name = Claims(self._settings.checkpoint_schema, self._upstream.cluster_id).name(LOAD_ROLE)
        if not claim(connection, name, wait_s=ENDING_S) and (holder := holder_of(connection, name)):
            raise Conflict(
                f"another load into this downstream runs (its session there is {holder})",
                hint=f"wait for its end; of a process that is gone, KILL {holder} there ends the session",
            )

    def _begin(self) -> LoadState | None:
        """The load to go on with, or that is done; None: a new one begins. Raises `Rejected`, `Conflict`."""
        settings, cluster_id = self._settings, self._upstream.cluster_id
        self._session.open()
        open_marks(self._target)
        state = to_go_on_with(settings, cluster_id, self._mode)
        if state is not None:
            if self._mode is Mode.NEW:
                self._mode = Mode(state.mode)
            return state
        with self._session.connection() as connection:
            self._progress.create(connection)
            connection.commit()
        return None

    def _missing(self) -> tuple[str, ...]:
        findings = JobFindings(self._settings.checkpoint_schema, self._upstream.cluster_id)
        with self._session.connection() as connection:
            missing = findings.all_missing(connection)
            connection.rollback()
        return missing

    async def _passes(self, stored: LoadState | None, run: int) -> Passed:
        job = Job(
            self._settings,
            self._upstream,
            self._nodes,
            self._rules,
            self._target,
            self._source,
            self._session,
            self._progress,
            run,
            self._mode,
            self._rate_rows,
            self._settings.worker_count,
            self.counters,
            self._clock,
            self._spread,
            self._reader,
        )
        return await passes(job, Everything(job), stored)


async def passes(job: Job, scope: Scope, stored: LoadState | None, *, later: bool = False) -> Passed:
    """One timestamp after the other, until everything is copied at one. `later`: what is stored will not do.
    Raises as `Load.run`."""
    may_go_on = not later and not job.settings.from_outcome_table
    at_ts = stored.ts if stored is not None and may_go_on else 0
    losses = 0

    def say(why: str) -> None:
        logger.warning("the load goes on at a later timestamp", reason=why)
        job.counters.say(PREPARING, f"begins again at a later timestamp: {why}")

    def stored_now() -> LoadState | None:
        with job.session.connection() as connection:
            state = job.progress.state(connection)
            connection.rollback()
        return state if state is not None and state.phase == scope.phase else None

    while True:
        forget = stored is None and job.mode is Mode.REPLACE
        try:
            stored_ts = stored.ts if stored is not None else 0
            return await TimestampPass(job, scope, stored_ts, forget=forget).run(at_ts)
        except SnapshotTooOld as error:
            if not at_ts:
                raise
            at_ts = 0
            say(error.message)
        except (SnapshotLost, NotAsPublished) as error:
            losses += 1
            if losses > LOSSES_MAX:
                raise
            say(error.message)
            await asyncio.sleep(PAUSE_S)
        stored = await blocking(job.target, stored_now) or stored
