"""Outline: where in an archive its schema changes are, and so which bytes of it lie between two of them.

Out    the schema changes, the last commit_ts, how many transactions and rows were seen
Why    files whose index knows of no schema change are not read; of the others the heads of records are
       read, by Spark where that is more than a few of them
Holds  all that is later than a schema change lies after the first record of it: a drainer writes in order,
       and what it writes again after a restart it had written before
Tests  tests/spark/replay/test_entry.py
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final

from drainer.places.open_file import COMPRESSED
from drainer.places.place import Place
from drainer.reading.archive.decode.definitions import Definitions
from drainer.reading.archive.decode.reading import heads, read
from drainer.reading.archive.decode.records import SchemaChange
from drainer.reading.archive.files.payload import PB
from drainer.reading.archive.files.segments import Slice, Survey
from drainer.reading.archive.files.selection import Selection
from drainer.spark.engine import SparkOf, engine_for
from drainer.spark.replay.epochs import LAST_TS
from tidb_binlog.errors import Corruption
from tidb_binlog.late_dataclass import dataclass, field, replace
from tidb_binlog.tso import Ts

HERE_BYTES: Final = 64 << 20
_LAST: Final = -1
_FIRST: Final = -2
_NO_END: Final = 1 << 62
_PACKED: Final = 4  # an archive is about so many times smaller when it is compressed

Point = tuple[int, int]
"""Index of a file, position in it."""


@dataclass(frozen=True)
class Outline:
    """`changes` in order, with where the first record of each is. `last_ts`: of all that is selected, 0 if it
    is nothing. `rows`: of the files whose index or records were read, all tables. `after`: by index of
    a file, up to which commit_ts it repeats what files before it have."""

    changes: tuple[tuple[SchemaChange, Point], ...]
    last_ts: Ts
    rows: int
    after: Mapping[int, int] = field(default_factory=dict)

    def once(self, slices: Iterable[Slice]) -> list[Slice]:
        """Slices that leave out what files before them have."""
        return [replace(part, after=self.after.get(part.index, 0)) for part in slices]


def _heads(
    location: Place, selection: Selection, parts: Iterable[tuple[int, Slice]]
) -> Iterator[tuple[int, int, int, int]]:
    """(number of the slice, position, commit_ts, rows) of schema changes. Position -1: the last commit_ts and
    the rows of a slice, -2: its first commit_ts."""
    for number, part in parts:
        last_ts = rows = 0
        first_ts = LAST_TS
        for head in heads(location, part):
            if not selection.wants_ts(head.commit_ts):
                continue
            last_ts, first_ts = max(last_ts, head.commit_ts), min(first_ts, head.commit_ts)
            rows += head.rows
            if head.is_ddl:
                yield number, head.pos, head.commit_ts, 0
        yield number, _LAST, last_ts, rows
        yield number, _FIRST, first_ts, 0


def outline(
    spark: SparkOf | None,
    survey: Survey,
    selection: Selection,
    definitions: Definitions,
    *,
    skip_damage: bool = False,
) -> Outline:
    """`selection` without stop: to the end. Without `spark` everything is read here."""
    covered, last_ts, rows = _covered_by_indexes(survey, selection)
    planned = survey.plan(replace(selection, tables=()), skip_damage=skip_damage)
    slices = tuple(part for part in planned if part.name not in covered)
    engine = engine_for(None if sum(part.size for part in slices) <= HERE_BYTES else spark)
    work = partial(_heads, survey.location, selection)
    spans = _Spans(survey, selection)
    changes: dict[int, list[tuple[SchemaChange, Point]]] = {}
    for number, pos, commit_ts, count in sorted(engine.over(list(enumerate(slices)), work).gather(iter)):
        spans.note(slices[number].index, commit_ts)
        if pos == _FIRST:
            continue
        last_ts, rows = max(last_ts, commit_ts), rows + count
        if pos >= 0:
            part = replace(slices[number], start=pos, stop=pos + 1)
            for change in _changes(survey.location, part, commit_ts, selection, definitions):
                same_ts = changes.setdefault(commit_ts, [])
                if all(change.ddl.query != other.ddl.query for other, _ in same_ts):
                    same_ts.append((replace(change, part=len(same_ts)), (part.index, pos)))
    in_order = [pair for commit_ts in sorted(changes) for pair in changes[commit_ts]]
    return Outline(tuple(in_order), last_ts, rows, spans.repeated())


class _Spans:
    """The first and the last commit_ts of files. Where they overlap, a drainer was started again and wrote
    anew what it had written after its checkpoint."""

    def __init__(self, survey: Survey, selection: Selection) -> None:
        self._location = survey.location
        self._selection = selection
        self._slices = survey.plan(replace(selection, tables=(), ops=()), skip_damage=True)
        read = {part.index for part in self._slices}  # not a file of which all that is wanted comes again
        self._spans: dict[int, tuple[int, int]] = {
            segment.index: (segment.described.first_ts, segment.described.last_ts)
            for segment in survey.segments
            if segment.described is not None
            and segment.is_covered
            and segment.described.size
            and segment.index in read
        }

    def note(self, index: int, commit_ts: Ts) -> None:
        if 0 < commit_ts < LAST_TS:
            first_ts, last_ts = self._spans.get(index, (commit_ts, commit_ts))
            self._spans[index] = min(first_ts, commit_ts), max(last_ts, commit_ts)

    def repeated(self) -> dict[int, int]:
        """As `Outline.after`. Raises `Corruption` if a file has what is older and was not there before."""
        after: dict[int, int] = {}
        before = 0
        for index, (first_ts, last_ts) in sorted(self._spans.items()):
            if first_ts <= before and before >= self._selection.start:
                self._check(index, first_ts, before)
                after[index] = before
            before = max(before, last_ts)
        return after

    def _check(self, index: int, first_ts: Ts, before: int) -> None:
        """Reads the stretch again, in files where that happened."""
        selection = replace(self._selection, start=max(first_ts, self._selection.start), stop=before)
        seen: set[int] = set()
        for part in self._slices:
            if part.index > index or self._spans.get(part.index, (0, 0))[1] < selection.start:
                continue
            for head in heads(self._location, part):
                if not selection.wants_ts(head.commit_ts):
                    continue
                if part.index < index:
                    seen.add(head.commit_ts)
                elif head.commit_ts not in seen:
                    raise Corruption(
                        f"{self._location.path_of(part.name)}: offset {head.pos}: commit_ts"
                        f" {head.commit_ts} comes after {before}, and was not there before",
                        hint="audit the archive: its transactions are not in order",
                    )


def end_of(selection: Selection, last_ts: Ts) -> int:
    """Where a range ends from now on. One that reaches beyond the archive ends with it: what is written to
    the archive meanwhile would change what was read before."""
    end = max(last_ts, selection.start, 1)
    return min(selection.stop, end) if selection.stop else end


def _covered_by_indexes(survey: Survey, selection: Selection) -> tuple[set[str], int, int]:
    """Files without schema changes, their last commit_ts and rows."""
    covered, last_ts, rows = set(), 0, 0
    for segment in survey.segments:
        described = segment.described
        if described is None or not segment.is_covered or described.ddl:
            continue
        if selection.stop and described.last_ts > selection.stop:
            continue
        covered.add(segment.name)
        if described.last_ts >= selection.start:
            last_ts = max(last_ts, described.last_ts)
            rows += sum(map(sum, described.rows.values()))
    return covered, last_ts, rows


def _changes(
    location: Place, part: Slice, commit_ts: Ts, selection: Selection, definitions: Definitions
) -> Iterator[SchemaChange]:
    only = replace(selection, start=commit_ts, stop=commit_ts, ops=())
    for record in read(location, part, only, definitions):
        if isinstance(record, SchemaChange):
            yield record


def between(slices: Sequence[Slice], begin: Point | None, end: Point | None) -> list[Slice]:
    """What of slices lies between two places. A relay log is read from the beginning of a file: what its
    records are about is said there."""
    parts = []
    for part in slices:
        stop = _stop(part)
        if begin is not None and (part.index, stop) <= begin:
            continue
        if end is not None and (part.index, part.start) >= end:
            continue
        if begin is not None and part.index == begin[0] and begin[1] > part.start and part.kind == PB:
            part = replace(part, start=begin[1])
        if end is not None and part.index == end[0] and end[1] < stop:
            part = replace(part, stop=end[1], last=False)
        parts.append(part)
    return parts


def _stop(part: Slice) -> int:
    """Places in a compressed file are those of its contents, whose size is not known."""
    return part.stop or (_NO_END if part.name.endswith(COMPRESSED) else part.size)


def size_of(slices: Iterable[Slice]) -> int:
    """Bytes to read, roughly where they are compressed."""
    return sum(
        part.size * _PACKED if part.name.endswith(COMPRESSED) else _stop(part) - part.start for part in slices
    )
