"""Build of a file sink: from the configuration to a drainer that writes an archive.

Order   the archive's lock first: a drainer that still writes there is waited for, not fenced off. What is
        there and the savepoint say where to continue; then come the schema of there, and the sink

Tests  tests/integration/test_archive.py
"""

from __future__ import annotations

import asyncio
import functools
import os
from typing import Any, Final

from drainer.app.build import BuildContext
from drainer.app.savepoint_start import Place, SavepointStart
from drainer.checkpoint.value import Checkpoint
from drainer.config.options import DrainerConfig
from drainer.sink.file.archive import Archive
from drainer.sink.file.file_sink import ArchiveStart, FileSink, where_to_go_on
from drainer.sink.runner import Runner
from tidb_binlog.clock import SystemClock
from tidb_binlog.errors import ConfigError, DirectoryLocked
from tidb_binlog.observe import log
from tidb_binlog.tso import Ts

logger = log.get("drainer.archive_assembly")

# A drainer that was killed may still be in a sync, and one that stops has so long for what it began.
LOCK_WAIT_S: Final = 15.0
LOCK_PAUSE_S: Final = 0.2
UPLOADED: Final = "archive-to-upload"
"""In the data directory: the files of an archive whose place is an object store."""


async def build(context: BuildContext) -> Runner[FileSink]:
    settings, upstream, operating = context.settings, context.upstream, context.operating
    clock = SystemClock()
    begin = SavepointStart(context)
    stored = await begin.stored()
    archive = await _opened(settings, upstream.cluster_id, stored, clock)
    context.ends.push_async_callback(asyncio.to_thread, archive.let_go)
    place = await begin.place(
        lambda initial_ts: Place(*_start(archive, stored, initial_ts)),
        "the archive",
        "check pd-urls; after restoring the upstream begin a new archive, with a new data-dir",
    )
    logger.info("archive", cluster_id=upstream.cluster_id, commit_ts=place.commit_ts, last_ts=archive.last_ts)
    translator = await begin.translator(place)
    sink = FileSink(
        ArchiveStart(*place),
        archive,
        begin.savepoint,
        translator.route,
        begin.policy,
        clock,
        retention_days=settings.retention_days,
        compresses=bool(settings.compression),
        upstream=operating.upstream_clock,
        upload_interval_s=settings.upload_interval_s,
    )
    return begin.runner(sink, translator)


def _start(archive: Archive, stored: Checkpoint | None, initial_ts: Ts) -> tuple[int, int]:
    start = where_to_go_on(archive.last_ts, stored, initial_ts)
    return start.commit_ts, start.schema_version


def directory_of(settings: DrainerConfig) -> str:
    """Of what is written on this machine."""
    local = settings.archive_place.local
    return os.path.abspath(
        os.path.join(settings.data_dir, UPLOADED) if local is None else local or settings.data_dir
    )


async def _opened(
    settings: DrainerConfig, cluster_id: int, stored: Checkpoint | None, clock: SystemClock
) -> Archive:
    """Raises `DirectoryLocked` when another process holds it for too long."""
    place = settings.archive_place
    given: dict[str, Any] = {
        "cluster_id": cluster_id,
        "stored_ts": stored.commit_ts if stored else 0,
        "max_file_size": settings.segment_bytes,
    }
    if place.local is None:
        from drainer.sink.file.remote_files import open_remote

        opening = functools.partial(open_remote, place, node_id=settings.name, **given)
    else:
        opening = functools.partial(Archive.open, **given)
    end_s = clock.monotonic_s() + LOCK_WAIT_S
    while True:
        try:
            return await asyncio.to_thread(opening, local=directory_of(settings), clock=clock)
        except DirectoryLocked:
            if clock.monotonic_s() > end_s:
                raise
            await asyncio.sleep(LOCK_PAUSE_S)


def _check_directory(path: str) -> None:
    if os.path.isdir(path) and not os.access(path, os.R_OK | os.W_OK | os.X_OK):
        raise ConfigError(f"archive {path} cannot be written", hint="choose a directory that may be")


async def rehearse(settings: DrainerConfig, cluster_id: int) -> None:
    """See `Builder`."""
    if settings.archive_place.local is None:
        await asyncio.to_thread(settings.archive_place.list, missing_ok=True)
    else:
        await asyncio.to_thread(_check_directory, directory_of(settings))
