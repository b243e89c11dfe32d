"""Segments: which files an archive has, and which stretches of them a selection needs.

In     a location; a selection
Out    `Survey`: files in order with what is known of them, and what is wrong; slices to read, each on its own
Holds  a slice begins at a record; slices do not overlap and leave out only what the selection leaves out
Why    a file is skipped by its index, or by the first records of it and of the one after it: no record lies
       after a later one of another file, but where a drainer wrote again what it had written
Never  raises for a file that is missing or there twice: `problems` says it, and the slice after it carries
       it to what reads across
Tests  tests/drainer/reading/archive/decode/test_reading.py
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import itertools
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from common.binlog import leading_header
from common.errors import ConfigError, Corruption
from common.record import FILE_HEADER_SIZE, VALUE_HEADER_SIZE, RecordError
from drainer.formats import binlog_file, segment_index
from drainer.formats.relay_payload.record import commit_ts_of
from drainer.formats.segment_index import UTC, SegmentIndex
from drainer.reading.archive.files.framing import file_records
from drainer.reading.archive.files.location import Entry, Location
from drainer.reading.archive.files.payload import PB, RELAY, kind_of
from drainer.reading.archive.files.selection import Selection

PUMP: Final = "pump"
AUTO: Final = "auto"
KINDS: Final = (PB, RELAY, PUMP)
SLICE_BYTES: Final = 128 << 20
_VALUE_LOG: Final = re.compile(r"(\d{6,10})\.vlog")
_VALUES: Final = "value"
_AT_ONCE: Final = 16
_HEAD_BYTES: Final = 64


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong with a file, or between two of them."""

    kind: str  # missing, doubled, short
    segment: str
    offset: int
    text: str


@dataclass(frozen=True, slots=True)
class Segment:
    """A file. `first_ts` and `last_ts` as far as they are known without reading it; `described`: its index.

    `trouble` says what is wrong between the file before and this one, or with its end. `mtime_ns`: when it
    was written for the last time, 0 where it is not known.
    """

    name: str
    index: int
    size: int
    kind: str
    first_ts: int | None = None
    last_ts: int | None = None
    described: SegmentIndex | None = None
    compressed: bool = False
    trouble: str = ""
    mtime_ns: int = 0

    @property
    def plain_name(self) -> str:
        """Its name before it was compressed: that of the files beside it."""
        return binlog_file.plain_name(self.name)

    @property
    def is_covered(self) -> bool:
        """The index tells of all of it."""
        return self.described is not None and (self.compressed or self.described.size == self.size)


@dataclass(frozen=True, slots=True)
class Slice:
    """A stretch of a file that is read on its own. `stop` 0: to its end.

    `last`: nothing follows, so it may end in bytes that are no whole record. `following`: the files after
    it, for what ends there (value logs). `time_zone`: of TIMESTAMPs in records that do not say it. `after`:
    what is at or below it is in files before, and only repeated here.
    """

    name: str
    index: int
    kind: str
    start: int = 0
    stop: int = 0
    size: int = 0
    last: bool = False
    trouble: str = ""
    following: tuple[str, ...] = ()
    time_zone: str = UTC
    after: int = 0


@dataclass(frozen=True, slots=True)
class Survey:
    """An archive as it was when it was surveyed. `time_zone`: of TIMESTAMPs where nothing says it."""

    location: Location
    kind: str
    segments: tuple[Segment, ...] = ()
    problems: tuple[Problem, ...] = ()
    time_zone: str = UTC

    def plan(self, selection: Selection, target_bytes: int = SLICE_BYTES) -> list[Slice]:
        """What to read, in order."""
        found: list[Slice] = []
        wanted = set(self._wanted(selection))
        for place, segment in enumerate(self.segments):
            if place not in wanted:
                continue
            last = place == len(self.segments) - 1
            whole = Slice(
                segment.name,
                segment.index,
                segment.kind,
                size=segment.size,
                last=last,
                trouble=segment.trouble,
                time_zone=zone_of(segment.described, self.time_zone),
            )
            if self.kind == PUMP:
                names = tuple(each.name for each in self.segments[place + 1 :])
                found.append(replace(whole, following=names))
            else:
                found += _cut(whole, segment, selection, target_bytes)
        if found and not _is_in_range(self.segments, found[0], selection):
            found[0] = replace(found[0], trouble="")
        return found

    def _wanted(self, selection: Selection) -> Iterable[int]:
        """Places of the segments that may hold what is selected."""
        segments = self.segments
        if self.kind == PUMP:  # ordered by when transactions began, not by when they were committed
            return range(len(segments))
        return (
            place
            for place, segment in enumerate(segments)
            if not _is_before(segment, segments[place + 1 : place + 2], selection.start)
            and not (selection.stop and segment.first_ts is not None and segment.first_ts > selection.stop)
            and not _is_without(segment, selection)
        )


def _is_before(segment: Segment, following: Sequence[Segment], start: int) -> bool:
    if segment.last_ts is not None:
        return segment.last_ts < start
    return any(each.first_ts is not None and each.first_ts < start for each in following)


def _is_without(segment: Segment, selection: Selection) -> bool:
    """Neither a DDL nor a row of the tables is in it, says its index."""
    described = segment.described
    if described is None or not segment.is_covered or described.ddl or selection.takes_all_rows:
        return False
    return not any(
        selection.wants_table(*name) and any(counts[kind] for kind in range(3) if selection.wants_op(kind))
        for name, counts in described.rows.items()
    )


def _is_in_range(segments: Sequence[Segment], first: Slice, selection: Selection) -> bool:
    """Whether something before the first slice belongs to the range: then what is missing there matters."""
    (segment,) = (each for each in segments if each.name == first.name)
    return segment.first_ts is None or selection.start < segment.first_ts


def _cut(whole: Slice, segment: Segment, selection: Selection, target_bytes: int) -> list[Slice]:
    """A segment in slices of about that many bytes, without what lies outside of the range."""
    described = segment.described
    if described is None or segment.compressed or len(described.places) < 2:
        return [whole]
    places = described.places
    if any(after[0] < before[0] for before, after in itertools.pairwise(places)):
        return [whole]
    begin, end = 0, segment.size if not segment.is_covered or whole.last else 0
    for commit_ts, offset in places:
        if commit_ts < selection.start:
            begin = offset
        if selection.stop and commit_ts > selection.stop and not segment.trouble:
            end = offset
            break
    cuts = [begin]
    for _, offset in places:
        if begin < offset and (not end or offset < end) and offset - cuts[-1] >= target_bytes:
            cuts.append(offset)
    stops = [*cuts[1:], end if end != segment.size else 0]
    return [
        replace(whole, start=start, stop=stop, trouble=whole.trouble if start == begin else "")
        for start, stop in zip(cuts, stops, strict=True)
    ]


# -- looking it over -------------------------------------------------------------------------------------


def survey(location: Location, kind: str = AUTO, time_zone: str = UTC) -> Survey:
    """Survey a directory. `time_zone`: that of a Go drainer. Raises `ConfigError` for a directory that is
    not there, or of another kind."""
    if kind != AUTO and kind not in KINDS:
        raise ConfigError(f"{kind!r} is no kind of archive", hint=f"choose from {AUTO}, {', '.join(KINDS)}")
    entries = location.list()
    logs = _value_logs(entries)
    if kind in (AUTO, PUMP):
        if not logs and location.has(_VALUES):
            location = location.under(_VALUES)
            logs = _value_logs(location.list())
        if logs or kind == PUMP:
            return _of_pump(location, logs)
    files = named(entries)
    found = kind if kind != AUTO else kind_of_files(location, [entry.name for _, entry in files]) or PB
    return replace(_of_binlog_files(location, found, files), time_zone=time_zone)


def zone_of(described: SegmentIndex | None, otherwise: str) -> str:
    """The time zone of the TIMESTAMPs of a segment."""
    return UTC if described is not None and described.time_zone == UTC else otherwise


def _value_logs(entries: Iterable[Entry]) -> list[tuple[int, Entry]]:
    return sorted(
        ((int(match[1]), entry) for entry in entries if (match := _VALUE_LOG.fullmatch(entry.name))),
        key=lambda found: found[0],
    )


def named(entries: Iterable[Entry]) -> list[tuple[int, Entry]]:
    """Binlog files in order. One that is being compressed is there twice: the original counts."""
    by_name = {entry.name: entry for entry in entries}
    return [(index, by_name[name]) for index, name in binlog_file.named(by_name)]


def kind_of_files(location: Location, names: Sequence[str]) -> str | None:
    """What the first record says that can be read; None where there is none. Readers find the damage."""
    for name in names:
        with contextlib.suppress(RecordError, Corruption), location.open(name) as file:
            for _, payload in file_records(file.read):
                return kind_of(payload)
    return None


def _of_pump(location: Location, logs: Sequence[tuple[int, Entry]]) -> Survey:
    segments: list[Segment] = []
    problems: list[Problem] = []
    for index, entry in logs:
        trouble = ""
        if segments and index != segments[-1].index + 1:
            trouble = f"value log {segments[-1].index + 1:06d} is missing before {entry.name}"
            problems.append(Problem("missing", entry.name, 0, trouble))
        begin = location.read(entry.name, VALUE_HEADER_SIZE, _HEAD_BYTES)
        first_ts = leading_header(begin).index_ts if begin else None
        segments.append(
            Segment(entry.name, index, entry.size, PUMP, first_ts, trouble=trouble, mtime_ns=entry.mtime_ns)
        )
    return Survey(location, PUMP, tuple(segments), tuple(problems))


def _of_binlog_files(location: Location, kind: str, files: Sequence[tuple[int, Entry]]) -> Survey:
    with concurrent.futures.ThreadPoolExecutor(_AT_ONCE) as pool:
        inspected = list(pool.map(lambda one: inspect(location, kind, *one), files))
    segments: list[Segment] = []
    problems: list[Problem] = []
    for segment in inspected:
        problem = _between(segments[-1] if segments else None, segment) or _short(segment)
        if problem is not None:
            problems.append(problem)
            segment = replace(segment, trouble=problem.text)
        segments.append(segment)
    return Survey(location, kind, tuple(segments), tuple(problems))


def inspect(location: Location, kind: str, index: int, entry: Entry) -> Segment:
    """A file of an archive, as far as its index or else its first record tells."""
    name, size = entry.name, entry.size
    compressed = binlog_file.is_compressed(name)
    described = None
    if kind == PB:
        file_name = segment_index.file_name(binlog_file.plain_name(name))
        text = location.content(f"{segment_index.DIRECTORY}/{file_name}")
        described = SegmentIndex.from_json(text) if text else None
    first_ts = last_ts = None
    if described is not None and described.size:
        first_ts = described.first_ts
        if compressed or described.size == size:
            last_ts = described.last_ts
    elif size:
        with contextlib.suppress(Corruption), location.open(name) as file:
            first_ts = _first_ts(file.read(FILE_HEADER_SIZE, _HEAD_BYTES))
    return Segment(name, index, size, kind, first_ts, last_ts, described, compressed, mtime_ns=entry.mtime_ns)


def _first_ts(payload: bytes) -> int | None:
    try:
        return commit_ts_of(payload)
    except Corruption:
        return None


def _between(before: Segment | None, segment: Segment) -> Problem | None:
    if before is None or segment.index == before.index + 1:
        return None
    if segment.index == before.index:
        text = f"{before.name} and {segment.name} have the same index"
        return Problem("doubled", segment.name, 0, text)
    missing = f"{before.index + 1}"
    if segment.index > before.index + 2:
        missing = f"{before.index + 1} to {segment.index - 1}"
    return Problem(
        "missing", segment.name, 0, f"index {missing} is missing between {before.name} and {segment.name}"
    )


def _short(segment: Segment) -> Problem | None:
    described = segment.described
    if described is None or segment.compressed or described.size <= segment.size:
        return None
    gone = described.size - segment.size
    return Problem(
        "short",
        segment.name,
        segment.size,
        f"{segment.name} has lost {gone} bytes at its end, says its index",
    )
