"""Build of the sinks that append to changelogs in a lake: Delta, Iceberg.

Tests  tests/integration/sinks/test_lake.py
"""

from __future__ import annotations

import datetime
import functools

from drainer.app.build import BuildContext
from drainer.app.build_batch import build_batch
from drainer.config.options import DrainerConfig
from drainer.lake.lake_sink import LakeItems, LakeSink
from drainer.lake.warehouse import check_begin, lake_of
from drainer.sink.batch.batched_sink import BatchedSink
from drainer.sink.runner import Runner
from tidb_binlog.clock import SystemClock


async def build(context: BuildContext) -> Runner[BatchedSink]:
    settings = context.settings
    sink = sink_of(settings, context.upstream.cluster_id)
    check = functools.partial(check_begin, lake_of(settings, context.upstream.cluster_id))
    return await build_batch(context, sink, settings.db_type, LakeItems(), check_begin=check)


def sink_of(settings: DrainerConfig, cluster_id: int) -> LakeSink:
    """Not open yet. Raises `ConfigError` where a package is missing."""
    return LakeSink(
        lake_of(settings, cluster_id),
        SystemClock(),
        batch_bytes=settings.commit_bytes,
        batch_interval_s=settings.commit_interval_s,
        target_bytes=settings.to_file_size,
        compact_s=settings.compact_interval_s,
        retention=datetime.timedelta(days=settings.retention_days),
    )


async def rehearse(settings: DrainerConfig, cluster_id: int) -> None:
    """See `Builder`."""
    lake_of(settings, cluster_id)
