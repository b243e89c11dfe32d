"""Runner on executors: the checks of an audit as jobs of Spark.

Drives  Spark; in its tasks the archive and the reference side, which are only read
Holds   as `checks.runner` says
Tests   tests/spark/audit/test_runners_agree.py
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from drainer.reading.archive.files.segments import Slice
from drainer.spark.audit.checks import tasks
from drainer.spark.audit.checks.chain_check import Chains
from drainer.spark.audit.checks.contents import Contents
from drainer.spark.audit.checks.lineage_summary import Profiles
from drainer.spark.audit.checks.runner import ContentsInput, Pieces
from drainer.spark.audit.checks.tasks import SliceWork, TaskInput
from drainer.spark.audit.on_executors import chains, contents
from drainer.spark.audit.on_executors.frames import STEPS, TEXTS, over
from drainer.spark.audit.rows.lineage import Span
from tidb_binlog.tso import Ts

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_SMALL_BYTES: Final = 4 << 20


class ExecutorsRunner:
    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._archive: TaskInput | None = None
        self._steps: DataFrame | None = None

    def texts(self, slices: Sequence[Slice], work: SliceWork) -> list[str]:
        """A little is read here: a job costs more."""
        if sum((part.stop or part.size) - part.start for part in slices) <= _SMALL_BYTES:
            return [text for part in slices for text in work(part)]

        def run(parts: Iterable[Slice]) -> Iterator[tuple[Any, ...]]:
            return ((text,) for part in parts for text in work(part))

        return [row.text for row in over(self._spark, Pieces(slices, run), TEXTS).collect()]

    def follow(
        self,
        archive: TaskInput,
        slices: Sequence[Slice],
        spans: Sequence[Span],
        born: frozenset[int],
        until_ts: Ts,
        bucket_s: int,
    ) -> Profiles:
        self._archive = archive

        def run(parts: Iterable[Slice]) -> Iterator[tuple[Any, ...]]:
            return tasks.steps(archive, parts)

        steps = over(self._spark, Pieces(slices, run), STEPS)
        self._steps = chains.with_lineage(self._spark, steps, spans, born)
        return Profiles.of(until_ts, chains.groups(self._steps, until_ts, bucket_s))

    def chains(self, rekeyed: Sequence[int]) -> Chains:
        assert self._archive is not None
        assert self._steps is not None
        return chains.check(self._steps, self._archive.definitions, rekeyed)

    def contents(self, wanted: ContentsInput) -> Contents:
        assert self._archive is not None
        assert self._steps is not None
        return contents.check(self._spark, self._steps, wanted, self._archive.definitions)
