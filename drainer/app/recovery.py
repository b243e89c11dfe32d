"""Recovery: the downstream is brought to a consistent state without the upstream.

Out    the downstream as the upstream was at the last whole record, `consistent` true, a summary
Order  every record is checked; what is stored is read, twice with a pause: nothing may move, and no
       drainer may hold a session there; only then the checkpoint is taken over, and the records after it go
       through the MySQL sink like any stream
Holds  rows that our lanes had applied are left out by the lanes' positions; after another drainer's
       checkpoint statements are used that may be repeated. Nothing is written downstream before all of the
       relay log is known to be whole
Never  calls a downstream consistent when rows after the end of the relay log went there; fences a drainer
       off that works: without the upstream nothing else shows that it does
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from drainer.app.build_mysql import patiently
from drainer.app.start_wait import AtWork, Summary
from drainer.checkpoint.inspection import Inspection
from drainer.checkpoint.keeper import HOLD_S
from drainer.checkpoint.resume import Start, StoredState, is_foreign
from drainer.checkpoint.store import CheckpointStore
from drainer.checkpoint.value import DEFAULT_TABLE, Checkpoint, Intent
from drainer.formats.binlog_directory import BinlogDirectory
from drainer.mysql.connection import Target, connect
from drainer.mysql.errors import NoSuchTable
from drainer.mysql.literal.quoting import qualified
from drainer.mysql.rows.change import COMPLETE, Position
from drainer.relay.downstream_definitions import RelayTables
from drainer.relay.source import RelaySource
from drainer.sink.mysql.bounded_stream import run_to_end
from drainer.sink.mysql.mysql_sink import MysqlSink
from drainer.sink.runner import Runner
from tidb_binlog import tso
from tidb_binlog.clock import Clock
from tidb_binlog.errors import ConfigError, Conflict
from tidb_binlog.filesystem import read_file
from tidb_binlog.late_dataclass import dataclass, replace
from tidb_binlog.observe import log
from tidb_binlog.tso import Ts

logger = log.get("drainer.relay_recovery")

QUIET_S: Final = 3 * HOLD_S
"""A drainer that lives shows a session downstream within this time."""


@dataclass(frozen=True, slots=True)
class Stored:
    """The cluster whose checkpoint is downstream, and the checkpoint."""

    cluster_id: int
    checkpoint: Checkpoint


def stored_checkpoint(
    target: Target, schema: str, table: str = DEFAULT_TABLE, *, cluster_id: int = 0
) -> Stored | None:
    """The checkpoint of a cluster, or with 0 the only one that is stored; None if there is none. Blocks.

    Raises `ConfigError` if there are several, PyMySQL's errors, `DownstreamError`, `Unavailable`.
    """
    connection = connect(target)
    try:
        name = qualified(schema, table)
        rows = connection.rows(b"SELECT clusterID, checkPoint FROM " + name)
    except NoSuchTable:
        return None
    finally:
        connection.close()
    rows = [row for row in rows if cluster_id in (0, int(row[0]))]
    if len(rows) > 1:
        raise ConfigError(
            f"{schema}.{table} has checkpoints of {len(rows)} clusters: which one the relay log belongs to "
            "cannot be known without the upstream",
            hint="give each cluster a checkpoint schema of its own",
        )
    return Stored(int(rows[0][0]), Checkpoint.from_json(str(rows[0][1]))) if rows else None


def known_cluster(*directories: str) -> int:
    """The cluster id that the first of the directories remembers (relay log or data directory); 0 if none."""
    for directory in directories:
        for name in (".lock", ".cluster"):
            with contextlib.suppress(OSError, ValueError):
                return int(read_file(os.path.join(directory, name)))
    return 0


RunnerOf = Callable[[CheckpointStore, Start, RelaySource], Awaitable[Runner[MysqlSink]]]


class RelayRecovery:
    """`store_of` makes the store of a cluster, `runner_of` a stream that takes its items from a source.

    `inspect` sees what is stored of a cluster without writing, and who works on it; blocks.
    """

    def __init__(
        self,
        path: str,
        target: Target,
        stored: Stored | None,
        store_of: Callable[[int], CheckpointStore],
        runner_of: RunnerOf,
        clock: Clock,
        lane_count: int,
        inspect: Callable[[int], Inspection],
        *,
        quiet_s: float | None = None,
    ) -> None:
        self._inspect = inspect
        self._quiet_s = QUIET_S if quiet_s is None else quiet_s
        self._path = path
        self._tables = RelayTables(target)
        self._stored = stored
        self._store_of = store_of
        self._runner_of = runner_of
        self._clock = clock
        self._lane_count = lane_count

    async def run(self) -> Summary:
        """Raises `Corruption` for a damaged relay log, `Conflict` if it ends before what the downstream has,
        `AtWork` while a drainer lives, and what the sink raises. Done again, it continues where it was."""
        if self._stored is None:
            return Summary("no checkpoint is stored downstream", is_unknown=True)
        started_s = self._clock.monotonic_s()
        directory = await self._opened()
        try:
            source = RelaySource(directory, self._tables, self._clock)
            await patiently(source.survey, self._tables.close)
            nothing = _nothing_to_do(self._stored.checkpoint, source)
            if nothing:
                return Summary(nothing)
            return await self._recover(self._stored, source, directory.purged_ts, started_s)
        finally:
            self._tables.close()
            directory.close()

    async def _opened(self) -> BinlogDirectory:
        """Not left locked where this is cancelled meanwhile: the upstream is back, the drainer writes on."""
        opening = asyncio.ensure_future(asyncio.to_thread(BinlogDirectory, self._path, self._clock))
        try:
            return await asyncio.shield(opening)
        except asyncio.CancelledError:
            opening.add_done_callback(_close_opened)
            raise

    async def _recover(self, stored: Stored, source: RelaySource, purged_ts: Ts, started_s: float) -> Summary:
        from_ts = stored.checkpoint.commit_ts
        await self._check_alone(stored.cluster_id, source, purged_ts)
        store = self._store_of(stored.cluster_id)
        to_ts = max(source.last_ts, from_ts)
        # The time is what takeovers compare with; without the upstream it is only known roughly.
        now_ts = max(to_ts, tso.from_wall_s(self._clock.wall_s()))
        start = await patiently(lambda: store.start(self._lane_count, from_ts, now_ts), store.close)
        start = replace(start, safe_mode=start.safe_mode.until(to_ts))
        end_ts = end_of(start.positions, start.intent, to_ts)
        if not end_ts:  # another drainer wrote after it was inspected
            await asyncio.to_thread(store.close)
            raise _beyond(start.positions, source.last_ts, self._path)
        to_ts = end_ts
        source.take(start.floor_ts, to_ts)
        records = source.records
        logger.info("relay log is applied", from_ts=from_ts, to_ts=to_ts, records=records, own=source.own)
        runner = await self._runner_of(store, start, source)
        waiting = await self._apply(runner, source)
        if waiting:
            raise Conflict(
                f"the relay log was read to its end, but the downstream is consistent up to "
                f"{runner.sink.stored_ts} only: " + "; ".join(map(_waits, waiting)),
                hint="skip or rewrite it with an entry in [[syncer.ddl-rule]], or carry it out downstream by"
                " hand, and start again",
            )
        if runner.sink.stored_ts < to_ts:
            raise Conflict(
                f"the relay log was read to its end, but the checkpoint is at {runner.sink.stored_ts} only",
                hint="start again: it continues where the lanes stopped",
            )
        return Summary(
            from_ts=from_ts,
            to_ts=to_ts,
            records=records,
            rows=runner.rows,
            ddls=source.ddls,
            seconds=self._clock.monotonic_s() - started_s,
        )

    async def _check_alone(self, cluster_id: int, source: RelaySource, purged_ts: Ts) -> None:
        """Nothing is written yet, and no drainer is fenced off."""
        first = await patiently(lambda: self._inspect(cluster_id), lambda: None)
        check_alone(first, first)
        check_begin(first.stored, purged_ts, self._path)
        check_reach(first.stored, source.last_ts, self._path)
        await asyncio.sleep(self._quiet_s)
        check_alone(first, await patiently(lambda: self._inspect(cluster_id), lambda: None))

    async def _apply(self, runner: Runner[MysqlSink], source: RelaySource) -> list[dict[str, Any]]:
        """What still waits for a decision after the end."""
        waiting, drained = await run_to_end(runner, source.batches())
        if not drained:
            raise Conflict(
                "the relay log was not applied to its end",
                hint="start again: it continues where the lanes stopped",
            )
        return waiting


def _close_opened(opening: asyncio.Future[BinlogDirectory]) -> None:
    if not opening.cancelled() and opening.exception() is None:
        opening.result().close()


def _waits(document: dict[str, Any]) -> str:
    """One DDL that waits, in words."""
    where = f"DDL job {document['job_id']} at commit_ts {document['commit_ts']}"
    return f"{where} waits ({document['reason']}): {document['query']}"


def check_alone(first: Inspection, second: Inspection) -> None:
    """Raises `AtWork` if a drainer holds a session, or something moved between two inspections."""
    sessions = sorted({*first.sessions, *second.sessions})
    if sessions:
        raise AtWork(
            "a drainer is connected to the downstream and may be at work (connection ids "
            f"{', '.join(map(str, sessions))})",
            hint="stop it; if its host is gone, KILL these connections downstream",
        )
    if first.stored != second.stored:
        raise AtWork("another process moves the checkpoint downstream", hint="stop the other drainer")


def end_of(positions: Sequence[Position], intent: Intent | None, last_ts: Ts) -> int:
    """Up to where a relay log with records up to `last_ts` brings lanes at these positions; 0: it cannot.

    Lanes are moved together, at drained points, to where the stream is: above the last record, if nothing was
    written lately. Then all of them stand there, and nothing after it is downstream.
    """
    reached_ts = max((position.commit_ts for position in positions), default=0)
    if reached_ts <= last_ts:
        return last_ts
    together = len(set(positions)) == 1 and positions[0].rows == COMPLETE
    unknown_ddl = intent is not None and intent.commit_ts > last_ts
    return reached_ts if together and not unknown_ddl else 0


def check_begin(stored: StoredState, purged_ts: Ts, path: str) -> None:
    """Raises `Conflict` when the downstream needs records that were removed."""
    state, row = stored.state, stored.row
    ours = None if is_foreign(stored) or state is None else state.checkpoint
    checkpoint = ours or row
    if checkpoint is not None and checkpoint.commit_ts < purged_ts:
        raise Conflict(
            f"the downstream is at {checkpoint.commit_ts}, but the relay log in {path} begins after"
            f" {purged_ts}: the downstream went back in time, or the log is of another one",
            hint="bring the upstream back, or restore a newer downstream",
        )


def check_reach(stored: StoredState, last_ts: Ts, path: str) -> None:
    """Raises `Conflict` when rows went downstream that the relay log does not have."""
    state, row = stored.state, stored.row
    floor_ts = max(row.commit_ts if row else 0, last_ts)
    if is_foreign(stored) or end_of(stored.lanes, state.intent if state else None, floor_ts):
        return
    raise _beyond(stored.lanes, last_ts, path)


def _beyond(positions: Sequence[Position], last_ts: Ts, path: str) -> Conflict:
    reached_ts = max(position.commit_ts for position in positions)
    return Conflict(
        f"rows of commit_ts {reached_ts} are downstream, but the relay log in {path} ends at "
        f"{last_ts}: it was off, or another one was in use",
        hint="point log-dir to the relay log of the last run, or bring the upstream back",
    )


def _nothing_to_do(checkpoint: Checkpoint, source: RelaySource) -> str:
    """Why the downstream is consistent already; "" if there is work.

    `consistent` of a Go drainer may be an old one: it is cleared by the first save, not at the start.
    """
    if checkpoint.consistent and source.last_ts <= checkpoint.commit_ts:
        return f"the downstream is consistent as of commit_ts {checkpoint.commit_ts}"
    return ""
