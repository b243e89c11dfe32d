"""File sink: what the stream brings goes into an archive, a directory of files.

Owns    where in the stream it is
Order   records are in the order of the stream; data is synced, then the savepoint moves
Holds   nothing is left out and nothing is written twice: the archive's last record says where to start
Stops   syncs what was appended, stores `consistent = true`. A transaction that came in pieces and is not
        whole is cut off at the next start, and comes again

Tests  tests/drainer/sink/file/test_archive.py, tests/contract/test_sink.py
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Coroutine, Sequence
from typing import Any, Final

from drainer import metrics
from drainer.checkpoint.savepoint import Savepoint
from drainer.checkpoint.value import Checkpoint
from drainer.ddl.derive.values import Route
from drainer.ddl.policy import Policy
from drainer.ddl.rules import Rule
from drainer.sink import Sink
from drainer.sink.background import Background
from drainer.sink.ddl_text import in_archive, statements_of
from drainer.sink.file.archive import BUFFERED_BYTES_MAX, Archive
from drainer.sink.savepoint_keeper import SavepointKeeper
from drainer.stream.pull.merged import Spilled
from drainer.txn import Ddl, Transaction
from tidb_binlog.clock import Clock
from tidb_binlog.late_dataclass import dataclass
from tidb_binlog.observe import log
from tidb_binlog.tso import Ts

logger = log.get("drainer.archive_applier")

SWEEP_S: Final = 3600.0
COMPRESS_S: Final = 2.0
UPLOAD_INTERVAL_S: Final = 10.0
BACKLOG_MAX: Final = 16
"""Segments of an archive in an object store that wait here to be uploaded; then the stream waits."""


@dataclass(frozen=True, slots=True)
class ArchiveStart:
    """The stream continues after `commit_ts`, at that schema version (0: not known)."""

    commit_ts: Ts
    schema_version: int = 0


def where_to_go_on(archive_ts: Ts, stored: Checkpoint | None, initial_ts: Ts) -> ArchiveStart:
    """`archive_ts`: of the last record that is there. The savepoint may lag behind it, or be ahead of it
    where nothing came that belongs into an archive."""
    if stored is not None and stored.commit_ts and stored.commit_ts >= archive_ts:
        return ArchiveStart(stored.commit_ts, stored.schema_version)
    return ArchiveStart(archive_ts or initial_ts)


class FileSink(Sink):
    """`route` says where a table goes. `retention_days`: for which segments are kept, 0: for ever.
    `upstream`: the upstream's clock."""

    verb = "archiving"
    flush_rows = sys.maxsize  # `take` flushes by bytes
    start_ts = 0

    def __init__(
        self,
        start: ArchiveStart,
        archive: Archive,
        savepoint: Savepoint,
        route: Route,
        policy: Policy,
        clock: Clock,
        *,
        retention_days: int = 0,
        compresses: bool = False,
        upstream: Clock | None = None,
        upload_interval_s: float = UPLOAD_INTERVAL_S,
    ) -> None:
        self.background = Background()
        self._archive = archive
        self._savepoint = SavepointKeeper(savepoint, start.commit_ts, clock)
        self._route = route
        self._policy = policy
        self._upstream = upstream or clock
        self._retention_days = retention_days
        self._compresses = compresses
        self._under_way: asyncio.Future[None] | None = None
        self.start_ts = self._last_ts = self._synced = start.commit_ts
        self._version = self._synced_version = start.schema_version
        self._on_disk = start.commit_ts, start.schema_version  # of this machine
        self._upload_interval_s = upload_interval_s
        self._uploading = asyncio.Lock()
        self._more = False  # was appended since the sync that is under way began
        self._is_whole = False

    @property
    def stored_ts(self) -> Ts:
        return self._savepoint.stored_ts

    @property
    def resolved_ts(self) -> Ts:
        """Everything at or below it is in the archive, on the medium or in the object store."""
        return self._synced

    @property
    def handed_over_ts(self) -> Ts:
        return self._last_ts

    @property
    def held_up(self) -> str:
        return self._archive.waiting_for

    def facts(self) -> dict[str, Any]:
        facts = {"waiting_for": self._archive.waiting_for, "last_commit_ts": self._last_ts}
        if self._archive.is_remote:
            facts |= {"uploaded_commit_ts": self._synced, "segments_to_upload": self._archive.backlog}
        return {"Archive": facts}

    def set_ddl_rules(self, rules: Sequence[Rule]) -> None:
        self._policy = Policy(rules)

    # -- beside the stream -----------------------------------------------------------------------

    def tasks(self) -> dict[str, Coroutine[Any, Any, None]]:
        tasks: dict[str, Coroutine[Any, Any, None]] = {}
        if self._retention_days > 0:
            tasks["retention"] = self._keep_retention()
        if self._archive.is_remote:
            tasks["upload"] = self._keep_uploading()
        if self._compresses:
            tasks["compression"] = self._keep_compressing()
        return tasks

    async def _keep_retention(self) -> None:
        """Remove what is older than wanted, once an hour."""
        while True:
            await self._archive.remove_older(self._retention_days, self._upstream.wall_s())
            await asyncio.sleep(SWEEP_S)

    async def _keep_compressing(self) -> None:
        while True:
            await self._archive.compress()
            await asyncio.sleep(COMPRESS_S)

    async def _keep_uploading(self) -> None:
        while True:
            await asyncio.sleep(self._upload_interval_s)
            await self.upload()

    async def upload(self) -> None:
        """Bring what is on the medium into the store; it is synced then."""
        async with self._uploading:
            on_disk = self._on_disk
            await self._archive.upload()
            self._synced, self._synced_version = on_disk

    async def save(self) -> None:
        await self._savepoint.save(self._synced, self._synced_version)

    # -- the stream ------------------------------------------------------------------------------

    async def take(self, transaction: Transaction) -> Transaction | None:
        if transaction.commit_ts <= self.start_ts:  # it is there
            return None
        self._append(transaction)
        if self._archive.waiting >= BUFFERED_BYTES_MAX:
            await self.flush()
        return transaction

    def _append(self, transaction: Transaction) -> None:
        self._archive.append(transaction)
        if transaction.last:
            self._last_ts = transaction.commit_ts

    async def begin_large(self, spilled: Spilled, pieces: AsyncIterator[Transaction]) -> None:
        await self.settled()

    async def take_piece(self, piece: Transaction) -> Transaction | None:
        if piece.commit_ts <= self.start_ts:
            return None
        self._append(piece)
        if self._archive.waiting >= BUFFERED_BYTES_MAX and not piece.last:
            await self._archive.write()
        return piece

    async def take_ddl(self, ddl: Ddl) -> None:
        if ddl.commit_ts > self.start_ts:
            statements, reason = statements_of(ddl, self._policy, self._route)
            if reason:
                logger.info("DDL left out", job_id=ddl.job_id, commit_ts=ddl.commit_ts, reason=reason)
            else:
                self._archive.append_ddl(ddl, *map(in_archive, statements))
                metrics.EVENTS.labels("DDL").inc()
                logger.info("DDL archived", job_id=ddl.job_id, commit_ts=ddl.commit_ts)
        self._version = max(self._version, ddl.schema_version)
        self._last_ts = max(self._last_ts, ddl.commit_ts)

    def watermark(self, ts: Ts) -> None:
        self._last_ts = ts

    async def flush(self) -> None:
        """Bring what was appended to the medium: now, or after the sync that is under way.

        Waits only where much waits already.
        """
        if self._archive.backlog >= BACKLOG_MAX:
            await self.upload()
        if self._archive.waiting >= BUFFERED_BYTES_MAX:
            await self.settled()
        if self._under_way is not None and self._under_way.done():
            await self.settled()
        self._more = True
        if self._under_way is None:
            self._under_way = asyncio.ensure_future(self._sync())
            self._under_way.add_done_callback(self._note)

    async def ready(self) -> None:
        await asyncio.sleep(0)

    async def store_rules(self, rules: str) -> None:
        """Rules are not stored: what is in the archive is not written again."""
        await self.settled()
        await self.flush()
        await self.settled()
        if self._archive.is_remote:
            await self.upload()
        await self.save()

    async def finish(self, *, broken: bool) -> None:
        await self.settled()
        if not broken:
            if self._archive.is_remote:
                await self._archive.sync(indexes=True)
                await self.upload()
            await self._archive.close()
            await self._savepoint.save(self._synced, self._synced_version, consistent=True)
            self._is_whole = True

    async def close(self, *, finished: bool) -> bool:
        await asyncio.to_thread(self._archive.let_go)
        return finished and self._is_whole

    async def _sync(self) -> None:
        while self._more:
            self._more = False
            upto_ts, version = self._last_ts, self._version
            if self._archive.unsynced:  # also what was written already, as pieces of a transaction are
                await self._archive.sync()
            self._on_disk = upto_ts, version
            if not self._archive.is_remote:
                self._synced, self._synced_version = self._on_disk

    def _note(self, done: asyncio.Future[None]) -> None:
        if not done.cancelled() and (error := done.exception()) is not None:
            self.background.fail(error)

    async def settled(self) -> None:
        """What was flushed is on the medium."""
        if self._under_way is not None:
            await asyncio.shield(self._under_way)
            self._under_way = None
