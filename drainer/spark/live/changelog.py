"""Changelog: the downstream of a stream is a lake, whose tables every change is appended to.

Drives  tasks that write data files, the Drainer's own sink of changelogs, which commits them
Holds   a change is there once: each table has its position (`lake_sink`), under the name that a Drainer has
        there too. Where the stream is lies in the warehouse, and only says from where on to look
        A DDL changes nothing here: columns follow the rows
Why     only descriptions of files come to the driver, and no connector of Spark's is needed
Tests   tests/spark/live/test_lake_stream.py
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Final

from drainer.app.build_lake import app_of, sink_of
from drainer.app.build_mysql import patiently
from drainer.checkpoint import savepoint
from drainer.checkpoint.resume import AheadOfUpstream
from drainer.checkpoint.value import Checkpoint
from drainer.config.options import DrainerConfig
from drainer.ddl import rules as ddl_rules
from drainer.ddl.policy import Policy, Ruling
from drainer.ddl.rules import APPLY, STOP
from drainer.lake.data_files import DataFile, DataFiles
from drainer.lake.lake_sink import LakeSink
from drainer.places.place import Place
from drainer.reading.archive.decode.pump_range import PUMPS
from drainer.reading.archive.files.selection import Selection
from drainer.sink.ddl_text import stopped
from drainer.spark.engine import SparkOf, engine_for
from drainer.spark.live.downstream import LiveBatch, LiveDownstream, LiveSettings
from drainer.spark.replay.plan import shares
from drainer.spark.source.pump_cluster import LiveCluster
from drainer.stream.schema.tracker import SchemaTracker
from drainer.stream.schema.upstream_schema import read_schema
from drainer.txn import Ddl
from tidb_binlog.tso import Ts

DIRECTORY: Final = "_tidb-binlog"


class LakePosition:
    """Where a stream is, beside the tables of its warehouse: a file for each name."""

    def __init__(self, settings: DrainerConfig, cluster_id: int) -> None:
        self.warehouse = Place(settings.warehouse)
        self._name = f"{DIRECTORY}/{app_of(settings, cluster_id)}"

    def load(self) -> Checkpoint:
        """At 0, if there is none. Raises `Corruption`, `Unavailable`."""
        content = self.warehouse.content(self._name)
        return (
            savepoint.parse(content.decode(errors="replace"))
            if content is not None
            else Checkpoint(0, True, 0)
        )

    def store(self, checkpoint: Checkpoint) -> None:
        """Raises `Unavailable`."""
        self.warehouse.put(self._name, savepoint.render(checkpoint).encode())


def named(settings: LiveSettings) -> DrainerConfig:
    """The configuration under the name that positions have: of the Drainer whose it is, or the stream's."""
    drainer = settings.drainer
    return replace(drainer, node_id=drainer.node_id or settings.name)


async def begin(settings: LiveSettings, cluster: LiveCluster) -> tuple[LakePosition, Ts, SchemaTracker]:
    """Where a stream to a lake goes on, and the schema of there. Raises `Conflict` while a Drainer writes."""
    drainer = named(settings)
    position = LakePosition(drainer, cluster.upstream.cluster_id)
    drainer_ts = await cluster.drainer_at(drainer.name)
    checkpoint = await asyncio.to_thread(position.load)
    now_ts, initial_ts = await cluster.now_ts(), drainer.initial_commit_ts
    floor_ts = max(checkpoint.commit_ts, drainer_ts) or (now_ts if initial_ts == -1 else initial_ts)
    if floor_ts > now_ts:
        raise AheadOfUpstream(
            f"{position.warehouse.shown} is at {floor_ts}, but the upstream is at {now_ts}: it went back in"
            " time, or is another one with the same id",
            hint="check pd-urls; after restoring the upstream choose another warehouse",
        )
    version = checkpoint.schema_version if checkpoint.commit_ts == floor_ts else 0
    if not checkpoint.commit_ts:  # a life that ends before its first batch has begun all the same
        await asyncio.to_thread(position.warehouse.make)
        await asyncio.to_thread(position.store, Checkpoint(floor_ts, True, 0))
    at_ts = drainer.load_schema_snapshot
    return position, floor_ts, await read_schema(cluster.upstream.history, floor_ts, version, at_ts=at_ts)


async def open_changelog(settings: LiveSettings, spark: SparkOf | None, cluster: LiveCluster) -> Changelogs:
    """At its position, with the schema of there."""
    position, floor_ts, tracker = await begin(settings, cluster)
    sink = sink_of(named(settings), cluster.upstream.cluster_id)
    await asyncio.to_thread(sink.open)
    return Changelogs(settings, spark, sink, position, floor_ts, tracker)


class Changelogs(LiveDownstream):
    """One life at a warehouse."""

    def __init__(
        self,
        settings: LiveSettings,
        spark: SparkOf | None,
        sink: LakeSink,
        position: LakePosition,
        floor_ts: Ts,
        tracker: SchemaTracker,
    ) -> None:
        self._small_bytes = settings.small_bytes
        self._spark = spark
        self._sink = sink
        self._position = position
        self._is_open = True
        self._policy = Policy(ddl_rules.parse(settings.drainer.ddl_rules))
        self.floor_ts = floor_ts
        self.tracker = tracker

    def begun(self, position: Ts) -> Ts:
        return 0  # whatever the next batch is: tables know what they have

    def work(self, batch: LiveBatch) -> tuple[int, int]:
        if not self._is_open:
            self._sink.open()
            self._is_open = True
        rows, lacking = 0, {("", "")}
        try:
            while lacking:  # twice, where tables were not known here
                files = self._written(batch)
                lacking = self._sink.add(files, batch.schema.definitions, batch.stop_ts)
                rows += sum(file.rows for file in files if file.table not in lacking)
        except BaseException:
            self.close()  # what tables are like is asked again
            raise
        if batch.ddl is not None:
            ruling_of(batch.ddl, self._policy)
        return rows, 0

    def _written(self, batch: LiveBatch) -> list[DataFile]:
        slices, spark = batch.slices, self._spark
        if not slices:
            return []
        step = batch.rows
        forms, after_ts = self._sink.forms()
        selection = Selection(step.start, step.stop)
        here, warehouse = Place(PUMPS), self._position.warehouse
        work = DataFiles(here, warehouse, selection, batch.schema.definitions, forms, after_ts)
        if spark is None or not batch.buckets(self._small_bytes):
            return engine_for(None).over([slices], work).gather(iter)
        parts = shares(slices, spark().sparkContext.defaultParallelism)
        return engine_for(spark).over(parts, work).gather(iter)

    def passed(self, ddl: Ddl) -> None:
        return

    async def reach(self, commit_ts: Ts) -> None:
        checkpoint = Checkpoint(commit_ts, True, self.tracker.version)
        await patiently(lambda: self._position.store(checkpoint), lambda: None)

    async def give_back(self, commit_ts: Ts) -> None:
        await self.reach(commit_ts)

    def close(self) -> None:
        self._is_open = False
        self._sink.close()


def ruling_of(ddl: Ddl, policy: Policy) -> Ruling:
    """What is to become of a DDL. Raises `DownstreamError` where an operator has to decide."""
    ruling = policy.rule(ddl)
    if ruling.action == STOP or (ddl.refused and ruling.action == APPLY):
        raise stopped(ddl, ddl.refused or ruling.reason)
    return ruling
