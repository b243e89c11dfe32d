"""Tasks of an audit: what is done with a piece of an archive, wherever it is read.

In     slices of an archive
Out    steps of rows; one line of JSON for each thing that is found: schema changes, a summary of a slice's
       records, what a file covers, places of records
Holds  what is damaged is passed over and said in the summary: an audit never ends because it found something
Tests  tests/spark/audit/test_auditing.py
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Final

from drainer.reading.archive.decode.coverage import cover
from drainer.reading.archive.decode.definitions import Definitions
from drainer.reading.archive.decode.reading import REPORT, heads, read
from drainer.reading.archive.decode.records import Changes, SchemaChange
from drainer.reading.archive.files.location import Location
from drainer.reading.archive.files.segments import Slice
from drainer.reading.archive.files.selection import Selection
from drainer.spark.audit.checks.coverage import OrderWatch
from drainer.spark.audit.rows.lineage import Statement
from drainer.spark.audit.rows.row_steps import RowStep, RowSteps
from tidb_binlog import tso
from tidb_binlog.errors import Corruption
from tidb_binlog.record import FILE_OVERHEAD
from tidb_binlog.tso import Ts

_MISPLACED_MAX: Final = 1000

SliceWork = Callable[[Slice], Iterator[str]]


@dataclass(frozen=True, slots=True)
class TaskInput:
    """What tasks need to read rows."""

    location: Location
    selection: Selection
    definitions: Definitions


def steps(archive: TaskInput, parts: Iterable[Slice]) -> Iterator[RowStep]:
    """Steps of the rows of these slices, in the order of the archive."""
    makes = RowSteps(archive.definitions.number_of)
    for part in parts:
        for record in read(archive.location, part, archive.selection, archive.definitions, damage=REPORT):
            if isinstance(record, Changes):
                yield from makes.of(record)


def statements(archive: TaskInput) -> SliceWork:
    """Schema changes, for `in_order`."""

    def work(part: Slice) -> Iterator[str]:
        for record in read(archive.location, part, archive.selection, archive.definitions, damage=REPORT):
            if isinstance(record, SchemaChange):
                ddl = record.ddl
                found = (ddl.commit_ts, record.part, ddl.schema, ddl.query, ddl.tables, ddl.action)
                yield json.dumps(found)

    return work


def in_order(lines: Iterable[str]) -> list[Statement]:
    """Schema changes in their order, each once."""
    found = []
    for commit_ts, _, schema, query, tables, action in sorted(json.loads(line) for line in set(lines)):
        found.append(Statement(commit_ts, schema, query, tuple((a, b) for a, b in tables), action))
    return found


# -- the records of an archive --------------------------------------------------------------------------


class _Summary:
    """What a slice's records are: counts, sizes, order. `described`: bytes that the index tells of."""

    def __init__(self, part: Slice, described: int, bucket_s: int) -> None:
        self._part = part
        self._described = described
        self._bucket_s = bucket_s
        self._watch = OrderWatch()
        self._counted = [0, 0, 0]
        self._sizes: dict[int, int] = {}
        self._bytes: dict[int, int] = {}
        self._times: dict[int, list[int]] = {}
        self._ddl: list[tuple[int, int]] = []
        self.end = part.start
        self._last_ts = 0

    def add(self, commit_ts: Ts, pos: int, size: int, rows: int, *, is_ddl: bool) -> None:
        self._watch.see(self._part.name, pos, commit_ts, is_ddl=is_ddl)
        self.end = pos + size + FILE_OVERHEAD
        self._last_ts = max(self._last_ts, commit_ts)
        if self.end <= self._described:
            self._counted[1 if is_ddl else 0] += 1
            self._counted[2] += rows
        bucket = int(tso.physical_s(commit_ts)) // self._bucket_s * self._bucket_s
        times = self._times.setdefault(bucket, [0, 0, 0, 0])
        if is_ddl:
            times[3] += 1
            self._ddl.append((pos, self.end))
            return
        times[0] += 1
        times[1] += rows
        times[2] += size
        for value, counts in ((rows, self._sizes), (size, self._bytes)):
            power = max(value - 1, 0).bit_length()
            counts[power] = counts.get(power, 0) + 1

    def text(self, problem: str, torn: int) -> str:
        run = self._watch.run
        misplaced = run.misplaced if run else []
        return json.dumps(
            {
                "file": self._part.name,
                "index": self._part.index,
                "start": self._part.start,
                "end": self.end,
                "problem": problem,
                "torn": torn,
                "counted": self._counted,
                "last_ts": self._last_ts,
                "sizes": self._sizes,
                "bytes": self._bytes,
                "times": self._times,
                "ddl": self._ddl,
                "run": None
                if run is None
                else {**asdict(run), "misplaced": [asdict(one) for one in misplaced[:_MISPLACED_MAX]]},
                "misplaced": len(misplaced),
            }
        )


def summaries(location: Location, described: Mapping[str, int], bucket_s: int) -> SliceWork:
    """One summary of a slice: all records compared with their checksums, none decoded."""

    def work(part: Slice) -> Iterator[str]:
        found = _Summary(part, described.get(part.name, 0), bucket_s)
        problem = ""
        try:
            for head in heads(location, part):
                found.add(head.commit_ts, head.pos, head.size, head.rows, is_ddl=head.is_ddl)
        except Corruption as error:
            problem = error.message
        with location.open(part.name) as file:
            size = part.stop or file.size or 0
        yield found.text(problem, 0 if problem or not size else max(size - found.end, 0))

    return work


def covered(location: Location) -> SliceWork:
    """What a file of a value log holds, all of it read (`FileCoverage`)."""

    def work(part: Slice) -> Iterator[str]:
        yield json.dumps(asdict(cover(location, part)))

    return work


def places(location: Location, wanted: frozenset[int]) -> SliceWork:
    """(commit_ts, file, position) of the records with one of these commit_ts."""

    def work(part: Slice) -> Iterator[str]:
        try:
            for head in heads(location, part):
                if head.commit_ts in wanted:
                    yield json.dumps((head.commit_ts, part.name, head.pos))
        except Corruption:
            return

    return work
