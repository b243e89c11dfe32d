"""Figures: what the summaries of an archive's slices say as a whole.

Out    the files as `coverage` judges them; counts and distributions, which the report shows
Tests  tests/spark/audit/test_report.py
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Final

from drainer.reading.archive.decode.coverage import FileCoverage
from drainer.reading.archive.files.segments import Segment, Slice, Survey
from drainer.spark.audit.checks.coverage import File, OrderWatch
from tidb_binlog import tso
from tidb_binlog.late_dataclass import dataclass, field
from tidb_binlog.record import FILE_OVERHEAD
from tidb_binlog.tso import Ts

BUCKETS: Final = 120


@dataclass(frozen=True, slots=True)
class TableChanges:
    """Rows of one table that changed in one stretch of time, as the archive has them."""

    table: str
    bucket: int
    changes: int


@dataclass(frozen=True, slots=True)
class Lag:
    """A file: how long after its last commit it was written for the last time, or copied."""

    file: str
    last_ts: Ts
    lag_s: float


@dataclass(slots=True)
class Figures:
    """What the plots show. Times are seconds since 1970, sizes powers of two."""

    bucket_s: int = 1
    files: int = 0
    size: int = 0
    first_ts: Ts = 0
    last_ts: Ts = 0
    transactions: int = 0
    ddl: int = 0
    rows: int = 0
    rows_per_transaction: Counter[int] = field(default_factory=Counter)
    bytes_per_transaction: Counter[int] = field(default_factory=Counter)
    transactions_by_time: Counter[int] = field(default_factory=Counter)
    bytes_by_time: Counter[int] = field(default_factory=Counter)
    changes: list[TableChanges] = field(default_factory=list)
    lags: list[Lag] = field(default_factory=list)


@dataclass(slots=True)
class SliceSummary:
    """What a slice's records are: counts, sizes, order. All of it is small."""

    slice: Slice
    described: int  # bytes that the index beside the file tells of
    bucket_s: int
    end: int  # of the last whole record
    problem: str = ""
    torn: int = 0  # bytes after the last whole record
    last_ts: Ts = 0
    order: OrderWatch = field(default_factory=OrderWatch)
    counted: list[int] = field(default_factory=lambda: [0, 0, 0])  # as `File.counted`, up to `described`
    sizes: Counter[int] = field(default_factory=Counter)  # transactions by power of two of their rows
    bytes: Counter[int] = field(default_factory=Counter)  # ... and of their bytes
    times: dict[int, list[int]] = field(default_factory=dict)  # by bucket: transactions, rows, bytes, DDL
    ddl: list[tuple[int, int]] = field(default_factory=list)  # begin and end of their records

    def add(self, commit_ts: Ts, pos: int, size: int, rows: int, *, is_ddl: bool) -> None:
        """The next record."""
        self.order.see(self.slice.name, pos, commit_ts, is_ddl=is_ddl)
        self.end = pos + size + FILE_OVERHEAD
        self.last_ts = max(self.last_ts, commit_ts)
        if self.end <= self.described:
            self.counted[1 if is_ddl else 0] += 1
            self.counted[2] += rows
        bucket = int(tso.physical_s(commit_ts)) // self.bucket_s * self.bucket_s
        times = self.times.setdefault(bucket, [0, 0, 0, 0])
        if is_ddl:
            times[3] += 1
            self.ddl.append((pos, self.end))
            return
        times[0] += 1
        times[1] += rows
        times[2] += size
        for value, counts in ((rows, self.sizes), (size, self.bytes)):
            counts[max(value - 1, 0).bit_length()] += 1


def bucket_s(survey: Survey) -> int:
    """Seconds of one bar of the plots, by the first timestamps of the files."""
    timestamps = [ts for segment in survey.segments for ts in (segment.first_ts, segment.last_ts) if ts]
    span = tso.physical_s(max(timestamps)) - tso.physical_s(min(timestamps)) if timestamps else 0.0
    return max(1, int(span / BUCKETS))


def files(survey: Survey, summaries: Sequence[SliceSummary]) -> list[File]:
    """Files with what their slices' summaries say of them."""
    by_name: dict[str, list[SliceSummary]] = defaultdict(list)
    for summary in summaries:
        by_name[summary.slice.name].append(summary)
    return [
        _file(segment, sorted(by_name[segment.name], key=lambda summary: summary.slice.start))
        for segment in survey.segments
    ]


def _file(segment: Segment, parts: Sequence[SliceSummary]) -> File:
    counted = [sum(part.counted[n] for part in parts) for n in range(3)]
    wrong = next((part for part in parts if part.problem), None)
    described = segment.described
    rows = sum(map(sum, described.rows.values())) if described is not None else 0
    return File(
        segment.name,
        segment.index,
        segment.size,
        first_ts=segment.first_ts or 0,
        last_ts=max((part.last_ts for part in parts), default=segment.last_ts or 0),
        torn_bytes=parts[-1].torn if parts else 0,
        problem=wrong.problem if wrong else "",
        problem_pos=wrong.end if wrong else -1,
        counted=(counted[0], counted[1], counted[2]),
        described=None if described is None or not parts else (described.transactions, described.ddl, rows),
    )


def lags(survey: Survey, files: Sequence[File]) -> list[Lag]:
    """Of the files of which a time is known. What compressed them wrote later than the writer."""
    written = {
        segment.name: segment.mtime_ns / 1e9
        for segment in survey.segments
        if segment.mtime_ns and not segment.compressed
    }
    return [
        Lag(file.name, file.last_ts, round(written[file.name] - tso.physical_s(file.last_ts), 3))
        for file in files
        if file.last_ts and file.name in written
    ]


def add_summaries(figures: Figures, summaries: Sequence[SliceSummary]) -> None:
    for summary in summaries:
        if summary.order.run is not None:
            first = summary.order.run.first_ts
            figures.first_ts = min(figures.first_ts or first, first)
        figures.last_ts = max(figures.last_ts, summary.last_ts)
        figures.rows_per_transaction.update(summary.sizes)
        figures.bytes_per_transaction.update(summary.bytes)
        for bucket, (transactions, rows, size, ddl) in summary.times.items():
            figures.transactions += transactions
            figures.rows += rows
            figures.ddl += ddl
            figures.transactions_by_time[bucket] += transactions
            figures.bytes_by_time[bucket] += size


# -- value logs -----------------------------------------------------------------------------------------


def of_coverage(coverage: FileCoverage) -> File:
    """A file of a value log."""
    return File(
        coverage.file,
        coverage.index,
        coverage.size,
        first_ts=coverage.first_ts or 0,
        last_ts=coverage.last_ts or 0,
        problem=coverage.problem or "",
        problem_pos=-1 if coverage.problem_pos is None else coverage.problem_pos,
    )


def add_coverage(figures: Figures, files: Iterable[FileCoverage]) -> None:
    for file in files:
        figures.first_ts = min(figures.first_ts or file.first_ts or 0, file.first_ts or figures.first_ts)
        figures.last_ts = max(figures.last_ts, file.last_ts or 0)
        figures.transactions += file.transactions
        figures.ddl += file.ddl
        figures.rows += file.inserts + file.updates + file.deletes
