"""Runner on the driver: the checks of an audit in this process, without Spark and Java.

Drives  nothing but what it is given: the archive and the reference side, which are only read
Holds   as `checks.runner` says; all steps of the archive and all rows of the reference side are in memory
Tests   tests/spark/audit/test_runners_agree.py
"""

from __future__ import annotations

from collections.abc import Sequence

from drainer.reading.archive.files.segments import Slice
from drainer.spark.audit.checks import tasks
from drainer.spark.audit.checks.chain_check import Chains
from drainer.spark.audit.checks.contents import Contents
from drainer.spark.audit.checks.lineage_summary import Profiles
from drainer.spark.audit.checks.runner import ContentsInput
from drainer.spark.audit.checks.tasks import SliceWork, TaskInput
from drainer.spark.audit.on_driver import chains, contents
from drainer.spark.audit.on_driver.chains import Followed
from drainer.spark.audit.rows.lineage import Span
from tidb_binlog.process.garbage import collect_rarely
from tidb_binlog.tso import Ts


class DriverRunner:
    def __init__(self) -> None:
        collect_rarely()
        self._archive: TaskInput | None = None
        self._steps: list[Followed] = []
        self._born: frozenset[int] = frozenset()

    def texts(self, slices: Sequence[Slice], work: SliceWork) -> list[str]:
        return [text for part in slices for text in work(part)]

    def follow(
        self,
        archive: TaskInput,
        slices: Sequence[Slice],
        spans: Sequence[Span],
        born: frozenset[int],
        until_ts: Ts,
        bucket_s: int,
    ) -> Profiles:
        self._archive, self._born = archive, born
        self._steps = chains.follow(tasks.steps(archive, slices), spans)
        return Profiles.of(until_ts, chains.groups(self._steps, until_ts, bucket_s))

    def chains(self, rekeyed: Sequence[int]) -> Chains:
        assert self._archive is not None
        return chains.check(self._steps, self._archive.definitions, self._born, rekeyed)

    def contents(self, wanted: ContentsInput) -> Contents:
        assert self._archive is not None
        return contents.check(self._steps, wanted, self._archive.definitions)
