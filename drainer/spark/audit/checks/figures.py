"""Figures: what the summaries of an archive's slices say as a whole.

In     a survey, a summary of every slice (`tasks.summaries`)
Out    the files as `coverage` judges them; counts and distributions, which the report shows
Tests  tests/spark/audit/test_report.py
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from drainer.reading.archive.decode.coverage import FileCoverage
from drainer.reading.archive.files.segments import Slice, Survey
from drainer.spark.audit.checks.coverage import File, Misplaced, RecordRun
from tidb_binlog import tso
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


def bucket_s(survey: Survey) -> int:
    """Seconds of one bar of the plots, by the first timestamps of the files."""
    known = [ts for one in survey.segments for ts in (one.first_ts, one.last_ts) if ts]
    span = tso.physical_s(max(known)) - tso.physical_s(min(known)) if known else 0.0
    return max(1, int(span / BUCKETS))


def files(survey: Survey, summaries: Sequence[dict[str, Any]]) -> list[File]:
    """Files with what their slices' summaries say of them."""
    by_name: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for one in summaries:
        by_name[one["file"]].append(one)
    found = []
    for segment in survey.segments:
        parts = sorted(by_name[segment.name], key=lambda one: int(one["start"]))
        counted = [sum(part["counted"][n] for part in parts) for n in range(3)]
        wrong = next((part for part in parts if part["problem"]), None)
        described = segment.described
        rows = sum(map(sum, described.rows.values())) if described is not None else 0
        found.append(
            File(
                segment.name,
                segment.index,
                segment.size,
                first_ts=segment.first_ts or 0,
                last_ts=max((part["last_ts"] for part in parts), default=segment.last_ts or 0),
                torn_bytes=parts[-1]["torn"] if parts else 0,
                problem=wrong["problem"] if wrong else "",
                problem_pos=wrong["end"] if wrong else -1,
                counted=(counted[0], counted[1], counted[2]),
                described=None
                if described is None or not parts
                else (described.transactions, described.ddl, rows),
            )
        )
    return found


def lags(survey: Survey, files: Sequence[File]) -> list[Lag]:
    """Of the files of which a time is known. What compressed them wrote later than the writer."""
    written = {one.name: one.mtime_ns / 1e9 for one in survey.segments if one.mtime_ns and not one.compressed}
    return [
        Lag(one.name, one.last_ts, round(written[one.name] - tso.physical_s(one.last_ts), 3))
        for one in files
        if one.last_ts and one.name in written
    ]


def run_of(document: dict[str, Any]) -> RecordRun:
    return RecordRun(**{**document, "misplaced": [Misplaced(**one) for one in document["misplaced"]]})


def with_summaries(
    slices: Sequence[Slice], summaries: Sequence[dict[str, Any]]
) -> Iterable[tuple[Slice, dict[str, Any]]]:
    by_place = {(one["file"], one["start"]): one for one in summaries}
    return ((part, by_place[part.name, part.start]) for part in slices)


def add_summaries(figures: Figures, summaries: Sequence[dict[str, Any]]) -> None:
    for one in summaries:
        if one["run"] is not None:
            first = one["run"]["first_ts"]
            figures.first_ts = min(figures.first_ts or first, first)
        figures.last_ts = max(figures.last_ts, one["last_ts"])
        for power, number in one["sizes"].items():
            figures.rows_per_transaction[int(power)] += number
        for power, number in one["bytes"].items():
            figures.bytes_per_transaction[int(power)] += number
        for bucket, (transactions, rows, size, ddl) in one["times"].items():
            figures.transactions += transactions
            figures.rows += rows
            figures.ddl += ddl
            figures.transactions_by_time[int(bucket)] += transactions
            figures.bytes_by_time[int(bucket)] += size


# -- value logs -----------------------------------------------------------------------------------------


def of_coverage(one: FileCoverage) -> File:
    """A file of a value log."""
    return File(
        one.file,
        one.index,
        one.size,
        first_ts=one.first_ts or 0,
        last_ts=one.last_ts or 0,
        problem=one.problem or "",
        problem_pos=-1 if one.problem_pos is None else one.problem_pos,
    )


def add_coverage(figures: Figures, files: Iterable[FileCoverage]) -> None:
    for one in files:
        figures.first_ts = min(figures.first_ts or one.first_ts or 0, one.first_ts or figures.first_ts)
        figures.last_ts = max(figures.last_ts, one.last_ts or 0)
        figures.transactions += one.transactions
        figures.ddl += one.ddl
        figures.rows += one.inserts + one.updates + one.deletes
