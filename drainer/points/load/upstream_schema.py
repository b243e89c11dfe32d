"""Upstream schema of a load: the tracked schema at T, where the history is all that knows it, too; with the
upstream's tables at that T.

Order   which version the history has, then T, then the schema at T: so no job falls between
Out     the tracker as a Drainer has it that begins after T
Why     a job enters the history after its commit_ts was drawn. After the catalogue's fence none can enter
        with one drawn before T, so what the history has then is all there is up to T (`published_at`)
Never   guesses: a job that a program wrote itself (`Publisher.ddl`) does not say when it was finished. One
        that came while T was drawn is below or above it, so another T has to be drawn
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Final, Protocol, TypeVar

from drainer.config.database_options import UpstreamOptions
from drainer.mysql.chunks.table_size import TableSize, table_size
from drainer.mysql.connection import Connection, Target
from drainer.mysql.literal.quoting import string_literal
from drainer.mysql.rows.column_match import DownstreamTable
from drainer.mysql.session import DownstreamSession
from drainer.mysql.table_reader import is_absent, read_table
from drainer.points.load.table_copy import NotAsPublished
from drainer.points.snapshot.moment import open_upstream_snapshot
from drainer.points.snapshot.sessions import SnapshotLost, SnapshotTooOld, UpstreamSnapshot
from drainer.stream.schema.tracker import SchemaTracker
from drainer.stream.schema.upstream_schema import read_at, read_whole
from tidb_binlog import ddl_job
from tidb_binlog.errors import ConfigError, Rejected
from tidb_binlog.tso import Ts
from tidb_binlog.upstream_port import SchemaHistory, Upstream

T = TypeVar("T")
_PAUSE_S: Final = 0.5


class Catalog(Protocol):
    """Of a standalone upstream."""

    async def fence(self) -> None: ...


def catalog_of(upstream: Upstream) -> Catalog:
    """Raises `ConfigError` where programs cannot publish."""
    catalog: Catalog | None = getattr(upstream, "catalog", None)
    if catalog is None:
        raise ConfigError(
            "[syncer.from] has an outcome-table, and the upstream is a TiDB",
            hint="leave outcome-table out; of programs that publish, pd-urls names their etcd",
        )
    return catalog


async def newest_version(history: SchemaHistory, *, finished_ts: Ts | None = None) -> int:
    """The highest schema version of all jobs, or of those that say that they were finished by then; 0: none
    was."""
    newest = 0
    async for page in history.pages():
        for source in page:
            job = ddl_job.head(source) or ddl_job.parse(source)
            if finished_ts is None or 0 < job.finished_ts <= finished_ts:
                newest = max(newest, job.effective_version)
    return newest


async def schema_at(history: SchemaHistory, ts: Ts, version_before: int = 0) -> SchemaTracker:
    """Of a TiDB, as it was at `ts`; of others, as far as the history tells now. `version_before`:
    `newest_version`, asked before `ts` was drawn."""
    if (schema := await read_at(history, ts)) is not None:
        return schema
    version = max(version_before, await newest_version(history, finished_ts=ts))
    return await read_whole(history, version, ts)


async def published_at(
    history: SchemaHistory, catalog: Catalog, ts: Ts, version_before: int
) -> SchemaTracker:
    """Of programs that publish, as it was at `ts`, whatever was under way. Raises `SnapshotLost`."""
    await catalog.fence()
    newest = version_before
    async for page in history.pages():
        for source in page:
            job = ddl_job.head(source) or ddl_job.parse(source)
            if not job.finished_ts and job.effective_version > version_before:
                raise SnapshotLost(
                    f"DDL job {job.id} was published while the timestamp was drawn",
                    hint="run the same command again",
                )
            if 0 < job.finished_ts <= ts:
                newest = max(newest, job.effective_version)
    return await read_whole(history, newest, ts)


@asynccontextmanager
async def snapshot_with_schema(
    settings: UpstreamOptions,
    upstream: Upstream,
    sessions: int,
    *,
    at_ts: Ts,
    hold_name: str,
    keep: bool = False,
) -> AsyncIterator[tuple[UpstreamSnapshot, SchemaTracker]]:
    """The upstream's tables at one timestamp, and their schema then. `at_ts`: at that one again; 0: now. It
    stays held for who comes back where the block ends with an error, or where `keep` says so. Raises as
    `open_upstream_snapshot`, and `SnapshotLost`."""
    history, of_tidb = upstream.history, not settings.from_outcome_table
    version = 0 if of_tidb else await newest_version(history)
    snapshot = await open_upstream_snapshot(settings, upstream, sessions, at_ts=at_ts, hold_name=hold_name)
    is_done = False
    try:
        if of_tidb:
            tracker = await schema_at(history, snapshot.ts)
        else:
            catalog = catalog_of(upstream)
            tracker = await published_at(history, catalog, snapshot.ts, version)
        yield snapshot, tracker
        is_done = True
    finally:
        await snapshot.close(keep=keep or not is_done)


async def pass_until_kept(
    one_pass: Callable[[Ts], Awaitable[T]], at_ts: Ts, say: Callable[[str], None], *, losses_max: int = 20
) -> T:
    """`one_pass` at `at_ts` (0: now); where that one is lost on the way, at a later one, after `say` of why.
    Raises what it raises: `SnapshotTooOld` at a timestamp of now, `SnapshotLost` and `NotAsPublished` after
    `losses_max` losses."""
    losses = 0
    while True:
        try:
            return await one_pass(at_ts)
        except SnapshotTooOld as error:
            if not at_ts:
                raise
            why = error.message
        except (SnapshotLost, NotAsPublished) as error:
            losses += 1
            if losses > losses_max:
                raise
            why = error.message
            await asyncio.sleep(_PAUSE_S)
        at_ts = 0
        say(why)


Name = tuple[str, str]


class UpstreamTables:
    """Blocking; not thread-safe. `snapshot` None: as they are now. Raises `SessionError`."""

    def __init__(self, target: Target, snapshot: UpstreamSnapshot | None) -> None:
        self._snapshot = snapshot
        self._own = DownstreamSession(target)
        self._is_cut = False

    def close(self) -> None:
        self._own.close()

    def cut(self) -> None:
        """From any thread: who waits for an answer here, and not in the snapshot, is told that it is lost."""
        self._is_cut = True
        if (connection := self._own.current) is not None:
            connection.cut()

    def table(self, name: Name) -> DownstreamTable:
        """Raises `NotAsPublished` where there is none, `Rejected` for one that has no snapshots."""
        with self._session() as connection:
            table = read_table(connection, *name)
            engine = engine_without_snapshots(connection, *name)
            denied = table is None and not is_absent(connection, *name)
        if engine:
            raise Rejected(
                f"the upstream's table {'.'.join(name)} is in engine {engine}, which has no snapshots:"
                " its rows would be of no moment",
                hint=f"ALTER TABLE {'.'.join(name)} ENGINE=InnoDB, or leave it out (ignore-table)",
            )
        if denied:
            raise Rejected(
                f"the upstream does not show {'.'.join(name)} to the user of [syncer.from]",
                hint=f"GRANT SELECT ON {name[0]}.* to it, or leave the table out (ignore-table)",
            )
        if table is None:
            raise NotAsPublished(
                f"the upstream's database has no table {'.'.join(name)}, and has by its published definition",
                hint="make it there, or publish that it is dropped, or leave it out (ignore-table)",
            )
        return table

    def size(self, name: Name) -> TableSize:
        with self._session() as connection:
            return table_size(connection, *name)

    @contextlib.contextmanager
    def _session(self) -> Iterator[Connection]:
        if self._snapshot is not None and self._snapshot.reopens:
            with self._snapshot.session() as connection:
                yield connection
        else:
            with self._own.connection() as connection:
                if self._is_cut:
                    connection.cut()
                yield connection


_ENGINE = (
    b"SELECT t.ENGINE FROM information_schema.TABLES t"
    b" JOIN information_schema.ENGINES e ON e.ENGINE = t.ENGINE"
    b" WHERE t.TABLE_SCHEMA = %b AND t.TABLE_NAME = %b AND COALESCE(e.TRANSACTIONS, '') <> 'YES'"
)


def engine_without_snapshots(connection: Connection, schema: str, name: str) -> str:
    """ "" for a table that a snapshot holds still, and for a view."""
    rows = connection.rows(_ENGINE % (string_literal(schema), string_literal(name)))
    return str(rows[0][0]) if rows else ""
