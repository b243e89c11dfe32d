"""Stream apply: a growing archive goes downstream, batch by batch, through the writer of replays.

Drives  a streaming query that gets how far each batch goes, and `replay` for what is in there
Holds   a batch is a job of its own, named after query and batch: one that is run again after a crash resumes
        where it stopped, schema changes included, and a batch that was done is not done twice. Spark's
        checkpoint says which batch comes next, the downstream what of it is there
Why     the rows are read by `replay` itself, not handed over by the query: between two schema changes it
        folds them, small stretches without a Spark job
Stops   `ArchiveStream.stop`, from any thread: the batch under way is left as it is
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from drainer.mysql.connection import Connection, Target, connect
from drainer.mysql.errors import SessionError, safe_text
from drainer.places.place import Place
from drainer.sink.row_mismatch import Drift
from drainer.spark.replay import stream_jobs
from drainer.spark.replay.entry import replay
from drainer.spark.replay.plan import ReplayOptions
from drainer.spark.replay.stream_jobs import Batch
from drainer.spark.source.stream_archive import StreamArchive
from drainer.spark.source.stream_offsets import BATCH_BYTES, INTERVAL_S
from drainer.spark.source.stream_reader import RANGES, RangesSource
from tidb_binlog import tso
from tidb_binlog.clock import Clock, SystemClock
from tidb_binlog.late_dataclass import dataclass, field, replace
from tidb_binlog.observe import log
from tidb_binlog.tso import Ts

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

logger = log.get("drainer.spark.stream_apply")

_POLL_S: Final = 1


@dataclass(frozen=True)
class StreamSettings:
    """`start`: the first commit_ts, for a new checkpoint. `once`: end at what is there now."""

    start: int = 0
    once: bool = False
    interval_s: float = INTERVAL_S
    batch_bytes: int = BATCH_BYTES
    fail_on_data_loss: bool = True
    options: ReplayOptions = field(default_factory=ReplayOptions)

    @property
    def source(self) -> Mapping[str, str]:
        """Options of the query's source."""
        return {
            **self.options.source,
            "start": str(self.start or ""),
            "maxBytesPerTrigger": str(self.batch_bytes),
            "failOnDataLoss": str(self.fail_on_data_loss).lower(),
        }


class ArchiveStream:
    """A query from its start to its end. `on_batch` is called for each batch that is done."""

    def __init__(
        self,
        spark: SparkSession,
        archive: str,
        target: Target,
        checkpoint: str,
        settings: StreamSettings | None = None,
        *,
        on_batch: Callable[[Batch], None] = lambda batch: None,
        clock: Clock | None = None,
    ) -> None:
        self._spark = spark
        self._archive = archive
        self._target = target
        self._settings = settings or StreamSettings()
        self._on_batch = on_batch
        self._clock = clock or SystemClock()
        self._drift = Drift(self._clock)
        self._failure: BaseException | None = None
        self._has_id = threading.Event()  # the query's id
        self._stopping = threading.Event()
        spark.dataSource.register(RangesSource)
        ranges = spark.readStream.format(RANGES).options(**self._settings.source).load(archive)
        writer = ranges.writeStream.foreachBatch(self._apply).option("checkpointLocation", checkpoint)
        if self._settings.once:
            writer = writer.trigger(availableNow=True)
        else:
            writer = writer.trigger(processingTime=f"{int(self._settings.interval_s * 1000)} milliseconds")
        self._query: StreamingQuery = writer.start()
        self.id = str(self._query.id)
        """Of the checkpoint: the same over all restarts."""
        self._has_id.set()

    def wait(self) -> None:
        """To its end. Raises what a batch failed with."""
        try:
            while not self._stopping.is_set() and not self._query.awaitTermination(_POLL_S):
                pass
        except Exception:
            if self._failure is not None:  # Spark's own has it as text only
                raise self._failure from None
            raise
        finally:
            self._query.stop()

    def stop(self) -> None:
        """Ask it to end; `wait` returns then."""
        self._stopping.set()

    # -- a batch -----------------------------------------------------------------------------------

    def _apply(self, frame: DataFrame, number: int) -> None:
        try:
            self._has_id.wait()
            for start_ts, stop_ts, segment in frame.collect():
                self._on_batch(self._batch(number, start_ts, stop_ts, segment))
        except BaseException as error:
            self._failure = error
            raise

    def _batch(self, number: int, start_ts: Ts, stop_ts: Ts, segment: int) -> Batch:
        began_s, options = self._clock.monotonic_s(), self._settings.options
        location = Place.of(self._archive, options.source)
        with contextlib.closing(connect(self._target)) as connection:
            stream_jobs.check(connection, self.id, number, location.shown, start_ts, options.tables)
            is_done = stream_jobs.is_done(connection, self.id, number)
            self._check_that_all_is_there(location, segment, is_done=is_done)
            done = replay(
                self._spark,
                self._archive,
                self._target,
                start=start_ts,
                stop=stop_ts,
                # The segment is looked for above.
                options=replace(options, continues=True),
                job=stream_jobs.job_of(self.id, number),
                clock=self._clock,
            )
            self._check_that_all_is_there(location, segment, is_done=is_done)
            self._forget(connection, number)
        self._drift.note({}, done.texts, start_ts, stop_ts)
        seconds = self._clock.monotonic_s() - began_s
        lag_s = tso.age_s(stop_ts, self._clock.wall_s())
        return Batch(number, start_ts, stop_ts, done.rows, done.ddl, done.drift, seconds, lag_s)

    def _check_that_all_is_there(self, location: Place, segment: int, *, is_done: bool) -> None:
        """Before and after, for a segment that goes before it is opened is missing without an error. What was
        applied already may be gone."""
        if self._settings.fail_on_data_loss and not is_done:
            StreamArchive(location).check_from(segment)

    def _forget(self, connection: Connection, number: int) -> None:
        try:
            stream_jobs.forget(connection, self.id, number)
        except SessionError as error:  # it is done with the next batch
            logger.warning("progress of former batches stays for now", reason=safe_text(error))
