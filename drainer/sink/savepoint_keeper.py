"""Savepoint keeper: how a sink whose checkpoint is a file, or a row elsewhere, stores it.

Holds  the stored checkpoint never falls; one write at a time. A full disk, or a server that is away, is
       waited for

Tests  tests/drainer/sink/file/test_archive_disk.py, tests/contract/test_sink.py
"""

from __future__ import annotations

import asyncio

from drainer import metrics
from drainer.checkpoint.savepoint import Savepoint
from drainer.checkpoint.value import Checkpoint
from drainer.config.options import DrainerConfig
from drainer.formats.binlog_directory import DISK_FULL, Broken
from tidb_binlog import filesystem, tso
from tidb_binlog.backoff import Backoff
from tidb_binlog.clock import Clock
from tidb_binlog.errors import Unavailable
from tidb_binlog.observe import log
from tidb_binlog.tso import Ts

logger = log.get("drainer.savepoint")


def savepoint_of(settings: DrainerConfig, cluster_id: int) -> Savepoint:
    """The file, or the row that counts in its place; to be closed."""
    if not settings.has_savepoint_row:
        return Savepoint(settings.data_dir)
    # Others need no client of a database.
    from drainer.checkpoint.savepoint_row import SavepointRow
    from drainer.config.downstream import checkpoint_target_of

    where = settings.checkpoint_schema, settings.checkpoint_table
    return SavepointRow(settings.data_dir, checkpoint_target_of(settings), *where, cluster_id)


class SavepointKeeper:
    """`stored_ts`: what is stored at the start."""

    def __init__(self, savepoint: Savepoint, stored_ts: Ts, clock: Clock) -> None:
        self._savepoint = savepoint
        self._clock = clock
        self._storing = asyncio.Lock()
        self.stored_ts = stored_ts

    async def save(self, commit_ts: Ts, schema_version: int, *, consistent: bool = False) -> None:
        """Store it if it has moved, or if the downstream is `consistent`: at the end of a life."""
        async with self._storing:
            if commit_ts <= self.stored_ts and not consistent:
                return
            await self._store(Checkpoint(commit_ts, consistent, schema_version))
            self.stored_ts = commit_ts
        metrics.CHECKPOINT_TSO.set(tso.physical_ms(commit_ts))
        metrics.CHECKPOINT_DELAY_SECONDS.observe(max(0.0, tso.age_s(commit_ts, self._clock.wall_s())))
        metrics.EVENTS.labels("savepoint").inc()

    async def _store(self, checkpoint: Checkpoint) -> None:
        backoff = Backoff(0.1, 2.0)
        while True:
            try:
                await asyncio.to_thread(self._savepoint.save, checkpoint)
            except Unavailable as error:
                if not backoff.attempts:
                    logger.warning("the checkpoint waits for its server", reason=str(error))
                await asyncio.sleep(backoff.next_s())
            except OSError as error:
                if error.errno not in DISK_FULL:
                    raise Broken(
                        f"the savepoint cannot be written: {error}",
                        hint=filesystem.mending(error, "check the disk of data-dir, then start again"),
                    ) from None
                if not backoff.attempts:
                    logger.warning("savepoint waits for room on its disk", reason=str(error))
                await asyncio.sleep(backoff.next_s())
            else:
                return
