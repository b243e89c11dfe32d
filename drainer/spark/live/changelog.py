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

from drainer.app.build_lake import sink_of
from drainer.lake.data_files import DataFile, DataFiles
from drainer.lake.lake_sink import LakeSink
from drainer.places.place import Place
from drainer.reading.archive.decode.pump_range import PUMPS
from drainer.reading.archive.files.selection import Selection
from drainer.spark.engine import SparkOf, engine_for
from drainer.spark.live.downstream import LiveBatch, LiveSettings
from drainer.spark.live.lake import LakeDownstream, LakeStart, begin, named, ruling_of
from drainer.spark.replay.plan import shares
from drainer.spark.source.pump_cluster import PumpCluster


async def open_changelog(settings: LiveSettings, spark: SparkOf | None, cluster: PumpCluster) -> Changelogs:
    """At its position, with the schema of there."""
    start = await begin(settings, cluster)
    sink = sink_of(named(settings), cluster.upstream.cluster_id)
    await asyncio.to_thread(sink.open)
    return Changelogs(start, settings, spark, sink)


class Changelogs(LakeDownstream):
    """One life at a warehouse."""

    def __init__(
        self, start: LakeStart, settings: LiveSettings, spark: SparkOf | None, sink: LakeSink
    ) -> None:
        super().__init__(start)
        self._small_bytes = settings.small_bytes
        self._spark = spark
        self._sink = sink
        self._is_open = True

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
            ruling_of(batch.ddl, self.policy)
        return rows, 0

    def _written(self, batch: LiveBatch) -> list[DataFile]:
        slices, spark = batch.slices, self._spark
        if not slices:
            return []
        step = batch.rows
        forms, after_ts = self._sink.forms()
        selection = Selection(step.start, step.stop)
        here, warehouse = Place(PUMPS), self.position.warehouse
        work = DataFiles(here, warehouse, selection, batch.schema.definitions, forms, after_ts)
        if spark is None or not batch.buckets(self._small_bytes):
            return engine_for(None).over([slices], work).gather(iter)
        parts = shares(slices, spark().sparkContext.defaultParallelism)
        return engine_for(spark).over(parts, work).gather(iter)

    def close(self) -> None:
        self._is_open = False
        self._sink.close()
