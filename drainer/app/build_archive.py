"""Archive assembly: from the configuration to the rooms of a drainer that writes files.

Order   the archive's lock first: whoever still writes there is waited for, not fenced off. Then what is there
        and the savepoint say where to go on, then the schema of that moment, then the pipeline behind it
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
from collections.abc import Callable
from typing import Final

from common.clock import SystemClock
from common.cluster.registry import Registry
from common.errors import ConfigError, DirectoryLocked
from common.net.tls import TlsConfig
from common.observe import log
from common.upstream_port import Upstream
from drainer import metrics
from drainer.app.build_mysql import not_ahead, open_collector
from drainer.app.load_schema import read_moment, read_whole
from drainer.app.operations import Operating
from drainer.checkpoint.resume import AheadOfUpstream, Start
from drainer.checkpoint.savepoint import Savepoint, adopt_cluster
from drainer.checkpoint.value import Checkpoint
from drainer.config.options import DrainerConfig
from drainer.ddl import rules as ddl_rules
from drainer.ddl.policy import Policy
from drainer.pull.collector import Collector
from drainer.rules.rule_change import RuleChange
from drainer.rules.rule_set import read_rules
from drainer.schema.tracker import SchemaTracker
from drainer.sink.file.applier import ArchiveApplier, ArchiveStart, where_to_go_on
from drainer.sink.file.archive import Archive
from drainer.sink.mysql.change import Position
from drainer.translate.translator import Translator

logger = log.get(__name__)

# A drainer that was killed may still be in a sync, and one that stops has so long for what it began.
LOCK_WAIT_S: Final = 15.0
LOCK_PAUSE_S: Final = 0.2


async def build(
    settings: DrainerConfig,
    upstream: Upstream,
    nodes: Registry,
    tls: TlsConfig | None,
    ends: contextlib.AsyncExitStack,
    operating: Operating,
    unbroken: Callable[[], int | None],
    *,
    again: bool = False,
) -> tuple[ArchiveApplier, Collector]:
    """As `assembly.build`, for a downstream that is a directory."""
    clock = SystemClock()
    rules = read_rules(settings)
    adopt_cluster(settings.data_dir, upstream.cluster_id)
    savepoint = Savepoint(settings.data_dir)
    stored = await asyncio.to_thread(savepoint.load)
    archive = await _opened(settings, upstream.cluster_id, stored, clock)
    ends.push_async_callback(asyncio.to_thread, archive.let_go)
    wait_for = operating.wait_for
    start = await not_ahead(lambda: wait_for(functools.partial(_start, settings, upstream, archive, stored)))
    logger.info("archive", cluster_id=upstream.cluster_id, commit_ts=start.commit_ts, last_ts=archive.last_ts)
    tracker = await wait_for(functools.partial(_schema, settings, upstream, start))
    translator = Translator(tracker, rules)
    metrics.LOOPBACK_TRANSACTIONS.set_function(lambda: float(translator.looped))
    clocked = operating.upstream_clock
    applier = ArchiveApplier(
        start,
        archive,
        savepoint,
        translator,
        Policy(ddl_rules.parse(settings.ddl_rules)),
        clock,
        operating.control,
        checkpoint_interval_s=settings.checkpoint_interval_s,
        retention_days=settings.retention_days,
        compresses=bool(settings.compression),
        rules=RuleChange(translator, rules, None),
        upstream=clocked,
    )
    operating.make_archive_live(applier)
    return applier, open_collector(settings, upstream, nodes, tls, applier.start_ts, unbroken, clocked)


def directory_of(settings: DrainerConfig) -> str:
    return os.path.abspath(settings.to_dir or settings.data_dir)


async def _opened(
    settings: DrainerConfig, cluster_id: int, stored: Checkpoint | None, clock: SystemClock
) -> Archive:
    """Raises `DirectoryLocked` when somebody else does not let go of it."""
    end_s = clock.monotonic_s() + LOCK_WAIT_S
    while True:
        try:
            return await asyncio.to_thread(
                Archive.open,
                directory_of(settings),
                clock,
                cluster_id=cluster_id,
                stored_ts=stored.commit_ts if stored else 0,
                max_file_size=settings.to_file_size,
            )
        except DirectoryLocked:
            if clock.monotonic_s() > end_s:
                raise
            await asyncio.sleep(LOCK_PAUSE_S)


async def _start(
    settings: DrainerConfig, upstream: Upstream, archive: Archive, stored: Checkpoint | None
) -> ArchiveStart:
    now_ts = await upstream.oracle.timestamp()
    initial_ts = settings.initial_commit_ts if settings.initial_commit_ts != -1 else now_ts
    start = where_to_go_on(archive.last_ts, stored, initial_ts)
    if start.commit_ts > now_ts:
        raise AheadOfUpstream(
            f"the archive of cluster {upstream.cluster_id} is at {start.commit_ts}, but the upstream is at"
            f" {now_ts}: it went back in time, or is another one with the same id",
            hint="check pd-urls; after restoring the upstream begin a new archive, with a new data-dir",
        )
    return start


async def _schema(settings: DrainerConfig, upstream: Upstream, start: ArchiveStart) -> SchemaTracker:
    """As it was where the stream goes on."""
    if settings.load_schema_snapshot:
        found = await read_moment(upstream.history, start.commit_ts)
        if found is not None:
            return found
    version = start.schema_version
    checkpoint = Checkpoint(start.commit_ts, False, version) if version else None
    place = Start(0, checkpoint, (Position(start.commit_ts),), None, floor_ts=start.commit_ts)
    return await read_whole(upstream.history, place, start.commit_ts)


def _check_directory(path: str) -> None:
    if os.path.isdir(path) and not os.access(path, os.R_OK | os.W_OK | os.X_OK):
        raise ConfigError(f"archive {path} cannot be written", hint="choose a directory that may be")


async def rehearse(settings: DrainerConfig, upstream: Upstream) -> None:
    """What a takeover needs of others, tried without writing anything. Raises what is in its way."""
    read_rules(settings)
    await asyncio.to_thread(_check_directory, directory_of(settings))
    await upstream.oracle.timestamp()
    await upstream.history.job(1)
