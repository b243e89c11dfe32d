"""Replay: a range of an archive goes downstream, once; by Spark where it is large, here where it is small.

Out    the downstream as it was upstream at the end of the range, a `ReplaySummary`
Holds  what is done is stored downstream (`job`): the same call after a crash continues where
       the last one stopped, and does nothing twice
Never  collects rows of a large step on the driver
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from drainer.mysql.connection import Target
from drainer.spark.engine import SparkOf
from drainer.spark.replay.job import JobState, stored
from drainer.spark.replay.plan import ReplayOptions, ReplayPlan, job_of, plan
from drainer.spark.replay.run import ReplayRun
from drainer.txn import Ddl
from tidb_binlog.clock import Clock, SystemClock
from tidb_binlog.late_dataclass import asdict, dataclass, field, replace
from tidb_binlog.tso import Ts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Changes a second that two cores read, fold and write, server included: what an estimate is made of.
ESTIMATED_RATE: Final = 65_000


@dataclass(frozen=True)
class ReplaySummary:
    """What a replay did, or would do.

    `rows`: keys written over the whole job, also before it was resumed. `drift`: rows downstream that were
    not as they should be. `changes`: rows in the files that were read, before any selection. `texts`: values
    by column that its character set downstream does not have; `missing`: what the downstream lacks of DDL.
    """

    job: str
    archive: str
    start_ts: Ts
    stop_ts: Ts
    steps: int
    ddl: int
    bytes: int
    changes: int
    rows: int = 0
    drift: int = 0
    chunks: int = 0
    seconds: float = 0.0
    resumed: bool = False
    was_done: bool = False
    dry_run: bool = False
    estimated_s: float = 0.0
    texts: dict[str, int] = field(default_factory=dict)
    missing: tuple[str, ...] = ()

    def to_json(self) -> str:
        return json.dumps(asdict(self))


def replay(
    spark: SparkSession | SparkOf | None,
    archive: str,
    target: Target,
    *,
    start: int = 0,
    stop: int = 0,
    options: ReplayOptions | None = None,
    job: str = "",
    dry_run: bool = False,
    show_progress: bool = False,
    clock: Clock | None = None,
) -> ReplaySummary:
    """Bring the downstream from `start` to `stop` (commit_ts, both included; 0: all there is).

    `spark`: a session, or what makes one when a step is large; None: everything is done here. `job` names the
    job; without a name it is known by what it is about. `show_progress`: on standard error. Raises `Conflict`
    for a job that is about something else or that another process works on, and what reading and
    writing raise.
    """
    clock = clock or SystemClock()
    began_s = clock.monotonic_s()
    options = options or ReplayOptions()
    job = job or job_of(archive, start, stop, options)
    begun = None if dry_run else stored(target, job)
    replay_plan = plan(_maker(spark), archive, start, stop, options, begun)
    summary = _summary(replay_plan, job)
    if dry_run:
        estimated_s = round(replay_plan.changes / ESTIMATED_RATE, 1)
        return replace(summary, dry_run=True, estimated_s=estimated_s)
    run = ReplayRun(_maker(spark), target, replay_plan, summary.job, show_progress=show_progress)
    try:
        state: JobState = run.work()
        rows, drift, chunks = run.job.counts()
        _, texts, missing = run.job.findings()
    finally:
        run.close()
    return replace(
        summary,
        stop_ts=state.frozen.stop,
        rows=rows,
        drift=drift,
        chunks=chunks,
        seconds=round(clock.monotonic_s() - began_s, 3),
        resumed=state.resumed,
        was_done=state.done,
        texts=texts,
        missing=missing,
    )


def _maker(spark: SparkSession | SparkOf | None) -> SparkOf | None:
    if spark is None or callable(spark):
        return spark
    return lambda: spark


def _summary(replay_plan: ReplayPlan, job: str) -> ReplaySummary:
    return ReplaySummary(
        job=job,
        archive=replay_plan.frozen.archive,
        start_ts=replay_plan.frozen.start,
        stop_ts=replay_plan.frozen.stop,
        steps=len(replay_plan.tasks),
        ddl=sum(isinstance(task.step, Ddl) for task in replay_plan.tasks),
        bytes=replay_plan.size,
        changes=replay_plan.changes,
    )
