"""Pump stream: `spark.readStream.format("binlog")` over the Pumps of a cluster.

    name                 of the reader in the registry, for which Pumps keep what no batch has committed;
                         listen: where Pumps call it, a free port by default
    maxBytesPerTrigger   bytes that a batch reads, a task's part at least (64 MiB)

In      offsets of Spark's checkpoint: a commit_ts, everything at or below which was read; options
Out     offsets, stretches of the Pumps for tasks; in a task record batches of a view
Owns    on the driver the reader's name, and a thread that keeps it while the query runs
Holds   an offset lies at or below the watermark of all Pumps, or is that of a DDL, which ends its batch: so a
        batch that is run again has the same rows. A new checkpoint begins at `start`, else where the reader
        of that name was done, else at the oldest that Pumps have. What was purged before it was read ends
        the query; nothing is jumped over
Does    while nothing is written an offset moves on each `IDLE_MS`, in a batch without rows
Stops   `stop`: the name is free for who comes next
Tests   tests/spark/source/test_pump_stream.py
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxBytes, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from drainer.reading.archive import archive_source
from drainer.reading.archive.archive_source import NOTHING, Part
from drainer.reading.archive.decode.definitions import Definitions
from drainer.reading.archive.decode.pump_range import PumpSlice
from drainer.reading.archive.views.view import ReadTask
from drainer.reading.errors import StreamEnded
from drainer.reading.subscribe.named_reader import BEAT_S, NameTaken
from drainer.spark.source.pump_cluster import Bound, PumpCluster
from drainer.spark.source.pump_source import PumpSource, SchemaWalk
from drainer.spark.source.spark_types import arrow_schema
from drainer.spark.source.stream_offsets import BATCH_BYTES, INTERVAL_S
from drainer.spark.source.stream_reader import PARTS_MIN, check_view, number_option
from drainer.stream.schema.upstream_schema import read_schema
from drainer.txn import TableVersion
from tidb_binlog import tso
from tidb_binlog.errors import ConfigError
from tidb_binlog.late_dataclass import dataclass, field
from tidb_binlog.process.loop_thread import LoopThread
from tidb_binlog.tso import TS_MAX, Ts

if TYPE_CHECKING:
    import pyarrow as pa

IDLE_MS: Final = 10_000
_IDLE_WAIT_S: Final = 0.2
_NAME_TRIES: Final = 8
"""A query that was killed keeps its name for a lease."""


@dataclass
class _Stretch(InputPartition):
    part: Part
    version: TableVersion | None


class PumpStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The one of a driver; those of tasks only `read`."""

    def __init__(self, given: Mapping[str, str], columns: StructType) -> None:
        texts = {key.lower(): text for key, text in given.items()}
        for name in ("maxRowsPerTrigger", "failOnDataLoss"):
            if name.lower() in texts:
                raise ConfigError(f"{name} is about an archive", hint="leave it out for Pumps")
        self._max_bytes = number_option(texts, "maxBytesPerTrigger") or BATCH_BYTES
        source = PumpSource({key: text for key, text in given.items() if key.lower() != "maxbytespertrigger"})
        options = source.options
        check_view(options.view)
        self._given = dict(given)
        self._view = options.view
        self._task = ReadTask(
            options.location, NOTHING, options.selection, Definitions(), arrow_schema(columns)
        )
        self._driving: _Driving | None = None  # on the driver, from the first offset on
        self._end_ts = 0  # of `availableNow`

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_driving": None}

    @property
    def _driver(self) -> _Driving:
        if self._driving is None:
            self._driving = _Driving(PumpSource(self._given), self._max_bytes)
        return self._driving

    def initialOffset(self) -> dict[str, Any]:
        return self._driver.call(self._driver.first())

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        return self._driver.call(self._driver.latest(start, self._end_ts))

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxBytes(self._max_bytes)

    def prepareForTriggerAvailableNow(self) -> None:
        self._end_ts = self._driver.call(self._driver.now_ts())

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        return self._driver.call(self._driver.partitions(start, end))

    def commit(self, end: dict[str, Any]) -> None:
        self._driver.call(self._driver.done(end))

    def stop(self) -> None:
        if self._driving is not None:
            self._driving.close()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, _Stretch)
        task = self._task
        if partition.version is not None:
            task = ReadTask(
                task.location, NOTHING, task.selection, task.definitions, task.columns, partition.version
            )
        yield from archive_source.read(task, self._view, partition.part)


@dataclass
class _At:
    """Where a query is: `walk` knows the schema after `ts`; `version`: of typed columns, those of now, also
    for rows of before. `bound`: what comes next, if it was looked at; `last`: the batch before, which may be
    asked for again."""

    ts: Ts
    walk: SchemaWalk
    version: TableVersion | None
    bound: Bound | None = None
    last: tuple[Ts, Ts, list[InputPartition]] = field(default=(0, 0, []))


class _Driving:
    """What a query has on its driver. Its coroutines run on a thread of their own, one at a time."""

    def __init__(self, source: PumpSource, max_bytes: int) -> None:
        self._source = source
        self._max_bytes = max_bytes
        self._ends = AsyncExitStack()
        self._cluster: PumpCluster | None = None  # opened with the first call
        self._at: _At | None = None  # from the first batch on
        self._thread = LoopThread("binlog-pump-stream", "the stream", StreamEnded)
        self.call = self._thread.call

    def close(self) -> None:
        """Leave the name."""
        self._thread.close(self._ends.aclose())

    async def _open(self) -> PumpCluster:
        for number in range(_NAME_TRIES):
            if self._cluster is not None:
                break
            opening = self._source.cluster(self._source.name, max(self._max_bytes // PARTS_MIN, 1))
            try:
                self._cluster = await self._ends.enter_async_context(opening)
            except NameTaken:
                if number + 1 == _NAME_TRIES:
                    raise
                await asyncio.sleep(BEAT_S)
        assert self._cluster is not None
        return self._cluster

    async def now_ts(self) -> Ts:
        return await (await self._open()).now_ts()

    async def first(self) -> dict[str, Any]:
        """The offset of a new checkpoint."""
        cluster, start_ts = await self._open(), self._source.options.selection.start
        after_ts = start_ts - 1 if start_ts else cluster.stored_ts or None
        return self._document(await cluster.first_position(after_ts))

    def _document(self, ts: Ts) -> dict[str, Any]:
        assert self._cluster is not None
        return {"cluster_id": str(self._cluster.upstream.cluster_id), "commit_ts": ts}

    async def _ts_of(self, document: Mapping[str, Any]) -> Ts:
        cluster_id = str((await self._open()).upstream.cluster_id)
        if document.get("cluster_id") != cluster_id:
            raise ConfigError(
                f"the checkpoint has an offset that is none of cluster {cluster_id}: {dict(document)}",
                hint="give this query a checkpoint directory of its own",
            )
        return int(document["commit_ts"])

    async def _begun(self, ts: Ts) -> _At:
        """The stream after an offset: where it is, or begun there."""
        if self._at is not None and self._at.ts == ts:
            return self._at
        if self._at is not None:  # Spark goes back behind a batch that failed
            self._cluster = self._at = None
            await self._ends.aclose()
        cluster = await self._open()
        await cluster.first_position(ts)
        tracker = await read_schema(cluster.upstream.history, ts, 0)
        await cluster.begin(ts)
        version = await self._source.asked_version()
        self._at = _At(ts, SchemaWalk(tracker, self._source.rules), version)
        return self._at

    async def latest(self, start: dict[str, Any], asked_end_ts: Ts) -> dict[str, Any]:
        """Where the batch that begins at `start` ends; `start` itself if there is none yet."""
        ts, stop_ts = await self._ts_of(start), self._source.options.selection.stop
        end_ts = min(stop_ts or TS_MAX, asked_end_ts or TS_MAX)
        if ts >= end_ts:
            return start
        at = await self._begun(ts)
        cluster = await self._open()
        bound = await cluster.bound(ts, self._max_bytes, INTERVAL_S, end_ts)
        while bound is None and asked_end_ts:  # all that was there then, or the query would end before
            bound = await cluster.bound(ts, self._max_bytes, INTERVAL_S, end_ts)
        if bound is None:
            return start
        is_idle = bound.ddl is None and not any(part.size for part in bound.parts)
        moved_ms = tso.physical_ms(bound.stop_ts) - tso.physical_ms(ts)
        if is_idle and moved_ms < IDLE_MS and bound.stop_ts < end_ts and not asked_end_ts:
            await asyncio.sleep(_IDLE_WAIT_S)
            return start
        at.bound = bound
        return self._document(bound.stop_ts)

    async def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """What a batch reads."""
        start_ts, end_ts = await self._ts_of(start), await self._ts_of(end)
        if self._at is not None and self._at.last[:2] == (start_ts, end_ts):
            return self._at.last[2]
        at = await self._begun(start_ts)
        cluster = await self._open()
        bound = at.bound
        if bound is None or bound.stop_ts != end_ts:
            bound = await cluster.bound_at(start_ts, end_ts)
        step = at.walk.take(bound, cluster.pumps)
        if self._source.options.view == "ddl":
            slices = [PumpSlice.of(step.state, 0, 0, 0, step.ddl)] if step.ddl else []
        else:
            slices = [PumpSlice.of(step.state, *part) for part in step.parts]
        stretches: list[InputPartition] = [_Stretch(Part(each), at.version) for each in slices]
        at.ts, at.bound, at.last = end_ts, None, (start_ts, end_ts, stretches)
        return stretches

    async def done(self, end: dict[str, Any]) -> None:
        """Pumps need not keep it any more."""
        cluster = await self._open()
        cluster.done(await self._ts_of(end))
        await cluster.store()  # Spark kills this process when the query ends
