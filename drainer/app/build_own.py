"""Build of a sink of one's own: `db-type = "python:package.module:Class"`, or the name of an entry point.

Two kinds: a batch sink, which is made with its options and driven by `BatchedSink`, and a class that
implements the whole port (`drainer.sink`), which is made with a `SinkContext` and driven as it is.

Tests  tests/drainer/app/test_build_own.py, tests/integration/sinks/test_own_sink.py
"""

from __future__ import annotations

from typing import Any

from drainer.app.build import BuildContext
from drainer.app.build_batch import build_batch, lock_data_dir
from drainer.app.savepoint_start import Place, SavepointStart
from drainer.config import sink_class
from drainer.config.options import DrainerConfig
from drainer.config.sink_class import SinkClass
from drainer.sink.batch.public_items import PublicItems
from drainer.sink.context import SinkContext
from drainer.sink.runner import Runner
from tidb_binlog.clock import SystemClock


async def build(context: BuildContext) -> Runner[Any]:
    entry_point = _class_of(context.settings)
    if entry_point.is_port:
        return await _build_port(context, entry_point)
    sink = entry_point.of(dict(context.settings.to_options))
    return await build_batch(context, sink, entry_point.name, PublicItems())


async def _build_port(context: BuildContext, sink_class: SinkClass) -> Runner[Any]:
    settings = context.settings
    begin = SavepointStart(context)
    await lock_data_dir(context, SystemClock())
    stored = await begin.stored()
    initial = await begin.place(
        lambda initial_ts: Place(stored.commit_ts, stored.schema_version) if stored else Place(initial_ts),
        f"the savepoint of the sink {sink_class.name}",
        "check pd-urls, or use an empty data-dir for this cluster",
    )
    sink = sink_class.of(
        SinkContext(
            options=dict(settings.to_options),
            savepoint=begin.savepoint,
            savepoint_ts=stored.commit_ts if stored else 0,
            start_ts=initial.commit_ts,
            cluster_id=context.upstream.cluster_id,
            data_dir=settings.data_dir,
            policy=begin.policy,
            clock=context.operating.upstream_clock,
        )
    )
    version = initial.schema_version if sink.start_ts == initial.commit_ts else 0
    place = await begin.place(
        lambda _: Place(sink.start_ts, version), f"the sink {sink_class.name}", "check pd-urls"
    )
    return begin.runner(sink, await begin.translator(place))


def _class_of(settings: DrainerConfig) -> SinkClass:
    chosen = sink_class.find(settings.db_type)
    assert chosen is not None, "the configuration was checked"
    return chosen


async def rehearse(settings: DrainerConfig, cluster_id: int) -> None:
    """See `Builder`."""
    sink_class.check_options(_class_of(settings), settings.to_options)
