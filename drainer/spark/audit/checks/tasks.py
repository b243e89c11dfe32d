"""Tasks of an audit: what is done with slices of an archive, wherever they are read.

Out    steps of rows; schema changes, a summary of a slice's records, what a file covers, places of records
Holds  what is damaged is passed over and said in the summary: an audit never ends because it found something
Tests  tests/spark/audit/test_auditing.py
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from drainer.places.place import Place
from drainer.reading.archive.decode.coverage import FileCoverage, cover
from drainer.reading.archive.decode.definitions import Definitions
from drainer.reading.archive.decode.reading import REPORT, heads, read
from drainer.reading.archive.decode.records import Changes, SchemaChange
from drainer.reading.archive.files.segments import Slice
from drainer.reading.archive.files.selection import Selection
from drainer.spark.audit.checks.figures import SliceSummary
from drainer.spark.audit.rows.lineage import LineageOf, Span, Statement
from drainer.spark.audit.rows.row_steps import RowStep, RowSteps
from tidb_binlog.errors import Corruption
from tidb_binlog.late_dataclass import dataclass
from tidb_binlog.tso import Ts


@dataclass(frozen=True, slots=True)
class TaskInput:
    """What tasks need to read rows."""

    location: Place
    selection: Selection
    definitions: Definitions


def steps(archive: TaskInput, spans: Iterable[Span], parts: Iterable[Slice]) -> Iterator[RowStep]:
    """Steps of the rows of these slices, in the order of the archive."""
    makes = RowSteps(archive.definitions.number_of, LineageOf(spans).at)
    for part in parts:
        for record in read(archive.location, part, archive.selection, archive.definitions, damage=REPORT):
            if isinstance(record, Changes):
                yield from makes.of(record)


def statements(archive: TaskInput, parts: Iterable[Slice]) -> Iterator[tuple[int, Statement]]:
    """Schema changes, each with its place among those of one commit_ts."""
    for part in parts:
        for record in read(archive.location, part, archive.selection, archive.definitions, damage=REPORT):
            if isinstance(record, SchemaChange):
                ddl = record.ddl
                yield (
                    record.part,
                    Statement(ddl.commit_ts, ddl.schema, ddl.query, tuple(ddl.tables), ddl.action),
                )


def in_order(changes: Iterable[tuple[int, Statement]]) -> list[Statement]:
    """Schema changes in their order, each once."""
    return [
        statement
        for _, statement in sorted(
            set(changes), key=lambda each: (each[1].commit_ts, each[0], each[1].schema, each[1].query)
        )
    ]


# -- the records of an archive --------------------------------------------------------------------------


def summaries(
    location: Place, described: Mapping[str, int], bucket_s: int, parts: Iterable[Slice]
) -> Iterator[SliceSummary]:
    """One of each slice: all records compared with their checksums, none decoded. `described`: bytes that
    indexes tell of, by file."""
    for part in parts:
        summary = SliceSummary(part, described.get(part.name, 0), bucket_s, part.start)
        try:
            for head in heads(location, part):
                summary.add(head.commit_ts, head.pos, head.size, head.rows, is_ddl=head.is_ddl)
        except Corruption as error:
            summary.problem = error.message
        with location.open(part.name) as file:
            size = part.stop or file.size or 0
        if size and not summary.problem:
            summary.torn = max(size - summary.end, 0)
        yield summary


def covered(location: Place, parts: Iterable[Slice]) -> Iterator[FileCoverage]:
    """What files of a value log hold, all of each read."""
    for part in parts:
        yield cover(location, part)


def places(location: Place, searched: frozenset[Ts], parts: Iterable[Slice]) -> Iterator[tuple[Ts, str, int]]:
    """(commit_ts, file, position) of the records with one of these commit_ts."""
    for part in parts:
        try:
            for head in heads(location, part):
                if head.commit_ts in searched:
                    yield head.commit_ts, part.name, head.pos
        except Corruption:
            continue
